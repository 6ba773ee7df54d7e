"""The posterior interface: expected rewards, and the values of policies, for every kind of posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_instance, check_overflow
from manyarms._base.files import PathLike
from manyarms._base.rng import as_generator, split
from manyarms.core import (
    Catalog,
    Estimate,
    FeatureMap,
    FeatureMass,
    Fingerprint,
    Policy,
    as_contexts,
    with_own_features,
)
from manyarms.core.estimate import EmpiricalShape
from manyarms.engines import Engine
from manyarms.errors import InputError, ShapeError, UndefinedLiftError
from manyarms.model_file.load import load
from manyarms.model_file.save import SavedModel
from manyarms.posterior.action_scores import ActionWeights, Scores
from manyarms.posterior.item_vectors import ItemVectors, make_item_vectors
from manyarms.posterior.policy_profile import (
    POLICY_ALONE,
    POLICY_AND_BASELINE,
    PolicyProfile,
    PolicyProfiles,
    collect_profiles,
)
from manyarms.posterior.reward_draws import FactorDraws, draw_values


def same_as(path: str) -> Any:
    """A property that a `Posterior` of any kind has from one of its parts, as in `same_as("occurs.n_actions")`."""
    return property(attrgetter(path))


class Posterior(SavedModel, ABC):
    """The posterior of the reward function r(x, a), of any kind: `fit` and its siblings return one.

    Every policy can be made from it, every function that takes a posterior takes any kind, and the values of policies
    under it are written here once. A kind of posterior says what the expected rewards are, and how a linear combination
    of values is distributed.

    Attributes:
        n_actions: K.
        dim: d.
        features: The map from context columns to φ(x), if the logs came with one: then contexts may be tables.
        catalog: The ids of the actions, if the logs came with a catalog.
        learned_from: The fingerprints of the rounds it has seen; see `core.fingerprint`.
        warnings: Everything that is wrong with the posterior, in plain words.
        expected_rewards: E r(x, a) as a function of context and action.
        predictor_weights: The Gaussian weights behind rewards that increase with φ(x)ᵀ θ_a; None where there is not
            one such set of weights.
        seen_actions: The actions that were logged, ascending, for each factor of the reward.
        n_factors: How many rewards, each with its own weights, multiply to the reward.
    """

    n_actions: int
    dim: int
    features: FeatureMap | None
    catalog: Catalog | None
    learned_from: tuple[Fingerprint, ...]
    warnings: tuple[str, ...]
    expected_rewards: Scores
    predictor_weights: ActionWeights | None = None
    seen_actions: tuple[Int[Array, " m"], ...]
    n_factors: ClassVar[int] = 1

    def __getstate__(self) -> dict[str, Any]:
        # Cached results are computed again where they are needed: they may be larger than the rest.
        names = [field.name for field in fields(self)] if is_dataclass(self) else list(self.__dict__)
        return {name: getattr(self, name) for name in names}

    @abstractmethod
    def pair_std(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """`reward_std` of arguments that have been checked."""

    @abstractmethod
    def collect(self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any) -> PolicyProfile:
        """`profile` of arguments that have been checked."""

    @abstractmethod
    def combine(
        self, profiles: PolicyProfiles, combination: tuple[float, ...], centre: float | None = None
    ) -> Estimate:
        """The distribution of a linear combination of the forms of some profiles, moved to a mean `centre`."""

    @abstractmethod
    def draw_factors(self, n_draws: int, rngs: Sequence[np.random.Generator]) -> tuple[FactorDraws, ...]:
        """Draws of all weights, one generator per factor of the reward."""

    def expected_reward(self, contexts: Any, actions: Any = None) -> Float[Array, "n K"] | Float[Array, " n"]:
        """r̂(x, a) = E r(x, a), the posterior mean.

        Args:
            contexts: (n, d), or a table.
            actions: (n,) one action per row; None for all actions, as an n x K array.
        """
        x = as_contexts(contexts, self.features, columns=self.dim)
        if actions is not None:
            actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(x))
        scores = self.expected_rewards
        with np.errstate(over="ignore", invalid="ignore"):
            rewards = scores.score_all(x) if actions is None else scores.score_pairs(x, actions)
        return check_overflow("expected rewards", rewards)

    def reward_std(self, contexts: Any, actions: Any) -> Float[Array, " n"]:
        """Posterior standard deviation of r(x_i, a_i), one action per row, without the noise of a single reward.

        By the delta method where rewards are not linear in Gaussian weights.

        Args:
            contexts: (n, d), or a table.
            actions: (n,) one action per row.
        """
        x = as_contexts(contexts, self.features, columns=self.dim)
        actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(x))
        with np.errstate(over="ignore", invalid="ignore"):
            return check_overflow("reward_std", self.pair_std(x, actions))

    def item_vectors(self) -> ItemVectors:
        """Every action as a vector, for an index that searches for the largest inner product, such as FAISS.

        `Greedy` then is such a search, exactly where rewards are linear; see `ItemVectors` and docs/how-to/serving.md.

        Raises:
            InputError: If no inner product ranks the actions, as with a hurdle.
        """
        return make_item_vectors(self)

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

        With Gaussian weights V(π) | data ~ N(Σ_a m_aᵀ θ̂_a, Σ_a m_aᵀ S_a m_a + ‖Fᵀ Σ_a (T_a W_a)ᵀ m_a‖²), where m_a is
        the policy's feature mass. It costs the actions that the policy can choose, and no K x K matrix. Where rewards
        are not linear the mean is still that of V(π), and the variance is the delta method's: the same formula with the
        derivative of V(π) by every θ_a in the place of m_a (`method="delta"`). `value_draws` has the whole
        distribution. Where two rewards multiply, as in a hurdle, the variance of the product of their errors is counted
        too. An averaged posterior mixes these distributions over its priors; a sampled one has draws
        (`method="draws"`).

        The diagnostics include `unsupported_mass`, the share of choices on actions never logged, and, with Gaussian
        weights, `prior_share`, the share of the prior's variance that the data left (1: the prior decides, 0: the data
        decide).

        Args:
            policy: Any policy on the same actions.
            contexts: (n, d), or a table: a sample of the contexts that the policy will meet. Or a `LogStream`, read
                once: its contexts, with its weights and groups if it has any.
            eligible: The actions that may be chosen in each row; None for all. See `core.eligibility`.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters; `context_std` is then that of the groups.
            engine: The engine that reads a stream, as in `fit`.

        Returns:
            An `Estimate`: `posterior_std` for these contexts, `std` for the population they were drawn from.
        """
        columns = contexts, eligible, weights, groups, engine
        return self.estimate(collect_profiles(self, {"policy": policy}, POLICY_ALONE, *columns))

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
        """The posterior of V(policy) - V(baseline), paired on the contexts and on the weights.

        `probability_positive` of the result is the probability that the policy beats the baseline, for example
        `Logged(logs)`. The other arguments are those of `value`, for both policies.
        """
        both, columns = {"policy": policy, "baseline": baseline}, (contexts, eligible, weights, groups, engine)
        return self.estimate(collect_profiles(self, both, POLICY_AND_BASELINE, *columns))

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

        Its arguments are those of `difference`.

        Raises:
            UndefinedLiftError: When the baseline's 95 % interval contains zero: a ratio to it then means nothing.
        """
        both, columns = {"policy": policy, "baseline": baseline}, (contexts, eligible, weights, groups, engine)
        return self.estimate_lift(collect_profiles(self, both, POLICY_AND_BASELINE, *columns))

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
        there is a formula for it. `monte_carlo_std` among the diagnostics is the error of the mean of the draws, and a
        warning says when a single draw dominates it.

        Args:
            policy: Any policy on the same actions.
            contexts: (n, d), or a table.
            n_draws: How many draws; a sampled posterior has no more than it was made with.
            rng: A NumPy generator.
            baseline: The policy whose value is subtracted; None for none.
            eligible: As in `value`, like the rest.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters.
        """
        x = as_contexts(contexts, self.features)
        plain = (
            self.value(policy, contexts, eligible=eligible, weights=weights, groups=groups)
            if baseline is None
            else self.difference(policy, baseline, contexts, eligible=eligible, weights=weights, groups=groups)
        )
        signed = [(policy, 1.0, "policy"), *([] if baseline is None else [(baseline, -1.0, "baseline")])]
        terms = [(with_own_features(item, contexts, self.features, name), sign) for item, sign, name in signed]
        n_draws = as_count("n_draws", n_draws, minimum=2)
        context_rng, *rngs = split(as_generator(rng), "contexts", *(str(i) for i in range(self.n_factors)))
        factors = self.draw_factors(n_draws, rngs)
        with np.errstate(over="ignore", invalid="ignore"):
            draws = check_overflow("values under single draws", draw_values(factors, terms, x, eligible, weights))
            spread = float(draws.std(ddof=1))
        check_overflow("the spread of the draws", np.array([spread]))
        exact = all(factor.likelihood.mean_is_exact for factor in factors)
        # What other contexts would have given: independent of the weights, and near enough normal.
        around = draws + (plain.context_std or 0.0) * context_rng.standard_normal(len(draws))
        return replace(
            plain,
            value=plain.value if exact else float(draws.mean()),
            std=float(np.hypot(spread, plain.context_std or 0.0)),
            posterior_std=spread,
            method="draws",
            diagnostics={**plain.diagnostics, "monte_carlo_std": spread / np.sqrt(len(draws))},
            warnings=(*plain.warnings, *_dominated(draws)),
            shape=EmpiricalShape(around),
            posterior_shape=EmpiricalShape(draws),
        )

    def profile(
        self, policy: Policy, contexts: Any, eligible: Any, weights: Any, name: str = "policy"
    ) -> PolicyProfile:
        """Everything that values need to know of a policy on these contexts; `name` is its name in messages."""
        policy = with_own_features(as_instance(name, policy, Policy, "a policy"), contexts, self.features, name)
        if policy.n_actions != self.n_actions:
            raise ShapeError(
                f"has {policy.n_actions} actions; the posterior has {self.n_actions}.",
                "Build both on the same catalog (pass n_actions=).",
                argument=name,
                flag_remedy="Build both on the same catalog.",
            )
        x = as_contexts(contexts, self.features, columns=self.dim)
        # An overflow is reported when the sums are used.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.collect(policy, x, eligible, weights)

    def estimate(self, profiles: PolicyProfiles, combination: tuple[float, ...] | None = None) -> Estimate:
        """The distribution of a combination of the forms of some profiles, by default of the first form.

        Its diagnostics describe the choices of the first policy.
        """
        first = (1.0, *(0.0 for _ in profiles.forms[1:]))
        return self._with_support(self.combine(profiles, combination or first), profiles.masses[0][0])

    def estimate_lift(self, profiles: PolicyProfiles) -> Estimate:
        """The relative change from baseline to policy, from the profiles of `POLICY_AND_BASELINE`."""
        base = self.combine(profiles, (0.0, 1.0))
        low, high = base.interval()
        if low <= 0.0 <= high:
            raise UndefinedLiftError(
                f"the baseline's value {base} may be zero, so a relative change means nothing.", "Use difference()."
            )
        scale = abs(base.value)
        lift = self.combine(profiles, (1.0, 0.0)).value / scale
        # d lift = (d (V - V0) - lift sign dV0) / |V0|: the same linear form for the posterior and for the contexts.
        tangent = (1.0 / scale, -lift * float(np.sign(base.value)) / scale)
        return self._with_support(self.combine(profiles, tangent, lift), profiles.masses[0][0])

    def _with_support(self, estimate: Estimate, mass: FeatureMass) -> Estimate:
        """The estimate with the share of the policy's choices that fall on actions never logged."""
        unseen = np.zeros(len(mass.actions), dtype=bool)
        for seen in self.seen_actions:
            unseen |= ~np.isin(mass.actions, seen)
        size = np.abs(mass.probability)
        share = float(size[unseen].sum() / max(size.sum(), np.finfo(float).tiny))
        warnings = estimate.warnings
        if share > MUCH_UNSUPPORTED:
            kind = "never logged" if self.n_factors == 1 else "never logged, or never with a reward"
            warnings += (
                f"{100 * share:.0f} % of the policy's choices fall on actions {kind}: their rewards are estimated "
                "only from what these actions share with logged ones, such as their category",
            )
        return replace(estimate, warnings=warnings, diagnostics={**estimate.diagnostics, "unsupported_mass": share})


def _dominated(draws: Float[Array, " s"]) -> tuple[str, ...]:
    squares = (draws - draws.mean()) ** 2
    if not squares.max() > max(DOMINATES, 12.0 / len(draws)) * squares.sum():
        return ()
    return (
        f"one of {len(draws)} draws makes {100 * squares.max() / squares.sum():.0f} % of their variance: the tail is "
        "too heavy for so few, and std and the upper end of intervals may be far off. Narrow the prior, or draw more",
    )


ONE_CONTEXT = ("one context or group says nothing of how they vary: std is for these contexts alone",)
"""The warning on an estimate from a single context or group."""
DOMINATES = 0.2
"""A draw with a larger share of the variance of all is warned about; a normal sample of 200 has about a twentieth."""
MUCH_UNSUPPORTED = 0.25
"""A policy with a larger share of its choices on actions never logged is warned about."""


def as_posterior(model: PathLike | Posterior) -> Posterior:
    """The posterior that a user passed as `model`, or whose file they named, which is then loaded."""
    if isinstance(model, Posterior):
        return model
    posterior = load(model)
    if isinstance(posterior, Policy):
        raise InputError(
            f"{model} holds a policy, and a model is needed.",
            "Pass a file that a posterior was saved to.",
            flag_remedy="Pass a file that `manyarms fit` wrote.",
        )
    return posterior
