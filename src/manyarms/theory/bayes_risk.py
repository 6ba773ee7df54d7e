"""Bayes risks by simulation: draw a world from the prior, log from it, fit, learn, and compare with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_actions, as_count, as_matrix, as_scalar, frozen
from manyarms._base.rng import split
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.datasets.environment import DrawContexts, LinearEnvironment
from manyarms.errors import ShapeError
from manyarms.likelihoods import Gaussian
from manyarms.policies import Greedy, Uniform
from manyarms.posterior import RewardPosterior, fit

Learn = Callable[[RewardPosterior], Policy]
"""Function from posterior to policy, such as `Greedy`."""


@dataclass(frozen=True)
class BayesianProblem:
    """Random worlds: θ from the prior, contexts from ν, rewards N(xᵀ θ_a, σ²), logged by π_0.

    π_0 is fixed before θ is drawn. If it depended on θ, the logged actions themselves would carry information about θ,
    and no posterior here would be right.

    Args:
        prior: The distribution of θ.
        draw_contexts: Function called as draw_contexts(rng, n), which returns (n, d) contexts.
        noise_std: σ, above zero.
        logging_policy: π_0; None for uniform.
    """

    prior: HierarchicalGaussian
    draw_contexts: DrawContexts
    noise_std: float = 1.0
    logging_policy: Policy | None = None

    def __post_init__(self) -> None:
        as_scalar("noise_std", self.noise_std, above=0.0)
        if self.logging_policy is not None and self.logging_policy.n_actions != self.prior.n_actions:
            raise ShapeError(
                f"has {self.logging_policy.n_actions} actions; the prior has {self.prior.n_actions}.",
                argument="logging_policy",
            )

    def draw(self, n_rounds: int, rng: np.random.Generator) -> tuple[LinearEnvironment, LoggedData]:
        """A random world, and n rounds logged in it."""
        weights_rng, rounds_rng = split(rng, "weights", "rounds")
        world = LinearEnvironment(self.prior.sample(weights_rng)[0], self.noise_std, self.draw_contexts)
        policy = Uniform(self.prior.n_actions) if self.logging_policy is None else self.logging_policy
        return world, world.log(policy, as_count("n_rounds", n_rounds, minimum=0), rounds_rng)


@dataclass(frozen=True)
class BayesSuboptimality:
    """E[V(π_*) - V(π̂)] over worlds and logs, as the mean over independent instances (paper, eq. for BSO).

    The norms are those in the bounds on it: ‖φ(X)‖ in Σ̂ of the truly optimal action.

    Attributes:
        suboptimality: (m,) V(π_*) - V(π̂) in each instance, on contexts of its own.
        norm: (m,) Mean of ‖φ(x)‖ over the contexts of each instance.
        squared_norm: (m,) Mean of ‖φ(x)‖² over the contexts of each instance.
    """

    suboptimality: Float[Array, " m"]
    norm: Float[Array, " m"]
    squared_norm: Float[Array, " m"]

    @property
    def mean(self) -> float:
        """The Bayes suboptimality."""
        return float(self.suboptimality.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of `mean`, over instances."""
        return float(_standard_error(self.suboptimality))

    @property
    def expected_norm(self) -> float:
        """E‖φ(X)‖, for `theorem_1_bound`."""
        return float(self.norm.mean())

    @property
    def expected_squared_norm(self) -> float:
        """E‖φ(X)‖², for `corrected_bound`."""
        return float(self.squared_norm.mean())


@dataclass(frozen=True)
class BayesMSE:
    """E[(r̂ - r)(x, a)²] over worlds and logs, for q given pairs (x, a), as the mean over m independent instances.

    Attributes:
        squared_error: (m, q) (r̂ - r)² of each pair in each instance.
        squared_norm: (m, q) ‖φ(x)‖² in Σ̂_a. If the fit used the true prior, its mean is the Bayes MSE too (Theorem 3).
    """

    squared_error: Float[Array, "m q"]
    squared_norm: Float[Array, "m q"]

    @property
    def mean(self) -> Float[Array, " q"]:
        """The Bayes MSE of each pair."""
        return self.squared_error.mean(axis=0)

    @property
    def standard_error(self) -> Float[Array, " q"]:
        """The standard error of `mean`, over instances."""
        return _standard_error(self.squared_error)

    @property
    def expected_squared_norm(self) -> Float[Array, " q"]:
        """E‖φ(x)‖² in Σ̂_a of each pair."""
        return self.squared_norm.mean(axis=0)


def bayes_suboptimality(
    problem: BayesianProblem,
    n_rounds: int,
    *,
    rng: np.random.Generator,
    learn: Learn = Greedy,
    fit_prior: HierarchicalGaussian | None = None,
    n_instances: int = 100,
    n_contexts: int = 100,
) -> BayesSuboptimality:
    """E[V(π_*) - V(π̂)], θ drawn from the prior, π̂ learned from n rounds. Greedy minimises it.

    The same seed gives the same worlds, logs and contexts whatever `learn` and `fit_prior` are, so two methods can be
    compared instance by instance.

    Args:
        problem: The distribution of worlds and logs.
        n_rounds: n; zero is allowed, and leaves the prior.
        rng: A NumPy generator.
        learn: Function from posterior to policy, for example `lambda p: Pessimistic(p, delta=0.1)`.
        fit_prior: The prior of the fit; by default the true one. `problem.prior.marginal()` is DM (Bayes).
        n_instances: The number of worlds, at least two.
        n_contexts: The number of contexts per world on which values are compared. One would do, as worlds differ more.
    """
    as_count("n_contexts", n_contexts)
    children = _instances(rng, n_instances)
    instances = [_suboptimality(problem, n_rounds, learn, fit_prior, n_contexts, child) for child in children]
    return BayesSuboptimality(*map(frozen, np.array(instances).T))


def bayes_mse(
    problem: BayesianProblem,
    contexts: Any,
    actions: Any,
    n_rounds: int,
    *,
    rng: np.random.Generator,
    fit_prior: HierarchicalGaussian | None = None,
    n_instances: int = 100,
) -> BayesMSE:
    """E[(r̂ - r)(x, a)²] for each pair (x, a) given, θ drawn from the prior, r̂ fitted to n rounds.

    Args:
        problem: The distribution of worlds and logs.
        contexts: (q, d) Contexts of the pairs.
        actions: (q,) Actions of the pairs.
        n_rounds: n; zero is allowed, and leaves the prior.
        rng: A NumPy generator. The same seed gives the same worlds and logs whatever `fit_prior` is.
        fit_prior: The prior of the fit; by default the true one.
        n_instances: The number of worlds, at least two.
    """
    x = as_matrix("contexts", contexts, columns=problem.prior.dim)
    actions = as_actions("actions", actions, n_actions=problem.prior.n_actions, length=len(x))

    errors, norms = list[Array](), list[Array]()
    for child in _instances(rng, n_instances):
        world, posterior = _fitted(problem, n_rounds, fit_prior, child)
        errors.append((posterior.expected_reward(x, actions) - world.expected_reward(x, actions)) ** 2)
        norms.append(posterior.reward_std(x, actions) ** 2)
    return BayesMSE(frozen(np.stack(errors)), frozen(np.stack(norms)))


def _suboptimality(
    problem: BayesianProblem,
    n_rounds: int,
    learn: Learn,
    fit_prior: HierarchicalGaussian | None,
    n_contexts: int,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """In one world: V(π_*) - V(π̂), and the means of ‖φ(x)‖ and ‖φ(x)‖² in Σ̂ of the optimal actions."""
    draw_rng, contexts_rng = split(rng, "world and logs", "contexts")
    world, posterior = _fitted(problem, n_rounds, fit_prior, draw_rng)
    x = world.contexts(n_contexts, contexts_rng)
    best = world.optimal_policy().actions(x)
    norm = posterior.reward_std(x, best)
    suboptimality = float(world.expected_reward(x, best).mean()) - world.value(learn(posterior), x)
    return suboptimality, float(norm.mean()), float((norm**2).mean())


def _fitted(
    problem: BayesianProblem, n_rounds: int, fit_prior: HierarchicalGaussian | None, rng: np.random.Generator
) -> tuple[LinearEnvironment, RewardPosterior]:
    """A random world, and the posterior after n rounds in it."""
    prior = problem.prior if fit_prior is None else fit_prior
    if (prior.n_actions, prior.dim) != (problem.prior.n_actions, problem.prior.dim):
        raise ShapeError(
            f"has {prior.n_actions} actions of dimension {prior.dim}; the problem's prior has "
            f"{problem.prior.n_actions} of dimension {problem.prior.dim}.",
            argument="fit_prior",
        )
    world, logs = problem.draw(n_rounds, rng)
    return world, fit(logs, prior, Gaussian(problem.noise_std))


def _instances(rng: np.random.Generator, n_instances: int) -> tuple[np.random.Generator, ...]:
    # A single instance has no standard error.
    return split(rng, *("instance" for _ in range(as_count("n_instances", n_instances, minimum=2))))


def _standard_error(values: Float[Array, "m ..."]) -> Float[Array, "..."]:
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))
