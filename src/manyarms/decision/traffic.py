"""The traffic of a policy compared with the log: shares by category, and the actions that gain and lose most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core.catalog import Catalog, encode
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import row_weights
from manyarms.jobs import Evaluation
from manyarms.jobs.evaluate import ChoiceShares
from manyarms.posterior.posterior import Posterior
from manyarms.priors.prior_builder import with_missing

SHOWN_CATEGORIES = 20
"""Categories listed one by one; the others are added up."""
SHOWN_ACTIONS = 12
"""Actions listed that gain most, and as many that lose most."""
CONTEXTS = 1000
"""Contexts over which the expected reward of an action is averaged."""


class Categories:
    """The category of every action. Missing labels (None, NaN) form one category, the last.

    Attributes:
        codes: (K,) the category of each action as a number.
        labels: The label of each category.
        names: (K,) the label of each action.
    """

    def __init__(self, column: Array):
        self.codes, labels, _ = with_missing(encode("categories", column))
        self.labels = [str(label) for label in labels]
        self.names: list[str] = np.array(self.labels, dtype=object)[self.codes].tolist()


@dataclass(frozen=True)
class CategorySupport:
    """Logged rounds and choices in one category, or in several that are added up.

    Attributes:
        category: The label of the category.
        n_actions: The number of its actions.
        n_logged: The number of those that were ever logged.
        logged: The share of logged rounds that show one of its actions.
        chosen: The share of contexts in which each policy chooses one of its actions.
        unsupported: The part of `chosen` on actions that were never logged.
    """

    category: str
    n_actions: int
    n_logged: int
    logged: float
    chosen: dict[str, float]
    unsupported: dict[str, float]


@dataclass(frozen=True)
class Support:
    """Logged rounds and choices by category.

    Attributes:
        rows: The categories with the largest shares, then all others as one row.
        n_summed: The number of categories added up in the last row.
    """

    rows: tuple[CategorySupport, ...]
    n_summed: int


def support(
    evaluation: Evaluation,
    logs: LoggedData,
    categories: Categories,
    *,
    seen: Array | None = None,
    shown: int = SHOWN_CATEGORIES,
) -> Support:
    """The shares of logged rounds and of choices that fall on each category.

    Args:
        evaluation: The result of `evaluate` on these logs.
        logs: Logged rounds.
        categories: The category of every action, and all labels.
        seen: (K,) True for actions that were ever logged; None for those in `logs`.
        shown: The number of categories to list: those with the largest share in the log or under any policy.
    """
    codes, labels = categories.codes, categories.labels
    n = len(labels)
    counts = row_weights(logs.weights, len(logs))
    logged = np.bincount(codes[logs.actions], weights=counts, minlength=n) / counts.sum()
    if seen is None:
        seen = np.zeros(len(codes), dtype=bool)
        seen[logs.actions[counts > 0]] = True
    choices = {row.name: row.choices for row in evaluation.policies if row.choices is not None}
    chosen = {name: _category_shares(own, codes, n) for name, own in choices.items()}
    unsupported = {name: _category_shares(own, codes, n, ~seen) for name, own in choices.items()}
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

    rows = [row(labels[i], np.array([i])) for i in order[:shown]]
    if len(rest):
        rows.append(row(f"{len(rest):,} others", rest))
    return Support(tuple(rows), len(rest))


def _category_shares(
    choices: ChoiceShares, codes: Int[Array, " K"], n: int, only: Array | None = None
) -> Float[Array, " n"]:
    weights = choices.shares if only is None else choices.shares * only[choices.actions]
    return np.bincount(codes[choices.actions], weights=weights, minlength=n)


@dataclass(frozen=True)
class TrafficChange:
    """An action that a policy chooses more or less often than the current policy.

    Attributes:
        action: The id of the action.
        category: Its category; empty where there are none.
        n_rounds: Its logged rounds, by weight.
        logged: Its share of the logged rounds.
        chosen: The share of contexts in which the policy chooses it.
        mean_reward: The mean reward of its logged rounds; None when it has none.
        expected: Its expected reward under the model, averaged over logged contexts; None without a model.
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
        """The change of its share of choices."""
        return self.chosen - self.logged


@dataclass(frozen=True)
class TrafficChanges:
    """The actions whose traffic changes most when a policy replaces the current one.

    Attributes:
        policy: The name of the policy.
        rows: The actions that gain most, largest gain first, then those that lose most, largest loss last.
        moved: Half the sum of all absolute changes: the policy differs in at least this share of rounds.
    """

    policy: str
    rows: tuple[TrafficChange, ...]
    moved: float


def traffic_changes(
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
    actions = [int(a) for a in order[:SHOWN_ACTIONS] if change[a] > 0]
    actions += [int(a) for a in order[-SHOWN_ACTIONS:] if change[a] < 0]
    expected = {} if posterior is None else _expected_rewards(posterior, logs, actions)
    rows = tuple(
        TrafficChange(
            action_name(logs.catalog, action),
            "" if categories is None else categories.names[action],
            float(rounds[action]),
            float(rounds[action] / total),
            float(change[action] + rounds[action] / total),
            float(rewards[action] / rounds[action]) if rounds[action] > 0 else None,
            expected.get(action),
        )
        for action in actions
    )
    return TrafficChanges(name, rows, float(np.abs(change).sum() / 2))


def _expected_rewards(posterior: Posterior, logs: LoggedData, actions: Sequence[int]) -> dict[int, float]:
    """The expected reward of each action, averaged over contexts spread evenly over the log."""
    if not actions:
        return {}
    contexts = logs.contexts[np.unique(np.linspace(0, len(logs) - 1, min(CONTEXTS, len(logs))).astype(int))]
    x, repeated = np.tile(contexts, (len(actions), 1)), np.repeat(np.asarray(actions, dtype=np.int64), len(contexts))
    means = np.asarray(posterior.expected_reward(x, repeated)).reshape(len(actions), -1).mean(axis=1)
    return dict(zip(actions, means.tolist(), strict=True))


def action_name(catalog: Catalog | None, action: int) -> str:
    """The id of an action in the catalog, or its number where there is no catalog."""
    return str(action) if catalog is None else str(catalog.ids[action])
