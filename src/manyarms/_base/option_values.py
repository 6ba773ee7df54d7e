"""Values that arguments and flags may take, as plain words: the command line knows them without loading anything."""

from __future__ import annotations

from typing import Literal

Missing = Literal["refuse", "drop"]
"""What to do with a row that lacks a value."""
Unknown = Literal["refuse", "drop", "other"]
"""What to do with an action that the catalog does not list."""
PriorKind = Literal["categories", "taxonomy", "tags", "embeddings", "linear-embeddings", "independent"]
"""What actions share."""
LikelihoodKind = Literal["gaussian", "bernoulli", "poisson", "student-t", "log-normal"]
"""How rewards arise."""

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
