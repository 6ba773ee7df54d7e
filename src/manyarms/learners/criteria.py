"""What becomes of importance weights: F, a function of means over rounds, and its slopes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array


class Criterion(ABC):
    """F(w_1, ..., w_n) = G(mean f_1(w_i, r_i), ..., mean f_p(w_i, r_i)).

    Written so, one walk over the rounds is enough for F and its gradient, a ratio included.

    Attributes:
        n_parts: p.
    """

    n_parts: int = 1

    @abstractmethod
    def parts(
        self, weights: Float[Array, " n"], rewards: Float[Array, " n"]
    ) -> tuple[Float[Array, "p n"], Float[Array, "p n"]]:
        """f_j(w_i, r_i), and its derivative in w_i."""

    def combined(self, means: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        """G, and its derivatives; G is the first mean itself unless a criterion says otherwise."""
        return float(means[0]), np.ones(1)


class Mean(Criterion):
    """mean of w r: IPS, DR (with r - r̂ for r), MIPS, policy convolution."""

    def parts(
        self, weights: Float[Array, " n"], rewards: Float[Array, " n"]
    ) -> tuple[Float[Array, "p n"], Float[Array, "p n"]]:
        return (weights * rewards)[None], rewards[None]


class Ratio(Criterion):
    """mean of w r / mean of w: snIPS. In a minibatch it is the batch's own ratio."""

    n_parts = 2

    def parts(
        self, weights: Float[Array, " n"], rewards: Float[Array, " n"]
    ) -> tuple[Float[Array, "p n"], Float[Array, "p n"]]:
        return np.stack([weights * rewards, weights]), np.stack([rewards, np.ones(len(weights))])

    def combined(self, means: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        above, below = means
        # A batch in which the policy chooses nothing that was logged has nothing to say.
        if below <= np.finfo(float).tiny:
            return 0.0, np.zeros(2)
        ratio = above / below
        return float(ratio), np.array([1.0, -ratio]) / below


@dataclass(frozen=True)
class Logarithm(Criterion):
    """mean of log(1 + λ w r) / λ, for rewards that are not negative; λ = 0 is the mean of w r.

    Attributes:
        parameter: λ.
    """

    parameter: float

    def parts(
        self, weights: Float[Array, " n"], rewards: Float[Array, " n"]
    ) -> tuple[Float[Array, "p n"], Float[Array, "p n"]]:
        product = weights * rewards
        if self.parameter == 0:
            return product[None], rewards[None]
        grown = self.parameter * product
        return (np.log1p(grown) / self.parameter)[None], (rewards / (1.0 + grown))[None]
