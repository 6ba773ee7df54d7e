"""Plots of results, for notebooks and for the report. Each function turns a result into an Altair chart.

    ma.plots.values(ma.evaluate(policies, logs, posterior))

Nothing is computed here: a chart shows what `ma.evaluate` and `ma.decide` computed. This is the list of all plots; each
is defined in the file of its subject, such as `policy_plots`. The parts that they share, and their theme, are in
`chart_parts`. Altair is slow to import, so nothing else in the package imports this module early.
"""

from __future__ import annotations

from manyarms.decision.backtest_plots import backtest, coverage
from manyarms.decision.chart_parts import theme
from manyarms.decision.evidence_plots import calibration, shrinkage, support, traffic_changes
from manyarms.decision.plan_plots import plan_chances
from manyarms.decision.policy_plots import agreement, gains, probability_better, segments, trade_off, values
from manyarms.decision.weight_plots import clip_curve, weight_balance

__all__ = [
    "agreement",
    "backtest",
    "calibration",
    "clip_curve",
    "coverage",
    "gains",
    "plan_chances",
    "probability_better",
    "segments",
    "shrinkage",
    "support",
    "theme",
    "trade_off",
    "traffic_changes",
    "values",
    "weight_balance",
]
