"""Requirements of claims about numbers rather than rivals: coverage, references, and values that were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import binomtest

from manyarms._base.checks import Array
from manyarms.experiments.cell import Outcome, Table
from manyarms.experiments.claim import ROUNDS, Requirement
from manyarms.experiments.method_comparison import MethodComparison
from manyarms.experiments.problem import Kind

MIN_INSTANCES_TO_AGREE = 20
"""With fewer instances, agreement with a reference says nothing: the error bars are too wide to disagree."""

MIN_INSTANCES_TO_COVER = 100
"""With fewer instances, coverage says nothing: its standard error is above two points."""


@dataclass(frozen=True)
class Covers(Requirement):
    """Claim that 95 % intervals contain the truth in 95 % of instances.

    In favour: within two standard errors of 95 %, with enough instances for this to mean something. Against: an exact
    binomial test.
    """

    problem: str
    method: str
    rounds: tuple[int, ...] = ROUNDS

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        for n in self.rounds:
            hits = covered(table.outcomes(self.problem, "ope", self.method, n).values())
            count = len(hits)
            comparison = MethodComparison(self.method, f"n = {n:,}", (n,), count)
            if count >= 2:
                share, error = float(hits.mean()), float(np.sqrt(0.95 * 0.05 / count))
                enough, exact = count >= MIN_INSTANCES_TO_COVER, binomtest(int(hits.sum()), count, 0.95)
                comparison = comparison.near(abs(share - 0.95) / error, f"{share:.1%} ± {error:.1%}", enough=enough)
                comparison = replace(comparison, p_against=float(exact.pvalue))
            yield comparison


@dataclass(frozen=True)
class Reference:
    """A claim's reference number: the mean score of a method with its standard error, from another implementation."""

    problem: str
    kind: Kind
    method: str
    n: int
    mean: float
    error: float


@dataclass(frozen=True)
class MatchesReferences(Requirement):
    """Claim that mean scores agree with reference numbers.

    In favour: within two joint standard errors, with enough instances. Against: a two-sided test of their difference.
    """

    references: tuple[Reference, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple({reference.problem for reference in self.references})

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        for there in self.references:
            scores = table.scores(there.problem, there.kind, there.method, there.n)
            count = len(scores)
            comparison = MethodComparison(there.method, f"n = {there.n:,}", (there.n,), count)
            if count >= 2:
                mean, error = float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(count))
                numbers = f"{mean:.3g} ± {error:.2g} (there {there.mean:.3g} ± {there.error:.2g})"
                distance = float(abs(mean - there.mean) / np.hypot(error, there.error))
                comparison = comparison.near(distance, numbers, enough=count >= MIN_INSTANCES_TO_AGREE)
            yield comparison


@dataclass(frozen=True)
class NearTruth(Requirement):
    """Claim that estimates agree with a true value that was itself measured.

    In favour: within two joint standard errors, where these are smaller than the value. Against: a two-sided test. The
    errors are the methods' own, since instances share one log.
    """

    problem: str
    methods: tuple[str, ...]
    n: int

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        for method in self.methods:
            outcomes = table.outcomes(self.problem, "ope", method, self.n)
            mean, error, count = _own_error(outcomes, lambda outcome: outcome.value - outcome.truth)
            comparison = MethodComparison(f"{method}: estimate minus truth", f"n = {self.n:,}", (self.n,), count)
            if count >= 2:
                truth = float(np.mean([outcome.truth for outcome in outcomes.values()]))
                spread = np.mean([outcome.truth_error for outcome in outcomes.values()])
                joint = float(np.hypot(error, spread))
                numbers = f"{mean:+.5f} ± {joint:.5f}"
                comparison = comparison.near(abs(mean) / joint, numbers, enough=joint < abs(truth))
            yield comparison


@dataclass(frozen=True)
class AboveLogged(Requirement):
    """Claim that each method is sure, by its own interval, that the target earns more than was logged.

    Instances share one log, so their spread says nothing about the error. The error is the mean of the methods' own.
    Both estimates come from one log and tend to err alike, so the joint error stated is on the large side.
    """

    problem: str
    methods: tuple[str, ...]
    n: int

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        (logged, logged_error, logged_count), *others = (
            _own_error(table.outcomes(self.problem, "ope", method, self.n), lambda outcome: outcome.value)
            for method in ("logged", *self.methods)
        )
        for method, (mean, error, count) in zip(self.methods, others, strict=True):
            both = min(count, logged_count)
            comparison = MethodComparison(f"{method}: target minus logged", f"n = {self.n:,}", (self.n,), both)
            joint = float(np.hypot(error, logged_error))
            yield comparison.t_test(mean - logged, joint, np.inf) if both >= 2 else comparison


def _own_error(outcomes: Mapping[int, Outcome], quantity: Callable[[Outcome], float]) -> tuple[float, float, int]:
    """A mean over instances, the mean standard error that the method itself states, and the number of instances."""
    widths = [o.high - o.low for o in outcomes.values() if o.low is not None and o.high is not None]
    if len(widths) < 2:
        return float("nan"), float("nan"), 0
    mean = np.mean([quantity(outcome) for outcome in outcomes.values()])
    return float(mean), float(np.mean(widths) / (2 * ndtri(0.975))), len(widths)


def covered(outcomes: Iterable[Outcome]) -> Float[Array, " m"]:
    """1 for each outcome whose own interval contains the truth, else 0; those without an interval are left out.

    A truth that was measured on a sample of contexts has an error of its own. The half-width of the interval and that
    error, at the same level, are added in quadrature.
    """
    rows = [(o.low, o.high, o.truth, o.truth_error) for o in outcomes if o.low is not None]
    low, high, truth, truth_error = np.array(rows, dtype=float).reshape(-1, 4).T
    inside = abs(truth - (low + high) / 2) <= np.hypot((high - low) / 2, ndtri(0.975) * truth_error)
    return inside.astype(float)
