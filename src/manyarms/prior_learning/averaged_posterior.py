"""A posterior averaged over what a learned prior might have been."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.special import gammaincinv, ndtr, ndtri

from manyarms._base.checks import Array, as_scalar
from manyarms.core.estimate import Estimate
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.policy import FeatureMass, Policy
from manyarms.engines import Engine
from manyarms.errors import ManyarmsError
from manyarms.model_file.save import SavedModel
from manyarms.posterior import RewardPosterior
from manyarms.posterior.policy_profile import ALONE, PAIR, profiles
from manyarms.prior_learning.evidence import Evidence
from manyarms.prior_learning.hyperparameters import Hyperparameters


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
        from scipy.optimize import brentq  # noqa: PLC0415  slow to import

        def excess(x: float) -> float:
            return self.below(x) - probability

        return cast(float, brentq(excess, low, high, xtol=1e-12 * (high - low)))

    @property
    def probability_positive(self) -> float:
        """How sure it is that the quantity is above zero."""
        return 1.0 - self.below(0.0)


class Draws:
    """Posteriors under several priors, kept, or made again one after the other."""

    def __init__(self, items: Sequence[Any], make: Callable[[Any], HierarchicalGaussian] | None = None):
        self._items, self._make = items, make

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[HierarchicalGaussian]:
        return iter(self._items) if self._make is None else map(self._make, self._items)


@dataclass(frozen=True, eq=False, repr=False)
class AveragedPosterior(SavedModel):
    """Posteriors under several priors, each with a share: what `LearnedPrior.averaged` returns.

    `value` and `difference` are mixtures of the exact posteriors under each: `posterior_std` has the uncertainty of the
    prior in it. Policies are made from `posterior`, the one under the best prior.

    Attributes:
        posterior: Under the prior that was found.
        draws: Weights under each prior drawn; solved for anew whenever they are walked through, where to keep them all
            would take more than a gigabyte.
        shares: How much each counts.
        warnings: What is wrong with the average, in plain words.
    """

    not_saved = "Save its .posterior, under the best prior; the average is made anew by learn_prior(...).averaged()."
    posterior: RewardPosterior
    draws: Draws
    shares: Float[Array, " k"]
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"AveragedPosterior({len(self.draws)} priors drawn, worth {self.effective_draws:.3g}; {self.posterior!r})"
        )

    @property
    def effective_draws(self) -> float:
        """How many equally weighted draws these are worth."""
        return float(1.0 / np.sum(self.shares**2))

    def value(
        self,
        policy: Policy,
        contexts: Any,
        *,
        eligible: Any = None,
        weights: Any = None,
        groups: Any = None,
        engine: Engine | str | None = None,
    ) -> Estimate:
        """The posterior of V(π), as `RewardPosterior.value`, averaged over priors."""
        one = {"policy": policy}
        found = profiles(self.posterior, one, ALONE, contexts, eligible, weights, groups, engine)
        return self._mixed(self.posterior.judged(found), found.masses_of((1.0,))[0])

    def difference(
        self,
        policy: Policy,
        baseline: Policy,
        contexts: Any,
        *,
        eligible: Any = None,
        weights: Any = None,
        groups: Any = None,
        engine: Engine | str | None = None,
    ) -> Estimate:
        """The posterior of V(policy) - V(baseline), as `RewardPosterior.difference`, averaged over priors."""
        both = {"policy": policy, "baseline": baseline}
        found = profiles(self.posterior, both, PAIR, contexts, eligible, weights, groups, engine)
        return self._mixed(self.posterior.judged(found), found.masses_of((1.0, 0.0))[0])

    def lift(
        self,
        policy: Policy,
        baseline: Policy,
        contexts: Any,
        *,
        eligible: Any = None,
        weights: Any = None,
        groups: Any = None,
        engine: Engine | str | None = None,
    ) -> Estimate:
        """(V(policy) - V(baseline)) / |V(baseline)|, as `RewardPosterior.lift`, averaged over priors."""
        both = {"policy": policy, "baseline": baseline}
        found = profiles(self.posterior, both, PAIR, contexts, eligible, weights, groups, engine)
        # The ratio is linear around the plug-in means; priors move it along that tangent.
        plain, tangent = self.posterior.lifted(found)
        return self._mixed(plain, found.masses_of(tangent)[0])

    def _mixed(self, plain: Estimate, mass: FeatureMass) -> Estimate:
        means, variances = np.empty(len(self.draws)), np.empty(len(self.draws))
        # A value that is not linear in the weights moves with them along its derivative, which the mass is.
        here = float(np.sum(mass.vectors * self.posterior.weights.action_mean(mass.actions)))
        shift = plain.value - here
        for i, weights in enumerate(self.draws):
            means[i] = shift + float(np.sum(mass.vectors * weights.action_mean(mass.actions)))
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
    aged: Evidence | None = None,
) -> AveragedPosterior:
    """Draw η ~ t(best, B Bᵀ), condition under each, and weigh each by evidence over the density drawn from."""

    def solve(x: Float[Array, " s"]) -> tuple[float, HierarchicalGaussian]:
        value, weights = evidence.posterior(hyper, x, avoid_boundary=avoid_boundary)
        # The logs at full weight say how likely a prior is; the posterior under it is of the rounds as they count.
        return value, weights if aged is None else aged.posterior(hyper, x, avoid_boundary=avoid_boundary)[1]

    kept, log_weights, weights = list[Array](), list[float](), list[HierarchicalGaussian]()
    few = n_draws * _size(posterior.weights) <= MAX_KEPT
    for row in _spread_out(len(eta), n_draws, rng):
        try:
            value, found = solve(eta + root @ row)
        except ManyarmsError:
            # So far out that the arithmetic fails; its weight would be nil.
            continue
        kept.append(eta + root @ row)
        log_weights.append(value + 0.5 * (TAILS + len(row)) * float(np.log1p(row @ row / TAILS)))
        if few:
            weights.append(found)
    if not kept:
        return AveragedPosterior(posterior, Draws([posterior.weights]), np.ones(1), (_UNSTABLE,))
    draws = Draws(weights) if few else Draws(kept, lambda x: solve(x)[1])
    out = AveragedPosterior(posterior, draws, _capped_shares(np.array(log_weights)))
    return out if out.effective_draws > 0.2 * n_draws else replace(out, warnings=(_UNSTABLE,))


def _size(weights: HierarchicalGaussian) -> int:
    """How many numbers a posterior holds of its own."""
    return 3 * sum(group.root.size for group in weights.observed.groups) + weights.latent_dim * weights.dim


def _capped_shares(log_weights: Float[Array, " k"]) -> Float[Array, " k"]:
    """Importance weights, the largest of them cut at √k times their mean so that none decides alone (Ionides, 2008)."""
    weights = np.exp(log_weights - log_weights.max())
    weights = np.minimum(weights, np.sqrt(len(weights)) * weights.mean())
    return weights / weights.sum()


def _spread_out(size: int, n_draws: int, rng: np.random.Generator) -> Float[Array, "k s"]:
    """Draws from a t-distribution that fill the space evenly: fewer are needed than of independent ones.

    Its tails are heavier than a normal's, as those of a standard deviation that few effects determine are.
    """
    if size == 0:
        return np.zeros((n_draws, 0))
    from scipy.stats import qmc  # noqa: PLC0415

    # Sobol's points, all shifted by one random vector; the first would lie in a corner.
    points = qmc.Sobol(size + 1, scramble=False).random_base2((n_draws - 1).bit_length())[:n_draws]
    points = np.clip((points + rng.random(size + 1)) % 1.0, 1e-9, 1 - 1e-9)
    chi_square = 2 * gammaincinv(TAILS / 2, points[:, 0])
    return ndtri(points[:, 1:]) * np.sqrt(TAILS / chi_square)[:, None]


TAILS = 5.0
"""Degrees of freedom of the t-distribution that hyper-parameters are drawn from."""
_TINY = np.finfo(float).tiny
_UNSTABLE = "the uncertainty of the learned prior is far from normal: few draws decide; take intervals with caution"
MAX_KEPT = 1 << 27
"""How many numbers the posteriors of all draws may take to be kept (a gigabyte)."""
