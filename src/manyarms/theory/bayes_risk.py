"""Bayes risks by simulation, and bounds on them: the paper's (Section 5 and appendix), and others that always hold.

A simulation draws a world from the prior, logs from it, fits, learns, and compares with the truth. In the bounds,
π_*(x) is the truly best action and ‖φ(X)‖ is taken in Σ̂ of that action: the posterior standard deviation of its
reward. `bayes_suboptimality` simulates the two moments of it that are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import (
    Array,
    as_actions,
    as_count,
    as_instance,
    as_matrix,
    as_scalar,
    as_vector,
    check_callable,
    check_overflow,
    check_rows,
    frozen,
)
from manyarms._base.rng import split
from manyarms.core import HierarchicalGaussian, LoggedData, Policy
from manyarms.datasets.environment import DrawContexts, LinearEnvironment
from manyarms.errors import PropensityError, RangeError, ShapeError
from manyarms.likelihoods import Gaussian
from manyarms.policies import Greedy, Uniform
from manyarms.posterior import RewardPosterior, fit
from manyarms.posterior.posterior import Posterior

Learn = Callable[[RewardPosterior], Policy]
"""Function from posterior to policy, such as `Greedy`."""


@dataclass(frozen=True)
class BayesianProblem:
    """The random worlds of a Bayes risk, with θ from the prior, contexts from ν, rewards N(xᵀ θ_a, σ²), logged by π_0.

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
        as_instance("prior", self.prior, HierarchicalGaussian, "a prior")
        check_callable("draw_contexts", self.draw_contexts)
        as_scalar("noise_std", self.noise_std, above=0.0)
        if self.logging_policy is not None:
            as_instance("logging_policy", self.logging_policy, Policy, "a policy")
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
    instances = list[tuple[float, float, float]]()
    for child in _instances(rng, n_instances):
        draw_rng, contexts_rng = split(child, "world and logs", "contexts")
        world, posterior = _fitted(problem, n_rounds, fit_prior, draw_rng)
        x = world.contexts(n_contexts, contexts_rng)
        best = world.optimal_policy().actions(x)
        norm = posterior.reward_std(x, best)
        suboptimality = float(world.expected_reward(x, best).mean()) - world.value(learn(posterior), x)
        instances.append((suboptimality, float(norm.mean()), float(_squares(norm).mean())))
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
    as_instance("problem", problem, BayesianProblem, "a BayesianProblem")
    x = as_matrix("contexts", contexts, columns=problem.prior.dim)
    actions = as_actions("actions", actions, n_actions=problem.prior.n_actions, length=len(x))
    errors, norms = list[Array](), list[Array]()
    for child in _instances(rng, n_instances):
        world, posterior = _fitted(problem, n_rounds, fit_prior, child)
        errors.append(_squares(posterior.expected_reward(x, actions) - world.expected_reward(x, actions)))
        norms.append(_squares(posterior.reward_std(x, actions)))
    return BayesMSE(frozen(np.stack(errors)), frozen(np.stack(norms)))


def _fitted(
    problem: BayesianProblem, n_rounds: int, fit_prior: HierarchicalGaussian | None, rng: np.random.Generator
) -> tuple[LinearEnvironment, RewardPosterior]:
    """A random world, and the posterior after n rounds in it."""
    as_instance("problem", problem, BayesianProblem, "a BayesianProblem")
    if fit_prior is not None:
        as_instance("fit_prior", fit_prior, HierarchicalGaussian, "a prior")
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


@np.errstate(over="ignore", invalid="ignore")
def _squares(values: Float[Array, "..."]) -> Float[Array, "..."]:
    return check_overflow("squared errors and widths", values**2)


@np.errstate(over="ignore", invalid="ignore")
def _standard_error(values: Float[Array, "m ..."]) -> Float[Array, "..."]:
    return check_overflow("standard errors", np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values))))


def theorem_1_bound(dim: int, expected_norm: float) -> float:
    """2 √d E‖φ(X)‖: the paper's bound on the Bayes suboptimality of greedy, which is *not* true as stated.

    The proof takes r(X, a) - r̂(X, a) to be a centred Gaussian given the data, even at a = π_*(X). But that action
    depends on the unknown weights, and the best of K actions is likely one that was underestimated: the difference can
    grow like √(2 log K). So the bound can fail once log K is large against d. With d = 1, no data, K independent
    standard normal weights and φ = 1 the bound is 2, and the suboptimality is the mean of the largest of K normals:
    3.24 at K = 1000. Where log K + ½ log 2 ≤ d, it holds with √E‖φ(X)‖² in place of E‖φ(X)‖, by `corrected_bound`,
    which holds for all d and K.

    Args:
        dim: d.
        expected_norm: E‖φ(X)‖ in Σ̂ of the optimal action, over worlds, logs and contexts.
    """
    norm = as_scalar("expected_norm", expected_norm, at_least=0.0, at_most=1e150)
    return 2.0 * float(np.sqrt(as_count("dim", dim))) * norm


def corrected_bound(n_actions: int, expected_squared_norm: float) -> float:
    """√((4 log K + 2 log 2) E‖φ(X)‖²): bounds the Bayes suboptimality of greedy under a true prior, for all d and K.

    Given the data, ξ_a = (r - r̂)(X, a) / ‖φ(X)‖_a is standard normal for every a, and greedy loses at most
    ‖φ(X)‖ max_a |ξ_a| in expectation. From E exp(ξ²/4) = √2 comes E max_a ξ_a² ≤ 4 log K + 2 log 2, however the actions
    depend on one another; Cauchy-Schwarz separates the two factors. d does not enter.

    Args:
        n_actions: K.
        expected_squared_norm: E‖φ(X)‖² in Σ̂ of the optimal action, over worlds, logs and contexts.
    """
    largest = 4.0 * np.log(as_count("n_actions", n_actions)) + 2.0 * np.log(2.0)
    norm = as_scalar("expected_squared_norm", expected_squared_norm, at_least=0.0, at_most=1e300)
    return float(np.sqrt(largest * norm))


def mse_bound(posterior: Posterior, contexts: Any, actions: Any) -> Float[Array, " n"]:
    """‖φ(x)‖² in Σ̂_a, whose expectation over logs is the bound of Theorem 3. It *is* the Bayes MSE, not only a bound.

    With a true prior and known noise, E[(r̂ - r)(x, a)² | logged contexts and actions] equals it. Rewards do not enter,
    so a log with planned contexts and actions and any rewards tells how well (x, a) could be estimated from it.

    Args:
        posterior: Any posterior.
        contexts: (n, d) Contexts.
        actions: (n,) One action per context.
    """
    return _squares(as_instance("posterior", posterior, Posterior, "a posterior").reward_std(contexts, actions))


@dataclass(frozen=True)
class IsotropicModel:
    """Assumptions (A0)-(A2) of the explicit bound, as the numbers that enter it.

    ψ ~ N(μ, τ² I), θ_a | ψ ~ N(W_a ψ, σ_0² I) with W_a W_aᵀ = I, rewards N(xᵀ θ_a, σ²), ‖x‖ ≤ 1. Contexts on the unit
    sphere, uniform, have g = 1/d and h = √(3d / (d + 2)).

    Args:
        dim: d.
        noise_std: σ.
        action_std: σ_0.
        latent_std: τ; zero when actions share nothing.
        smallest_eigenvalue: g, that of E X Xᵀ: above zero, and at most 1/d since ‖x‖ ≤ 1.
        moment_ratio: h ≥ 1 with √E(vᵀX)⁴ ≤ h E(vᵀX)² for all v.
    """

    dim: int
    noise_std: float
    action_std: float
    latent_std: float
    smallest_eigenvalue: float
    moment_ratio: float

    def __post_init__(self) -> None:
        as_count("dim", self.dim)
        for name in ("noise_std", "action_std", "smallest_eigenvalue"):
            as_scalar(name, getattr(self, name), above=0.0)
        as_scalar("latent_std", self.latent_std, at_least=0.0)
        as_scalar("moment_ratio", self.moment_ratio, at_least=1.0)
        # The eigenvalues of E X Xᵀ sum to E‖X‖² ≤ 1; a g estimated from contexts may be off by rounding.
        if self.smallest_eigenvalue * self.dim > 1.0 + 1e-9:
            raise RangeError(
                f"must be at most 1 / dim = {1 / self.dim:g}; got {self.smallest_eigenvalue}.",
                "Scale the contexts so that ‖x‖ ≤ 1.",
                argument="smallest_eigenvalue",
            )


def explicit_squared_norm(model: IsotropicModel, n_rounds: int, optimal_propensities: Any) -> float:
    """An upper bound on E‖X‖² in Σ̂ of the optimal action, from how often the log shows that action.

    With p = π_0(π_*(X) | X), m = ⌊p n / 2⌋ and α = max(m - 7 h √(m (d + 2 log n)), 0) it is (paper, "Explicit Bound")
        E[1 / λ + τ² σ_0⁻⁴ / λ² + (σ_0² + τ²) exp(-n p² / 2)] + 2 (σ_0² + τ²) / n,  λ = α g / σ² + 1 / σ_0².

    It is valid under (A0)-(A2) when logging ignores the context: only then do contexts logged with an action have the
    distribution of X, and only then are the counts of actions binomial. A negative α in the paper's formula would claim
    less than the prior knows, so it is clipped at zero: the first two terms are then those of the prior, and the log
    counts for nothing. This lasts until p n exceeds about 98 h² (d + 2 log n), out of reach of most logs with many
    actions. It does not rest on Theorem 1; `explicit_bound` does.

    Args:
        model: The assumptions, as numbers.
        n_rounds: n.
        optimal_propensities: π_0(π_*(x) | x), one per draw of (world, context); all 1/K if logging is uniform.
    """
    as_instance("model", model, IsotropicModel, "an IsotropicModel")
    n = as_count("n_rounds", n_rounds)
    p = as_vector("optimal_propensities", optimal_propensities)
    if len(p) == 0:
        raise ShapeError("must have at least one row: a mean over none is undefined.", argument="optimal_propensities")
    check_rows(
        "optimal_propensities", p, lambda q: (q >= 0) & (q <= 1), PropensityError, "must lie in [0, 1]",
        "They are the logging policy's probabilities of the optimal actions.",
    )  # fmt: skip
    s2, s02, t2 = model.noise_std**2, model.action_std**2, model.latent_std**2
    m = np.floor(p * n / 2)
    alpha = np.maximum(m - 7 * model.moment_ratio * np.sqrt(m * (model.dim + 2 * np.log(n))), 0.0)
    precision = alpha * model.smallest_eigenvalue / s2 + 1 / s02
    terms = 1 / precision + t2 / (s02 * precision) ** 2 + (s02 + t2) * np.exp(-n * p**2 / 2)
    return float(terms.mean()) + 2 * (s02 + t2) / n


def explicit_bound(model: IsotropicModel, n_rounds: int, optimal_propensities: Any) -> float:
    """2 √(d E‖X‖²), with the norm bounded by `explicit_squared_norm`: the paper's O(1/√n) bound on the suboptimality.

    It rests on Theorem 1 and has the same gap: nothing guarantees it when log K is large against d (`theorem_1_bound`).
    A bound that does hold under the same assumptions is
    `corrected_bound(n_actions, explicit_squared_norm(model, n_rounds, optimal_propensities))`.
    The arguments are the same.
    """
    as_instance("model", model, IsotropicModel, "an IsotropicModel")
    return 2.0 * float(np.sqrt(model.dim * explicit_squared_norm(model, n_rounds, optimal_propensities)))
