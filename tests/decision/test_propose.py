"""From a log alone to a decision: each half evaluates what the other half has learned, unless they go by time."""

import numpy as np
import pytest
from decision_world import world

import manyarms as ma
from manyarms.core.fingerprint import any_shared
from manyarms.decision.propose import propose
from manyarms.errors import InputError
from manyarms.estimators.checked_value import pooled_difference


def whole_log():
    train, test, catalog = world()
    parts = (
        np.concatenate([getattr(part, name) for part in (train, test)]) for name in ("contexts", "actions", "rewards")
    )
    propensities = np.concatenate([train.propensities, test.propensities])
    return ma.LoggedData(*parts, propensities, 60, catalog=catalog)


@pytest.fixture(scope="module")
def known():
    logs = whole_log()
    return logs, ma.decide(None, logs)


def test_a_log_alone_leads_to_a_decision_on_rounds_that_nothing_was_learned_from(known):
    logs, decision = known
    assert list(decision.gains) == ["greedy", "pessimistic", "softmax"] == list(decision.candidates)
    assert all(gain.kind == "checked" for gain in decision.gains.values())
    assert not any(gain.diagnostics["evaluated_on_training_rounds"] for gain in decision.gains.values())
    assert not any(row.trained for row in decision.evaluation.policies)
    assert decision.evaluation.n_rounds == len(logs) // 2
    assert decision.evaluation.pooled_rounds == decision.evaluation.gain_rounds == len(logs)
    assert decision.verdict == "ship"


@pytest.mark.slow
def test_the_gain_is_that_of_two_halves_that_learn_alone(known):
    """What `decide` does, done by hand."""
    logs, decision = known
    first, second = logs.split(0.5, rng=np.random.default_rng(0))
    sides = []
    for learning, held_out in ((first, second), (second, first)):
        posterior = ma.learn_prior(learning, "auto").posterior
        sides.append((ma.Checked(posterior), ma.Greedy(posterior), ma.Logged(held_out), held_out))
    expected, gain = pooled_difference(sides), decision.gains["greedy"]
    np.testing.assert_allclose([gain.value, *gain.interval()], [expected.value, *expected.interval()], rtol=1e-12)
    # All other figures are of the first half's policies on the second half.
    checked, policy, baseline, held_out = sides[0]
    row = decision.evaluation.policies[0]
    assert row.value.value == pytest.approx(checked.posterior.value(policy, held_out.contexts).value)
    assert decision.evaluation.mean_reward == pytest.approx(held_out.rewards.mean())
    # A relative gain is one over the mean of all rounds.
    assert row.lift.value == pytest.approx(gain.value / abs(logs.rewards.mean()))
    one_way = checked.difference(policy, baseline, held_out)
    assert gain.std < one_way.std


def test_the_policies_to_use_have_learned_from_all_rounds_and_the_decision_says_so(known, tmp_path):
    logs, decision = known
    first, second = logs.split(0.5, rng=np.random.default_rng(0))
    for policy in decision.candidates.values():
        assert all(any_shared(policy.learned_from, (half.fingerprint,)) for half in (first, second))
    learned = ma.learn_prior(first, "auto").posterior
    expected = ma.Greedy(learned.update(second)).actions(logs.contexts)
    np.testing.assert_array_equal(decision.candidates["greedy"].actions(logs.contexts), expected)
    assert decision.reason.endswith("The policy to deploy was then learned in the same way from all rounds.")
    assert "over all 1,500 rounds" in decision.made_with["split"]
    assert "on the 750 rounds of the second" in decision.made_with["split"]
    assert decision.as_json()["evaluation"]["pooled_rounds"] == 1500
    page = tmp_path / "page.html"
    ma.write_report(decision, page)
    assert "Gains use all 1,500 rounds" in page.read_text(encoding="utf-8")


def test_what_one_half_learns_does_not_depend_on_the_rewards_of_the_other():
    logs = without_times(drifting_log())
    before = propose(logs)
    rows, rewards = before.swapped.logs.rows, logs.rewards.copy()
    rewards[rows] = np.random.default_rng(3).normal(size=len(rows))
    after = propose(ma.LoggedData(logs.contexts, logs.actions, rewards, logs.propensities, 4))
    x, actions = logs.contexts[:4], np.arange(4)
    np.testing.assert_array_equal(*(part.swapped.posterior.expected_reward(x, actions) for part in (before, after)))
    assert not np.array_equal(*(part.posterior.expected_reward(x, actions) for part in (before, after)))


def test_the_decision_is_the_same_every_time():
    logs = without_times(drifting_log())
    first, second = (ma.decide(None, logs) for _ in range(2))
    assert (first.sentence, first.reason) == (second.sentence, second.reason)
    assert {name: gain.interval() for name, gain in first.gains.items()} == {
        name: gain.interval() for name, gain in second.gains.items()
    }


def test_without_the_swap_only_the_first_half_learns():
    logs = without_times(drifting_log())
    decision = ma.decide(None, logs, swap=False)
    first, second = logs.split(0.5, rng=np.random.default_rng(0))
    posterior = ma.learn_prior(first, "auto").posterior
    expected = ma.Checked(posterior).difference(ma.Greedy(posterior), ma.Logged(second), second)
    gain = decision.gains["greedy"]
    np.testing.assert_allclose([gain.value, *gain.interval()], [expected.value, *expected.interval()], rtol=1e-12)
    assert decision.evaluation.pooled_rounds is None and "two policies" not in decision.reason
    assert decision.made_with["split"].endswith("evaluated on the other half")
    assert not any_shared(decision.candidates["greedy"].learned_from, (second.fingerprint,))


def test_an_averaged_model_evaluates_by_the_priors_that_the_log_allows():
    logs = without_times(drifting_log())
    decision = ma.decide({"greedy": "greedy"}, logs, swap=False, averaged=True)
    first, second = logs.split(0.5, rng=np.random.default_rng(0))
    learned = ma.learn_prior(first, "auto")
    average = learned.averaged(rng=np.random.default_rng(0))
    value = decision.evaluation.policies[0].value
    expected = average.value(ma.Greedy(learned.posterior), second.contexts)
    np.testing.assert_allclose([value.value, value.std], [expected.value, expected.std], rtol=1e-10)
    certain = learned.posterior.value(ma.Greedy(learned.posterior), second.contexts)
    assert value.posterior_std > 1.01 * certain.posterior_std
    assert decision.made_with["prior"].endswith("averaged over learned priors") and decision.shrinkage is not None


@pytest.mark.slow
def test_a_small_log_has_an_answer_that_decides_nothing():
    decision = ma.decide(None, whole_log().take(np.arange(20)))
    assert decision.verdict == "undecided" and decision.evaluation.pooled_rounds == 20


def test_a_half_that_is_very_small_does_not_learn():
    logs = without_times(drifting_log())
    grouped = ma.LoggedData(
        logs.contexts, logs.actions, logs.rewards, logs.propensities, 4, groups=(np.arange(len(logs)) < 5) * 1
    )
    proposal = propose(grouped)
    assert proposal.swapped is None and proposal.candidates == proposal.policies


def test_no_round_and_no_group_is_in_both_halves():
    logs = whole_log()
    users = np.arange(len(logs)) % 100
    grouped = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 60, groups=users)
    proposal = propose(grouped)
    held_out, learning = proposal.held_out, proposal.swapped.logs
    inside = set(held_out.groups.tolist())
    assert len(inside) == 50 and len(held_out) == sum(user in inside for user in users)
    assert not inside & set(learning.groups.tolist()) and len(learning) + len(held_out) == len(logs)


def drifting_log(n=1200, **columns):
    """Action 0 pays 3 more than the others in the first half of the time, and 1.5 less in the second."""
    rng = np.random.default_rng(7)  # not the seed of the split by row
    times = np.datetime64("2024-01-01T00", "h") + rng.permutation(n)
    late = times >= np.sort(times)[n // 2]
    actions = rng.integers(0, 4, n)
    rewards = np.where(actions == 0, np.where(late, -1.5, 3.0), 0.0) + 0.5 * rng.normal(size=n)
    contexts, propensities = np.ones((n, 1)), np.full(n, 0.25)
    return ma.LoggedData(contexts, actions, rewards, propensities, 4, times=times, **columns)


def without_times(logs):
    return ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, logs.n_actions)


def test_with_times_the_earlier_half_learns_and_the_later_half_evaluates():
    logs = drifting_log()
    proposal = propose(logs)
    learned_from = np.setdiff1d(logs.rows, proposal.held_out.rows)
    assert len(learned_from) == len(logs) // 2
    assert logs.times[learned_from].max() < proposal.held_out.times.min()
    assert proposal.split == (
        "by time: learned from the earlier half, evaluated on the later half "
        "(600 and 600 rounds; the later half starts at 2024-01-26T00:00:00)"
    )


def test_a_change_over_time_fools_a_split_by_row_and_not_one_by_time():
    logs = drifting_log()
    by_row, by_time = ma.decide(None, without_times(logs)), ma.decide(None, logs)
    assert by_row.verdict == "ship" and by_row.made_with["split"].startswith("by row: ")
    # Later on, the action that was best is the worst.
    assert by_time.verdict == "keep" and by_time.gains["greedy"].value < -0.9
    assert by_time.made_with["split"].startswith("by time: learned from the earlier half, evaluated on the later half")
    # Nothing about the past may be learned from the future, so halves by time are not swapped.
    assert by_row.evaluation.pooled_rounds == len(logs) and by_time.evaluation.pooled_rounds is None
    later = logs.split(0.5, "time")[1]
    assert not any_shared(by_time.candidates["greedy"].learned_from, (later.fingerprint,))


def test_with_times_groups_are_whole_and_the_note_counts_late_rounds():
    users = np.random.default_rng(1).integers(0, 300, 1200)
    logs = drifting_log(groups=users)
    proposal = propose(logs)
    held_out = proposal.held_out
    learning = logs.take(np.setdiff1d(logs.rows, held_out.rows))
    assert not set(held_out.groups) & set(learning.groups)
    late = (learning.times >= held_out.times.min()).sum()
    assert late > 0 and f"so {late:,} rounds to learn from are not earlier" in proposal.split


@pytest.mark.parametrize("grouped", [False, True])
def test_times_that_are_alike_leave_the_split_to_groups_or_rows(grouped):
    logs = drifting_log()
    groups = np.arange(len(logs)) % 100 if grouped else None
    times = np.zeros(len(logs))
    times[:5] = 1.0  # too few to evaluate on
    columns = (logs.contexts, logs.actions, logs.rewards, logs.propensities, 4)
    expected = propose(ma.LoggedData(*columns, groups=groups))
    for alike in (np.zeros(len(logs)), times):
        proposal = propose(ma.LoggedData(*columns, groups=groups, times=alike))
        np.testing.assert_array_equal(proposal.held_out.rows, expected.held_out.rows)
        reason = "; not by time, since too many rounds have the same time; then the halves swap"
        assert proposal.split == expected.split.replace("; then the halves swap", reason)
        assert proposal.swapped is not None
        assert proposal.split.startswith("by group: " if grouped else "by row: ")


def test_arguments_by_row_and_short_logs_are_refused():
    logs = whole_log()
    with pytest.raises(InputError, match="true_rewards cannot be used if no model is given"):
        ma.decide(None, logs, true_rewards=np.zeros(len(logs)))
    with pytest.raises(InputError, match="logs has 10 rounds, too few"):
        ma.decide(None, logs.take(np.arange(10)))


def test_a_log_without_a_catalog_still_has_an_answer():
    logs = whole_log()
    bare = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=60)
    decision = ma.decide(None, bare)
    assert decision.verdict in ("ship", "undecided", "keep")
    assert all(gain.diagnostics["estimated_propensities"] == 1.0 for gain in decision.gains.values())


def test_the_top_level_of_a_taxonomy_counts_as_categories():
    rng, n = np.random.default_rng(0), 400
    paths = [("food", "tea"), ("food", "jam"), ("home", "mugs"), ("home", "pots")] * 3
    catalog = ma.Catalog([f"i{k}" for k in range(12)], paths=paths)
    actions = rng.integers(8, size=n)
    logs = ma.LoggedData(
        np.ones((n, 1)), actions, (actions % 4 > 1) + rng.normal(size=n), np.full(n, 1 / 8), 12, catalog=catalog
    )
    decision = ma.decide({"greedy": "greedy"}, logs, swap=False)
    assert decision.support is not None
    assert {row.category for row in decision.support.rows} == {"food", "home"}
