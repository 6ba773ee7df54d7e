"""Coverage of intervals at four levels, over the problems of `studies/interval_coverage.py`.

Priors of random size, structure and scale; worlds drawn from them. Intervals for the value on the given contexts are
exact and must cover their level, no less and no more. Those for the value in the population add a normal approximation
for the contexts, and must cover at least their level.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from trust.check import Check, Outcome, Row
from trust.oracles_and_studies import interval_coverage

SECTION = "Calibration"
LEVELS = (0.5, 0.8, 0.95, 0.99)
LEAST_P = 0.01
"""The least p-value, of all binomial tests of one kind together, that counts as agreement."""
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
    n_tests = len(rows[0]) * len(LEVELS)
    notes, on_contexts, in_population = list[str](), list[float](), list[float]()
    for name in rows[0]:
        counts = np.sum([row[name] for row in rows], axis=0)
        for level, (exact, wide) in zip(LEVELS, counts.tolist(), strict=True):
            on_contexts.append(stats.binomtest(exact, len(rows), level).pvalue)
            least = level - POPULATION_MARGIN
            in_population.append(stats.binomtest(wide, len(rows), least, alternative="less").pvalue)
        shares = counts.T / len(rows)
        notes.append(f"{name}: {_percentages(shares[0])} on the contexts, {_percentages(shares[1])} in the population.")
    least_p = [min(1.0, n_tests * min(p_values)) for p_values in (on_contexts, in_population)]
    measured = f"least p = {least_p[0]:.2g} on the contexts, {least_p[1]:.2g} in the population"
    return Outcome(f"{measured} (corrected for {n_tests} tests)", min(least_p) >= LEAST_P, tuple(notes))


def _percentages(shares: np.ndarray) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares) + " %"


CHECKS = (
    Check(
        "coverage-levels", SECTION, "Intervals at 50, 80, 95 and 99 % cover that often.",
        f"p at least {LEAST_P}: as often on the contexts; at most a point less often in the population", 2000,
        measure_coverage, summarise_coverage, batch=100, shortest=40,
    ),
)  # fmt: skip
