"""Shrinkage matches the dense formula, and calibration is shown only where it means something."""

import numpy as np
from decision_world import world
from numpy.testing import assert_allclose

import manyarms as ma


def test_shrinkage_lies_between_an_actions_own_mean_and_its_category():
    """With one feature, a precision-weighted mean of both; here against the dense formula."""
    n, K = 90, 6
    rng = np.random.default_rng(1)
    actions = np.repeat(np.arange(K), [1, 2, 4, 8, 25, 50])
    logs = ma.LoggedData(np.ones((n, 1)), actions, rng.normal(size=n) + actions % 2, n_actions=K)
    posterior = ma.fit(logs, ma.priors.from_categories(np.arange(K) % 2, dim=1, action_std=0.5))
    shrinkage = ma.decide({"uniform": ma.Uniform(K)}, logs, posterior, categories=np.arange(K) % 2).shrinkage
    assert [row.n_rounds for row in shrinkage.rows] == [1, 2, 4, 8, 25, 50]
    psi = posterior.weights.latent_mean
    for row in shrinkage.rows:
        a, weight = int(row.action), row.n_rounds / (row.n_rounds + 1 / 0.5**2)
        assert_allclose(row.category_only, psi[a % 2], rtol=1e-9)
        assert_allclose(row.own, logs.rewards[actions == a].mean(), rtol=1e-9)
        assert_allclose(row.posterior, weight * row.own + (1 - weight) * row.category_only, rtol=1e-9)


def test_calibration_is_shown_on_held_out_rounds_or_against_the_truth_only(known):
    decision, policies, test, posterior = known
    bins = decision.calibration.bins
    assert decision.calibration.held_out and len(bins) == 10
    expected = posterior.expected_reward(test.contexts, test.actions)
    order = np.argsort(expected)[: len(test) // 10]
    assert_allclose([bins[0].expected, bins[0].observed], [expected[order].mean(), test.rewards[order].mean()])
    seen = ma.decide(policies, world()[0], posterior)
    assert not seen.calibration.held_out and seen.calibration.bins == ()
    assert any("fitted on these rounds" in reason for reason in seen.omitted)
    against_truth = ma.decide(policies, world()[0], posterior, true_rewards=np.zeros(750))
    assert {group.observed for group in against_truth.calibration.bins} == {0.0}
