"""Priors from matrices: a low-rank basis, and any joint Gaussian."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from prior_moments import SCALES, assert_implies, joint, random_cov
from scipy.linalg import block_diag

import manyarms as ma
from manyarms import priors
from manyarms.errors import ShapeError


@pytest.mark.parametrize("shared_std", [None, 2.0])
@pytest.mark.parametrize("each", [True, False])
def test_low_rank_weights_lie_near_their_basis(each, shared_std):
    rng = np.random.default_rng(13)
    basis, mean = rng.normal(size=(4, 5, 2)), rng.normal(size=2)
    given = (basis,) if each else (basis[0], 4)
    prior = priors.low_rank(*given, latent_mean=mean, shared_std=shared_std, **SCALES)
    tall = basis.reshape(20, 2) if each else np.tile(basis[0], (4, 1))
    shared = np.kron(np.ones((4, 4)), (shared_std or 0.0) ** 2 * np.eye(5))
    assert_implies(prior, (tall @ mean).reshape(4, 5), 1.5**2 * tall @ tall.T + shared + 0.7**2 * np.eye(20))
    assert prior.effects[-1] == ma.EffectGroup("latent", 2, 1, has_mean=False)


@pytest.mark.parametrize("shared_std", [None, 1.0])
def test_a_basis_that_all_share_is_held_once(shared_std):
    prior = priors.low_rank(np.ones((3, 2)), 10**9, shared_std=shared_std)
    assert_allclose(prior.cross_cov([0], [10**9 - 1])[0], 2 * np.ones((3, 3)) + (shared_std or 0) * np.eye(3))


def related_cov(rng):
    """Actions around common effects: what the family is made for."""
    root = rng.normal(size=(12, 2))
    return root @ root.T + block_diag(*[random_cov(rng, 3) for _ in range(4)])


JOINTS = {
    "random": lambda rng: (random_cov(rng, 12), 4),
    "one action": lambda rng: (random_cov(rng, 3), 1),
    "one dimension": lambda rng: (random_cov(rng, 5), 5),
    "independent": lambda rng: (block_diag(*[random_cov(rng, 3) for _ in range(4)]), 4),
    "related": lambda rng: (related_cov(rng), 4),
    "two sets": lambda rng: (block_diag(random_cov(rng, 6), random_cov(rng, 6)), 4),
    "singular": lambda rng: (random_cov(rng, 12, rank=5), 4),
    "singular actions": lambda rng: (random_cov(rng, 12, rank=1), 4),
    "an action without variance": lambda rng: (block_diag(random_cov(rng, 6), np.zeros((3, 3))), 3),
    "no variance": lambda rng: (np.zeros((6, 6)), 3),
    "units far apart": lambda rng: (random_cov(rng, 6) * np.outer(*[[1e-9, 1.0, 1e9] * 2] * 2), 2),
}


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("seed", range(3))
def test_any_joint_gaussian_is_put_into_the_family_exactly(name, seed):
    rng = np.random.default_rng(seed)
    cov, K = JOINTS[name](rng)
    mean = rng.normal(size=len(cov))
    got_mean, got_cov = joint(priors.from_joint(mean, cov, K))
    assert_allclose(got_mean.reshape(-1), mean)
    stds = np.sqrt(np.diag(cov))
    assert (np.abs(got_cov - cov) <= 1e-10 * np.outer(stds, stds) + 1e-300).all()
    assert joint(priors.from_joint(mean.reshape(K, -1), cov, K))[0].tolist() == got_mean.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_form_needs_no_more_dimensions_than_it_must(seed):
    rng = np.random.default_rng(seed)
    given = {name: make(rng) for name, make in JOINTS.items()}
    dims = {name: priors.from_joint(np.zeros(len(cov)), cov, K).latent_dim for name, (cov, K) in given.items()}
    assert dims["independent"] == dims["one action"] == dims["no variance"] == 0
    assert dims["random"] == 11
    assert dims["singular"] == 5
    assert dims["singular actions"] == 1
    assert dims["two sets"] == 10
    # One set of actions that covary; the others are independent of them and of one another.
    mixed = block_diag(random_cov(rng, 4), np.eye(6))
    assert priors.from_joint(np.zeros(10), mixed, 5).latent_dim == 3


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("rank", [0, 1, 2, 4, 100])
def test_at_a_rank_every_action_stays_exact_and_the_rest_is_within_what_was_left_out(name, rank):
    cov, K = JOINTS[name](np.random.default_rng(4))
    d = len(cov) // K
    prior = priors.from_joint(np.zeros(len(cov)), cov, K, rank=rank)
    assert prior.latent_dim <= rank
    got = joint(prior)[1]
    own = [slice(a * d, (a + 1) * d) for a in range(K)]
    for block in own:
        assert_allclose(got[block, block], cov[block, block], rtol=1e-9, atol=1e-300)
    # In units in which every action has covariance I, by a pseudo-inverse root of each block.
    white = np.zeros_like(cov)
    for block in own:
        scale = np.sqrt(np.diag(cov[block, block]))
        scale = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(cov[block, block] / np.outer(scale, scale))
        kept = values > 1e-12
        white[block, block] = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T / scale
    real = np.linalg.eigvalsh(white @ cov @ white.T)
    # The smallest eigenvalue that counts: zeros of directions that have no variance at all do not.
    real = real[len(real) - round(np.trace(white @ cov @ white.T)) :]
    remaining = np.sort(real - max(real.min(initial=1.0), 0.0))[::-1]
    error = np.linalg.norm(white @ (got - cov) @ white.T)
    assert error <= np.sqrt(np.sum(remaining[rank:] ** 2)) + 1e-8


def test_scalars_alone_do_not_give_the_dimension():
    with pytest.raises(ShapeError, match=r"do not give the dimension\. Pass dim="):
        priors.independent(3, mean=1.0, cov=2.0)
    given = priors.independent(3, mean=1.0, cov=2.0, dim=2)
    assert_allclose(given.action_mean(), np.ones((3, 2)))
