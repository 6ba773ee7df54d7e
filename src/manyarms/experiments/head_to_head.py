"""A method of one's own against each of the others in a panel, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from manyarms.experiments.claim_parts import Ahead, Cheaper, Comparison
from manyarms.experiments.figure import LEVEL, Decision, Figure, Panel, Size
from manyarms.experiments.result_table import Table


@dataclass(frozen=True)
class Match:
    """One method of one's own against another.

    Attributes:
        rival: The other.
        n: Rounds.
        comparison: Paired; in favour when one's own is better.
    """

    rival: str
    n: int
    comparison: Comparison

    @property
    def decision(self) -> Decision:
        """By one-sided t-tests at 5 %, each match on its own: of many such, one in twenty is decided by chance."""
        if self.comparison.p_for < LEVEL:
            return "for"
        if self.comparison.tie:
            return "tie"
        return "against" if self.comparison.p_against < LEVEL else "open"


@dataclass(frozen=True)
class Standing:
    """A method of one's own in a panel.

    Attributes:
        method: Its name.
        panel: Where.
        unit: What is compared.
        matches: Against each other method, at each number of rounds, where both were run.
    """

    method: str
    panel: Panel
    unit: str
    matches: tuple[Match, ...]


def standings(figure: Figure, own: Sequence[str], table: Table, size: Size) -> list[Standing]:
    """Of every method of one's own in every panel that has it.

    Args:
        figure: With these methods in its panels.
        own: Their names.
        table: Results.
        size: What was asked for.
    """
    found = (_standing(figure, panel, name, table, size) for panel in figure.panels for name in own)
    return [standing for standing in found if standing.matches]


def _standing(figure: Figure, panel: Panel, name: str, table: Table, size: Size) -> Standing:
    timed = figure.measure == "seconds"
    unit = "relative reward" if panel.kind == "opl" else "squared error"
    rivals = [rival for rival in panel.methods if rival != name] if name in panel.methods else []
    matches = [
        Match(rival, n, _compared(panel, name, rival, n, table, timed=timed))
        for rival in rivals
        for n in panel.rounds_at(size)
    ]
    kept = tuple(match for match in matches if match.comparison.count >= 2)
    return Standing(name, panel, "CPU time" if timed else unit, kept)


def _compared(panel: Panel, name: str, rival: str, n: int, table: Table, *, timed: bool) -> Comparison:
    label = panel.problem.label
    part = (
        Cheaper(label, panel.kind, name, rival, n, f"n = {n:,}")
        if timed
        else Ahead(label, panel.kind, name, (rival,), (n,))
    )
    (comparison,) = part.comparisons(table)
    return comparison
