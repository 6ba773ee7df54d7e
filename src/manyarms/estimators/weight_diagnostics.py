"""Diagnostics of importance weights: limits, warnings in plain words, and support by category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_instance, as_scalar, row_weights
from manyarms.core import LoggedData, Records, as_column, encode
from manyarms.core.bound_policy import on_rounds
from manyarms.core.catalog import metadata
from manyarms.core.labels import with_missing
from manyarms.core.policy import Policy


@dataclass(frozen=True)
class Thresholds:
    """Limits of diagnostics, such as the effective size of the weights, beyond which an estimate warns.

    Attributes:
        min_effective_sample_size: Smallest (Σw)² / Σw², the effective sample size of the weights, in rounds.
        max_weight_share: Largest share of a single round in the total weight.
        mean_weight_error: Largest distance of the mean weight from 1, its expectation when propensities are right.
        max_unsupported_mass: Largest share of the policy's choices on actions never logged.
        max_prior_share: Largest share of the prior variance that the data left in a value.
        max_pareto_k: Largest shape of the tail of the weights: above it, error bars are too narrow.
    """

    min_effective_sample_size: float = 100.0
    max_weight_share: float = 0.05
    mean_weight_error: float = 0.2
    max_unsupported_mass: float = 0.1
    max_prior_share: float = 0.5
    max_pareto_k: float = 0.7

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            # Infinity switches a warning off.
            if not (isinstance(limit, float) and limit == float("inf")):
                as_scalar(name, limit, at_least=0.0)


def support_by_category(policy: Policy, logs: LoggedData, categories: Any, *, eligible: Any = None) -> Records:
    """Diagnostics per category: the share of logged rounds, that of the policy's choices, and the share never logged.

    Args:
        policy: The target policy.
        logs: Logged rounds.
        categories: (K,) Hashable labels of all actions, or a `Catalog` with categories. Actions without a label (None,
            NaN) form a category of their own, "(missing)".
        eligible: The actions that may be chosen in each round; None for all.
    """
    as_instance("policy", policy, Policy, "a policy")
    as_instance("logs", logs, LoggedData, "a LoggedData")
    column = as_column("categories", metadata(categories, "categories", as_column), length=logs.n_actions)
    labels, names, _ = with_missing(encode("categories", column))
    mass = on_rounds(policy, logs).feature_mass(logs.contexts, eligible=eligible, weights=logs.weights)
    unseen = ~np.isin(mass.actions, logs.actions)
    n = len(names)
    chosen = np.bincount(labels[mass.actions], weights=mass.probability, minlength=n)
    unsupported = np.bincount(labels[mass.actions], weights=mass.probability * unseen, minlength=n)
    counts = row_weights(logs.weights, len(logs))
    logged = np.bincount(labels[logs.actions], weights=counts, minlength=n) / counts.sum()
    columns = zip(names, logged.tolist(), chosen.tolist(), unsupported.tolist(), strict=True)
    return Records(dict(zip(("category", "logged", "chosen", "unsupported"), row, strict=True)) for row in columns)


def diagnostic_warnings(diagnostics: Mapping[str, float], limits: Thresholds) -> tuple[str, ...]:
    """A warning in plain words for each diagnostic beyond its limit."""
    warnings: list[str] = []
    size = diagnostics.get("effective_sample_size", np.inf)
    if size < limits.min_effective_sample_size:
        warnings.append(
            f"the effective sample size is only {size:.1f} rounds; prefer a method without weights, or clip the weights"
        )
    tail = diagnostics.get("pareto_k", 0.0)
    # With few effective rounds, the warning above says enough.
    if tail > limits.max_pareto_k and size >= limits.min_effective_sample_size:
        limit = f"above the limit of {limits.max_pareto_k:g}"
        warnings.append(
            f"the tail of the weights is heavy (Pareto k = {tail:.2f}, {limit}), so the error bar is too narrow"
        )
    share = diagnostics.get("max_weight_share", 0.0)
    if share > limits.max_weight_share:
        warnings.append(f"a single round carries {100 * share:.0f} % of the total weight")
    mean = diagnostics.get("mean_weight", 1.0)
    if abs(mean - 1.0) > limits.mean_weight_error:
        warnings.append(
            f"the mean weight is {mean:.2f} instead of about 1: either the propensities are wrong, or the log has too "
            "few rounds that match the policy's choices"
        )
    unsupported = diagnostics.get("unsupported_mass", 0.0)
    if unsupported > limits.max_unsupported_mass:
        warnings.append(f"{100 * unsupported:.0f} % of the policy's choices fall on actions never logged")
    if diagnostics.get("rounded_propensities"):
        warnings.append("propensities look rounded, so small ones are inaccurate")
    if diagnostics.get("estimated_propensities"):
        warnings.append("propensities were estimated from the logs")
    prior = diagnostics.get("prior_share", 0.0)
    if prior > limits.max_prior_share:
        warnings.append(
            f"{100 * prior:.0f} % of the prior variance remains: the answer rests more on the prior than on the data"
        )
    if diagnostics.get("evaluated_on_training_rounds"):
        warnings.append("the policy or the reward model was learned from these rounds; evaluate it on others")
    return tuple(warnings)


def effective_size(weights: Float[Array, " n"] | None, n: int) -> float:
    """Effective number of rounds by their weights, (Σw)² / Σw², whatever the unit of weights."""
    return float(n) if weights is None else float(weights.sum() ** 2 / max((weights**2).sum(), np.finfo(float).tiny))
