"""The page of a benchmark run: a table of ratios at the middle size, and charts of how each stage scales."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manyarms._base.files import replace_files
from manyarms.bench.run_stages import BenchPlan
from manyarms.bench.speed_rows import SpeedRow, SpeedRows
from manyarms.bench.stages import LOOP, ONE_FIT, OURS, STAGES, TEXTBOOK

AXES = {"actions": ("n_actions", "actions, K"), "rounds": ("n_rounds", "rounds, n"), "dims": ("dim", "features, d")}
"""The curves by the name of their file: the column along the axis, and its title."""

PLAIN = (OURS, LOOP, TEXTBOOK)
"""The forms that have a column or a colour of their own."""

EXPLANATION = (
    "*K*, *n* and *d* are the numbers of actions, rounds and features. *CPU s* is the CPU time of manyarms in seconds. "
    "*loop*, *textbook*, *others* and *limit* are CPU times divided by it: above 1 means that manyarms is faster. "
    f"*{ONE_FIT}* is a fit with a fixed prior. *limit* is the fastest time that this machine allows: that of the same "
    "number of operations in a matrix product, of copying the same number of bytes, or of only reading the file. "
    "*peak MB* is the memory that Python and NumPy use in addition to the data. *difference* is the largest difference "
    "between the answers, divided by the largest number in them. Iterative searches differ within their tolerance. "
    "Random draws are not compared."
)


def write_page(rows: SpeedRows, plan: BenchPlan, folder: Path, command: str) -> list[Path]:
    """Write `index.md`, `rows.json` and the charts of a run into a folder, and return their paths.

    Args:
        rows: The measurements.
        plan: The sizes that they were made at.
        folder: Where to write; made if it is missing.
        command: The command that made the rows, for the page.
    """
    from manyarms.decision.write_report import write_chart  # noqa: PLC0415  slow to import

    folder.mkdir(parents=True, exist_ok=True)
    charts = {axis: chart for axis in AXES if (chart := scaling_chart(rows, plan, axis)) is not None}
    paths = [folder / "index.md", folder / "rows.json", *(folder / f"{axis}.svg" for axis in charts)]
    rows.save(paths[1])
    for path, chart in zip(paths[2:], charts.values(), strict=True):
        write_chart(chart, path)
    replace_files({paths[0]: page_text(rows, plan, list(charts), command).encode()})
    return paths


def page_text(rows: SpeedRows, plan: BenchPlan, charts: Sequence[str], command: str) -> str:
    """The page of a benchmark run as Markdown: its table, and links to its charts."""
    head, *lines = table_lines(rows, plan)
    table = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines)]
    versions = ", ".join(f"{name} {number}" for name, number in rows.made_with.items())
    speed = (
        f"The machine: {rows.limits['flops'] / 1e9:.1f} billion operations in a matrix product, "
        f"{rows.limits['copied'] / 1e9:.1f} GB copied, per CPU second."
    )
    pictures = [
        f"## By the number of {title}\n\n![CPU seconds of every stage by the number of {title}]({axis}.svg)\n"
        for axis in charts
        for title in [AXES[axis][1].split(",")[0]]
    ]
    return "\n".join([
        "# Speed of every stage\n",
        f"Made by `{command}`, with {versions}. {speed}\n",
        EXPLANATION + "\n",
        *table, "", *pictures,
    ])  # fmt: skip


def _middle_rows(rows: SpeedRows, plan: BenchPlan) -> dict[str, dict[str, SpeedRow]]:
    """The rows of each stage at the middle size, by form."""
    by_stage = dict[str, dict[str, SpeedRow]]()
    for stage in dict.fromkeys(row.stage for row in rows.rows):
        by_stage[stage] = rows.forms_of(stage, plan.middle.shared(STAGES[stage].share))
    return {stage: forms for stage, forms in by_stage.items() if OURS in forms}


def table_lines(rows: SpeedRows, plan: BenchPlan) -> list[list[str]]:
    """The table of ratios at the middle size as cells of text, its head first."""
    head = ["stage", "K", "n", "d", "CPU s", "loop", "textbook", "others", "limit", "peak MB", "difference"]
    lines = [head]
    for stage, forms in _middle_rows(rows, plan).items():
        ours = forms[OURS]

        def ratio(other: float | None, own: float = ours.cpu_s) -> str:
            return "" if other is None else f"{other / own:.2g}"

        others = [f"{name} {ratio(row.cpu_s)}" for name, row in forms.items() if name not in PLAIN]
        gaps = [row.difference for row in forms.values() if row.difference is not None]
        cpu = {name: row.cpu_s for name, row in forms.items()}
        lines.append([
            stage, *(f"{number:,}" for number in ours.size), f"{ours.cpu_s:.3g}", ratio(cpu.get(LOOP)),
            ratio(cpu.get(TEXTBOOK)), ", ".join(others), ratio(ours.limit_s),
            "" if ours.peak_mb is None else f"{ours.peak_mb:.3g}", f"{max(gaps):.0e}" if gaps else "",
        ])  # fmt: skip
    return lines


def scaling_chart(rows: SpeedRows, plan: BenchPlan, axis: str) -> Any:
    """CPU seconds along one axis, a panel for each stage; None where no stage was timed at two sizes.

    Args:
        rows: The measurements.
        plan: The sizes; two of the three numbers are those of its middle.
        axis: "actions", "rounds" or "dims".
    """
    import altair as alt  # noqa: PLC0415  slow to import

    from manyarms.decision.chart_parts import chart_of, theme  # noqa: PLC0415

    column, title = AXES[axis]
    points = [row for row in rows.rows if _on_curve(row, plan, column)]
    panels = list(dict.fromkeys(row.stage for row in points))
    if not any(len({getattr(row, column) for row in points if row.stage == stage}) > 1 for stage in panels):
        return None
    forms = [*PLAIN, *dict.fromkeys(row.form for row in points if row.form not in PLAIN)]
    values = [
        {"stage": row.stage, "form": row.form, "x": getattr(row, column), "cpu": max(row.cpu_s, 1e-5)} for row in points
    ]
    scale = alt.Scale(type="log", nice=False)
    x = alt.X("x:Q", scale=scale, title=title, axis=alt.Axis(format="~s", grid=False, tickCount=3))
    y = alt.Y("cpu:Q", scale=scale, title="CPU seconds", axis=alt.Axis(format="~e", tickCount=4))
    colour = alt.Color("form:N", sort=forms, scale=alt.Scale(domain=[form for form in forms if form]), title=None)
    base = chart_of(values).encode(x=x, y=y, color=colour)
    drawn: Any = alt.layer(base.mark_line(strokeWidth=2), base.mark_point(size=30, filled=True))
    described = f"CPU seconds of {', '.join(panels)} by the number of {title}, for {', '.join(forms)}."
    return (
        drawn.properties(width=165, height=120)
        .facet(alt.Facet("stage:N", sort=panels, title=None), columns=4)
        .resolve_scale(x="independent", y="independent")
        .properties(description=described, config=theme())
    )


def _on_curve(row: SpeedRow, plan: BenchPlan, column: str) -> bool:
    """True if a row lies on the curve along a column: its other two numbers are those of the middle."""
    middle = plan.middle.shared(STAGES[row.stage].share)._asdict()
    return all(getattr(row, name) == number for name, number in middle.items() if name != column)
