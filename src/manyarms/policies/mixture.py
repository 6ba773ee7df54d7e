"""Mixtures of policies: each policy decides in a share of the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance, as_vector, check_rows
from manyarms.core import Choices, Policy
from manyarms.errors import InputError, PropensityError, ShapeError
from manyarms.model_file.part_checks import floats, instance_of, tuple_of
from manyarms.policies.table import SUM_ERROR


class Mixture(Policy):
    """π(a | x) = Σ_j share_j π_j(a | x): in every round one of several policies decides, drawn by its share.

    Args:
        policies: The policies, on the same actions.
        shares: (J,) The share of the rounds of each; they sum to 1.

    Raises:
        PropensityError: When a share is negative, or the shares do not sum to 1.
    """

    saved_as = "mixture"
    saved_fields = ("policies", "shares")
    saved_checks: ClassVar = {"policies": tuple_of(instance_of(Policy)), "shares": floats(1)}

    def __init__(self, policies: Sequence[Policy], shares: Any):
        listed = as_instance("policies", policies, Sequence, "a list of policies")
        self.policies = tuple(as_instance("policies", policy, Policy, "policies") for policy in listed)
        if not self.policies:
            raise InputError("must have at least one policy.", argument="policies")
        self.shares: Float[Array, " J"] = as_vector("shares", shares, length=len(self.policies))
        check_rows("shares", self.shares, lambda s: s >= 0, PropensityError, "must not be negative", "")
        if abs(self.shares.sum() - 1.0) > SUM_ERROR:
            raise PropensityError(
                f"must sum to 1; got {self.shares.sum():.6g}.", "Divide by the sum.", argument="shares"
            )
        self.n_actions = self.policies[0].n_actions
        for policy in self.policies:
            if policy.n_actions != self.n_actions:
                raise ShapeError(
                    f"have {policy.n_actions} and {self.n_actions} actions.", "Mix policies on the same catalog.",
                    argument="policies",
                )  # fmt: skip
        for name in ("n_rows", "dim", "features", "tied_to"):
            setattr(self, name, self._common(name))
        catalogs = [policy.catalog for policy in self.policies if policy.catalog is not None]
        if any(len(other) != len(catalogs[0]) or not other.begins_with(catalogs[0]) for other in catalogs):
            raise InputError("differ in their catalogs.", "Mix policies on the same catalog.", argument="policies")
        self.catalog = catalogs[0] if catalogs else None
        self.rows_per_block = min(policy.rows_per_block for policy in self.policies)
        self.learned_from = tuple(dict.fromkeys(one for policy in self.policies for one in policy.learned_from))

    def _common(self, name: str) -> Any:
        """The attribute that all policies which have it agree on."""
        values = [value for policy in self.policies if (value := getattr(policy, name)) is not None]
        if any(value != values[0] for value in values[1:]):
            raise InputError(
                f"differ in their {name}.", "Mix policies that take the same contexts.", argument="policies"
            )
        return values[0] if values else None

    def consistent(self) -> bool:
        """True if no policy is a mixture itself: each would call the next."""
        return not any(isinstance(policy, Mixture) for policy in self.policies)

    def take(self, rows: slice | Int[Array, " m"]) -> Mixture:
        return Mixture([policy.take(rows) for policy in self.policies], self.shares)

    def on(self, rounds: Any) -> Mixture:
        return Mixture([policy.on(rounds) for policy in self.policies], self.shares)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        used = [(policy, float(share)) for policy, share in zip(self.policies, self.shares, strict=True) if share > 0]
        mixed, total = used[0][0].choices(contexts, eligible), used[0][1]
        for policy, share in used[1:]:
            total += share
            mixed = mixed.mixed(share / total, policy.choices(contexts, eligible))
        return mixed
