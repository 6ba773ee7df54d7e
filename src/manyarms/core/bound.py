"""A policy whose features are not those of its judge."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from scipy import sparse

from manyarms._arrays import Array
from manyarms.core.choices import Choices
from manyarms.core.columns import table_of
from manyarms.core.contexts import as_contexts
from manyarms.core.features import FeatureMap
from manyarms.core.policy import Policy
from manyarms.errors import InputError


class Bound(Policy):
    """What a policy does in contexts that it has read through its own feature map; tied to these rows.

    Args:
        policy: Any policy.
        contexts: (n, d) in the policy's own features.
    """

    def __init__(self, policy: Policy, contexts: Float[Array, "n d"]):
        self.policy, self._contexts = policy, contexts
        self.n_actions, self.n_rows, self.catalog = policy.n_actions, len(contexts), policy.catalog
        self.rows_per_block, self.learned_from = policy.rows_per_block, policy.learned_from

    def take(self, rows: slice | Int[Array, " m"]) -> Bound:
        return Bound(self.policy.take(rows), self._contexts[rows])

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return self.policy.choices(self._contexts, eligible)


def readable(policy: Policy, contexts: Any, features: FeatureMap | None, name: str = "policy") -> Policy:
    """The policy for a judge that reads contexts through `features`; one with another map reads the table itself.

    Args:
        policy: The policy to judge.
        contexts: A table, or the judge's features.
        features: The judge's map; None where it has none.
        name: What the policy is called in messages.

    Raises:
        InputError: When the maps differ and there is no table to read.
    """
    if policy.features is None or features is None or policy.features == features:
        return policy
    if table_of(contexts) is None:
        raise InputError(
            f"{name} was learned with another feature map than the one these contexts were made with. Pass the table "
            "with the columns themselves, which each reads through its own map."
        )
    return Bound(policy, as_contexts(contexts, policy.features))
