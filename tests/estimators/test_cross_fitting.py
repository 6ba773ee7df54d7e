"""A cross-fitted model never sees the rounds that it predicts."""

import numpy as np
from numpy.testing import assert_allclose

import manyarms as ma


def test_cross_fitting_never_predicts_a_round_it_was_fitted_on(problem):
    """Changing one reward must not change the model's own prediction of that round."""
    logs, policy, _ = problem
    cross = ma.CrossFit(ma.priors.independent(logs.n_actions, dim=logs.dim), n_folds=4, rng=np.random.default_rng(3))
    before, _ = cross.predict(policy, logs, None)
    changed = logs.rewards.copy()
    changed[7] += 100
    after, _ = cross.predict(policy, ma.LoggedData(logs.contexts, logs.actions, changed, n_actions=5), None)
    assert_allclose(before[7], after[7], rtol=1e-12)
    assert not np.allclose(before, after)
    assert "estimated" not in " ".join(ma.DR(cross).estimate(policy, logs).warnings)


def test_cross_fitting_keeps_groups_together(problem):
    logs, _, _ = problem
    groups = np.arange(len(logs)) // 10
    grouped = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 5, groups=groups)
    cross = ma.CrossFit(ma.priors.independent(5, dim=3), n_folds=3, rng=np.random.default_rng(0))
    folds = cross.folds(grouped)
    assert all(len(set(folds[groups == g])) == 1 for g in range(30))
