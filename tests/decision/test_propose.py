"""From a log alone to a decision: one half learns and proposes, the other half evaluates."""

import numpy as np
import pytest
from decision_world import world

import manyarms as ma
from manyarms.decision.propose import propose
from manyarms.errors import InputError


def whole_log():
    train, test, catalog = world()
    parts = (
        np.concatenate([getattr(part, name) for part in (train, test)]) for name in ("contexts", "actions", "rewards")
    )
    propensities = np.concatenate([train.propensities, test.propensities])
    return ma.LoggedData(*parts, propensities, 60, catalog=catalog)


def test_a_log_alone_leads_to_a_decision_on_rounds_that_nothing_was_learned_from():
    logs = whole_log()
    decision, again = ma.decide(None, logs), ma.decide(None, logs)
    assert decision.sentence == again.sentence
    assert list(decision.gains) == ["greedy", "pessimistic", "softmax"] == list(decision.candidates)
    assert all(gain.kind == "checked" for gain in decision.gains.values())
    assert not any(gain.diagnostics["evaluated_on_training_rounds"] for gain in decision.gains.values())
    assert decision.evaluation.n_rounds == len(logs) // 2
    assert decision.verdict == "ship"


def test_no_round_and_no_group_is_in_both_halves():
    logs = whole_log()
    users = np.arange(len(logs)) % 100
    grouped = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 60, groups=users)
    held_out = propose(grouped).held_out
    inside = set(held_out.groups.tolist())
    assert len(inside) == 50 and len(held_out) == sum(user in inside for user in users)


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
        "by time: earlier half learns, later half evaluates (600 and 600 rounds, the later from 2024-01-26T00:00:00 on)"
    )


def test_a_change_over_time_fools_a_split_by_row_and_not_one_by_time():
    logs = drifting_log()
    by_row, by_time = ma.decide(None, without_times(logs)), ma.decide(None, logs)
    assert by_row.verdict == "ship" and by_row.made_with["split"].startswith("by row: ")
    # Later on, the action that was best is the worst.
    assert by_time.verdict == "keep" and by_time.gains["greedy"].value < -0.9
    assert by_time.made_with["split"].startswith("by time: earlier half learns, later half evaluates")


def test_with_times_groups_are_whole_and_the_note_counts_late_rounds():
    users = np.random.default_rng(1).integers(0, 300, 1200)
    logs = drifting_log(groups=users)
    proposal = propose(logs)
    held_out = proposal.held_out
    learning = logs.take(np.setdiff1d(logs.rows, held_out.rows))
    assert not set(held_out.groups) & set(learning.groups)
    late = (learning.times >= held_out.times.min()).sum()
    assert late > 0 and f"so {late:,} rounds that learn are not earlier" in proposal.split


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
        reason = "; not by time, since too many rounds have the same time"
        assert proposal.split == expected.split + reason
        assert proposal.split.startswith("by group: " if grouped else "by row: ")


def test_arguments_by_row_and_short_logs_are_refused():
    logs = whole_log()
    with pytest.raises(InputError, match="true_rewards does not go with policies=None"):
        ma.decide(None, logs, true_rewards=np.zeros(len(logs)))
    with pytest.raises(InputError, match="logs has 10 rounds, too few"):
        ma.decide(None, logs.take(np.arange(10)))


def test_a_log_without_a_catalog_still_has_an_answer():
    logs = whole_log()
    bare = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=60)
    decision = ma.decide(None, bare)
    assert decision.verdict in ("ship", "undecided", "keep")
    assert all(gain.diagnostics["estimated_propensities"] == 1.0 for gain in decision.gains.values())
