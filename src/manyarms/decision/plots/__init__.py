"""Charts of results, for notebooks and for the report; each is a function from a result to an Altair chart.

    ma.plots.values(ma.evaluate(policies, logs, posterior))

Nothing is computed here: a chart shows what `ma.evaluate` and `ma.decide` computed. Altair is imported when a chart is
drawn. Colours come from the theme (`plots.theme`), so that a page can have a light and a dark one.
"""

from manyarms.decision.plots.action_charts import movers, shrinkage
from manyarms.decision.plots.chart_style import theme
from manyarms.decision.plots.policy_charts import agreement, better, gains, values
from manyarms.decision.plots.round_charts import calibration, support

__all__ = [
    "agreement",
    "better",
    "calibration",
    "gains",
    "movers",
    "shrinkage",
    "support",
    "theme",
    "values",
]
