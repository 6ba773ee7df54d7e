"""Limits on the shares of actions: caps on single actions, budgets of categories, and the prices that make them hold.

The best policy under limits maximises Σ_i q_i Σ_a π(a | x_i) s(x_i, a) subject to A u <= b, where q_i is the weight of
context i and u_a = Σ_i q_i π(a | x_i) the share of action a. This is a linear programme. Its dual has a price for each
limit, and the best policy chooses among the actions with the highest score minus price. Only few pairs of context and
action matter: they are added to the programme as their prices show that they do (column generation), so that no array
of all pairs is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_floats, as_scalar, as_vector, check_overflow, check_rows
from manyarms.core import as_column, encode
from manyarms.core.labels import check_hashable, with_missing
from manyarms.errors import InfeasibleError, InputError, NumericalError, RangeError
from manyarms.linalg.sparse_matrices import shape_of
from manyarms.posterior.action_scores import Scores

FIRST_CONTEXTS = 400
"""Contexts that give the first prices, where there are more."""
CANDIDATES = 4
"""Actions of each context that are added to the programme at a time."""
ROUNDS = 200
"""The most times that actions are added."""
_TIGHT = 1e-9
_NAMED = 5
_CAP = "max_share of action"


@dataclass(frozen=True)
class ShareLimits:
    """Limits A u <= b on the shares u of all actions.

    Attributes:
        names: A name for each limit, for messages.
        usage: (c, K) The use of each limit by a choice of each action.
        limits: (c,) The largest mean use per context.
    """

    names: tuple[str, ...]
    usage: sparse.csr_array
    limits: Float[Array, " c"]

    @classmethod
    def collect(
        cls, n_actions: int, max_share: Any, budgets: Any, costs: Float[Array, " K"], categories: Any
    ) -> ShareLimits:
        """The limits that users give: a cap per action, and budgets per category or for everything."""
        names, rows, limits = list[str](), list[Array](), list[float]()
        labels = None if categories is None else as_column("categories", categories, length=n_actions)
        if labels is not None:
            check_hashable("categories", labels)
        if max_share is not None:
            caps = as_floats("max_share", max_share, ndim=(0, 1))
            caps = np.full(n_actions, float(caps)) if caps.ndim == 0 else as_vector("max_share", caps, length=n_actions)
            check_rows("max_share", caps, lambda cap: cap >= 0, RangeError, "must not be negative", "Pass shares.")
            capped = np.flatnonzero(caps < 1)
            names += [f"{_CAP} {action}" for action in capped]
            identity = sparse.csr_array(
                (np.ones(len(capped)), (np.arange(len(capped)), capped)), shape=(len(capped), n_actions)
            )
            limits += caps[capped].tolist()
        else:
            identity = sparse.csr_array((0, n_actions))
        for name, members, limit in _budgets(n_actions, budgets, labels):
            names.append(name)
            rows.append(np.where(members, costs, 0.0))
            limits.append(limit)
        usage = sparse.vstack([identity, sparse.csr_array(np.array(rows))]) if rows else identity
        return cls(tuple(names), sparse.csr_array(usage), np.array(limits))

    @property
    def scale(self) -> Float[Array, " c"]:
        """(c,) The largest use of each limit by a choice, which makes limits in different units comparable."""
        largest: Any = abs(self.usage).max(axis=1)
        return np.maximum(largest.toarray().reshape(-1), np.finfo(float).tiny)

    def refuse_infeasible(self) -> None:
        """Refuse limits that no shares of actions can meet, naming those in conflict.

        A policy that ignores the context can have any shares, so contexts do not matter.
        """
        if not self.names:
            return
        c, n_actions = shape_of(self.usage)
        slack = sparse.diags_array(-self.scale)
        result = _solved(
            np.concatenate([np.zeros(n_actions), np.ones(c)]),
            sparse.hstack([self.usage, slack]).tocsr(),
            self.limits,
            sparse.csr_array(np.concatenate([np.ones(n_actions), np.zeros(c)])[None]),
            np.ones(1),
        )
        if result.fun <= _TIGHT:
            return
        conflicting = np.flatnonzero(np.asarray(result.ineqlin.marginals) < -_TIGHT)
        raise InfeasibleError(
            f"the limits cannot all hold: every context needs an action, which these do not allow: "
            f"{', '.join(self._listed(conflicting))}.",
            "Raise one of them.",
        )

    def _listed(self, places: Int[Array, " p"]) -> list[str]:
        """Some limits in words: budgets first, and many caps as one."""
        is_cap = np.array([self.names[place].startswith(_CAP) for place in places])
        caps, budgets = places[is_cap], places[~is_cap]
        words = [f"{self.names[place]} ({self.limits[place]:.3g})" for place in budgets[:_NAMED]]
        if len(budgets) > _NAMED:
            words.append(f"{len(budgets) - _NAMED:,} other budgets")
        if len(caps) <= _NAMED:
            return [*words, *(f"{self.names[place]} ({self.limits[place]:.3g})" for place in caps)]
        own = self.limits[caps]
        each = f"{own[0]:.3g} each, " if np.ptp(own) == 0 else ""
        return [*words, f"max_share of {len(caps):,} actions ({each}{own.sum():.3g} in all)"]


def _budgets(n_actions: int, budgets: Any, categories: Array | None) -> list[tuple[str, Array, float]]:
    """The name, the members and the limit of each budget."""
    if budgets is None:
        return []
    if not isinstance(budgets, Mapping):
        return [("the budget", np.ones(n_actions, dtype=bool), as_scalar("budgets", budgets))]
    if categories is None:
        raise InputError(
            "by category need the categories of the actions.", "Pass categories=, or fit with a catalog.",
            argument="budgets",
        )  # fmt: skip
    codes, labels, _ = with_missing(encode("categories", categories))
    known = {str(label): place for place, label in enumerate(labels)}
    out = list[tuple[str, Array, float]]()
    for name, limit in budgets.items():
        if str(name) not in known:
            some = ", ".join(list(known)[:10])
            raise InputError(f"has no category {str(name)!r}; there are {some}.", argument="budgets")
        members = codes == known[str(name)]
        out.append((f"the budget of {name}", members, as_scalar(f"the budget of {name}", limit)))
    return out


@dataclass(frozen=True)
class PricedShares:
    """The best shares of actions under limits, found by giving every action a price.

    Attributes:
        prices: (K,) The price of each action: choices are those with the highest score minus price.
        chosen: (n, K) The probabilities of the chosen actions of each context, as a sparse matrix.
        limit_prices: (c,) The price of each limit: what one more unit of it would add to the mean score.
    """

    prices: Float[Array, " K"]
    chosen: sparse.csr_array
    limit_prices: Float[Array, " c"]


def price_shares(
    scores: Scores, limits: ShareLimits, contexts: Float[Array, "n d"], weights: Float[Array, " n"]
) -> PricedShares:
    """The best policy under limits.

    Args:
        scores: The scores to maximise.
        limits: The limits, which some shares can meet.
        contexts: Distinct contexts.
        weights: The weight of each.
    """
    limits.refuse_infeasible()
    start = np.zeros(len(limits.names))
    if len(contexts) > FIRST_CONTEXTS and len(limits.names):
        # Prices of a few contexts are near those of all, so that few actions of all contexts need to be tried.
        some = np.unique(np.linspace(0, len(contexts) - 1, FIRST_CONTEXTS).astype(np.int64))
        start = _priced(scores, limits, contexts[some], weights[some], start).limit_prices
    return _priced(scores, limits, contexts, weights, start)


def _priced(
    scores: Scores,
    limits: ShareLimits,
    contexts: Float[Array, "n d"],
    weights: Float[Array, " n"],
    start: Float[Array, " c"],
) -> PricedShares:
    n, n_actions = len(contexts), scores.n_actions
    weights = weights * (n / weights.sum())
    offered, penalty = _Offers(scores, contexts), 1.0
    limit_prices = start
    for _ in range(ROUNDS):
        prices = limits.usage.T @ limit_prices
        is_new = offered.extend(prices)
        if not is_new and offered.result is not None:
            if not len(limits.names) or offered.slack <= _TIGHT * n:
                return PricedShares(prices, offered.chosen(n_actions), limit_prices)
            # Limits that can be met are not, so breaking them is still too cheap.
            penalty *= 100.0
        limit_prices = offered.solve(limits, weights, penalty)
    raise NumericalError("the shares of actions under these limits were not found.", "Use fewer contexts or limits.")


class _Offers:
    """The pairs of context and action that are in the programme."""

    def __init__(self, scores: Scores, contexts: Float[Array, "n d"]):
        self._priced, self._contexts, self._scores = PricedScores(scores, np.zeros(scores.n_actions)), contexts, scores
        self._pairs = np.empty(0, dtype=np.int64)
        self._values = np.empty(0)
        self.result: Any = None
        self.slack = np.inf

    @property
    def _rows(self) -> Int[Array, " p"]:
        return self._pairs // self._scores.n_actions

    @property
    def _actions(self) -> Int[Array, " p"]:
        return self._pairs % self._scores.n_actions

    def extend(self, prices: Float[Array, " K"]) -> bool:
        """Add the pairs that are worth more than those there; False if there are none."""
        n, K = len(self._contexts), self._scores.n_actions
        best = PricedScores(self._scores, prices).best(self._contexts, min(CANDIDATES, K), None)
        rows, actions = np.repeat(np.arange(n), best.shape[1]), best.reshape(-1)
        new = np.setdiff1d(rows * K + actions, self._pairs)
        if not len(new):
            return False
        values = self._scores.score_pairs(self._contexts[new // K], new % K)
        if self.result is not None:
            own = np.full(n, -np.inf)
            np.maximum.at(own, self._rows, self._values - prices[self._actions])
            scale = max(1.0, float(np.abs(values).max()))
            worth = values - prices[new % K] > own[new // K] + _TIGHT * scale
            if not worth.any():
                return False
            # With one that is worth it, those of the same context that follow may soon be.
            kept = np.isin(new // K, new[worth] // K)
            new, values = new[kept], values[kept]
        self._pairs, self._values = np.concatenate([self._pairs, new]), np.concatenate([self._values, values])
        return True

    def solve(self, limits: ShareLimits, weights: Float[Array, " n"], penalty: float) -> Float[Array, " c"]:
        """Solve the programme with the pairs that are there, and return the prices of the limits."""
        n, p, c = len(weights), len(self._pairs), len(limits.names)
        use = limits.usage[:, self._actions] @ sparse.diags_array(weights[self._rows])
        each = sparse.csr_array((np.ones(p), (self._rows, np.arange(p))), shape=(n, p))
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(np.ptp(self._values)) or 1.0
            cost = np.concatenate([-weights[self._rows] * self._values, np.full(c, penalty * 10.0 * spread)])
        self.result = _solved(
            check_overflow("scores times weights", cost),
            sparse.hstack([use, sparse.diags_array(-limits.scale)]).tocsr() if c else None,
            limits.limits * n if c else None,
            sparse.hstack([each, sparse.csr_array((n, c))]).tocsr(),
            np.ones(n),
        )
        self.slack = float(self.result.x[p:].sum()) if c else 0.0
        return np.maximum(-np.asarray(self.result.ineqlin.marginals), 0.0) if c else np.zeros(0)

    def chosen(self, n_actions: int) -> sparse.csr_array:
        """The probabilities of the solution."""
        shares = np.maximum(self.result.x[: len(self._pairs)], 0.0)
        kept = shares > _TIGHT
        table = sparse.csr_array(
            (shares[kept], (self._rows[kept], self._actions[kept])), shape=(len(self._contexts), n_actions)
        )
        totals = np.asarray(table.sum(axis=1)).reshape(-1)
        return sparse.csr_array(sparse.diags_array(1.0 / totals) @ table)


class PricedScores(Scores):
    """Scores of actions minus the price that share limits put on each."""

    all_at_once = True

    def __init__(self, scores: Scores, prices: Float[Array, " K"]):
        self._scores, self._prices, self.n_actions = scores, prices, scores.n_actions

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return self._scores.score_pairs(contexts, actions) - self._prices[actions]

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        return self._scores.score_all(contexts) - self._prices


def _solved(cost: Array, upper: Any, limits: Any, equal: Any, totals: Array) -> Any:
    """The solution of a linear programme by HiGHS, which has one."""
    from scipy.optimize import linprog  # noqa: PLC0415  slow to import

    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result: Any = linprog(cost, A_ub=upper, b_ub=limits, A_eq=equal, b_eq=totals, method="highs", options=tight)
    if result.x is None:
        raise NumericalError(f"the linear programme was not solved: {result.message}", "Rescale the rewards.")
    return result
