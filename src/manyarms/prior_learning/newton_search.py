"""Second-order search for the maximum of a smooth function: the curvature is measured once, then updated.

Each evaluation of the evidence costs about a fit, so a step that needs many of them is dear. Newton's steps need one or
two each, and their predicted gain says when to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.errors import NumericalError

FEW = 8
"""Up to so many numbers, the curvature by each of them is worth an evaluation."""
Vector = Float[Array, " p"]
Objective = Callable[[Vector], tuple[float, Vector]]
"""The function to maximise, and its derivative."""


class NewtonResult(NamedTuple):
    """The end of a search; `finished` is False where its steps no longer lead upwards, or there were too many."""

    eta: Vector
    value: float
    curvature: Float[Array, "p p"]
    iterations: int
    finished: bool


def newton_search(
    objective: Objective,
    eta: Vector,
    box: tuple[Vector, Vector],
    reach: Vector,
    negligible: float,
    max_iterations: int,
    accepted: Callable[[float], None],
    curvature: Float[Array, "p p"] | None = None,
) -> NewtonResult:
    """Climb from η by Newton's steps: curvature by differences of derivatives at the start, then by BFGS.

    Args:
        objective: Value and derivative; a `NumericalError` counts as a value of minus infinity.
        eta: The start, inside the box.
        box: Lower and upper bounds.
        reach: The longest step, entry by entry.
        negligible: The gain that is worth no further step.
        max_iterations: The most steps.
        accepted: Called with the value after every step.
        curvature: That of a similar function, if it is known: it saves as many evaluations as η has numbers.
    """
    (value, slope), iterations = objective(eta), 0
    curvature = _curvature(objective, eta, slope, box) if curvature is None else curvature
    while iterations < max_iterations:
        step = _step(curvature, eta, slope, box, reach)
        gain = float(slope @ step - 0.5 * step @ curvature @ step)
        if not gain > 0.1 * negligible:
            return NewtonResult(eta, value, curvature, iterations, True)
        after = _along(objective, eta, value, float(slope @ step), step)
        if after is None:
            # What is left may be rounding error.
            return NewtonResult(eta, value, curvature, iterations, gain < 10 * negligible)
        moved, value, new_slope = after
        curvature = _updated(curvature, moved - eta, slope - new_slope)
        eta, slope, iterations = moved, new_slope, iterations + 1
        accepted(value)
    return NewtonResult(eta, value, curvature, iterations, False)


def _curvature(objective: Objective, eta: Vector, slope: Vector, box: tuple[Vector, Vector]) -> Float[Array, "p p"]:
    """Minus the second derivatives, made positive definite: eigenvalues by their absolute values."""
    rows = np.empty((len(eta), len(eta)))
    for i in range(len(eta)):
        moved = eta.copy()
        moved[i] += _DIFFERENCE if eta[i] + _DIFFERENCE <= box[1][i] else -_DIFFERENCE
        try:
            rows[i] = (slope - objective(moved)[1]) / (moved[i] - eta[i])
        except NumericalError:
            rows[i] = np.eye(len(eta))[i] * max(1.0, float(np.abs(slope[i])))
    values, vectors = np.linalg.eigh(0.5 * (rows + rows.T))
    values = np.maximum(np.abs(values), 1e-8 * np.abs(values).max() + np.finfo(float).tiny)
    return (vectors * values) @ vectors.T


def _step(
    curvature: Float[Array, "p p"], eta: Vector, slope: Vector, box: tuple[Vector, Vector], reach: Vector
) -> Vector:
    """Newton's step within reach; entries at a bound that the slope pushes outwards stay there."""
    low, high = box
    free = np.flatnonzero(~(((eta <= low) & (slope < 0)) | ((eta >= high) & (slope > 0))))
    step = np.zeros(len(eta))
    if len(free) == 0:
        return step
    step[free] = np.linalg.solve(curvature[np.ix_(free, free)], slope[free])
    step /= max(1.0, float(np.max(np.abs(step) / reach)))
    return np.clip(eta + step, low, high) - eta


def _along(
    objective: Objective, eta: Vector, value: float, rise: float, step: Vector
) -> tuple[Vector, float, Vector] | None:
    """The first point along a step, each time a quarter as far, that is higher; None if none is."""
    share = 1.0
    for _ in range(_TRIES):
        moved = eta + share * step
        try:
            new, slope = objective(moved)
        except NumericalError:
            new, slope = -np.inf, step
        if new >= value + 1e-4 * share * rise:
            return moved, new, slope
        share *= 0.25
    return None


def _updated(curvature: Float[Array, "p p"], step: Vector, change: Vector) -> Float[Array, "p p"]:
    """BFGS: the curvature that explains the change of the slope along the last step."""
    along, seen = float(step @ change), curvature @ step
    if not along > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return curvature
    return curvature - np.outer(seen, seen) / float(step @ seen) + np.outer(change, change) / along


_DIFFERENCE = 0.02
_TRIES = 6
