"""Actions with probability growing exponentially in their expected reward."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.checks import Array, as_scalar, check_overflow
from manyarms.core.choices import Choices
from manyarms.linalg.indexing import pair_rows
from manyarms.policies.greedy import Greedy
from manyarms.posterior.posterior import Posterior


class Softmax(Greedy):
    """π(a | x) ∝ exp(E r(x, a) / temperature), over the eligible actions.

    Args:
        posterior: What `fit` returned.
        temperature: Above zero, in the units of the reward; towards 0 the choice becomes greedy.
    """

    saved_as = "softmax"
    saved_fields = ("posterior", "temperature")

    def __init__(self, posterior: Posterior, temperature: float):
        super().__init__(posterior)
        self.temperature = as_scalar("temperature", temperature, above=0.0)
        # Every action has some probability, so a block writes out its rows: keep it at 16 MB.
        self.rows_per_block = max(1, (1 << 21) // self.n_actions)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        n = len(contexts)
        if eligible is None:
            with np.errstate(over="ignore", invalid="ignore"):
                p = self.all_rewards(contexts)
                p /= self.temperature
            check_overflow("scores", p)
            p -= p.max(axis=1, keepdims=True)
            # Numbers below the normal range slow all products down, and e⁻³⁰⁰ is as good as nothing.
            np.maximum(p, -300.0, out=p)
            np.exp(p, out=p)
            p /= p.sum(axis=1, keepdims=True)
            return Choices(n, self.n_actions, dense=p)
        rows = pair_rows(eligible)
        scores = self.pair_rewards(contexts, eligible) / self.temperature
        scores -= np.maximum.reduceat(scores, eligible.indptr[:-1])[rows]
        weight = np.exp(scores)
        total = np.bincount(rows, weights=weight, minlength=n)
        named = sparse.csr_array((weight / total[rows], eligible.indices, eligible.indptr), shape=eligible.shape)
        return Choices(n, self.n_actions, named=named)
