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
