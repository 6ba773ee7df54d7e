"""Functions that users supply: called with care, their results checked, their derivatives by differences if need be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array, frozen
from manyarms.errors import DataTypeError, NonFiniteError, ShapeError

STEP = float(np.cbrt(np.finfo(float).eps))
"""Of central differences, in units of the argument: errors of rounding and of truncation are then about equal."""


class Supplied:
    """A function with the name under which errors speak of it, for instance "function 'tanh_centres'".

    Args:
        role: What it is an argument for.
        function: What the user passed.
    """

    def __init__(self, role: str, function: Any):
        if not callable(function):
            raise DataTypeError(f"{role} must be a function; got {type(function).__name__}.")
        self.name = f"{role} {getattr(function, '__name__', type(function).__name__)!r}"
        self._function = function

    def __call__(
        self, latent: Float[Array, " p"], actions: Int[Array, " m"] | None, shape: tuple[int, ...], meaning: str
    ) -> Float[Array, "..."]:
        """Its value, of the shape demanded and finite.

        Args:
            latent: ψ.
            actions: Which actions are asked for; None when the function takes ψ alone.
            shape: What it must return.
            meaning: The same in letters, for the error.
        """
        at = frozen(latent)
        value = self._function(at) if actions is None else self._function(at, frozen(actions))
        try:
            # A copy: a function may return the same buffer again and again.
            array = np.array(value, dtype=np.float64)
        except (TypeError, ValueError) as cause:
            raise DataTypeError(f"{self.name} must return numbers: {cause}") from cause
        asked = "" if actions is None else f" when asked for {len(actions)} actions, the first of them {actions[0]}"
        if array.shape != shape:
            raise ShapeError(f"{self.name} must return shape {meaning} = {shape}{asked}; got {array.shape}.")
        self._check_finite(array, latent, actions)
        return array

    def _check_finite(
        self, array: Float[Array, "..."], latent: Float[Array, " p"], actions: Int[Array, " m"] | None
    ) -> None:
        if np.isfinite(array).all():
            return
        where = tuple(np.argwhere(~np.isfinite(array))[0])
        place = f"entry {int(where[0])}" if actions is None else f"action {int(actions[where[0]])}"
        psi = np.array2string(latent, precision=4, threshold=6)
        raise NonFiniteError(
            f"{self.name} must return finite numbers; {place} has {array[where]} at latent {psi}. "
            "Bound the function, or narrow latent_cov if such values are not meant."
        )


def central_differences(
    function: Callable[[Float[Array, " p"]], Float[Array, "..."]],
    latent: Float[Array, " p"],
    scale: Float[Array, " p"],
) -> Float[Array, "... p"]:
    """The derivative by ψ in 2 d' calls; its error is about 1e-10 of what the function changes by within `scale`.

    Args:
        function: Of ψ alone.
        latent: Where.
        scale: How far each coordinate usually moves.
    """
    # A step below the rounding of ψ itself would be lost.
    steps = STEP * np.maximum(scale, np.abs(latent))
    columns: list[Array] = []
    for j, step in enumerate(steps):
        low, high = np.array(latent), np.array(latent)
        low[j] -= step
        high[j] += step
        # The distance that floating point makes of two steps, not the one asked for.
        columns.append((function(high) - function(low)) / (high[j] - low[j]))
    return np.stack(columns, axis=-1) if columns else np.zeros((*function(latent).shape, 0))


def usual_moves(std: Float[Array, " p"]) -> Float[Array, " p"]:
    """A scale for differences: the prior's, but at most one; a coordinate that never moves gets one as well."""
    return np.where(std > 0, np.minimum(std, 1.0), 1.0)
