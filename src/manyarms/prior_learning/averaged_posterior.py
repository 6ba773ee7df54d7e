"""A posterior averaged over what a learned prior might have been."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

from manyarms._base.checks import Array, as_scalar
from manyarms._base.rng import split
from manyarms.core import Catalog, Estimate, FeatureMap, Fingerprint, HierarchicalGaussian, Policy
from manyarms.linalg.top_k import row_norms
from manyarms.posterior.policy_profile import PolicyProfile, PolicyProfiles
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_draws import FactorDraws, chunk_rng, draw_key
from manyarms.posterior.reward_function import LinearScores, Predictor, Scores, best_of_all
from manyarms.posterior.reward_posterior import RewardPosterior


@dataclass(frozen=True)
class NormalMixture:
    """Several normal distributions, each with its share."""

    means: Float[Array, " k"]
    stds: Float[Array, " k"]
    shares: Float[Array, " k"]

    def below(self, x: float) -> float:
        """The probability of a value below x."""
        z = np.divide(x - self.means, self.stds, out=np.sign(x - self.means) * 40.0, where=self.stds > 0)
        return float(self.shares @ ndtr(z))

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds the value with probability `level`."""
        level = as_scalar("level", level, above=0.0, below=1.0)
        low, high = float((self.means - 40 * self.stds).min()), float((self.means + 40 * self.stds).max())
        if not high > low:
            return low, high
        from scipy.optimize import brentq  # noqa: PLC0415  slow to import

        def quantile(probability: float) -> Any:
            return brentq(lambda x: self.below(x) - probability, low, high, xtol=1e-12 * (high - low))

        return quantile(0.5 - level / 2), quantile(0.5 + level / 2)

    @property
    def probability_positive(self) -> float:
        """The probability that the quantity is above zero."""
        return 1.0 - self.below(0.0)


class PosteriorsByPrior:
    """The posterior weights under each of several priors, kept in memory or solved for again one after the other."""

    def __init__(self, items: Sequence[Any], make: Callable[[Any], HierarchicalGaussian] | None = None):
        self._items, self._make = items, make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[HierarchicalGaussian]:
        return iter(self._items) if self._make is None else map(self._make, self._items)


@dataclass(frozen=True, eq=False, repr=False)
class AveragedPosterior(Posterior):
    """Posteriors under several priors, each with a share: what `LearnedPrior.averaged` returns.

    Every value is a mixture of the exact posteriors under each prior, so `posterior_std` includes the uncertainty of
    the prior. Where rewards are not linear, they move with the weights along their derivative at `posterior`.

    Attributes:
        posterior: The posterior under the best prior.
        draws: The weights under each prior drawn; solved for again each time, where keeping them all would take more
            than a gigabyte.
        shares: The share of each prior.
        average_warnings: What is wrong with the average itself; `warnings` has those of the posterior too.
    """

    not_saved = "Save its .posterior, under the best prior; the average is made anew by learn_prior(...).averaged()."
    posterior: RewardPosterior
    draws: PosteriorsByPrior
    shares: Float[Array, " k"]
    average_warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"AveragedPosterior({len(self.draws)} priors drawn, worth {self.effective_draws:.3g}; {self.posterior!r})"
        )

    @property
    def n_actions(self) -> int:
        return self.posterior.n_actions

    @property
    def dim(self) -> int:
        return self.posterior.dim

    @property
    def features(self) -> FeatureMap | None:
        return self.posterior.features

    @property
    def catalog(self) -> Catalog | None:
        return self.posterior.catalog

    @property
    def learned_from(self) -> tuple[Fingerprint, ...]:
        return self.posterior.learned_from

    @property
    def seen_actions(self) -> tuple[Int[Array, " m"], ...]:
        return self.posterior.seen_actions

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.posterior.warnings, *self.average_warnings)

    @property
    def effective_draws(self) -> float:
        """The number of equally weighted draws that these are worth."""
        return float(1.0 / np.sum(self.shares**2))

    @property
    def predictor_weights(self) -> None:
        return None

    @cached_property
    def mean_weights(self) -> Float[Array, "K d"]:
        """E θ_a of every action, averaged over priors."""
        means = np.zeros((self.n_actions, self.dim))
        for share, weights in zip(self.shares, self.draws, strict=True):
            means += share * weights.action_mean()
        return means

    @property
    def expected_rewards(self) -> Scores:
        if self.posterior.is_linear:
            return LinearScores(lambda: self.mean_weights, self.n_actions)
        return TangentScores(self.posterior.predictor, lambda: self.mean_weights)

    def pair_std(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        # Of the predictor: the variance within each prior, and between them.
        centre = np.einsum("nd,nd->n", contexts, self.mean_weights[actions])
        variance = np.zeros(len(contexts))
        for share, weights in zip(self.shares, self.draws, strict=True):
            mean = np.einsum("nd,nd->n", contexts, weights.action_mean()[actions])
            variance += share * (row_norms(contexts, actions, weights.action_cov) ** 2 + (mean - centre) ** 2)
        std = np.sqrt(variance)
        return std if self.posterior.is_linear else std * self.posterior.predictor.of_pairs(contexts, actions).slopes[0]

    def collect(self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any) -> PolicyProfile:
        return self.posterior.collect(policy, contexts, eligible, weights)

    def combine(
        self, profiles: PolicyProfiles, combination: tuple[float, ...], centre: float | None = None
    ) -> Estimate:
        plain, mass = self.posterior.combine(profiles, combination), profiles.masses_of(combination)[0]
        means, variances = np.empty(len(self.draws)), np.empty(len(self.draws))
        # A value that is not linear in the weights moves with them along its derivative, which is the mass.
        shift = plain.value - float(np.sum(mass.vectors * self.posterior.weights.action_mean(mass.actions)))
        for i, weights in enumerate(self.draws):
            means[i] = shift + float(np.sum(mass.vectors * weights.action_mean(mass.actions)))
            variances[i] = weights.variance_of(mass.vectors, mass.actions)
        if centre is not None:
            means += centre - self.shares @ means
        context = (plain.context_std or 0.0) ** 2
        value = float(self.shares @ means)
        posterior = float(self.shares @ (variances + (means - value) ** 2))
        return replace(
            plain,
            value=value,
            std=float(np.sqrt(posterior + context)),
            posterior_std=float(np.sqrt(posterior)),
            method="draws",
            shape=NormalMixture(means, np.sqrt(variances + context), self.shares),
            posterior_shape=NormalMixture(means, np.sqrt(variances), self.shares),
            warnings=(*plain.warnings, *self.average_warnings),
            diagnostics={
                **plain.diagnostics,
                "effective_draws": self.effective_draws,
                "share_of_variance_from_the_prior": float(self.shares @ (means - value) ** 2) / max(posterior, _TINY),
            },
        )

    def draw_factors(self, n_draws: int, rngs: Sequence[np.random.Generator]) -> tuple[FactorDraws, ...]:
        return (MixtureDraws(self, n_draws, rngs[0]),)


class TangentScores(Scores):
    """Expected rewards that are not linear, moved along their derivative from one mean of the weights to another."""

    def __init__(self, rewards: Predictor, means: Callable[[], Array]):
        self._rewards, self._means, self.n_actions = rewards, means, rewards.n_actions

    @property
    def _shift(self) -> Float[Array, "K d"]:
        return self._means() - self._rewards.weights.action_mean()

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        rewards = self._rewards.of_pairs(contexts, actions)
        return rewards.expected + rewards.slopes[0] * np.einsum("nd,nd->n", contexts, self._shift[actions])

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        rewards = self._rewards.of_tile(contexts, slice(None))
        return rewards.expected + rewards.slopes[0] * (contexts @ self._shift.T)

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        return best_of_all(self, contexts, k, among)


class MixtureDraws(FactorDraws):
    """Draws of all weights, each under a prior that is drawn first."""

    def __init__(self, average: AveragedPosterior, n_draws: int, rng: np.random.Generator):
        prior_rng, latent_rng, action_rng = split(rng, "priors", "latent", "actions")
        self.n_draws, self.likelihood = n_draws, average.posterior.likelihood
        self._draws, self._key = average.draws, draw_key(action_rng)
        chosen = prior_rng.choice(len(average.draws), size=n_draws, p=average.shares)
        self._rows = [np.flatnonzero(chosen == number) for number in range(len(average.draws))]
        self._latent = [
            weights.draw_latent(latent_rng, len(rows)) for rows, weights in zip(self._rows, self._draws, strict=True)
        ]

    def theta(self, chunk: int, actions: Int[Array, " c"]) -> Float[Array, "s c d"]:
        rng, parts = chunk_rng(self._key, chunk), list[Array]()
        for latent, weights in zip(self._latent, self._draws, strict=True):
            parts.append(weights.draw_given(latent, actions, rng))
        out = np.empty((self.n_draws, *parts[0].shape[1:]))
        out[np.concatenate(self._rows)] = np.concatenate(parts)
        return out


_TINY = np.finfo(float).tiny
