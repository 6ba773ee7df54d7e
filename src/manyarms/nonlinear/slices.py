"""Elliptical slice sampling (Murray, Adams and MacKay, 2010): a Gaussian times anything, without a step size to tune.

A point z ~ N(m, S) and a second draw span an ellipse on which the Gaussian plays no part. A level is drawn below the
log of the other factor at z, and angles are tried, from a bracket that shrinks towards z, until one lies above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._arrays import Array

Found = TypeVar("Found")
_NARROWEST = 1e-13
"""Of a bracket, in radians: below it an angle is zero in all that matters."""


def slice_one(
    at: Callable[[float], tuple[float, Found]], current: tuple[float, Found], rng: np.random.Generator
) -> tuple[float, Found]:
    """A new point on the ellipse.

    Args:
        at: The log of the other factor at an angle, and whatever is to be kept of that point.
        current: The same at angle zero.
        rng: A NumPy generator.
    """
    level = current[0] - rng.standard_exponential()
    angle = rng.uniform(0.0, 2 * np.pi)
    low, high = angle - 2 * np.pi, angle
    while high - low > _NARROWEST:
        found = at(angle)
        if found[0] > level:
            return found
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)
    return current


def slice_many(
    at: Callable[[Float[Array, " m"], Bool[Array, " m"]], Float[Array, " m"]],
    current: Float[Array, " m"],
    rng: np.random.Generator,
) -> Float[Array, " m"]:
    """The same for m independent ellipses at once, each with its own level and bracket.

    Args:
        at: The logs of the other factors at given angles; only those of the ellipses that are marked count.
        current: The same at angle zero.
        rng: A NumPy generator.

    Returns:
        The angle at which each came to rest.
    """
    m = len(current)
    level = current - rng.standard_exponential(m)
    angle = rng.uniform(0.0, 2 * np.pi, m)
    low, high = angle - 2 * np.pi, angle.copy()
    todo = np.ones(m, dtype=bool)
    while todo.any():
        todo &= ~(at(angle, todo) > level)
        below: Int[Array, " q"] = np.flatnonzero(todo & (angle < 0))
        above: Int[Array, " q"] = np.flatnonzero(todo & (angle >= 0))
        low[below], high[above] = angle[below], angle[above]
        lost = todo & (high - low <= _NARROWEST)
        angle[lost], todo[lost] = 0.0, False
        left = np.flatnonzero(todo)
        angle[left] = rng.uniform(low[left], high[left])
    return angle
