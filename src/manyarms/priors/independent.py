"""Priors under which actions share nothing, as in the standard direct methods."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyarms._base.checks import as_count, as_floats, as_scalar
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.errors import ShapeError


def independent(n_actions: int, *, mean: Any = 0.0, cov: Any = 1.0, dim: int | None = None) -> HierarchicalGaussian:
    """θ_a ~ N(m_a, S_a), independent over actions (paper, eq. 3): with it `fit` is DM (Bayes).

    `prior.marginal()` gives the independent prior with the same marginals as a structured one.

    Args:
        n_actions: K.
        mean: m: a scalar, (d,) or (K, d).
        cov: S: a scalar, (d,), (d, d) or (K, d, d).
        dim: d; needed only when mean and cov are both scalars.
    """
    n_actions = as_count("n_actions", n_actions)
    centre = as_floats("mean", mean, ndim=(0, 1, 2))
    spread = as_floats("cov", cov, ndim=(0, 1, 2, 3))
    sizes = [part.shape[-1] for part in (centre, spread) if part.ndim]
    if dim is None and not sizes:
        raise ShapeError("mean and cov are scalars here, so they do not give the dimension.", "Pass dim=.")
    d = as_count("dim", dim) if dim is not None else sizes[0]
    offset = np.full(d, centre) if centre.ndim == 0 else centre
    return HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), np.zeros((n_actions, d, 0)), spread, offset)


def ridge(n_actions: int, dim: int, *, penalty: float, noise_std: float = 1.0) -> HierarchicalGaussian:
    """The prior whose posterior mean is ridge regression per action, min Σ (r - φᵀθ)² + penalty ‖θ‖²: DM (Freq).

    Args:
        n_actions: K.
        dim: d.
        penalty: λ, above zero.
        noise_std: σ of the likelihood that the prior will be used with.
    """
    penalty = as_scalar("penalty", penalty, above=0.0)
    noise_std = as_scalar("noise_std", noise_std, above=0.0)
    return independent(n_actions, mean=0.0, cov=noise_std**2 / penalty, dim=dim)
