"""Convergence of Markov chains: the agreement of their halves, and the number of independent draws they are worth."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array

HIGHEST_R_HAT = 1.05
FEWEST_DRAWS = 100.0


def r_hat(chains: Float[Array, "c n q"]) -> Float[Array, " q"]:
    """√(total variance / variance within), every chain cut in halves; 1 when all halves agree (Gelman and Rubin, 1992).

    NaN when a chain has fewer than four draws, 1 for a quantity that never moves.
    """
    halves = _halves(chains)
    n = halves.shape[1]
    if n < 2:
        return np.full(chains.shape[2], np.nan)
    within, total = _variances(halves)
    return np.sqrt(np.divide(total, within, out=np.ones_like(total), where=within > 0))


def effective_draws(chains: Float[Array, "c n q"]) -> Float[Array, " q"]:
    """The number of independent draws that these are worth for a mean, from autocorrelations within halves of chains.

    n / (1 + 2 Σ_t ρ_t), summed while pairs ρ_{2t} + ρ_{2t+1} stay positive and do not rise (Geyer, 1992), as in Stan.
    """
    halves = _halves(chains)
    m, n, q = halves.shape
    if n < 2:
        return np.full(q, np.nan)
    within, total = _variances(halves)
    moving = total > 0
    scale = np.where(moving, total, 1.0)
    covariance = _autocovariance(halves).mean(axis=0)
    # Halves that lie apart count as correlation at every lag.
    rho = 1.0 - (within - covariance * n / (n - 1)) / scale
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2, q).sum(axis=1)
    pairs = np.minimum.accumulate(np.where(np.cumprod(pairs > 0, axis=0) > 0, pairs, 0.0), axis=0)
    time = np.maximum(2.0 * pairs.sum(axis=0) - 1.0, 1.0 / np.log10(max(m * n, 10)))
    return np.where(moving, m * n / time, float(m * n))


def convergence_warnings(quantity: str, chains: Float[Array, "c n q"]) -> tuple[str, ...]:
    """Everything that is wrong with chains, in plain words."""
    if chains.shape[2] == 0:
        return ()
    apart, worth = float(np.max(r_hat(chains))), float(np.min(effective_draws(chains)))
    warnings = list[str]()
    if not apart <= HIGHEST_R_HAT:
        warnings.append(
            f"chains disagree about {quantity} (R-hat {apart:.3g}): they need more warmup, or do not move between modes"
        )
    if not worth >= FEWEST_DRAWS:
        warnings.append(f"draws of {quantity} are worth only {worth:.3g} independent ones; raise n_draws or thin")
    return tuple(warnings)


def _halves(chains: Float[Array, "c n q"]) -> Float[Array, "h k q"]:
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, chains.shape[1] - half :]])


def _variances(halves: Float[Array, "h k q"]) -> tuple[Float[Array, " q"], Float[Array, " q"]]:
    """The mean variance within, and an estimate of the total one that is too large while halves disagree."""
    n = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    # Rounding must not count as variance where nothing moves.
    within = np.where(np.ptp(halves, axis=(0, 1)) > 0, within, 0.0)
    between = halves.mean(axis=1).var(axis=0, ddof=1) if len(halves) > 1 else np.zeros_like(within)
    return within, within * (n - 1) / n + np.where(np.ptp(halves, axis=(0, 1)) > 0, between, 0.0)


def _autocovariance(halves: Float[Array, "h k q"]) -> Float[Array, "h k q"]:
    """The autocovariance by lag, through the spectrum; padded, so that the end does not meet the beginning."""
    n = halves.shape[1]
    spectrum = np.fft.rfft(halves - halves.mean(axis=1, keepdims=True), n=2 * n, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, n=2 * n, axis=1)[:, :n] / n
