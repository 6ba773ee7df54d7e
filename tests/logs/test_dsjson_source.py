"""Decisions in dsjson files become rounds with their candidates, and broken lines are named."""

import gzip
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from small_shop import run

import manyarms as ma
from manyarms.errors import ActionError, DataFileError, EligibilityError, InputError, NonFiniteError
from manyarms.logs.dsjson_source import DsjsonSource

TOPICS = ("ski", "sea", "art", "food", "golf")


def decision(i, rng):
    """A line as VW writes it: three of five candidates, one of which is chosen at random."""
    candidates, choice = rng.choice(5, size=3, replace=False), int(rng.integers(3))
    major = ("math", "law")[int(rng.integers(2))]
    return {
        "_label_cost": -float(rng.random() < 0.1 + 0.15 * candidates[choice] * (major == "math")),
        "_label_probability": 1 / 3, "_label_Action": choice + 1, "_labelIndex": choice,
        "Timestamp": f"2024-05-{1 + i // 100:02d}T10:00:00Z", "EventId": f"e{i}", "pdrop": 0.5 if i % 2 else 0.0,
        "a": [choice + 1, *(k + 1 for k in range(3) if k != choice)], "p": [1 / 3] * 3,
        "c": {"User": {"major": major, "age": int(rng.integers(18, 70))}, "_ignored": 1,
              "_multi": [{"Item": {"topic": TOPICS[k], "id": TOPICS[k]}} for k in candidates]},
    }  # fmt: skip


def lines(n=400):
    rng = np.random.default_rng(0)
    return [decision(i, rng) for i in range(n)]


def write(path, decisions):
    path.write_text("".join(f"{json.dumps(one)}\n" for one in decisions))
    return path


ROLES = dict(context=["User.major", "User.age"], action="action", reward="reward", propensity="propensity")


def read(path, **options):
    return ma.read_logs(path, **ROLES, eligible="eligible", **options)


def test_decisions_become_rounds_with_their_candidates(tmp_path):
    made = lines()
    file = write(tmp_path / "log.dsjson", made)
    logs = read(file, weight="weight", time="time").collect()
    ids = logs.catalog.ids.tolist()
    assert ids == sorted(TOPICS)
    for row in (0, 1, 399):
        one = made[row]
        candidates = [candidate["Item"]["topic"] for candidate in one["c"]["_multi"]]
        assert ids[logs.actions[row]] == candidates[one["_labelIndex"]]
        assert logs.rewards[row] == -one["_label_cost"] and logs.weights[row] == (2 if row % 2 else 1)
        assert {ids[a] for a in logs.eligible[[row]].indices} == set(candidates)
    # In pieces, compressed, and with the label written in VW's other ways, the rounds are the same.
    other = [{k: v for k, v in one.items() if k not in ("_labelIndex", "_label_Action")} for one in made]
    with gzip.open(tmp_path / "other.dsjson.gz", "wt") as out:
        out.write("\n\n".join(map(json.dumps, other)))
    again = next(iter(read(tmp_path / "other.dsjson.gz", weight="weight").batches(1000)))
    np.testing.assert_array_equal(again.actions, logs.actions)
    np.testing.assert_array_equal(again.contexts, logs.contexts)


def test_policies_choose_among_the_candidates_wherever_the_rounds_evaluate_them(tmp_path):
    logs = read(write(tmp_path / "log.dsjson", lines())).collect()
    posterior = ma.fit(logs, ma.priors.independent(5, dim=logs.dim), ma.Gaussian(0.4))
    greedy, rows = ma.Greedy(posterior), np.arange(len(logs))
    best = greedy.on(logs).actions(logs.contexts)
    # By brute force over all actions.
    expected = np.where(logs.eligible.toarray() > 0, logs.contexts @ posterior.weights.action_mean().T, -np.inf)
    np.testing.assert_array_equal(best, expected.argmax(axis=1))
    assert (best != greedy.actions(logs.contexts)).any()
    snips = ma.SNIPS().estimate(greedy, logs)
    weights = (best == logs.actions) / logs.propensities
    assert snips.value == pytest.approx(weights @ logs.rewards / weights.sum())
    result = ma.evaluate({"greedy": greedy}, logs, posterior).policies[0]
    assert result.value.value == pytest.approx(expected[rows, best].mean())
    # A part has the candidates of its own rounds.
    part = logs.take(rows[::3])
    np.testing.assert_array_equal(greedy.on(part).actions(part.contexts), best[::3])
    np.testing.assert_array_equal(ma.Greedy(posterior).on(logs.with_eligible(None)).actions(logs.contexts),
                                  greedy.actions(logs.contexts))  # fmt: skip


def test_a_logged_action_outside_its_candidates_is_refused():
    logs = ma.LoggedData(np.ones((3, 1)), [0, 1, 2], np.zeros(3), n_actions=3)
    with pytest.raises(EligibilityError, match="logged action of row 1 is not among its candidates"):
        logs.with_eligible([[0, 1], [0, 2], [2]])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda one: "{" + one, DataFileError, r"line 3 of .*log\.dsjson is not JSON.*sed -i 3d"),
        (lambda one: json.dumps({"RewardValue": 1}), DataFileError, "line 3 .* has no context"),
        (lambda one: one.replace("_multi", "multi"), DataFileError, "line 3 .* has no candidates"),
        (lambda one: one.replace('"_labelIndex": ', '"_labelIndex": 7'), DataFileError, "there are 3 candidates"),
        (lambda one: one.replace('"_label_cost": ', '"_label_cost": "x", "y": '), DataFileError, "must be a number"),
        (lambda one: one.replace('"_label_cost"', '"cost"'), NonFiniteError, r"missing in row 2 \(line 3 of "),
        (lambda one: one.replace('"age": ', '"age": "old", "y": '), DataFileError, "line 3 .*'old' as User.age"),
    ],
)
def test_a_broken_line_is_named_with_a_remedy(tmp_path, change, error, words):
    texts = [json.dumps(one) for one in lines(5)]
    # Columns and their types show in the first lines, so a wrong type comes later.
    texts[2] = change(texts[2])
    (tmp_path / "log.dsjson").write_text("\n".join(texts))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(error, match=words):
        patch.setattr("manyarms.logs.dsjson_source.LOOK", 2)
        read(tmp_path / "log.dsjson").collect()


def test_a_file_without_decisions_is_named(tmp_path):
    (tmp_path / "log.dsjson").write_text("\n")
    with pytest.raises(DataFileError, match=r"log\.dsjson holds no decision\. Pass files with a line"):
        read(tmp_path / "log.dsjson")


def test_candidates_that_the_catalog_lacks_are_refused_or_left_out(tmp_path):
    file = write(tmp_path / "log.dsjson", lines(40))
    few = ma.Catalog(TOPICS[:4])
    with pytest.raises((ActionError, InputError), match="golf"):
        read(file, catalog=few).collect()
    logs = read(file, catalog=few, unknown="drop").collect()
    assert logs.eligible.shape == (len(logs), 4) and 1 <= np.diff(logs.eligible.indptr).min() < 3


def test_commands_read_dsjson_with_its_candidates(tmp_path):
    file = write(tmp_path / "log.dsjson", lines())
    check_up = ma.doctor(file)
    assert check_up.roles.eligible == "eligible" and "--eligible eligible" in check_up.commands[0]
    assert not [finding for finding in check_up.findings if finding.level == "problem"]
    flags = ["--context", "User.major,User.age", "--action", "action", "--reward", "reward"]
    result = run("decide", "--logs", file, *flags, "--propensity", "propensity", "--eligible", "eligible")
    assert result.exit_code in (0, 3, 4), result.output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"c": {"_slots": [], "_multi": [{}]}}, "line 2 .* decides for several slots at once, and one is expected"),
        ({"pdrop": 1.0}, r"line 2 .* has the pdrop 1\.0, which must be in \[0, 1\)"),
        ({"_labelIndex": None, "_label_Action": 4}, "line 2 .* chooses candidate 3, counted from zero; there are 3"),
        ({"_labelIndex": None, "_label_Action": None, "a": []}, "line 2 .* has no choice; there are 3 candidates"),
    ],
)
def test_a_decision_that_cannot_be_one_is_named(tmp_path, change, words):
    first, second = lines(2)
    with pytest.raises(DataFileError, match=words):
        read(write(tmp_path / "log.dsjson", [first, second | change]), weight="weight").collect()


def test_a_file_that_breaks_off_or_is_not_text_is_named(tmp_path):
    whole = gzip.compress("".join(f"{json.dumps(one)}\n" for one in lines(400)).encode())
    (tmp_path / "log.dsjson.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataFileError, match=r"log\.dsjson\.gz cannot be read: Compressed file ended before"):
        read(tmp_path / "log.dsjson.gz")
    (tmp_path / "log.dsjson").write_bytes(b'{"c": "\xff\xfe"}\n')
    with pytest.raises(DataFileError, match=r"line 1 of .*log\.dsjson is not JSON: .*can't decode byte"):
        read(tmp_path / "log.dsjson")


def test_the_choice_is_counted_from_one_in_the_label_of_an_action(tmp_path):
    made = lines(20)
    other = [{k: v for k, v in one.items() if k not in ("_labelIndex", "a")} for one in made]
    first, second = (read(write(tmp_path / f"{i}.dsjson", log)).collect() for i, log in enumerate((made, other)))
    assert first.actions.tolist() == second.actions.tolist()


def test_a_candidate_is_called_by_its_tag_or_its_id_or_all_its_features(tmp_path):
    candidates = [{"_tag": "first", "x": 1}, {"Item": {"id": 7}}, {"b": 2, "a": [{"c": 3}, {"d": "e"}]}, {"_hidden": 1}]
    made = [one | {"_labelIndex": 0, "_label_Action": 1} for one in lines(4)]
    for place, one in enumerate(made):
        one["c"]["_multi"] = candidates[place:] + candidates[:place]
    logs = read(write(tmp_path / "log.dsjson", made)).collect()
    assert logs.catalog.ids[logs.actions].tolist() == ["first", "7", "a.c=3, a.d=e, b=2", "(no features)"]


def test_features_of_the_context_are_flags_numbers_lists_and_words(tmp_path):
    made = lines(4)
    for place, one in enumerate(made):
        one["c"] |= {"new": place % 2 == 0, "seen": [float(place), 1.0], "mixed": [1, "x"], "parts": [{"n": place}]}
    options = ROLES | {"context": ["new", "seen", "parts.n", "mixed"]}
    logs = ma.read_logs(write(tmp_path / "log.dsjson", made), **options)
    names = logs.features.names
    assert [name for name in names if name.startswith(("new", "seen", "parts", "mixed"))][:5] == [
        "new=False", "new=True", "new=(other)", "seen[0]", "seen[1]",
    ]  # fmt: skip
    contexts = logs.collect().contexts
    assert contexts[:, names.index("new=True")].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert contexts[:, names.index("seen[0]")].tolist() == [0.0, 1.0, 2.0, 3.0]
    # Numbers 0 ... 3 have standard deviation √(5/4).
    np.testing.assert_allclose(contexts[:, names.index("parts.n")], (np.arange(4) - 1.5) / np.sqrt(1.25))


def test_decisions_are_counted_once_and_a_folder_may_grow(tmp_path):
    first = write(tmp_path / "1.dsjson", lines(60))
    catalog = ma.Catalog(TOPICS)
    posterior = ma.fit(stream := read(tmp_path, catalog=catalog), ma.priors.independent(5, dim=stream.dim))
    with pytest.raises(InputError, match="has seen"):
        posterior.update(read(tmp_path, catalog=catalog, features=stream.features))
    later = [one | {"EventId": f"late {i}"} for i, one in enumerate(lines(100)[60:])]
    second = write(tmp_path / "2.dsjson", later)
    for name in (tmp_path, [first, second]):
        assert read(name, catalog=catalog).fingerprint != stream.fingerprint
    grown = posterior.update(read(second, catalog=catalog, features=stream.features))
    whole = ma.fit(read(tmp_path, catalog=catalog, features=stream.features), posterior.prior)
    np.testing.assert_allclose(grown.weights.action_mean(), whole.weights.action_mean(), rtol=1e-8, atol=1e-12)
    # The file is known again in the folder.
    assert {mark.origin for mark in stream.source.fingerprints} < {mark.origin for mark in whole.learned_from}


def test_decisions_that_were_too_young_are_new_to_the_model_later(tmp_path):
    """One file has decisions of three days, of which the model knows two; another has only new ones."""
    made, catalog = lines(400), ma.Catalog(TOPICS)
    write(tmp_path / "1.dsjson", made[:300])

    def at(day, features=None):
        aged = dict(time="time", maturity=timedelta(days=1), now=datetime(2024, 5, day, 12, tzinfo=UTC))
        return read(tmp_path, catalog=catalog, features=features, **aged)

    stream = at(3)
    early = ma.fit(stream, ma.priors.independent(5, dim=stream.dim))
    assert early.statistics.n_rounds == 200 and stream.dropped.immature == 100
    write(tmp_path / "2.dsjson", made[300:])
    later = early.update(at(9, stream.features))
    assert later.statistics.n_rounds == 400
    whole = ma.fit(at(9, stream.features), early.prior)
    np.testing.assert_allclose(later.weights.action_mean(), whole.weights.action_mean(), rtol=1e-8, atol=1e-12)


def test_progress_begins_at_zero_and_counts_every_decision(tmp_path):
    file, reported = write(tmp_path / "log.dsjson", lines(70)), []
    source = DsjsonSource([file], lambda done, total: reported.append((done, total)))
    sizes = [len(batch) for batch in source.batches(["reward"], 30)]
    assert sizes == [30, 30, 10] and reported == [(0, None), (30, None), (60, None), (70, None)]
