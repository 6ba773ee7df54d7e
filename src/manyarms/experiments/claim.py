"""Claims of the paper, and the verdict of the rows: "holds", "does not hold", "undecided" or "not run".

A claim is a list of requirements. Each makes comparisons that should all come out in favour of the claim.

- It *holds* when every comparison is decided in its favour at 5 %, ties aside. The claim is the intersection of its
  comparisons, so each can be tested at the full 5 %.
- It *does not hold* when some comparison is decided against it, at 5 % shared among all of them (Bonferroni).
- It is *undecided* otherwise, and *not run* when rows are missing.

In all requirements `problem` is the label of a problem, `kind` is "ope" or "opl", `ours` and `rival` are names of
methods, and `n` or `rounds` are numbers of rounds. A `prefix` is printed before the names of methods in tables, to tell
several problems apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest
from scipy.stats import t as student

from manyarms.experiments.cell import Outcome, Table, covered
from manyarms.experiments.methods import PAPER
from manyarms.experiments.problem import Kind, Problem

TEST_LEVEL = 0.05

ROUNDS = (100, 500, 1000, 2000, 5000, 10_000)
"""n of the paper-size figures; the paper does not say which it used."""

MARGIN = 0.001
"""Relative rewards are tied when they differ by less than this, a thousandth of the best value, at 95 % confidence."""

MIN_INSTANCES_TO_AGREE = 20
"""With fewer instances, agreement with a reference says nothing: the error bars are too wide to disagree."""

MIN_INSTANCES_TO_COVER = 100
"""With fewer instances, coverage says nothing: its standard error is above two points."""

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
Decision = Literal["for", "against", "tie", "open"]


@dataclass(frozen=True)
class MethodComparison:
    """A comparison that a claim makes: of a method with a rival, a reference or a nominal value.

    `title` and `column` are the heads of its row and column in a table, `numbers` its entry. All its `rounds` have to
    be run. `count` counts instances; with fewer than 2 nothing can be decided. `p_for` and `p_against` are p-values of
    the tests that decide; a `tie` is a difference too small to matter.
    """

    title: str
    column: str
    rounds: tuple[int, ...]
    count: int
    p_for: float = 1.0
    p_against: float = 1.0
    tie: bool = False
    numbers: str = ""

    def decision(self, n_tests: int = 1) -> Decision:
        """The decision at 5 %; a decision against shares its level among `n_tests` comparisons."""
        if self.p_for < TEST_LEVEL:
            return "for"
        if self.tie:
            return "tie"
        return "against" if self.p_against < TEST_LEVEL / n_tests else "open"

    def t_test(self, mean: float, error: float, freedom: int | float, margin: float = 0.0) -> MethodComparison:
        """This comparison with p-values of a t-test that the mean is above zero; a tie if surely within the margin."""
        if error == 0:
            p_for, p_against = float(not mean > 0), float(not mean < 0)
        else:
            p_for, p_against = (float(student.sf(sign * mean / error, freedom)) for sign in (1, -1))
        tie = abs(mean) + float(student.ppf(0.95, freedom)) * error < margin
        return replace(self, p_for=p_for, p_against=p_against, tie=tie, numbers=f"{mean:+.3g} ± {error:.2g}")

    def near(self, distance: float, numbers: str, *, enough: bool) -> MethodComparison:
        """This comparison, in favour within two standard errors, against by a two-sided normal test."""
        p_for = float(not (distance <= 2 and enough))
        return replace(self, p_for=p_for, p_against=float(2 * ndtr(-distance)), numbers=numbers)


def above_zero(
    title: str, n: int, differences: Iterable[float], *, column: str = "", margin: float = 0.0
) -> MethodComparison:
    """Test of a claim that the mean of paired differences, one for each instance, is above zero."""
    values = np.array(list(differences))
    comparison = MethodComparison(title, column or f"n = {n:,}", (n,), len(values))
    if len(values) < 2:
        return comparison
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return comparison.t_test(float(values.mean()), error, len(values) - 1, margin)


class Requirement(ABC):
    """A part of a claim that can be checked on rows; most are about one problem."""

    problem: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the problems it is about."""
        return (self.problem,)

    @abstractmethod
    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        """The comparisons that should all come out in its favour."""


@dataclass(frozen=True)
class ClaimResult:
    """The result of testing a claim on rows: the comparisons it rests on."""

    comparisons: tuple[MethodComparison, ...]

    def decision(self, comparison: MethodComparison) -> Decision:
        """The decision of one of its comparisons."""
        return comparison.decision(len(self.comparisons))

    @property
    def verdict(self) -> Verdict:
        """The verdict, by the rules at the top of the module."""
        if not self.comparisons or any(comparison.count < 2 for comparison in self.comparisons):
            return "not run"
        decisions = {self.decision(comparison) for comparison in self.comparisons}
        if "for" in decisions and decisions <= {"for", "tie"}:
            return "holds"
        return "does not hold" if "against" in decisions else "undecided"

    def __str__(self) -> str:
        total = len(self.comparisons)
        decisions = [self.decision(comparison) for comparison in self.comparisons if comparison.count >= 2]
        if len(decisions) < total or not decisions:
            return f"{len(decisions)} of {total} comparisons could be made"
        counts = [f"{decisions.count('for')} for", f"{decisions.count('against')} against"]
        counts += [f"{decisions.count('tie')} tied"] * ("tie" in decisions) + [f"{decisions.count('open')} open"]
        return f"{total} comparison{'s' if total > 1 else ''}: {', '.join(counts)}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper in our words, its meaning in rows, and a remark on the paper-size run."""

    text: str
    requirements: Sequence[Requirement]
    remark: str = ""

    def test(self, table: Table, rounds: Mapping[str, set[int]]) -> ClaimResult:
        """Test the claim on rows; of each problem, by its label, only the `rounds` that were to be run count."""
        kept = (
            comparison
            for requirement in self.requirements
            for comparison in requirement.comparisons(table)
            if all(rounds.get(label, set()).issuperset(comparison.rounds) for label in requirement.labels)
        )
        return ClaimResult(tuple(kept))


@dataclass(frozen=True)
class BetterThanEach(Requirement):
    """Claim that one method is better than each of its rivals, at each number of rounds."""

    problem: str
    kind: Kind
    ours: str
    rivals: tuple[str, ...]
    rounds: tuple[int, ...] = ROUNDS
    prefix: str = ""

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        margin = MARGIN if self.kind == "opl" else 0.0
        for rival, n in product(self.rivals, self.rounds):
            gains = table.gains(self.problem, self.kind, self.ours, rival, n).values()
            yield above_zero(f"{self.prefix}{self.ours} over {rival}", n, gains, margin=margin)


@dataclass(frozen=True)
class BestIsBetter(Requirement):
    """Claim that, at each number of rounds, the candidate with the best mean is better than each of the rivals.

    The best is chosen on the rows that it is tested on, so its p-value is multiplied by the number of candidates.
    """

    problem: str
    kind: Kind
    candidates: tuple[str, ...]
    rivals: tuple[str, ...]
    rounds: tuple[int, ...] = ROUNDS

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        names = self.candidates
        for rival, n in product(self.rivals, self.rounds):
            gains = [list(table.gains(self.problem, self.kind, name, rival, n).values()) for name in names]
            best = int(np.argmax([float(np.mean(gain)) if gain else -np.inf for gain in gains]))
            comparison = above_zero(f"the best of {', '.join(names)} over {rival}", n, gains[best])
            p_for = min(1.0, comparison.p_for * len(names))
            yield replace(comparison, p_for=p_for, numbers=f"{names[best]}: {comparison.numbers}")


@dataclass(frozen=True)
class GainGrows(Requirement):
    """Claim that the gain of one method over another grows from each problem to the next; they share no instances.

    `problems` has a name and the label of each problem, in the order in which the gain should grow.
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

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        gains = [
            (name, np.array(list(table.gains(label, self.kind, self.ours, self.rival, self.n).values())))
            for name, label in self.problems
        ]
        for (before, small), (after, large) in pairwise(gains):
            title = f"{self.prefix}{self.ours} over {self.rival}: {after} minus {before}"
            count = min(len(small), len(large))
            comparison = MethodComparison(title, f"n = {self.n:,}", (self.n,), count)
            if count >= 2:
                error = float(np.sqrt(small.var(ddof=1) / len(small) + large.var(ddof=1) / len(large)))
                comparison = comparison.t_test(float(large.mean() - small.mean()), error, count - 1)
            yield comparison


@dataclass(frozen=True)
class GainLargerAt(Requirement):
    """Claim that the gain of one method over another is larger at `n` rounds than at `than`, on the same instances."""

    problem: str
    kind: Kind
    ours: str
    rival: str
    n: int
    than: int

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        here, there = (table.gains(self.problem, self.kind, self.ours, self.rival, n) for n in (self.n, self.than))
        differences = [here[i] - there[i] for i in sorted(here.keys() & there.keys())]
        column = f"n = {self.n:,} minus n = {self.than:,}"
        comparison = above_zero(f"{self.ours} over {self.rival}", self.n, differences, column=column)
        yield replace(comparison, rounds=(self.n, self.than))


@dataclass(frozen=True)
class Faster(Requirement):
    """Claim that one method takes less than `times` the CPU time of another; `column` names the problem."""

    problem: str
    kind: Kind
    ours: str
    rival: str
    n: int
    column: str
    times: float = 1.0

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        mine, theirs = (table.outcomes(self.problem, self.kind, name, self.n) for name in (self.ours, self.rival))
        pairs = [(mine[i].seconds, theirs[i].seconds) for i in sorted(mine.keys() & theirs.keys())]
        log_ratios = np.array([np.log(b / a) for a, b in pairs if a > 0 and b > 0])
        least = "1" if self.times == 1 else f"1/{self.times:g}"
        title = f"time of {self.rival} over that of {self.ours}, more than {least}"
        comparison = above_zero(title, self.n, log_ratios + np.log(self.times), column=self.column)
        yield replace(comparison, numbers=f"{np.exp(log_ratios.mean()):.3g} times" if len(log_ratios) else "")


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


RIVALS = PAPER[1:]
"""The baselines of the paper."""


def learns_best(problem: Problem) -> Claim:
    """The claim that sDM learns a better policy than every baseline."""
    requirement = BetterThanEach(problem.label, "opl", "sDM", RIVALS)
    return Claim("sDM learns a better policy than every baseline.", (requirement,))


def estimates_best(problem: Problem, remark: str = "") -> Claim:
    """The claim that sDM has a smaller squared error than every baseline."""
    requirement = BetterThanEach(problem.label, "ope", "sDM", RIVALS)
    return Claim("sDM has a smaller squared error than every baseline.", (requirement,), remark)
