"""The KuaiRec world: real scores as rewards, factors of other scores as prior knowledge."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from world_data import rng

import manyarms as ma
from manyarms.datasets import kuairec_world, split_cells
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError


@pytest.fixture(scope="module")
def scores():
    """A nearly full matrix of scores in [0, 1], with zeros among those observed."""
    draw = rng(30)
    table = np.clip(draw.random((50, 3)) @ draw.random((3, 30)) / 3 + 0.1 * draw.normal(size=(50, 30)), 0.0, 1.0)
    table[draw.random(table.shape) < 0.1] = 0.0
    observed = draw.random(table.shape) < 0.9
    return sparse.csr_array((table[observed], np.nonzero(observed)), shape=table.shape)


def stored(matrix):
    """Where cells are stored, whatever they hold."""
    return sparse.csr_array((np.ones(matrix.nnz, bool), matrix.indices, matrix.indptr), shape=matrix.shape).toarray()


def test_halves_of_the_cells_of_each_user_share_none(scores):
    first, second = split_cells(scores, rng(31))
    assert (scores.data == 0).any()
    assert_array_equal(stored(first) ^ stored(second), stored(scores))
    assert not (stored(first) & stored(second)).any()
    assert_array_equal((first + second).toarray(), scores.toarray())
    counts = [stored(part).sum(axis=1) for part in (first, second)]
    assert np.abs(counts[0] - counts[1]).max() == 1
    assert {-1, 1} <= set((counts[0] - counts[1]).tolist())
    assert not np.array_equal(stored(split_cells(scores, rng(32))[0]), stored(first))
    # Every cell is as likely to be on either side.
    often = sum(stored(split_cells(scores, rng(seed))[0]).astype(int) for seed in range(400))[stored(scores)]
    assert np.abs(often - 200).max() < 5 * 10


def test_a_watched_world_is_made_of_real_scores_and_factors_of_the_others(scores):
    prior, rewards = split_cells(scores, rng(33))
    keep = sparse.diags_array(np.r_[0.0, np.ones(29)])
    prior = sparse.csr_array(prior @ keep)
    prior = sparse.csr_array((prior.data[prior.data > 0], np.array(prior.nonzero())), shape=prior.shape)
    categories = [(video % 4, 7) for video in range(30)]
    world = kuairec_world(rewards, prior, categories, rank=4, test_share=0.4, rng=rng(34))
    environment = world.environment
    assert_array_equal(world.items, np.arange(1, 30))  # video 0 is not known beforehand
    assert world.categories == [(video % 4, 7) for video in world.items]
    assert (environment.n_actions, environment.dim) == (29, 4)
    assert len(environment.test_users) == 20

    U, s, Vt = np.linalg.svd(prior.toarray())
    x, v = environment.features, world.item_vectors
    assert_allclose(np.square(x).mean(axis=0), 1.0, rtol=1e-10)
    assert_allclose(x @ v.T, ((U[:, :4] * s[:4]) @ Vt[:4])[:, world.items], atol=1e-10)
    assert_allclose(np.abs(x), np.abs(U[:, :4]) * np.sqrt(50), atol=1e-8)

    logs = environment.log(ma.Uniform(29), 2000, rng(35))
    assert_array_equal(logs.rewards, rewards.toarray()[logs.groups, world.items[logs.actions]])
    assert stored(rewards)[logs.groups, world.items[logs.actions]].all()
    assert_array_equal(environment.test_eligible.tocsr().toarray(), stored(rewards)[environment.test_users][:, 1:])
    best = ma.EpsilonGreedy(environment.optimal_policy(), 0.5)
    found = ma.IPS().estimate(best, logs, eligible=environment.eligible(logs.groups))
    assert abs(found.value - environment.value(best, x[environment.logging_users])) < 4 * found.std
    assert environment.value(ma.Uniform(29)) < environment.value(best) < environment.optimal_value()


def test_users_without_a_reward_only_help_the_factorisation(scores):
    prior, rewards = split_cells(scores, rng(38))
    seen = np.flatnonzero(np.arange(50) % 3)
    of_seen = sparse.csr_array(sparse.diags_array((np.arange(50) % 3 > 0).astype(float)) @ rewards)
    of_seen = sparse.csr_array((of_seen.data[of_seen.data > 0], np.array(of_seen.nonzero())), shape=of_seen.shape)
    world = kuairec_world(of_seen, prior, [()] * 30, rank=3, rng=rng(39))
    assert_array_equal(world.users, seen)
    x = world.environment.features
    assert_allclose(np.square(x).mean(axis=0), 1.0, rtol=1e-10)
    U, s, Vt = np.linalg.svd(prior.toarray())
    whole = (U[:, :3] * s[:3]) @ Vt[:3]
    assert_allclose(x @ world.item_vectors.T, whole[np.ix_(seen, world.items)], atol=1e-10)
    assert_array_equal(world.environment.matrix.toarray(), of_seen.toarray()[np.ix_(seen, world.items)])


def test_watched_worlds_are_given_by_their_generator_and_travel_to_processes(scores):
    prior, rewards = split_cells(scores, rng(36))
    worlds = [kuairec_world(rewards, prior, [()] * 30, rank=2, rng=rng(seed)) for seed in (1, 1, 2)]
    users = [world.environment.test_users for world in worlds]
    assert_array_equal(users[0], users[1])
    assert not np.array_equal(users[0], users[2])
    copy = pickle.loads(pickle.dumps(worlds[0])).environment
    first, second = (e.log(e.optimal_policy(), 20, rng(3)) for e in (copy, worlds[0].environment))
    assert_array_equal(first.rewards, second.rewards)


def test_a_wrong_watched_world_is_refused(scores):
    prior, rewards = split_cells(scores, rng(37))
    high = rewards.copy()
    high.data[high.indptr[9]] = 1.5
    lonely = sparse.csr_array(([1.0], ([4], [4])), shape=(50, 30))
    categories = [()] * 30
    wrong = [
        (dict(log_matrix=high), RangeError, r"log_matrix must lie in \[0, 1\]; row 9 holds 1.5"),
        (dict(prior_matrix=prior[:40]), ShapeError, "shape of log_matrix"),
        (dict(prior_matrix=prior.toarray()), DataTypeError, "prior_matrix must be a SciPy sparse"),
        (dict(categories=categories[1:]), ShapeError, "one entry per video: 30; got 29"),
        (dict(log_matrix=lonely), ShapeError, "both sides"),
        (dict(prior_matrix=sparse.csr_array(np.ones((50, 30)))), RangeError, "rank must be at most that of the rows"),
        (dict(log_matrix=sparse.csr_array((50, 30))), InputError, "no video in common"),
        (dict(test_share=1.0), RangeError, "test_share"),
    ]
    for change, error, message in wrong:
        arguments = dict(log_matrix=rewards, prior_matrix=prior, categories=categories) | change
        with pytest.raises(error, match=message):
            kuairec_world(**arguments, rank=2, rng=rng())
