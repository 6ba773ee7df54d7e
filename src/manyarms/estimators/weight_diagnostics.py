"""Is this log usable for this policy? Figures, and plain words when they are bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.core.catalog import as_column, encode
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import FeatureMass, Policy, row_weights
from manyarms.core.result_tables import Records
from manyarms.priors.prior_builder import metadata, with_missing


@dataclass(frozen=True)
class Thresholds:
    """When to warn. Each is a figure of `Estimate.diagnostics` with the value beyond which it is bad.

    Attributes:
        min_effective_sample_size: (Σw)² / Σw²: how many rounds the weights are worth.
        max_weight_share: The share of the largest single weight.
        mean_weight_error: How far the mean weight may lie from 1; it is 1 on average when propensities are right.
        max_unsupported_mass: The share of the policy's choices on actions never logged.
        max_prior_share: The share of the prior's variance that the data left in a value.
    """

    min_effective_sample_size: float = 100.0
    max_weight_share: float = 0.05
    mean_weight_error: float = 0.2
    max_unsupported_mass: float = 0.1
    max_prior_share: float = 0.5


def weight_figures(
    weights: Float[Array, " n"], used: Float[Array, " n"], counts: Float[Array, " n"]
) -> dict[str, float]:
    """What the importance weights of an estimate say of it.

    Args:
        weights: π / π_0 as they are: their mean is near 1 when propensities are right.
        used: What the estimator made of them; where it uses none, it has no sample size to speak of.
        counts: How often each round counts.
    """
    figures = {"mean_weight": float(counts @ weights / counts.sum())}
    total, square = float(counts @ used), float(counts @ used**2)
    if square > 0:
        figures["effective_sample_size"] = total**2 / square
        figures["max_weight_share"] = float(used[counts > 0].max()) / total
    return figures


def propensity_figures(propensities: Float[Array, " n"]) -> dict[str, float]:
    """Whether propensities look as if they had been cut or rounded on their way here."""
    smallest = float(propensities.min(initial=1.0))
    # A few values may well be round (a uniform policy has one); many that all are have been cut.
    several = len(np.unique(propensities[:1000])) > 5
    rounded = several and smallest < 0.01 and bool(np.all(propensities == np.round(propensities, 3)))
    return {"min_propensity": smallest, "rounded_propensities": float(rounded)}


def unsupported_mass(mass: FeatureMass, logs: LoggedData) -> float:
    """The share of a policy's choices that fall on actions never logged."""
    unseen = ~np.isin(mass.actions, logs.actions)
    return float(mass.probability[unseen].sum())


def support_by_category(policy: Policy, logs: LoggedData, categories: Any, *, eligible: Any = None) -> Records:
    """For each category: how often it was logged, how often the policy chooses it, how much of that was never logged.

    Args:
        policy: The target.
        logs: Logged rounds.
        categories: (K,) hashable labels of all actions, or a `Catalog` with categories; actions without one (None, NaN)
            are a category of their own, "(missing)".
        eligible: Which actions may be chosen where; None for all.
    """
    column = as_column("categories", metadata(categories, "categories", as_column), length=logs.n_actions)
    labels, names, _ = with_missing(encode("categories", column))
    mass = policy.feature_mass(logs.contexts, eligible=eligible, weights=logs.weights)
    unseen = ~np.isin(mass.actions, logs.actions)
    n = len(names)
    chosen = np.bincount(labels[mass.actions], weights=mass.probability, minlength=n)
    missing = np.bincount(labels[mass.actions], weights=mass.probability * unseen, minlength=n)
    counts = row_weights(logs.weights, len(logs))
    logged = np.bincount(labels[logs.actions], weights=counts, minlength=n) / counts.sum()
    return Records(
        {
            "category": names[c],
            "logged": float(logged[c]),
            "chosen": float(chosen[c]),
            "unsupported": float(missing[c]),
        }
        for c in range(n)
    )


def diagnostic_warnings(figures: Mapping[str, float], limits: Thresholds) -> tuple[str, ...]:
    """The figures in plain words, where they are bad."""
    found: list[str] = []
    size = figures.get("effective_sample_size")
    if size is not None and size < limits.min_effective_sample_size:
        found.append(f"the weights are worth {size:.1f} rounds only; prefer a method that needs none, or clip them")
    share = figures.get("max_weight_share", 0.0)
    if share > limits.max_weight_share:
        found.append(f"a single round carries {share:.0%} of all weight")
    mean = figures.get("mean_weight")
    if mean is not None and abs(mean - 1.0) > limits.mean_weight_error:
        found.append(f"the mean weight is {mean:.2f} where 1 is expected: propensities or support are off")
    missing = figures.get("unsupported_mass", 0.0)
    if missing > limits.max_unsupported_mass:
        found.append(f"{missing:.0%} of the policy's choices fall on actions never logged")
    if figures.get("rounded_propensities"):
        found.append("propensities look rounded; small ones have lost their digits")
    if figures.get("estimated_propensities"):
        found.append("propensities were estimated from the logs")
    prior = figures.get("prior_share", 0.0)
    if prior > limits.max_prior_share:
        found.append(f"{prior:.0%} of the prior's variance is left: the answer is more the prior's than the data's")
    if figures.get("evaluated_on_training_rounds"):
        found.append("policy or reward model was learned from these very rounds; judge it on others (logs.split)")
    return tuple(found)
