"""The most informative traffic: policies that show the items whose rewards say most about a gain, and their search.

A reward at (x, a) lowers the variance of the gain by about (φ(x)ᵀ c_a)² / σ², where c_a is the covariance of θ_a and
the gain. This is the direction in which a c-optimal design improves (Elfving, 1952), so the search is the method of
Frank and Wolfe: show everyone the pair of the largest |φ(x)ᵀ c_a|, find the best shares of all policies so far, compute
c_a as it will then be, and repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_floats
from manyarms.core import Catalog, FeatureMap, Fingerprint, Policy, Statistics
from manyarms.errors import ShapeError
from manyarms.linalg.top_k import best_scores
from manyarms.model_file.part_checks import floats, indices, instance_of, is_size, maybe, tuple_of
from manyarms.policies.mixture import Mixture
from manyarms.policies.scored_policy import ScoredPolicy
from manyarms.posterior.action_scores import Scores
from manyarms.posterior.future_gain import FutureGain

MOST_SHOWN = 2000
"""The number of actions that a most informative policy chooses among: those of the largest covariances."""
STEPS, UPDATES, RESTARTS = 2, 4, 2
"""Policies added per search, updates of their shares after each, and searches, each of which looks further."""
LEAST_SHARE = 0.01
"""Policies with a smaller share are left out."""


class _Magnitudes(Scores):
    """Scores |φ(x)ᵀ c_a| of some actions; those of all others are 0."""

    def __init__(self, vectors: Float[Array, "m d"], shown: Int[Array, " m"], n_actions: int):
        self.vectors, self.shown, self.n_actions = vectors, shown, n_actions
        self._place = np.full(n_actions, -1)
        self._place[shown] = np.arange(len(shown))

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        place = self._place[actions]
        return np.where(place >= 0, np.abs(np.einsum("nd,nd->n", contexts, self.vectors[place])), 0.0)

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        if among is not None or k > len(self.shown):
            return super().best(contexts, k, among)

        def magnitudes(rows: slice, columns: slice) -> Float[Array, "b c"]:
            return np.abs(contexts[rows] @ self.vectors[columns].T)

        return self.shown[best_scores(len(contexts), len(self.shown), magnitudes, k)]


class MostInformative(ScoredPolicy):
    """π(x) = argmax_a |φ(x)ᵀ c_a| over some actions: the action whose reward says most about a gain.

    Args:
        vectors: (m, d) c_a of the actions that it may show.
        shown: (m,) These actions, ascending.
        n_actions: K.
        learned_from: The fingerprints of the rounds behind the vectors; see `core.fingerprint`.
        features: The map from context columns to φ(x), if there is one: then contexts may be tables.
        catalog: The ids of the actions, if they have any.
    """

    saved_as = "most informative"
    saved_fields = ("vectors", "shown", "n_actions", "learned_from", "features", "catalog")
    saved_checks: ClassVar = {
        "vectors": floats(2),
        "shown": indices(),
        "n_actions": is_size,
        "learned_from": tuple_of(instance_of(Fingerprint)),
        "features": maybe(instance_of(FeatureMap)),
        "catalog": maybe(instance_of(Catalog)),
    }

    def __init__(
        self,
        vectors: Any,
        shown: Any,
        n_actions: int,
        *,
        learned_from: tuple[Fingerprint, ...] = (),
        features: FeatureMap | None = None,
        catalog: Catalog | None = None,
    ):
        self.vectors: Float[Array, "m d"] = as_floats("vectors", vectors, ndim=2)
        self.n_actions, self.dim = as_count("n_actions", n_actions), self.vectors.shape[1]
        self.shown = as_actions("shown", shown, n_actions=self.n_actions, length=len(self.vectors))
        if self.vectors.size == 0 or (np.diff(self.shown) <= 0).any():
            raise ShapeError("must be distinct actions in ascending order, at least one.", argument="shown")
        self.learned_from, self.features, self.catalog = learned_from, features, catalog

    def consistent(self) -> bool:
        """True if features and catalog are those of the vectors."""
        features_fit = self.features is None or self.features.dim == self.dim
        return features_fit and (self.catalog is None or len(self.catalog) == self.n_actions)

    @property
    def scores(self) -> Scores:
        """|φ(x)ᵀ c_a|."""
        return _Magnitudes(self.vectors, self.shown, self.n_actions)


def most_informative_traffic(
    now: FutureGain,
    others: Sequence[Policy],
    share: float,
    chance: float,
    information: Callable[[Policy], Statistics],
) -> tuple[Policy, FutureGain]:
    """The most informative policy for a share of the traffic, and the gain after rounds of which it logs this share.

    Args:
        now: The gain if everything is logged as now.
        others: Policies that may be part of the mixture, such as the candidate.
        share: The explored share of the traffic.
        chance: The desired probability of a decision: the search looks ahead to the rounds that this takes.
        information: The statistics that a round of a policy adds on average.
    """
    policies, known = list(others), [information(policy) for policy in others]
    shares = np.full(len(policies), 1.0 / max(len(policies), 1))

    def future() -> FutureGain:
        parts = [(share * own, statistics) for own, statistics in zip(shares, known, strict=True)]
        return now.logged_by((1.0 - share, now.per_round), *parts) if parts else now

    n = 1000.0
    # A question that is settled needs no search.
    settled = now.chance_at(0.0) >= chance
    for _ in range(1 if settled else RESTARTS):
        n = _horizon(future(), chance, n)
        for _ in range(1 if settled else STEPS):
            policies.append(_informative(now, future().covariances_at(n)))
            known.append(information(policies[-1]))
            shares = np.append(shares * (1.0 - 1.0 / len(policies)), 1.0 / len(policies))
            for _ in range(UPDATES if len(policies) > 1 else 0):
                # The multiplicative algorithm for optimal designs (Silvey, Titterington and Torsney, 1978).
                covariances = future().covariances_at(n)
                slopes = np.array([_slope(statistics, covariances) for statistics in known])
                shares = shares * np.sqrt(np.maximum(slopes, 1e-300))
                shares /= shares.sum()
        kept = np.flatnonzero(shares >= LEAST_SHARE)
        policies, known = [policies[i] for i in kept], [known[i] for i in kept]
        shares = shares[kept] / shares[kept].sum()
    return (policies[0] if len(policies) == 1 else Mixture(policies, shares)), future()


def _informative(now: FutureGain, covariances: Float[Array, "K d"]) -> MostInformative:
    posterior = now.posterior
    size = np.linalg.norm(covariances, axis=1)
    shown = np.sort(np.argsort(-size, kind="stable")[:MOST_SHOWN])
    return MostInformative(
        covariances[shown] / max(size.max(), np.finfo(float).tiny),
        shown,
        posterior.n_actions,
        learned_from=posterior.learned_from,
        features=posterior.features,
        catalog=posterior.catalog,
    )


def _slope(statistics: Statistics, covariances: Float[Array, "K d"]) -> float:
    """The rate at which the variance of the gain falls with more rounds of some information: Σ w (φᵀ c_a)²."""
    sums, rows = statistics.sums, statistics.rows
    own = covariances[sums.actions]
    total = np.einsum("md,mde,me->", own, sums.gram, own)
    return float(total + np.sum(np.einsum("nd,nd->n", rows.features, covariances[rows.actions]) ** 2))


def _horizon(future: FutureGain, chance: float, guess: float) -> float:
    """The rounds to look ahead: those that a decision takes or, if it is never reached, that halve the variance."""
    rounds = future.rounds_for(chance, guess)
    if np.isfinite(rounds) and rounds > 0:
        return rounds
    start, n = future.variance_at(0.0), 100.0
    while future.variance_at(n) > 0.5 * start and n < 1e6:
        n *= 4.0
    return n
