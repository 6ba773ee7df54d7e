"""The choices of a policy in a block of rows: a few named actions, a distribution that rows share, or all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.linalg.indexing import chunks
from manyarms.linalg.sparse_matrices import pair_rows, shape_of, shared_set
from manyarms.linalg.top_k import best_of_pairs


class RowError(Exception):
    """Choices in a block are impossible in one row; `Policy.blocks` turns this into an error with the row's number."""

    def __init__(self, row: int, problem: str):
        super().__init__(problem)
        self.row, self.problem = row, problem


@dataclass(frozen=True)
class Choices:
    """π(· | x_i) for the rows of a block, as the sum of up to three parts.

    Attributes:
        n_rows: Number of rows in the block.
        n_actions: K.
        named: (n, K) sparse probabilities of the actions that a row singles out.
        everywhere: (K,) probabilities that all rows share.
        dense: (n, K) probabilities in full, for policies that have no shorter form.
    """

    n_rows: int
    n_actions: int
    named: sparse.csr_array | None = None
    everywhere: Float[Array, " K"] | None = None
    dense: Float[Array, "n K"] | None = None

    @classmethod
    def of_actions(cls, actions: Int[Array, " n"], n_actions: int) -> Choices:
        """One action per row, with probability one."""
        n = len(actions)
        named = sparse.csr_array((np.ones(n), actions, np.arange(n + 1)), shape=(n, n_actions))
        return cls(n, n_actions, named=named)

    @classmethod
    def of_shared(cls, probabilities: Float[Array, " K"], n_rows: int, eligible: sparse.csr_array | None) -> Choices:
        """One distribution for every row, renormalised over the actions eligible there."""
        if eligible is None:
            return cls(n_rows, len(probabilities), everywhere=probabilities)
        shared = shared_set(eligible)
        if shared is not None and probabilities[shared].any():
            kept = np.zeros_like(probabilities)
            kept[shared] = probabilities[shared] / probabilities[shared].sum()
            return cls(n_rows, len(probabilities), everywhere=kept)
        weight = probabilities[eligible.indices]
        rows = pair_rows(eligible)
        total = np.bincount(rows, weights=weight, minlength=n_rows)
        if n_rows and total.min() <= 0:
            raise RowError(int(np.argmin(total)), "gives probability zero to every eligible action")
        named = sparse.csr_array((weight / total[rows], eligible.indices, eligible.indptr), shape=eligible.shape)
        return cls(n_rows, len(probabilities), named=named)

    @classmethod
    def of_table(cls, table: sparse.csr_array | Float[Array, "n K"], eligible: sparse.csr_array | None) -> Choices:
        """The probabilities of a table with a row for each context, renormalised over the actions eligible there."""
        n, n_actions = shape_of(table)
        if eligible is not None:
            kept = sparse.csr_array(eligible.multiply(table))
            kept.eliminate_zeros()
            totals = np.asarray(kept.sum(axis=1)).reshape(-1)
            if n and totals.min() <= 0:
                raise RowError(int(np.argmin(totals)), "gives probability zero to every eligible action")
            kept.data /= np.repeat(totals, np.diff(kept.indptr))
            return cls(n, n_actions, named=kept)
        if isinstance(table, np.ndarray):
            return cls(n, n_actions, dense=table)
        return cls(n, n_actions, named=table)

    def mixed(self, share: float, other: Choices) -> Choices:
        """The mixture that follows `other` with probability `share`, and these choices otherwise."""
        parts: dict[str, Array | sparse.csr_array | None] = {}
        for name in ("named", "everywhere", "dense"):
            first, second = getattr(self, name), getattr(other, name)
            first = None if first is None else first * (1.0 - share)
            second = None if second is None else second * share
            parts[name] = second if first is None else first if second is None else first + second
        return Choices(self.n_rows, self.n_actions, **parts)  # pyright: ignore[reportArgumentType]

    def probability_of(self, actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """π(a_i | x_i), one action per row."""
        rows = np.arange(self.n_rows)
        out = np.zeros(self.n_rows)
        if self.named is not None:
            out += np.asarray(self.named[rows, actions]).reshape(-1)
        if self.everywhere is not None:
            out += self.everywhere[actions]
        if self.dense is not None:
            out += self.dense[rows, actions]
        return out

    def probability_of_sets(self, sets: sparse.csr_array, which: Int[Array, " n"]) -> Float[Array, " n"]:
        """Σ_a π(a | x_i) over the actions of the set `which[i]`."""
        out = np.zeros(self.n_rows)
        if self.named is not None and self.named.nnz:
            rows = pair_rows(self.named)
            inside = np.asarray(sets[which[rows], self.named.indices]).reshape(-1)
            out += np.bincount(rows, weights=inside * self.named.data, minlength=self.n_rows)
        if self.everywhere is not None:
            out += (sets @ self.everywhere)[which]
        if self.dense is not None:
            out += np.asarray(sets[which].multiply(self.dense).sum(axis=1)).reshape(-1)
        return out

    def probabilities(self) -> Float[Array, "n K"]:
        """π(a | x_i) of all actions, in full."""
        out = np.zeros((self.n_rows, self.n_actions))
        if self.named is not None:
            out += self.named.toarray()
        if self.everywhere is not None:
            out += self.everywhere
        if self.dense is not None:
            out += self.dense
        return out

    def unnamed_shares(self, rows: slice, columns: Any) -> Float[Array, "b c"]:
        """π(a | x_i) of some rows and actions, without what is given action by action."""
        out = np.zeros((rows.stop - rows.start, len(np.arange(self.n_actions)[columns])))
        if self.everywhere is not None:
            out += self.everywhere[columns]
        if self.dense is not None:
            out += self.dense[rows][:, columns]
        return out

    def mode(self) -> Int[Array, " n"]:
        """The most probable action of each row, the lowest number among equals."""
        if self.dense is not None:
            return self.probabilities().argmax(axis=1)
        best, value = np.zeros(self.n_rows, dtype=np.int64), np.full(self.n_rows, -1.0)
        if self.everywhere is not None:
            shared = int(self.everywhere.argmax())
            best[:], value[:] = shared, self.everywhere[shared]
        if self.named is not None:
            rows = pair_rows(self.named)
            actions, data = self.named.indices, np.asarray(self.named.data, dtype=float)
            if self.everywhere is not None:
                data = data + self.everywhere[actions]
            order = np.lexsort((actions, -data, rows))
            first = order[np.unique(rows[order], return_index=True)[1]]
            better = data[first] > value[rows[first]]
            best[rows[first[better]]] = actions[first[better]]
        return best

    def sample(self, rng: np.random.Generator) -> Int[Array, " n"]:
        """One action per row, drawn by inverting the cumulative probabilities of the parts one after the other."""
        self._refuse_undefined()
        out = np.full(self.n_rows, -1, dtype=np.int64)
        level = rng.random(self.n_rows)
        if self.named is not None:
            alone = self.everywhere is None and self.dense is None
            level = _invert_named(self.named, level, out, alone)
        if self.everywhere is not None:
            open_rows = np.flatnonzero(out < 0)
            total = np.cumsum(self.everywhere)
            hit = np.searchsorted(total, level[open_rows], side="right")
            if self.dense is None and total[-1] > 0:
                hit = np.minimum(hit, int(np.flatnonzero(self.everywhere)[-1]))
            inside = hit < self.n_actions
            out[open_rows[inside]] = hit[inside]
            level[open_rows] -= total[-1]
        if self.dense is not None:
            open_rows = np.flatnonzero(out < 0)
            for part in chunks(len(open_rows), 64):
                rows = open_rows[part]
                total = np.cumsum(self.dense[rows], axis=1)
                # Rounding may leave the last cumulative sum just below the level drawn.
                hit = (total <= np.minimum(level[rows], np.nextafter(total[:, -1], 0.0))[:, None]).sum(axis=1)
                out[rows] = np.minimum(hit, self.n_actions - 1)
        return out

    def _refuse_undefined(self) -> None:
        """Refuse probabilities that are not numbers: an action drawn from them would look like any other."""
        problem = "has probabilities that are not numbers"
        if self.named is not None and np.isnan(self.named.data.sum()):
            raise RowError(int(pair_rows(self.named)[np.isnan(self.named.data)][0]), problem)
        if self.everywhere is not None and np.isnan(self.everywhere.sum()):
            raise RowError(0, problem)
        if self.dense is not None and np.isnan(self.dense.sum()):
            raise RowError(int(np.argmax(np.isnan(self.dense).any(axis=1))), problem)

    def top_k(self, k: int) -> Int[Array, "n k"]:
        """The k most probable actions of each row, most probable first; -1 pads a row with fewer."""
        if self.everywhere is None and self.dense is None and self.named is not None:
            positive = self.named.copy()
            positive.eliminate_zeros()
            return best_of_pairs(positive.data, positive.indptr, positive.indices, k)
        if self.named is None and self.dense is None and self.everywhere is not None:
            return np.tile(_most_probable(self.everywhere[None], k), (self.n_rows, 1))
        # In chunks: a block may have many more rows than fit into memory in full.
        out = np.empty((self.n_rows, k), dtype=np.int64)
        for rows in chunks(self.n_rows, max(1, (1 << 22) // self.n_actions)):
            named = None if self.named is None else self.named[rows]
            dense = None if self.dense is None else self.dense[rows]
            part = Choices(rows.stop - rows.start, self.n_actions, named, self.everywhere, dense)
            out[rows] = _most_probable(part.probabilities(), k)
        return out

    def expected(self, features: Float[Array, "n d"], means: Float[Array, "K d"]) -> Float[Array, " n"]:
        """Σ_a π(a | x_i) φ(x_i)ᵀ θ̂_a, row by row."""
        out = np.zeros(self.n_rows)
        if self.named is not None:
            rows = pair_rows(self.named)
            for i in range(0, self.named.nnz, _PAIRS):
                part = slice(i, i + _PAIRS)
                score = np.einsum("pd,pd->p", features[rows[part]], means[self.named.indices[part]])
                out += np.bincount(rows[part], weights=score * self.named.data[part], minlength=self.n_rows)
        if self.everywhere is not None:
            out += features @ (self.everywhere @ means)
        if self.dense is not None:
            out += np.einsum("nd,nd->n", self.dense @ means, features)
        return out


def _invert_named(
    named: sparse.csr_array, level: Float[Array, " n"], out: Int[Array, " n"], alone: bool
) -> Float[Array, " n"]:
    """Fill `out` where the level falls within the named part (everywhere if it is `alone`); returns the levels left."""
    counts = np.diff(named.indptr)
    total = np.concatenate([[0.0], np.cumsum(named.data)])
    start, end = total[named.indptr[:-1]], total[named.indptr[1:]]
    slot = np.searchsorted(total, start + level, side="right") - 1
    mass = end - start
    inside = (level < mass) & (counts > 0)
    # A row whose named part holds all probability must not fall through because its sum was rounded.
    inside |= (counts > 0) & (alone | (mass > 1.0 - 1e-9))
    last = named.indptr[1:] - 1
    out[inside] = named.indices[np.clip(slot, named.indptr[:-1], last)[inside]]
    return level - mass


def _most_probable(probabilities: Float[Array, "n K"], k: int) -> Int[Array, "n k"]:
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    return np.where(np.take_along_axis(probabilities, order, axis=1) > 0, order, -1)


_PAIRS = 1 << 17


@dataclass(frozen=True, eq=False)
class ChoiceShares:
    """The actions that a policy ever chooses, ascending, and the share of contexts in which it chooses each."""

    actions: Int[Array, " m"]
    shares: Float[Array, " m"]
