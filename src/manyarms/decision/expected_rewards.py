"""The model's expected rewards against logged ones: shrinkage by action, and calibration by group of rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_vector
from manyarms.core.fingerprint import Fingerprint, any_shared
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import row_weights
from manyarms.decision.traffic import Categories, action_name
from manyarms.jobs.evaluate import effective_size
from manyarms.linalg.indexing import sum_by
from manyarms.linalg.top_k import row_norms
from manyarms.posterior import RewardPosterior
from manyarms.posterior.posterior import Posterior

CHART_ACTIONS = 300
"""Actions in the chart of shrinkage, spread evenly from the least to the most logged."""
BINS = 10
"""Groups of rounds in the chart of calibration."""


@dataclass(frozen=True)
class ActionMeans:
    """Three estimates of the mean reward of one action, on the rounds in which it was logged.

    Attributes:
        action: The id of the action.
        category: Its category; empty where there are none.
        n_rounds: Its logged rounds, by weight.
        own: The mean of its logged rewards.
        posterior: The expected reward under the posterior.
        category_only: The expected reward of an action with the same category (or other effects) that was never logged.
    """

    action: str
    category: str
    n_rounds: float
    own: float
    posterior: float
    category_only: float


@dataclass(frozen=True)
class Shrinkage:
    """The means of some logged actions, from the least to the most logged.

    Attributes:
        rows: The actions.
        n_actions: The number of actions that were logged at all.
    """

    rows: tuple[ActionMeans, ...]
    n_actions: int


def shrinkage(posterior: RewardPosterior, logs: LoggedData, categories: Categories | None) -> Shrinkage:
    """The pull of each action from its own mean reward towards that of its category, which fades with its rounds."""
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
        ActionMeans(
            action_name(posterior.catalog, int(action)),
            "" if categories is None else categories.names[int(action)],
            float(total),
            *(float(value) for value in mean),
        )
        for action, mean, total in zip(keys, means, sums[:, 3], strict=True)
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
    """Rounds with similar expected rewards.

    Attributes:
        n_rounds: The number of rounds, by weight.
        expected: Their mean expected reward.
        observed: Their mean reward, or their true mean reward where that is known.
        error: The standard error of `observed`; None for a single round.
    """

    n_rounds: float
    expected: float
    observed: float
    error: float | None


@dataclass(frozen=True)
class Calibration:
    """Expected and observed rewards of groups of rounds.

    Attributes:
        bins: Groups of equally many rounds, lowest expected reward first. Empty where they would be misleading.
        held_out: True when the model was not trained on these rounds.
        against_truth: True when `observed` is the true mean reward.
        truth: The true value of each policy, where it is known.
    """

    bins: tuple[CalibrationBin, ...]
    held_out: bool
    against_truth: bool
    truth: Mapping[str, float]


def calibration(
    posterior: Posterior,
    logs: LoggedData,
    *,
    fingerprints: tuple[Fingerprint, ...] = (),
    truth: Mapping[str, float] | None = None,
    true_rewards: Any = None,
) -> Calibration:
    """Expected and observed rewards of logged rounds, grouped by expected reward.

    Training rounds cannot show calibration: the model expects much where their rewards were high by chance. So there
    are groups only for held-out rounds, or where the true mean rewards are known.
    """
    held_out = not any_shared(posterior.learned_from, (logs.fingerprint, *fingerprints))
    known = true_rewards is not None
    if not held_out and not known:
        return Calibration((), held_out, known, dict(truth or {}))
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
    return Calibration(tuple(groups), held_out, known, dict(truth or {}))
