"""The table of a benchmark run: CPU times at the middle size, each as a ratio to this library's."""

from __future__ import annotations

from manyarms.bench.run_stages import BenchPlan
from manyarms.bench.speed_rows import SpeedRow, SpeedRows
from manyarms.bench.stages import LOOP, ONE_FIT, OURS, STAGES, TEXTBOOK

PLAIN = (OURS, LOOP, TEXTBOOK)
"""The forms that have a column or a colour of their own."""


def middle_rows(rows: SpeedRows, plan: BenchPlan) -> dict[str, dict[str, SpeedRow]]:
    """The rows of each stage at the middle size, by form."""
    by_stage = dict[str, dict[str, SpeedRow]]()
    for stage in dict.fromkeys(row.stage for row in rows.rows):
        by_stage[stage] = rows.forms_of(stage, plan.middle.shared(STAGES[stage].share))
    return {stage: forms for stage, forms in by_stage.items() if OURS in forms}


def table_lines(rows: SpeedRows, plan: BenchPlan) -> list[list[str]]:
    """The table of ratios at the middle size as cells of text, its head first."""
    head = ["stage", "K", "n", "d", "CPU s", "loop", "textbook", "others", "limit", "peak MB", "difference"]
    lines = [head]
    for stage, forms in middle_rows(rows, plan).items():
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


EXPLANATION = (
    "*K*, *n* and *d* are the numbers of actions, rounds and features. *CPU s* is the CPU time of manyarms in seconds. "
    "*loop*, *textbook*, *others* and *limit* are CPU times divided by it: above 1 means that manyarms is faster. "
    f"*{ONE_FIT}* is a fit with a fixed prior. *limit* is the fastest time that this machine allows: that of the same "
    "number of operations in a matrix product, of copying the same number of bytes, or of only reading the file. "
    "*peak MB* is the memory that Python and NumPy use in addition to the data. *difference* is the largest difference "
    "between the answers, divided by the largest number in them. Iterative searches differ within their tolerance. "
    "Random draws are not compared."
)
