"""The posterior of the reward function with one set of weights."""

# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_actions, as_flag, as_scalar
from manyarms.core import (
    SHOWN,
    Catalog,
    FeatureMap,
    Fingerprint,
    HierarchicalGaussian,
    Logs,
    Statistics,
    Tabular,
    any_shared,
    as_arrow,
    html_facts,
    html_table,
)
from manyarms.core.logged_data import as_logs, check_maps
from manyarms.engines import Engine, as_engine
from manyarms.errors import InputError
from manyarms.gpu.device import CPU, as_device
from manyarms.inference import condition
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.fit_weights import FittedWeights, fit_weights
from manyarms.linalg.indexing import cache_chunks
from manyarms.logs.age_rule import AgeRule, seconds_between
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows
from manyarms.model_file.part_checks import (
    PartCheck,
    instance_of,
    is_flag,
    is_number,
    is_text,
    is_time,
    maybe,
    tuple_of,
)
from manyarms.posterior.gaussian_posterior import RewardFactor, SingleFactorPosterior
from manyarms.posterior.misfit import PriorCheck, check_misfit, mean_misfit
from manyarms.posterior.posterior import same_as
from manyarms.posterior.training_files import in_memory_if_small, new_rounds, remember_files


@dataclass(frozen=True, eq=False)
class RewardPosterior(SingleFactorPosterior):
    """The posterior of θ that `fit` returns, and with it r(x, a) = g(φ(x)ᵀ θ_a); g(η) = η for linear rewards.

    Attributes:
        weights: The posterior of ψ and θ, a `HierarchicalGaussian`.
        prior: The distribution of ψ and θ before the rounds.
        statistics: The sums over rounds that the posterior is computed from.
        likelihood: The distribution of rewards given weights.
        learned_from: The fingerprints of the rounds it has seen; see `core.fingerprint`.
        fit_warnings: Warnings from fits and updates. `warnings` has these and those of the prior check, and every
            estimate carries them.
        evidence_offset: The log evidence of the likelihood minus that of the Gaussian solve.
        trace: The objective after each step, where the likelihood needed several.
        converged: Whether the steps reached the tolerance.
        features: The map from context columns to φ(x), if the logs came with one: then contexts may be tables.
        catalog: The ids of the actions, if the logs came with a catalog.
        as_of: The time, in ISO 8601, from which the ages of its rounds are counted, where they count less with age.
        prior_learned: True if `learn_prior` learned the prior from these same rounds.
    """

    saved_as = "reward posterior"
    saved_checks: ClassVar[Mapping[str, PartCheck]] = {
        "weights": instance_of(HierarchicalGaussian),
        "prior": instance_of(HierarchicalGaussian),
        "statistics": instance_of(Statistics),
        "likelihood": instance_of(Likelihood),
        "learned_from": tuple_of(instance_of(Fingerprint)),
        "warnings": tuple_of(is_text),
        "evidence_offset": is_number,
        "trace": tuple_of(is_number),
        "converged": is_flag,
        "features": maybe(instance_of(FeatureMap)),
        "catalog": maybe(instance_of(Catalog)),
        "as_of": maybe(is_time),
        "prior_learned": is_flag,
    }
    weights: HierarchicalGaussian
    prior: HierarchicalGaussian
    statistics: Statistics
    likelihood: Likelihood
    learned_from: tuple[Fingerprint, ...] = ()
    fit_warnings: tuple[str, ...] = ()
    evidence_offset: float = 0.0
    trace: tuple[float, ...] = ()
    converged: bool = True
    features: FeatureMap | None = None
    catalog: Catalog | None = None
    as_of: str | None = None
    prior_learned: bool = False
    n_rounds = same_as("statistics.n_rounds")
    n_actions = same_as("weights.n_actions")
    dim = same_as("weights.dim")
    predictor_weights = same_as("weights")
    # True when expected rewards are linear in the weights.
    is_linear = same_as("likelihood.is_linear")

    def saved(self) -> dict[str, Any]:
        return dict(zip(self.part_names(), (getattr(self, field.name) for field in fields(self)), strict=True))

    @classmethod
    def part_names(cls) -> tuple[str, ...]:
        # Files call the warnings of the fit "warnings".
        return tuple("warnings" if field.name == "fit_warnings" else field.name for field in fields(cls))

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> RewardPosterior:
        return cls(**{"fit_warnings" if name == "warnings" else name: value for name, value in parts.items()})

    def consistent(self) -> bool:
        """True if its parts are of the same actions and features."""
        sizes = {(part.n_actions, part.dim) for part in (self.weights, self.prior, self.statistics)}
        features_fit = self.features is None or self.features.dim == self.dim
        catalog_fits = self.catalog is None or len(self.catalog) == self.n_actions
        return len(sizes) == 1 and self.weights.latent_dim == self.prior.latent_dim and features_fit and catalog_fits

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
        return html_facts("RewardPosterior", facts, self.warnings)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is wrong with the posterior: warnings of the fit, and contradictions of prior or noise."""
        digits = _lost_digits_warnings(self.weights) if self.likelihood.treatment == "exact" else ()
        return (*self.fit_warnings, *digits, *self.check.warnings)

    @cached_property
    def check(self) -> PriorCheck:
        """The check of the rewards against prior and noise; see `check_prior`."""
        # A prior that is itself a posterior does not say how many rounds are behind it.
        known = not self.prior.observed.groups
        if self.likelihood.treatment != "exact":
            return mean_misfit(self.weights, self.likelihood, prior_learned=self.prior_learned)
        if not self.statistics.counted:
            # The misfit is not χ² then.
            return PriorCheck(None, None, unchecked="where the weights of rounds are not counts")
        total_weight = self.statistics.total_weight if known else None
        return check_misfit(self.weights, self.likelihood.noise_std, total_weight, prior_learned=self.prior_learned)

    @property
    def log_evidence(self) -> float:
        """log p(rewards | contexts, actions) under the prior, all rounds so far.

        Where the posterior is approximate: the evidence lower bound or Laplace's approximation; neither once updated.
        """
        return self.weights.log_evidence - self.prior.log_evidence + self.evidence_offset

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d,) the names of the features; numbers where contexts came as arrays."""
        return tuple(str(i) for i in range(self.dim)) if self.features is None else self.features.names

    def summary(self, actions: Any = None) -> ActionSummary:
        """Mean and standard deviation of the weights of actions, as a table.

        Args:
            actions: Action numbers; None for all.
        """
        chosen = None if actions is None else as_actions("actions", actions, n_actions=self.weights.n_actions)
        return _summarise(self.weights, chosen, self.feature_names, self.catalog)

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
        again = as_flag("allow_repeats", allow_repeats)
        check_maps(self.features, self.catalog, as_logs(logs, self.prior))
        if not isinstance(logs, LogStream):
            return self._with_rounds(logs, engine)
        posterior, parts = self, [logs] if again else list(new_rounds(logs, self.learned_from))
        for part in parts:
            rounds = in_memory_if_small(part, self.likelihood, engine)
            posterior = remember_files(posterior._aged(part.reader.age)._with_rounds(rounds, engine), part)
        if parts != [logs]:
            logs.note_dropped(sum((part.dropped for part in parts), DroppedRows()))
        return posterior

    def _with_rounds(self, logs: Logs, engine: Engine | str | None) -> RewardPosterior:
        exact = self.likelihood.treatment == "exact"
        # Where everything is solved for anew, only the sums over the new rounds are needed.
        added = fit_weights(self.prior if exact else self.weights, logs, self.likelihood, engine=as_engine(engine))
        statistics, weights = self.statistics + added.statistics, added.weights
        twice = (_TWICE,) if any_shared(self.learned_from, (logs.fingerprint,)) else ()
        if exact:
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
            fit_warnings=tuple(dict.fromkeys((*self.fit_warnings, *added.warnings, *twice))),
            # With new rounds there is something to learn again.
            prior_learned=False,
        )

    def discounted(self, share: float) -> RewardPosterior:
        """The posterior with `share` times the weight of every round so far, as a half-life makes it.

        Exact where the likelihood is Gaussian, as if the rounds had been logged with these weights. Else the Gaussian
        factors that stand in for the rounds count less.

        Args:
            share: Above 0, at most 1.
        """
        share = as_scalar("share", share, above=0.0, at_most=1.0)
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

    def refit(self, logs: Logs, *, engine: Engine | str | None = None, device: str = CPU) -> RewardPosterior:
        """The posterior of all these logs and no others, started from this one: exact where `update` only comes near.

        Args:
            logs: All rounds, old and new.
            engine: Where a `LogStream` is read, as in `fit`.
            device: "cuda" runs the loop for clicks on a GPU, as in `fit`.
        """
        options: dict[str, Any] = {"engine": as_engine(engine), "device": as_device(device)}
        check_maps(self.features, self.catalog, as_logs(logs, self.prior))
        rounds = in_memory_if_small(logs, self.likelihood, engine)
        fitted = fit_weights(self.prior, rounds, self.likelihood, start=self.weights, **options)
        parts = {**self.fitted_parts(fitted, rounds), "features": self.features, "catalog": self.catalog}
        return remember_files(replace(self, **parts, as_of=None, prior_learned=False), logs)

    @staticmethod
    def fitted_parts(fitted: FittedWeights, logs: Logs) -> dict[str, Any]:
        """The fields that come from a fit and from its rounds."""
        return {
            "weights": fitted.weights,
            "statistics": fitted.statistics,
            "learned_from": (logs.fingerprint,),
            "fit_warnings": fitted.warnings,
            "evidence_offset": fitted.evidence_offset,
            "trace": fitted.trace,
            "converged": fitted.converged,
            "features": logs.features,
            "catalog": logs.catalog,
        }

    def with_actions(
        self, mixing: Any, action_cov: Any = None, offset: Any = None, *, catalog: Catalog | None = None
    ) -> RewardPosterior:
        """New actions after the existing ones, without a refit: an action never logged changes nothing else.

        Args:
            mixing: W of the new actions: (n_new, d, d'), or `MixedEffects(weights of the new actions, dim)`.
            action_cov: Their Σ_a; by default the one that all actions share.
            offset: Their c_a; by default the one that all actions share.
            catalog: The ids of all actions, the existing ones first; without it the result has no catalog.
        """
        weights = self.weights.with_actions(mixing, action_cov, offset)
        prior = self.prior.with_actions(mixing, action_cov, offset)
        if catalog is not None and (
            len(catalog) != prior.n_actions or (self.catalog is not None and not catalog.begins_with(self.catalog))
        ):
            raise InputError(
                f"must list all {prior.n_actions} actions, the existing ones first and in their order.",
                argument="catalog",
            )
        statistics = self.statistics.with_actions(prior.n_actions)
        return replace(self, weights=weights, prior=prior, statistics=statistics, catalog=catalog)

    @property
    def seen_actions(self) -> tuple[Int[Array, " m"], ...]:
        return (self.weights.observed.actions,)

    @property
    def factors(self) -> tuple[RewardFactor, ...]:
        """The single factor of the reward."""
        return (RewardFactor(self.weights, self.prior, self.likelihood),)

    def factors_for(self, actions: Int[Array, " m"]) -> tuple[RewardFactor, ...]:
        return self.factors


FORGOTTEN = 1e-200
"""The weight of rounds so old that nothing is left of them."""

_TWICE = "some rounds were counted twice: they were in an earlier fit or update"


@dataclass(frozen=True, eq=False, repr=False)
class ActionSummary(Tabular):
    """The summary of a reward posterior by action: θ_a ~ N(mean, std²) coordinate by coordinate, for m actions.

    As a table, a row for each action and feature: `action`, `seen`, `feature`, `mean`, `std`.

    Attributes:
        actions: (m,) ids where there is a catalog, else numbers.
        features: The names of the d coordinates.
        seen: (m,) True for actions that were ever logged.
        mean: (m, d) posterior means.
        std: (m, d) posterior standard deviations.
    """

    actions: tuple[Any, ...]
    features: tuple[str, ...]
    seen: Bool[Array, " m"]
    mean: Float[Array, "m d"]
    std: Float[Array, "m d"]

    def records(self) -> list[dict[str, Any]]:
        return self.to_arrow().to_pylist()

    def to_arrow(self, **options: Any) -> pa.Table:
        m, d = self.mean.shape
        rows = np.repeat(np.arange(m), d)
        return pa.table(
            {
                "action": as_arrow(self.actions).take(rows),
                "seen": self.seen[rows],
                "feature": pa.array(self.features).take(np.tile(np.arange(d), m)),
                "mean": self.mean.reshape(-1),
                "std": self.std.reshape(-1),
            }
        )

    def _repr_html_(self) -> str:
        # The first actions are enough to see: there may be a million.
        some = slice(0, SHOWN // max(1, len(self.features)) + 1)
        few = ActionSummary(self.actions[some], self.features, self.seen[some], self.mean[some], self.std[some])
        return html_table(few.records()[:SHOWN], caption=repr(self))

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        return f"ActionSummary({len(self):,} actions, {int(self.seen.sum()):,} seen, {', '.join(self.features)})"


def _summarise(
    weights: HierarchicalGaussian, actions: Any, features: tuple[str, ...], catalog: Catalog | None
) -> ActionSummary:
    """The marginal weights of some actions, or of all where `actions` is None."""
    ids = np.arange(weights.n_actions) if actions is None else actions
    std = np.empty((len(ids), weights.dim))
    for part in cache_chunks(len(ids), weights.dim**2):
        std[part] = np.sqrt(np.einsum("mdd->md", weights.action_cov(ids[part])))
    names = tuple(ids.tolist() if catalog is None else catalog.ids[ids].tolist())
    return ActionSummary(names, features, np.isin(ids, weights.observed.actions), weights.action_mean(ids), std)


def _lost_digits_warnings(weights: HierarchicalGaussian) -> tuple[str, ...]:
    """A warning where rounding shifts the mean weights of an action by a good part of their standard deviation.

    Sums over rounds hold φφᵀ, in which nearly collinear features cancel; the shift, in standard deviations, is about
    ε ‖ρ_a‖ (Σ_j ‖column j of R_a‖² Var θ_aj)^½ with the machine's ε.
    """
    for group in weights.observed.groups:
        if group.rank < weights.dim:
            # Rounds as they are have lost nothing.
            continue
        columns, pivots = np.square(group.root).sum(axis=1), np.einsum("mjj->mj", group.root)
        weakest = np.divide(np.abs(pivots), np.sqrt(columns), out=np.ones_like(columns), where=columns > 0).min(axis=1)
        size = np.finfo(float).eps * np.linalg.norm(group.response, axis=1)
        # Only pivots are looked at first, for an upper bound of the shift.
        suspects = np.flatnonzero(size * np.sqrt(weights.dim) > _MOST_SHIFT * weakest)[:_MOST_SUSPECTS]
        if not len(suspects):
            continue
        variances = np.einsum("mjj->mj", weights.action_cov(group.actions[suspects]))
        shift = size[suspects] * np.sqrt(np.sum(columns[suspects] * variances, axis=1))
        worst = int(np.argmax(shift))
        if shift[worst] > _MOST_SHIFT:
            return (
                "features are so nearly collinear, and the noise so small beside the rewards, that rounding may shift "
                f"the mean weights of action {group.actions[suspects[worst]]} by a good part of their standard "
                "deviations. Drop or combine such features, or check the unit of the noise.",
            )
    return ()


_MOST_SHIFT, _MOST_SUSPECTS = 0.05, 1000
"""The shift of mean weights, in standard deviations, from which rounding is warned about, and actions looked at."""
