"""Shares by category and changes of traffic count the choices of a policy."""

import numpy as np
from decision_world import world
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.decision.decision_evidence import Categories, support_evidence


def test_shares_by_category_count_choices(known):
    decision, policies, test, _ = known
    chosen, kinds = policies["greedy"].actions(test.contexts), np.arange(60) % 6
    for row in decision.support.rows:
        mine = kinds == int(row.category[-1])
        assert_allclose(row.logged, mine[test.actions].mean())
        assert_allclose(row.chosen["greedy"], mine[chosen].mean(), atol=1e-12)
        never = mine & ~np.isin(np.arange(60), test.actions)
        assert_allclose(row.unsupported["greedy"], never[chosen].mean(), atol=1e-12)


def test_changes_of_traffic_count_choices(known):
    decision, policies, test, _ = known
    chosen = policies["greedy"].actions(test.contexts)
    change = np.bincount(chosen, minlength=60) / len(test) - np.bincount(test.actions, minlength=60) / len(test)
    changes = decision.traffic_changes
    assert_allclose([row.change for row in changes.rows[:3]], np.sort(change)[::-1][:3], atol=1e-12)
    assert_allclose(changes.rows[-1].change, change.min(), atol=1e-12)
    assert_allclose(changes.moved, np.maximum(change, 0).sum(), atol=1e-12)


def test_every_category_can_be_listed_by_itself():
    _, test, _ = world(K=4000)
    evaluation = ma.evaluate({"uniform": ma.Uniform(4000)}, test, estimators=[ma.SNIPS()])
    whole = support_evidence(evaluation, test, Categories(np.arange(4000)), shown=5000)
    assert len(whole.rows) == 4000 and whole.n_summed == 0
