"""Decisions in dsjson files become rounds with their candidates, and broken lines are named."""

import gzip
import json

import numpy as np
import pytest
from small_shop import run

import manyarms as ma
from manyarms.errors import ActionError, DataFileError, EligibilityError, InputError, NonFiniteError

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
