"""What was logged and what would be chosen, by category."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core.catalog import encode
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import row_weights
from manyarms.jobs import Evaluation
from manyarms.jobs.evaluate import ChoiceShares

SHOWN = 20
"""Categories that are told apart; the others are summed up."""


@dataclass(frozen=True)
class CategorySupport:
    """One category, or several that are summed up.

    Attributes:
        category: Its label.
        n_actions: How many actions it has.
        n_logged: How many of them were ever logged.
        logged: The share of rounds in which one of them was shown.
        chosen: The share of contexts in which a policy chooses one of them, by policy.
        unsupported: The part of `chosen` on actions never logged, by policy.
    """

    category: str
    n_actions: int
    n_logged: int
    logged: float
    chosen: dict[str, float]
    unsupported: dict[str, float]


@dataclass(frozen=True)
class Support:
    """All categories.

    Attributes:
        rows: Those with the largest shares, then the others as one.
        n_categories: How many there are.
        n_summed: How many of them are in the last row.
    """

    rows: tuple[CategorySupport, ...]
    n_categories: int
    n_summed: int


def support(
    evaluation: Evaluation, logs: LoggedData, categories: Array, *, seen: Array | None = None, shown: int = SHOWN
) -> Support:
    """How rounds and choices fall on categories.

    Args:
        evaluation: What `evaluate` returned.
        logs: The rounds it was made on.
        categories: (K,) a label for every action; None and NaN are "(missing)".
        seen: (K,) which actions were ever logged; by default those of these rounds.
        shown: Categories to tell apart: those with the largest shares, of the log or of any policy.
    """
    codes, labels = category_codes(categories)
    n = len(labels)
    counts = row_weights(logs.weights, len(logs))
    logged = np.bincount(codes[logs.actions], weights=counts, minlength=n) / counts.sum()
    if seen is None:
        seen = np.zeros(len(codes), dtype=bool)
        seen[logs.actions[counts > 0]] = True
    rows = [row for row in evaluation.policies if row.choices is not None]
    chosen = {row.name: _shares(row.choices, codes, n) for row in rows}
    missing = {row.name: _shares(row.choices, codes, n, ~seen) for row in rows}
    largest = np.max([logged, *chosen.values()], axis=0)
    order = np.argsort(-largest, kind="stable")
    kept, rest = order[:shown], order[shown:]
    members, members_seen = np.bincount(codes, minlength=n), np.bincount(codes[seen], minlength=n)

    def record(label: str, which: Int[Array, " m"]) -> CategorySupport:
        return CategorySupport(
            label,
            int(members[which].sum()),
            int(members_seen[which].sum()),
            float(logged[which].sum()),
            {name: float(share[which].sum()) for name, share in chosen.items()},
            {name: float(share[which].sum()) for name, share in missing.items()},
        )

    found = [record(labels[i], np.array([i])) for i in kept]
    if len(rest):
        found.append(record(f"{len(rest):,} others", rest))
    return Support(tuple(found), n, len(rest))


def category_codes(categories: Array) -> tuple[Int[Array, " K"], list[str]]:
    """Labels as numbers, and what they are called; all that are missing are one."""
    found = encode("categories", categories)
    labels = [str(label) for label in found.labels]
    if (found.codes < 0).any():
        return np.where(found.codes < 0, len(labels), found.codes), [*labels, "(missing)"]
    return found.codes, labels


def _shares(
    choices: ChoiceShares | None, codes: Int[Array, " K"], n: int, only: Array | None = None
) -> Float[Array, " n"]:
    assert choices is not None
    weights = choices.shares if only is None else choices.shares * only[choices.actions]
    return np.bincount(codes[choices.actions], weights=weights, minlength=n)
