"""The posterior of the reward function: from weights to rewards, values of policies, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array, as_actions, as_instance, as_matrix, check_overflow
from manyarms.core.data import LoggedData
from manyarms.core.estimate import Estimate, Method
from manyarms.core.fingerprint import Fingerprint
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.mass import FeatureMass
from manyarms.core.policy import Policy, row_weights
from manyarms.core.statistics import Statistics
from manyarms.errors import ShapeError, UndefinedLiftError
from manyarms.inference import condition
from manyarms.likelihoods import Gaussian
from manyarms.linalg.quadratic import row_norms
from manyarms.posterior.misfit import PriorCheck, check_misfit


@dataclass(frozen=True, eq=False)
class RewardPosterior:
    """What `fit` returns: the posterior of θ, and r(x, a) = φ(x)ᵀ θ_a with it.

    Attributes:
        weights: Posterior of ψ and θ, a `HierarchicalGaussian`.
        prior: What was believed before.
        statistics: All that the posterior took from the logs.
        likelihood: How rewards arise from weights.
        learned_from: Which rounds it has seen; see `core.fingerprint`.
        warnings: What is wrong with it, in plain words; every estimate made from it carries them, and says so too when
            the rewards contradict the prior.
    """

    weights: HierarchicalGaussian
    prior: HierarchicalGaussian
    statistics: Statistics
    likelihood: Gaussian
    learned_from: tuple[Fingerprint, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"RewardPosterior({self.weights.n_actions:,} actions, {len(self.weights.observed.actions):,} seen, "
            f"{self.statistics.n_rounds:,} rounds, d={self.weights.dim}, log_evidence={self.log_evidence:.6g})"
        )

    @cached_property
    def check(self) -> PriorCheck:
        """Whether the rewards contradict prior or noise; see `check_prior`."""
        # A prior that is a posterior itself does not say how many rounds are behind it.
        known = not self.prior.observed.groups
        return check_misfit(self.weights, self.likelihood.noise_std, self.statistics.total_weight if known else None)

    @property
    def log_evidence(self) -> float:
        """log p(rewards | contexts, actions) under the prior, all rounds so far.

        Sums keep Σ r², so its error is about 1e-16 Σ r² / σ²: centre rewards that lie far from zero on the scale of σ.
        """
        return self.weights.log_evidence - self.prior.log_evidence

    def expected_reward(self, contexts: Any, actions: Any = None) -> Float[Array, "n K"] | Float[Array, " n"]:
        """r̂(x, a) = φ(x)ᵀ E θ_a: for one action a row, or the n x K array for all when `actions` is None."""
        x = as_matrix("contexts", contexts, columns=self.weights.dim)
        if actions is None:
            return x @ self.weights.action_mean().T
        actions = as_actions("actions", actions, n_actions=self.weights.n_actions, length=len(x))
        return np.einsum("nd,nd->n", x, self.weights.action_mean()[actions])

    def reward_std(self, contexts: Any, actions: Any) -> Float[Array, " n"]:
        """Posterior standard deviation of φ(x_i)ᵀ θ_{a_i}, one action a row, without the noise of a single reward."""
        x = as_matrix("contexts", contexts, columns=self.weights.dim)
        actions = as_actions("actions", actions, n_actions=self.weights.n_actions, length=len(x))
        with np.errstate(over="ignore", invalid="ignore"):
            return check_overflow("reward_std", row_norms(x, actions, self.weights.action_cov))

    def value(
        self, policy: Policy, contexts: Any, *, eligible: Any = None, weights: Any = None, groups: Any = None
    ) -> Estimate:
        """The exact posterior of V(π) = mean over contexts of Σ_a π(a | x) r(x, a).

        V(π) | data ~ N(Σ_a m_aᵀ θ̂_a, Σ_a m_aᵀ S_a m_a + ‖Fᵀ Σ_a (T_a W_a)ᵀ m_a‖²) with m_a the policy's feature
        mass: it costs the actions that the policy can choose, and no K x K matrix.

        Args:
            policy: Any policy on the same actions.
            contexts: (n, d), a sample of those the policy will meet.
            eligible: Which actions may be chosen where; None for all. See `core.eligibility`.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters; `context_std` is then that of the groups.

        Returns:
            An `Estimate`: `posterior_std` for these contexts, `std` for the population they were drawn from.
        """
        mass, rows = self.profile(policy, contexts, eligible, weights)
        return self._estimate(mass, rows, weights, groups, method="exact")

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
        """The exact posterior of V(policy) - V(baseline), paired on the contexts.

        `probability_positive` of the result is the probability that the policy beats the baseline.

        Args:
            policy: The candidate.
            baseline: What it must beat, for example `Logged(logs)`.
            contexts: (n, d).
            eligible: Which actions may be chosen where, for both.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters; `context_std` is then that of the groups.
        """
        mass, rows = self.profile(policy, contexts, eligible, weights)
        base_mass, base_rows = self.profile(baseline, contexts, eligible, weights, "baseline")
        return self._estimate(mass.plus(base_mass, -1.0), rows - base_rows, weights, groups, method="exact")

    def lift(
        self,
        policy: Policy,
        baseline: Policy,
        contexts: Any,
        *,
        eligible: Any = None,
        weights: Any = None,
        groups: Any = None,
    ) -> Estimate:
        """(V(policy) - V(baseline)) / |V(baseline)|, by the delta method around the posterior means.

        Raises:
            UndefinedLiftError: When the baseline's 95 % interval contains zero: a ratio to it then means nothing.
        """
        mass, rows = self.profile(policy, contexts, eligible, weights)
        base_mass, base_rows = self.profile(baseline, contexts, eligible, weights, "baseline")
        base = self._estimate(base_mass, base_rows, weights, groups, method="exact")
        low, high = base.interval()
        if low <= 0.0 <= high:
            raise UndefinedLiftError(
                f"the baseline's value {base} may be zero, so a relative change means nothing. Use difference()."
            )
        scale = abs(base.value)
        value = float(np.average(rows, weights=row_weights(weights, len(rows))))
        lift = (value - base.value) / scale
        # d lift = (dV - (1 + lift sign) dV0) / |V0|: the same linear form for the posterior and for the contexts.
        slope = 1.0 + lift * np.sign(base.value)
        tangent = mass.plus(base_mass, -slope).scaled(1.0 / scale)
        spread = self._estimate(tangent, (rows - slope * base_rows) / scale, weights, groups, method="delta")
        return replace(spread, value=lift)

    def update(self, logs: LoggedData) -> RewardPosterior:
        """The posterior given more logs: the same as a fit on all of them."""
        more = self.likelihood.statistics(check_logs(logs, self.prior), self.prior.n_actions)
        statistics = self.statistics + more
        weights = condition(self.prior, statistics, self.likelihood.noise_std)
        seen = (*self.learned_from, logs.fingerprint)
        return replace(self, weights=weights, statistics=statistics, learned_from=seen)

    def with_actions(self, mixing: Any, action_cov: Any = None, offset: Any = None) -> RewardPosterior:
        """New actions after the existing ones, without a refit: an action never logged changes nothing else.

        Args:
            mixing: W of the new actions: (n_new, d, d'), or `MixedEffects(weights of the new actions, dim)`.
            action_cov: Their Σ_a; by default the one that all actions share.
            offset: Their c_a; by default the one that all actions share.
        """
        weights = self.weights.with_actions(mixing, action_cov, offset)
        prior = self.prior.with_actions(mixing, action_cov, offset)
        return replace(self, weights=weights, prior=prior, statistics=self.statistics.with_actions(prior.n_actions))

    def _unsupported(self, mass: FeatureMass) -> float:
        """The share of choices that fall on actions never logged."""
        unseen = ~np.isin(mass.actions, self.weights.observed.actions)
        size = np.abs(mass.probability)
        return float(size[unseen].sum() / max(size.sum(), np.finfo(float).tiny))

    def _prior_share(self, mass: FeatureMass, posterior: float) -> float:
        """The share of the prior's variance that the data left: 1 when the answer is the prior's, 0 when the data's."""
        before = self.prior.variance_of(mass.vectors, mass.actions)
        return min(1.0, posterior / before) if before > 0 else 1.0

    def profile(
        self, policy: Policy, contexts: Any, eligible: Any, weights: Any, name: str = "policy"
    ) -> tuple[FeatureMass, Float[Array, " n"]]:
        """The policy's feature mass, and its expected reward row by row."""
        policy = as_instance(name, policy, Policy, "a policy")
        if policy.n_actions != self.weights.n_actions:
            raise ShapeError(
                f"{name} has {policy.n_actions} actions; the posterior has {self.weights.n_actions}. "
                "Build both on the same catalog (pass n_actions=)."
            )
        x = as_matrix("contexts", contexts, columns=self.weights.dim)
        return policy.profile(x, self.weights.action_mean(), eligible=eligible, weights=weights)

    def _estimate(
        self, mass: FeatureMass, rows: Float[Array, " n"], weights: Any, groups: Any, method: Method
    ) -> Estimate:
        counts = row_weights(weights, len(rows))
        with np.errstate(over="ignore", invalid="ignore"):
            posterior = self.weights.variance_of(mass.vectors, mass.actions)
            n, value = float(counts.sum()), float(np.average(rows, weights=counts))
            context = mean_variance(rows - value, counts, groups)
        check_overflow("the value and its variance", np.array([value, posterior, context or 0.0]))
        alone = ("one context or group says nothing of how they vary: std is for these contexts alone",)
        return Estimate(
            value=value,
            std=float(np.sqrt(posterior + (context or 0.0))),
            posterior_std=float(np.sqrt(posterior)),
            context_std=None if context is None else float(np.sqrt(context)),
            warnings=(*self.warnings, *self.check.warnings, *(alone if context is None else ())),
            kind="posterior",
            method=method,
            diagnostics={
                "n_contexts": n,
                "n_actions_chosen": float(len(mass.actions)),
                "unsupported_mass": self._unsupported(mass),
                "prior_share": self._prior_share(mass, posterior),
            },
        )


def mean_variance(centred: Float[Array, " n"], counts: Float[Array, " n"], groups: Any) -> float | None:
    """The variance of a mean over independent rows, or over groups of them; None when there is only one."""
    total = float(counts.sum())
    if groups is None:
        return float(counts @ centred**2) / (total - 1) / total if total > 1 else None
    labels = np.unique(as_actions("groups", groups, length=len(centred)), return_inverse=True)[1]
    sums = np.bincount(labels, weights=counts * centred)
    n = len(sums)
    return float(np.sum(sums**2)) / total**2 * n / (n - 1) if n > 1 else None


def check_logs(logs: LoggedData, prior: HierarchicalGaussian) -> LoggedData:
    """Refuse logs that do not fit the prior, before any work is done."""
    logs = as_instance("logs", logs, LoggedData, "a LoggedData")
    if logs.dim != prior.dim:
        raise ShapeError(
            f"contexts of the logs have {logs.dim} columns; the prior's weights have dimension {prior.dim}. "
            "Build the prior with dim equal to the number of context columns."
        )
    if logs.n_actions > prior.n_actions:
        raise ShapeError(
            f"the logs have {logs.n_actions} actions; the prior knows {prior.n_actions}. "
            "Build the prior on the whole catalog, or add the new ones with with_actions()."
        )
    return logs
