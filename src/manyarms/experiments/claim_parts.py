"""What a claim can be made of: comparisons of methods, on the same instances and logs, pair by pair."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest
from scipy.stats import t as student

from manyarms.experiments.cell import Outcome
from manyarms.experiments.problem import Kind
from manyarms.experiments.result_table import Table, covered

MARGIN = 0.001
"""Relative rewards that differ by less than this, a thousandth of the best value, with 95 % confidence, are tied."""

ENOUGH = 20
"""Instances below which agreement with a reference says nothing: its error bars would be too wide to disagree."""

ENOUGH_TO_COVER = 100
"""The same for coverage: fewer instances have a standard error above two points."""


@dataclass(frozen=True)
class Comparison:
    """One thing that should come out in favour of a claim.

    Attributes:
        what: What is compared: a row of a table.
        at: Where: a column of it.
        rounds: The numbers of rounds that have to be run for it.
        count: Instances; below 2 nothing can be said.
        p_for: The p-value of the test that should be rejected for it to count in favour; 1 when nothing can be said.
        p_against: The same for counting against.
        tie: Whether what is compared differs by so little that neither matters.
        words: The figures, for a table.
    """

    what: str
    at: str
    rounds: tuple[int, ...]
    count: int
    p_for: float = 1.0
    p_against: float = 1.0
    tie: bool = False
    words: str = ""


def above_zero(what: str, n: int, differences: Iterable[float], *, at: str = "", margin: float = 0.0) -> Comparison:
    """The mean of paired differences is above zero: one-sided t-tests.

    Args:
        what: A row of a table.
        n: Rounds.
        differences: One for each instance.
        at: A column of a table; by default the rounds.
        margin: Means within it are tied, when both t-tests at 5 % say so.
    """
    found, at = np.array(list(differences)), at or f"n = {n:,}"
    if len(found) < 2:
        return Comparison(what, at, (n,), len(found))
    mean, error = float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found)))
    return _tested(Comparison(what, at, (n,), len(found)), mean, error, len(found) - 1, margin)


def _tested(blank: Comparison, mean: float, error: float, freedom: int | float, margin: float = 0.0) -> Comparison:
    """With the p-values of a t-test: of a mean, its standard error and the degrees of freedom."""
    if error == 0:
        p_for, p_against = float(not mean > 0), float(not mean < 0)
    else:
        p_for, p_against = (float(student.sf(sign * mean / error, freedom)) for sign in (1, -1))
    tie = abs(mean) + float(student.ppf(0.95, freedom)) * error < margin
    return replace(blank, p_for=p_for, p_against=p_against, tie=tie, words=f"{mean:+.3g} ± {error:.2g}")


class Part(ABC):
    """Something that rows can be asked."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The problems it is about."""

    @abstractmethod
    def comparisons(self, table: Table) -> list[Comparison]:
        """All that should come out in its favour."""


@dataclass(frozen=True)
class Ahead(Part):
    """One method is better than each of these rivals, at each number of rounds.

    Args:
        problem: Its label.
        kind: The task.
        ours: The method.
        rivals: The others.
        rounds: Numbers of rounds.
        where: What tables put before the names of methods, to tell several problems apart.
    """

    problem: str
    kind: Kind
    ours: str
    rivals: tuple[str, ...]
    rounds: tuple[int, ...]
    where: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)

    def comparisons(self, table: Table) -> list[Comparison]:
        margin = MARGIN if self.kind == "opl" else 0.0
        return [
            above_zero(
                f"{self.where}{self.ours} over {rival}",
                n,
                table.gains(self.problem, self.kind, self.ours, rival, n).values(),
                margin=margin,
            )
            for rival in self.rivals
            for n in self.rounds
        ]


@dataclass(frozen=True)
class BestAhead(Part):
    """At each number of rounds one of some methods, the best by its mean, is better than each of the others.

    The best is chosen on the rows that it is tested on, so its p-value counts as often as there were to choose from.

    Args:
        problem: Its label.
        kind: The task.
        some: Methods of which one has to be better.
        others: Those it has to be better than.
        rounds: Numbers of rounds.
    """

    problem: str
    kind: Kind
    some: tuple[str, ...]
    others: tuple[str, ...]
    rounds: tuple[int, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)

    def comparisons(self, table: Table) -> list[Comparison]:
        return [self._best(table, other, n) for other in self.others for n in self.rounds]

    def _best(self, table: Table, other: str, n: int) -> Comparison:
        gains = {one: list(table.gains(self.problem, self.kind, one, other, n).values()) for one in self.some}
        best = max(gains, key=lambda one: np.mean(gains[one]) if gains[one] else -np.inf)
        found = above_zero(f"the best of {', '.join(self.some)} over {other}", n, gains[best])
        return replace(found, p_for=min(1.0, found.p_for * len(self.some)), words=f"{best}: {found.words}")


@dataclass(frozen=True)
class Widens(Part):
    """The gain of one method over another grows from each of these problems to the next; they share no instances.

    Args:
        problems: What to call each, and its label, in the order in which the gain should grow.
        kind: The task.
        ours: The method.
        rival: The other.
        n: Rounds.
        where: What tables put before the names of methods.
    """

    problems: tuple[tuple[str, str], ...]
    kind: Kind
    ours: str
    rival: str
    n: int
    where: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for _, label in self.problems)

    def comparisons(self, table: Table) -> list[Comparison]:
        gains = [
            (name, np.array(list(table.gains(label, self.kind, self.ours, self.rival, self.n).values())))
            for name, label in self.problems
        ]
        found: list[Comparison] = []
        for (before, small), (after, large) in pairwise(gains):
            what, count = (
                f"{self.where}{self.ours} over {self.rival}: {after} minus {before}",
                min(len(small), len(large)),
            )
            blank = Comparison(what, f"n = {self.n:,}", (self.n,), count)
            if count >= 2:
                error = float(np.sqrt(small.var(ddof=1) / len(small) + large.var(ddof=1) / len(large)))
                blank = _tested(blank, float(large.mean() - small.mean()), error, count - 1)
            found.append(blank)
        return found


@dataclass(frozen=True)
class MoreAt(Part):
    """The gain of one method over another is larger at one number of rounds than at another, on the same instances.

    Args:
        problem: Its label.
        kind: The task.
        ours: The method.
        rival: The other.
        n: Where the gain should be larger.
        than: Where it should be smaller.
    """

    problem: str
    kind: Kind
    ours: str
    rival: str
    n: int
    than: int

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)

    def comparisons(self, table: Table) -> list[Comparison]:
        here, there = (table.gains(self.problem, self.kind, self.ours, self.rival, n) for n in (self.n, self.than))
        differences = [here[i] - there[i] for i in sorted(here.keys() & there.keys())]
        at = f"n = {self.n:,} minus n = {self.than:,}"
        found = above_zero(f"{self.ours} over {self.rival}", self.n, differences, at=at)
        return [replace(found, rounds=(self.n, self.than))]


@dataclass(frozen=True)
class Cheaper(Part):
    """One method takes less CPU time than so many times another, on the same instances, as a ratio.

    Args:
        problem: Its label.
        kind: The task.
        ours: The method.
        rival: The other.
        n: Rounds.
        at: What tables call the problem.
        times: How many times.
    """

    problem: str
    kind: Kind
    ours: str
    rival: str
    n: int
    at: str
    times: float = 1.0

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)

    def comparisons(self, table: Table) -> list[Comparison]:
        mine, theirs = (table.outcomes(self.problem, self.kind, name, self.n) for name in (self.ours, self.rival))
        pairs = [(mine[i].seconds, theirs[i].seconds) for i in sorted(mine.keys() & theirs.keys())]
        logs = np.array([np.log(b / a) for a, b in pairs if a > 0 and b > 0])
        least = "1" if self.times == 1 else f"1/{self.times:g}"
        what = f"time of {self.rival} over that of {self.ours}, more than {least}"
        found = above_zero(what, self.n, logs + np.log(self.times), at=self.at)
        return [replace(found, words=f"{np.exp(logs.mean()):.3g} times" if len(logs) else "")]


@dataclass(frozen=True)
class Covers(Part):
    """Intervals at 95 % hold the truth in 95 % of instances.

    In favour: within two standard errors of 95 %, with enough instances that this says something. Against: an exact
    binomial test.

    Args:
        problem: Its label.
        method: The method.
        rounds: Numbers of rounds.
    """

    problem: str
    method: str
    rounds: tuple[int, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)

    def comparisons(self, table: Table) -> list[Comparison]:
        return [self._at(table, n) for n in self.rounds]

    def _at(self, table: Table, n: int) -> Comparison:
        held = covered(table.outcomes(self.problem, "ope", self.method, n).values())
        count = len(held)
        if count < 2:
            return Comparison(self.method, f"n = {n:,}", (n,), count)
        share, error = float(held.mean()), float(np.sqrt(0.95 * 0.05 / count))
        near = abs(share - 0.95) <= 2 * error and count >= ENOUGH_TO_COVER
        p_against = float(binomtest(int(held.sum()), count, 0.95).pvalue)
        words = f"{share:.1%} ± {error:.1%}"
        return Comparison(self.method, f"n = {n:,}", (n,), count, float(not near), p_against, words=words)


@dataclass(frozen=True)
class Reference:
    """A mean with its standard error, from elsewhere.

    Attributes:
        problem: The label of a problem.
        kind: The task.
        method: The name of a method.
        n: Rounds.
        mean: Over instances.
        error: Its standard error.
    """

    problem: str
    kind: Kind
    method: str
    n: int
    mean: float
    error: float


@dataclass(frozen=True)
class Agrees(Part):
    """Means are those of reference figures.

    In favour: within two joint standard errors, with enough instances. Against: a two-sided test of their difference.

    Args:
        references: The figures.
    """

    references: tuple[Reference, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple({reference.problem for reference in self.references})

    def comparisons(self, table: Table) -> list[Comparison]:
        return [self._with(table, reference) for reference in self.references]

    def _with(self, table: Table, reference: Reference) -> Comparison:
        scores = table.scores(reference.problem, reference.kind, reference.method, reference.n)
        blank = Comparison(reference.method, f"n = {reference.n:,}", (reference.n,), len(scores))
        if len(scores) < 2:
            return blank
        mean, error = float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(len(scores)))
        words = f"{mean:.3g} ± {error:.2g} (there {reference.mean:.3g} ± {reference.error:.2g})"
        distance = abs(mean - reference.mean) / np.hypot(error, reference.error)
        return _near(replace(blank, words=words), float(distance), enough=len(scores) >= ENOUGH)


@dataclass(frozen=True)
class NearTruth(Part):
    """Estimates are right about a value that was itself measured.

    In favour: within two joint standard errors, these being smaller than the value. Against: a two-sided test. The
    errors are the methods' own, since instances share one log.

    Args:
        problem: Its label.
        methods: The methods.
        n: Rounds.
    """

    problem: str
    methods: tuple[str, ...]
    n: int

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)

    def comparisons(self, table: Table) -> list[Comparison]:
        return [self._of(method, table.outcomes(self.problem, "ope", method, self.n)) for method in self.methods]

    def _of(self, method: str, outcomes: Mapping[int, Outcome]) -> Comparison:
        mean, error, count = _own_error(outcomes, lambda o: o.value - o.truth)
        blank = Comparison(f"{method}: estimate minus truth", f"n = {self.n:,}", (self.n,), count)
        if count < 2:
            return blank
        truth, spread = (np.mean([getattr(o, name) for o in outcomes.values()]) for name in ("truth", "truth_error"))
        joint = float(np.hypot(error, spread))
        blank = replace(blank, words=f"{mean:+.5f} ± {joint:.5f}")
        return _near(blank, abs(mean) / joint, enough=joint < abs(float(truth)))


@dataclass(frozen=True)
class AboveLogged(Part):
    """Methods are sure, each by its own interval, that the target earns more than was logged.

    Instances share one log, so their spread says nothing of the error: that is the mean of the methods' own. Both
    estimates come from one log and tend to err alike, so that the joint error stated is on the large side.

    Args:
        problem: Its label.
        methods: The methods.
        n: Rounds.
    """

    problem: str
    methods: tuple[str, ...]
    n: int

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.problem,)

    def comparisons(self, table: Table) -> list[Comparison]:
        logged = _own_error(table.outcomes(self.problem, "ope", "logged", self.n), lambda o: o.value)
        found: list[Comparison] = []
        for method in self.methods:
            mean, error, count = _own_error(table.outcomes(self.problem, "ope", method, self.n), lambda o: o.value)
            blank = Comparison(f"{method}: target minus logged", f"n = {self.n:,}", (self.n,), min(count, logged[2]))
            joint = float(np.hypot(error, logged[1]))
            found.append(_tested(blank, mean - logged[0], joint, np.inf) if blank.count >= 2 else blank)
        return found


def _near(blank: Comparison, distance: float, *, enough: bool) -> Comparison:
    """In favour within two standard errors, against by a two-sided normal test."""
    near = distance <= 2 and enough
    return replace(blank, p_for=float(not near), p_against=float(2 * ndtr(-distance)))


def _own_error(outcomes: Mapping[int, Outcome], quantity: Callable[[Outcome], float]) -> tuple[float, float, int]:
    """A mean over instances, the mean standard error that the method itself states, and the number of instances."""
    widths = [o.high - o.low for o in outcomes.values() if o.low is not None and o.high is not None]
    if len(widths) < 2:
        return float("nan"), float("nan"), 0
    mean = np.mean([quantity(outcome) for outcome in outcomes.values()])
    return float(mean), float(np.mean(widths) / (2 * ndtri(0.975))), len(widths)
