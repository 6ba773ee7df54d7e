"""The log evidence of hyper-parameters, with its exact gradient, from statistics alone."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.observed import Observed
from manyarms.core.statistics import Statistics
from manyarms.inference.condition import condition_on
from manyarms.inference.moments import Moments, expect
from manyarms.inference.roots import observe
from manyarms.prior_choice.hyperparameters import Hyperparameters, Scale


class Evidence:
    """log p(rewards | η), plus the log of the boundary-avoiding prior when it is on.

    One evaluation conditions on all seen actions and takes their expected moments: O(m d³) for m of them and what the
    latent solve costs, whatever the number of rounds.

    Attributes:
        observed: Rows of the seen actions, in units of a noise of one.
        total_weight: How many rounds there are.
        evaluations: How often it was evaluated.
    """

    def __init__(self, statistics: Statistics):
        self.observed: Observed = observe(statistics, 1.0)
        self.total_weight = statistics.total_weight
        self.evaluations = 0

    def scale(self) -> Scale:
        """The size of rewards and of weights that would explain them."""
        groups = self.observed.groups
        rewards = self.observed.residual + sum(float(np.sum(g.response**2)) for g in groups)
        features = sum(float(np.sum(g.root**2)) for g in groups)
        reward = float(np.sqrt(rewards / self.total_weight))
        return Scale(reward, reward / float(np.sqrt(features / self.total_weight)) if features else 1.0)

    def in_units_of(self, noise_std: float) -> Observed:
        """The rows in units of a noise."""
        normaliser = -0.5 * self.total_weight * float(np.log(2 * np.pi * noise_std**2))
        return self.observed.rescaled(noise_std, normaliser)

    def posterior(
        self, hyper: Hyperparameters, eta: Float[Array, " s"], *, avoid_boundary: bool
    ) -> tuple[float, HierarchicalGaussian]:
        """The objective at η without its derivative, and the posterior there."""
        prior, noise_std = hyper.build(eta)
        found = condition_on(prior, self.in_units_of(noise_std))
        return found.log_evidence + (hyper.penalty(eta)[0] if avoid_boundary else 0.0), found

    def at(
        self, hyper: Hyperparameters, eta: Float[Array, " s"], *, avoid_boundary: bool
    ) -> tuple[float, Float[Array, " s"], Moments]:
        """The objective at η, its derivative, and the moments behind it."""
        prior, noise_std = hyper.build(eta)
        moments = expect(prior, self.in_units_of(noise_std), hyper.groups)
        self.evaluations += 1
        value, slope = moments.log_evidence, hyper.gradient(eta, moments, self.total_weight)
        if avoid_boundary:
            extra, extra_slope = hyper.penalty(eta)
            value, slope = value + extra, slope + extra_slope
        return value, slope, moments
