"""Whether rewards come out as the model expects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms._base.checks import as_vector
from manyarms.core.fingerprint import Fingerprint, any_shared
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import row_weights
from manyarms.jobs.evaluate import effective_size
from manyarms.posterior.posterior import Posterior

BINS = 10


@dataclass(frozen=True)
class CalibrationBin:
    """Rounds of which the model expects about the same.

    Attributes:
        n_rounds: How many, by weight.
        expected: What it expects of them on average.
        observed: What they brought on average; or their true mean reward, where that is known.
        error: The standard error of that; None for a single round.
    """

    n_rounds: float
    expected: float
    observed: float
    error: float | None


@dataclass(frozen=True)
class Calibration:
    """Expected and observed.

    Attributes:
        bins: From the least expected to the most, equally many rounds in each; none where they would say nothing.
        held_out: Whether the model had not seen these rounds.
        against_truth: Whether what is observed is the truth itself.
        truth: The true value of policies by name, where it is known.
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
    bins: int = BINS,
) -> Calibration:
    """Logged rounds sorted by what the model expects of them, in groups: what was expected, and what came.

    Rewards that the model has seen say nothing here: it expects much where they were high by chance. So there are
    groups only of rounds that it has not seen, or with the true mean rewards, where these are known.

    Args:
        posterior: The fitted model.
        logs: Rounds, best those it has not seen.
        fingerprints: What else these rounds are known by.
        truth: The true value of policies by name, where the world is made up.
        true_rewards: (n,) the true mean reward of each round, where the world is made up.
        bins: How many groups.
    """
    held_out = not any_shared(posterior.learned_from, (logs.fingerprint, *fingerprints))
    known = true_rewards is not None
    if not held_out and not known:
        return Calibration((), held_out, known, dict(truth or {}))
    rewards = as_vector("true_rewards", true_rewards, length=len(logs)) if known else logs.rewards
    expected = np.asarray(posterior.expected_reward(logs.contexts, logs.actions))
    counts = row_weights(logs.weights, len(logs))
    parts = np.array_split(np.argsort(expected, kind="stable"), min(bins, len(logs)))
    found = list[CalibrationBin]()
    for part in parts:
        total = counts[part].sum()
        if total == 0:
            continue
        mean = counts[part] @ rewards[part] / total
        spread = counts[part] @ (rewards[part] - mean) ** 2 / total
        size = effective_size(counts[part], len(part))
        error = float(np.sqrt(spread / (size - 1))) if size > 1 else None
        found.append(CalibrationBin(float(total), float(counts[part] @ expected[part] / total), float(mean), error))
    return Calibration(tuple(found), held_out, known, dict(truth or {}))
