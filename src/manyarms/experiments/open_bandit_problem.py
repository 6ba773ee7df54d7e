"""The Open Bandit Dataset as an experiment: judge one policy from the log of another, and see what it really earned."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms._base.rng import split
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.datasets import OpenBanditLog, load_open_bandit
from manyarms.errors import InputError
from manyarms.experiments.problem import Known, Origin, Problem, World, digest_of
from manyarms.experiments.rating_problems import data_path
from manyarms.policies import TablePolicy
from manyarms.priors import from_categories, independent

CLICK_RATE = 0.005
"""What is believed of a click rate before any log: below a percent, on the web."""


class OpenBanditWorld(World):
    """The log of the random policy, and the bts policy as a target.

    The target shows each item as often as bts did at the same position in one half of its log, drawn at random. Its
    true value is not known: `target_value` is the click rate of the other half, with an error of its own.

    Args:
        random: The log to estimate from.
        bts: The log of the target.
        rng: Splits the log of the target.
    """

    def __init__(self, random: OpenBanditLog, bts: OpenBanditLog, rng: np.random.Generator):
        half = rng.permutation(len(bts)) < len(bts) // 2
        self._logs = random.logged_data("position")
        self._shares = _shares(bts, half, self._logs.dim)
        rest = bts.clicks[~half]
        self.target_value, self.target_error = float(rest.mean()), float(rest.std() / np.sqrt(len(rest)))
        self.best_value = float("nan")
        groups = random.item_features["item_feature_1"]
        _, clusters = np.unique(groups.astype(str), return_inverse=True)
        K, d = self._logs.n_actions, self._logs.dim
        self.known = Known(
            prior=from_categories(groups, dim=d, effect_std=0.002, action_std=0.002, shared_std=CLICK_RATE),
            unstructured=independent(K, mean=np.full(d, CLICK_RATE), cov=CLICK_RATE**2),
            noise_std=float(np.sqrt(CLICK_RATE * (1 - CLICK_RATE))),
            vectors=np.eye(len(np.unique(clusters)))[clusters],
            learnable=from_categories(groups, dim=d, effect_std=0.002, action_std=0.002, shared_std=CLICK_RATE),
            make_clusters=lambda: clusters.astype(np.int64),
        )

    def log(self, n: int, rng: np.random.Generator) -> LoggedData:
        return self._logs.take(np.sort(rng.permutation(len(self._logs))[:n]))

    def target_on(self, logs: LoggedData) -> Policy:
        return TablePolicy(self._shares[logs.contexts.argmax(axis=1)])

    def value(self, policy: Policy) -> float:
        raise InputError(
            "what another policy would have earned is not known on these logs: only evaluation can be run."
        )


def _shares(log: OpenBanditLog, rows: Array, n_positions: int) -> Float[Array, "p K"]:
    """How often each item was shown at each position."""
    counts = np.zeros((n_positions, len(log.items)))
    np.add.at(counts, (log.positions[rows], log.actions[rows]), 1.0)
    return counts / counts.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class OpenBanditProblem(Problem):
    """See `OpenBanditWorld`.

    Args:
        data: A folder or zip; None for the cache folder.
        campaign: "all", "men" or "women".
    """

    data: str | None = None
    campaign: str = "all"

    @property
    def label(self) -> str:
        return f"Open Bandit, {self.campaign}"

    def draw(self, rng: np.random.Generator) -> OpenBanditWorld:
        (half_rng,) = split(rng, "half")
        random, bts = (_log(self.data, self.campaign, policy) for policy in ("random", "bts"))
        return OpenBanditWorld(random, bts, half_rng)

    def origin(self) -> Origin:
        logs = [_log(self.data, self.campaign, policy) for policy in ("random", "bts")]
        rounds = [part for log in logs for part in (log.items, log.actions, log.positions, log.clicks)]
        return Origin(digest_of(*rounds, logs[0].propensities, logs[0].item_features["item_feature_1"]))


@lru_cache(maxsize=6)
def _log(data: str | None, campaign: str, policy: str) -> OpenBanditLog:
    return load_open_bandit(data_path(data, "obd"), campaign=campaign, policy=policy)
