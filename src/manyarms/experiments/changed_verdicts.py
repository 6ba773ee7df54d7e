"""Verdicts of the first edition of the page that changed later, each with the reason, and their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from manyarms.experiments.claim import Claim, ClaimResult
from manyarms.experiments.reproduction_page import MARKS, Tested, cell_text, verdict_marks

_TUNED = "the penalty of DM (Freq) is tuned"
_SEE_WEIGHTS = "MIPS and PC see θ, and their sizes are tuned"


@dataclass(frozen=True)
class ChangedVerdict:
    """A claim of a figure with its verdict in the first edition, at every n.

    Attributes:
        claim: The text of the claim; empty for all claims of the figure.
        before: The verdict, or several with their numbers.
    """

    figure: str
    claim: str
    before: str
    reason: str

    def is_about(self, figure: str, claim: Claim) -> bool:
        """True if this is a verdict on that claim of that figure."""
        return figure == self.figure and self.claim in ("", claim.text)


CHANGED_VERDICTS = (
    ChangedVerdict(
        "synthetic-opl",
        "MIPS and PC do not lead the IPS family in learning: one of IPS, snIPS and DR is better than both.",
        "holds",
        _SEE_WEIGHTS,
    ),
    ChangedVerdict(
        "grid-opl",
        "snIPS, DR and MIPS do not beat the direct methods in learning: DM (Bayes) and DM (Freq) are better, for every "
        "K and d'.",
        "does not hold",
        f"{_TUNED}; the claim, once about K = 1000 and d' = 10, is about every K and d'",
    ),
    ChangedVerdict(
        "grid-opl",
        "The gap to every baseline widens from K = 100 to K = 1000, at every n and d'.",
        "does not hold",
        _TUNED,
    ),
    ChangedVerdict(
        "grid-ope",
        "sDM has a smaller squared error than every baseline for every K and d'.",
        "does not hold",
        "methods are tuned, and one comparison in fifty may be against a claim",
    ),
    ChangedVerdict(
        "grid-ope",
        "At K = 100 MIPS and PC do not outperform the standard IPS methods: one of IPS, snIPS and DR is better, for "
        "every d'.",
        "holds",
        f"{_SEE_WEIGHTS}; the claim, once about d' = 10, is about every d'",
    ),
    ChangedVerdict(
        "misspecified-likelihood",
        "Although its likelihood is wrong, sDM learns a better policy than every baseline, by any margin.",
        "holds",
        _TUNED,
    ),
    ChangedVerdict(
        "misspecified-likelihood",
        "In evaluation it is no longer the best: one of snIPS, MIPS and PC has a smaller squared error.",
        "does not hold",
        _SEE_WEIGHTS,
    ),
    ChangedVerdict(
        "movielens-epsilon-greedy",
        "Of the conclusions of Section 6 we test one: sDM learns a better policy than every baseline.",
        "holds",
        _TUNED,
    ),
    ChangedVerdict("kuairec", "", "1 ✓ holds, 3 ✗ does not hold, 2 ○ undecided", "partial data; there are more claims"),
    ChangedVerdict(
        "jester",
        "sDM learns a better policy than every baseline.",
        "undecided",
        "one comparison in twenty may be open",
    ),
    ChangedVerdict(
        "open-bandit",
        "The log of random shows that bts earns more clicks.",
        "undecided",
        "the tuned penalty of DM (Freq) pulls click rates towards zero",
    ),
    ChangedVerdict(
        "open-bandit",
        "Estimates are within two joint standard errors of what bts really earned.",
        "holds",
        "the tuned penalty of DM (Freq) pulls click rates towards zero",
    ),
)


def changed_table(tested: Tested) -> list[str]:
    """The table of changed verdicts, with today's filled in from the results."""
    lines = ["Verdicts that differ from the first edition of this page, with the reason:", ""]
    lines += ["| figure | claim | before | now, at every n | now, averaged | reason |", "|---|---|---|---|---|---|"]
    for changed in CHANGED_VERDICTS:
        results = [result for figure, claim, result in tested if changed.is_about(figure.name, claim)]
        if [result.verdict for result in results] not in ([], [changed.before]):
            lines.append(_changed_line(changed, results))
    return [*lines, ""]


def _changed_line(changed: ChangedVerdict, results: Sequence[ClaimResult]) -> str:
    now, averaged = (_counted(marks) for marks in zip(*map(verdict_marks, results), strict=True))
    before = next((mark for verdict, mark in MARKS.items() if verdict == changed.before), changed.before)
    claim = cell_text(changed.claim or "all claims")
    return f"| [{changed.figure}](#{changed.figure}) | {claim} | {before} | {now} | {averaged} | {changed.reason} |"


def _counted(marks: Iterable[str]) -> str:
    """One mark as it is; several with their numbers."""
    counts = Counter(marks)
    return ", ".join(mark if counts.total() == 1 else f"{count} {mark}" for mark, count in counts.items())
