"""Claims, and what the rows say of them: "holds", "does not hold" or "undecided".

A claim is a list of comparisons that should all come out in its favour, each a mean difference over instances with its
standard error. Methods are compared on the same instances and logs, pair by pair. With one-sided t-tests at 5 %:

- it *holds* when every comparison is decided in its favour (the claim is the intersection of its parts, so that each is
  tested at 5 %);
- it *does not hold* when some comparison is decided against it, at 5 % shared among all of them (Bonferroni);
- it is *undecided* otherwise, and *not run* when rows are missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import t as student

from manyarms._arrays import Array
from manyarms.experiments.cells import Outcome, score
from manyarms.experiments.store import Results
from manyarms.experiments.world import Kind

LEVEL = 0.05

Verdict = Literal["holds", "does not hold", "undecided", "not run"]


class Table:
    """Scores by problem, task, method and number of rounds: a column of instances each.

    A score is the squared error of the estimate (ope), or the value of the learned policy over that of the best (opl).

    Args:
        results: Finished cells.
    """

    def __init__(self, results: Results):
        self._columns: dict[tuple[str, Kind, str, int], dict[int, Outcome]] = {}
        for cell in sorted(results):
            key = cell.problem, cell.kind, cell.method, cell.n
            self._columns.setdefault(key, {})[cell.instance] = results[cell]

    def outcomes(self, problem: str, kind: Kind, method: str, n: int) -> Mapping[int, Outcome]:
        """By instance; empty when nothing was run."""
        return self._columns.get((problem, kind, method, n), {})

    def rounds(self, problem: str, kind: Kind, method: str) -> list[int]:
        """Numbers of rounds that were run, ascending."""
        return sorted(n for label, task, name, n in self._columns if (label, task, name) == (problem, kind, method))

    def scores(self, problem: str, kind: Kind, method: str, n: int) -> dict[int, float]:
        """By instance."""
        found = self.outcomes(problem, kind, method, n)
        return {instance: score(kind, outcome) for instance, outcome in found.items()}

    def gains(self, problem: str, kind: Kind, ours: str, rival: str, n: int) -> Float[Array, " m"]:
        """By how much ours is better, on each instance that both were run on: above 0 is better, in either task."""
        mine, theirs = self.scores(problem, kind, ours, n), self.scores(problem, kind, rival, n)
        sign = -1.0 if kind == "ope" else 1.0
        return np.array([sign * (mine[i] - theirs[i]) for i in sorted(mine.keys() & theirs.keys())])


@dataclass(frozen=True)
class Comparison:
    """A mean that should be above zero.

    Attributes:
        what: What is compared: a row of a table.
        at: Where: a column of it.
        mean: Over instances.
        error: Its standard error.
        count: Instances; below 2 nothing can be said.
        rounds: The numbers of rounds that have to be run for it.
        words: What a table shows in place of mean and error.
    """

    what: str
    at: str
    mean: float
    error: float
    count: int
    rounds: tuple[int, ...]
    words: str = ""

    @classmethod
    def of(cls, what: str, n: int, differences: Float[Array, " m"], at: str = "") -> Comparison:
        """From paired differences at one number of rounds."""
        count, at = len(differences), at or f"n = {n:,}"
        if count < 2:
            return cls(what, at, float("nan"), float("nan"), count, (n,))
        error = float(differences.std(ddof=1) / np.sqrt(count))
        return cls(what, at, float(differences.mean()), error, count, (n,))

    def __str__(self) -> str:
        return self.words or f"{self.mean:+.3g} ± {self.error:.2g}"

    def p_value(self, *, ahead: bool) -> float:
        """Of the one-sided t-test that should show it ahead, or behind; 1 when nothing can be said."""
        if self.count < 2 or (self.error == 0 and self.mean == 0):
            return 1.0
        if self.error == 0:
            return 0.0 if (self.mean > 0) == ahead else 1.0
        signed = self.mean / self.error * (1 if ahead else -1)
        return float(student.sf(signed, self.count - 1))


def judge(comparisons: Sequence[Comparison]) -> Verdict:
    """See the module."""
    if not comparisons or any(comparison.count < 2 for comparison in comparisons):
        return "not run"
    if all(comparison.p_value(ahead=True) < LEVEL for comparison in comparisons):
        return "holds"
    if any(comparison.p_value(ahead=False) < LEVEL / len(comparisons) for comparison in comparisons):
        return "does not hold"
    return "undecided"


@dataclass(frozen=True)
class Finding:
    """What the rows say of a claim.

    Attributes:
        verdict: See the module.
        comparisons: What it rests on.
    """

    verdict: Verdict
    comparisons: tuple[Comparison, ...]

    def __str__(self) -> str:
        run = [comparison for comparison in self.comparisons if comparison.count >= 2]
        if len(run) < len(self.comparisons) or not run:
            return f"{len(run)} of {len(self.comparisons)} comparisons could be made"
        ahead = sum(comparison.p_value(ahead=True) < LEVEL for comparison in run)
        behind = sum(self.is_against(comparison) for comparison in run)
        return f"of {len(run)} comparisons {ahead} for it, {behind} against, {len(run) - ahead - behind} open"

    def is_against(self, comparison: Comparison) -> bool:
        """Whether this one alone would refute the claim."""
        return comparison.count >= 2 and comparison.p_value(ahead=False) < LEVEL / len(self.comparisons)


class Part(ABC):
    """Something that rows can be asked."""

    @abstractmethod
    def comparisons(self, table: Table) -> list[Comparison]:
        """All that should be above zero."""


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

    def comparisons(self, table: Table) -> list[Comparison]:
        return [
            Comparison.of(
                f"{self.where}{self.ours} over {rival}",
                n,
                table.gains(self.problem, self.kind, self.ours, rival, n),
            )
            for rival in self.rivals
            for n in self.rounds
        ]


@dataclass(frozen=True)
class BestAhead(Part):
    """At each number of rounds the best of some methods, by its mean, is better than each of the others.

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

    def comparisons(self, table: Table) -> list[Comparison]:
        found: list[Comparison] = []
        for n in self.rounds:
            for other in self.others:
                what = f"the best of {', '.join(self.some)} over {other}"
                gains = {one: table.gains(self.problem, self.kind, one, other, n) for one in self.some}
                best = max(gains, key=lambda one: gains[one].mean() if len(gains[one]) else -np.inf)
                option = Comparison.of(what, n, gains[best])
                found.append(replace(option, words=f"{best}: {option}"))
        return found


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

    def comparisons(self, table: Table) -> list[Comparison]:
        gains = [(name, table.gains(label, self.kind, self.ours, self.rival, self.n)) for name, label in self.problems]
        found: list[Comparison] = []
        for (before, small), (after, large) in pairwise(gains):
            what = f"{self.where}{self.ours} over {self.rival}: {after} minus {before}"
            first, second = Comparison.of(what, self.n, small), Comparison.of(what, self.n, large)
            error, count = float(np.hypot(first.error, second.error)), min(len(small), len(large))
            found.append(replace(first, mean=second.mean - first.mean, error=error, count=count))
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

    def comparisons(self, table: Table) -> list[Comparison]:
        here, there = (table.gains(self.problem, self.kind, self.ours, self.rival, n) for n in (self.n, self.than))
        count = min(len(here), len(there))
        at = f"n = {self.n:,} minus n = {self.than:,}"
        gain = Comparison.of(f"{self.ours} over {self.rival}", self.n, here[:count] - there[:count], at)
        return [replace(gain, rounds=(self.n, self.than))]


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

    def comparisons(self, table: Table) -> list[Comparison]:
        mine, theirs = (table.outcomes(self.problem, self.kind, name, self.n) for name in (self.ours, self.rival))
        both = sorted(mine.keys() & theirs.keys())
        ratios = np.array([theirs[i].seconds / max(mine[i].seconds, 1e-6) for i in both])
        least = "1" if self.times == 1 else f"1/{self.times:g}"
        what = f"time of {self.rival} over that of {self.ours}, more than {least}"
        gains = Comparison.of(what, self.n, np.log(self.times * np.maximum(ratios, 1e-9)), self.at)
        return [replace(gains, words=f"{np.exp(gains.mean) / self.times:.3g} times")]


@dataclass(frozen=True)
class Covers(Part):
    """Intervals at 95 % hold the truth in 95 % of instances, within two standard errors.

    Args:
        problem: Its label.
        method: The method.
        rounds: Numbers of rounds.
    """

    problem: str
    method: str
    rounds: tuple[int, ...]

    def comparisons(self, table: Table) -> list[Comparison]:
        found: list[Comparison] = []
        for n in self.rounds:
            held = covered(table.outcomes(self.problem, "ope", self.method, n).values())
            error = np.sqrt(0.95 * 0.05 / max(len(held), 1))
            share = float(held.mean()) if len(held) else float("nan")
            distance = float(2 - abs(share - 0.95) / error)
            words = f"{share:.1%} ± {error:.1%}"
            found.append(Comparison(self.method, f"n = {n:,}", distance, 0.0, len(held), (n,), words))
        return found


@dataclass(frozen=True)
class AboveLogged(Part):
    """Methods are sure, each by its own interval, that the target earns more than was logged.

    Instances share one log here, so their spread says nothing of the error: that is the mean of the methods' own.

    Args:
        problem: Its label.
        methods: The methods.
        n: Rounds.
    """

    problem: str
    methods: tuple[str, ...]
    n: int

    def comparisons(self, table: Table) -> list[Comparison]:
        logged = _own_error(table.outcomes(self.problem, "ope", "logged", self.n), lambda o: o.value)
        found: list[Comparison] = []
        for method in self.methods:
            mean, error, count = _own_error(table.outcomes(self.problem, "ope", method, self.n), lambda o: o.value)
            joint = float(np.hypot(error, logged[1]))
            what, at = f"{method}: target minus logged", f"n = {self.n:,}"
            found.append(Comparison(what, at, mean - logged[0], joint, min(count, logged[2]), (self.n,)))
        return found


@dataclass(frozen=True)
class NearTruth(Part):
    """Estimates lie within two joint standard errors of a click rate that was itself measured.

    Args:
        problem: Its label.
        methods: The methods.
        n: Rounds of the log.
        truth_rounds: Rounds that the truth is the mean of.
    """

    problem: str
    methods: tuple[str, ...]
    n: int
    truth_rounds: int

    def comparisons(self, table: Table) -> list[Comparison]:
        found: list[Comparison] = []
        for method in self.methods:
            outcomes = table.outcomes(self.problem, "ope", method, self.n)
            mean, error, count = _own_error(outcomes, lambda o: o.value - o.truth)
            rate = np.mean([outcome.truth for outcome in outcomes.values()]) if outcomes else float("nan")
            distance = float(2 - abs(mean) / np.hypot(error, np.sqrt(rate * (1 - rate) / self.truth_rounds)))
            words = f"{mean:+.5f} ± {error:.5f}"
            what, at = f"{method}: estimate minus truth", f"n = {self.n:,}"
            found.append(Comparison(what, at, distance, 0.0, count, (self.n,), words))
        return found


def _own_error(outcomes: Mapping[int, Outcome], quantity: Callable[[Outcome], float]) -> tuple[float, float, int]:
    """A mean over instances, the mean standard error that the method itself states, and the number of instances."""
    widths = [o.high - o.low for o in outcomes.values() if o.low is not None and o.high is not None]
    if len(widths) < 2:
        return float("nan"), float("nan"), 0
    mean = np.mean([quantity(outcome) for outcome in outcomes.values()])
    return float(mean), float(np.mean(widths) / (2 * ndtri(0.975))), len(widths)


def covered(outcomes: Iterable[Outcome]) -> Float[Array, " m"]:
    """1 where a method's own interval holds the truth, 0 where it does not; instances without interval are left out."""
    return np.array([float(o.low <= o.truth <= o.high) for o in outcomes if o.low is not None and o.high is not None])


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
    """Means lie within two joint standard errors of reference figures: two minus the distance should be above zero.

    Args:
        references: The figures.
    """

    references: tuple[Reference, ...]

    def comparisons(self, table: Table) -> list[Comparison]:
        found: list[Comparison] = []
        for reference in self.references:
            scores = table.scores(reference.problem, reference.kind, reference.method, reference.n)
            ours = Comparison.of(reference.method, reference.n, np.array(list(scores.values())))
            distance = float(2 - abs(ours.mean - reference.mean) / np.hypot(ours.error, reference.error))
            words = f"{ours.mean:.3g} ± {ours.error:.2g} (there {reference.mean:.3g} ± {reference.error:.2g})"
            found.append(replace(ours, mean=distance, error=0.0, words=words))
        return found


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what it means in rows.

    Attributes:
        text: The claim, in our words.
        parts: What must all come out in its favour.
        remark: What was found in the paper-size run, in words; empty where there is nothing to add.
    """

    text: str
    parts: tuple[Part, ...]
    remark: str = ""

    def find(self, table: Table, rounds: Iterable[int]) -> Finding:
        """What the rows say, of these numbers of rounds: those that were to be run."""
        wanted = set(rounds)
        comparisons = (comparison for part in self.parts for comparison in part.comparisons(table))
        kept = tuple(comparison for comparison in comparisons if wanted.issuperset(comparison.rounds))
        return Finding(judge(kept), kept)
