import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import DenseJoint, DenseProblem
from problems import make_problem

import manyarms as ma


def test_covariances_of_two_actions_are_transposes_however_far_the_data_outweigh_the_prior():
    rng = np.random.default_rng(0)
    prior = ma.HierarchicalGaussian(np.zeros(3), 1e16, rng.normal(size=(4, 2, 3)), 1e16)
    logs = ma.LoggedData(rng.normal(size=(40, 2)), rng.integers(4, size=40), rng.normal(size=40), n_actions=4)
    weights = ma.fit(logs, prior, ma.Gaussian(1e-6)).weights
    left, right = np.triu_indices(4)
    assert np.array_equal(weights.cross_cov(left, right), weights.cross_cov(right, left).swapaxes(1, 2))


def test_posteriors_stay_exact_where_the_data_outweigh_the_prior_in_some_directions_only():
    """In K_a = I + R_a Σ_a R_aᵀ the one is lost beside 1e22, and with it the direction in which Σ_a is zero."""
    rng = np.random.default_rng(0)
    n_actions, dim, noise_std = 3, 3, 1e-6
    # One direction without variance, exactly: entries and their sums are small integers times a power of two.
    roots = 2.0**13 * rng.integers(-3, 4, size=(n_actions, dim, dim - 1))
    action_cov = roots @ roots.swapaxes(1, 2)
    mixing = rng.normal(size=(n_actions, dim, 2))
    contexts, actions = rng.normal(size=(30, dim)), np.arange(30) % n_actions
    parts = (np.zeros(2), np.eye(2), mixing, action_cov, np.zeros((n_actions, dim)))
    dense = DenseProblem(*parts, contexts, actions, rng.normal(size=30), noise_std)
    exact = DenseJoint(dense, digits=80)
    logs = ma.LoggedData(contexts, actions, dense.rewards, n_actions=n_actions)
    weights = ma.fit(logs, ma.HierarchicalGaussian(*parts), ma.Gaussian(noise_std)).weights
    left, right = (grid.ravel() for grid in np.meshgrid(*2 * [np.arange(n_actions)], indexing="ij"))
    blocks = weights.cross_cov(left, right).reshape(n_actions, n_actions, dim, dim)
    scale = np.abs(exact.blocks).max()
    assert scale < 1e-10
    assert np.abs(blocks - exact.blocks).max() < 1e-6 * scale
    assert np.abs(weights.latent_cov - exact.latent_cov).max() < 1e-6 * np.abs(exact.latent_cov).max()
    assert np.abs(weights.action_mean() - exact.action_mean).max() < 1e-8 * np.abs(exact.action_mean).max()


@pytest.mark.parametrize("mixing_form", ["dense", "none", "one_hot", "sparse_effects"])
@pytest.mark.parametrize("grouped", [False, True])
def test_variances_of_several_sums_are_those_of_the_dense_joint(mixing_form, grouped):
    problem = make_problem(
        3, n_actions=7, dim=3, n_rounds=30, mixing_form=mixing_form, cov_form="each", latent_form="full",
        offset_form="none", latent_dim=4, action_scale=1.0, noise_std=0.7,
    )  # fmt: skip
    prior = problem.prior.grouped() if grouped else problem.prior
    weights = ma.fit(problem.logs, prior, ma.Gaussian(0.7)).weights
    vectors = np.random.default_rng(1).normal(size=(7, 4, 3))
    parts = [(vectors[part], np.arange(7)[part]) for part in (slice(0, 5), slice(5, 7))]
    blocks = DenseJoint(problem.dense).blocks
    want = np.einsum("ajd,abde,bje->j", vectors, blocks, vectors)
    np.testing.assert_allclose(weights.variances_of_sums(parts, 4), want, rtol=1e-10)


@pytest.mark.parametrize("n_actions", [40, 100_000])
def test_the_rows_of_seen_actions_are_found_whether_seen_actions_are_many_or_few_of_all(n_actions):
    rng = np.random.default_rng(1)
    ids, counts = rng.choice(n_actions, 12, replace=False), rng.integers(1, 4, 12)
    actions = np.repeat(ids, counts)
    prior = ma.priors.independent(n_actions, dim=3)
    logs = ma.LoggedData(
        rng.normal(size=(len(actions), 3)), actions, rng.normal(size=len(actions)), n_actions=n_actions
    )
    observed = ma.fit(logs, prior).weights.observed
    wanted = rng.permutation(np.concatenate([ids, np.setdiff1d([0, 5, 39, n_actions - 1], ids)]))
    found = dict[int, int]()
    for number, where, place in observed.find(wanted):
        assert_array_equal(observed.groups[number].actions[place], wanted[where])
        found |= dict.fromkeys(wanted[where].tolist(), observed.groups[number].rank)
    assert found == dict(zip(ids.tolist(), counts.tolist(), strict=True))
