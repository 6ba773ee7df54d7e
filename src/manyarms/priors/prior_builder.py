"""Steps common to the builders: metadata from a catalog or an array, weights of effects, and the prior itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_scalar
from manyarms.core import MISSING, EffectGroup, HierarchicalGaussian, MixedEffects
from manyarms.linalg.sparse_matrices import one_hot, shape_of


@dataclass(frozen=True)
class EffectPart:
    """ψ_j ~ N(mean, diag(variance)) for the J effects of one group, and (K, J) weights of the effects in every action.

    Mean and variance are numbers, or (J, d).
    """

    group: EffectGroup
    weights: sparse.csr_array
    variance: Any
    mean: Any = 0.0


def build(
    parts: Sequence[EffectPart], *, dim: int, action_cov: Any, shared_std: float | None, n_actions: int | None = None
) -> HierarchicalGaussian:
    """θ_a ~ N(shared + Σ_j w_aj ψ_j, Σ_a) with the effects of all parts; `n_actions` is needed where there are none."""
    d = as_count("dim", dim)
    n_actions = shape_of(parts[0].weights)[0] if n_actions is None else as_count("n_actions", n_actions)
    if shared_std is not None:
        everyone = one_hot(np.zeros(n_actions, dtype=np.int64), 1)
        parts = [EffectPart(EffectGroup("shared", 1, d), everyone, as_variance("shared_std", shared_std)), *parts]
    mean, variance = (
        np.concatenate([np.broadcast_to(getattr(part, name), (part.group.count, d)).reshape(-1) for part in parts])
        for name in ("mean", "variance")
    )
    weights = sparse.hstack([part.weights for part in parts], format="csr")
    groups = [part.group for part in parts]
    return HierarchicalGaussian(mean, variance, MixedEffects(weights, d), action_cov, effects=groups)


def build_group(
    name: str,
    labels: Sequence[Hashable],
    weights: sparse.csr_array,
    *,
    n_missing: int,
    dim: int,
    stds: tuple[Any, Any, float | None],
    has_mean: bool = True,
) -> HierarchicalGaussian:
    """The prior whose effects are one group, each N(0, effect_std² I), given effect_std, action_std and shared_std.

    Where metadata are missing, the last effect is that of the actions without.
    """
    effect_std, action_std, shared_std = stds
    labels, d = (*labels, *([MISSING] if n_missing else [])), as_count("dim", dim)
    group = EffectGroup(name, len(labels), d, has_mean=has_mean, labels=labels, n_missing=n_missing)
    part = EffectPart(group, weights, as_variance("effect_std", effect_std))
    return build([part], dim=dim, action_cov=as_variance("action_std", action_std), shared_std=shared_std)


def as_variance(name: str, std: Any) -> float:
    """The variance that a prior builder makes of a standard deviation, which is zero or more."""
    # Beyond 1e100 squares soon overflow.
    return as_scalar(name, std, at_least=0.0, at_most=1e100) ** 2


def with_missing_effect(weights: sparse.csr_array, missing: Int[Array, " m"]) -> sparse.csr_array:
    """Weights of effects for a prior builder, with one more column for the actions that lack them, if there are any.

    Its weight is the typical one, the root mean square of ‖w_a‖ over the other actions: missing metadata must not make
    the prior of an action narrower.
    """
    if len(missing) == 0:
        return weights
    n_actions = shape_of(weights)[0]
    n_known = n_actions - len(missing)
    typical = float(np.sqrt(np.sum(weights.data**2) / n_known)) if n_known else 1.0
    extra = (np.full(len(missing), typical), (missing, np.zeros(len(missing), dtype=np.int64)))
    return sparse.csr_array(sparse.hstack([weights, sparse.csr_array(extra, shape=(n_actions, 1))]))
