"""The gain of a policy as it will be known after more rounds: its variance then, and the chance of a decision.

The covariance of a Gaussian posterior does not depend on the rewards that are still to come. So the variance of the
gain after n more rounds is known today, and its mean is then N(mean today, variance today - variance then).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.special import ndtr, ndtri

from manyarms._base.checks import Array, check_overflow, row_weights
from manyarms.core import Choices, HierarchicalGaussian, Policy, Statistics
from manyarms.core.statistics import StatisticsSum
from manyarms.inference import condition
from manyarms.linalg.quadratic_forms import row_norms
from manyarms.linalg.sparse_matrices import pair_rows
from manyarms.posterior.policy_profile import PolicyProfiles
from manyarms.posterior.reward_posterior import RewardPosterior

MOST_ROUNDS = 1e12
"""More rounds than this are as good as infinitely many."""
MANY_PAIRS = 4_000_000
"""With more (context, action) pairs than this, future choices are drawn instead of enumerated."""
STEP = 2.0
"""The step in which the logarithm of the number of rounds moves until it is enough."""


@dataclass(frozen=True)
class FutureGain:
    """The gain today, and its variance after n more rounds of some traffic.

    Attributes:
        posterior: Today's model.
        profiles: The policies' profiles, with the gain as their first form.
        gain: The mean of the gain today.
        context_variance: The variance of the gain over other contexts.
        n_contexts: The number of contexts today; those of future rounds are added to them.
        per_round: The information of one round.
        sure: The probability that a decision needs.
    """

    posterior: RewardPosterior
    profiles: PolicyProfiles
    gain: float
    context_variance: float
    n_contexts: float
    per_round: Statistics
    sure: float

    def logged_by(self, *parts: tuple[float, Statistics]) -> FutureGain:
        """This gain under other traffic, given as shares and the information of a round in each."""
        total = StatisticsSum(self.posterior.n_actions, self.posterior.dim)
        for share, one in parts:
            if share > 0:
                total.add(one.scaled(share))
        return replace(self, per_round=total.total())

    def weights_at(self, n: float) -> HierarchicalGaussian:
        """The weights after n more rounds; their means are those of today."""
        likelihood, weights = self.posterior.likelihood, self.posterior.weights
        if n <= 0:
            return weights
        return condition(
            weights, self.per_round.scaled(n), likelihood.noise_std if likelihood.treatment == "exact" else 1.0
        )

    def variance_at(self, n: float) -> float:
        """The posterior variance of the gain after n more rounds."""
        mass = self.profiles.masses_of((1.0, 0.0))[0]
        return self.weights_at(n).variance_of(mass.vectors, mass.actions)

    def covariances_at(self, n: float) -> Float[Array, "K d"]:
        """Cov(θ_a, gain) of every action after n more rounds."""
        mass = self.profiles.masses_of((1.0, 0.0))[0]
        vectors = np.zeros((self.posterior.n_actions, self.posterior.dim))
        vectors[mass.actions] = mass.vectors
        return self.weights_at(n).covariances_with(vectors, np.arange(len(vectors)))

    @cached_property
    def _variance_today(self) -> float:
        return self.variance_at(0.0)

    def chance_at(self, n: float) -> float:
        """The probability that after n more rounds the gain is surely positive or surely negative."""
        # Future rounds also bring new contexts.
        today = self._variance_today + self.context_variance
        after = self.variance_at(n) + self.context_variance * self.n_contexts / (self.n_contexts + n)
        moved, needed = np.sqrt(max(today - after, 0.0)), ndtri(self.sure) * np.sqrt(after)
        if moved <= 1e-12 * max(abs(self.gain), needed):
            # Two policies that make the same choices are never told apart.
            return float(abs(self.gain) >= needed and self.gain != 0.0)
        return float(ndtr((self.gain - needed) / moved) + ndtr((-self.gain - needed) / moved))

    def rounds_for(self, chance: float, guess: float = 1000.0) -> float:
        """The least number of rounds after which a decision has this probability; inf if there is none.

        Args:
            chance: The probability.
            guess: A number of rounds to start from, which saves steps where it is near.
        """
        if self.chance_at(0.0) >= chance:
            return 0.0
        if self.chance_at(MOST_ROUNDS) < chance:
            return np.inf

        def excess(log: float) -> float:
            return float(ndtri(np.clip(self.chance_at(np.exp(log)), 1e-12, 1.0 - 1e-12)) - ndtri(chance))

        low = high = np.log(np.clip(guess, 1.0, MOST_ROUNDS))
        below = above = excess(low)
        while above < 0 and high < np.log(MOST_ROUNDS):
            low, below = high, above
            high += STEP
            above = excess(high)
        while below >= 0 and low > 0:
            high, above = low, below
            low -= STEP
            below = excess(low)
        # Regula falsi with halved ends (Illinois), until the number of rounds is known within one per cent.
        while high - low > np.log1p(max(0.01, np.exp(-low))):
            middle = np.clip(low - below * (high - low) / (above - below), low + 0.004, high - 0.004)
            value = excess(middle)
            low, below, above = (middle, value, above / 2) if value < 0 else (low, below / 2, above)
            high, above = (high, above) if value < 0 else (middle, value)
        return float(np.ceil(np.exp(high)))


def future_information(
    posterior: RewardPosterior,
    policy: Policy,
    x: Float[Array, "n d"],
    counts: Float[Array, " n"] | None,
    eligible: Any,
    rng: np.random.Generator,
) -> Statistics:
    """The statistics that a future round of a policy adds on average, with rewards as expected: they move no mean."""
    with np.errstate(over="ignore"):
        # Plans look as far ahead as `MOST_ROUNDS`, and add up that many squares.
        check_overflow("squares of contexts", MOST_ROUNDS * np.sum(x**2, axis=1))
    rows, actions, shares = _pairs(policy, x, eligible, rng)
    weights = row_weights(counts, len(x))
    features, weights = x[rows], shares * weights[rows] / weights.sum()
    likelihood = posterior.likelihood
    means = np.einsum("nd,nd->n", features, posterior.weights.action_mean()[actions])
    if likelihood.treatment != "exact":
        variances = row_norms(features, actions, posterior.weights.action_cov) ** 2
        site = likelihood.site(likelihood.mean_reward(means, variances), means, variances)
        weights = weights * np.maximum(site.weight, 0.0)
    return Statistics.of_rounds(features, actions, means, posterior.n_actions, weights)


def _pairs(
    policy: Policy, x: Float[Array, "n d"], eligible: Any, rng: np.random.Generator
) -> tuple[Int[Array, " p"], Int[Array, " p"], Float[Array, " p"]]:
    """The (context, action) pairs of a policy with their probabilities; draws of them where there are too many."""
    rows, actions, shares = list[Array](), list[Array](), list[Array]()
    for part, _, choices in policy.blocks(x, eligible):
        spreads_out = choices.everywhere is not None or choices.dense is not None
        if sum(map(len, rows)) > MANY_PAIRS or (spreads_out and len(x) * choices.n_actions > MANY_PAIRS):
            return np.arange(len(x)), policy.sample(x, rng, eligible=eligible), np.ones(len(x))
        for row, action, probability in _named_pairs(choices):
            rows.append(part.start + row)
            actions.append(action)
            shares.append(probability)
    return np.concatenate(rows), np.concatenate(actions), np.concatenate(shares)


def _named_pairs(choices: Choices) -> Iterator[tuple[Array, Array, Array]]:
    """The parts of some choices as pairs."""
    if choices.named is not None:
        yield pair_rows(choices.named), choices.named.indices, np.asarray(choices.named.data)
    if choices.everywhere is not None:
        used = np.flatnonzero(choices.everywhere)
        row = np.repeat(np.arange(choices.n_rows), len(used))
        yield row, np.tile(used, choices.n_rows), np.tile(choices.everywhere[used], choices.n_rows)
    if choices.dense is not None:
        pairs = sparse.csr_array(choices.dense)
        yield pair_rows(pairs), pairs.indices, np.asarray(pairs.data)
