"""The tables and the figure of studies/decisions.py, and the page docs/decisions.md that shows them."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from manyarms._base.files import replace_files
from manyarms.decision.recommendation import SURE as SHIP
from manyarms.decision.recommendation import SURE_WHERE_CHECKED

SURE = (0.975, 0.95, 0.9)
"""Values of `sure`, the probability that a ship needs, which are compared."""
COMMAND = "    python studies/decisions.py"

Row = dict[str, Any]


def summarise(rows: Iterable[Row], by: str = "rounds") -> list[Row]:
    """One row per part and method. The first part is "all"; the others are the values of the column `by`.

    A candidate without an answer is neither covered nor shipped. Errors are over the candidates that every method
    answered for, so that none is better off for its silence; widths are medians over the method's own answers. Both are
    shares of the candidate's true value, so that sets with other units of reward can be pooled.
    """
    parts = {"all": defaultdict[str, list[Row]](list)}
    silent = set[tuple[Any, ...]]()
    for row in rows:
        for part in ("all", row[by]):
            parts.setdefault(part, defaultdict(list))[row["method"]].append(row)
        if np.isnan(row["gain"]):
            silent.add(_candidate(row))
    return [
        {"part": part, "method": method, **_scores(group, silent)}
        for part, by_method in parts.items()
        for method, group in by_method.items()
    ]


def needed(row: Row) -> float:
    """The probability of a gain with which a method ships a candidate: that of `ma.decide`."""
    return SURE_WHERE_CHECKED if row["method"] == "Checked" and row["propensities"] == "known" else SHIP


def _candidate(row: Row) -> tuple[Any, ...]:
    """The log and the candidate of a row."""
    return tuple(row[name] for name in ("set", "likelihood", "propensities", "logging", "rounds", "log", "candidate"))


def _scores(rows: list[Row], silent: set[tuple[Any, ...]]) -> Row:
    names = ("true_gain", "true_value", "low", "high", "probability", "value")
    gain, truth, low, high, probability, value = (np.array([row[name] for row in rows]) for name in names)
    answered = np.array([_candidate(row) not in silent for row in rows])
    shipped, better = probability >= np.array([needed(row) for row in rows]), gain > 0
    errors = (np.abs(value - truth) / np.abs(truth))[answered]
    return {
        "candidates": len(rows),
        "no_answer": int(np.isnan(low).sum()),
        "coverage": float(((low <= gain) & (gain <= high)).mean()),
        "width": float(np.nanmedian((high - low) / np.abs(truth))),
        "ships": int(shipped.sum()),
        "false_ships": int((shipped & ~better).sum()),
        "power": float(shipped[better].mean()) if better.any() else np.nan,
        "error": float(errors.mean()),
        "median_error": float(np.median(errors)),
    }


def table(summary: Iterable[Row], by: str) -> Iterator[str]:
    """The summary as lines of a Markdown table."""
    yield _line(
        by, "method", "coverage", "median width", "ships", "false ships", "power", "mean error", "median error",
        "no answer",
    )  # fmt: skip
    yield "|---" * 10 + "|"
    for row in summary:
        shares = [f"{row[name]:.1%}" for name in ("power", "error", "median_error")]
        yield _line(
            row["part"], row["method"], f"{row['coverage']:.1%}", f"{row['width']:.3g}", row["ships"],
            row["false_ships"], *shares, row["no_answer"],
        )  # fmt: skip


def _line(*cells: Any) -> str:
    texts = (f"{cell:,}" if isinstance(cell, int) else str(cell).replace("%", " %") for cell in cells)
    return f"| {' | '.join(texts)} |"


def targets(summary: Iterable[Row], by: str) -> Iterator[str]:
    """What `Checked` aims at, and whether it holds, as lines of a Markdown table.

    The best error is that of any other method, and the best width that of any other method that covers at least 90 %.
    """
    parts = defaultdict[Any, dict[str, Row]](dict)
    for row in summary:
        parts[row["part"]][row["method"]] = row
    yield _line(
        by, "coverage", "false ships of ships", "power / posterior's", "error / best", "width / best that covers"
    )
    yield "|---" * 6 + "|"
    for part, by_method in parts.items():
        checked, posterior = by_method.pop("Checked"), by_method["posterior"]
        widths = [row["width"] for row in by_method.values() if row["coverage"] >= 0.9]
        false_share = checked["false_ships"] / max(checked["ships"], 1)
        power, error = checked["power"] / posterior["power"], min(row["error"] for row in by_method.values())
        width = checked["width"] / min(widths, default=np.nan)
        yield _line(
            part,
            f"{checked['coverage']:.1%}{_holds(checked['coverage'] >= 0.9)}",
            f"{false_share:.1%}{_holds(false_share <= 0.01)}",
            f"{power:.3f}{_holds(power >= 0.95)}",
            f"{checked['error'] / error:.2f}{_holds(checked['error'] <= 1.05 * error)}",
            f"{width:.2f}{_holds(width <= 1.5)}" if widths else "no other covers",
        )


def _holds(claim: bool) -> str:
    return ", holds" if claim else ", **does not hold**"


def hindsight(rows: Iterable[Row], by: str) -> Iterator[str]:
    """The power that a method could reach with at most 1 % false ships, as lines of a Markdown table.

    A method ships where its probability of a gain is above a threshold. Here the threshold is the best one in
    hindsight, for each method and part. Power is a share of that of the bare posterior at the usual threshold.
    """
    parts = {"all": defaultdict[str, list[Row]](list)}
    for row in rows:
        for part in ("all", row[by]):
            parts.setdefault(part, defaultdict(list))[row["method"]].append(row)
    names = list(parts["all"])
    yield _line(by, *names)
    yield "|---" * (1 + len(names)) + "|"
    for part, by_method in parts.items():
        shipped = [row for row in by_method["posterior"] if row["probability"] >= SHIP and row["true_gain"] > 0]
        yield _line(part, *(f"{_most_true_ships(by_method[name]) / len(shipped):.3f}" for name in names))


def _most_true_ships(rows: list[Row]) -> int:
    """The most ships of better candidates, over all thresholds with at most 1 % false ships."""
    probability = np.nan_to_num([row["probability"] for row in rows])
    better = np.array([row["true_gain"] > 0 for row in rows])
    order = np.argsort(-probability, kind="stable")
    right, wrong = np.cumsum(better[order]), np.cumsum(~better[order])
    # Candidates of the same probability ship together.
    ends = np.append(np.diff(probability[order]) != 0, True)
    allowed = ends & (wrong <= 0.01 * (right + wrong))
    return int(right[allowed].max(initial=0))


def thresholds(rows: Iterable[Row], by: str) -> Iterator[str]:
    """The ships of `Checked` for several values of `sure`, as lines of a Markdown table.

    Power is a share of that of the bare posterior at the usual threshold.
    """
    parts = {"all": defaultdict[str, list[Row]](list)}
    for row in rows:
        for part in ("all", row[by]):
            parts.setdefault(part, defaultdict(list))[row["method"]].append(row)
    yield _line(by, *(f"{name} at {sure:g}" for sure in SURE for name in ("ships", "false", "power / posterior's")))
    yield "|---" * (1 + 3 * len(SURE)) + "|"
    for part, by_method in parts.items():
        usual = sum(row["probability"] >= SHIP and row["true_gain"] > 0 for row in by_method["posterior"])
        cells = list[Any]()
        for sure in SURE:
            better = [row["true_gain"] > 0 for row in by_method["Checked"] if row["probability"] >= sure]
            cells += [len(better), len(better) - sum(better), f"{sum(better) / usual:.3f}"]
        yield _line(part, *cells)


def table_of_clicks(summary: Iterable[Row]) -> Iterator[str]:
    """The summary of the Open Bandit Dataset as lines of a Markdown table."""
    yield _line(
        "rounds", "evaluated policy", "method", "logs", "agrees with its own log", "median width",
        "median width of its own log", "median error", "ships",
    )  # fmt: skip
    yield "|---" * 9 + "|"
    for row in summary:
        yield _line(
            row["rounds"], row["candidate"], row["method"], row["logs"], f"{row['agreement']:.1%}",
            f"{row['width']:.3g}", f"{row['own_width']:.3g}", f"{row['error']:.1%}", row["ships"],
        )  # fmt: skip


def refresh(page: Path, output_of: Callable[[Sequence[str]], Iterable[str]]) -> None:
    """Run every command of the study that a page shows, and put its tables in place of those below the command."""
    lines, new = page.read_text(encoding="utf-8").splitlines(), list[str]()
    while lines:
        line = lines.pop(0)
        new.append(line)
        if line.startswith(COMMAND) and "--refresh" not in line:
            while lines and (not lines[0] or lines[0].startswith("|")):
                lines.pop(0)
            new += ["", *output_of(shlex.split(line.removeprefix(COMMAND))), ""]
    replace_files({page: ("\n".join(new).rstrip() + "\n").encode()})


def draw(summary: Iterable[Row], path: Path) -> None:
    """Draw coverage, power and false ships by the number of rounds as SVG, with a line per method."""
    import altair as alt  # noqa: PLC0415  slow to import
    import vl_convert  # noqa: PLC0415

    from manyarms.decision.plots import theme  # noqa: PLC0415

    rows = [
        {**row, "false_share": row["false_ships"] / max(row["ships"], 1)} for row in summary if row["part"] != "all"
    ]
    methods = alt.Scale(domain=list(dict.fromkeys(row["method"] for row in rows)))
    axis = alt.Axis(labelExpr="format(datum.value, ',')", labelAngle=0)
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("part:O", sort=None, title="rounds in the log", axis=axis), color=alt.Color("method:N", scale=methods)
    )
    # `Checked` stands out by a thicker line. Each method has a mark of its own, for readers who see few colours.
    width = alt.condition("datum.method == 'Checked'", alt.value(4), alt.value(1.5))
    marks = base.mark_point(size=60, filled=True).encode(shape=alt.Shape("method:N", scale=methods))
    level = alt.Chart(alt.Data(values=[{"level": 0.95}])).mark_rule(style="reference").encode(y="level:Q")
    titles = {
        "coverage": "intervals with the true gain",
        "power": "better policies that ship",
        "false_share": "ships that are not better",
    }
    charts = list[Any]()
    for name, title in titles.items():
        scale = alt.Scale() if name == "false_share" else alt.Scale(domain=[0, 1])
        y = alt.Y(f"{name}:Q", title=None, scale=scale, axis=alt.Axis(format="%", tickCount=5))
        layers = [base.mark_line().encode(y=y, strokeWidth=width), marks.encode(y=y)]
        charts.append(
            alt.layer(*[level] * (name == "coverage"), *layers).properties(width=210, height=250, title=title)
        )
    spec = alt.hconcat(*charts, spacing=24).configure(**theme()).to_dict()
    shares = [", ".join(f"{row[name]:.0%}" for name in titles) for row in rows]
    words = [f"{row['method']} at {row['part']:,} rounds: {share}" for row, share in zip(rows, shares, strict=True)]
    text = f"By method and rounds: {', '.join(titles.values())}. {'; '.join(words)}."
    svg = vl_convert.vegalite_to_svg(spec).replace("<svg ", f'<svg role="img" aria-label={quoteattr(text)} ', 1)
    replace_files({path: svg.encode()})
