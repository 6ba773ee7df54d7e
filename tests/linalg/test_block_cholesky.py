"""Effects that form a tree, or nearly so, are solved for along their structure; the answer is the dense one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import manyarms as ma
from manyarms.core.latent_covariance import BlockFactor, EliminatedFactor
from manyarms.errors import TooLargeError
from manyarms.inference import latent_posterior as latent
from manyarms.linalg.block_cholesky import BlockCholesky, EliminationPlan


def tree_pairs(rng, n):
    """Every node beside each of its ancestors, for a random tree."""
    parent = [-1] + [int(rng.integers(0, max(1, i // 3))) for i in range(1, n)]
    pairs = []
    for node in range(n):
        line = [node]
        while parent[line[-1]] >= 0:
            line.append(parent[line[-1]])
        pairs += [(a, b) for a in line for b in line]
    return n, np.array(pairs).T


def star_pairs(rng, n):
    return n, np.array([(0, i) for i in range(n)] + [(i, i) for i in range(n)]).T


def random_pairs(rng, n, edges):
    return n, rng.integers(0, n, size=(2, edges))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", ["tree", "star", "sparse", "dense"])
def test_sparse_cholesky_solves_as_the_dense_one(seed, shape):
    rng = np.random.default_rng(seed)
    n, (first, second) = {
        "tree": lambda: tree_pairs(rng, 60),
        "star": lambda: star_pairs(rng, 30),
        "sparse": lambda: random_pairs(rng, 40, 30),
        "dense": lambda: random_pairs(rng, 30, 400),
    }[shape]()
    b, plan = 3, EliminationPlan(n, first, second)
    rows = np.zeros((len(first), 2, n, b))
    rows[np.arange(len(first)), :, first] += rng.normal(size=(len(first), 2, b))
    rows[np.arange(len(first)), :, second] += rng.normal(size=(len(first), 2, b))
    flat = rows.reshape(-1, n * b)
    P = flat.T @ flat + np.eye(n * b)
    blocks = np.zeros((plan.n_blocks, b, b))
    i, j = (part.ravel() for part in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    place = plan.places(i, j)
    grid = P.reshape(n, b, n, b).transpose(0, 2, 1, 3).reshape(n * n, b, b)
    blocks[place[place >= 0]] = grid[place >= 0]
    C = BlockCholesky(plan, blocks)

    right = rng.normal(size=(n, b, 4))
    assert C.log_det() == pytest.approx(np.linalg.slogdet(P)[1], rel=1e-12)
    solved = C.backward(C.forward(right)).reshape(n * b, 4)
    assert_allclose(solved, np.linalg.solve(P, right.reshape(n * b, 4)), rtol=1e-9, atol=1e-12)
    # Vectors at a few nodes: what is not stored of the solution is zero.
    pattern = sparse.random_array((20, n), density=0.08, format="csr", rng=rng)
    values = rng.normal(size=(pattern.nnz, b, 2))
    nodes, found = C.forward_sparse(pattern, values)
    where = np.repeat(np.arange(20), np.diff(pattern.indptr))
    for row in range(20):
        full = np.zeros((n, b, 2))
        full[pattern.indices[where == row]] = values[where == row]
        got = np.zeros_like(full)
        kept = nodes[row] >= 0
        got[nodes[row][kept]] = found[row][kept]
        assert_allclose(got, C.forward(full), atol=1e-12)


def tree_problem(rng, *, shared, n_actions=90, d=2, n_rounds=150):
    """Three levels (3, 9 and 45 nodes), an action under a leaf each, two thirds of the actions seen."""
    leaf = rng.integers(0, 45, size=n_actions)
    nodes = np.stack([leaf // 15, 3 + leaf // 5, 12 + leaf], axis=1)
    weights = np.zeros((n_actions, 57 + shared))
    weights[np.arange(n_actions)[:, None], nodes] = rng.uniform(0.5, 1.5, size=nodes.shape)
    if shared:
        weights[:, 57] = 1.0
    roots = rng.normal(size=(57 + shared, d, d))
    cov = roots @ roots.swapaxes(1, 2)
    prior = ma.HierarchicalGaussian(
        rng.normal(size=d * (57 + shared)), cov, ma.MixedEffects(sparse.csr_array(weights), d), 0.3,
        rng.normal(size=(n_actions, d)),
    )  # fmt: skip
    contexts, actions = rng.normal(size=(n_rounds, d)), rng.integers(0, 2 * n_actions // 3, size=n_rounds)
    logs = ma.LoggedData(contexts, actions, rng.normal(size=n_rounds), n_actions=n_actions)
    W = np.einsum("kj,ab->kajb", weights, np.eye(d)).reshape(n_actions, d, -1)
    return prior, logs, W, cov


def dense_posterior(prior, logs, W, cov, noise_std):
    """Mean and covariance of all θ, and the evidence, from the joint Gaussian written out."""
    K, d = prior.n_actions, prior.dim
    latent_cov = np.zeros((W.shape[2], W.shape[2]))
    for j, block in enumerate(cov):
        latent_cov[j * d : (j + 1) * d, j * d : (j + 1) * d] = block
    tall = W.reshape(K * d, -1)
    mean = tall @ prior.latent_mean + prior.offset.reshape(-1)
    joint = tall @ latent_cov @ tall.T + 0.3 * np.eye(K * d)
    design = np.zeros((len(logs), K, d))
    design[np.arange(len(logs)), logs.actions] = logs.contexts
    design = design.reshape(len(logs), K * d)
    V = design @ joint @ design.T + noise_std**2 * np.eye(len(logs))
    miss = logs.rewards - design @ mean
    gain = np.linalg.solve(V, design @ joint).T
    evidence = -0.5 * (len(logs) * np.log(2 * np.pi) + np.linalg.slogdet(V)[1] + miss @ np.linalg.solve(V, miss))
    return (mean + gain @ miss).reshape(K, d), joint - gain @ design @ joint, evidence


@pytest.mark.parametrize("shared", [False, True])
def test_a_tree_is_solved_along_its_structure_and_equals_the_dense_answer(shared):
    rng = np.random.default_rng(3)
    prior, logs, W, cov = tree_problem(rng, shared=shared)
    posterior = ma.fit(logs, prior, ma.Gaussian(0.7))
    assert isinstance(posterior.weights.latent_factor, EliminatedFactor)
    mean, joint, evidence = dense_posterior(prior, logs, W, cov, 0.7)
    K, d = prior.n_actions, prior.dim
    blocks = joint.reshape(K, d, K, d).transpose(0, 2, 1, 3)
    everyone = np.arange(K)
    left, right = (part.ravel() for part in np.meshgrid(everyone[::7], everyone, indexing="ij"))
    assert_allclose(posterior.weights.action_mean(), mean, atol=1e-11)
    assert_allclose(posterior.weights.action_cov(everyone), blocks[everyone, everyone], atol=1e-11)
    assert_allclose(posterior.weights.cross_cov(left, right), blocks[left, right], atol=1e-11)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-9)
    # Draws and values use other products of the same factor.
    mass = rng.normal(size=(K, d))
    assert posterior.weights.variance_of(mass, everyone) == pytest.approx(
        mass.ravel() @ joint @ mass.ravel(), rel=1e-10
    )
    assert_allclose(posterior.weights.covariances_with(mass, everyone).ravel(), joint @ mass.ravel(), atol=1e-9)
    draws = posterior.weights.draw_latent(rng, 20_000)
    spread = posterior.weights.latent_cov
    assert_allclose(
        draws.mean(axis=0), posterior.weights.latent_mean, atol=5 * np.sqrt(spread.diagonal().max() / 20_000)
    )
    assert_allclose(np.cov(draws.T), spread, atol=0.15 * spread.diagonal().max())


def test_structure_and_dense_factor_agree_on_every_quantity(monkeypatch):
    prior, logs, _, _ = tree_problem(np.random.default_rng(4), shared=True)
    by_structure = ma.fit(logs, prior, ma.Gaussian(0.7)).weights
    monkeypatch.setattr(latent, "SMALL_LATENT", 10**9)
    dense = ma.fit(logs, prior, ma.Gaussian(0.7)).weights
    assert not isinstance(dense.latent_factor, EliminatedFactor)
    assert_allclose(by_structure.latent_mean, dense.latent_mean, atol=1e-11)
    assert_allclose(by_structure.latent_cov, dense.latent_cov, atol=1e-11)
    for start, count in ((0, 3), (6, 9), (24, 45), (114, 1)):
        assert_allclose(
            by_structure.latent_factor.part_gram(start, count, 2), dense.latent_factor.part_gram(start, count, 2),
            atol=1e-11,
        )  # fmt: skip


@pytest.mark.slow
def test_effects_that_all_meet_are_refused_when_they_are_too_many():
    rng = np.random.default_rng(0)
    weights = sparse.random_array((3000, 2500), density=0.02, format="csr", rng=rng)
    prior = ma.HierarchicalGaussian(np.zeros(10_000), 1.0, ma.MixedEffects(weights, 4), 1.0)
    logs = ma.LoggedData(rng.normal(size=(3000, 4)), np.arange(3000), rng.normal(size=3000), n_actions=3000)
    with pytest.raises(TooLargeError, match="tree"):
        ma.fit(logs, prior)


@pytest.mark.parametrize("part", ["core", "order", "rows", "columns"])
def test_a_plan_with_a_node_that_does_not_exist_is_inconsistent(part):
    n, (first, second) = random_pairs(np.random.default_rng(0), 40, 120)
    plan = EliminationPlan(n, first, second)
    assert plan.consistent()
    nodes = getattr(plan, part).copy()
    nodes[-1] = plan.n_nodes
    setattr(plan, part, nodes)
    assert not plan.consistent()


def test_a_plan_with_a_position_behind_its_entries_is_inconsistent():
    n, (first, second) = random_pairs(np.random.default_rng(0), 40, 120)
    plan = EliminationPlan(n, first, second)
    plan._by_code = np.where(plan._by_code == len(plan.rows) - 1, len(plan.rows), plan._by_code)
    assert not plan.consistent()


def test_the_gram_matrix_of_a_part_is_the_sum_over_its_blocks():
    blocks = np.random.default_rng(0).normal(size=(1, 8, 8))
    rows = blocks[0, 1:7].reshape(3, 2, 8)
    expected = sum(block @ block.T for block in rows)
    assert_allclose(BlockFactor(blocks).part_gram(1, 3, 2), expected, rtol=1e-12)
