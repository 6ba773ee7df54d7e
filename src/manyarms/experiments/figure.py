"""What a figure is: panels of methods on problems, and the claims that go with them.

Claims, and what the rows say of them: "holds", "does not hold" or "undecided".

A claim is a list of comparisons (`experiments.parts`) that should all come out in its favour.

- It *holds* when every comparison is decided in its favour at 5 % (the claim is the intersection of its parts, so that
  each is tested at 5 %), ties aside.
- It *does not hold* when some comparison is decided against it, at 5 % shared among all of them (Bonferroni).
- It is *undecided* otherwise, and *not run* when rows are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from manyarms.experiments.claim_parts import Comparison, Part
from manyarms.experiments.methods import METHODS, Method
from manyarms.experiments.problem import Kind, Problem
from manyarms.experiments.result_table import Table
from manyarms.experiments.run import Grid

ROUNDS = (100, 500, 1000, 2000, 5000, 10_000)
"""n of the paper-size figures; the paper does not say which it used."""

Measure = Literal["score", "coverage", "seconds"]


@dataclass(frozen=True)
class Size:
    """How much of a figure is run.

    Attributes:
        name: "quick" or "paper".
        rounds: Which numbers of rounds; those of a panel that has its own are kept.
        instances: For methods that take milliseconds.
        slow_instances: For methods that learn by gradients.
        exact: Whether all panels take just so many instances, whatever their `many` says.
    """

    name: str
    rounds: tuple[int, ...]
    instances: int
    slow_instances: int
    exact: bool = False

    @property
    def is_paper(self) -> bool:
        """Whether it is the size of the published run."""
        return self.name == "paper" and not self.exact

    @property
    def flags(self) -> str:
        """What to pass on the command line for it."""
        return f"--{self.name}" + (f" --instances {self.instances}" if self.exact else "")


QUICK = Size("quick", (100, 1000, 10_000), 10, 3)
PAPER_SIZE = Size("paper", ROUNDS, 50, 10)


@dataclass(frozen=True)
class Panel:
    """One plot: methods on a problem.

    Attributes:
        title: Above it.
        problem: What is run.
        kind: The task.
        methods: Names of methods.
        rounds: Its own numbers of rounds; None for those of the size.
        many: How many times the instances of the size it takes for methods that take milliseconds: more where errors
            have heavy tails, fewer where a cell is large.
        many_slow: The same for methods that learn by gradients.
    """

    title: str
    problem: Problem
    kind: Kind
    methods: tuple[str, ...]
    rounds: tuple[int, ...] | None = None
    many: float = 1.0
    many_slow: float = 1.0

    def with_methods(self, extra: Iterable[Method]) -> Panel:
        """The same, with methods of one's own beside."""
        names = tuple(method.name for method in extra if method.offers(self.kind))
        return replace(self, methods=self.methods + names)

    def rounds_at(self, size: Size) -> tuple[int, ...]:
        """The numbers of rounds that are run at this size."""
        return size.rounds if self.rounds is None else self.rounds

    def grids(self, size: Size, extra: Sequence[Method] = ()) -> list[Grid]:
        """What has to be run for it."""
        slow = {method.name for method in (*METHODS.values(), *extra) if method.slow} if self.kind == "opl" else set()
        rounds = self.rounds_at(size)
        few = tuple(name for name in self.methods if name in slow)
        many = tuple(name for name in self.methods if name not in slow)
        fast, slowly = (1.0, 1.0) if size.exact else (self.many, self.many_slow)
        counts = {few: max(2, round(size.slow_instances * slowly)), many: max(2, round(size.instances * fast))}
        return [Grid(self.problem, self.kind, names, rounds, count) for names, count in counts.items() if names]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, or one beside it.

    Attributes:
        name: What the command line calls it.
        title: What it shows.
        where: Which figure of the paper this is; empty for those beyond it.
        panels: Its plots.
        claims: What the paper says of it.
        axis: What runs along the horizontal axis: "n", or "n_actions".
        measure: What is drawn: scores, the coverage of intervals, or CPU time.
        note: The settings, and what is particular.
        data: The folder of data that it needs, as "ml-1m"; None when it needs none.
    """

    name: str
    title: str
    where: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()
    axis: Literal["n", "n_actions"] = "n"
    measure: Measure = "score"
    note: str = ""
    data: str | None = None

    def with_methods(self, extra: Sequence[Method]) -> Figure:
        """The same, with methods of one's own in every panel."""
        return replace(self, panels=tuple(panel.with_methods(extra) for panel in self.panels))

    def findings(self, table: Table, size: Size) -> list[tuple[Claim, Finding]]:
        """What the rows say of each claim, of what is run at this size."""
        rounds: dict[str, set[int]] = {}
        for panel in self.panels:
            rounds.setdefault(panel.problem.label, set()).update(panel.rounds_at(size))
        return [(claim, claim.find(table, rounds)) for claim in self.claims]

    def grids(self, size: Size, extra: Sequence[Method] = ()) -> list[Grid]:
        """What has to be run for it."""
        return [grid for panel in self.with_methods(extra).panels for grid in panel.grids(size, extra)]


LEVEL = 0.05

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
Decision = Literal["for", "against", "tie", "open"]


@dataclass(frozen=True)
class Finding:
    """What the rows say of a claim.

    Attributes:
        comparisons: What it rests on.
    """

    comparisons: tuple[Comparison, ...]

    def decision(self, comparison: Comparison) -> Decision:
        """Of one of its comparisons."""
        if comparison.p_for < LEVEL:
            return "for"
        if comparison.tie:
            return "tie"
        return "against" if comparison.p_against < LEVEL / len(self.comparisons) else "open"

    @property
    def verdict(self) -> Verdict:
        """See the module."""
        if not self.comparisons or any(comparison.count < 2 for comparison in self.comparisons):
            return "not run"
        decisions = {self.decision(comparison) for comparison in self.comparisons}
        if "for" in decisions and decisions <= {"for", "tie"}:
            return "holds"
        return "does not hold" if "against" in decisions else "undecided"

    def __str__(self) -> str:
        run = [comparison for comparison in self.comparisons if comparison.count >= 2]
        if len(run) < len(self.comparisons) or not run:
            return f"{len(run)} of {len(self.comparisons)} comparisons could be made"
        decisions = [self.decision(comparison) for comparison in run]
        counts = [f"{decisions.count('for')} for it", f"{decisions.count('against')} against"]
        counts += [f"{decisions.count('tie')} tied"] * ("tie" in decisions) + [f"{decisions.count('open')} open"]
        return f"of {len(run)} comparisons {', '.join(counts)}"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what it means in rows.

    Attributes:
        text: The claim, in our words.
        parts: What must all come out in its favour.
        remark: What was found in the paper-size run, in words; empty where there is nothing to add.
    """

    text: str
    parts: Sequence[Part]
    remark: str = ""

    def find(self, table: Table, rounds: Mapping[str, set[int]]) -> Finding:
        """What the rows say.

        Args:
            table: Results.
            rounds: The numbers of rounds that were to be run, by the label of a problem: no others count.
        """
        kept = [
            comparison
            for part in self.parts
            for comparison in part.comparisons(table)
            if all(rounds.get(label, set()).issuperset(comparison.rounds) for label in part.labels)
        ]
        return Finding(tuple(kept))
