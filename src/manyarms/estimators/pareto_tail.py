"""The Pareto tail of importance weights: k, the shape of the generalised Pareto distribution of the largest ones.

With k below 1/2 the weights have a finite variance. Up to 0.7 an estimate with these weights is still usable; above it,
error bars are too narrow, whatever the effective sample size says (Vehtari, Simpson, Gelman, Yao and Gabry, 2024,
"Pareto smoothed importance sampling").
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array

FEWEST = 5
"""A tail of fewer weights than this has no shape."""


def pareto_k(weights: Float[Array, " n"]) -> float | None:
    """k of the tail of some weights; None where the tail is too short, or all of it is the same number.

    The tail has min(n / 5, 3 √n) weights, as in Pareto smoothed importance sampling, and k is pulled towards 1/2 with
    the strength of ten weights.
    """
    n = len(weights)
    size = int(np.ceil(min(0.2 * n, 3.0 * np.sqrt(n))))
    if size < FEWEST or size >= n:
        return None
    ordered = np.sort(weights)
    cutoff = max(ordered[n - size - 1], np.finfo(float).tiny)
    tail = ordered[ordered > cutoff]
    if len(tail) < FEWEST or tail[0] == tail[-1]:
        return None
    # The unit of weights does not matter for k, and squares of large ones overflow.
    k = _fit_shape((tail - cutoff) / (tail[-1] - cutoff))
    return float((k * len(tail) + 10 * 0.5) / (len(tail) + 10))


def _fit_shape(excess: Float[Array, " m"]) -> float:
    """k of a generalised Pareto distribution by the posterior mean of Zhang and Stephens (2009).

    With θ = k / σ, the likelihood has one parameter: k(θ) = mean log(1 - θ x), up to signs. It is averaged over a grid
    of quantiles of their prior, weighted by the profile likelihood.
    """
    n, count = len(excess), 30 + int(np.sqrt(len(excess)))
    quartile = excess[int(n / 4 + 0.5) - 1]
    theta = 1.0 / excess[-1] + (1.0 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))) / (3.0 * quartile)
    k = np.log1p(-theta[:, None] * excess).mean(axis=1)
    # θ can be zero to the last digit. There k is zero too, and -θ / k goes to one over the mean.
    inverse_scale = np.divide(-theta, k, out=np.full(count, 1.0 / excess.mean()), where=k != 0.0)
    profile = n * (np.log(inverse_scale) - k - 1.0)
    share = np.exp(profile - profile.max())
    mean = float(share @ theta / share.sum())
    return float(np.log1p(-mean * excess).mean())
