"""The page of the campaign: every check with its threshold, the measured figure, the date and the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trust.check import Check
from trust.results import Result

INTRODUCTION = """# Trust

What is tested beyond the ordinary tests, and what came out. `make trust` runs every check below and rewrites this
page. It goes on where it was interrupted, and `python -m trust --only CHECK --page docs/trust.md` runs one check. A
check that takes long need not run again for the others to be published, so each row names the commit that it measured.
A short form of every check is part of the tests. The [security policy](project/security.md) says what is promised about
files from strangers. A threshold for how often intervals cover leaves room for three standard errors of the number of
cases.
"""


def page(checks: Sequence[Check], results: Mapping[str, Result]) -> str:
    """The page as Markdown: one table per section with the notes of its checks, and the checks without a result."""
    sections = dict[str, list[Check]]()
    for check in checks:
        if check.name in results:
            sections.setdefault(check.section, []).append(check)
    parts = [INTRODUCTION, _summary(checks, results)]
    for section, group in sections.items():
        parts += [f"## {section}\n", _table(group, results), *_notes(group, results)]
    waiting = [
        f"- `{check.name}`: {check.claim} ({check.cases:,} cases; {check.threshold})"
        for check in checks
        if check.name not in results
    ]
    if waiting:
        parts += ["## Not run yet\n", "These checks have no result on this page:\n", *waiting, ""]
    return "\n".join(parts)


def _summary(checks: Sequence[Check], results: Mapping[str, Result]) -> str:
    """The number of checks that have run, in full and in part, and every failure."""
    run = [check for check in checks if check.name in results]
    fewer = [check for check in run if results[check.name].n_cases < check.cases]
    failed = [f"`{check.name}`" for check in run if not results[check.name].holds]
    sentences = [f"{len(run)} of {len(checks)} checks have run."]
    if fewer:
        sentences.append(f"{len(fewer)} of them ran with fewer cases than a full campaign; the tables say how many.")
    sentences.append(f"**These fail: {', '.join(failed)}.**" if failed else "All of them hold.")
    return " ".join(sentences) + "\n"


def _table(checks: Sequence[Check], results: Mapping[str, Result]) -> str:
    rows = ["| check | claim | cases | threshold | measured | holds | date | commit |", "|---" * 8 + "|"]
    for check in checks:
        result = results[check.name]
        cells = (
            f"`{check.name}`",
            check.claim,
            f"{result.n_cases:,}" if result.n_cases >= check.cases else f"{result.n_cases:,} of {check.cases:,}",
            check.threshold,
            result.measured,
            "yes" if result.holds else "**no**",
            result.date,
            f"`{result.commit}`" if result.commit else "",
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _notes(checks: Sequence[Check], results: Mapping[str, Result]) -> Iterable[str]:
    for check in checks:
        notes = results[check.name].notes
        if notes:
            yield f"`{check.name}`:\n"
            yield "\n".join(f"- {note}" for note in notes) + "\n"
