"""A figure: panels of methods on problems, claims about them, and user methods compared with the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from manyarms.experiments.cell import Table
from manyarms.experiments.claim import Claim, ClaimResult, MethodComparison
from manyarms.experiments.claim_requirements import ROUNDS, BetterThanEach, Faster
from manyarms.experiments.methods import METHODS, Method
from manyarms.experiments.problem import Kind, Problem
from manyarms.experiments.run import Grid

Measure = Literal["score", "coverage", "seconds"]


@dataclass(frozen=True)
class Size:
    """The size of a run.

    Attributes:
        name: "quick" or "paper".
        rounds: Numbers of rounds; a panel with numbers of its own keeps them.
        instances: Instances for methods that take milliseconds.
        slow_instances: Instances for methods that learn by gradients.
        exact: Whether all panels take exactly these instances, whatever their factors say.
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
        """The flags that select it on the command line."""
        return f"--{self.name}" + (f" --instances {self.instances}" if self.exact else "")


QUICK = Size("quick", (100, 1000, 10_000), 10, 3)
PAPER_SIZE = Size("paper", ROUNDS, 50, 10)


@dataclass(frozen=True)
class Panel:
    """One plot: methods on a problem.

    Attributes:
        title: The title above it.
        problem: The problem that is run.
        kind: "ope" or "opl".
        methods: Names of methods.
        rounds: Its own numbers of rounds; None for those of the size.
        factor: Multiplies the instances of the size, for methods that take milliseconds: above 1 where errors have
            heavy tails, below 1 where a cell is large.
        slow_factor: Multiplies the instances of methods that learn by gradients.
    """

    title: str
    problem: Problem
    kind: Kind
    methods: tuple[str, ...]
    rounds: tuple[int, ...] | None = None
    factor: float = 1.0
    slow_factor: float = 1.0

    def with_methods(self, extra: Iterable[Method]) -> Panel:
        """The panel with user methods added."""
        names = tuple(method.name for method in extra if method.offers(self.kind))
        return replace(self, methods=self.methods + names)

    def rounds_at(self, size: Size) -> tuple[int, ...]:
        """The numbers of rounds that are run at this size."""
        return size.rounds if self.rounds is None else self.rounds

    def grids(self, size: Size, extra: Sequence[Method] = ()) -> list[Grid]:
        """The grids to run for it."""
        slow = {method.name for method in (*METHODS.values(), *extra) if method.slow} if self.kind == "opl" else set()
        slow_names = tuple(name for name in self.methods if name in slow)
        fast_names = tuple(name for name in self.methods if name not in slow)
        factor, slow_factor = (1.0, 1.0) if size.exact else (self.factor, self.slow_factor)
        counts = {slow_names: size.slow_instances * slow_factor, fast_names: size.instances * factor}
        rounds = self.rounds_at(size)
        return [
            Grid(self.problem, self.kind, names, rounds, max(2, round(count)))
            for names, count in counts.items()
            if names
        ]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, or one beyond it.

    Attributes:
        name: Its name on the command line.
        title: What it shows.
        where: The figure of the paper that it reproduces; empty for those beyond the paper.
        panels: Its plots.
        claims: The claims about it.
        axis: The quantity on the horizontal axis: "n" or "n_actions".
        measure: The quantity drawn: scores, coverage of intervals, or CPU time.
        note: The settings, and anything particular.
        data: The data folder that it needs, as "ml-1m"; None when it needs none.
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
        """The figure with user methods added to every panel."""
        return replace(self, panels=tuple(panel.with_methods(extra) for panel in self.panels))

    def test_claims(self, table: Table, size: Size) -> list[tuple[Claim, ClaimResult]]:
        """Test each claim on the rows of this size."""
        rounds: dict[str, set[int]] = {}
        for panel in self.panels:
            rounds.setdefault(panel.problem.label, set()).update(panel.rounds_at(size))
        return [(claim, claim.test(table, rounds)) for claim in self.claims]

    def grids(self, size: Size, extra: Sequence[Method] = ()) -> list[Grid]:
        """The grids to run for it."""
        return [grid for panel in self.with_methods(extra).panels for grid in panel.grids(size, extra)]


@dataclass(frozen=True)
class HeadToHead:
    """A user method compared with each other method of a panel.

    Attributes:
        method: The name of the user method.
        panel: The panel.
        unit: The quantity that is compared.
        comparisons: A paired comparison for each number of rounds, by the name of the other method; in favour when the
            user method is better. Each is decided on its own: one in twenty is decided by chance.
    """

    method: str
    panel: Panel
    unit: str
    comparisons: tuple[tuple[str, MethodComparison], ...]


def head_to_heads(figure: Figure, user_methods: Sequence[str], table: Table, size: Size) -> list[HeadToHead]:
    """Compare every user method with the others, in every panel that has it.

    Args:
        figure: The figure, with the user methods in its panels.
        user_methods: Their names.
        table: Results.
        size: The size that was run.
    """
    pairs = (_head_to_head(figure, panel, name, table, size) for panel in figure.panels for name in user_methods)
    return [pair for pair in pairs if pair.comparisons]


def _head_to_head(figure: Figure, panel: Panel, name: str, table: Table, size: Size) -> HeadToHead:
    timed = figure.measure == "seconds"
    unit = "CPU time" if timed else "relative reward" if panel.kind == "opl" else "squared error"
    rivals = [rival for rival in panel.methods if rival != name] if name in panel.methods else []
    comparisons = (
        (rival, _compare(panel, name, rival, n, table, timed=timed)) for rival in rivals for n in panel.rounds_at(size)
    )
    return HeadToHead(name, panel, unit, tuple(pair for pair in comparisons if pair[1].count >= 2))


def _compare(panel: Panel, name: str, rival: str, n: int, table: Table, *, timed: bool) -> MethodComparison:
    label, kind = panel.problem.label, panel.kind
    faster, better = (
        Faster(label, kind, name, rival, n, f"n = {n:,}"),
        BetterThanEach(label, kind, name, (rival,), (n,)),
    )
    (comparison,) = (faster if timed else better).comparisons(table)
    return comparison
