"""A problem draws worlds; a world makes logs for methods and knows the true values. The paper's are synthetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, cast, get_args

import numpy as np
from jaxtyping import Float, Int
from sklearn.cluster import KMeans

from manyarms._base.checks import Array, check_choice, frozen
from manyarms._base.rng import split
from manyarms.core import HierarchicalGaussian, LoggedData, Policy
from manyarms.datasets import SyntheticProblem
from manyarms.datasets.environment import ScoredEnvironment
from manyarms.likelihoods import Gaussian
from manyarms.policies import EpsilonGreedy, Greedy, Uniform
from manyarms.posterior import fit
from manyarms.priors import independent

Kind = Literal["ope", "opl"]
"""Off-policy evaluation (estimate the value of a given target), or off-policy learning (find a good policy)."""

Logging = Literal["uniform", "epsilon-greedy"]

NOISE_LEVELS = (0.5, 1.0, 1.5)
"""v of the misspecified priors."""

N_TEST = 2000
"""Fresh contexts on which the truth and the relative reward are computed."""

N_WEAK_CLUSTERS = 10
"""Clusters by k-means on the prior means of the actions."""

CLUSTER_SHARE = 0.05
"""Clusters of MIPS in learning, as a share of K; the paper does not say how many it used."""

BINARY_NOISE = 0.5
"""σ that linear-Gaussian methods assume for 0/1 rewards: the largest standard deviation they can have."""


@dataclass(frozen=True)
class Origin:
    """The data behind a problem.

    Attributes:
        digest: A digest of the data, the same in whatever folder the data lies; see `digest_of`.
        caveat: What is missing from the data as published, in words; empty when nothing is.
    """

    digest: str
    caveat: str = ""


def digest_of(*parts: object) -> str:
    """A short digest of the data that a problem is made of: equal for equal arrays, texts, numbers."""
    digest = sha256()
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            digest.update(f"{part.dtype.str} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part.tolist() if isinstance(part, np.ndarray) else part).encode())
        digest.update(b"\x1f")
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Known:
    """The knowledge about a problem that methods may use before they see a log.

    On MovieLens, as in the paper, and on synthetic problems, `vectors` are the true weights. Each method decides how to
    use them; sDM uses only its prior.

    Attributes:
        prior: The structured prior of sDM.
        unstructured: The prior of DM (Bayes), in which actions are independent.
        noise_std: σ that all linear-Gaussian methods assume.
        vectors: (K, e) a vector for each action, for MIPS and policy convolution.
        learnable: The structure in which a prior is learned, from the log alone.
        make_clusters: Makes `clusters`; called when a method first asks for them.
        make_other_priors: Makes `other_priors`; called when a method first asks for them.
        make_weak_clusters: Makes `weak_clusters`; None where they are `clusters`.
        clusters_given: Whether `clusters` came with the data, as categories do, so that their number is not chosen.
        cluster_seed: Seed of the clusters that a method makes from `vectors`.
    """

    prior: HierarchicalGaussian
    unstructured: HierarchicalGaussian
    noise_std: float
    vectors: Float[Array, "K e"]
    learnable: HierarchicalGaussian
    make_clusters: Callable[[], Int[Array, " K"]]
    make_other_priors: Callable[[], Mapping[str, HierarchicalGaussian]] = dict[str, HierarchicalGaussian]
    make_weak_clusters: Callable[[], Int[Array, " K"]] | None = None
    clusters_given: bool = False
    cluster_seed: int = 0

    @cached_property
    def clusters(self) -> Int[Array, " K"]:
        """(K,) a cluster for each action, for MIPS in learning."""
        return frozen(self.make_clusters())

    @cached_property
    def weak_clusters(self) -> Int[Array, " K"]:
        """(K,) clusters by what the prior knows of the actions, for OffCEM and the weaker variant of MIPS."""
        return self.clusters if self.make_weak_clusters is None else frozen(self.make_weak_clusters())

    @cached_property
    def _clusters_by_size(self) -> dict[int, Int[Array, " K"]]:
        return {}

    def clusters_by_size(self, size: int) -> Int[Array, " K"]:
        """(K,) at most `size` clusters of the actions, by k-means on their vectors; made once."""
        if size not in self._clusters_by_size:
            made = clusters_of(self.vectors, np.random.default_rng((self.cluster_seed, size)), size)
            self._clusters_by_size[size] = frozen(made)
        return self._clusters_by_size[size]

    @cached_property
    def other_priors(self) -> Mapping[str, HierarchicalGaussian]:
        """Further priors by name: variants and misspecified ones."""
        return self.make_other_priors()

    @property
    def n_actions(self) -> int:
        """K."""
        return self.prior.n_actions

    @property
    def dim(self) -> int:
        """d."""
        return self.prior.dim


class World(ABC):
    """One instance of a problem.

    Attributes:
        known: The knowledge that methods may use.
        target: The policy to evaluate in off-policy evaluation.
        target_value: Its true value.
        target_error: The standard error of `target_value`, where that was itself measured.
        best_value: The value of the best possible policy.
    """

    known: Known
    target: Policy
    target_value: float
    target_error: float = 0.0
    best_value: float

    @abstractmethod
    def log(self, n: int, rng: np.random.Generator) -> LoggedData:
        """A log of n rounds."""

    @abstractmethod
    def value(self, policy: Policy) -> float:
        """The true value of any policy."""

    def target_on(self, logs: LoggedData) -> Policy:
        """The target as a policy for the contexts of these logs."""
        return self.target

    def eligible(self, logs: LoggedData) -> Any:
        """The actions that could be chosen in each round of a log; None for all."""
        return None


class Problem(ABC):
    """A family of worlds with every setting fixed; a frozen dataclass, so that it can be sent to other processes."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The problem's name in result rows; two problems with the same label are the same problem."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> World:
        """An instance."""

    def origin(self) -> Origin | None:
        """The data it is made of, so that rows of two data sets are never mixed; None when the label says it all."""
        return None


class ScoredWorld(World):
    """A world of a problem with known weights, whose true values are computed on contexts of its own.

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
    """A problem with θ drawn from a structured prior that sDM knows; see `datasets.SyntheticProblem`.

    Args:
        n_actions, latent_dim, dim: K, d' and d.
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

    def __post_init__(self) -> None:
        SyntheticProblem(self.n_actions, self.dim, self.latent_dim, binary=self.binary)
        check_choice("logging", self.logging, get_args(Logging))
        check_choice("target", self.target, ("best", "prior"))

    @property
    def label(self) -> str:
        words = [f"synthetic K={self.n_actions} d={self.dim} d'={self.latent_dim}", self.logging]
        return ", ".join(words + ["binary"] * self.binary + ["target by prior"] * (self.target == "prior"))

    def draw(self, rng: np.random.Generator) -> ScoredWorld:
        roles = ("prior", "world", "test", "cluster", "wrong")
        prior_rng, world_rng, test_rng, cluster_rng, noise_rng = split(rng, *roles)
        recipe = SyntheticProblem(self.n_actions, self.dim, self.latent_dim, binary=self.binary)
        prior = recipe.draw_prior(prior_rng)
        world = recipe.draw_environment(prior, world_rng)
        theta = world.weights
        cluster_seed = int(split(cluster_rng, "theta")[0].integers(1 << 62))
        known = Known(
            prior=prior,
            unstructured=prior.marginal(),
            noise_std=BINARY_NOISE if self.binary else recipe.noise_std,
            vectors=theta,
            learnable=prior,
            make_clusters=lambda: known.clusters_by_size(max(2, round(CLUSTER_SHARE * self.n_actions))),
            make_other_priors=lambda: _misspecified_priors(recipe, prior, noise_rng),
            make_weak_clusters=lambda: clusters_of(prior.action_mean(), cluster_rng),
            cluster_seed=cluster_seed,
        )
        target = EpsilonGreedy(greedy_by(prior.action_mean()), 0.5) if self.target == "prior" else None
        return ScoredWorld(world, known, self.logging, test_rng, target)


def greedy_by(vectors: Float[Array, "K d"]) -> Policy:
    """A target for problems: the policy that always takes the action with the largest xᵀ v_a."""
    K, d = vectors.shape
    nothing = LoggedData(np.empty((0, d)), np.empty(0, dtype=np.int64), np.empty(0), n_actions=K)
    return Greedy(fit(nothing, independent(K, mean=vectors, cov=1.0), Gaussian()))


def clusters_of(
    vectors: Float[Array, "K e"], rng: np.random.Generator, at_most: int = N_WEAK_CLUSTERS
) -> Int[Array, " K"]:
    """The clusters that a problem makes of its actions, by k-means on their vectors."""
    count = min(at_most, len(np.unique(vectors, axis=0)))
    seed = int(rng.integers(1 << 31))
    # scikit-learn is annotated too narrowly: n_init is a number or "auto".
    return KMeans(n_clusters=count, n_init=cast(Any, 1), random_state=seed).fit_predict(vectors).astype(np.int64)


def _misspecified_priors(
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
