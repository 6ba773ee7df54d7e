"""Priors given by matrices: covariances of independent actions, a basis of the weights, or one joint covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_covariances, as_floats, as_vector
from manyarms.core import DenseMixing, EffectGroup, HierarchicalGaussian
from manyarms.errors import CovarianceError, ShapeError
from manyarms.priors.prior_builder import as_variance


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


def low_rank(
    basis: Any,
    n_actions: int | None = None,
    *,
    latent_mean: Any = None,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
) -> HierarchicalGaussian:
    """θ_a ~ N(B_a ψ, action_std² I) with given matrices B_a and ψ ~ N(latent_mean, effect_std² I) in R^d'.

    The paper's structure with W_a = B_a; d' is usually far below d. The basis is used as it is: scale its columns to
    say how much each matters.

    Args:
        basis: B: (d, d') shared by all actions, of which no copies are made, or (K, d, d') with one per action.
        n_actions: K; needed if all actions share the basis.
        latent_mean: E ψ, (d',); zero by default.
        effect_std: Standard deviation of every coordinate of ψ; `learn_prior` starts there.
        action_std: Standard deviation of an action around its B_a ψ.
        shared_std: Standard deviation of an effect in R^d that all actions share, which comes first in ψ; None for no
            such effect.

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
        joined = np.concatenate([shared, matrices[0] if shared.ndim == 2 else matrices], axis=-1)
        matrices = np.broadcast_to(joined, (K, *joined.shape[-2:]))
        mean = np.concatenate([np.zeros(d), mean])
        variances = np.concatenate([np.full(d, as_variance("shared_std", shared_std)), variances])
        groups = [EffectGroup("shared", 1, d), *groups]
    action_cov = as_variance("action_std", action_std)
    return HierarchicalGaussian(mean, variances, DenseMixing(matrices), action_cov, effects=groups)


def _as_basis(value: Any, n_actions: int | None) -> Float[Array, "K d p"]:
    basis = as_floats("basis", value, ndim=(2, 3))
    if basis.size == 0:
        raise ShapeError(
            f"must have at least one row and one column; got shape {basis.shape}.",
            "Without a basis, use `independent`.",
            argument="basis",
        )
    count = None if n_actions is None else as_count("n_actions", n_actions)
    if basis.ndim == 2:
        if count is None:
            raise ShapeError(
                "is shared by all actions here, so it does not give their number.", "Pass n_actions=.", argument="basis"
            )
        # One matrix seen as K of them, without copies.
        return np.broadcast_to(basis.copy(), (count, *basis.shape))
    if count is not None and count != len(basis):
        raise ShapeError(f"has {len(basis)} actions; n_actions is {count}.", "Leave n_actions out.", argument="basis")
    return basis.copy()


def from_joint(mean: Any, cov: Any, n_actions: int, *, rank: int | None = None) -> HierarchicalGaussian:
    """θ = (θ_1, ..., θ_K) ~ N(mean, cov), for any mean and cov, as ψ ~ N(0, I) and θ_a | ψ ~ N(W_a ψ + m_a, Σ_a).

    The paper's appendix "Discussing the Main Assumption": some W Wᵀ + blockdiag(Σ_a) equals cov. There it subtracts
    λ I; here as much of the block diagonal as leaves a covariance, λ D_a with D_a = Cov θ_a. So nothing depends on the
    units of θ, and where λ is the smallest eigenvalue of D^-½ cov D^-½, d' falls by its multiplicity. Actions fall into
    sets without covariance between them, and each set has its own λ: independent actions have d' = 0.

    Without `rank` the joint distribution is the given one, up to rounding. With it, ψ keeps the `rank` directions with
    the largest remaining eigenvalues ν of D^-½ (cov - λ D) D^-½, and Σ_a takes up what the others gave to θ_a: means
    and covariances of each action stay exact. Covariances of two actions are approximate, in those units with a
    Frobenius error of at most √(Σ ν²) over the directions left out.

    Costs O(K³ d³) once, for the eigenvectors. The cost of a fit then depends on d', so choose `rank` well below K d.

    Args:
        mean: (K d,) stacked action by action, or (K, d).
        cov: (K d, K d), symmetric positive semi-definite; it may be singular.
        n_actions: K.
        rank: The largest d' allowed; None for as many as exactness needs.

    Raises:
        CovarianceError: When cov is not symmetric, or has a negative eigenvalue.
    """
    K = as_count("n_actions", n_actions)
    full = as_floats("cov", cov, ndim=2)
    if full.shape[0] != full.shape[1] or full.size == 0 or len(full) % K:
        raise ShapeError(f"must be (K d, K d) with K = {K} actions; got shape {full.shape}.", argument="cov")
    d = len(full) // K
    centre = as_floats("mean", mean, ndim=(1, 2))
    if centre.shape not in ((K * d,), (K, d)):
        raise ShapeError(f"must be ({K * d},) or ({K}, {d}), to match cov; got shape {centre.shape}.", argument="mean")
    limit = None if rank is None else as_count("rank", rank, minimum=0)
    values, loadings, blocks = _split(full, K)
    order = np.argsort(values, kind="stable")[::-1]
    loadings = loadings[:, order].reshape(K, d, len(order))
    kept, left_out = loadings[:, :, :limit], loadings[:, :, len(order) if limit is None else limit :]
    action_cov = blocks + left_out @ left_out.swapaxes(1, 2)
    return HierarchicalGaussian(np.zeros(kept.shape[2]), 1.0, kept, action_cov, centre.reshape(K, d))


def _split(cov: Float[Array, "Kd Kd"], n_actions: int) -> tuple[Float[Array, " p"], Array, Float[Array, "K d d"]]:
    """ν, L and B_a with cov = L Lᵀ + blockdiag(B_a).

    B_a = λ Cov θ_a, with the λ of the set that the action is in. ν holds the eigenvalue that belongs to each column of
    L, in units in which each Cov θ_a is the identity.
    """
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415  slow to import

    size, d = len(cov), len(cov) // n_actions
    # Correlations, so that the threshold for zero does not depend on units.
    stds = np.sqrt(np.maximum(np.diag(cov), 0.0))
    divisor = np.where(stds > 0, stds, stds.max() or 1.0)
    correlation = as_covariances("cov", (cov / divisor / divisor[:, None])[None])[0]
    up, white = _whitened(correlation, n_actions)
    real = np.flatnonzero(np.abs(up).sum(axis=1).reshape(-1) > 0)
    sets = connected_components(sparse.csr_array(_blocks_apart(correlation, n_actions).any(axis=(1, 3))))[1]
    values, columns, share = [np.zeros(0)], [np.zeros((size, 0))], np.zeros(n_actions)
    for number in range(int(sets.max()) + 1):
        mine = real[sets[real // d] == number]
        eigenvalues, vectors = np.linalg.eigh(white[np.ix_(mine, mine)])
        # Within rounding of zero is zero; within rounding of λ belongs to the blocks.
        rounding = _ROUNDING * eigenvalues.max(initial=0.0)
        low = eigenvalues.min(initial=1.0)
        low = low if low > rounding else 0.0
        kept = eigenvalues - low > rounding
        share[sets == number] = low
        values.append(eigenvalues[kept] - low)
        columns.append(np.zeros((size, int(kept.sum()))))
        columns[-1][mine] = vectors[:, kept] * np.sqrt(values[-1])
    flat = np.concatenate(columns, axis=1)
    # Back from white to θ: each action by its own root of Cov θ_a.
    roots = stds.reshape(n_actions, d, 1) * up
    loadings = (roots @ flat.reshape(n_actions, d, flat.shape[1])).reshape(size, flat.shape[1])
    return np.concatenate(values), loadings, share[:, None, None] * (roots @ roots.swapaxes(1, 2))


def _whitened(
    correlation: Float[Array, "Kd Kd"], n_actions: int
) -> tuple[Float[Array, "K d d"], Float[Array, "Kd Kd"]]:
    """U_a with U_a U_aᵀ = C_aa, and U⁺ C U⁺ᵀ, with identities as its diagonal blocks (zeros where C_aa is singular)."""
    size, d = len(correlation), len(correlation) // n_actions
    own = np.arange(n_actions)
    values, vectors = np.linalg.eigh(_blocks_apart(correlation, n_actions)[own, :, own, :])
    kept = values > d * np.finfo(float).eps * values.max(axis=1, keepdims=True, initial=0.0)
    root = np.sqrt(np.where(kept, values, 1.0))
    up = np.where(kept[:, None, :], vectors * root[:, None, :], 0.0)
    down = np.where(kept[:, None, :], vectors / root[:, None, :], 0.0)
    half = down.swapaxes(1, 2) @ correlation.reshape(n_actions, d, size)
    lost = np.abs(correlation - (up @ half).reshape(size, size)).max(axis=1)
    if lost.max() > 1e-6:
        raise CovarianceError(
            f"must be positive semi-definite; row {int(np.argmax(lost))} covaries in a direction in which it has "
            "no variance.",
            "Build it as A @ A.T.",
            argument="cov",
        )
    tall = half.reshape(size, size).T.reshape(n_actions, d, size)
    white = (down.swapaxes(1, 2) @ tall).reshape(size, size)
    white = (white + white.T) / 2
    # Up to rounding they are so already; an action alone must come out as exactly independent.
    _blocks_apart(white, n_actions)[own, :, own, :] = np.eye(d) * kept[:, :, None]
    return up, white


def _blocks_apart(matrix: Float[Array, "Kd Kd"], n_actions: int) -> Float[Array, "K d K d"]:
    d = len(matrix) // n_actions
    return matrix.reshape(n_actions, d, n_actions, d)


_ROUNDING = 1e-12
