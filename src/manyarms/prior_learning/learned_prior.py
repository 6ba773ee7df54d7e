"""The result of `learn_prior`: the prior, how well it is known, and the posterior under it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaincinv, ndtri

from manyarms._base.checks import Array, as_count
from manyarms._base.rng import as_generator
from manyarms.core import HierarchicalGaussian, Tabular
from manyarms.errors import ManyarmsError
from manyarms.likelihoods import Likelihood
from manyarms.model_file.save import SavedModel
from manyarms.posterior import RewardPosterior
from manyarms.prior_learning.averaged_posterior import AveragedPosterior, PosteriorsByPrior
from manyarms.prior_learning.evidence import Evidence
from manyarms.prior_learning.hyperparameters import Hyperparameters, Vector

if TYPE_CHECKING:
    from manyarms.prior_learning.compare_priors import PriorComparison

VAGUE = 3.0
"""The largest standard error on the log scale (a factor of 20), for numbers that the logs do not determine."""
TAILS = 5.0
"""Degrees of freedom of the t-distribution that hyper-parameters are drawn from."""
MAX_KEPT = 1 << 27
"""The largest number of numbers, over the posteriors of all draws, that is kept in memory (a gigabyte)."""
_UNSTABLE = "the uncertainty of the learned prior is far from normal: few draws count, so be careful with intervals"


@dataclass(frozen=True)
class Parameter:
    """One number that was learned.

    Attributes:
        name: The name, as in "category std".
        value: A standard deviation (or the scale of heavy tails), or a coordinate of a mean.
        error: Its standard error: relative (that of the logarithm) for a standard deviation, absolute for a mean. None
            where there is none, as for a standard deviation of zero.
    """

    name: str
    value: float
    error: float | None


@dataclass(frozen=True, eq=False, repr=False)
class LearnedPrior(SavedModel, Tabular):
    """A prior whose noise, standard deviations and means were learned from logs.

    Attributes:
        posterior: The fit of the same logs under this prior.
        flexible: The posterior with integrated means as effects of their own, with their uncertainty.
        zeroed: The names of standard deviations that the data put at zero.
        converged: True if the search ended by itself.
        trace: The objective after each step; it never falls.
        notes: The parts that were not learned and why, and cautions.
        certain: The notes on means that the posterior takes for certain; `averaged` does not.
        aged: The evidence of the rounds as the posterior weighs them, where they count less with age.
        comparison: The priors that "auto" compared, on a sample of the rounds; None where the prior was given.
    """

    not_saved = "Save its .posterior, which holds the learned prior."
    posterior: RewardPosterior
    flexible: HierarchicalGaussian
    evidence: Evidence
    hyper: Hyperparameters
    eta: Vector
    avoid_boundary: bool
    zeroed: tuple[str, ...]
    converged: bool
    trace: tuple[float, ...]
    notes: tuple[str, ...]
    certain: tuple[str, ...]
    aged: Evidence | None = None
    comparison: PriorComparison | None = None

    @property
    def prior(self) -> HierarchicalGaussian:
        """The learned prior; use it like any other."""
        return self.posterior.prior

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood with the learned noise."""
        return self.posterior.likelihood

    @property
    def log_evidence(self) -> float:
        """log p(rewards) at the learned values, without the boundary-avoiding prior."""
        return self.posterior.log_evidence

    @property
    def boundary(self) -> bool:
        """True if the data put a standard deviation at zero."""
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
        # Scaled to a unit diagonal, so that the threshold does not depend on the units of η.
        size = np.sqrt(np.abs(np.diagonal(self.precision)))
        size = np.where(size > 0, size, 1.0)
        values, vectors = np.linalg.eigh(self.precision / size / size[:, None])
        root = vectors / np.sqrt(np.maximum(values, 1e-8)) / size[:, None]
        errors = np.sqrt(np.sum(root**2, axis=1))
        held = (self.hyper.log_scales() > 0) & (errors > VAGUE)
        return np.where(held[:, None], root * (VAGUE / np.maximum(errors, VAGUE))[:, None], root)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All learned numbers, with standard errors by Laplace's approximation."""
        hyper, eta = self.hyper, self.eta
        parameters = list[Parameter]()
        dispersion, name = self.likelihood.dispersion, self.likelihood.dispersion_name
        if hyper.learn_noise and dispersion is not None and name is not None:
            error = self._error(slice(0, 1), np.ones((1, 1)))[0]
            parameters.append(Parameter(name.replace("_", " "), dispersion, error))
        for form, part in hyper.free_forms:
            stds, errors = form.stds(eta[part]), self._error(part, form.log_std_slope(eta[part]))
            for i, (std, error) in enumerate(zip(stds, errors, strict=True)):
                name = f"{form.name} std" + (f" {i}" if len(stds) > 1 else "")
                parameters.append(Parameter(name, float(std), error if std else None))
        for number, mean in enumerate(hyper.means):
            learned = self.prior.offset if mean.coordinates is None else self.prior.latent_mean[mean.coordinates]
            assert learned is not None
            for i, error in zip(range(self.prior.dim)[mean.columns], self._mean_errors(number), strict=True):
                value = float(learned[i] if learned.ndim == 1 else learned[:, i].mean())
                parameters.append(Parameter(f"{mean.name} mean {i}", value, error))
        return tuple(parameters)

    def records(self) -> list[dict[str, Any]]:
        """One plain record per learned number."""
        return [dict(vars(parameter)) for parameter in self.parameters]

    def _mean_errors(self, number: int) -> list[float]:
        d = self.prior.dim
        if not self.hyper.integrated:
            _, part, unit = self.hyper.maximised[number]
            return self._error(part, np.diag(unit))
        cov = self.flexible.latent_factor.part_gram(self.prior.latent_dim + number * d, 1, d)
        return np.sqrt(np.diagonal(cov)[self.hyper.means[number].columns]).tolist()

    def _error(self, part: slice, slope: Float[Array, "k s"]) -> list[float]:
        """Standard errors of quantities that change with η[part] by `slope`."""
        return np.sqrt(np.sum((slope @ self.covariance_root[part]) ** 2, axis=1)).tolist()

    def averaged(self, n_draws: int = 64, *, rng: np.random.Generator) -> AveragedPosterior:
        """The posterior averaged over learned priors, so that intervals include the uncertainty of the prior.

        Draws of η around Laplace's approximation, with heavier tails, each weighted by how well it explains the logs.
        Costs 2 s + `n_draws` solves (for s learned numbers), and each later `value` costs `n_draws` sums over the
        actions that a policy can choose.

        Args:
            n_draws: The number of draws: it sets how fine the mixture is, not how wide.
            rng: A NumPy generator.
        """
        n_draws = as_count("n_draws", n_draws, minimum=2)
        draws, shares = self._draw_posteriors(n_draws, as_generator(rng))
        own = tuple(text for text in self.posterior.fit_warnings if text not in self.certain)
        out = AveragedPosterior(replace(self.posterior, fit_warnings=own), draws, shares)
        warnings = [] if len(draws) > 1 and out.effective_draws > 0.2 * n_draws else [_UNSTABLE]
        if self.zeroed:
            warnings.append(
                f"{', '.join(self.zeroed)}: put at zero and taken for certain, so intervals are too narrow; learn a "
                "prior that avoids the boundary"
            )
        return replace(out, average_warnings=tuple(warnings))

    def _draw_posteriors(self, n_draws: int, rng: np.random.Generator) -> tuple[PosteriorsByPrior, Float[Array, " k"]]:
        """Draw η ~ t(best, B Bᵀ), condition under each, and weigh each by evidence over the density drawn from."""

        def solve(x: Vector) -> tuple[float, HierarchicalGaussian]:
            value, weights = self.evidence.posterior(self.hyper, x, avoid_boundary=self.avoid_boundary)
            # The logs at full weight say how likely a prior is; the posterior under it is of the rounds as they count.
            return value, weights if self.aged is None else self.aged.solve(self.hyper, x)[1]

        kept, log_weights, weights = list[Vector](), list[float](), list[HierarchicalGaussian]()
        best = self.posterior.weights
        # The numbers that a posterior holds beyond its prior.
        size = 3 * sum(group.root.size for group in best.observed.groups) + best.latent_dim * best.dim
        few = n_draws * size <= MAX_KEPT
        for row in _spread_out(len(self.eta), n_draws, rng):
            eta = self.eta + self.covariance_root @ row
            try:
                log_evidence, solved = solve(eta)
            except ManyarmsError:
                # So far out that the arithmetic fails; its weight would be nil.
                continue
            kept.append(eta)
            log_weights.append(log_evidence + 0.5 * (TAILS + len(row)) * float(np.log1p(row @ row / TAILS)))
            if few:
                weights.append(solved)
        if not kept:
            return PosteriorsByPrior([best]), np.ones(1)
        shares = np.exp(np.array(log_weights) - max(log_weights))
        # The largest importance weights are cut at √k times their mean, so that none decides alone (Ionides, 2008).
        shares = np.minimum(shares, np.sqrt(len(shares)) * shares.mean())
        draws = PosteriorsByPrior(weights) if few else PosteriorsByPrior(kept, lambda x: solve(x)[1])
        return draws, shares / shares.sum()

    def __repr__(self) -> str:
        width = max(len(p.name) for p in self.parameters) if self.parameters else 0
        lines = [f"log evidence {self.log_evidence:.6g} after {len(self.trace) - 1} steps"]
        for p in self.parameters:
            sign = (
                "" if p.error is None else (f" ± {p.error:.2g}" if " mean " in p.name else f" ± {100 * p.error:.2g} %")
            )
            lines.append(f"  {p.name:<{width}}  {p.value:.4g}{sign}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _spread_out(size: int, n_draws: int, rng: np.random.Generator) -> Float[Array, "k s"]:
    """Draws from a t-distribution that fill the space evenly: fewer are needed than of independent ones.

    Its tails are heavier than a normal's, as those of a standard deviation that few effects determine are.
    """
    if size == 0:
        return np.zeros((n_draws, 0))
    from scipy.stats import qmc  # noqa: PLC0415

    # Sobol's points, all shifted by one random vector; the first would lie in a corner.
    points = qmc.Sobol(size + 1, scramble=False).random_base2((n_draws - 1).bit_length())[:n_draws]
    points = np.clip((points + rng.random(size + 1)) % 1.0, 1e-9, 1 - 1e-9)
    chi_square = 2 * gammaincinv(TAILS / 2, points[:, 0])
    return ndtri(points[:, 1:]) * np.sqrt(TAILS / chi_square)[:, None]
