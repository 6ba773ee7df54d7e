"""Single actions: how far each is drawn towards its category, and which gain and lose most under a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core.catalog import Catalog
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import row_weights
from manyarms.jobs.evaluate import ChoiceShares
from manyarms.linalg.indexing import sum_by
from manyarms.linalg.top_k import row_norms
from manyarms.posterior import RewardPosterior
from manyarms.posterior.posterior import Posterior

SHOWN = 300
"""Actions in a picture of shrinkage: spread evenly over how often they were logged."""
CONTEXTS = 1000
"""Contexts over which the expected reward of an action is taken."""
MOVED = 12
"""Actions that gain most, and as many that lose most."""


@dataclass(frozen=True)
class Shrunk:
    """One action: three guesses of its mean reward on the rounds in which it was logged.

    Attributes:
        action: What it is called.
        category: Its category; empty where there are none.
        n_rounds: How often it was logged, by weight.
        own: The mean of its own rewards.
        posterior: What the posterior expects.
        category_only: What is expected of an action with these effects of which nothing was logged.
    """

    action: str
    category: str
    n_rounds: float
    own: float
    posterior: float
    category_only: float


@dataclass(frozen=True)
class Shrinkage:
    """Some actions, from the least to the most logged.

    Attributes:
        rows: The actions.
        n_actions: How many were logged at all.
    """

    rows: tuple[Shrunk, ...]
    n_actions: int


def shrinkage(
    posterior: RewardPosterior, logs: LoggedData, categories: Sequence[str] | None = None, *, shown: int = SHOWN
) -> Shrinkage:
    """How far actions are drawn from their own mean reward towards what their category says, and with how many rounds.

    Args:
        posterior: The fitted model.
        logs: Rounds, best those of the fit.
        categories: (K,) what the category of every action is called.
        shown: How many actions to show.
    """
    counts = row_weights(logs.weights, len(logs))
    every, per_action = sum_by(logs.actions[counts > 0], counts[counts > 0])
    order = np.argsort(per_action, kind="stable")
    places = np.unique(np.linspace(0, len(every) - 1, min(shown, len(every))).round().astype(int))
    wanted = np.sort(every[order[places]])
    rows = np.flatnonzero(np.isin(logs.actions, wanted) & (counts > 0))
    actions, x, weight = logs.actions[rows], logs.contexts[rows], counts[rows]
    fitted = np.asarray(posterior.expected_reward(x, actions))
    unlogged = _without_own_rounds(posterior, x, actions)
    columns = np.stack([logs.rewards[rows], fitted, unlogged, np.ones(len(rows))], axis=1) * weight[:, None]
    keys, sums = sum_by(actions, columns)
    means = sums[:, :3] / sums[:, 3:]
    found = [
        Shrunk(
            name_of(posterior.catalog, int(action)),
            "" if categories is None else categories[int(action)],
            float(total),
            *(float(value) for value in mean),
        )
        for action, mean, total in zip(keys, means, sums[:, 3], strict=True)
    ]
    return Shrinkage(tuple(sorted(found, key=lambda row: row.n_rounds)), len(every))


def _without_own_rounds(
    posterior: RewardPosterior, x: Float[Array, "n d"], actions: Int[Array, " n"]
) -> Float[Array, " n"]:
    """E g(φᵀ(W_a ψ + c_a + ε_a)) under the posterior of ψ, with ε_a as wide as the prior has it."""
    weights = posterior.weights
    distinct, where = np.unique(actions, return_inverse=True)
    centre = weights.mixing.apply(weights.latent_mean[None], distinct)[0] + weights.offset_of(distinct)
    mean = np.einsum("nd,nd->n", x, centre[where])
    if posterior.likelihood.is_linear:
        return mean

    def unlogged(which: Int[Array, " m"]) -> Float[Array, "m d d"]:
        shared = weights.mixing.cross(weights.latent_factor, which, which)
        return shared + posterior.prior.action_covariance.blocks(which)

    return posterior.likelihood.mean_reward(mean, row_norms(x, actions, unlogged) ** 2)


@dataclass(frozen=True)
class Mover:
    """An action that a policy chooses more or less often than what runs now.

    Attributes:
        action: What it is called.
        category: Its category; empty where there are none.
        n_rounds: How often it was logged, by weight.
        logged: Its share of the rounds.
        chosen: The share of contexts in which the policy chooses it.
        mean_reward: Of its logged rounds; None when it has none.
        expected: What the model expects of it, over the contexts of the logs; None without a model.
    """

    action: str
    category: str
    n_rounds: float
    logged: float
    chosen: float
    mean_reward: float | None
    expected: float | None = None

    @property
    def change(self) -> float:
        """In share of choices."""
        return self.chosen - self.logged


@dataclass(frozen=True)
class Movers:
    """Where a policy moves traffic.

    Attributes:
        policy: Its name.
        rows: The actions that gain most, the largest gain first, then those that lose most, the largest loss last.
        moved: Half the sum of all changes: the share of choices that are others than now.
    """

    policy: str
    rows: tuple[Mover, ...]
    moved: float


def movers(
    name: str,
    choices: ChoiceShares,
    logs: LoggedData,
    *,
    catalog: Catalog | None = None,
    categories: Sequence[str] | None = None,
    posterior: Posterior | None = None,
    shown: int = MOVED,
) -> Movers:
    """The actions that gain and lose most when a policy replaces what runs now.

    Args:
        name: The policy's.
        choices: What it chooses on the contexts of the logs.
        logs: What runs now, in these rounds.
        catalog: What actions are called.
        categories: (K,) what their categories are called.
        posterior: The model, for what it expects of them.
        shown: Actions at either end at most.
    """
    counts = row_weights(logs.weights, len(logs))
    total, K = counts.sum(), logs.n_actions
    rounds = np.bincount(logs.actions, weights=counts, minlength=K)
    rewards = np.bincount(logs.actions, weights=counts * logs.rewards, minlength=K)
    change = -rounds / total
    change[choices.actions] += choices.shares
    order = np.argsort(-change, kind="stable")
    ends = [int(a) for a in order[:shown] if change[a] > 0], [int(a) for a in order[-shown:] if change[a] < 0]
    expected = {} if posterior is None else _expected(posterior, logs, [*ends[0], *ends[1]])
    rows = tuple(
        Mover(
            name_of(catalog, action),
            "" if categories is None else categories[action],
            float(rounds[action]),
            float(rounds[action] / total),
            float(change[action] + rounds[action] / total),
            float(rewards[action] / rounds[action]) if rounds[action] > 0 else None,
            expected.get(action),
        )
        for action in (*ends[0], *ends[1])
    )
    return Movers(name, rows, float(np.abs(change).sum() / 2))


def _expected(posterior: Posterior, logs: LoggedData, actions: Sequence[int]) -> dict[int, float]:
    """Over contexts spread evenly over the log."""
    if not actions:
        return {}
    some = logs.contexts[np.unique(np.linspace(0, len(logs) - 1, min(CONTEXTS, len(logs))).astype(int))]
    x, which = np.tile(some, (len(actions), 1)), np.repeat(np.asarray(actions, dtype=np.int64), len(some))
    means = np.asarray(posterior.expected_reward(x, which)).reshape(len(actions), -1).mean(axis=1)
    return dict(zip(actions, means.tolist(), strict=True))


def name_of(catalog: Catalog | None, action: int) -> str:
    """What an action is called."""
    return str(action) if catalog is None else str(catalog.ids[action])
