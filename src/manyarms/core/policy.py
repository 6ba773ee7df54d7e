"""Policies: a rule π(a | x), evaluated in blocks of rows, so that no n x K array exists unless a user asks for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.arrow import table_of
from manyarms._base.checks import Array, as_actions, as_count, row_weights
from manyarms._base.rng import as_generator
from manyarms.core.catalog import Catalog
from manyarms.core.choices import Choices, RowError
from manyarms.core.eligibility import as_eligibility, eligible_blocks
from manyarms.core.feature_map import FeatureMap, as_contexts
from manyarms.core.feature_mass import FeatureMass, FeatureMassSum
from manyarms.core.fingerprint import Fingerprint
from manyarms.errors import EligibilityError, InputError, NumericalError, ShapeError
from manyarms.linalg.sparse_matrices import shape_of
from manyarms.model_file.save import SavedModel


class Policy(SavedModel, ABC):
    """A rule that picks one of K actions in a context.

    A new policy implements `choices`; everything else follows from it. One that is tied to particular rows (the logged
    actions, a table with one row per context) also sets `n_rows` and implements `take`.

    Attributes:
        n_actions: K.
        n_rows: Number of rows that the policy is tied to, or None if it applies to any context.
        dim: Number of columns that its contexts must have, or None if it ignores them.
        rows_per_block: Number of rows per call of `choices`.
        learned_from: The rounds it was learned from; see `core.fingerprint`.
        features: The map from context columns to φ(x), if it was learned with one: then contexts may be tables.
        catalog: The ids of the actions, where they are known.
        tied_to: The stream of rounds that it repeats, or None. It can only be evaluated on that stream.
        samples_have_probabilities: True if `sample` follows `probability_of`; `Thompson` draws afresh.
        repeats_log: True for the current policy, which repeats the logged actions.
    """

    n_actions: int
    n_rows: int | None = None
    dim: int | None = None
    learned_from: tuple[Fingerprint, ...] = ()
    tied_to: Fingerprint | None = None
    features: FeatureMap | None = None
    catalog: Catalog | None = None
    samples_have_probabilities: bool = True
    repeats_log: bool = False
    rows_per_block: int = 1 << 14

    @abstractmethod
    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        """π(· | x) for a block of contexts over the eligible actions (None: all); the arguments have been checked."""

    def __repr__(self) -> str:
        tied = "" if self.n_rows is None else f", tied to {self.n_rows:,} rows"
        return f"{type(self).__name__}({self.n_actions:,} actions{tied})"

    def take(self, rows: slice | Int[Array, " m"]) -> Policy:
        """The policy for these rows only, for callers that work in chunks or folds."""
        return self

    def on(self, rounds: Any) -> Policy:
        """The policy for one batch (a `LoggedData`) of a stream; it matters for policies that read its columns."""
        from manyarms.core.bound_policy import on_rounds  # noqa: PLC0415  bound policies derive from Policy

        return on_rounds(self, rounds)

    def actions(self, contexts: Any, *, eligible: Any = None) -> Int[Array, " n"]:
        """The most probable action in each context."""
        return self._collect(np.int64, [c.mode() for _, _, c in self.blocks(contexts, eligible)])

    def sample(self, contexts: Any, rng: np.random.Generator, *, eligible: Any = None) -> Int[Array, " n"]:
        """One action drawn in each context."""
        as_generator(rng)
        drawn = list[Array]()
        for rows, _, choices in self.blocks(contexts, eligible):
            try:
                drawn.append(choices.sample(rng))
            except RowError as cause:
                raise NumericalError(
                    f"{type(self).__name__} {cause.problem} in row {rows.start + cause.row}.",
                    "Rescale contexts, rewards or the prior.",
                ) from None
        return self._collect(np.int64, drawn)

    def probability_of(self, contexts: Any, actions: Any, *, eligible: Any = None) -> Float[Array, " n"]:
        """π(a_i | x_i), one action per context."""
        contexts = self._check_contexts(contexts)
        actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(contexts))
        parts = [c.probability_of(actions[rows]) for rows, _, c in self.blocks(contexts, eligible)]
        return self._collect(np.float64, parts)

    def probabilities(self, contexts: Any, *, eligible: Any = None) -> Float[Array, "n K"]:
        """π(a | x_i) for all actions: the whole n x K array. `probability_chunks` gives it chunk by chunk."""
        chunks = [block for _, block in self.probability_chunks(contexts, eligible=eligible)]
        return np.concatenate(chunks) if chunks else np.empty((0, self.n_actions))

    def probability_chunks(
        self, contexts: Any, *, eligible: Any = None, chunk_size: int | None = None
    ) -> Iterator[tuple[slice, Float[Array, "b K"]]]:
        """π(a | x_i) for all actions, chunk by chunk: (rows, their probabilities).

        Args:
            contexts: (n, d), or a table.
            eligible: The eligible actions of each row; None for all.
            chunk_size: Rows per chunk; by default a chunk takes 32 MB.
        """
        size = max(1, (1 << 22) // self.n_actions) if chunk_size is None else as_count("chunk_size", chunk_size)
        for rows, _, choices in self.blocks(contexts, eligible, size):
            yield rows, choices.probabilities()

    def probability_of_sets(
        self, contexts: Any, sets: sparse.csr_array, which: Any, *, eligible: Any = None
    ) -> Float[Array, " n"]:
        """Σ_a π(a | x_i) over the actions of one set per row, such as a cluster or a neighbourhood.

        Args:
            contexts: (n, d), or a table.
            sets: (S, K) with a one where an action belongs to a set.
            which: (n,) the set of each row.
            eligible: The eligible actions of each row; None for all.
        """
        contexts = self._check_contexts(contexts)
        which = as_actions("which", which, n_actions=shape_of(sets)[0], length=len(contexts))
        parts = [c.probability_of_sets(sets, which[rows]) for rows, _, c in self.blocks(contexts, eligible)]
        return self._collect(np.float64, parts)

    def top_k(self, contexts: Any, k: int, *, eligible: Any = None) -> Int[Array, "n k"]:
        """The k best actions in each context, best first: by score if the policy has one, else by probability.

        -1 pads a row that has fewer than k eligible actions.
        """
        k = self._check_k(k)
        parts = [choices.top_k(k) for _, _, choices in self.blocks(contexts, eligible)]
        return np.concatenate(parts) if parts else np.empty((0, k), dtype=np.int64)

    def feature_mass(self, contexts: Any, *, eligible: Any = None, weights: Any = None) -> FeatureMass:
        """m_a = mean_i π(a | x_i) φ(x_i), for the actions with any mass; a row of weight 2 counts twice."""
        return self.profile(contexts, None, eligible=eligible, weights=weights)[0]

    def profile(
        self, contexts: Any, means: Float[Array, "K d"] | None, *, eligible: Any = None, weights: Any = None
    ) -> tuple[FeatureMass, Float[Array, " n"]]:
        """The feature mass, and Σ_a π(a | x_i) φ(x_i)ᵀ θ̂_a row by row, in one pass over the contexts.

        Args:
            contexts: (n, d), or a table.
            means: θ̂_a for every action; None if only the mass is wanted.
            eligible: The eligible actions of each row; None for all.
            weights: (n,) how often each row counts in the mass; None counts each once.
        """
        contexts = self._check_contexts(contexts)
        if len(contexts) == 0:
            raise ShapeError("must have at least one row: a mean over none is undefined.", argument="contexts")
        counts = row_weights(weights, len(contexts))
        mass, rows = FeatureMassSum(), list[Array]()
        for part, x, choices in self.blocks(contexts, eligible):
            mass.add(choices, x, counts[part])
            if means is not None:
                rows.append(choices.expected(x, means))
        return mass.mean(), self._collect(np.float64, rows)

    def blocks(
        self, contexts: Any, eligible: Any, size: int | None = None
    ) -> Iterator[tuple[slice, Float[Array, "b d"], Choices]]:
        """Pass over the contexts in blocks: (rows, their contexts, the choices of the policy there)."""
        x = self._check_contexts(contexts)
        allowed = as_eligibility(eligible, len(x), self.n_actions)
        for rows, block in eligible_blocks(allowed, len(x), size or self.rows_per_block):
            try:
                choices = self.take(rows).choices(x[rows], block)
            except RowError as cause:
                raise EligibilityError(
                    f"{type(self).__name__} {cause.problem} in row {rows.start + cause.row}.",
                    "Leave such rows out, or make more actions eligible there.",
                ) from None
            yield rows, x[rows], choices

    def _check_contexts(self, contexts: Any) -> Float[Array, "n d"]:
        if self.tied_to is not None:
            raise InputError(
                f"{type(self).__name__} repeats the rounds of a stream and can only be evaluated on that stream.",
                "Pass the stream itself, as in posterior.difference(policy, ma.Logged(stream), stream), or use "
                "logs = stream.collect() and ma.Logged(logs).",
            )
        return as_contexts(self._as_rows(contexts), self.features, rows=self.n_rows, columns=self.dim)

    def _as_rows(self, contexts: Any) -> Any:
        """Contexts that a policy which does not look at them can count: a table of any columns becomes a constant."""
        table = table_of(contexts) if self.features is None and self.dim is None else None
        return contexts if table is None else np.ones((table.num_rows, 1))

    def _check_k(self, k: int) -> int:
        k = as_count("k", k)
        if k > self.n_actions:
            raise ShapeError(f"must be at most n_actions={self.n_actions}; got {k}.", argument="k")
        return k

    @staticmethod
    def _collect(dtype: type, parts: list[Array]) -> Array:
        return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
