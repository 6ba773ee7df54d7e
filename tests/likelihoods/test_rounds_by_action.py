"""Rounds sorted by action: rows and predictions are those of a plain loop over the rounds."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit

import manyarms as ma
from manyarms.errors import NumericalError
from manyarms.likelihoods.rounds_by_action import BLOCK, RoundsByAction
from manyarms.likelihoods.sites import MemorySiteSolver


@pytest.fixture(scope="module")
def rounds():
    """Actions logged between once and more often than a block has rounds; action 7 was never logged."""
    rng = np.random.default_rng(0)
    actions = np.repeat([0, 1, 2, 3, 4, 5, 6, 8], [1, 2, 2, 3, 4, 9, BLOCK + 5, 40])
    actions = rng.permutation(actions)
    return rng.normal(size=(len(actions), 3)), actions


def test_rows_of_an_action_carry_the_sums_over_its_rounds(rounds):
    contexts, actions = rounds
    rng = np.random.default_rng(1)
    weight, linear = rng.uniform(0.1, 2.0, len(actions)), rng.normal(size=len(actions))
    observed = RoundsByAction(contexts, actions).observe(weight, linear)
    assert observed.consistent() and observed.actions.tolist() == [0, 1, 2, 3, 4, 5, 6, 8]
    assert [group.rank for group in observed.groups] == [1, 2, 3]
    for group in observed.groups:
        for action, root, response in zip(group.actions, group.root, group.response, strict=True):
            own = actions == action
            gram = (contexts[own] * weight[own, None]).T @ contexts[own]
            assert_allclose(root.T @ root, gram, rtol=1e-11, atol=1e-11)
            assert_allclose(root.T @ response, linear[own] @ contexts[own], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["scalar", "full", "each"])
def test_predictions_are_those_of_the_covariances(rounds, kind):
    contexts, actions = rounds
    rng = np.random.default_rng(2)
    roots = rng.normal(size=(9, 3, 3))
    cov = {"scalar": 0.5, "full": roots[0] @ roots[0].T, "each": roots @ roots.swapaxes(1, 2)}[kind]
    prior = ma.HierarchicalGaussian(rng.normal(size=4), np.eye(4), rng.normal(size=(9, 3, 4)), cov)
    few = rng.choice(len(actions), 60, replace=False)
    logs = ma.LoggedData(contexts[few], actions[few], rng.normal(size=60), n_actions=9)
    for weights in (prior, ma.fit(logs, prior).weights):
        mean, variance = RoundsByAction(contexts, actions).predict(weights, with_variance=True)
        means, covs = weights.action_mean()[actions], weights.action_cov(np.arange(9))[actions]
        assert_allclose(mean, [x @ m for x, m in zip(contexts, means, strict=True)], rtol=1e-10, atol=1e-12)
        assert_allclose(variance, [x @ S @ x for x, S in zip(contexts, covs, strict=True)], rtol=1e-9)
    assert not RoundsByAction(contexts, actions).predict(prior, with_variance=False)[1].any()


def test_a_step_has_the_posterior_of_its_sums(rounds):
    contexts, actions = rounds
    logs = ma.LoggedData(contexts, actions, (contexts[:, 0] > 0).astype(float), n_actions=9)
    prior = ma.priors.independent(9, dim=3)
    solver = MemorySiteSolver(prior, logs, ma.Bernoulli())
    state = solver.state(solver.sites_from(prior))
    from_rows = ma.condition(prior, state.statistics, 1.0)
    assert_allclose(state.weights.action_mean(), from_rows.action_mean())
    assert sum(group.response.size for group in state.solved[0].observed.groups) == 1 + 2 + 2 + 3 * 5


def test_rounds_that_overflow_name_their_action():
    contexts, actions = np.full((6, 2), 1e200), np.array([0, 1, 1, 1, 0, 1])
    with pytest.raises(NumericalError, match="action 0 overflow"):
        RoundsByAction(contexts, actions).observe(np.ones(6), np.ones(6))


@pytest.mark.parametrize("s", [0.0, 1e-4, 1e-3, 0.1, 0.3, 0.31, 0.45, 0.46, 0.6])
def test_narrow_predictors_have_all_digits_of_a_long_quadrature(s):
    m, (nodes, shares) = np.linspace(-12.0, 12.0, 49), hermegauss(80)
    eta, shares = m[:, None] + s * nodes, shares / shares.sum()
    one, v = ma.Bernoulli(), np.full_like(m, s**2)
    for reward, sign in ((np.ones_like(m), 1.0), (np.zeros_like(m), -1.0)):
        site, density = one.site_and_density(reward, m, v)
        assert_allclose(density, log_expit(sign * eta) @ shares, rtol=1e-11)
        assert_allclose(site.weight, (expit(eta) * expit(-eta)) @ shares, rtol=1e-10)
        assert_allclose(site.linear - site.weight * m, sign * (expit(-sign * eta) @ shares), rtol=1e-10, atol=1e-14)
        assert_allclose(one.expected_log_density(reward, m, v), density, rtol=1e-15)
        assert all(np.array_equal(*pair) for pair in zip(one.site(reward, m, v), site, strict=True))
