"""Claims, and what the rows say of them: "holds", "does not hold" or "undecided".

A claim is a list of comparisons (`experiments.parts`) that should all come out in its favour.

- It *holds* when every comparison is decided in its favour at 5 % (the claim is the intersection of its parts, so that
  each is tested at 5 %), ties aside.
- It *does not hold* when some comparison is decided against it, at 5 % shared among all of them (Bonferroni).
- It is *undecided* otherwise, and *not run* when rows are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from manyarms.experiments.parts import Comparison, Part
from manyarms.experiments.table import Table

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
