"""What `learn_prior` returns: the prior found, how well it is known, and the posterior under it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count
from manyarms._base.rng import as_generator
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.result_tables import Tabular
from manyarms.likelihoods import Likelihood
from manyarms.model_file.save import SavedModel
from manyarms.posterior import RewardPosterior
from manyarms.prior_learning.averaged_posterior import AveragedPosterior, average
from manyarms.prior_learning.evidence import Evidence
from manyarms.prior_learning.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class Parameter:
    """One number that was learned.

    Attributes:
        name: What it is.
        value: A standard deviation (or the scale of heavy tails), or a coordinate of a mean.
        error: Its standard error: relative (that of the logarithm) for a standard deviation, absolute for a mean. None
            where there is none, as for one at zero.
    """

    name: str
    value: float
    error: float | None


@dataclass(frozen=True, eq=False, repr=False)
class LearnedPrior(SavedModel, Tabular):
    """A prior whose noise, spreads and means were learned from logs.

    Attributes:
        posterior: The fit under it, of the same logs.
        flexible: The same with integrated means as effects of their own, as uncertain as they are.
        zeroed: What the data put at a standard deviation of zero.
        converged: Whether the search came to an end by itself.
        trace: The objective after each step; it never falls.
        notes: What was not learned and why, and what to be careful about.
        certain: Of the notes, those on means that the posterior takes for certain; `averaged` does not.
        aged: The evidence of the rounds as the posterior weighs them, where they count less with age.
    """

    not_saved = "Save its .posterior, which has the prior found in it."
    posterior: RewardPosterior
    flexible: HierarchicalGaussian
    evidence: Evidence
    hyper: Hyperparameters
    eta: Float[Array, " s"]
    avoid_boundary: bool
    zeroed: tuple[str, ...]
    converged: bool
    trace: tuple[float, ...]
    notes: tuple[str, ...]
    certain: tuple[str, ...]
    aged: Evidence | None = None

    @property
    def prior(self) -> HierarchicalGaussian:
        """The prior found; use it as any other."""
        return self.posterior.prior

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with the noise found."""
        return self.posterior.likelihood

    @property
    def log_evidence(self) -> float:
        """log p(rewards) at the values found, without the boundary-avoiding prior."""
        return self.posterior.log_evidence

    @property
    def boundary(self) -> bool:
        """Whether a standard deviation hit zero."""
        return bool(self.zeroed)

    @cached_property
    def precision(self) -> Float[Array, "s s"]:
        """Minus the second derivative of the objective at its maximum: differences of exact gradients, 2 s solves."""
        s, step = len(self.eta), self.evidence.step
        rows = np.empty((s, s))
        for i in range(s):
            shift = np.zeros(s)
            shift[i] = step
            up, down = (
                self.evidence.at(self.hyper, self.eta + sign * shift, avoid_boundary=self.avoid_boundary)[1]
                for sign in (1.0, -1.0)
            )
            rows[i] = (down - up) / (2 * step)
        return (rows + rows.T) / 2

    @cached_property
    def covariance_root(self) -> Float[Array, "s s"]:
        """B with B Bᵀ the covariance of η by Laplace's approximation.

        A log standard deviation that the logs do not determine has no curvature; its error is held at VAGUE.
        """
        # Scaled to a unit diagonal, so that what is negligible does not depend on what the entries of η are.
        size = np.sqrt(np.abs(np.diagonal(self.precision)))
        size = np.where(size > 0, size, 1.0)
        values, vectors = np.linalg.eigh(self.precision / size / size[:, None])
        root = vectors / np.sqrt(np.maximum(values, 1e-8)) / size[:, None]
        errors = np.sqrt(np.sum(root**2, axis=1))
        held = (self.hyper.log_scales() > 0) & (errors > VAGUE)
        return np.where(held[:, None], root * (VAGUE / np.maximum(errors, VAGUE))[:, None], root)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Everything that was learned, with standard errors by Laplace's approximation."""
        hyper, eta = self.hyper, self.eta
        found = list[Parameter]()
        dispersion, name = self.likelihood.dispersion, self.likelihood.dispersion_name
        if hyper.learn_noise and dispersion is not None and name is not None:
            error = self._error(slice(0, 1), np.ones((1, 1)))[0]
            found.append(Parameter(name.replace("_", " "), dispersion, error))
        for spread, part in zip(hyper.spreads, hyper.spread_parts, strict=True):
            if spread is None:
                continue
            stds, errors = spread.stds(eta[part]), self._error(part, spread.log_std_slope(eta[part]))
            for i, (std, error) in enumerate(zip(stds, errors, strict=True)):
                name = f"{spread.name} std" + (f" {i}" if len(stds) > 1 else "")
                found.append(Parameter(name, float(std), error if std else None))
        for number, mean in enumerate(hyper.means):
            for i, error in enumerate(self._mean_errors(number)):
                found.append(Parameter(f"{mean.name} mean {i}", self._mean(mean.coordinates, i), error))
        return tuple(found)

    def records(self) -> list[dict[str, Any]]:
        """A plain record for each number that was learned."""
        return [dict(vars(parameter)) for parameter in self.parameters]

    def _mean_errors(self, number: int) -> list[float]:
        d = self.prior.dim
        if not self.hyper.integrated:
            _, part, unit = self.hyper.maximised[number]
            return self._error(part, np.diag(np.broadcast_to(unit, (d,))))
        cov = self.flexible.latent_factor.part_gram(self.prior.latent_dim + number * d, 1, d)
        return np.sqrt(np.diagonal(cov)).tolist()

    def _error(self, part: slice, slope: Float[Array, "k s"]) -> list[float]:
        """Standard errors of quantities that change with η[part] by `slope`."""
        return np.sqrt(np.sum((slope @ self.covariance_root[part]) ** 2, axis=1)).tolist()

    def _mean(self, coordinates: slice | None, i: int) -> float:
        if coordinates is not None:
            return float(self.prior.latent_mean[coordinates][i])
        offset = self.prior.offset
        assert offset is not None
        return float(offset[i] if offset.ndim == 1 else offset[:, i].mean())

    def averaged(self, n_draws: int = 64, *, rng: np.random.Generator) -> AveragedPosterior:
        """The posterior with the uncertainty of what was learned mixed in, for intervals that do not pretend.

        Draws of η around Laplace's approximation, with heavier tails, each weighted by how well it explains the logs.
        Costs 2 s + `n_draws` solves (s numbers learned), and each `value` after it `n_draws` sums over the actions that
        a policy can choose.

        Args:
            n_draws: How many draws; their number sets how fine the mixture is, not how wide.
            rng: A NumPy generator.
        """
        zeroed = (
            f"{', '.join(self.zeroed)}: put at zero and taken for certain, so intervals are too narrow; learn with "
            "avoid_boundary=True"
        )
        own = tuple(text for text in self.posterior.fit_warnings if text not in self.certain)
        posterior = replace(self.posterior, fit_warnings=own)
        found = average(
            posterior, self.evidence, self.hyper, self.eta, self.precision, self.covariance_root, aged=self.aged,
            n_draws=as_count("n_draws", n_draws, minimum=2), rng=as_generator(rng), avoid_boundary=self.avoid_boundary,
        )  # fmt: skip
        return replace(found, average_warnings=(*found.average_warnings, *([zeroed] if self.zeroed else [])))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        width = max(len(p.name) for p in self.parameters) if self.parameters else 0
        lines = [f"log evidence {self.log_evidence:.6g} after {len(self.trace) - 1} steps"]
        for p in self.parameters:
            sign = (
                "" if p.error is None else (f" ± {p.error:.2g}" if " mean " in p.name else f" ± {100 * p.error:.2g} %")
            )
            lines.append(f"  {p.name:<{width}}  {p.value:.4g}{sign}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


VAGUE = 3.0
"""The standard deviation on the log scale (a factor of 20) at which what the logs do not determine is held."""
