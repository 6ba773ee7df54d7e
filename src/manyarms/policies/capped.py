"""A greedy policy under limits: caps on the shares of actions, and budgets of categories."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_scalar, as_vector, frozen, row_weights
from manyarms.core import Choices
from manyarms.core.feature_map import as_contexts
from manyarms.errors import InputError, ShapeError
from manyarms.model_file.part_checks import floats, indices
from manyarms.policies.scored_policy import ScoredPolicy, follow
from manyarms.policies.share_limits import PricedScores, ShareLimits, price_shares
from manyarms.posterior.action_scores import Scores
from manyarms.posterior.posterior import Posterior


class CappedPolicy(ScoredPolicy):
    """The policy with the highest expected reward among those that keep to caps and budgets.

    π(x) = argmax_a E r(x, a) - price_a. The prices are those of a linear programme over the given contexts: zero for an
    action whose caps and budgets are not used up. On the given contexts all limits hold exactly, since ties are
    broken by the probabilities of the programme; on other contexts like them they hold about as well as these
    contexts are a sample of them. With `eligible=` the best action by score minus price is chosen, and limits need not
    hold.

    Args:
        posterior: Any posterior, such as `fit` returns.
        contexts: (n, d), or a table: the contexts on which the limits are to hold.
        max_share: The largest share of the contexts that an action may get: one number, or (K,).
        budgets: The largest cost per context, in all or by category, as in {"wine": 0.2}. Without `costs` every choice
            costs 1, so the budget of a category is its largest share.
        costs: (K,) The cost of each action.
        price: The reward that one unit of cost is worth: it is subtracted from the expected reward. 1 if costs are in
            the unit of the reward; 0 if only budgets matter.
        categories: (K,) The category labels of the actions; None for those of the catalog.
        weights: (n,) How often each context counts; None for once.

    Raises:
        InfeasibleError: If no policy can meet all limits; the message names those in conflict.
    """

    saved_as = "capped"
    saved_fields = ("posterior", "prices", "tied_contexts", "tied_starts", "tied_actions", "tied_shares")
    saved_checks: ClassVar = {
        "prices": floats(1),
        "tied_contexts": floats(2),
        "tied_starts": indices(),
        "tied_actions": indices(),
        "tied_shares": floats(1),
    }

    def __init__(
        self,
        posterior: Posterior,
        contexts: Any,
        *,
        max_share: Any = None,
        budgets: Any = None,
        costs: Any = None,
        price: float = 0.0,
        categories: Any = None,
        weights: Any = None,
    ):
        self.posterior = follow(self, posterior)
        x = as_contexts(contexts, posterior.features, columns=posterior.dim)
        if len(x) == 0:
            raise ShapeError("must have at least one row.", argument="contexts")
        price = as_scalar("price", price, at_least=0.0)
        if price > 0 and costs is None:
            raise InputError("needs the costs that it is the price of.", "Pass costs=.", argument="price")
        spent = np.ones(self.n_actions) if costs is None else as_vector("costs", costs, length=self.n_actions)
        known = None if posterior.catalog is None else posterior.catalog.categories
        limits = ShareLimits.collect(
            self.n_actions, max_share, budgets, spent, known if categories is None else categories
        )
        distinct, codes = np.unique(x + 0.0, axis=0, return_inverse=True)
        counts = np.bincount(codes.reshape(-1), row_weights(weights, len(x)), len(distinct))
        distinct, counts = distinct[counts > 0], counts[counts > 0]
        own = price * spent if price > 0 else np.zeros(self.n_actions)
        solution = price_shares(PricedScores(posterior.expected_rewards, own), limits, distinct, counts)
        self.prices: Float[Array, " K"] = frozen(solution.prices + own)
        self.limit_prices = dict(zip(limits.names, solution.limit_prices.tolist(), strict=True))
        self._keep_ties(distinct, solution.chosen)

    def _keep_ties(self, contexts: Float[Array, "n d"], chosen: sparse.csr_array) -> None:
        """Keep the probabilities of contexts whose choice is not simply the best action by score minus price."""
        best = self._ranked(contexts, None, 1)[:, 0]
        first = np.full(len(contexts), -1)
        alone = np.diff(chosen.indptr) == 1
        first[alone] = chosen.indices[chosen.indptr[:-1][alone]]
        tied = np.flatnonzero(best != first)
        table = sparse.csr_array(chosen[tied])
        table.sort_indices()
        self.tied_contexts = frozen(contexts[tied])
        self.tied_starts = frozen(table.indptr.astype(np.int64))
        self.tied_actions, self.tied_shares = frozen(table.indices.astype(np.int64)), frozen(table.data)

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> CappedPolicy:
        out = object.__new__(cls)
        follow(out, parts["posterior"])
        for name in cls.saved_fields:
            setattr(out, name, parts[name])
        out.limit_prices = {}
        return out

    def consistent(self) -> bool:
        """True if the prices are those of all actions, and the ties those of contexts of the right size."""
        starts, n = self.tied_starts, len(self.tied_contexts)
        return (
            len(self.prices) == self.n_actions
            and self.tied_contexts.shape[1:] == (self.dim,)
            and len(starts) == n + 1
            and len(self.tied_actions) == len(self.tied_shares) == starts[-1]
            and bool((np.diff(starts) > 0).all() and starts[0] == 0)
            and bool((self.tied_shares >= 0).all())
            and bool(((self.tied_actions >= 0) & (self.tied_actions < self.n_actions)).all())
        )

    @property
    def scores(self) -> Scores:
        """Expected rewards minus prices."""
        return PricedScores(self.posterior.expected_rewards, self.prices)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        best = super().choices(contexts, eligible)
        if eligible is not None or not len(self.tied_contexts):
            return best
        place = _find_rows(self.tied_contexts, contexts)
        tied = np.flatnonzero(place >= 0)
        if not len(tied) or best.named is None:
            return best
        shape = (len(self.tied_contexts), self.n_actions)
        table = sparse.csr_array((self.tied_shares, self.tied_actions, self.tied_starts), shape=shape)
        is_free = sparse.diags_array((place < 0).astype(float))
        ones = np.ones(len(tied))
        moved = sparse.csr_array((ones, (tied, place[tied])), shape=(len(contexts), len(self.tied_contexts)))
        named = sparse.csr_array(is_free @ best.named + moved @ table)
        named.eliminate_zeros()
        named.sort_indices()
        return Choices(len(contexts), self.n_actions, named=named)


def _find_rows(table: Float[Array, "m d"], rows: Float[Array, "n d"]) -> Int[Array, " n"]:
    """The place of each row in a table of distinct rows; -1 where it is not there."""
    joined = np.concatenate([table, rows + 0.0])
    distinct, codes = np.unique(joined, axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    place = np.full(len(distinct), -1)
    place[codes[: len(table)]] = np.arange(len(table))
    return place[codes[len(table) :]]
