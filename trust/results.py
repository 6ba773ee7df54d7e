"""The results of the campaign in one file: what each check measured last, when, and at which commit.

The file belongs to the repository, so that a check that takes long need not run again for the others to be published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trust.campaign import ROOT, Journal
from trust.check import Outcome

RESULTS = ROOT / "trust" / "results.json"


@dataclass(frozen=True)
class Result:
    """What a check measured.

    Attributes:
        measured: The figure that is compared with the threshold, in a few words.
        holds: Whether the threshold is kept.
        notes: Sentences for the page.
        n_cases: The number of cases behind the figure.
        seconds: How long they took, added up over processes.
        date: The day on which the last of them finished.
        commit: The commit that was measured.
    """

    measured: str
    holds: bool
    notes: tuple[str, ...]
    n_cases: int
    seconds: float
    date: str
    commit: str

    @classmethod
    def of_cases(cls, outcome: Outcome, n_cases: int, journal: Journal, commit: str) -> Result:
        """The result of the cases in a journal."""
        seconds = round(journal.seconds, 1)
        # A comparison of NumPy numbers is not a bool of JSON.
        return cls(outcome.measured, bool(outcome.holds), outcome.notes, n_cases, seconds, journal.finished, commit)


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """The last result of each check, by its name."""
    entries: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {name: Result(**entry | {"notes": tuple(entry["notes"])}) for name, entry in entries.items()}


def replaced(old: Mapping[str, Result], new: Mapping[str, Result]) -> dict[str, Result]:
    """The old results with the new ones in their place.

    A run with fewer cases does not hide a longer one, unless it found a failure.
    """
    kept = {
        name: result
        for name, result in new.items()
        if name not in old or result.n_cases >= old[name].n_cases or not result.holds
    }
    return {**old, **kept}


def write_results(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Write the results, by name in order, so that a change shows as a change of few lines."""
    entries = {name: asdict(results[name]) for name in sorted(results)}
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", "utf-8")
