"""Claims of the paper, and two verdicts of the rows: at every n, and averaged over n.

A claim is a list of requirements. Each makes comparisons that should all come out in favour of the claim.

- It *holds* when its comparisons are decided in its favour at 5 %, or tied, and not all are tied. One comparison in
  fifty may be against it, and one in twenty open: a claim about 250 comparisons does not fail because of one.
- It *does not hold* when more than one comparison in fifty is decided against it, at 5 % shared among all (Holm).
- It is *undecided* otherwise, *not run* when rows are missing, and *not testable* where the data cannot show it.

For the second verdict, the differences of each instance are averaged over n before they are tested.

In all requirements `problem` is the label of a problem, `kind` is "ope" or "opl", `ours` and `rival` are names of
methods, and `n` or `rounds` are numbers of rounds. A `prefix` is printed before the names of methods in tables, to tell
several problems apart: no two comparisons of a claim may have the same title and column. Requirements about numbers
instead of rivals are in `number_requirements`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Literal

import numpy as np

from manyarms.experiments.cell import Table, score
from manyarms.experiments.method_comparison import TEST_LEVEL, Decision, MethodComparison, above_zero, average_over_n
from manyarms.experiments.methods import PAPER
from manyarms.experiments.problem import Kind, Problem

ROUNDS = (100, 500, 1000, 2000, 5000, 10_000)
"""n of the paper-size figures; the paper does not say which it used."""

MARGIN = 0.001
"""Relative rewards are tied when they differ by less than this, a thousandth of the best value, at 95 % confidence."""

ALLOWED_AGAINST, ALLOWED_OPEN = 0.02, 0.05
"""Shares of its comparisons that may be decided against a claim, or left open, when it still holds."""

MIN_INSTANCES_TO_DECIDE = 20
"""At paper size, a comparison with fewer instances is left open: t-tests of so few skewed differences are unsafe."""

Verdict = Literal["holds", "does not hold", "undecided", "not run", "not testable"]


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
    """The result of testing a claim on rows: the comparisons it rests on, and the reason why they show nothing.

    A comparison with fewer than `least` instances is open.
    """

    comparisons: tuple[MethodComparison, ...]
    untestable: str = ""
    least: int = 2

    @cached_property
    def averages(self) -> tuple[MethodComparison, ...]:
        """The comparisons averaged over n; none when there is only one n, or nothing to average."""
        groups: dict[str, list[MethodComparison]] = {}
        for comparison in self.comparisons:
            if comparison.samples:
                groups.setdefault(comparison.title, []).append(comparison)
        if all(len(group) == 1 for group in groups.values()):
            return ()
        return tuple(average_over_n(group).open_below(self.least) for group in groups.values())

    def decision(self, comparison: MethodComparison) -> Decision:
        """The decision of one of its comparisons."""
        family = self.averages if comparison in self.averages else self.comparisons
        return comparison.decision(level_against(family))

    @property
    def verdict(self) -> Verdict:
        """The verdict at every n, by the rules at the top of the module."""
        return "not testable" if self.untestable else verdict_of(self.comparisons)

    @property
    def averaged_verdict(self) -> Verdict | None:
        """The verdict averaged over n; None when there is nothing to average."""
        if not self.averages:
            return None
        return "not testable" if self.untestable else verdict_of(self.averages)

    @property
    def against(self) -> int:
        """The number of comparisons decided against it, at every n."""
        return count_against(self.comparisons)

    @property
    def averaged_against(self) -> int:
        """The number of comparisons decided against it, averaged over n."""
        return count_against(self.averages)

    def __str__(self) -> str:
        total, level = len(self.comparisons), level_against(self.comparisons)
        decisions = [comparison.decision(level) for comparison in self.comparisons if comparison.count >= 2]
        if len(decisions) < total or not decisions:
            return f"{len(decisions)} of {total} comparisons could be made"
        counts = [f"{decisions.count('for')} for", f"{decisions.count('against')} against"]
        counts += [f"{decisions.count('tie')} tied"] * ("tie" in decisions) + [f"{decisions.count('open')} open"]
        return f"{total} comparison{'s' if total > 1 else ''}: {', '.join(counts)}"


def level_against(comparisons: Sequence[MethodComparison]) -> float:
    """The p-value below which a comparison of a claim is decided against it: 5 % shared among all of them (Holm)."""
    values = sorted(comparison.p_against for comparison in comparisons)
    level = TEST_LEVEL / max(1, len(values))
    for place, value in enumerate(values):
        level = TEST_LEVEL / (len(values) - place)
        if value >= level:
            break
    return level


def count_against(comparisons: Sequence[MethodComparison]) -> int:
    """The number of comparisons decided against their claim, at the level that they share."""
    level = level_against(comparisons)
    return [comparison.decision(level) for comparison in comparisons].count("against")


def verdict_of(comparisons: Sequence[MethodComparison]) -> Verdict:
    """The verdict of a claim's comparisons, by the rules at the top of the module."""
    if not comparisons or any(comparison.count < 2 for comparison in comparisons):
        return "not run"
    total, level = len(comparisons), level_against(comparisons)
    decisions = [comparison.decision(level) for comparison in comparisons]
    if decisions.count("against") > ALLOWED_AGAINST * total:
        return "does not hold"
    return "holds" if "for" in decisions and decisions.count("open") <= ALLOWED_OPEN * total else "undecided"


@dataclass(frozen=True)
class Claim:
    """A claim, its meaning in rows, and a remark on the paper-size run.

    Attributes:
        text: What is tested, in our words.
        remark: Why the results are as they are. Which comparisons are exceptions is written by the page.
        quotes: The sentences of the paper that it tests, in its words; none for claims of ours. See `paper_text`.
        untestable: Why the data at hand cannot show it; empty when it can.
    """

    text: str
    requirements: Sequence[Requirement]
    remark: str = ""
    quotes: tuple[str, ...] = ()
    untestable: str = ""

    def test(self, table: Table, rounds: Mapping[str, set[int]], least: int = 2) -> ClaimResult:
        """Test the claim on rows; of each problem, by its label, only the `rounds` that were to be run count.

        Comparisons with fewer than `least` instances are left open.
        """
        kept = tuple(
            comparison.open_below(least)
            for requirement in self.requirements
            for comparison in requirement.comparisons(table)
            if all(rounds.get(label, set()).issuperset(comparison.rounds) for label in requirement.labels)
        )
        places = Counter((comparison.title, comparison.column) for comparison in kept)
        if repeated := [place for place, count in places.items() if count > 1]:
            raise ValueError(f"several comparisons of {self.text!r} have the place {repeated[0]}; give them a prefix.")
        return ClaimResult(kept, self.untestable, least)


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
            gains = table.gains(self.problem, self.kind, self.ours, rival, n)
            comparison = above_zero(f"{self.prefix}{self.ours} over {rival}", n, gains, margin=margin)
            sample = _per_mean_error(table, self, (self.ours, rival), n, gains)
            yield replace(comparison, samples=(sample,), relative=self.kind == "ope")


def better_on_each(
    problems: Mapping[str, Problem], kind: Kind, ours: str, rivals: tuple[str, ...], rounds: tuple[int, ...] = ROUNDS
) -> tuple[BetterThanEach, ...]:
    """The requirements that a claim makes on each of these problems, by name: ours is better than each rival."""
    return tuple(BetterThanEach(p.label, kind, ours, rivals, rounds, f"{name}: ") for name, p in problems.items())


@dataclass(frozen=True)
class BestIsBetter(Requirement):
    """Claim that, at each number of rounds, the candidate with the best mean is better than each of the rivals.

    The best at an n may be another than at the next; averaged over n, it is one candidate, the best over all n. It is
    chosen on the rows that it is tested on, so its p-value is multiplied by the number of candidates.
    """

    problem: str
    kind: Kind
    candidates: tuple[str, ...]
    rivals: tuple[str, ...]
    rounds: tuple[int, ...] = ROUNDS
    prefix: str = ""

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        names, margin = self.candidates, MARGIN if self.kind == "opl" else 0.0
        for rival in self.rivals:
            gains = {
                (name, n): table.gains(self.problem, self.kind, name, rival, n) for name in names for n in self.rounds
            }
            shares = {key: _per_mean_error(table, self, (key[0], rival), key[1], gain) for key, gain in gains.items()}
            run = [n for n in self.rounds if any(gains[name, n] for name in names)]
            overall = max(names, key={name: sum(_mean(shares[name, n]) for n in run) for name in names}.__getitem__)
            for n in self.rounds:
                best = max(names, key={name: _mean(gains[name, n]) for name in names}.__getitem__)
                title = f"{self.prefix}the best of {', '.join(names)} over {rival}"
                comparison = above_zero(title, n, gains[best, n], margin=margin, chosen_from=len(names))
                comparison = replace(comparison, numbers=f"{best}: {comparison.numbers}", chosen=overall)
                yield replace(comparison, samples=(shares[overall, n],), relative=self.kind == "ope")


def _mean(gains: Mapping[int, float]) -> float:
    return float(np.mean(list(gains.values()))) if gains else -np.inf


def _per_mean_error(
    table: Table, claim: BetterThanEach | BestIsBetter, pair: tuple[str, str], n: int, gains: Mapping[int, float]
) -> Mapping[int, float]:
    """Gains to average over n in a claim: squared errors at different n differ by orders of magnitude.

    Differences of squared errors are divided by the sum of the two means, so that each n counts alike.
    """
    if claim.kind == "opl" or not gains:
        return gains
    outcomes = (table.outcomes(claim.problem, claim.kind, name, n) for name in pair)
    total = sum(float(np.mean([score(claim.kind, outcome[i]) for i in gains])) for outcome in outcomes)
    return {i: gain / total for i, gain in gains.items()} if total > 0 else gains


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
        gains = [(name, table.gains(label, self.kind, self.ours, self.rival, self.n)) for name, label in self.problems]
        for (before, small), (after, large) in pairwise(gains):
            title = f"{self.prefix}{self.ours} over {self.rival}: {after} minus {before}"
            comparison = MethodComparison(title, f"n = {self.n:,}", (self.n,), 0, samples=(small, large))
            yield comparison.tested(small, large)


@dataclass(frozen=True)
class GainLargerAt(Requirement):
    """Claim that the gain of one method over another is larger at `n` rounds than at `than`, on the same instances."""

    problem: str
    kind: Kind
    ours: str
    rival: str
    n: int
    than: int
    prefix: str = ""

    def comparisons(self, table: Table) -> Iterator[MethodComparison]:
        here, there = (table.gains(self.problem, self.kind, self.ours, self.rival, n) for n in (self.n, self.than))
        differences = {i: here[i] - there[i] for i in sorted(here.keys() & there.keys())}
        column = f"n = {self.n:,} minus n = {self.than:,}"
        comparison = above_zero(f"{self.prefix}{self.ours} over {self.rival}", self.n, differences, column=column)
        yield replace(comparison, rounds=(self.n, self.than), samples=())


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
        differences = dict(enumerate((log_ratios + np.log(self.times)).tolist()))
        numbers = f"{np.exp(log_ratios.mean()):.3g} times" if len(log_ratios) else ""
        yield replace(above_zero(title, self.n, differences, column=self.column), numbers=numbers, samples=())


def learns_best(problem: Problem, *quotes: str, remark: str = "") -> Claim:
    """The claim that sDM learns a better policy than every baseline."""
    requirement = BetterThanEach(problem.label, "opl", "sDM", PAPER[1:])
    return Claim("sDM learns a better policy than every baseline.", (requirement,), remark, quotes)


def estimates_best(problem: Problem, *quotes: str, remark: str = "") -> Claim:
    """The claim that sDM has a smaller squared error than every baseline."""
    requirement = BetterThanEach(problem.label, "ope", "sDM", PAPER[1:])
    return Claim("sDM has a smaller squared error than every baseline.", (requirement,), remark, quotes)
