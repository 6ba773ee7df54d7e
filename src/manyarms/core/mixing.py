"""The mixing W_a, which maps the latent ψ to the centre of θ_a: dense matrices, or weights on shared effects.

Every form offers the same few products, and conditioning needs nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_floats, frozen
from manyarms.core.latent_covariance import BlockFactor, LatentFactor
from manyarms.errors import DataTypeError, NonFiniteError, ShapeError, TooLargeError
from manyarms.linalg.block_cholesky import EliminationPlan
from manyarms.linalg.factor_and_solve import gram
from manyarms.linalg.indexing import all_pairs, chunks, sum_by
from manyarms.linalg.sparse_matrices import csr_from_parts, csr_parts, pair_rows, shape_of
from manyarms.model_file.part_checks import floats, is_size, saved_csr
from manyarms.model_file.save import Saved

Roots = Callable[[Int[Array, " m"]], Float[Array, "m d q"]]
"""Roots B_a of W_a Σ W_aᵀ of some actions."""


class Mixing(Saved, ABC):
    """The mixing W_a of every action.

    Attributes:
        n_actions: K.
        dim: d, the length of θ_a.
        latent_dim: d', the length of ψ.
        product_size: Size of the arrays of one action in `apply` and `apply_t`.
    """

    n_actions: int
    dim: int
    latent_dim: int
    product_size: int

    def grouped(self) -> Mixing:
        """This mixing for many solves: sums go over the actions of a kind first, which takes time to prepare."""
        return self

    @abstractmethod
    def _rows(self, actions: Int[Array, " m"]) -> Any:
        """The mixing of some actions as rows of a matrix, dense or sparse."""

    @cached_property
    def kinds(self) -> tuple[Int[Array, " K"], Int[Array, " q"]]:
        """The kind of each action, actions of equal mixing being of one kind, and the lowest action of every kind."""
        parts = [np.arange(part.start, part.stop) for part in chunks(self.n_actions, 1 << 14)]
        # Equal rows have equal products with a random vector, up to rounding; the converse is checked.
        vector = np.random.default_rng(0).random(self._rows(parts[0][:1]).shape[1])
        products = np.concatenate([np.asarray(self._rows(part) @ vector) for part in parts])
        _, lowest, kind = np.unique(products, return_index=True, return_inverse=True)
        for part in parts:
            gap = self._rows(part) - self._rows(lowest[kind[part]])
            if (gap.data if sparse.issparse(gap) else gap).any():
                return np.arange(self.n_actions), np.arange(self.n_actions)
        return kind, lowest

    @abstractmethod
    def apply(self, latent: Float[Array, "s p"], actions: Int[Array, " m"]) -> Float[Array, "s m d"]:
        """W_a ψ for every given ψ and action."""

    def apply_t(self, vectors: Float[Array, "m d"], actions: Int[Array, " m"]) -> Float[Array, " p"]:
        """Σ_a W_aᵀ v_a."""
        return self.apply_t_each(vectors[:, None], actions)[0]

    @abstractmethod
    def apply_t_each(self, vectors: Float[Array, "m c d"], actions: Int[Array, " m"]) -> Float[Array, "c p"]:
        """Σ_a W_aᵀ v_aj for several vectors of every action."""

    @abstractmethod
    def root(self, factor: LatentFactor, actions: Int[Array, " m"]) -> Float[Array, "m d q"]:
        """B_a with B_a B_aᵀ = W_a Σ W_aᵀ, where Σ = F Fᵀ."""

    def roots(self, factor: LatentFactor) -> Roots:
        """`root` for one factor, where it is asked for many times."""
        return lambda actions: self.root(factor, actions)

    @abstractmethod
    def cross(self, factor: LatentFactor, left: Int[Array, " m"], right: Int[Array, " m"]) -> Float[Array, "m d d"]:
        """W_a Σ W_bᵀ for pairs (a, b), with Σ = F Fᵀ."""

    @abstractmethod
    def gram_blocks(self, factor: BlockFactor) -> int:
        """The block size of the latent precision, given the factor of the latent prior."""

    @abstractmethod
    def add_gram(self, out: Float[Array, "J b b"], rows: Float[Array, "m r d"], actions: Int[Array, " m"]) -> None:
        """Add Σ_a (H_a W_a)ᵀ (H_a W_a) to `out`, which stores it in blocks of size `gram_blocks`."""

    @abstractmethod
    def latent_rows(
        self, rows: Float[Array, "m r d"], actions: Int[Array, " m"], size: int
    ) -> tuple[Int[Array, " n"], Float[Array, "n b"]]:
        """H_a W_a row by row, as (the block of each row, the row within it), for blocks of `size`."""

    @abstractmethod
    def extended(self, extra: Mixing) -> Mixing:
        """The mixing of these actions followed by those of `extra`."""

    @abstractmethod
    def beside(self, other: Mixing) -> Mixing:
        """[W_a, W'_a], for θ_a centred on W_a ψ + W'_a ψ'."""

    @abstractmethod
    def action_size(self, factor: LatentFactor) -> int:
        """Size of W_a F for one action, which limits the size of chunks that need it."""


class DenseMixing(Mixing):
    """A mixing by any matrices W_a, as one (K, d, d') array; d' = 0 makes the actions independent."""

    saved_as = "dense mixing"
    saved_fields = ("matrices",)
    saved_checks: ClassVar = {"matrices": floats(3, repeated=True)}

    def __init__(self, matrices: Float[Array, "K d p"]):
        self.matrices = frozen(matrices)
        self.n_actions, self.dim, self.latent_dim = matrices.shape
        self.product_size = self.dim * max(self.dim, self.latent_dim)

    def consistent(self) -> bool:
        """True if there is an action and a feature."""
        return self.n_actions > 0 and self.dim > 0

    def action_size(self, factor: LatentFactor) -> int:
        return self.product_size

    def apply(self, latent: Float[Array, "s p"], actions: Int[Array, " m"]) -> Float[Array, "s m d"]:
        flat = self._tall(actions)
        return (latent @ flat.T).reshape(len(latent), len(actions), self.dim)

    def apply_t_each(self, vectors: Float[Array, "m c d"], actions: Int[Array, " m"]) -> Float[Array, "c p"]:
        m, c, d = vectors.shape
        return vectors.swapaxes(0, 1).reshape(c, m * d) @ self._tall(actions)

    def root(self, factor: LatentFactor, actions: Int[Array, " m"]) -> Float[Array, "m d q"]:
        return (self._tall(actions) @ factor.dense()).reshape(len(actions), self.dim, self.latent_dim)

    def cross(self, factor: LatentFactor, left: Int[Array, " m"], right: Int[Array, " m"]) -> Float[Array, "m d d"]:
        return self.root(factor, left) @ self.root(factor, right).swapaxes(1, 2)

    def gram_blocks(self, factor: BlockFactor) -> int:
        return self.latent_dim

    def add_gram(self, out: Float[Array, "J b b"], rows: Float[Array, "m r d"], actions: Int[Array, " m"]) -> None:
        _, tall = self.latent_rows(rows, actions, self.latent_dim)
        out[0] += tall.T @ tall

    def latent_rows(
        self, rows: Float[Array, "m r d"], actions: Int[Array, " m"], size: int
    ) -> tuple[Int[Array, " n"], Float[Array, "n b"]]:
        n = rows.shape[0] * rows.shape[1]
        return np.zeros(n, dtype=np.int64), (rows @ self.matrices[actions]).reshape(n, self.latent_dim)

    def extended(self, extra: Mixing) -> Mixing:
        if not isinstance(extra, DenseMixing) or extra.matrices.shape[1:] != self.matrices.shape[1:]:
            raise ShapeError(
                f"of new actions must have shape (n_new, {self.dim}, {self.latent_dim}).", argument="mixing"
            )
        return DenseMixing(np.concatenate([self.matrices, extra.matrices]))

    def beside(self, other: Mixing) -> Mixing:
        if self.latent_dim == 0:
            return other
        dense = other.matrices if isinstance(other, DenseMixing) else _as_dense(other)
        return DenseMixing(np.concatenate([self.matrices, dense], axis=2))

    def _rows(self, actions: Int[Array, " m"]) -> Float[Array, "m q"]:
        return self.matrices[actions].reshape(len(actions), self.dim * self.latent_dim)

    def _tall(self, actions: Int[Array, " m"]) -> Float[Array, "md p"]:
        # -1 for the rows would be ambiguous when d' = 0.
        return self.matrices[actions].reshape(len(actions) * self.dim, self.latent_dim)


class MixedEffects(Mixing):
    """A mixing of J shared effects in R^d, W_a = w_aᵀ ⊗ I_d: θ_a is centred on Σ_j w_aj ψ_j, and d' = J d.

    The weights are sparse and W_a is never formed. With at most one effect per action (categories), the effects stay
    independent given the data. With one effect per level of a tree, they are eliminated along the tree. Tens of
    thousands of such effects need no dense d' x d' matrix.

    Args:
        weights: (K, J) array or SciPy sparse matrix: the weight of each effect in each action.
        dim: d, the dimension of the features, of every effect and of θ_a.
    """

    saved_as = "mixed effects"
    saved_fields = ("weights", "dim")
    saved_checks: ClassVar = {"weights": saved_csr, "dim": is_size}

    def __init__(self, weights: Any, dim: int):
        matrix = _as_csr("weights", weights)
        if 0 in shape_of(matrix):
            raise ShapeError(
                f"must have at least one action and one effect; got shape {matrix.shape}.", argument="weights"
            )
        self._set(matrix, as_count("dim", dim))

    def _set(self, weights: sparse.csr_array, dim: int) -> None:
        self.weights, self.dim = weights, dim
        self.n_actions, self.n_effects = shape_of(weights)
        self.latent_dim, self.product_size = self.n_effects * dim, dim * dim
        # The plan of the last set of seen actions: learning a prior conditions on the same actions many times.
        self._last_plan: tuple[Array, EliminationPlan] | None = None
        self._grouped = False

    def saved(self) -> dict[str, Any]:
        return {"weights": csr_parts(self.weights), "dim": self.dim}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> MixedEffects:
        out = object.__new__(cls)
        out._set(csr_from_parts(parts["weights"]), parts["dim"])
        return out

    def consistent(self) -> bool:
        """True if there is an action."""
        return self.n_actions > 0

    def _rows(self, actions: Int[Array, " m"]) -> sparse.csr_array:
        return self.weights[actions]

    @cached_property
    def _kind_weights(self) -> sparse.csr_array:
        """The weights of every kind of action."""
        return self.weights[self.kinds[1]]

    def grouped(self) -> MixedEffects:
        out = copy(self)
        out._grouped = True
        return out

    def _few_kinds(self, n_actions: int) -> bool:
        """True if work on so many actions is less by kind than by action."""
        return self._grouped and len(self.kinds[1]) <= n_actions

    def _sum_by_kind(self, values: Float[Array, "m q"], actions: Int[Array, " m"]) -> Float[Array, "k q"]:
        m, (kind, lowest) = len(actions), self.kinds
        ones = sparse.csc_array((np.ones(m), kind[actions], np.arange(m + 1)), shape=(len(lowest), m))
        return np.asarray(ones @ values)

    @cached_property
    def most_effects(self) -> int:
        """The largest number of effects that an action mixes."""
        return int(np.diff(self.weights.indptr).max(initial=0))

    @property
    def one_effect_each(self) -> bool:
        """True if no action mixes two effects."""
        return self.most_effects <= 1

    def action_size(self, factor: LatentFactor) -> int:
        return self.dim * max(self.dim, factor.mixed_width(self.most_effects, self.dim))

    def apply(self, latent: Float[Array, "s p"], actions: Int[Array, " m"]) -> Float[Array, "s m d"]:
        effects = latent.reshape(len(latent), self.n_effects, self.dim)
        flat = effects.swapaxes(0, 1).reshape(self.n_effects, len(latent) * self.dim)
        if self._few_kinds(len(actions)):
            mixed = np.asarray(self._kind_weights @ flat)[self.kinds[0][actions]]
        else:
            mixed = np.asarray(self.weights[actions] @ flat)
        return mixed.reshape(len(actions), len(latent), self.dim).swapaxes(0, 1)

    def apply_t_each(self, vectors: Float[Array, "m c d"], actions: Int[Array, " m"]) -> Float[Array, "c p"]:
        m, c, d = vectors.shape
        flat = vectors.reshape(m, c * d)
        if self._few_kinds(m):
            sums = self._kind_weights.T @ self._sum_by_kind(flat, actions)
        else:
            sums = self.weights[actions].T @ flat
        return np.asarray(sums).reshape(self.n_effects, c, d).swapaxes(0, 1).reshape(c, self.latent_dim)

    def root(self, factor: LatentFactor, actions: Int[Array, " m"]) -> Float[Array, "m d q"]:
        return factor.mixed_root(self.weights[actions], self.dim)

    def roots(self, factor: LatentFactor) -> Roots:
        known = self._grouped or "kinds" in vars(self)
        if not known or len(self.kinds[1]) * self.action_size(factor) > _KEPT_ROOTS:
            return super().roots(factor)
        kind = self.kinds[0]
        table = factor.mixed_root(self._kind_weights, self.dim)
        return lambda actions: table[kind[actions]]

    def cross(self, factor: LatentFactor, left: Int[Array, " m"], right: Int[Array, " m"]) -> Float[Array, "m d d"]:
        return factor.mixed_cross(self.weights[left], self.weights[right], self.dim)

    def gram_blocks(self, factor: BlockFactor) -> int:
        decoupled = self.one_effect_each and factor.with_block_size(self.dim) is not None
        return self.dim if decoupled else self.latent_dim

    def plan(self, actions: Int[Array, " m"]) -> EliminationPlan:
        """The order of elimination if these actions have been seen: two effects touch if an action mixes them."""
        if self._last_plan is None or not np.array_equal(self._last_plan[0], actions):
            weights = self.weights[actions]
            ones = sparse.csr_array((np.ones(weights.nnz), weights.indices, weights.indptr), shape=weights.shape)
            touching = (ones.T @ ones).tocoo()
            self._last_plan = (
                actions,
                EliminationPlan(self.n_effects, *(np.asarray(ids, np.int64) for ids in touching.coords)),
            )
        return self._last_plan[1]

    def add_planned(
        self, out: Float[Array, "q d d"], plan: EliminationPlan, rows: Float[Array, "m r d"], actions: Int[Array, " m"]
    ) -> None:
        """Add Σ_a (H_a W_a)ᵀ (H_a W_a) to `out`, which stores it in the layout of the plan."""
        first, second, blocks = self._pair_grams(rows, actions)
        place = plan.places(first, second)
        kept = place >= 0
        out[place[kept]] += blocks[kept]

    def _pair_grams(
        self, rows: Float[Array, "m r d"], actions: Int[Array, " m"]
    ) -> tuple[Int[Array, " q"], Int[Array, " q"], Float[Array, "q d d"]]:
        """Σ_a w_ai w_aj H_aᵀ H_a for every pair (i, j) of effects that some action mixes."""
        products = gram(rows).reshape(len(actions), self.dim**2)
        if self._few_kinds(len(actions)):
            products, (first, second, matrix) = self._sum_by_kind(products, actions), self._kind_pairs
        else:
            first, second, matrix = self._pairs(self.weights[actions])
        # Σ_a (w_a w_aᵀ) ⊗ C_a: one sparse matrix of effect pairs by actions times the flattened C_a.
        return first, second, np.asarray(matrix @ products).reshape(-1, self.dim, self.dim)

    @cached_property
    def _kind_pairs(self) -> tuple[Int[Array, " q"], Int[Array, " q"], sparse.csr_array]:
        return self._pairs(self._kind_weights)

    def _pairs(self, weights: sparse.csr_array) -> tuple[Int[Array, " q"], Int[Array, " q"], sparse.csr_array]:
        """Every pair (i, j) of effects that a row mixes, and w_i w_j as a matrix of pairs by rows."""
        row = pair_rows(weights)
        # Every stored weight meets all the weights of its row.
        left, right = all_pairs(row)
        code = weights.indices[left].astype(np.int64) * self.n_effects + weights.indices[right]
        pairs, index = np.unique(code, return_inverse=True)
        values = weights.data[left] * weights.data[right]
        matrix = sparse.csr_array((values, (index, row[left])), shape=(len(pairs), shape_of(weights)[0]))
        return pairs // self.n_effects, pairs % self.n_effects, matrix

    def add_gram(self, out: Float[Array, "J b b"], rows: Float[Array, "m r d"], actions: Int[Array, " m"]) -> None:
        d = self.dim
        if out.shape[1] == d and len(out) == self.n_effects:
            # Only the effects of these actions: there may be far more effects than actions in a chunk.
            weights, products = self.weights[actions], gram(rows).reshape(len(actions), d * d)
            if self._few_kinds(len(actions)):
                weights, products = self._kind_weights, self._sum_by_kind(products, actions)
            effects, sums = sum_by(weights.indices, weights.data[:, None] ** 2 * products[pair_rows(weights)])
            out[effects] += sums.reshape(-1, d, d)
            return
        first, second, blocks = self._pair_grams(rows, actions)
        out[0].reshape(self.n_effects, d, self.n_effects, d)[first, :, second, :] += blocks

    def latent_rows(
        self, rows: Float[Array, "m r d"], actions: Int[Array, " m"], size: int
    ) -> tuple[Int[Array, " n"], Float[Array, "n b"]]:
        m, r, d = rows.shape
        weights = self.weights[actions]
        if size == d:
            # At most one effect each. An action without any carries no information on ψ: zero rows in block 0.
            block, weight = np.zeros(m, dtype=np.int64), np.zeros(m)
            has = np.flatnonzero(np.diff(weights.indptr))
            block[has], weight[has] = weights.indices, weights.data
            return np.repeat(block, r), (rows * weight[:, None, None]).reshape(m * r, d)
        spread = np.einsum("mj,mrd->mrjd", weights.toarray(), rows)
        return np.zeros(m * r, dtype=np.int64), spread.reshape(m * r, self.latent_dim)

    def extended(self, extra: Mixing) -> Mixing:
        if not isinstance(extra, MixedEffects) or (extra.n_effects, extra.dim) != (self.n_effects, self.dim):
            raise ShapeError(
                f"of new actions must be MixedEffects with weights on the same {self.n_effects} effects and "
                f"dim={self.dim}.",
                "A new effect needs a new prior and a fit.",
                argument="mixing",
            )
        return MixedEffects(sparse.vstack([self.weights, extra.weights]), self.dim)

    def beside(self, other: Mixing) -> Mixing:
        if other.latent_dim == 0:
            return self
        if isinstance(other, MixedEffects):
            return MixedEffects(sparse.hstack([self.weights, other.weights]), self.dim)
        return DenseMixing(_as_dense(self)).beside(other)


def _as_dense(mixing: Mixing) -> Float[Array, "K d p"]:
    """W_a of every action as one array; an error if that would be too large."""
    if mixing.n_actions * mixing.dim * mixing.latent_dim > MAX_DENSE:
        raise TooLargeError(
            f"a sum of effects and a dense mixing needs {mixing.n_actions} matrices of {mixing.dim} x "
            f"{mixing.latent_dim}; the limit is {MAX_DENSE:,} numbers.",
            "Write the other part as effects too.",
        )
    return mixing.apply(np.eye(mixing.latent_dim), np.arange(mixing.n_actions)).transpose(1, 2, 0)


_KEPT_ROOTS = 1 << 20
"""Maximum number of entries of the roots of all kinds of actions that are kept at a time."""
MAX_DENSE = 1 << 27
"""Maximum number of entries when effects are turned into dense matrices (a gigabyte)."""


def as_mixing(value: Any) -> Mixing:
    """Check the argument `mixing` of a user."""
    if isinstance(value, Mixing):
        return value
    array = as_floats("mixing", value, ndim=3)
    if array.shape[0] == 0 or array.shape[1] == 0:
        problem = f"must have at least one action and one feature; got shape {array.shape}."
        raise ShapeError(problem, argument="mixing")
    return DenseMixing(array.copy())


def _as_csr(name: str, value: Any) -> sparse.csr_array:
    if sparse.issparse(value):
        if value.dtype.kind not in "biuf":
            raise DataTypeError(f"must hold numbers; got dtype {value.dtype}.", argument=name)
        matrix = sparse.csr_array(value, dtype=np.float64, copy=True)
        if not np.isfinite(matrix.data).all():
            bad = int(np.argmin(np.isfinite(matrix.data)))
            row = int(np.searchsorted(matrix.indptr, bad, side="right")) - 1
            raise NonFiniteError(f"must be finite; row {row} holds {matrix.data[bad]}.", argument=name)
    else:
        matrix = sparse.csr_array(as_floats(name, value, ndim=2))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix
