"""The page of the campaign: every check with its threshold, the measured figure and the date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trust.check import Check, Outcome

INTRODUCTION = """# Trust

What is tested beyond the ordinary tests, and what came out. `make trust` runs every check below and rewrites this
page. It goes on where it was interrupted; `python -m trust --finished --page docs/trust.md` writes the page of what has
finished so far. A short form of every check is part of the tests. The [security policy](project/security.md) says what
is promised about files from strangers. A threshold for how often intervals cover leaves room for three standard errors
of the number of cases.
"""


@dataclass(frozen=True)
class Line:
    """A check that has run: its outcome, how many cases it took, how long, and when."""

    check: Check
    outcome: Outcome
    n_cases: int
    seconds: float
    date: str


def page(lines: Sequence[Line], not_run: Sequence[Check] = (), commit: str = "") -> str:
    """The page as Markdown: what was run, one table per section with the notes of its checks, and what was not run."""
    sections = dict[str, list[Line]]()
    for line in lines:
        sections.setdefault(line.check.section, []).append(line)
    parts = [INTRODUCTION, _what_was_run(lines, not_run, commit)]
    for section, group in sections.items():
        parts += [f"## {section}\n", _table(group), *_notes(group)]
    waiting = [f"- `{check.name}`: {check.claim} ({check.cases:,} cases; {check.threshold})" for check in not_run]
    if waiting:
        parts += ["## Not run yet\n", "These checks have no result on this page:\n", *waiting, ""]
    return "\n".join(parts)


def _what_was_run(lines: Sequence[Line], not_run: Sequence[Check], commit: str) -> str:
    """What the figures rest on, and every failure."""
    fewer = [line for line in lines if line.n_cases < line.check.cases]
    sentences = [f"The figures are those of commit `{commit}`." if commit else ""]
    sentences.append(f"{len(lines)} of {len(lines) + len(not_run)} checks have run.")
    if fewer:
        sentences.append(f"{len(fewer)} of them ran with fewer cases than a full campaign; the tables say how many.")
    failed = [f"`{line.check.name}`" for line in lines if not line.outcome.holds]
    sentences.append(f"**These fail: {', '.join(failed)}.**" if failed else "All of them hold.")
    return " ".join(filter(None, sentences)) + "\n"


def _table(lines: list[Line]) -> str:
    rows = ["| check | claim | cases | threshold | measured | holds | date |", "|---|---|---|---|---|---|---|"]
    for line in lines:
        check, holds = line.check, "yes" if line.outcome.holds else "**no**"
        cells = (
            f"`{check.name}`",
            check.claim,
            f"{line.n_cases:,}" if line.n_cases == check.cases else f"{line.n_cases:,} of {check.cases:,}",
            check.threshold,
            line.outcome.measured,
            holds,
            line.date,
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _notes(lines: list[Line]) -> Iterable[str]:
    for line in lines:
        if line.outcome.notes:
            yield f"`{line.check.name}`:\n"
            yield "\n".join(f"- {note}" for note in line.outcome.notes) + "\n"
