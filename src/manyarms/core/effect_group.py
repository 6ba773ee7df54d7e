"""Groups of exchangeable effects, the parts of ψ, whose distribution can be learned."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from manyarms._base.checks import as_count, as_flag, as_text
from manyarms.core.labels import IntegerLabels, MixedLabels, WordLabels, pack_labels, unpack_labels
from manyarms.core.mixing import MixedEffects, Mixing
from manyarms.errors import DataTypeError, ShapeError
from manyarms.model_file.part_checks import PartCheck, instance_of, is_count, is_flag, is_size, is_text, maybe
from manyarms.model_file.save import Saved


@dataclass(frozen=True)
class EffectGroup(Saved):
    """A group of exchangeable effects, parts of ψ: ψ_j ~ N(μ_g, Λ_g) for j = 1 ... count, independent.

    Attributes:
        name: The kind of effect: "category", "tag", "level 2", ...
        count: Number of effects.
        part_dim: The length of an effect: d for effects in the space of θ.
        has_mean: True if a shared mean makes sense. It does not where the sign of an effect is arbitrary, as for the
            columns of an embedding.
        labels: The name of each effect; None if they are only numbered.
        n_missing: Number of actions without the metadata of this group; they share an effect of their own.
    """

    saved_as = "effects"
    saved_checks: ClassVar[Mapping[str, PartCheck]] = {
        "name": is_text,
        "count": is_size,
        "part_dim": is_size,
        "has_mean": is_flag,
        "labels": maybe(instance_of(WordLabels, IntegerLabels, MixedLabels)),
        "n_missing": is_count,
    }
    name: str
    count: int
    part_dim: int
    has_mean: bool = True
    labels: tuple[Hashable, ...] | None = None
    n_missing: int = 0

    def __post_init__(self) -> None:
        as_text("name", self.name)
        as_flag("has_mean", self.has_mean)
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


def effect_slices(groups: tuple[EffectGroup, ...]) -> list[tuple[EffectGroup, slice]]:
    """Every group of effects with its place in ψ."""
    ends = np.cumsum([0, *(group.count * group.part_dim for group in groups)])
    return [(group, slice(int(low), int(high))) for group, low, high in zip(groups, ends[:-1], ends[1:], strict=True)]


def as_effects(value: Sequence[EffectGroup] | None, mixing: Mixing) -> tuple[EffectGroup, ...]:
    """Check the groups in a user's argument `effects` against the mixing: together they make up ψ, in its order."""
    if value is None:
        if mixing.latent_dim == 0:
            return ()
        if isinstance(mixing, MixedEffects):
            return (EffectGroup("effects", mixing.n_effects, mixing.dim),)
        return (EffectGroup("latent", mixing.latent_dim, 1, has_mean=False),)
    if not isinstance(value, Sequence) or not all(isinstance(group, EffectGroup) for group in value):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(f"must be a sequence of EffectGroup; got {type(value).__name__}.", argument="effects")
    total = sum(group.count * group.part_dim for group in value)
    if total != mixing.latent_dim:
        problem = f"make up {total} latent dimensions; the mixing has {mixing.latent_dim}."
        raise ShapeError(problem, argument="effects")
    if isinstance(mixing, MixedEffects) and any(group.part_dim != mixing.dim for group in value):
        problem = f"of a MixedEffects with dim={mixing.dim} must have part_dim={mixing.dim}."
        raise ShapeError(problem, argument="effects")
    return tuple(value)
