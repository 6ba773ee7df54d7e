"""How the demo's findings look: on a terminal, and as JSON."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyarms.briefing.words import percent
from manyarms.cli.comparison import Candidate, Comparison
from manyarms.cli.script import commands
from manyarms.core.estimate import Estimate

MIN_WIDTH = 78

CAPTION = (
    "Never shown: the share of choices that fall on items with no row in the log; what is known of those comes from "
    "their categories. True values, on the same customers, are "
    "known because the shop is made up."
)


def print_comparison(comparison: Comparison, folder: Path) -> None:
    """What was made up, the policies side by side, the decision, and the lines to run on one's own data."""
    console = Console(highlight=False)
    # Below this the table would drop digits; a narrow terminal wraps whole lines instead.
    console.width = max(console.width, MIN_WIDTH)
    console.print(_opening(comparison, folder), soft_wrap=True)
    console.print()
    console.print(_table(comparison))
    console.print()
    console.print(CAPTION, style="dim")
    console.print()
    console.print(_decision(comparison))
    console.print()
    console.print(Text(f"The evidence on one page: {folder / 'report.html'}"), soft_wrap=True)
    console.print()
    console.rule("On your own data", characters="-", align="left")
    console.print()
    spec = folder / "shop.toml"
    console.print(Text(f"Put the names of your files and columns into {spec}, then run"), soft_wrap=True)
    for line in commands(folder):
        console.print(Text(f"  {line}", style="bold"), soft_wrap=True)
    console.print(Text("or, in Python, set the names at the top of this script and run it"), soft_wrap=True)
    script = shlex.quote(str(folder / "decide.py"))
    console.print(Text(f"  {shlex.quote(_this_python())} {script}", style="bold"), soft_wrap=True)


def figures(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """The same figures, in full precision, as plain values."""
    best = comparison.best
    return {
        "shop": {
            "rounds": comparison.n_rounds,
            "items": comparison.n_items,
            "categories": comparison.n_categories,
            "items_never_shown": comparison.n_never_shown,
        },
        "learned": dict(comparison.learned),
        "policies": [_row(comparison.now, is_now=True), *(_row(row, is_now=False) for row in comparison.candidates)],
        "decision": {
            "ship": best.name if comparison.ships else None,
            "sentence": _decision(comparison).plain.replace("\n", " "),
        },
        "report": str(folder / "report.html"),
        "commands": list(commands(folder)),
        "folder": str(folder),
    }


def _row(candidate: Candidate, *, is_now: bool) -> dict[str, Any]:
    gain = candidate.gain
    return {
        "name": candidate.name,
        "value": candidate.value.value,
        "std": candidate.value.std,
        "interval_95": list(candidate.value.interval()),
        "true_value": candidate.true_value,
        "difference": None if is_now else gain.value,
        "difference_interval_95": None if is_now else list(gain.interval()),
        "probability_beats_now": None if is_now else gain.probability_positive,
        "share_never_shown": candidate.never_shown,
    }


def _opening(comparison: Comparison, folder: Path) -> Text:
    share = _share(comparison.n_never_shown / comparison.n_items)
    return Text(
        f"A made-up shop: {comparison.n_rounds:,} rounds, {comparison.n_items:,} items in "
        f"{comparison.n_categories:,} categories.\n"
        f"{comparison.n_never_shown:,} items ({share}) were never shown.\n"
        f"Saved as Parquet in {folder}, read back and fitted.\n"
        f"Learned from the log: a reward spreads by {comparison.learned['noise std']:.2g}, the weights of an item by "
        f"{comparison.learned['actions std']:.2g}\naround those of its category, and these by "
        f"{comparison.learned['category std']:.2g}."
    )


def _table(comparison: Comparison) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("margin, euros\nper round", no_wrap=True)
    for name in ("\nvalue", "\n95 % interval", "\nvs now", "P(beats\nnow)", "true\nvalue", "never\nshown"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in (comparison.now, *comparison.candidates):
        is_now = row is comparison.now
        table.add_row(
            row.name,
            f"{row.value.value:.3f}",
            _interval(row.value),
            "-" if is_now else f"{row.gain.value:+.3f}",
            "-" if is_now else percent(row.gain.probability_positive),
            f"{row.true_value:.3f}",
            _share(row.never_shown),
            style="bold green" if row is comparison.best and comparison.ships else "",
        )
    return table


def _decision(comparison: Comparison) -> Text:
    """What the report says too."""
    answer = comparison.briefing.answer
    if answer.verdict != "ship":
        return Text(f"{answer.sentence}\n{answer.reason}", style="bold")
    gain = comparison.best.gain
    low, high = gain.interval()
    size = f"{gain.value:+.3f} euros per round, 95 % interval {low:+.3f} to {high:+.3f}"
    sure = percent(gain.probability_positive)
    return Text(f"Ship {comparison.best.name}: it beats what runs now with probability {sure}.\n{size}.", style="bold")


def _interval(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return f"{low:.3f} to {high:.3f}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _this_python() -> str:
    """The interpreter that has the library, as short as it can be said from here."""
    here = Path.cwd()
    running = Path(sys.executable)
    return str(running.relative_to(here)) if running.is_relative_to(here) else str(running)
