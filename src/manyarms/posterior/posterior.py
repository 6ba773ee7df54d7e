"""Values of policies from a posterior: one formula, given how a value moves with the weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, check_overflow
from manyarms._base.rng import as_generator, split
from manyarms.core.catalog import Catalog
from manyarms.core.estimate import Estimate, Method
from manyarms.core.feature_map import FeatureMap, as_contexts
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.policy import FeatureMass, Policy, with_own_features
from manyarms.engines import Engine
from manyarms.errors import UndefinedLiftError
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import chunks
from manyarms.model_file.save import SavedModel
from manyarms.posterior.policy_profile import ALONE, PAIR, Masses, Profiles, profiles
from manyarms.posterior.value_draws import Empirical, Factor, draw_values


class Part(NamedTuple):
    """Weights, and what was believed of them before; the parts of a posterior are independent of one another."""

    weights: HierarchicalGaussian
    prior: HierarchicalGaussian


class Posterior(SavedModel, ABC):
    """What a posterior of rewards says of policies.

    Attributes:
        parts: Of one set of weights, or of several.
        factors: Weights and likelihoods whose rewards multiply to the reward.
        method: How the distribution of a value is found.
        all_warnings: What every estimate must carry.
        features: From context columns to φ(x), where there is a map: then contexts may be tables.
        catalog: What actions are called, where that is known.
    """

    def __getstate__(self) -> dict[str, Any]:
        # What was computed on the way is made again where it is needed: it may be larger than the rest.
        names = [field.name for field in fields(self)] if is_dataclass(self) else list(self.__dict__)
        return {name: getattr(self, name) for name in names}

    @property
    @abstractmethod
    def n_actions(self) -> int: ...

    @property
    @abstractmethod
    def dim(self) -> int: ...

    @property
    @abstractmethod
    def features(self) -> FeatureMap | None: ...

    @property
    @abstractmethod
    def catalog(self) -> Catalog | None: ...

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]: ...

    @property
    @abstractmethod
    def factors(self) -> tuple[tuple[HierarchicalGaussian, Likelihood], ...]: ...

    @property
    @abstractmethod
    def method(self) -> Method: ...

    @property
    @abstractmethod
    def all_warnings(self) -> tuple[str, ...]: ...

    @abstractmethod
    def expected_reward(self, contexts: Any, actions: Any = None) -> Float[Array, "n K"] | Float[Array, " n"]: ...

    @abstractmethod
    def reward_std(self, contexts: Any, actions: Any) -> Float[Array, " n"]: ...

    @abstractmethod
    def profile_parts(
        self, policy: Policy, contexts: Any, eligible: Any, weights: Any, name: str = "policy"
    ) -> tuple[Masses, Float[Array, " n"]]:
        """The derivative of the policy's value by every weight, and its expected reward row by row."""

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
        """The posterior of V(π) = mean over contexts of Σ_a π(a | x) r(x, a); exact where rewards are linear.

        V(π) | data ~ N(Σ_a m_aᵀ θ̂_a, Σ_a m_aᵀ S_a m_a + ‖Fᵀ Σ_a (T_a W_a)ᵀ m_a‖²) with m_a the policy's feature
        mass: it costs the actions that the policy can choose, and no K x K matrix. Where rewards are not linear the
        mean is still that of V(π), and its variance the delta method's: the same formula with the derivative of V(π) by
        every θ_a in the place of m_a (`method="delta"`); `value_draws` has the whole distribution. Where two rewards
        multiply, as in a hurdle, the variance of the product of their errors is counted too.

        Among its diagnostics: `unsupported_mass`, the share of choices on actions never logged; `prior_share`, the
        share of the prior's variance that the data left (1: the answer is the prior's, 0: it is the data's).

        Args:
            policy: Any policy on the same actions.
            contexts: (n, d), or a table: a sample of those the policy will meet. Or a `LogStream`, gone through once:
                its contexts, with its weights and groups where it has any.
            eligible: Which actions may be chosen where; None for all. See `core.eligibility`.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters; `context_std` is then that of the groups.
            engine: Where a stream is gone through, as in `fit`.

        Returns:
            An `Estimate`: `posterior_std` for these contexts, `std` for the population they were drawn from.
        """
        return self.judged(profiles(self, {"policy": policy}, ALONE, contexts, eligible, weights, groups, engine))

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
        """The exact posterior of V(policy) - V(baseline), paired on the contexts.

        `probability_positive` of the result is the probability that the policy beats the baseline.

        Args:
            policy: The candidate.
            baseline: What it must beat, for example `Logged(logs)`.
            contexts: (n, d), a table, or a `LogStream`.
            eligible: Which actions may be chosen where, for both.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters; `context_std` is then that of the groups.
            engine: Where a stream is gone through, as in `fit`.
        """
        both = {"policy": policy, "baseline": baseline}
        return self.judged(profiles(self, both, PAIR, contexts, eligible, weights, groups, engine))

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
        """(V(policy) - V(baseline)) / |V(baseline)|, by the delta method around the posterior means.

        Raises:
            UndefinedLiftError: When the baseline's 95 % interval contains zero: a ratio to it then means nothing.
        """
        both = {"policy": policy, "baseline": baseline}
        return self.lifted(profiles(self, both, PAIR, contexts, eligible, weights, groups, engine))[0]

    def value_draws(
        self,
        policy: Policy,
        contexts: Any,
        *,
        n_draws: int = 1000,
        rng: np.random.Generator,
        baseline: Policy | None = None,
        eligible: Any = None,
        weights: Any = None,
        groups: Any = None,
    ) -> Estimate:
        """The posterior of V(π), or of V(policy) - V(baseline), by draws of all weights: its shape, not only moments.

        Worth its cost (each draw looks at every pair that may be chosen) where rewards are not linear and the posterior
        is wide: intervals are then skewed, as for a rare click. `value` stays the exact mean, that of `value()`, where
        there is a formula for it; `monte_carlo_std` among the diagnostics is the error of the mean of the draws, and a
        warning tells when it hangs on a single one.

        Args:
            policy: Any policy on the same actions.
            contexts: (n, d), or a table.
            n_draws: How many draws.
            rng: A NumPy generator.
            baseline: What to subtract; None for nothing.
            eligible: Which actions may be chosen where; None for all.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters.
        """
        x = as_contexts(contexts, self.features)
        plain = (
            self.value(policy, contexts, eligible=eligible, weights=weights, groups=groups)
            if baseline is None
            else self.difference(policy, baseline, contexts, eligible=eligible, weights=weights, groups=groups)
        )
        pairs = [(policy, 1.0, "policy"), *([] if baseline is None else [(baseline, -1.0, "baseline")])]
        terms = [(with_own_features(one, contexts, self.features, name), sign) for one, sign, name in pairs]
        n_draws = as_count("n_draws", n_draws, minimum=2)
        context_rng, *rngs = split(as_generator(rng), "contexts", *(str(i) for i in range(len(self.factors))))
        factors = [Factor.draw(*one, n_draws, own) for one, own in zip(self.factors, rngs, strict=True)]
        with np.errstate(over="ignore", invalid="ignore"):
            draws = check_overflow("values under single draws", draw_values(factors, terms, x, eligible, weights))
            spread = float(draws.std(ddof=1))
        check_overflow("the spread of the draws", np.array([spread]))
        exact = all(likelihood.mean_is_exact for _, likelihood in self.factors)
        # What other contexts would have given: independent of the weights, and near enough normal.
        around = draws + (plain.context_std or 0.0) * context_rng.standard_normal(len(draws))
        return replace(
            plain,
            value=plain.value if exact else float(draws.mean()),
            std=float(np.hypot(spread, plain.context_std or 0.0)),
            posterior_std=spread,
            method="draws",
            diagnostics={**plain.diagnostics, "monte_carlo_std": spread / np.sqrt(n_draws)},
            warnings=(*plain.warnings, *_dominated(draws)),
            shape=Empirical(around),
            posterior_shape=Empirical(draws),
        )

    def judged(self, found: Profiles, combination: tuple[float, ...] | None = None) -> Estimate:
        """The distribution of the value of a combination of the forms, by default of the first.

        Its diagnostics speak of what the first policy chooses.
        """
        which = (1.0, *(0.0 for _ in found.forms[1:])) if combination is None else combination
        return self._with_support(self._estimate(found, which, self.method), found.masses[0][0])

    def lifted(self, found: Profiles) -> tuple[Estimate, tuple[float, float]]:
        """The relative change of a `PAIR`, and the combination of its forms that it moves with."""
        base = self._estimate(found, (0.0, 1.0), self.method)
        low, high = base.interval()
        if low <= 0.0 <= high:
            raise UndefinedLiftError(
                f"the baseline's value {base} may be zero, so a relative change means nothing. Use difference()."
            )
        scale = abs(base.value)
        lift = float(found.rows.mean[0]) / scale
        # d lift = (d (V - V0) - lift sign dV0) / |V0|: the same linear form for the posterior and for the contexts.
        tangent = (1.0 / scale, -lift * float(np.sign(base.value)) / scale)
        spread = self._estimate(found, tangent, "delta")
        return self._with_support(replace(spread, value=lift), found.masses[0][0]), tangent

    def _with_support(self, estimate: Estimate, mass: FeatureMass) -> Estimate:
        """The estimate with the share of the policy's choices that fall on actions never logged."""
        unseen = np.zeros(len(mass.actions), dtype=bool)
        for part in self.parts:
            unseen |= ~np.isin(mass.actions, part.weights.observed.actions)
        size = np.abs(mass.probability)
        share = float(size[unseen].sum() / max(size.sum(), np.finfo(float).tiny))
        warnings = estimate.warnings
        if share > MUCH_UNSUPPORTED:
            what = "never logged" if len(self.parts) == 1 else "never logged, or never with a reward"
            warnings += (f"{share:.0%} of the policy's choices fall on actions {what}: there the prior decides",)
        return replace(estimate, warnings=warnings, diagnostics={**estimate.diagnostics, "unsupported_mass": share})

    def _prior_share(self, masses: Masses, posterior: float) -> float:
        """The share of the prior's variance that the data left: 1 when the answer is the prior's, 0 when the data's."""
        with np.errstate(over="ignore", invalid="ignore"):
            before = _variance([part.prior for part in self.parts], masses)
        return min(1.0, posterior / before) if before > 0 else 1.0

    def _estimate(self, found: Profiles, combination: tuple[float, ...], method: Method) -> Estimate:
        with np.errstate(over="ignore", invalid="ignore"):
            masses, which = found.masses_of(combination), np.array(combination)
            posterior = _variance([part.weights for part in self.parts], masses)
            value, context = float(which @ found.rows.mean), found.rows.mean_variance(which)
        check_overflow("the value and its variance", np.array([value, posterior, context or 0.0]))
        alone = ("one context or group says nothing of how they vary: std is for these contexts alone",)
        return Estimate(
            value=value,
            std=float(np.sqrt(posterior + (context or 0.0))),
            posterior_std=float(np.sqrt(posterior)),
            context_std=None if context is None else float(np.sqrt(context)),
            warnings=(*self.all_warnings, *(alone if context is None else ())),
            kind="posterior",
            method=method,
            diagnostics={
                "n_contexts": found.rows.weight,
                "n_actions_chosen": float(len(masses[0].actions)),
                "prior_share": self._prior_share(masses, posterior),
            },
        )


def _variance(weights: list[HierarchicalGaussian], masses: Masses) -> float:
    """Of Σ_a m_aᵀ θ_a summed over independent parts, and of Σ_a θ_aᵀ M_a θ'_a where there is a mass of products."""
    total = sum(own.variance_of(mass.vectors, mass.actions) for own, mass in zip(weights, masses, strict=False))
    return total + (_product_variance(weights[0], weights[1], masses[-1]) if len(masses) > len(weights) else 0.0)


def _product_variance(first: HierarchicalGaussian, second: HierarchicalGaussian, mass: FeatureMass) -> float:
    """Σ_ab tr(M_aᵀ Cov(θ_a, θ_b) M_b Cov(θ'_b, θ'_a)): over all pairs of the actions that matter most, a = b of others.

    So of more than MAX_PAIRED actions, what the lesser ones share with others is left out.
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


def _dominated(draws: Float[Array, " s"]) -> tuple[str, ...]:
    squares = (draws - draws.mean()) ** 2
    if not squares.max() > max(DOMINATES, 12.0 / len(draws)) * squares.sum():
        return ()
    return (
        f"one of {len(draws)} draws makes {squares.max() / squares.sum():.0%} of their variance: the tail is too heavy "
        "for so few, and std and the upper end of intervals may be far off. Narrow the prior, or draw more",
    )


MAX_PAIRED = 128
"""How many actions are paired with one another for the variance of a product."""
_NUMBERS = 1 << 20
DOMINATES = 0.2
"""A draw with a larger share of the variance of all is warned about; a normal sample of 200 has about a twentieth."""
MUCH_UNSUPPORTED = 0.25
"""A policy with a larger share of its choices on actions never logged is warned about."""
