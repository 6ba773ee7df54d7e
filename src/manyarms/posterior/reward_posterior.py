"""The posterior of the reward function: from weights to rewards, values of policies, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_actions, as_instance, as_scalar, check_overflow
from manyarms.core.catalog import Catalog
from manyarms.core.estimate import Method
from manyarms.core.feature_map import FeatureMap, as_contexts
from manyarms.core.fingerprint import Fingerprint, any_shared
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData, Logs
from manyarms.core.policy import FeatureMass, Policy, with_own_features
from manyarms.core.result_tables import html_facts
from manyarms.core.statistics import Statistics
from manyarms.engines import Engine, as_engine
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError
from manyarms.inference import condition
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.variational import fit_weights
from manyarms.linalg.top_k import row_norms
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import AgeRule, DroppedRows, seconds_between
from manyarms.posterior.action_summary import ActionSummary, summarise
from manyarms.posterior.policy_profile import Masses, check_maps
from manyarms.posterior.posterior import Part, Posterior
from manyarms.posterior.prior_check import PriorCheck, check_mean, check_misfit
from manyarms.posterior.reward_predictor import Predictor
from manyarms.posterior.seen_files import in_memory_if_small, new_rounds, remember_files


@dataclass(frozen=True, eq=False)
class RewardPosterior(Posterior):
    """What `fit` returns: the posterior of θ, and r(x, a) = g(φ(x)ᵀ θ_a) with it, g(η) = η for linear rewards.

    Attributes:
        weights: Posterior of ψ and θ, a `HierarchicalGaussian`.
        prior: What was believed before.
        statistics: All that the posterior took from the logs.
        likelihood: How rewards arise from weights.
        learned_from: Which rounds it has seen; see `core.fingerprint`.
        warnings: What is wrong with it, in plain words; every estimate made from it carries them, and says so too when
            the rewards contradict the prior.
        evidence_offset: What the log evidence of the likelihood has beyond that of the Gaussian solve.
        trace: The objective after each step, where the likelihood needed several.
        converged: Whether these came to an end.
        features: From context columns to φ(x), when the logs came with one: then contexts may be tables.
        catalog: What actions are called, when the logs came with one.
        as_of: The time, in ISO 8601, that the ages of its rounds were counted from, where they count less with age.
    """

    saved_as = "reward posterior"
    weights: HierarchicalGaussian
    prior: HierarchicalGaussian
    statistics: Statistics
    likelihood: Likelihood
    learned_from: tuple[Fingerprint, ...] = ()
    warnings: tuple[str, ...] = ()
    evidence_offset: float = 0.0
    trace: tuple[float, ...] = ()
    converged: bool = True
    features: FeatureMap | None = None  # pyright: ignore[reportIncompatibleMethodOverride]  frozen, so read-only too
    catalog: Catalog | None = None  # pyright: ignore[reportIncompatibleMethodOverride]  the same
    as_of: str | None = None

    def __repr__(self) -> str:
        return (
            f"RewardPosterior({self.weights.n_actions:,} actions, {len(self.weights.observed.actions):,} seen, "
            f"{self.statistics.n_rounds:,} rounds, d={self.weights.dim}, log_evidence={self.log_evidence:.6g})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "actions": self.n_actions,
            "of them seen": len(self.weights.observed.actions),
            "rounds": self.statistics.n_rounds,
            "features": ", ".join(self.features.names) if self.features is not None else self.dim,
            "rewards": str(self.likelihood),
            "log evidence": self.log_evidence,
        }
        return html_facts("RewardPosterior", facts, self.all_warnings)

    @cached_property
    def check(self) -> PriorCheck:
        """Whether the rewards contradict prior or noise; see `check_prior`."""
        # A prior that is a posterior itself does not say how many rounds are behind it.
        known = not self.prior.observed.groups
        if self.likelihood.treatment != "exact":
            return check_mean(self.weights, self.likelihood)
        if not self.statistics.counted:
            # The misfit is no χ² then.
            return PriorCheck(None, None, unchecked="where weights of rounds are no counts")
        return check_misfit(self.weights, self.likelihood.noise_std, self.statistics.total_weight if known else None)

    @property
    def log_evidence(self) -> float:
        """log p(rewards | contexts, actions) under the prior, all rounds so far.

        Where the posterior is approximate: the evidence lower bound or Laplace's approximation; neither once updated.

        Sums keep Σ r², so its error is about 1e-16 Σ r² / σ²: centre rewards that lie far from zero on the scale of σ.
        """
        return self.weights.log_evidence - self.prior.log_evidence + self.evidence_offset

    @property
    def n_actions(self) -> int:
        """K."""
        return self.weights.n_actions

    @property
    def dim(self) -> int:
        """d."""
        return self.weights.dim

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) what the features are called; numbers where contexts came as arrays."""
        return tuple(str(i) for i in range(self.dim)) if self.features is None else self.features.names

    @property
    def is_linear(self) -> bool:
        """Whether expected rewards are linear in the weights."""
        return self.likelihood.is_linear

    @cached_property
    def predictor(self) -> Predictor:
        """Rewards that are not linear in the weights."""
        return Predictor(self.weights, self.likelihood)

    def expected_reward(self, contexts: Any, actions: Any = None) -> Float[Array, "n K"] | Float[Array, " n"]:
        """r̂(x, a) = E g(φ(x)ᵀ θ_a): for one action a row, or the n x K array for all when `actions` is None."""
        x = as_contexts(contexts, self.features, columns=self.weights.dim)
        if actions is not None:
            actions = as_actions("actions", actions, n_actions=self.weights.n_actions, length=len(x))
        if not self.likelihood.is_linear:
            field = self.predictor
            return (field.of_tile(x, slice(None)) if actions is None else field.of_pairs(x, actions)).expected
        if actions is None:
            return x @ self.weights.action_mean().T
        return np.einsum("nd,nd->n", x, self.weights.action_mean()[actions])

    def reward_std(self, contexts: Any, actions: Any) -> Float[Array, " n"]:
        """Posterior standard deviation of r(x_i, a_i), one action a row, without the noise of a single reward.

        By the delta method where rewards are not linear in the weights.
        """
        x = as_contexts(contexts, self.features, columns=self.weights.dim)
        actions = as_actions("actions", actions, n_actions=self.weights.n_actions, length=len(x))
        with np.errstate(over="ignore", invalid="ignore"):
            std = check_overflow("reward_std", row_norms(x, actions, self.weights.action_cov))
            if self.likelihood.is_linear:
                return std
            mean = np.einsum("nd,nd->n", x, self.weights.action_mean()[actions])
            return check_overflow("reward_std", std * self.likelihood.mean_slope(mean, std**2))

    def summary(self, actions: Any = None) -> ActionSummary:
        """Mean and standard deviation of the weights of actions, as a table.

        Args:
            actions: Action numbers; None for all.
        """
        chosen = None if actions is None else as_actions("actions", actions, n_actions=self.weights.n_actions)
        return summarise(self.weights, chosen, self.feature_names, self.catalog)

    def update(self, logs: Logs, *, allow_repeats: bool = False, engine: Engine | str | None = None) -> RewardPosterior:
        """The posterior given more logs: the same as a fit on all of them where the likelihood is Gaussian.

        Else the earlier rounds keep the Gaussian factors that stand in for them, found without the new rounds. The gap
        to a fit on everything adds up over many small batches, to a posterior standard deviation where rewards are rare
        (docs/likelihoods.md): `refit` on all logs every so often. `log_evidence` is then no bound.

        A file of a stream that was in an earlier fit or update is refused. Where a `maturity` left out the young rounds
        of a file, those rounds are added. Where rounds count less with age, all that the model holds ages too.

        Args:
            logs: New rounds.
            allow_repeats: Count the rounds of files again that the model has seen already.
            engine: Where a `LogStream` is read, as in `fit`.

        Raises:
            InputError: Naming a file that the model has seen already.
        """
        check_maps(self.features, self.catalog, as_logs(logs, self.prior))
        if not isinstance(logs, LogStream):
            return self._with_rounds(logs, engine)
        posterior, dropped = self, DroppedRows()
        for part in [logs] if allow_repeats else list(new_rounds(logs, self.learned_from)):
            rounds = in_memory_if_small(part, self.likelihood, engine)
            posterior = remember_files(posterior._aged(part.reader.age)._with_rounds(rounds, engine), part)
            dropped += part.dropped
        logs.note_dropped(dropped)
        return posterior

    def _with_rounds(self, logs: Logs, engine: Engine | str | None) -> RewardPosterior:
        added = fit_weights(self.weights, logs, self.likelihood, engine=as_engine(engine))
        statistics = self.statistics + added.statistics
        weights = added.weights
        twice = (_TWICE,) if any_shared(self.learned_from, (logs.fingerprint,)) else ()
        if self.likelihood.treatment == "exact":
            # Solved for anew with all rounds, so that no rounding errors are carried along.
            weights = condition(self.prior, statistics, self.likelihood.noise_std)
        return replace(
            self,
            weights=weights,
            statistics=statistics,
            learned_from=(*self.learned_from, logs.fingerprint),
            evidence_offset=self.evidence_offset + added.evidence_offset,
            trace=added.trace,
            # Rounds of a fit that was cut short keep what it made of them.
            converged=self.converged and added.converged,
            warnings=tuple(dict.fromkeys((*self.warnings, *added.warnings, *twice))),
        )

    def discounted(self, share: float) -> RewardPosterior:
        """Every round so far with `share` times its weight: what a half-life does to them as time goes by.

        Exact where the likelihood is Gaussian, as if they had been logged with these weights; else it is the factors
        that stand in for them that count less.

        Args:
            share: Above 0, at most 1.
        """
        share = as_scalar("share", share, above=0.0)
        if share > 1:
            raise RangeError(f"share must be at most 1; got {share}.")
        statistics = self.statistics.scaled(share)
        noise_std = self.likelihood.noise_std if self.likelihood.treatment == "exact" else 1.0
        weights = condition(self.prior, statistics, noise_std)
        return replace(self, weights=weights, statistics=statistics, evidence_offset=share * self.evidence_offset)

    def _aged(self, age: AgeRule | None) -> RewardPosterior:
        """The rounds so far with the weights that a fit at `age.now` would give them."""
        if age is None or age.half_life is None or self.as_of is None:
            return self
        passed = seconds_between(datetime.fromisoformat(self.as_of), age.now)
        if passed < 0:
            raise InputError(
                f"must not go back: the ages in the model are counted from {self.as_of}, which is after "
                f"{age.now.isoformat()}.",
                "Pass a later time, or start from an earlier model.",
                argument="now",
            )
        if passed == 0:
            return self
        share = max(2.0 ** (-passed / age.half_life.total_seconds()), FORGOTTEN)
        return replace(self.discounted(share), as_of=age.now.isoformat())

    def refit(self, logs: Logs, *, engine: Engine | str | None = None) -> RewardPosterior:
        """The posterior of all these logs and no others, started from this one: exact where `update` only comes near.

        Args:
            logs: All rounds, old and new.
            engine: Where a `LogStream` is read, as in `fit`.
        """
        check_maps(self.features, self.catalog, as_logs(logs, self.prior))
        rounds = in_memory_if_small(logs, self.likelihood, engine)
        found = fit_weights(self.prior, rounds, self.likelihood, engine=as_engine(engine), start=self.weights)
        posterior = replace(
            self,
            weights=found.weights,
            statistics=found.statistics,
            learned_from=(rounds.fingerprint,),
            warnings=found.warnings,
            evidence_offset=found.evidence_offset,
            trace=found.trace,
            converged=found.converged,
            as_of=None,
        )
        return remember_files(posterior, logs)

    def with_actions(
        self, mixing: Any, action_cov: Any = None, offset: Any = None, *, catalog: Catalog | None = None
    ) -> RewardPosterior:
        """New actions after the existing ones, without a refit: an action never logged changes nothing else.

        Args:
            mixing: W of the new actions: (n_new, d, d'), or `MixedEffects(weights of the new actions, dim)`.
            action_cov: Their Σ_a; by default the one that all actions share.
            offset: Their c_a; by default the one that all actions share.
            catalog: What all actions are called, the existing ones first; without it the result has no catalog.
        """
        weights = self.weights.with_actions(mixing, action_cov, offset)
        prior = self.prior.with_actions(mixing, action_cov, offset)
        if catalog is not None and (
            len(catalog) != prior.n_actions or (self.catalog is not None and not catalog.begins_with(self.catalog))
        ):
            raise InputError(
                f"catalog must list all {prior.n_actions} actions, the existing ones first and in their order."
            )
        statistics = self.statistics.with_actions(prior.n_actions)
        return replace(self, weights=weights, prior=prior, statistics=statistics, catalog=catalog)

    def profile(
        self, policy: Policy, contexts: Any, eligible: Any, weights: Any, name: str = "policy"
    ) -> tuple[FeatureMass, Float[Array, " n"]]:
        """The policy's feature mass, and its expected reward row by row."""
        policy = with_own_features(as_instance(name, policy, Policy, "a policy"), contexts, self.features, name)
        if policy.n_actions != self.weights.n_actions:
            raise ShapeError(
                f"{name} has {policy.n_actions} actions; the posterior has {self.weights.n_actions}. "
                "Build both on the same catalog (pass n_actions=)."
            )
        x = as_contexts(contexts, self.features, columns=self.weights.dim)
        if not self.likelihood.is_linear:
            (mass,), rows = self.predictor.profile(policy, x, eligible, weights)
            return mass, rows
        return policy.profile(x, self.weights.action_mean(), eligible=eligible, weights=weights)

    def profile_parts(
        self, policy: Policy, contexts: Any, eligible: Any, weights: Any, name: str = "policy"
    ) -> tuple[Masses, Float[Array, " n"]]:
        mass, rows = self.profile(policy, contexts, eligible, weights, name)
        return (mass,), rows

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.weights, self.prior),)

    @property
    def factors(self) -> tuple[tuple[HierarchicalGaussian, Likelihood], ...]:
        return ((self.weights, self.likelihood),)

    @property
    def method(self) -> Method:
        return "exact" if self.likelihood.is_linear and self.likelihood.treatment == "exact" else "delta"

    @property
    def all_warnings(self) -> tuple[str, ...]:
        return (*self.warnings, *self.check.warnings)


FORGOTTEN = 1e-200
"""The weight of rounds so old that nothing is left of them."""

_TWICE = "some rounds were counted twice: they were in an earlier fit or update"


def check_logs(logs: Any, prior: HierarchicalGaussian) -> LoggedData:
    """Rounds in memory that fit the prior, or an error before any work is done."""
    as_logs(as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first"), prior)
    return logs


def as_logs(logs: Any, prior: HierarchicalGaussian) -> Logs:
    """Rounds, in memory or not, that fit the prior, or an error before any work is done."""
    if not isinstance(logs, Logs):
        raise DataTypeError(f"logs must be a LoggedData, or what ma.read_logs gave; got {type(logs).__name__}.")
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
