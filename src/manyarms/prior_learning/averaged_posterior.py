"""A posterior averaged over what a learned prior might have been."""

# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms._base.rng import split
from manyarms.core import Estimate, HierarchicalGaussian, Policy
from manyarms.core.estimate import NormalMixture
from manyarms.linalg.quadratic_forms import row_norms
from manyarms.posterior.action_scores import LinearScores, Predictor, Scores
from manyarms.posterior.policy_profile import PolicyProfile, PolicyProfiles
from manyarms.posterior.posterior import Posterior, same_as
from manyarms.posterior.reward_draws import FactorDraws, chunk_rng, draw_key
from manyarms.posterior.reward_posterior import RewardPosterior
from manyarms.prior_learning.prior_warnings import when_averaged


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
    n_actions = same_as("posterior.n_actions")
    dim = same_as("posterior.dim")
    features = same_as("posterior.features")
    catalog = same_as("posterior.catalog")
    learned_from = same_as("posterior.learned_from")
    seen_actions = same_as("posterior.seen_actions")

    def __repr__(self) -> str:
        return (
            f"AveragedPosterior({len(self.draws)} priors drawn, worth {self.effective_draws:.3g}; {self.posterior!r})"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is wrong with the posterior or with the average, in plain words."""
        return (*when_averaged(self.posterior.warnings), *self.average_warnings)

    @property
    def effective_draws(self) -> float:
        """The number of equally weighted draws that these are worth."""
        return float(1.0 / np.sum(self.shares**2))

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
            return LinearScores(self.mean_weights)
        return _TangentScores(self.posterior.predictor, lambda: self.mean_weights)

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
            warnings=(*when_averaged(plain.warnings), *self.average_warnings),
            diagnostics={
                **plain.diagnostics,
                "effective_draws": self.effective_draws,
                "share_of_variance_from_the_prior": float(self.shares @ (means - value) ** 2) / max(posterior, _TINY),
            },
        )

    def draw_factors(self, n_draws: int, rngs: Sequence[np.random.Generator]) -> tuple[FactorDraws, ...]:
        return (_MixtureDraws(self, n_draws, rngs[0]),)


class _TangentScores(Scores):
    """Expected rewards that are not linear, moved along their derivative to another mean of the weights."""

    many_actions = 64

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


class _MixtureDraws(FactorDraws):
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
