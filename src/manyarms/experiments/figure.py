"""A figure: panels of methods on problems, claims about them, and user methods compared with the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from manyarms.experiments.cell import Table
from manyarms.experiments.claim import MIN_INSTANCES_TO_DECIDE, ROUNDS, BetterThanEach, Claim, ClaimResult, Faster
from manyarms.experiments.method_comparison import MethodComparison
from manyarms.experiments.methods import METHODS, Method
from manyarms.experiments.problem import Kind, Problem
from manyarms.experiments.run import Grid

Measure = Literal["score", "regret", "coverage", "seconds"]


@dataclass(frozen=True)
class Size:
    """The size at which a figure is run, "quick" or "paper"; a panel with numbers of rounds of its own keeps them.

    Attributes:
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
        """True if it is the size of the published run."""
        return self.name == "paper" and not self.exact

    @property
    def least_instances(self) -> int:
        """Comparisons with fewer instances are left open; a trial at another size may decide on two."""
        return MIN_INSTANCES_TO_DECIDE if self.is_paper else 2

    @property
    def flags(self) -> str:
        """The flags that select it on the command line."""
        return f"--{self.name}" + (f" --instances {self.instances}" if self.exact else "")


QUICK = Size("quick", (100, 1000, 10_000), 6, 3)
PAPER_SIZE = Size("paper", ROUNDS, 50, 50)


@dataclass(frozen=True)
class Panel:
    """One panel of a figure: methods, by name, on a problem.

    Attributes:
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

    def rounds_at(self, size: Size) -> tuple[int, ...]:
        """The numbers of rounds that are run at this size."""
        return size.rounds if self.rounds is None else self.rounds

    def grids(self, size: Size, extra: Sequence[Method]) -> list[Grid]:
        """The grids to run for it, where `extra` has user methods."""
        slow = {method.name for method in (*METHODS.values(), *extra) if method.slow} if self.kind == "opl" else set()
        factor, slow_factor = (1.0, 1.0) if size.exact else (self.factor, self.slow_factor)
        counts = {
            tuple(name for name in self.methods if name in slow): size.slow_instances * slow_factor,
            tuple(name for name in self.methods if name not in slow): size.instances * factor,
        }
        grids = (
            Grid(self.problem, self.kind, names, self.rounds_at(size), max(2, round(count)))
            for names, count in counts.items()
        )
        return [grid for grid in grids if grid.methods]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, or one beyond it.

    Attributes:
        name: Its name on the command line.
        where: The figure of the paper that it reproduces; empty for those beyond the paper.
        axis: The quantity on the horizontal axis.
        measure: The quantity drawn: scores, what a relative reward lacks to 1, coverage of intervals, or CPU time.
        note: The settings, and anything particular.
        data: The data folder that it needs, as "ml-1m"; None when it needs none.
        columns: The most panels side by side.
        share_axes: Which panels of one kind share a vertical axis: all, those of a row, or none with another.
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
    columns: int = 3
    share_axes: Literal["figure", "row", "panel"] = "figure"

    def with_methods(self, extra: Sequence[Method]) -> Figure:
        """The figure with user methods added to every panel."""
        panels = (
            replace(panel, methods=panel.methods + tuple(method.name for method in extra if method.offers(panel.kind)))
            for panel in self.panels
        )
        return replace(self, panels=tuple(panels))

    def test_claims(self, table: Table, size: Size) -> list[tuple[Claim, ClaimResult]]:
        """Test each claim on the rows of this size."""
        rounds: dict[str, set[int]] = {}
        for panel in self.panels:
            rounds.setdefault(panel.problem.label, set()).update(panel.rounds_at(size))
        return [(claim, claim.test(table, rounds, size.least_instances)) for claim in self.claims]

    def grids(self, size: Size, extra: Sequence[Method] = ()) -> list[Grid]:
        """The grids to run for it."""
        return [grid for panel in self.with_methods(extra).panels for grid in panel.grids(size, extra)]


@dataclass(frozen=True)
class HeadToHead:
    """A panel of a figure in which a user method is compared with each of the others.

    Attributes:
        unit: The quantity that is compared.
        comparisons: A paired comparison for each number of rounds, with the name of the other method; in favour when
            the user method is better. Each is decided on its own: one in twenty is decided by chance.
    """

    method: str
    panel: Panel
    unit: str
    comparisons: tuple[tuple[str, MethodComparison], ...]


def head_to_heads(figure: Figure, user_methods: Sequence[str], table: Table, size: Size) -> list[HeadToHead]:
    """Head-to-heads in every panel of a figure: each user method, by name, against the other methods."""
    timed = figure.measure == "seconds"
    pairs: list[HeadToHead] = []
    for panel, name in product(figure.panels, user_methods):
        unit = "CPU time" if timed else "relative reward" if panel.kind == "opl" else "squared error"
        rivals = [rival for rival in panel.methods if rival != name] if name in panel.methods else []
        label, kind = panel.problem.label, panel.kind
        comparisons: list[tuple[str, MethodComparison]] = []
        for rival, n in product(rivals, panel.rounds_at(size)):
            better = BetterThanEach(label, kind, name, (rival,), (n,))
            requirement = Faster(label, kind, name, rival, n, f"n = {n:,}") if timed else better
            comparisons += [(rival, made) for made in requirement.comparisons(table) if made.count >= 2]
        if comparisons:
            pairs.append(HeadToHead(name, panel, unit, tuple(comparisons)))
    return pairs
