"""Words that arguments and flags may be: plain, so that the command line knows them without loading what they name."""

from __future__ import annotations

from typing import Literal

Missing = Literal["refuse", "drop"]
"""What to do with a row that lacks a value."""
Unknown = Literal["refuse", "drop", "other"]
"""What to do with an action that the catalog does not list."""
PriorKind = Literal["categories", "taxonomy", "tags", "embeddings", "linear-embeddings", "independent"]
"""What actions share."""

FLOOR = "clip, a floor on the propensity, none by default"

POLICIES = {
    "greedy": "",
    "pessimistic": "delta, 0.05 by default",
    "softmax": "temperature",
    "thompson": "draws, 1000 by default (100 in evaluate)",
    "epsilon-greedy": "epsilon",
    "uniform": "",
}
"""Names of policies, and what their number is."""

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
"""Names of estimators, and what their number is."""

REPORT_FORMATS = ("html", "json", "svg", "png")
"""What a report can be written as."""
