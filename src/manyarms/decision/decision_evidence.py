"""The evidence of a decision: traffic by category and action, shrinkage by action, calibration by group of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_vector, row_weights
from manyarms.core import Catalog, LoggedData, encode
from manyarms.core.choices import ChoiceShares
from manyarms.core.labels import with_missing
from manyarms.estimators.weight_diagnostics import effective_size
from manyarms.jobs import Evaluation
from manyarms.linalg.indexing import sum_by
from manyarms.linalg.quadratic_forms import row_norms
from manyarms.posterior import RewardPosterior
from manyarms.posterior.posterior import Posterior

SHOWN_CATEGORIES = 20
"""Categories listed one by one; the others are added up."""
SHOWN_ACTIONS = 12
"""Actions listed that gain most, and as many that lose most."""
VISIBLE = 0.005
"""Smaller changes of traffic, as shares of the largest, are not listed: their bars could not be seen."""
CONTEXTS = 1000
"""Contexts over which the expected reward of an action is averaged."""
CHART_ACTIONS = 300
"""Actions in the chart of shrinkage, spread evenly from the least to the most logged."""
BINS = 10
"""Groups of rounds in the chart of calibration."""


class Categories:
    """The actions' categories in the evidence of a decision, as codes and as names, and the labels of all codes.

    Missing labels (None, NaN) form one category, the last.
    """

    def __init__(self, column: Array):
        self.codes, labels, _ = with_missing(encode("categories", column))
        self.labels = [str(label) for label in labels]
        self.names: list[str] = np.array(self.labels, dtype=object)[self.codes].tolist()


@dataclass(frozen=True)
class CategorySupport:
    """Evidence on one category, or on several added up: logged rounds and choices.

    `n_logged` of its `n_actions` were ever logged. `logged` is its share of the logged rounds, `chosen` that of the
    choices of each policy, and `unsupported` the part of `chosen` on actions that were never logged.
    """

    category: str
    n_actions: int
    n_logged: int
    logged: float
    chosen: dict[str, float]
    unsupported: dict[str, float]


@dataclass(frozen=True)
class Support:
    """Evidence by category: those with the largest shares of rounds, then `n_summed` others added up in one row."""

    rows: tuple[CategorySupport, ...]
    n_summed: int


def support_evidence(
    evaluation: Evaluation,
    logs: LoggedData,
    categories: Categories,
    posterior: Posterior | None = None,
    *,
    shown: int = SHOWN_CATEGORIES,
) -> Support:
    """The shares of logged rounds and of choices that fall on each category.

    Ever logged are the actions that the posterior has seen; without one, those in `logs`. Listed are the `shown`
    categories with the largest share in the log or under any policy.
    """
    codes, n = categories.codes, len(categories.labels)
    counts = row_weights(logs.weights, len(logs))
    seen = np.zeros(len(codes), dtype=bool)
    seen[logs.actions[counts > 0] if posterior is None else posterior.seen_actions[0]] = True

    def by_category(actions: Int[Array, " m"], weights: Float[Array, " m"]) -> Float[Array, " n"]:
        return np.bincount(codes[actions], weights=weights, minlength=n)

    logged = by_category(logs.actions, counts) / counts.sum()
    choices = {row.name: row.choices for row in evaluation.policies if row.choices is not None}
    chosen = {name: by_category(own.actions, own.shares) for name, own in choices.items()}
    unsupported = {name: by_category(own.actions, own.shares * ~seen[own.actions]) for name, own in choices.items()}
    order = np.argsort(-np.max([logged, *chosen.values()], axis=0), kind="stable")
    rest = order[shown:]
    n_actions, n_seen = np.bincount(codes, minlength=n), np.bincount(codes[seen], minlength=n)

    def row(label: str, members: Int[Array, " m"]) -> CategorySupport:
        return CategorySupport(
            label,
            int(n_actions[members].sum()),
            int(n_seen[members].sum()),
            float(logged[members].sum()),
            {name: float(shares[members].sum()) for name, shares in chosen.items()},
            {name: float(shares[members].sum()) for name, shares in unsupported.items()},
        )

    rows = [row(categories.labels[i], np.array([i])) for i in order[:shown]]
    if len(rest):
        rows.append(row(f"{len(rest):,} others", rest))
    return Support(tuple(rows), len(rest))


@dataclass(frozen=True)
class TrafficChange:
    """Evidence on an action that a policy chooses more or less often than the current policy.

    `action` is its id, or its number without a catalog, and `name` its name in the catalog, or an empty text. `logged`
    is its share of the logged rounds, by weight, and `chosen` that of the policy's choices. `mean_reward` is the mean
    of its logged rewards, if any, and `expected` its expected reward under the model, if there is one, averaged over
    logged contexts.
    """

    action: str
    category: str
    n_rounds: float
    logged: float
    chosen: float
    mean_reward: float | None
    expected: float | None
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the action, or its id where it has none."""
        return self.name or self.action

    @property
    def change(self) -> float:
        """The change of its share of choices."""
        return self.chosen - self.logged


@dataclass(frozen=True)
class TrafficChanges:
    """Evidence on traffic: the actions that gain most under a policy, then those that lose most, largest loss last.

    `moved` is half the sum of all absolute changes: the policy differs from the current one in at least this share of
    rounds.
    """

    policy: str
    rows: tuple[TrafficChange, ...]
    moved: float


def traffic_evidence(
    name: str, choices: ChoiceShares, logs: LoggedData, categories: Categories | None, posterior: Posterior | None
) -> TrafficChanges:
    """The actions that gain and lose most when a policy with these choices replaces the one that made the logs."""
    counts = row_weights(logs.weights, len(logs))
    total, K = counts.sum(), logs.n_actions
    rounds = np.bincount(logs.actions, weights=counts, minlength=K)
    rewards = np.bincount(logs.actions, weights=counts * logs.rewards, minlength=K)
    change = -rounds / total
    change[choices.actions] += choices.shares
    order = np.argsort(-change, kind="stable")
    least = VISIBLE * float(np.abs(change).max(initial=0.0))
    actions = [int(a) for a in order[:SHOWN_ACTIONS] if change[a] > least]
    actions += [int(a) for a in order[-SHOWN_ACTIONS:] if change[a] < -least]
    expected = {} if posterior is None or not actions else _expected_rewards(posterior, logs, actions)
    rows = tuple(
        TrafficChange(
            *_names(action, logs.catalog, categories),
            float(rounds[action]),
            float(rounds[action] / total),
            float(change[action] + rounds[action] / total),
            float(rewards[action] / rounds[action]) if rounds[action] > 0 else None,
            expected.get(action),
            _name(action, logs.catalog),
        )
        for action in actions
    )
    return TrafficChanges(name, rows, float(np.abs(change).sum() / 2))


def _expected_rewards(posterior: Posterior, logs: LoggedData, actions: Sequence[int]) -> dict[int, float]:
    """The expected reward of each action, averaged over contexts spread evenly over the log."""
    contexts = logs.contexts[np.unique(np.linspace(0, len(logs) - 1, min(CONTEXTS, len(logs))).astype(int))]
    x, repeated = np.tile(contexts, (len(actions), 1)), np.repeat(np.asarray(actions, dtype=np.int64), len(contexts))
    means = np.asarray(posterior.expected_reward(x, repeated)).reshape(len(actions), -1).mean(axis=1)
    return dict(zip(actions, means.tolist(), strict=True))


def _name(action: int, catalog: Catalog | None) -> str:
    """The name of an action in the catalog, or an empty text."""
    return "" if catalog is None else catalog.name_of(action)


def _names(action: int, catalog: Catalog | None, categories: Categories | None) -> tuple[str, str]:
    """The id of an action, or its number where there is no catalog, and its category, or an empty text."""
    return str(action if catalog is None else catalog.ids[action]), categories.names[action] if categories else ""


@dataclass(frozen=True)
class ActionMeans:
    """Evidence on one action: estimates of its mean reward, on the `n_rounds` rounds (by weight) that logged it.

    `own` is the mean of its logged rewards, `posterior` the expected reward under the posterior, and `category_only`
    that of an action with the same category (or other effects) that was never logged.
    """

    action: str
    category: str
    n_rounds: float
    own: float
    posterior: float
    category_only: float
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the action if the catalog has one, else its id."""
        return self.name or self.action


@dataclass(frozen=True)
class Shrinkage:
    """Evidence on shrinkage: the means of some of the `n_actions` logged actions, from the least to the most logged."""

    rows: tuple[ActionMeans, ...]
    n_actions: int


def shrinkage_evidence(posterior: RewardPosterior, logs: LoggedData, categories: Categories | None) -> Shrinkage:
    """Evidence of a decision on shrinkage: actions are pulled from their own mean reward towards their category's."""
    counts = row_weights(logs.weights, len(logs))
    logged, per_action = sum_by(logs.actions[counts > 0], counts[counts > 0])
    order = np.argsort(per_action, kind="stable")
    places = np.unique(np.linspace(0, len(logged) - 1, min(CHART_ACTIONS, len(logged))).round().astype(int))
    rounds = np.flatnonzero(np.isin(logs.actions, logged[order[places]]) & (counts > 0))
    actions, x, weight = logs.actions[rounds], logs.contexts[rounds], counts[rounds]
    fitted = np.asarray(posterior.expected_reward(x, actions))
    unlogged = _expected_without_own_rounds(posterior, x, actions)
    columns = np.stack([logs.rewards[rounds], fitted, unlogged, np.ones(len(rounds))], axis=1) * weight[:, None]
    keys, sums = sum_by(actions, columns)
    means = sums[:, :3] / sums[:, 3:]
    rows = [
        ActionMeans(*_names(action, posterior.catalog, categories), total, *mean, name=_name(action, posterior.catalog))
        for action, mean, total in zip(keys.tolist(), means.tolist(), sums[:, 3].tolist(), strict=True)
    ]
    return Shrinkage(tuple(sorted(rows, key=lambda row: row.n_rounds)), len(logged))


def _expected_without_own_rounds(
    posterior: RewardPosterior, x: Float[Array, "n d"], actions: Int[Array, " n"]
) -> Float[Array, " n"]:
    """E g(φᵀ(W_a ψ + c_a + ε_a)) under the posterior of ψ and the prior of ε_a."""
    weights = posterior.weights
    distinct, places = np.unique(actions, return_inverse=True)
    centre = weights.mixing.apply(weights.latent_mean[None], distinct)[0] + weights.offset_of(distinct)
    mean = np.einsum("nd,nd->n", x, centre[places])
    if posterior.likelihood.is_linear:
        return mean

    def unlogged_cov(batch: Int[Array, " m"]) -> Float[Array, "m d d"]:
        shared = weights.mixing.cross(weights.latent_factor, batch, batch)
        return shared + posterior.prior.action_covariance.blocks(batch)

    return posterior.likelihood.mean_reward(mean, row_norms(x, actions, unlogged_cov) ** 2)


@dataclass(frozen=True)
class CalibrationBin:
    """Evidence on rounds with similar expected rewards, counted by weight.

    `observed` is their mean reward, or their true mean reward where that is known, and `error` its standard error, None
    for a single round.
    """

    n_rounds: float
    expected: float
    observed: float
    error: float | None


@dataclass(frozen=True)
class Calibration:
    """Evidence on calibration: expected against observed (or true mean) rewards, and true values of policies, if known.

    The groups have equally many rounds, lowest expected reward first. There are none where they would be misleading.
    """

    bins: tuple[CalibrationBin, ...]
    held_out: bool
    against_truth: bool
    truth: Mapping[str, float]


def calibration_evidence(
    posterior: Posterior, logs: LoggedData, held_out: bool, truth: Mapping[str, float], true_rewards: Any
) -> Calibration:
    """Evidence of a decision on calibration: expected and observed rewards, grouped by expected reward.

    Training rounds cannot show calibration: the model expects much where their rewards were high by chance. So there
    are groups only for held-out rounds, or where the true mean rewards are known.
    """
    known = true_rewards is not None
    if not held_out and not known:
        return Calibration((), held_out, known, truth)
    rewards = as_vector("true_rewards", true_rewards, length=len(logs)) if known else logs.rewards
    expected = np.asarray(posterior.expected_reward(logs.contexts, logs.actions))
    counts = row_weights(logs.weights, len(logs))
    groups = list[CalibrationBin]()
    for rounds in np.array_split(np.argsort(expected, kind="stable"), min(BINS, len(logs))):
        weight = counts[rounds]
        total = weight.sum()
        if total == 0:
            continue
        mean = weight @ rewards[rounds] / total
        variance = weight @ (rewards[rounds] - mean) ** 2 / total
        size = effective_size(weight, len(rounds))
        error = float(np.sqrt(variance / (size - 1))) if size > 1 else None
        groups.append(CalibrationBin(float(total), float(weight @ expected[rounds] / total), float(mean), error))
    return Calibration(tuple(groups), held_out, known, truth)
