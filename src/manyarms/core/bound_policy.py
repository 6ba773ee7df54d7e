"""Bound policies: tied to the rows they are evaluated on, because they read other columns or have candidates there."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.arrow import table_of
from manyarms._base.checks import Array
from manyarms.core.choices import Choices, RowError
from manyarms.core.feature_map import FeatureMap, as_contexts
from manyarms.core.policy import Policy
from manyarms.errors import InputError
from manyarms.linalg.sparse_matrices import shape_of


class PolicyWithOwnFeatures(Policy):
    """A policy bound to contexts that it has read through its own feature map.

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


class _PolicyOnCandidates(Policy):
    """A policy bound to rows, each of which has candidates that it chooses among."""

    def __init__(self, policy: Policy, candidates: sparse.csr_array):
        self.policy, self._candidates = policy, candidates
        self.n_actions, self.n_rows, self.dim = policy.n_actions, shape_of(candidates)[0], policy.dim
        self.features, self.catalog = policy.features, policy.catalog
        self.rows_per_block, self.learned_from = policy.rows_per_block, policy.learned_from
        self.samples_have_probabilities = policy.samples_have_probabilities

    def take(self, rows: slice | Int[Array, " m"]) -> _PolicyOnCandidates:
        return _PolicyOnCandidates(self.policy.take(rows), self._candidates[rows])

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
    """The policy to evaluate on contexts read through `features`, bound to them if it has a feature map of its own.

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
    if rounds.eligible is None or policy.repeats_log or isinstance(policy, _PolicyOnCandidates):
        return policy
    return _PolicyOnCandidates(policy, rounds.eligible)
