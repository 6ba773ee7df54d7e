"""The paper's synthetic problems: worlds with known weights, drawn from a structured prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, Int
from sklearn.cluster import KMeans

from manyarms._base.checks import Array
from manyarms._base.rng import split
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.datasets import SyntheticProblem
from manyarms.datasets.environment import ScoredEnvironment
from manyarms.experiments.methods import NOISE_LEVELS
from manyarms.experiments.problem import Known, Problem, World
from manyarms.likelihoods import Gaussian
from manyarms.policies import EpsilonGreedy, Greedy, Uniform
from manyarms.posterior import fit
from manyarms.priors import independent

Logging = Literal["uniform", "epsilon-greedy"]

N_TEST = 2000
"""Fresh contexts on which the truth and the relative reward are computed."""

N_CLUSTERS = 10
"""Clusters of MIPS and OffCEM, by k-means on the prior means of the actions; the paper does not say which it used."""

BINARY_NOISE = 0.5
"""σ that linear-Gaussian methods assume for 0/1 rewards: the largest standard deviation they can have."""


class ScoredWorld(World):
    """A world with known weights, whose true values are computed on contexts of its own.

    A target of None is the paper's, which takes the truly best action half the time.
    """

    def __init__(
        self,
        environment: ScoredEnvironment,
        known: Known,
        logging: Logging,
        rng: np.random.Generator,
        target: Policy | None = None,
    ):
        self.environment, self.known = environment, known
        best = environment.optimal_policy()
        half_best = EpsilonGreedy(best, 0.5)
        self.target = half_best if target is None else target
        self.logging_policy = Uniform(environment.n_actions) if logging == "uniform" else half_best
        self.contexts = environment.contexts(N_TEST, rng)
        self.target_value, self.best_value = self.value(self.target), self.value(best)
        # Intervals are for the population of contexts, but the truth is known only on a sample of them.
        spread = environment.values(self.target, self.contexts).std(ddof=1)
        self.target_error = float(spread / np.sqrt(N_TEST))

    def log(self, n: int, rng: np.random.Generator) -> LoggedData:
        return self.environment.log(self.logging_policy, n, rng)

    def value(self, policy: Policy) -> float:
        return self.environment.value(policy, self.contexts)


@dataclass(frozen=True)
class Synthetic(Problem):
    """θ drawn from a structured prior that sDM knows; see `datasets.SyntheticProblem`.

    Args:
        n_actions: K.
        latent_dim: d'.
        dim: d.
        logging: Uniform, or the truly best action half the time.
        binary: Clicks instead of Gaussian rewards; linear-Gaussian methods are then misspecified.
        target: "best" takes the truly best action half the time, so it knows θ; "prior" takes the best action by the
            prior means instead, like a policy that was chosen before the log.
    """

    n_actions: int = 1000
    latent_dim: int = 10
    dim: int = 10
    logging: Logging = "uniform"
    binary: bool = False
    target: Literal["best", "prior"] = "best"

    @property
    def label(self) -> str:
        words = [f"synthetic K={self.n_actions} d={self.dim} d'={self.latent_dim}", self.logging]
        return ", ".join(words + ["binary"] * self.binary + ["target by prior"] * (self.target == "prior"))

    def draw(self, rng: np.random.Generator) -> ScoredWorld:
        roles = ("prior", "world", "test", "cluster", "wrong")
        prior_rng, world_rng, test_rng, cluster_rng, noise_rng = split(rng, *roles)
        recipe = SyntheticProblem(self.n_actions, self.dim, self.latent_dim, binary=self.binary)
        prior = recipe.draw_prior(prior_rng)
        known = Known(
            prior=prior,
            unstructured=prior.marginal(),
            noise_std=BINARY_NOISE if self.binary else recipe.noise_std,
            vectors=prior.action_mean(),
            learnable=prior,
            make_clusters=lambda: clusters_of(prior.action_mean(), cluster_rng),
            make_other_priors=lambda: misspecified_priors(recipe, prior, noise_rng),
        )
        world = recipe.draw_environment(prior, world_rng)
        target = EpsilonGreedy(greedy_by(prior.action_mean()), 0.5) if self.target == "prior" else None
        return ScoredWorld(world, known, self.logging, test_rng, target)


def greedy_by(vectors: Float[Array, "K d"]) -> Policy:
    """The policy that always takes the action with the largest xᵀ v_a: greedy on a posterior without data."""
    K, d = vectors.shape
    nothing = LoggedData(np.empty((0, d)), np.empty(0, dtype=np.int64), np.empty(0), n_actions=K)
    return Greedy(fit(nothing, independent(K, mean=vectors, cov=1.0), Gaussian()))


def clusters_of(vectors: Float[Array, "K e"], rng: np.random.Generator, at_most: int = N_CLUSTERS) -> Int[Array, " K"]:
    """k-means labels of actions."""
    count = min(at_most, len(np.unique(vectors, axis=0)))
    seed = int(rng.integers(1 << 31))
    # scikit-learn is annotated too narrowly: n_init is a number or "auto".
    return KMeans(n_clusters=count, n_init=cast(Any, 1), random_state=seed).fit_predict(vectors).astype(np.int64)


def misspecified_priors(
    recipe: SyntheticProblem, prior: HierarchicalGaussian, rng: np.random.Generator
) -> dict[str, HierarchicalGaussian]:
    """Misspecified priors at every noise level: everything, means only, covariances only, with the same noise."""
    parts = {"prior": (True, True), "means": (True, False), "covariances": (False, True)}
    seed = int(rng.integers(1 << 62))
    return {
        f"{part} off by {v:g}": recipe.misspecified(prior, v, means=means, covs=covs, rng=np.random.default_rng(seed))
        for part, (means, covs) in parts.items()
        for v in NOISE_LEVELS
    }
