"""The log evidence of hyper-parameters, with its gradient: exact from statistics, or of an approximate posterior."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, check_overflow
from manyarms.core import HierarchicalGaussian, LoggedData, Logs, ObservedRows, Statistics
from manyarms.core.observed_rows import observe
from manyarms.engines import LOCAL, Engine
from manyarms.errors import InputError, NumericalError
from manyarms.gpu.device import CPU
from manyarms.inference.condition import condition_on
from manyarms.inference.evidence_gradient import evidence_gradient
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.device_sites import DeviceRounds
from manyarms.likelihoods.fit_weights import fit_statistics, fit_weights
from manyarms.likelihoods.rounds_by_action import RoundsByAction
from manyarms.likelihoods.variational import MAX_ITERATIONS, Approximation, Start, approximate
from manyarms.posterior import RewardPosterior, fit
from manyarms.posterior.fit import posterior_of
from manyarms.prior_learning.hyperparameters import Hyperparameters, Scale, Vector
from manyarms.prior_learning.newton_search import FEW, NewtonResult, newton_search
from manyarms.prior_learning.round_summary import RoundSummary, SummariseRounds


class Evidence(ABC):
    """log p(rewards | η), plus the log of the boundary-avoiding prior when it is on.

    Attributes:
        summary: The summary of the rounds; None where there are only statistics.
        total_weight: The number of rounds, by their weights; `seen` are the logged actions.
        residual_degrees: The number of rounds beyond those that the weights of seen actions could explain.
        feature_sizes: Root of the sum of squares of each context column.
        scale: The size of rewards and of weights that would explain them.
        constant: The first constant column of the contexts, where events are clicks or counts: the mean there is their
            rate. None if there is no such column, and for other rewards.
        step: The step of the differences of gradients for second derivatives.
        negligible: The largest improvement of the objective that counts as none.
    """

    summary: RoundSummary | None
    seen: Int[Array, " m"]
    total_weight: float
    residual_degrees: float
    feature_sizes: Float[Array, " d"]
    scale: Scale
    constant: int | None = None
    step: float
    negligible: float

    @property
    def centre(self) -> tuple[int, Vector] | None:
        """The constant column of the contexts, and the mean of each column in units of its value; None if unknown."""
        constant = None if self.summary is None else _constant_column(self.summary)
        if self.summary is None or constant is None:
            return None
        return constant, self.summary.feature_sums / self.summary.feature_sums[constant]

    @abstractmethod
    def log_evidence(self, hyper: Hyperparameters, eta: Vector) -> tuple[float, Vector]:
        """The log evidence at η, and its derivative."""

    @abstractmethod
    def solve(self, hyper: Hyperparameters, eta: Vector) -> tuple[float, HierarchicalGaussian]:
        """The log evidence at η without its derivative, and the posterior there."""

    def at(self, hyper: Hyperparameters, eta: Vector, *, avoid_boundary: bool) -> tuple[float, Vector]:
        """The objective at η, and its derivative."""
        value, slope = self.log_evidence(hyper, eta)
        extra, extra_slope = hyper.penalty(eta) if avoid_boundary else (0.0, 0.0)
        return value + extra, slope + extra_slope

    def posterior(
        self, hyper: Hyperparameters, eta: Vector, *, avoid_boundary: bool
    ) -> tuple[float, HierarchicalGaussian]:
        """The objective at η without its derivative, and the posterior there."""
        value, weights = self.solve(hyper, eta)
        return value + (hyper.penalty(eta)[0] if avoid_boundary else 0.0), weights

    def value(self, hyper: Hyperparameters, eta: Vector, *, avoid_boundary: bool) -> float:
        """The objective at η alone."""
        return self.posterior(hyper, eta, avoid_boundary=avoid_boundary)[0]

    def approach(self, hyper: Hyperparameters, eta: Vector, *, avoid_boundary: bool) -> tuple[Vector, float]:
        """A start for the search, nearer to the maximum than η if that is cheap, and at most the value at η."""
        return eta, self.value(hyper, eta, avoid_boundary=avoid_boundary)

    @abstractmethod
    def fit(self, prior: HierarchicalGaussian, dispersion: float | None) -> RewardPosterior:
        """The posterior of these rounds under a prior."""


class ExactEvidence(Evidence):
    """The evidence of Gaussian rewards, from statistics alone.

    One evaluation conditions on all seen actions and computes the gradient: O(m d³) for m seen actions plus the cost of
    the latent solve, whatever the number of rounds, which are read once.
    """

    step, negligible = 1e-4, 1e-8

    def __init__(self, logs: Logs | Statistics, likelihood: Likelihood, n_actions: int, engine: Engine = LOCAL):
        self._logs, self._likelihood, self.summary = logs, likelihood, None
        if isinstance(logs, Statistics):
            statistics = logs
        else:
            self.summary = engine.total(logs, SummariseRounds(likelihood, n_actions, logs.dim))
            assert self.summary.counted is not None
            statistics = self.summary.counted.statistics
        self.observed: ObservedRows = observe(statistics, 1.0)
        self.total_weight = statistics.total_weight
        self.seen = self.observed.actions
        groups = self.observed.groups
        self.residual_degrees = self.total_weight - sum(g.response.size for g in groups)
        squares = sum((np.sum(g.root**2, axis=(0, 1)) for g in groups), np.zeros(statistics.dim))
        self.feature_sizes = np.sqrt(squares)
        with np.errstate(over="ignore"):
            rewards = self.observed.residual + sum(float(np.sum(g.response**2)) for g in groups)
        check_overflow("squares of rewards", np.array(rewards))
        self.scale = _scale(
            rewards, squares, self.total_weight, self.observed.residual / max(self.residual_degrees, 1.0)
        )

    def log_evidence(self, hyper: Hyperparameters, eta: Vector) -> tuple[float, Vector]:
        prior, noise_std = hyper.build(eta)
        by_part = evidence_gradient(prior, self._in_units_of(noise_std), hyper.groups)
        return by_part.log_evidence, hyper.gradient(eta, by_part, by_part.residual_sq - self.total_weight)

    def solve(self, hyper: Hyperparameters, eta: Vector) -> tuple[float, HierarchicalGaussian]:
        prior, noise_std = hyper.build(eta)
        weights = condition_on(prior, self._in_units_of(noise_std))
        return weights.log_evidence, weights

    def fit(self, prior: HierarchicalGaussian, dispersion: float | None) -> RewardPosterior:
        likelihood = self._likelihood.with_dispersion(dispersion)
        if isinstance(self._logs, Statistics):
            return fit(self._logs, prior, likelihood)
        assert self.summary is not None and self.summary.counted is not None
        return posterior_of(fit_statistics(prior, self.summary.counted, likelihood), self._logs, prior, likelihood)

    def _in_units_of(self, noise_std: float | None) -> ObservedRows:
        assert noise_std is not None
        normaliser = -0.5 * self.total_weight * float(np.log(2 * np.pi * noise_std**2))
        return self.observed.rescaled(noise_std, normaliser)


class ApproximateEvidence(Evidence):
    """The evidence lower bound, or Laplace's evidence, of rewards that are not Gaussian.

    An evaluation runs the variational loop to its end, starting from the sites of the last evaluation. If rounds are
    not in memory, each step is a pass. At the end of the loop the derivative of the bound by η is that of the prior's
    part alone, so the gradient of the exact case serves here too. Laplace's evidence has no such property, and its
    derivative is taken by differences. On a GPU the rounds are copied once, and loops and derivatives stay there.
    """

    step, negligible = 2e-2, 1e-5

    def __init__(self, logs: Logs, likelihood: Likelihood, n_actions: int, engine: Engine = LOCAL, device: str = CPU):
        if likelihood.treatment == "paper":
            raise InputError('treatment "paper" has no evidence to learn a prior from.', 'Use treatment "variational".')
        self._likelihood, self._engine = likelihood, engine
        self._logs = logs.counted() if isinstance(logs, LoggedData) else logs
        self._device, self._there, self._rounds = device, None, None
        if isinstance(self._logs, LoggedData) and device == CPU:
            self._rounds = RoundsByAction(self._logs.contexts, self._logs.actions)
        self._start: Start = None
        self._last: tuple[Hyperparameters, Vector, Approximation, float] | None = None
        """The last evaluation, and its tolerance: a search asks for its end more than once."""
        self.summary = summary = engine.total(logs, SummariseRounds(likelihood, n_actions, logs.dim))
        self.total_weight, self.seen = summary.total_weight, summary.actions
        self.residual_degrees = self.total_weight - float(np.minimum(summary.often, logs.dim).sum())
        self.feature_sizes = np.sqrt(summary.feature_squares)
        # A predictor of a few units covers the whole range of a probability or a rate.
        size = summary.reward_squares if likelihood.is_linear else _PREDICTOR**2 * self.total_weight
        self.scale = _scale(size, summary.feature_squares, self.total_weight)
        self.constant = None if likelihood.is_linear else _constant_column(summary)

    def at(self, hyper: Hyperparameters, eta: Vector, *, avoid_boundary: bool) -> tuple[float, Vector]:
        if self._likelihood.treatment != "laplace":
            return super().at(hyper, eta, avoid_boundary=avoid_boundary)
        here = self.value(hyper, eta, avoid_boundary=avoid_boundary)
        slope = np.empty(len(eta))
        for i, row in enumerate(1e-4 * np.eye(len(eta))):
            high, low = (self.value(hyper, eta + sign * row, avoid_boundary=avoid_boundary) for sign in (1, -1))
            slope[i] = (high - low) / 2e-4
        return here, slope

    def log_evidence(self, hyper: Hyperparameters, eta: Vector) -> tuple[float, Vector]:
        result = self._approximate(hyper, eta)
        by_part = result.evidence(hyper.groups)
        return result.log_evidence, hyper.gradient(eta, by_part, result.dispersion_slope)

    def solve(self, hyper: Hyperparameters, eta: Vector) -> tuple[float, HierarchicalGaussian]:
        result = self._approximate(hyper, eta)
        return result.log_evidence, result.weights

    def value(self, hyper: Hyperparameters, eta: Vector, *, avoid_boundary: bool) -> float:
        result = self._approximate(hyper, eta)
        return result.log_evidence + (hyper.penalty(eta)[0] if avoid_boundary else 0.0)

    def approach(self, hyper: Hyperparameters, eta: Vector, *, avoid_boundary: bool) -> tuple[Vector, float]:
        """η and sites in turn, each the best given the other, until η stays where it is.

        With the sites held fixed, the evidence of the Gaussian rounds that they stand for takes one solve instead of a
        loop. Where sites match their posterior, its derivative is that of the bound (Fisher's identity holds for both),
        so both have their maximum at the same η.
        """
        if hyper.learn_noise or hyper.size > FEW or self._likelihood.treatment != "variational":
            return super().approach(hyper, eta, avoid_boundary=avoid_boundary)
        # Sites under the prior as given: means that are integrated out are too vague to begin with.
        first = self._loop(hyper.given, self._likelihood, tolerance=_ROUGH)
        self._start = _sites(first)
        start, result = eta, self._approximate(hyper, eta, tolerance=_LOOSE)
        least = result.log_evidence + (hyper.penalty(eta)[0] if avoid_boundary else 0.0)
        turns, curvature = list[tuple[Vector, Vector]](), None
        try:
            for _ in range(_TURNS):
                best = self._best_for_sites(hyper, eta, result, avoid_boundary, curvature)
                curvature = best.curvature
                turns.append((eta, best.eta))
                eta = np.clip(_extrapolated(turns), *hyper.bounds())
                result = self._approximate(hyper, eta, tolerance=_LOOSE, max_iterations=_STEPS_PER_TURN)
                if np.abs(eta - turns[-1][0]).max() < _NEAR:
                    break
            better = self.value(hyper, eta, avoid_boundary=avoid_boundary) >= least
        except NumericalError:
            better = False
        return (eta if better else start), least

    def _best_for_sites(
        self, hyper: Hyperparameters, eta: Vector, at_eta: Approximation, avoid_boundary: bool,
        curvature: Float[Array, "p p"] | None,
    ) -> NewtonResult:  # fmt: skip
        """The search for the η that makes the Gaussian rounds in place of clicks most likely."""

        def objective(x: Vector) -> tuple[float, Vector]:
            by_part = at_eta.evidence(hyper.groups, None if x is eta else hyper.build(x)[0])
            extra, extra_slope = hyper.penalty(x) if avoid_boundary else (0.0, 0.0)
            return by_part.log_evidence + extra, hyper.gradient(x, by_part, 0.0) + extra_slope

        low, high = hyper.bounds()
        inside = eta if np.all((low <= eta) & (eta <= high)) else np.clip(eta, low, high)
        reach = np.where(hyper.log_scales() > 0, 1.0, np.inf)
        return newton_search(objective, inside, (low, high), reach, _LOOSE, 20, lambda value: None, curvature)

    def fit(self, prior: HierarchicalGaussian, dispersion: float | None) -> RewardPosterior:
        likelihood = self._likelihood.with_dispersion(dispersion)
        fitted = fit_weights(
            prior, self._logs, likelihood, engine=self._engine, start=self._start, tolerance=_PRECISE,
            device=self._on_device(prior),
        )  # fmt: skip
        return posterior_of(fitted, self._logs, prior, likelihood)

    def _approximate(
        self,
        hyper: Hyperparameters,
        eta: Vector,
        *,
        tolerance: float | None = None,
        max_iterations: int = MAX_ITERATIONS,
    ) -> Approximation:
        if tolerance is None:
            # A derivative by differences needs more digits than one by Fisher's identity.
            tolerance = 1e-9 if self._likelihood.treatment == "laplace" else 1e-7
        if self._last is not None and self._last[0] is hyper and np.array_equal(self._last[1], eta):
            result, reached = self._last[2:]
            if reached <= tolerance:
                return result
        prior, dispersion = hyper.build(eta)
        likelihood = self._likelihood.with_dispersion(dispersion)
        result = self._loop(prior, likelihood, start=self._start, tolerance=tolerance, max_iterations=max_iterations)
        self._start = _sites(result)
        self._last = hyper, eta.copy(), result, tolerance if max_iterations == MAX_ITERATIONS else np.inf
        return result

    def _loop(self, prior: HierarchicalGaussian, likelihood: Likelihood, **options: Any) -> Approximation:
        return approximate(
            prior, self._logs, likelihood,
            engine=self._engine, rounds=self._rounds, device=self._on_device(prior), **options,
        )  # fmt: skip

    def _on_device(self, prior: HierarchicalGaussian) -> str | DeviceRounds:
        """The place of the loop: the rounds on a GPU, copied there when they are first needed."""
        if self._device == CPU:
            return CPU
        if self._there is None:
            self._there = DeviceRounds(prior, self._logs, self._likelihood, self._device)
        return self._there

    def release(self) -> None:
        """Give back the memory of a GPU; a later evaluation takes it anew."""
        if self._device != CPU:
            self._there = self._start = self._last = None


def _sites(result: Approximation) -> Start:
    """The start of the next loop: sites as the solver keeps them."""
    return result.state.sites


def _extrapolated(turns: list[tuple[Vector, Vector]]) -> Vector:
    """The point at which a sequence of points η, each with a step to another, would end (Anderson, 1965).

    As many earlier steps are used as there are numbers in η. Long steps are taken as they are, and so is a step whose
    extrapolation leads far away.
    """
    eta, best = turns[-1]
    step, earlier = best - eta, turns[-1 - len(eta) : -1]
    if not earlier or np.abs(step).max() > _CLOSE:
        return best
    changes = np.array([step - (after - before) for before, after in earlier]).T
    moves = np.array([best - after for _, after in earlier]).T
    ahead = best - moves @ np.linalg.lstsq(changes, step, rcond=1e-6)[0]
    return ahead if np.abs(ahead - best).max() <= 2 * _CLOSE else best


def evidence_of(
    logs: Logs | Statistics, likelihood: Likelihood, n_actions: int, engine: Engine = LOCAL, device: str = CPU
) -> Evidence:
    """The evidence that suits a likelihood; that of clicks can be computed on a GPU."""
    if likelihood.treatment == "exact":
        return ExactEvidence(logs, likelihood, n_actions, engine)
    if isinstance(logs, Statistics):
        raise InputError(
            f"must be rounds under {type(likelihood).__name__}; got Statistics.", "Pass LoggedData.", argument="logs"
        )
    return ApproximateEvidence(logs, likelihood, n_actions, engine, device)


def _scale(
    reward_squares: float, feature_squares: Float[Array, " d"], total_weight: float, noise_square: float = 0.0
) -> Scale:
    if not total_weight > 0 or not feature_squares.any():
        return Scale(0.0, np.ones(len(feature_squares)))
    # A column of zeros, up to rounding, has no size of its own: it gets that of the largest.
    used = np.where(feature_squares > NOTHING**2 * feature_squares.max(), feature_squares, feature_squares.max())
    reward = float(np.sqrt(reward_squares / total_weight))
    share = float(np.sqrt(noise_square)) / reward if reward > 0 else 1.0
    return Scale(reward, np.sqrt(reward_squares / used), share if _ROUNDING < share < _TINY_SHARE else 1.0)


def _constant_column(summary: RoundSummary) -> int | None:
    """The first column of the contexts that is the same in all rounds, and not zero: (Σ w φ)² = Σ w Σ w φ² there."""
    squares = summary.total_weight * summary.feature_squares
    columns = np.flatnonzero((squares > 0) & (summary.feature_sums**2 >= (1 - 1e-12) * squares))
    return int(columns[0]) if len(columns) else None


_ROUGH, _LOOSE, _PRECISE = 1.0, 1e-2, 1e-8
"""Gains in nats that end the loop: for first sites, on the way to a start for the search, for the posterior itself."""
_TURNS, _STEPS_PER_TURN, _NEAR, _CLOSE = 12, 2, 0.02, 0.2
"""The most turns of η and sites, the steps of the loop in each, the change of η that ends them, and that below which
steps are extrapolated."""
_PREDICTOR = 3.0
_ROUNDING, _TINY_SHARE = 1e-10, 1e-3
"""Below the first share of their size, the noise of rewards is rounding; above the second, it is in no way tiny."""
NOTHING = 1e-14
"""A column smaller than this, relative to the largest, counts as a column of zeros."""
