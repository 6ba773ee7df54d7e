"""Which parts of ψ are alike: groups of effects that come from one distribution, so that it can be learned."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from manyarms._base.checks import as_count
from manyarms.core.labels import pack_labels, unpack_labels
from manyarms.core.mixing import MixedEffects, Mixing
from manyarms.errors import DataTypeError, ShapeError
from manyarms.model_file.saved import Saved


@dataclass(frozen=True)
class EffectGroup(Saved):
    """Parts of ψ that are exchangeable: ψ_j ~ N(μ_g, Λ_g) for j = 1 ... count, independent.

    Attributes:
        name: What the effects are of: "category", "tag", "level 2", ...
        count: How many effects there are.
        part_dim: The length of one: d for effects in the space of θ.
        has_mean: Whether a mean that all share makes sense. It does not where the sign of an effect is arbitrary, as
            for the columns of an embedding.
        labels: What each effect is called; None when they are only numbered.
        n_missing: How many actions lack the metadata of this group, and share an effect of their own instead.
    """

    saved_as = "effects"
    name: str
    count: int
    part_dim: int
    has_mean: bool = True
    labels: tuple[Hashable, ...] | None = None
    n_missing: int = 0

    def __post_init__(self) -> None:
        as_count("count", self.count)
        as_count("part_dim", self.part_dim)
        if self.labels is not None and len(self.labels) != self.count:
            raise ShapeError(f"{self.name} has {self.count} effects; got {len(self.labels)} labels.")

    def saved(self) -> dict[str, Any]:
        labels = None if self.labels is None else pack_labels(f"labels of {self.name}", self.labels)
        return super().saved() | {"labels": labels}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> EffectGroup:
        if parts["labels"] is not None:
            parts["labels"] = tuple(unpack_labels(parts["labels"]).tolist())
        return cls(**parts)

    def __str__(self) -> str:
        actions = "action" if self.n_missing == 1 else "actions"
        missing = f" ({self.n_missing:,} {actions} without)" if self.n_missing else ""
        return f"{self.name}: {self.count:,}{missing}"


def as_effects(value: Sequence[EffectGroup] | None, mixing: Mixing) -> tuple[EffectGroup, ...]:
    """Check what a user passed as `effects`: groups that together make up ψ, in its order."""
    if value is None:
        return _default(mixing)
    if not isinstance(value, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(f"effects must be a sequence of EffectGroup; got {type(value).__name__}.")
    groups: tuple[Any, ...] = tuple(value)
    if not all(isinstance(group, EffectGroup) for group in groups):
        raise DataTypeError("effects must be a sequence of EffectGroup.")
    total = sum(group.count * group.part_dim for group in groups)
    if total != mixing.latent_dim:
        raise ShapeError(f"effects make up {total} latent dimensions; the mixing has {mixing.latent_dim}.")
    if isinstance(mixing, MixedEffects) and any(group.part_dim != mixing.dim for group in groups):
        raise ShapeError(f"effects of a MixedEffects with dim={mixing.dim} must have part_dim={mixing.dim}.")
    return groups


def _default(mixing: Mixing) -> tuple[EffectGroup, ...]:
    if mixing.latent_dim == 0:
        return ()
    if isinstance(mixing, MixedEffects):
        return (EffectGroup("effects", mixing.n_effects, mixing.dim),)
    return (EffectGroup("latent", mixing.latent_dim, 1, has_mean=False),)
