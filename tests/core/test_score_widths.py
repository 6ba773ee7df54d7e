"""Widths of scores bound how far a cautious choice may be wrong, whatever form the covariances have."""

import numpy as np
import pytest

import manyarms as ma

K, D = 40, 3


@pytest.mark.parametrize("own", [True, False], ids=["each its own", "shared"])
def test_a_pessimistic_choice_is_that_of_all_lower_bounds(own):
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(K, D, D))
    covs = roots @ roots.swapaxes(1, 2)
    prior = ma.priors.independent(K, mean=rng.normal(size=(K, D)), cov=covs if own else covs[0])
    actions = rng.integers(0, K // 2, 200)
    logs = ma.LoggedData(rng.normal(size=(200, D)), actions, rng.normal(size=200), n_actions=K)
    posterior = ma.fit(logs, prior, ma.Gaussian(0.5))
    x, everyone = rng.normal(size=(30, D)), np.arange(K)
    cov, mean = posterior.weights.action_cov(everyone), posterior.weights.action_mean()
    policy = ma.Pessimistic(posterior, delta=0.2)
    stds = np.sqrt(np.einsum("nd,kde,ne->nk", x, cov, x))
    for k in (1, 5):
        lower = x @ mean.T - policy.radius * stds
        assert policy.top_k(x, k).tolist() == np.argsort(-lower, axis=1)[:, :k].tolist()


def test_widths_are_at_least_their_bounds():
    rng = np.random.default_rng(1)
    cov = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 0.5]])
    logs = ma.LoggedData(rng.normal(size=(60, D)), rng.integers(0, 20, 60), rng.normal(size=60), n_actions=K)
    for prior_cov in (cov, np.stack([cov] * K)):
        weights = ma.fit(logs, ma.priors.independent(K, mean=np.zeros((K, D)), cov=prior_cov)).weights
        everyone = np.arange(K)
        least = weights.widths.least(everyone)
        smallest = np.sqrt(np.linalg.eigvalsh(weights.action_cov(everyone))[:, 0])
        assert (least <= smallest).all()
        order = weights.widths.in_order(everyone)
        assert sorted(order.tolist()) == everyone.tolist()
    assert (least == 0).all() and order.tolist() == everyone.tolist()
