"""Clicks and purchases: rewards that are 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_expit

from manyarms._arrays import Array, check_rows
from manyarms.errors import InputError, RangeError
from manyarms.likelihoods.base import QuadratureLikelihood, Treatment, hermite


@dataclass(frozen=True)
class Bernoulli(QuadratureLikelihood):
    """r | x, a ~ Ber(g(φ(x)ᵀ θ_a)) with g(η) = 1 / (1 + e⁻η).

    Args:
        treatment: "variational" (default): the Gaussian nearest to the posterior in the sense of the evidence lower
            bound. "laplace": a Gaussian at the joint mode of ψ and θ; faster, and too high where clicks are few.
            "paper": the maximum likelihood and curvature of each action on its own, regularised so that they exist; for
            reproduction only, since it drops the evidence of actions without a click (docs/likelihoods.md).
        expected: E g(η) by "quadrature" (default), or by the paper's "probit" formula g(m / √(1 + π v / 8)), which
            lacks the square of the norm there: cheaper, and a fifth too high at a click rate of 1 %.
    """

    treatment: Treatment = "variational"
    expected: Literal["quadrature", "probit"] = "quadrature"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("treatment", ("variational", "laplace", "paper")),
            ("expected", ("probit", "quadrature")),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}.")

    def check(self, rewards: Float[Array, " n"]) -> None:
        check_rows(
            "rewards", rewards, lambda r: (r == 0) | (r == 1), RangeError, "must be 0 or 1 under Bernoulli",
            "Use Gaussian for other numbers, Poisson for counts, Hurdle for amounts with many zeros.",
        )  # fmt: skip

    def log_density(self, rewards: Float[Array, "..."], predictor: Float[Array, "..."]) -> Float[Array, "..."]:
        return log_expit(np.where(rewards > 0.5, predictor, -predictor))

    def derivatives(
        self, rewards: Float[Array, "..."], predictor: Float[Array, "..."]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        p = expit(predictor)
        return rewards - p, -p * expit(-predictor)

    def score(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """The paper's Step (C): g is increasing, so its argument ranks."""
        return self._shrunk(mean, variance) if self.expected == "probit" else self.mean_reward(mean, variance)

    def reward_given(self, predictor: Float[Array, "..."]) -> Float[Array, "..."]:
        return expit(predictor)

    def mean_reward(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.expected == "probit":
            return expit(self._shrunk(mean, variance))
        spread = np.sqrt(variance)
        return sum(
            (share * expit(mean + node * spread) for node, share in zip(*hermite(), strict=True)), np.zeros_like(mean)
        )

    def mean_slope(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.expected == "probit":
            inner = self._shrunk(mean, variance)
            return expit(inner) * expit(-inner) / np.sqrt(1.0 + np.pi / 8.0 * variance)
        spread, tilt, bend = np.sqrt(variance), np.zeros_like(mean), np.zeros_like(mean)
        for node, share in zip(*hermite(), strict=True):
            p = expit(mean + node * spread)
            tilt += share * node * p
            bend += share * p * (1.0 - p)
        wide = spread > 1e-3
        return np.where(wide, tilt / np.where(wide, spread, 1.0), bend)

    @staticmethod
    def _shrunk(mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        return mean / np.sqrt(1.0 + np.pi / 8.0 * variance)
