"""Policies: a rule π(a | x), evaluated in blocks of rows, so that no n x K array exists unless a user asks for it.

Also the feature mass of a policy, which is all that its value depends on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_actions, as_count, check_overflow, row_weights
from manyarms._base.rng import as_generator
from manyarms.core.arrow_columns import table_of
from manyarms.core.catalog import Catalog
from manyarms.core.choices import Choices, RowError
from manyarms.core.eligibility import as_eligibility, eligible_blocks
from manyarms.core.feature_map import FeatureMap, as_contexts
from manyarms.core.fingerprint import Fingerprint
from manyarms.errors import EligibilityError, InputError, NumericalError, ShapeError
from manyarms.linalg.indexing import shape_of, sum_by
from manyarms.model_file.save import Saved, SavedModel


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
        mass, rows = _FeatureMassSum(), list[Array]()
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


class PolicyWithOwnFeatures(Policy):
    """A policy on fixed contexts that it has read through its own feature map.

    It is needed where the posterior or the logs have another feature map than the policy: their contexts would mean
    something else to it.
    """

    def __init__(self, policy: Policy, contexts: Float[Array, "n d"]):
        self.policy, self._contexts = policy, contexts
        self.n_actions, self.n_rows, self.catalog = policy.n_actions, len(contexts), policy.catalog
        self.rows_per_block, self.learned_from = policy.rows_per_block, policy.learned_from

    def take(self, rows: slice | Int[Array, " m"]) -> PolicyWithOwnFeatures:
        return PolicyWithOwnFeatures(self.policy.take(rows), self._contexts[rows])

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return self.policy.choices(self._contexts, eligible)


class PolicyOnCandidates(Policy):
    """A policy on fixed rows, each of which has candidates that it chooses among."""

    def __init__(self, policy: Policy, candidates: sparse.csr_array):
        self.policy, self._candidates = policy, candidates
        self.n_actions, self.n_rows, self.dim = policy.n_actions, shape_of(candidates)[0], policy.dim
        self.features, self.catalog = policy.features, policy.catalog
        self.rows_per_block, self.learned_from = policy.rows_per_block, policy.learned_from
        self.samples_have_probabilities = policy.samples_have_probabilities

    def take(self, rows: slice | Int[Array, " m"]) -> PolicyOnCandidates:
        return PolicyOnCandidates(self.policy.take(rows), self._candidates[rows])

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        if eligible is None:
            return self.policy.choices(contexts, self._candidates)
        both = sparse.csr_array(self._candidates.multiply(eligible))
        both.eliminate_zeros()
        sizes = np.diff(both.indptr)
        if len(sizes) and sizes.min() == 0:
            raise RowError(int(np.argmin(sizes)), "has no candidate that is eligible")
        return self.policy.choices(contexts, both)


def with_own_features(policy: Policy, contexts: Any, features: FeatureMap | None, name: str = "policy") -> Policy:
    """The policy to evaluate on contexts that a posterior or a log reads through `features`.

    A policy with the same map, or none, is returned as it is. One with another map reads the table through its own; an
    error calls it `name` if `contexts` is not a table.
    """
    own = policy.features
    if own is None or (own.is_context and (features is None or own == features)):
        return policy
    if table_of(contexts) is None and own.is_context:
        raise InputError(
            "was learned with another feature map than the one these contexts were made with.",
            "Pass the table with the original columns, so that each reads it through its own map.",
            argument=name,
        )
    if table_of(contexts) is None:
        columns = ", ".join(own.columns)
        raise InputError(
            f"reads {f'the column {columns}' if columns else 'a table'}, which is not here: these are arrays.",
            f"Read the logs with ma.read_logs(..., keep={list(own.columns)}), or pass their rows as a table.",
            argument=name,
        )
    return PolicyWithOwnFeatures(policy, as_contexts(contexts, own))


def on_rounds(policy: Policy, rounds: Any, contexts: Any = None, name: str = "policy") -> Policy:
    """The policy to evaluate on logged rounds, bound to their rows if it reads other columns or has candidates there.

    Args:
        policy: The policy.
        rounds: A `LoggedData`.
        contexts: The rows of the rounds as a table; None for the columns that the rounds have kept.
        name: The name of the policy in errors.
    """
    own = policy.features
    if own is not None and contexts is None and rounds.table is not None:
        contexts = rounds.frame if own.reads_frames else rounds.table
    policy = with_own_features(policy, rounds.contexts if contexts is None else contexts, rounds.features, name)
    if rounds.eligible is None or policy.repeats_log or isinstance(policy, PolicyOnCandidates):
        return policy
    return PolicyOnCandidates(policy, rounds.eligible)


@dataclass(frozen=True, eq=False)
class FeatureMass(Saved):
    """Summary of a policy over contexts: m_a = mean_i π(a | x_i) φ(x_i) of actions with any mass, ascending by action.

    Attributes:
        actions: The actions that are chosen at all.
        vectors: m_a of each.
        probability: mean_i π(a | x_i) of each.
    """

    saved_as = "feature mass"
    actions: Int[Array, " m"]
    vectors: Float[Array, "m d"]
    probability: Float[Array, " m"]

    @classmethod
    def total(cls, masses: Sequence[FeatureMass], factors: Sequence[float]) -> FeatureMass:
        """The weighted sum of several masses."""
        vectors = [factor * mass.vectors for mass, factor in zip(masses, factors, strict=True)]
        shares = [factor * mass.probability for mass, factor in zip(masses, factors, strict=True)]
        first = masses[0].actions
        if all(np.array_equal(first, mass.actions) for mass in masses[1:]):
            return cls(first, sum(vectors[1:], vectors[0]), sum(shares[1:], shares[0]))
        actions = np.concatenate([mass.actions for mass in masses])
        keys, summed = sum_by(actions, np.concatenate(vectors))
        return cls(keys, summed, sum_by(actions, np.concatenate(shares))[1])


class _FeatureMassSum:
    """Σ_i π(a | x_i) φ(x_i), added up block by block; of size K only if the policy spreads over all actions."""

    def __init__(self):
        self._total = 0.0
        self._named: list[tuple[Array, Array]] = []
        self._shared: tuple[Float[Array, " K"], Float[Array, " d"]] | None = None
        self._dense: Float[Array, "K d"] | None = None

    def add(self, choices: Choices, features: Float[Array, "n d"], weights: Float[Array, " n"]) -> None:
        """Add the choices of a block of rows, each row counted by its weight."""
        self._total += float(weights.sum())
        # A column of ones collects the probabilities along with the features.
        with np.errstate(over="ignore"):
            features = np.column_stack([features, np.ones(len(features))]) * weights[:, None]
        check_overflow("contexts times weights", features)
        if choices.named is not None and choices.named.nnz:
            distinct, column = np.unique(choices.named.indices, return_inverse=True)
            shape = (choices.n_rows, len(distinct))
            compact = sparse.csr_array((choices.named.data, column, choices.named.indptr), shape=shape)
            self._named.append((distinct.astype(np.int64), np.asarray(compact.T @ features)))
        if choices.everywhere is not None:
            self._add_shared(choices.everywhere, features.sum(axis=0))
        if choices.dense is not None:
            self._add_dense(choices.dense.T @ features)

    def mean(self) -> FeatureMass:
        """The sum divided by the total weight."""
        if self._shared is not None:
            self._add_dense(np.outer(*self._shared))
            self._shared = None
        if self._dense is None:
            actions = np.concatenate([a for a, _ in self._named])
            actions, mass = sum_by(actions, np.concatenate([v for _, v in self._named]))
        else:
            actions, mass = np.arange(len(self._dense)), self._dense
            for some, vectors in self._named:
                mass[some] += vectors
        mass /= self._total
        chosen = mass[:, -1] != 0
        if not chosen.all():
            # Actions named with probability zero, or only in rows of weight zero.
            actions, mass = actions[chosen], mass[chosen]
        return FeatureMass(actions, mass[:, :-1], mass[:, -1])

    def _add_shared(self, probabilities: Float[Array, " K"], features: Float[Array, " d"]) -> None:
        # A policy usually shares one distribution over all rows, so this stays a product until the end.
        if self._shared is not None and np.array_equal(self._shared[0], probabilities):
            features = features + self._shared[1]
        elif self._shared is not None:
            self._add_dense(np.outer(*self._shared))
        self._shared = (probabilities, features)

    def _add_dense(self, mass: Float[Array, "K d"]) -> None:
        if self._dense is None:
            self._dense = mass
        else:
            self._dense += mass
