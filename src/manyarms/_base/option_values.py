"""Values that options may take. The command line lists them without importing the code behind them."""

from __future__ import annotations

from typing import Literal

Missing = Literal["refuse", "drop"]
"""How to treat a row with a missing value."""
Unknown = Literal["refuse", "drop", "other"]
"""How to treat an action that the catalog does not list."""
PriorKind = Literal["categories", "taxonomy", "tags", "embeddings", "linear-embeddings", "independent"]
"""The metadata through which actions share information."""
LikelihoodKind = Literal["gaussian", "bernoulli", "poisson", "student-t", "log-normal"]
"""The distribution of rewards given their mean."""

FLOOR = "clip, a floor on the propensity, none by default"

POLICIES = {
    "greedy": "",
    "pessimistic": "delta, 0.05 by default",
    "softmax": "temperature",
    "thompson": "draws, 1000 by default (100 in evaluate)",
    "epsilon-greedy": "epsilon",
    "uniform": "",
}
"""Names of policies, and the meaning of the number after the name."""

ESTIMATORS = {
    "ips": FLOOR,
    "snips": FLOOR,
    "dr": FLOOR,
    "sndr": FLOOR,
    "switch-dr": "threshold",
    "dros": "shrinkage",
    "sub-gaussian-ips": "parameter",
    "sub-gaussian-dr": "parameter",
    "exponential-smoothing": "alpha",
    "logarithmic-smoothing": "parameter",
    "replay": "",
}
"""Names of estimators, and the meaning of the number after the name."""

REPORT_FORMATS = ("html", "json", "svg", "png")
"""File formats of a report."""
