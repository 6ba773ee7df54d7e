"""A check of the campaign: numbered cases, and what their measurements must show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
"""What one case measured, in the types of JSON."""


@dataclass(frozen=True)
class Outcome:
    """What the cases of a check showed.

    Attributes:
        measured: The figure that is compared with the threshold, in a few words.
        holds: Whether the threshold is kept.
        notes: Sentences for the page: exceptions, survivors, and where an approximation shows.
    """

    measured: str
    holds: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One line of the scorecard.

    Args:
        name: A short name with hyphens; the journal and `--only` use it.
        section: The heading on the page.
        claim: What is claimed, as one sentence.
        threshold: What the measured figure must keep, in a few words.
        cases: The number of cases in a full campaign.
        measure: Runs the case of a number and returns its row. The same number always gives the same case.
        summarise: Turns the rows of all cases, in their order, into the outcome.
        batch: The number of cases that one process runs before it reports; a batch should take a few seconds.
        alone: The check needs the machine for itself (it times something, or starts many processes).
        shortest: The least number of cases that `summarise` can say something about.
        folders: Folders whose files the cases depend on, beside those of the check; when one changes, all run again.
        names_lines: Rows name lines of files, so that a change of comments or layout counts as one of the code.
        is_current: Whether a finished row still holds, where that does not depend on whole folders.
    """

    name: str
    section: str
    claim: str
    threshold: str
    cases: int
    measure: Callable[[int], Row]
    summarise: Callable[[Sequence[Row]], Outcome]
    batch: int = 1
    alone: bool = False
    shortest: int = 1
    folders: tuple[str, ...] = ("src",)
    names_lines: bool = False
    is_current: Callable[[Row], bool] = lambda row: True

    def shortened(self, share: float) -> int:
        """The number of cases in a share of the campaign."""
        return min(self.cases, max(self.shortest, round(share * self.cases)))
