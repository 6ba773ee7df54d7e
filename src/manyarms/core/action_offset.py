"""c_a, the fixed part of the centre of θ_a: none, one vector for all actions, or one per action."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyarms._base.checks import Array, as_floats, frozen
from manyarms.errors import ShapeError


def as_offset(value: Any, n_actions: int, dim: int) -> Array | None:
    """Check the argument `offset` of a user: None, (d,) or (K, d)."""
    if value is None:
        return None
    array = as_floats("offset", value, ndim=(1, 2))
    if array.shape not in ((dim,), (n_actions, dim)):
        raise ShapeError(f"must be None, ({dim},) or ({n_actions}, {dim}); got {array.shape}.", argument="offset")
    return frozen(array.copy())


def extended_offset(old: Array | None, new: Array | None, n_old: int, n_new: int) -> Array | None:
    """The offsets of actions followed by those of new ones; None for the new repeats the one that all share."""
    if new is None:
        if old is not None and old.ndim == 2:
            raise ShapeError("differs by action here.", "Pass offset= for the new actions too.", argument="offset")
        return old
    first = np.zeros(new.shape[-1]) if old is None else old
    rows = [np.broadcast_to(part, (n, new.shape[-1])) for part, n in ((first, n_old), (new, n_new))]
    return frozen(np.concatenate(rows))
