"""The policy that chooses every eligible action with equal probability."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.checks import Array, as_count
from manyarms.core import Choices, Policy


class Uniform(Policy):
    """Chooses every eligible action with the same probability, as a table of equal probabilities would.

    Args:
        n_actions: K.
    """

    saved_as = "uniform"
    saved_fields = ("n_actions",)

    def __init__(self, n_actions: int):
        self.n_actions = as_count("n_actions", n_actions)
        self._probabilities = np.full(self.n_actions, 1.0 / self.n_actions)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return Choices.of_shared(self._probabilities, len(contexts), eligible)
