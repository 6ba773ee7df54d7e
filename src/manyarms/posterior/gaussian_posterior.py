"""Values under Gaussian weights: one formula, given how a value moves with the weights."""

# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, check_overflow
from manyarms.core import Estimate, FeatureMass, HierarchicalGaussian, Method, Policy
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import chunks
from manyarms.linalg.quadratic_forms import row_norms
from manyarms.posterior.action_scores import ActionWeights, LinearScores, Predictor, Scores
from manyarms.posterior.policy_profile import Masses, PolicyProfile, PolicyProfiles
from manyarms.posterior.posterior import ONE_CONTEXT, Posterior
from manyarms.posterior.reward_draws import FactorDraws, GaussianFactorDraws


class RewardFactor(NamedTuple):
    """One factor of a Gaussian posterior: its weights, what was believed of them before, and its link to the reward."""

    weights: HierarchicalGaussian
    prior: HierarchicalGaussian
    likelihood: Likelihood


class GaussianPosterior(Posterior):
    """A posterior with Gaussian weights: values follow in closed form, or by the delta method."""

    method: Method
    log_evidence: float
    n_rounds: int

    @abstractmethod
    def factors_for(self, actions: Int[Array, " m"]) -> tuple[RewardFactor, ...]:
        """The factors of the reward, independent of one another, with the weights of at least these actions."""

    def draw_factors(self, n_draws: int, rngs: Sequence[np.random.Generator]) -> tuple[FactorDraws, ...]:
        return tuple(GaussianFactorDraws.draw(self, number, n_draws, rng) for number, rng in enumerate(rngs))

    def combine(
        self, profiles: PolicyProfiles, combination: tuple[float, ...], centre: float | None = None
    ) -> Estimate:
        with np.errstate(over="ignore", invalid="ignore"):
            masses, which = profiles.masses_of(combination), np.array(combination)
            factors = self.factors_for(masses[0].actions)
            posterior = _variance([factor.weights for factor in factors], masses)
            before = _variance([factor.prior for factor in factors], masses)
            value, context = float(which @ profiles.rows.mean), profiles.rows.mean_variance(which)
        check_overflow("the value and its variance", np.array([value, posterior, context or 0.0]))
        return Estimate(
            value=value if centre is None else centre,
            std=float(np.sqrt(posterior + (context or 0.0))),
            posterior_std=float(np.sqrt(posterior)),
            context_std=None if context is None else float(np.sqrt(context)),
            warnings=(*self.warnings, *(ONE_CONTEXT if context is None else ())),
            kind="posterior",
            method=self.method if centre is None else "delta",
            diagnostics={
                "n_contexts": profiles.rows.weight,
                "n_actions_chosen": float(len(masses[0].actions)),
                "prior_share": min(1.0, posterior / before) if before > 0 else 1.0,
            },
        )


class SingleFactorPosterior(GaussianPosterior):
    """A Gaussian posterior with one set of weights: r(x, a) = g(φ(x)ᵀ θ_a), with g(η) = η for linear rewards."""

    likelihood: Likelihood
    predictor_weights: ActionWeights

    @property
    def method(self) -> Method:
        return "exact" if self.likelihood.is_linear and self.likelihood.treatment == "exact" else "delta"

    @cached_property
    def predictor(self) -> Predictor:
        """Expected rewards and their slopes, where rewards are not linear in the weights."""
        return Predictor(self.predictor_weights, self.likelihood)

    @property
    def expected_rewards(self) -> Scores:
        if self.likelihood.is_linear:
            return LinearScores(self.predictor_weights)
        return self.predictor

    def pair_std(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        std = check_overflow("reward_std", row_norms(contexts, actions, self.predictor_weights.action_cov))
        if self.likelihood.is_linear:
            return std
        mean = np.einsum("nd,nd->n", contexts, self.predictor_weights.action_mean()[actions])
        return std * self.likelihood.mean_slope(mean, std**2)

    def collect(self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any) -> PolicyProfile:
        if not self.likelihood.is_linear:
            return PolicyProfile(*self.predictor.profile(policy, contexts, eligible, weights))
        means = self.predictor_weights.action_mean()
        mass, rows = policy.profile(contexts, means, eligible=eligible, weights=weights)
        return PolicyProfile((mass,), rows)


def _variance(weights: list[HierarchicalGaussian], masses: Masses) -> float:
    """The variance of Σ_a m_aᵀ θ_a over independent factors, and of Σ_a θ_aᵀ M_a θ'_a for a mass of products."""
    total = sum(own.variance_of(mass.vectors, mass.actions) for own, mass in zip(weights, masses, strict=False))
    return total + (_product_variance(weights[0], weights[1], masses[-1]) if len(masses) > len(weights) else 0.0)


def _product_variance(first: HierarchicalGaussian, second: HierarchicalGaussian, mass: FeatureMass) -> float:
    """Σ_ab tr(M_aᵀ Cov(θ_a, θ_b) M_b Cov(θ'_b, θ'_a)): over all pairs of the actions that matter most, a = b of others.

    With more than MAX_PAIRED actions, the covariances of the lesser ones with others are left out.
    """
    order = np.argsort(-np.linalg.norm(mass.vectors, axis=1), kind="stable")
    most, rest = order[:MAX_PAIRED], order[MAX_PAIRED:]
    left, right = np.concatenate([np.repeat(most, len(most)), rest]), np.concatenate([np.tile(most, len(most)), rest])
    total = 0.0
    for part in chunks(len(left), max(1, _NUMBERS // first.dim**2)):
        a, b = left[part], right[part]
        covs = [own.cross_cov(mass.actions[a], mass.actions[b]) for own in (first, second)]
        M, N = (mass.vectors[rows].reshape(-1, first.dim, first.dim) for rows in (a, b))
        total += float(np.sum((M.swapaxes(1, 2) @ covs[0] @ N) * covs[1]))
    return total


MAX_PAIRED = 128
"""How many actions are paired with one another for the variance of a product."""
_NUMBERS = 1 << 20
