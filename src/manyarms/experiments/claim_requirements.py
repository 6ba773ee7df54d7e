"""The requirements that claims are built from: comparisons of methods on the same instances and logs.

In all of them `problem` is the label of a problem, `kind` is "ope" or "opl", `ours` and `rival` are names of methods,
and `n` or `rounds` are numbers of rounds. A `prefix` is printed before the names of methods in tables, to tell several
problems apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest

from manyarms.experiments.cell import Outcome, Table, covered
from manyarms.experiments.claim import MethodComparison, Requirement, above_zero
from manyarms.experiments.problem import Kind

ROUNDS = (100, 500, 1000, 2000, 5000, 10_000)
"""n of the paper-size figures; the paper does not say which it used."""

MARGIN = 0.001
"""Relative rewards are tied when they differ by less than this, a thousandth of the best value, at 95 % confidence."""

MIN_INSTANCES_TO_AGREE = 20
"""With fewer instances, agreement with a reference says nothing: the error bars are too wide to disagree."""

MIN_INSTANCES_TO_COVER = 100
"""With fewer instances, coverage says nothing: its standard error is above two points."""


@dataclass(frozen=True)
class _OnOneProblem(Requirement):
    """A requirement about a single problem."""

    problem: str

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)


@dataclass(frozen=True)
class BetterThanEach(_OnOneProblem):
    """One method is better than each of its rivals, at each number of rounds."""

    kind: Kind
    ours: str
    rivals: tuple[str, ...]
    rounds: tuple[int, ...] = ROUNDS
    prefix: str = ""

    def comparisons(self, table: Table) -> list[MethodComparison]:
        return [self._over(table, rival, n) for rival in self.rivals for n in self.rounds]

    def _over(self, table: Table, rival: str, n: int) -> MethodComparison:
        gains = table.gains(self.problem, self.kind, self.ours, rival, n).values()
        margin = MARGIN if self.kind == "opl" else 0.0
        return above_zero(f"{self.prefix}{self.ours} over {rival}", n, gains, margin=margin)


@dataclass(frozen=True)
class BestIsBetter(_OnOneProblem):
    """At each number of rounds, the candidate with the best mean is better than each of the rivals.

    The best is chosen on the rows that it is tested on, so its p-value is multiplied by the number of candidates.
    """

    kind: Kind
    candidates: tuple[str, ...]
    rivals: tuple[str, ...]
    rounds: tuple[int, ...] = ROUNDS

    def comparisons(self, table: Table) -> list[MethodComparison]:
        return [self._over(table, rival, n) for rival in self.rivals for n in self.rounds]

    def _over(self, table: Table, rival: str, n: int) -> MethodComparison:
        gains = {name: list(table.gains(self.problem, self.kind, name, rival, n).values()) for name in self.candidates}
        best = max(gains, key=lambda name: np.mean(gains[name]) if gains[name] else -np.inf)
        comparison = above_zero(f"the best of {', '.join(self.candidates)} over {rival}", n, gains[best])
        p_for = min(1.0, comparison.p_for * len(self.candidates))
        return replace(comparison, p_for=p_for, numbers=f"{best}: {comparison.numbers}")


@dataclass(frozen=True)
class GainGrows(Requirement):
    """The gain of one method over another grows from each problem to the next; the problems share no instances.

    Args:
        problems: A name and the label of each problem, in the order in which the gain should grow.
    """

    problems: tuple[tuple[str, str], ...]
    kind: Kind
    ours: str
    rival: str
    n: int
    prefix: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for _, label in self.problems)

    def comparisons(self, table: Table) -> list[MethodComparison]:
        gains = [
            (name, np.array(list(table.gains(label, self.kind, self.ours, self.rival, self.n).values())))
            for name, label in self.problems
        ]
        comparisons: list[MethodComparison] = []
        for (before, small), (after, large) in pairwise(gains):
            title = f"{self.prefix}{self.ours} over {self.rival}: {after} minus {before}"
            count = min(len(small), len(large))
            comparison = MethodComparison(title, f"n = {self.n:,}", (self.n,), count)
            if count >= 2:
                error = float(np.sqrt(small.var(ddof=1) / len(small) + large.var(ddof=1) / len(large)))
                comparison = comparison.t_test(float(large.mean() - small.mean()), error, count - 1)
            comparisons.append(comparison)
        return comparisons


@dataclass(frozen=True)
class GainLargerAt(_OnOneProblem):
    """The gain of one method over another is larger at n rounds than at `than` rounds, on the same instances."""

    kind: Kind
    ours: str
    rival: str
    n: int
    than: int

    def comparisons(self, table: Table) -> list[MethodComparison]:
        here, there = (table.gains(self.problem, self.kind, self.ours, self.rival, n) for n in (self.n, self.than))
        differences = [here[i] - there[i] for i in sorted(here.keys() & there.keys())]
        column = f"n = {self.n:,} minus n = {self.than:,}"
        comparison = above_zero(f"{self.ours} over {self.rival}", self.n, differences, column=column)
        return [replace(comparison, rounds=(self.n, self.than))]


@dataclass(frozen=True)
class Faster(_OnOneProblem):
    """One method takes less than `times` the CPU time of another, as a ratio on the same instances.

    `column` is the name of the problem in tables.
    """

    kind: Kind
    ours: str
    rival: str
    n: int
    column: str
    times: float = 1.0

    def comparisons(self, table: Table) -> list[MethodComparison]:
        mine, theirs = (table.outcomes(self.problem, self.kind, name, self.n) for name in (self.ours, self.rival))
        pairs = [(mine[i].seconds, theirs[i].seconds) for i in sorted(mine.keys() & theirs.keys())]
        log_ratios = np.array([np.log(b / a) for a, b in pairs if a > 0 and b > 0])
        least = "1" if self.times == 1 else f"1/{self.times:g}"
        title = f"time of {self.rival} over that of {self.ours}, more than {least}"
        comparison = above_zero(title, self.n, log_ratios + np.log(self.times), column=self.column)
        numbers = f"{np.exp(log_ratios.mean()):.3g} times" if len(log_ratios) else ""
        return [replace(comparison, numbers=numbers)]


@dataclass(frozen=True)
class Covers(_OnOneProblem):
    """95 % intervals contain the truth in 95 % of instances.

    In favour: within two standard errors of 95 %, with enough instances for this to mean something. Against: an exact
    binomial test.
    """

    method: str
    rounds: tuple[int, ...] = ROUNDS

    def comparisons(self, table: Table) -> list[MethodComparison]:
        return [self._at(table, n) for n in self.rounds]

    def _at(self, table: Table, n: int) -> MethodComparison:
        hits = covered(table.outcomes(self.problem, "ope", self.method, n).values())
        count = len(hits)
        comparison = MethodComparison(self.method, f"n = {n:,}", (n,), count)
        if count < 2:
            return comparison
        share, error = float(hits.mean()), float(np.sqrt(0.95 * 0.05 / count))
        near = abs(share - 0.95) <= 2 * error and count >= MIN_INSTANCES_TO_COVER
        p_against = float(binomtest(int(hits.sum()), count, 0.95).pvalue)
        numbers = f"{share:.1%} ± {error:.1%}"
        return replace(comparison, p_for=float(not near), p_against=p_against, numbers=numbers)


@dataclass(frozen=True)
class Reference:
    """The mean score of a method over instances, with its standard error, from another implementation."""

    problem: str
    kind: Kind
    method: str
    n: int
    mean: float
    error: float


@dataclass(frozen=True)
class MatchesReferences(Requirement):
    """Mean scores agree with reference numbers.

    In favour: within two joint standard errors, with enough instances. Against: a two-sided test of their difference.
    """

    references: tuple[Reference, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple({reference.problem for reference in self.references})

    def comparisons(self, table: Table) -> list[MethodComparison]:
        return [self._with(table, reference) for reference in self.references]

    def _with(self, table: Table, reference: Reference) -> MethodComparison:
        scores = table.scores(reference.problem, reference.kind, reference.method, reference.n)
        comparison = MethodComparison(reference.method, f"n = {reference.n:,}", (reference.n,), len(scores))
        if len(scores) < 2:
            return comparison
        mean, error = float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(len(scores)))
        numbers = f"{mean:.3g} ± {error:.2g} (there {reference.mean:.3g} ± {reference.error:.2g})"
        distance = abs(mean - reference.mean) / np.hypot(error, reference.error)
        enough = len(scores) >= MIN_INSTANCES_TO_AGREE
        return _near(replace(comparison, numbers=numbers), float(distance), enough=enough)


@dataclass(frozen=True)
class NearTruth(_OnOneProblem):
    """Estimates agree with a true value that was itself measured.

    In favour: within two joint standard errors, where these are smaller than the value. Against: a two-sided test. The
    errors are the methods' own, since instances share one log.
    """

    methods: tuple[str, ...]
    n: int

    def comparisons(self, table: Table) -> list[MethodComparison]:
        return [self._of(method, table.outcomes(self.problem, "ope", method, self.n)) for method in self.methods]

    def _of(self, method: str, outcomes: Mapping[int, Outcome]) -> MethodComparison:
        mean, error, count = _own_error(outcomes, lambda outcome: outcome.value - outcome.truth)
        comparison = MethodComparison(f"{method}: estimate minus truth", f"n = {self.n:,}", (self.n,), count)
        if count < 2:
            return comparison
        truth, spread = (np.mean([getattr(o, name) for o in outcomes.values()]) for name in ("truth", "truth_error"))
        joint = float(np.hypot(error, spread))
        comparison = replace(comparison, numbers=f"{mean:+.5f} ± {joint:.5f}")
        return _near(comparison, abs(mean) / joint, enough=joint < abs(float(truth)))


@dataclass(frozen=True)
class AboveLogged(_OnOneProblem):
    """Each method is sure, by its own interval, that the target earns more than was logged.

    Instances share one log, so their spread says nothing about the error. The error is the mean of the methods' own.
    Both estimates come from one log and tend to err alike, so the joint error stated is on the large side.
    """

    methods: tuple[str, ...]
    n: int

    def comparisons(self, table: Table) -> list[MethodComparison]:
        logged, logged_error, logged_count = self._value(table, "logged")
        comparisons: list[MethodComparison] = []
        for method in self.methods:
            mean, error, count = self._value(table, method)
            title, count = f"{method}: target minus logged", min(count, logged_count)
            comparison = MethodComparison(title, f"n = {self.n:,}", (self.n,), count)
            joint = float(np.hypot(error, logged_error))
            comparisons.append(comparison.t_test(mean - logged, joint, np.inf) if count >= 2 else comparison)
        return comparisons

    def _value(self, table: Table, method: str) -> tuple[float, float, int]:
        return _own_error(table.outcomes(self.problem, "ope", method, self.n), lambda outcome: outcome.value)


def _near(comparison: MethodComparison, distance: float, *, enough: bool) -> MethodComparison:
    """In favour within two standard errors, against by a two-sided normal test."""
    near = distance <= 2 and enough
    return replace(comparison, p_for=float(not near), p_against=float(2 * ndtr(-distance)))


def _own_error(outcomes: Mapping[int, Outcome], quantity: Callable[[Outcome], float]) -> tuple[float, float, int]:
    """A mean over instances, the mean standard error that the method itself states, and the number of instances."""
    widths = [o.high - o.low for o in outcomes.values() if o.low is not None and o.high is not None]
    if len(widths) < 2:
        return float("nan"), float("nan"), 0
    mean = np.mean([quantity(outcome) for outcome in outcomes.values()])
    return float(mean), float(np.mean(widths) / (2 * ndtri(0.975))), len(widths)
