"""Charts of results, for notebooks and for the report; each is a function from a result to an Altair chart.

    ma.plots.values(ma.evaluate(policies, logs, posterior))

Nothing is computed here: a chart shows what `ma.evaluate` and `ma.brief` have found. Altair is imported when a chart is
drawn. Colours come from the theme (`plots.theme`), so that a page can have a light and a dark one.
"""

from manyarms.plots.actions import movers, shrinkage
from manyarms.plots.look import theme
from manyarms.plots.policies import agreement, better, gains, values
from manyarms.plots.rounds import calibration, support

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
