"""A posterior averaged over what a learned prior might have been."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from manyarms._arrays import Array, as_scalar
from manyarms.core.estimate import Estimate
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.mass import FeatureMass
from manyarms.core.policy import Policy
from manyarms.errors import ManyarmsError
from manyarms.posterior import RewardPosterior
from manyarms.prior_choice.hyperparameters import Hyperparameters
from manyarms.prior_choice.objective import Evidence


@dataclass(frozen=True)
class NormalMixture:
    """Several normal distributions, each with its share."""

    means: Float[Array, " k"]
    stds: Float[Array, " k"]
    shares: Float[Array, " k"]

    def below(self, x: float) -> float:
        """The probability of lying below x."""
        z = np.divide(x - self.means, self.stds, out=np.sign(x - self.means) * 40.0, where=self.stds > 0)
        return float(self.shares @ ndtr(z))

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds the value with probability `level`."""
        level = as_scalar("level", level, above=0.0, below=1.0)
        low, high = float((self.means - 40 * self.stds).min()), float((self.means + 40 * self.stds).max())
        if not high > low:
            return low, high
        return self._quantile(0.5 - level / 2, low, high), self._quantile(0.5 + level / 2, low, high)

    def _quantile(self, probability: float, low: float, high: float) -> float:
        def excess(x: float) -> float:
            return self.below(x) - probability

        return cast(float, brentq(excess, low, high, xtol=1e-12 * (high - low)))

    @property
    def probability_positive(self) -> float:
        """How sure it is that the quantity is above zero."""
        return 1.0 - self.below(0.0)


@dataclass(frozen=True, eq=False)
class AveragedPosterior:
    """Posteriors under several priors, each with a share: what `LearnedPrior.averaged` returns.

    `value` and `difference` are mixtures of the exact posteriors under each: `posterior_std` has the uncertainty of the
    prior in it. Policies are made from `posterior`, the one under the best prior.

    Attributes:
        posterior: Under the prior that was found.
        draws: Weights under each prior drawn.
        shares: How much each counts.
        warnings: What is wrong with the average, in plain words.
    """

    posterior: RewardPosterior
    draws: tuple[HierarchicalGaussian, ...]
    shares: Float[Array, " k"]
    warnings: tuple[str, ...] = ()

    @property
    def effective_draws(self) -> float:
        """How many equally weighted draws these are worth."""
        return float(1.0 / np.sum(self.shares**2))

    def value(
        self, policy: Policy, contexts: Any, *, eligible: Any = None, weights: Any = None, groups: Any = None
    ) -> Estimate:
        """The posterior of V(π), as `RewardPosterior.value`, averaged over priors."""
        plain = self.posterior.value(policy, contexts, eligible=eligible, weights=weights, groups=groups)
        mass, _ = self.posterior.profile(policy, contexts, eligible, weights)
        return self._mixed(plain, mass)

    def difference(
        self,
        policy: Policy,
        baseline: Policy,
        contexts: Any,
        *,
        eligible: Any = None,
        weights: Any = None,
        groups: Any = None,
    ) -> Estimate:
        """The posterior of V(policy) - V(baseline), as `RewardPosterior.difference`, averaged over priors."""
        plain = self.posterior.difference(policy, baseline, contexts, eligible=eligible, weights=weights, groups=groups)
        mass, _ = self.posterior.profile(policy, contexts, eligible, weights)
        base, _ = self.posterior.profile(baseline, contexts, eligible, weights, "baseline")
        return self._mixed(plain, mass.plus(base, -1.0))

    def _mixed(self, plain: Estimate, mass: FeatureMass) -> Estimate:
        means, variances = np.empty(len(self.draws)), np.empty(len(self.draws))
        for i, weights in enumerate(self.draws):
            means[i] = float(np.sum(mass.vectors * weights.action_mean(mass.actions)))
            variances[i] = weights.variance_of(mass.vectors, mass.actions)
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
            warnings=(*plain.warnings, *self.warnings),
            diagnostics={
                **plain.diagnostics,
                "effective_draws": self.effective_draws,
                "share_of_variance_from_the_prior": float(self.shares @ (means - value) ** 2) / max(posterior, _TINY),
            },
        )


def average(
    posterior: RewardPosterior,
    evidence: Evidence,
    hyper: Hyperparameters,
    eta: Float[Array, " s"],
    precision: Float[Array, "s s"],
    root: Float[Array, "s s"],
    *,
    n_draws: int,
    rng: np.random.Generator,
    avoid_boundary: bool,
) -> AveragedPosterior:
    """Draw η ~ N(best, B Bᵀ), condition under each, and weigh each by evidence over the density drawn from."""
    z = _spread_out(len(eta), n_draws, rng)
    draws, log_weights = list[HierarchicalGaussian](), list[float]()
    for row in z:
        try:
            value, drawn = evidence.posterior(hyper, eta + root @ row, avoid_boundary=avoid_boundary)
        except ManyarmsError:
            # So far out that the arithmetic fails; its weight would be nil.
            continue
        draws.append(drawn)
        log_weights.append(value + 0.5 * float(row @ row))
    if not draws:
        return AveragedPosterior(posterior, (posterior.weights,), np.ones(1), (_UNSTABLE,))
    shares = _capped_shares(np.array(log_weights))
    out = AveragedPosterior(posterior, tuple(draws), shares)
    return out if out.effective_draws > 0.2 * n_draws else replace(out, warnings=(_UNSTABLE,))


def _capped_shares(log_weights: Float[Array, " k"]) -> Float[Array, " k"]:
    """Importance weights, the largest of them cut at √k times their mean so that none decides alone (Ionides, 2008)."""
    weights = np.exp(log_weights - log_weights.max())
    weights = np.minimum(weights, np.sqrt(len(weights)) * weights.mean())
    return weights / weights.sum()


def _spread_out(size: int, n_draws: int, rng: np.random.Generator) -> Float[Array, "k s"]:
    """Standard normal draws that fill the space evenly: fewer are needed than of independent ones."""
    if size == 0:
        return np.zeros((n_draws, 0))
    from scipy.stats import qmc  # noqa: PLC0415

    # Sobol's points, all shifted by one random vector; the first would lie in a corner.
    points = qmc.Sobol(size, scramble=False).random_base2((n_draws - 1).bit_length())[:n_draws]
    return ndtri(np.clip((points + rng.random(size)) % 1.0, 1e-9, 1 - 1e-9))


_TINY = np.finfo(float).tiny
_UNSTABLE = "the uncertainty of the learned prior is far from normal: few draws decide; take intervals with caution"
