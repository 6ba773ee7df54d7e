"""Sparse block Cholesky factors: a positive definite matrix of small blocks, most of them zero, eliminated in layers.

A layer is a set of nodes that do not touch one another, so that all of them are eliminated at once, in batched
products. The leaves of a tree are one layer, their parents the next, and nothing fills in. When layers become thin,
because nearly every node touches every other, the nodes left form the core: one dense matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.linalg import solve_triangular

from manyarms._base.checks import Array
from manyarms.linalg.factor_and_solve import solve_lower, solve_lower_t
from manyarms.linalg.indexing import all_pairs, chunks, sum_by
from manyarms.linalg.sparse_matrices import pair_rows
from manyarms.model_file.part_checks import floats, indices, instance_of, is_count, tuple_of
from manyarms.model_file.save import Saved

MAX_DEGREE = 64
"""A node that touches more nodes than this is left to the core: eliminating it would fill in their square."""
THIN = 8
"""Layers stop when fewer than one in THIN of the remaining nodes could be eliminated together."""


@dataclass(frozen=True)
class EliminationLayer(Saved):
    """Nodes of a block Cholesky factor that are eliminated together, in one step."""

    saved_as = "layer"
    saved_checks: ClassVar = {
        **dict.fromkeys(("nodes", "left", "right", "target"), indices()),
        "entries": lambda part: tuple_of(is_count)(part) and len(part) == 2 and part[0] <= part[1],
    }
    nodes: Int[Array, " m"]
    entries: tuple[int, int]
    """The first and the end of their entries below the diagonal, as positions in `EliminationPlan.rows`."""
    left: Int[Array, " q"]
    right: Int[Array, " q"]
    target: Int[Array, " q"]
    """Block `target` loses the product of entry `left` with entry `right` transposed."""


class EliminationPlan(Saved):
    """The plan of a block Cholesky: the order in which nodes are eliminated, and the positions of the factor's blocks.

    One array holds the blocks: the diagonal of every node, the entries below the diagonal, then the core row by row.

    Attributes:
        n_nodes: Number of nodes.
        layers: The nodes of each step.
        core: The nodes of the core, in the order of its dense factor.
        order: All nodes in the order of elimination, the core last.
        rank: The position of each node in `order`.
        rows: The node eliminated later, for every entry below the diagonal.
        columns: The node eliminated earlier, for every entry below the diagonal.
        core_place: The position of each node in the core; -1 for nodes outside it.
    """

    saved_as = "plan"
    saved_as_attributes = True
    saved_fields = (
        "n_nodes", "core", "order", "rank", "rows", "columns", "_by_code", "_codes", "core_place", "layers"
    )  # fmt: skip

    saved_checks: ClassVar = {
        "n_nodes": is_count,
        "core_place": indices(at_least=-1),
        "layers": tuple_of(instance_of(EliminationLayer)),
        **dict.fromkeys(("core", "order", "rank", "rows", "columns", "_by_code", "_codes"), indices()),
    }

    def __init__(self, n_nodes: int, first: Int[Array, " e"], second: Int[Array, " e"]):
        self.n_nodes = n_nodes
        picked, structures, self.core = _layers(n_nodes, first, second)
        self.order = np.concatenate([*picked, self.core])
        self.rank = np.empty(n_nodes, dtype=np.int64)
        self.rank[self.order] = np.arange(n_nodes)
        self.rows = np.concatenate([rows for _, rows in structures] or [self.core[:0]])
        self.columns = np.concatenate([columns for columns, _ in structures] or [self.core[:0]])
        codes = self.columns * n_nodes + self.rows
        self._by_code = np.argsort(codes)
        self._codes = codes[self._by_code]
        self.core_place = np.full(n_nodes, -1, dtype=np.int64)
        self.core_place[self.core] = np.arange(len(self.core))
        edges = np.cumsum([0, *(len(rows) for _, rows in structures)])
        self.layers = tuple(
            self._layer(nodes, int(low), int(high))
            for nodes, low, high in zip(picked, edges[:-1], edges[1:], strict=True)
        )

    def consistent(self) -> bool:
        """True if it is the plan of some elimination: positions exist, and every step leads to a later layer."""
        n, entries, c = self.n_nodes, len(self.rows), len(self.core)
        lengths = {len(part) for part in (self.order, self.rank, self.core_place)}
        if lengths != {n} or any(len(part) != entries for part in (self.columns, self._by_code, self._codes)):
            return False
        if any(part.max(initial=-1) >= n for part in (self.core, self.order, self.rows, self.columns)):
            return False
        step = np.full(n, -1)
        for number, layer in enumerate(self.layers):
            pairs = max(part.max(initial=-1) for part in (layer.left, layer.right))
            same = len(layer.left) == len(layer.right) == len(layer.target)
            if not same or layer.nodes.max(initial=-1) >= n or pairs >= entries or layer.entries[1] > entries:
                return False
            if layer.target.max(initial=-1) >= self.n_blocks or (step[layer.nodes] >= 0).any():
                return False
            step[layer.nodes] = number
        inside = np.full(n, -1)
        inside[self.core] = np.arange(c)
        if (step[self.core] >= 0).any() or not np.array_equal(inside, self.core_place):
            return False
        step[self.core] = len(self.layers)
        # Each layer takes at least one in THIN of the nodes that are left, so there are few, and so chains are short.
        few = len(self.layers) <= 2 + np.log(n + 1) / np.log(THIN / (THIN - 1))
        codes = (self.columns.astype(np.int64) * n + self.rows)[np.minimum(self._by_code, entries - 1)]
        return bool(
            few
            and np.array_equal(self.rank[self.order], np.arange(n))
            and (step >= 0).all()
            and (step[self.rows] > step[self.columns]).all()
            and (np.diff(step[self.order]) >= 0).all()
            and self._by_code.max(initial=-1) < entries
            and np.array_equal(codes, self._codes)
            and (np.diff(codes) > 0).all()
        )

    def _layer(self, nodes: Int[Array, " m"], low: int, high: int) -> EliminationLayer:
        left, right = all_pairs(self.columns[low:high])
        left, right = left + low, right + low
        later = self.rank[self.rows[left]] >= self.rank[self.rows[right]]
        left, right = left[later], right[later]
        target = self.places(self.rows[left], self.rows[right])
        order = np.argsort(target, kind="stable")
        return EliminationLayer(nodes, (low, high), left[order], right[order], target[order])

    @property
    def n_blocks(self) -> int:
        """Number of blocks in the factor."""
        return self.n_nodes + len(self.rows) + len(self.core) ** 2

    def places(self, rows: Int[Array, " q"], columns: Int[Array, " q"]) -> Int[Array, " q"]:
        """Positions of the blocks (row, column); -1 for a block that is zero or above the diagonal."""
        out = np.where(rows == columns, rows, -1)
        entries = self.find(rows, columns)
        out = np.where(entries >= 0, self.n_nodes + entries, out)
        i, j = self.core_place[rows], self.core_place[columns]
        inside = self.n_nodes + len(self.rows) + i * len(self.core) + j
        return np.where((i >= j) & (j >= 0), inside, np.where((i >= 0) & (j >= 0), -1, out))

    def coordinates(self) -> tuple[Int[Array, " q"], Int[Array, " q"]]:
        """Row and column of every stored block; in the core, blocks above the diagonal are included."""
        diagonal, core = np.arange(self.n_nodes), self.core
        rows = np.concatenate([diagonal, self.rows, np.repeat(core, len(core))])
        return rows, np.concatenate([diagonal, self.columns, np.tile(core, len(core))])

    def find(self, rows: Int[Array, " q"], columns: Int[Array, " q"]) -> Int[Array, " q"]:
        """Numbers of the entries (row, column) below the diagonal; -1 where there is none."""
        if len(self._codes) == 0:
            return np.full(len(rows), -1)
        codes = columns * self.n_nodes + rows
        slot = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[slot] == codes, self._by_code[slot], -1)

    @cached_property
    def reach(self) -> sparse.csr_array:
        """(nodes, ranks): where C⁻¹ times a vector at a node is not zero, the core aside.

        The parent of a node is the first node it still touches when it is eliminated. The parent touches all others
        that the node does, so the reach is the chain of parents.
        """
        parent = np.full(self.n_nodes, self.n_nodes, dtype=np.int64)
        outside = self.core_place[self.rows] < 0
        np.minimum.at(parent, self.columns[outside], self.rank[self.rows[outside]])
        by_rank = np.append(self.order, self.n_nodes)
        nodes = np.flatnonzero(self.core_place < 0)
        start, rank, links = nodes, self.rank[nodes], list[tuple[Array, Array]]()
        while len(start):
            links.append((start, rank))
            rank = parent[by_rank[rank]]
            more = rank < self.n_nodes
            start, rank = start[more], rank[more]
        rows, columns = (np.concatenate(part) for part in zip(*links, strict=True)) if links else (nodes, nodes)
        shape = (self.n_nodes, self.n_nodes)
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


class BlockCholesky(Saved):
    """C, lower in the order of a plan, with C Cᵀ = P.

    Args:
        plan: The plan for the pattern of P.
        blocks: P in the layout of the plan. The array is taken over and overwritten.

    Raises:
        LinAlgError: If P is not positive definite.
    """

    saved_as = "block Cholesky factor"
    saved_as_attributes = True
    saved_fields = ("plan", "_blocks", "_core")
    saved_checks: ClassVar = {"plan": instance_of(EliminationPlan), "_blocks": floats(3), "_core": floats(2)}

    def __init__(self, plan: EliminationPlan, blocks: Float[Array, "q b b"]):
        self.plan = plan
        self._blocks = blocks
        n, entries = plan.n_nodes, len(plan.rows)
        for layer in plan.layers:
            blocks[layer.nodes] = np.linalg.cholesky(blocks[layer.nodes])
            for part in _entry_chunks(layer.entries):
                own = blocks[n:][part].swapaxes(1, 2)
                blocks[n:][part] = solve_lower(blocks[plan.columns[part]], own).swapaxes(1, 2)
            for part in chunks(len(layer.target), _CHUNK):
                left, right = blocks[n + layer.left[part]], blocks[n + layer.right[part]]
                target, update = sum_by(layer.target[part], left @ right.swapaxes(1, 2))
                blocks[target] -= update
        c, b = len(plan.core), blocks.shape[1]
        dense = blocks[n + entries :].reshape(c, c, b, b).swapaxes(1, 2).reshape(c * b, c * b)
        self._core = np.linalg.cholesky(dense) if c else dense

    def consistent(self) -> bool:
        """True if the blocks are those of the plan, with pivots above zero."""
        b, core = self._blocks.shape[1], len(self.plan.core)
        if self._blocks.shape != (self.plan.n_blocks, b, b) or self._core.shape != (core * b, core * b):
            return False
        eliminated = np.einsum("jbb->jb", self._blocks[: self.plan.n_nodes])[self.plan.core_place < 0]
        return bool((eliminated > 0).all() and (np.diagonal(self._core) > 0).all())

    @property
    def block_size(self) -> int:
        """b, the size of a block."""
        return self._blocks.shape[1]

    def log_det(self) -> float:
        """log |P|."""
        eliminated = np.concatenate([layer.nodes for layer in self.plan.layers] or [self.plan.core[:0]])
        pivots = np.einsum("jbb->jb", self._blocks[eliminated])
        return 2 * float(np.sum(np.log(pivots)) + np.sum(np.log(np.diagonal(self._core))))

    def forward(self, right: Float[Array, "n b s"]) -> Float[Array, "n b s"]:
        """C⁻¹ B."""
        out, plan, n = np.array(right), self.plan, self.plan.n_nodes
        for layer in plan.layers:
            out[layer.nodes] = solve_lower(self._blocks[layer.nodes], out[layer.nodes])
            for part in _entry_chunks(layer.entries):
                moved = self._blocks[n:][part] @ out[plan.columns[part]]
                rows, total = sum_by(plan.rows[part], moved)
                out[rows] -= total
        if len(plan.core):
            out[plan.core] = self._solve_core(out[plan.core], transposed=False)
        return out

    def backward(self, right: Float[Array, "n b s"]) -> Float[Array, "n b s"]:
        """C⁻ᵀ B."""
        out, plan, n = np.array(right), self.plan, self.plan.n_nodes
        if len(plan.core):
            out[plan.core] = self._solve_core(out[plan.core], transposed=True)
        for layer in reversed(plan.layers):
            for part in _entry_chunks(layer.entries):
                moved = self._blocks[n:][part].swapaxes(1, 2) @ out[plan.rows[part]]
                columns, total = sum_by(plan.columns[part], moved)
                out[columns] -= total
            out[layer.nodes] = solve_lower_t(self._blocks[layer.nodes], out[layer.nodes])
        return out

    def forward_sparse(
        self, pattern: sparse.csr_array, right: Float[Array, "e b s"]
    ) -> tuple[Int[Array, "m q"], Float[Array, "m q b s"]]:
        """C⁻¹ B for many B that are zero nearly everywhere, one per row of `pattern`, with blocks `right` there.

        Returns:
            The nodes at which each solution is not zero (-1 pads short rows), and its blocks there.
        """
        nodes = self._reached(pattern)
        m, slots = nodes.shape
        free = slots - len(self.plan.core)
        out = np.zeros((m, slots, *right.shape[1:]))
        owner = pair_rows(pattern)
        # Rows are sorted by rank, so one search gives all slots; a stride keeps the rows apart.
        stride = self.plan.n_nodes + 1
        order = np.where(nodes[:, :free] >= 0, self.plan.rank[nodes[:, :free]], self.plan.n_nodes)
        keys = (order + stride * np.arange(m)[:, None]).reshape(-1)
        slot = np.searchsorted(keys, self.plan.rank[pattern.indices] + stride * owner) - free * owner
        place = self.plan.core_place[pattern.indices]
        out[owner, np.where(place >= 0, free + place, slot)] = right
        for here in range(free):
            self._eliminate(nodes, out, here)
        if len(self.plan.core):
            core = out[:, free:].transpose(1, 2, 0, 3).reshape(len(self.plan.core), right.shape[1], -1)
            solved = self._solve_core(core, transposed=False).reshape(len(self.plan.core), right.shape[1], m, -1)
            out[:, free:] = solved.transpose(2, 0, 1, 3)
        return nodes, out

    def _reached(self, pattern: sparse.csr_array) -> Int[Array, "m q"]:
        """The nodes that each row can reach, in the order of elimination; every row reaches the core."""
        ones = sparse.csr_array((np.ones(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape)
        reached = sparse.csr_array(ones @ self.plan.reach)
        reached.sort_indices()
        counts = np.diff(reached.indptr)
        out = np.full((len(counts), int(counts.max(initial=0)) + len(self.plan.core)), -1, dtype=np.int64)
        slot = np.arange(reached.nnz) - np.repeat(reached.indptr[:-1], counts)
        out[pair_rows(reached), slot] = self.plan.order[reached.indices]
        if len(self.plan.core):
            out[:, -len(self.plan.core) :] = self.plan.core
        return out

    def _eliminate(self, nodes: Int[Array, "m q"], out: Float[Array, "m q b s"], here: int) -> None:
        has = np.flatnonzero(nodes[:, here] >= 0)
        mine = nodes[has, here]
        out[has, here] = solve_lower(self._blocks[mine], out[has, here])
        for later in range(here + 1, nodes.shape[1]):
            entry = self.plan.find(nodes[has, later], mine)
            some = np.flatnonzero((entry >= 0) & (nodes[has, later] >= 0))
            rows = has[some]
            out[rows, later] -= self._blocks[self.plan.n_nodes + entry[some]] @ out[rows, here]

    def _solve_core(self, right: Float[Array, "c b s"], transposed: bool) -> Float[Array, "c b s"]:
        flat = right.reshape(len(self._core), -1)
        out = solve_triangular(self._core, flat, lower=True, trans=int(transposed), check_finite=False)
        return out.reshape(right.shape)


def _layers(
    n_nodes: int, first: Int[Array, " e"], second: Int[Array, " e"]
) -> tuple[list[Array], list[tuple[Array, Array]], Int[Array, " c"]]:
    """The nodes of each layer, the (column, row) of the entries it leaves below the diagonal, and the core."""
    touching = _pattern(np.concatenate([first, second]), np.concatenate([second, first]), n_nodes)
    alive = np.arange(n_nodes)
    layers, structures = list[Array](), list[tuple[Array, Array]]()
    while len(alive):
        picked = _independent(touching)
        if picked.sum() * THIN < len(alive) and len(alive) > 1:
            break
        nodes, rest = np.flatnonzero(picked), np.flatnonzero(~picked)
        across = touching[nodes][:, rest].tocsr()
        layers.append(alive[nodes])
        structures.append((alive[nodes][pair_rows(across)], alive[rest][across.indices]))
        filled = (touching[rest][:, rest] + across.T @ across).tocoo()
        touching = _pattern(*filled.coords, len(rest))
        alive = alive[rest]
    return layers, structures, alive


def _independent(touching: sparse.csr_array) -> np.ndarray:
    """Nodes with fewer neighbours than each of their neighbours has: no two of them touch."""
    degree = np.diff(touching.indptr)
    order = np.empty(len(degree), dtype=np.int64)
    order[np.argsort(degree, kind="stable")] = np.arange(len(degree))
    lowest = np.full(len(degree), len(degree))
    np.minimum.at(lowest, pair_rows(touching), order[touching.indices])
    return (order < lowest) & (degree <= MAX_DEGREE)


def _pattern(rows: Int[Array, " e"], columns: Int[Array, " e"], n: int) -> sparse.csr_array:
    apart = rows != columns
    matrix = sparse.csr_array((np.ones(int(apart.sum())), (rows[apart], columns[apart])), shape=(n, n))
    matrix.data[:] = 1.0
    return matrix


def _entry_chunks(entries: tuple[int, int]) -> Iterator[slice]:
    first, end = entries
    return (slice(start, min(start + _CHUNK, end)) for start in range(first, end, _CHUNK))


_CHUNK = 1 << 14
"""Blocks per batched product."""
