"""The policy that chooses every eligible action with equal probability."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.checks import Array, as_count
from manyarms.core import Choices, Policy
from manyarms.model_file.part_checks import is_size


class Uniform(Policy):
    """Chooses every eligible action with the same probability, as a table of equal probabilities would.

    Args:
        n_actions: K.
    """

    saved_as = "uniform"
    saved_fields = ("n_actions",)
    saved_checks: ClassVar = {"n_actions": is_size}

    def __init__(self, n_actions: int):
        self.n_actions = as_count("n_actions", n_actions)
        # One number that repeats: a file of a few bytes may claim any number of actions.
        self._probabilities = np.broadcast_to(1.0 / self.n_actions, (self.n_actions,))

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return Choices.of_shared(self._probabilities, len(contexts), eligible)
