"""Hierarchies, chains of layers and the functions that users supply: against differences and collapsed layers."""

import numpy as np
import pytest
from nonlinear_examples import FORMS, SHAPES, Example, assert_same, linear_problem
from numpy.testing import assert_allclose
from oracles import DenseJoint, DenseProblem

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, NonFiniteError, ShapeError, TooLargeError
from manyarms.nonlinear import Layer, NonlinearHierarchy, chain, fit_nonlinear, sample_posterior
from manyarms.nonlinear.nonlinear_hierarchy import as_hierarchy


def test_a_chain_of_linear_layers_is_the_collapsed_linear_hierarchy():
    rng = np.random.default_rng(5)
    sizes, K, d, n = (2, 4, 3), 5, 2, 25
    mu, root = rng.normal(size=2), rng.normal(size=(2, 2))
    covs = [root @ root.T, 0.5 * np.eye(4), np.diag([0.3, 0.0, 1.2])]
    G = [rng.normal(size=(sizes[i + 1], sizes[i])) for i in range(2)]
    shift = [rng.normal(size=size) for size in sizes[1:]]
    W, c = rng.normal(size=(K, d, 3)), rng.normal(size=(K, d))
    layers = [
        Layer(lambda psi: G[0] @ psi + shift[0], 0.5, 4, lambda psi: G[0]),
        Layer(lambda psi: G[1] @ psi + shift[1], [0.3, 0.0, 1.2], 3),
    ]
    hierarchy = chain(mu, covs[0], layers, lambda psi, a: W[a] @ psi + c[a], 0.4, K, d, lambda psi, a: W[a])
    x, actions, rewards = rng.normal(size=(n, d)), rng.integers(0, K - 1, n), rng.normal(size=n)
    posterior = fit_nonlinear(ma.LoggedData(x, actions, rewards, n_actions=K), hierarchy, ma.Gaussian(0.8))
    # ψ_3 alone: its mean and covariance pushed down layer by layer.
    mean, cov = mu, covs[0]
    for g, b, below in zip(G, shift, covs[1:], strict=True):
        mean, cov = g @ mean + b, g @ cov @ g.T + below
    dense = DenseProblem(mean, cov, W, np.broadcast_to(0.4 * np.eye(d), (K, d, d)), c, x, actions, rewards, 0.8)
    joint = DenseJoint(dense)
    everyone = np.arange(K)
    assert_allclose(posterior.weights.action_mean(), joint.action_mean, atol=1e-9)
    assert_allclose(posterior.weights.action_cov(everyone), joint.blocks[everyone, everyone], atol=1e-9)
    assert_allclose(posterior.log_evidence, joint.log_evidence, atol=1e-9)
    states = hierarchy.function.states(posterior.latent_mode)
    assert_allclose(states[-1], joint.latent_mean, atol=1e-9)
    assert [len(state) for state in states] == list(sizes)


@pytest.mark.parametrize("shape", SHAPES)
def test_differences_agree_with_the_jacobian(shape):
    example = Example(shape)
    psi, everyone = example.hierarchy.draw_latent(np.random.default_rng(1), 1)[0], np.arange(example.n_actions)
    assert_allclose(example.build(None).jacobian(psi, everyone), example.jacobian(psi, everyone), atol=1e-8)
    with_it, without = example.fit(), fit_nonlinear(example.logs(), example.build(None), ma.Gaussian(0.5))
    assert_same(without, with_it, 1e-6)


def test_jacobians_of_a_chain_agree_with_differences_of_the_whole():
    rng = np.random.default_rng(0)
    A, B, W = rng.normal(size=(3, 2)), rng.normal(size=(4, 3)), rng.normal(size=(6, 2, 4))
    layers = [
        Layer(lambda psi: np.tanh(A @ psi), 0.2, 3, lambda psi: (1 - np.tanh(A @ psi) ** 2)[:, None] * A),
        Layer(lambda psi: B @ np.sin(psi), 0.1, 4),
    ]
    hierarchy = chain(np.zeros(2), 1.0, layers, lambda psi, a: W[a] @ np.exp(0.3 * psi), 0.1, 6, 2)
    whole = NonlinearHierarchy(np.zeros(9), 1.0, hierarchy.function, 0.1, 6, 2)
    psi, some = rng.normal(size=9), np.array([4, 0, 2])
    assert_allclose(hierarchy.jacobian(psi, some), whole.jacobian(psi, some), atol=1e-8)


def test_only_seen_actions_are_evaluated_while_climbing():
    example, asked = Example("tanh"), []

    def watched(psi, actions):
        asked.append(actions.copy())
        return example.centres(psi, actions)

    hierarchy = NonlinearHierarchy(example.mean, example.cov, watched, 0.2, example.n_actions, 2, example.jacobian)
    fit_nonlinear(example.logs(), hierarchy, ma.Gaussian(0.5))
    seen = np.unique(example.actions)
    assert all(np.array_equal(actions, seen) for actions in asked[:-1])
    assert len(asked[-1]) == example.n_actions


def test_bad_functions_are_named():
    example = Example("tanh")

    def too_wide(psi, actions):
        return np.zeros((len(actions), 3))

    def broken(psi, actions):
        out = np.zeros((len(actions), 2))
        out[actions == 5] = np.nan
        return out

    def transposed(psi, actions):
        return example.jacobian(psi, actions).swapaxes(1, 2)

    def words(psi, actions):
        return [["a", "b"]] * len(actions)

    for function, jacobian, error, message in (
        (too_wide, None, ShapeError, r"function 'too_wide' must return shape \(m, d\) = \(9, 2\).*got \(9, 3\)"),
        (broken, None, NonFiniteError, r"function 'broken' must return finite numbers; action 5 has nan"),
        (
            example.centres,
            transposed,
            ShapeError,
            r"jacobian 'transposed' .*= \(9, 2, 3\).*got \(9, 3, 2\)",
        ),
        (example.centres, lambda psi, a: np.full((len(a), 2, 3), np.inf), NonFiniteError, "jacobian '<lambda>'"),
        (words, None, DataTypeError, "function 'words' must return numbers"),
    ):
        hierarchy = NonlinearHierarchy(example.mean, example.cov, function, 0.2, example.n_actions, 2, jacobian)
        for call in (fit_nonlinear, lambda *a: sample_posterior(*a, n_draws=4, rng=np.random.default_rng(0))):
            with pytest.raises(error, match=message):
                call(example.logs(), hierarchy, ma.Gaussian(0.5))


def test_bad_arguments_are_refused(unchecked):
    example = Example("tanh")
    good = dict(latent_mean=np.zeros(3), latent_cov=1.0, function=example.centres, action_cov=0.1, n_actions=12, dim=2)
    for change, error in (
        (dict(function=3), DataTypeError),
        (dict(jacobian="no"), DataTypeError),
        (dict(latent_mean=[[0.0]]), ShapeError),
        (dict(latent_cov=np.eye(2)), ShapeError),
        (dict(action_cov=-1.0), InputError),
        (dict(n_actions=0), InputError),
    ):
        with pytest.raises(error):
            NonlinearHierarchy(**(good | change))
    with pytest.raises(ShapeError, match="start must be"):
        example.fit(start=np.zeros(2))
    with pytest.raises(ShapeError, match="context columns"):
        fit_nonlinear(ma.LoggedData(np.ones((1, 3)), [0], [0.0]), example.hierarchy)
    with pytest.raises(DataTypeError, match="NonlinearHierarchy"):
        fit_nonlinear(example.logs(), linear_problem(FORMS[0]).prior)
    with pytest.raises(InputError, match="0 or 1"):
        fit_nonlinear(example.logs(), example.hierarchy, ma.Bernoulli())
    with pytest.raises(ShapeError, match="layer 0's function '<lambda>'"):
        hierarchy = chain([0.0], 1.0, [Layer(lambda psi: psi, 1.0, 3)], example.centres, 0.1, 12, 2)
        fit_nonlinear(example.logs(), hierarchy)
    with pytest.raises(DataTypeError, match="Generator"):
        sample_posterior(example.logs(), example.hierarchy, rng=0)
    problem = linear_problem(FORMS[0])
    with pytest.raises(InputError, match="seen data already"):
        sample_posterior(problem.logs, problem.fit().weights, rng=np.random.default_rng(0))


def test_a_sample_is_one_draw_unless_more_are_asked_for():
    hierarchy = Example("tanh").hierarchy
    assert hierarchy.sample(np.random.default_rng(0)).shape == (1, 12, 2)
    assert hierarchy.sample(np.random.default_rng(0), 3, actions=[4, 4, 1]).shape == (3, 3, 2)


def test_jacobians_are_refused_where_they_would_be_too_large_and_empty_without_actions(monkeypatch, unchecked):
    example = Example("tanh")
    assert example.hierarchy.jacobian(np.zeros(3), np.arange(0)).shape == (0, 2, 3)
    assert repr(example.hierarchy).startswith("NonlinearHierarchy(12 actions, d=2, latent_dim=3, ")
    monkeypatch.setattr("manyarms.nonlinear.nonlinear_hierarchy.MAX_DENSE", 35)
    assert example.hierarchy.jacobian(np.zeros(3), np.arange(5)).shape == (5, 2, 3)
    with pytest.raises(TooLargeError, match=r"Jacobians of 6 actions are 2 x 3 numbers each.*Use sample_posterior"):
        example.hierarchy.jacobian(np.zeros(3), np.arange(6))
    with pytest.raises(DataTypeError, match="must be a NonlinearHierarchy or a HierarchicalGaussian; got ndarray"):
        as_hierarchy(np.ones(3))
