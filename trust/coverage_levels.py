"""Coverage of intervals at four levels, over the problems of `studies/interval_coverage.py`.

Priors of random size, structure and scale; worlds drawn from them. Intervals for the value on the given contexts are
exact and must cover their level, no less and no more. Those for the value in the population add a normal approximation
for the contexts, and must cover at least their level.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trust.check import Check, Outcome, Row
from trust.oracles_and_studies import interval_coverage

SECTION = "Calibration"
LEVELS = (0.5, 0.8, 0.95, 0.99)
MOST_ERRORS = 3.5
"""Standard errors that a coverage may be off: exceeded by chance in one of 90 campaigns, with 24 coverages."""
POPULATION_MARGIN = 0.01
"""How far the coverage in the population may fall short: a point, as in the study."""


def measure_coverage(case: int) -> Row:
    """For each quantity: at each level, whether the intervals for the contexts and for the population cover."""
    answers = interval_coverage.draw_estimates(np.random.default_rng([1620, case]))
    return {
        name: [[bool(covers) for covers in interval_coverage.covers(*answer, level)] for level in LEVELS]
        for name, answer in answers.items()
    }


def summarise_coverage(rows: Sequence[Row]) -> Outcome:
    levels = np.array(LEVELS)
    errors = np.sqrt(levels * (1 - levels) / len(rows))
    notes, worst, shortfall = list[str](), 0.0, -1.0
    for name in rows[0]:
        on_contexts, in_population = np.mean([row[name] for row in rows], axis=0).T
        worst = max(worst, float(np.max(np.abs(on_contexts - levels) / errors)))
        shortfall = max(shortfall, float(np.max(levels - POPULATION_MARGIN - in_population - 3 * errors)))
        notes.append(
            f"{name}: {_percentages(on_contexts)} on the contexts, {_percentages(in_population)} in the population."
        )
    holds = worst <= MOST_ERRORS and shortfall <= 0.0
    if shortfall > 0.0:
        notes.append(f"In the population, a coverage is {100 * shortfall:.1f} points below what is allowed.")
    return Outcome(f"at most {worst:.1f} standard errors off on the contexts", holds, tuple(notes))


def _percentages(shares: np.ndarray) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares) + " %"


CHECKS = (
    Check(
        "coverage-levels", SECTION, "Intervals at 50, 80, 95 and 99 % cover that often.",
        f"within {MOST_ERRORS} standard errors on the contexts; in the population at most a point too few", 2000,
        measure_coverage, summarise_coverage, batch=100, shortest=40,
    ),
)  # fmt: skip
