"""A prior in which the weights of all actions lie near a few directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_floats, as_vector
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.mixing import DenseMixing, EffectGroup
from manyarms.errors import ShapeError
from manyarms.priors.prior_builder import as_variance


def low_rank(
    basis: Any,
    n_actions: int | None = None,
    *,
    latent_mean: Any = None,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
) -> HierarchicalGaussian:
    """θ_a ~ N(B_a ψ, action_std² I) with ψ ~ N(latent_mean, effect_std² I) in R^d', d' usually far below d.

    The paper's structure with W_a = B_a. The basis is used as it is: scale its columns to say how much each matters.

    Args:
        basis: B: (d, d') that all actions share, of which no copies are made, or (K, d, d') one each.
        n_actions: K; needed with a basis that all actions share.
        latent_mean: E ψ, (d',); zero by default.
        effect_std: Of every coordinate of ψ: where `learn_prior` starts.
        action_std: Of an action around its B_a ψ.
        shared_std: Of an effect in R^d that all actions share, which comes first in ψ; None for none.

    Examples:
        >>> import numpy as np
        >>> from manyarms.priors import low_rank
        >>> low_rank(np.eye(5)[:, :2], n_actions=100)
        HierarchicalGaussian(100 actions, d=5, latent_dim=2, latent: 2)
    """
    matrices = _as_basis(basis, n_actions)
    K, d, p = matrices.shape
    mean = np.zeros(p) if latent_mean is None else as_vector("latent_mean", latent_mean, length=p)
    variances = np.full(p, as_variance("effect_std", effect_std))
    groups = [EffectGroup("latent", p, 1, has_mean=False)]
    if shared_std is not None:
        shared = np.eye(d) if matrices.strides[0] == 0 else np.broadcast_to(np.eye(d), (K, d, d))
        matrices = _broadcast(np.concatenate([shared, matrices[0] if shared.ndim == 2 else matrices], axis=-1), K)
        mean = np.concatenate([np.zeros(d), mean])
        variances = np.concatenate([np.full(d, as_variance("shared_std", shared_std)), variances])
        groups = [EffectGroup("shared", 1, d), *groups]
    action_cov = as_variance("action_std", action_std)
    return HierarchicalGaussian(mean, variances, DenseMixing(matrices), action_cov, effects=groups)


def _as_basis(value: Any, n_actions: int | None) -> Float[Array, "K d p"]:
    basis = as_floats("basis", value, ndim=(2, 3))
    if basis.size == 0:
        raise ShapeError(f"basis must have a row and a column at least; got shape {basis.shape}. See `independent`.")
    count = None if n_actions is None else as_count("n_actions", n_actions)
    if basis.ndim == 2:
        if count is None:
            raise ShapeError("basis is one for all actions here and does not say how many there are; pass n_actions=.")
        return _broadcast(basis.copy(), count)
    if count is not None and count != len(basis):
        raise ShapeError(f"basis has {len(basis)} actions; n_actions is {count}.")
    return basis.copy()


def _broadcast(matrices: Float[Array, "*K d p"], n_actions: int) -> Float[Array, "K d p"]:
    """One matrix seen as K of them, without copies."""
    return np.broadcast_to(matrices, (n_actions, *matrices.shape[-2:]))
