"""Means and covariances of all weights under a prior, pair by pair, and embeddings to build priors from."""

import numpy as np
from numpy.testing import assert_allclose

SCALES = dict(effect_std=1.5, action_std=0.7)
TAGS = [["x", "y"], ["y"], [], ["z", "x", "x", None], {"x": 3.0, "z": 4.0, "w": 0.0}, None]
PATHS = [
    ["food", "tea", "green"],
    ["food", "tea", "black"],
    ["food", "tea"],
    ["food", "other", "x"],
    ["home", "other", "x"],
    ["home"],
    ["home"],
    [],
    ["food", "tea", None],
]
STDS = [1.0, 0.5, 0.25]


def joint(prior):
    """Mean (K, d) and covariance (K d, K d) of all weights, pair by pair from the library."""
    K, d = prior.n_actions, prior.dim
    left, right = np.repeat(np.arange(K), K), np.tile(np.arange(K), K)
    blocks = prior.cross_cov(left, right).reshape(K, K, d, d)
    assert_allclose(prior.action_cov(np.arange(K)), blocks[np.arange(K), np.arange(K)], atol=1e-13)
    return prior.action_mean(), blocks.transpose(0, 2, 1, 3).reshape(K * d, K * d)


def assert_implies(prior, mean, cov, atol=1e-12):
    got_mean, got_cov = joint(prior)
    assert_allclose(got_mean, np.broadcast_to(mean, got_mean.shape), atol=atol)
    assert_allclose(got_cov, cov, atol=atol)


def assert_same(first, second):
    assert first.effects == second.effects
    assert_implies(first, *joint(second), atol=0)


def lifted(between, dim):
    """Cov of weights whose coordinates are independent and alike: (K, K) ⊗ I_d."""
    return np.kron(between, np.eye(dim))


def blobs(rng, sizes=(30, 20, 10), e=3, distance=20.0):
    """Embeddings in clusters that nobody could mistake, and the cluster of each."""
    label = np.repeat(np.arange(len(sizes)), sizes)
    centres = distance * np.eye(len(sizes), e) + 5.0
    return centres[label] + rng.normal(size=(len(label), e)), label


def random_cov(rng, size, rank=None):
    root = rng.normal(size=(size, rank or size)) * rng.uniform(0.1, 3.0, size=(size, 1))
    return root @ root.T
