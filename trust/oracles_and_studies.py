"""Code from the tests and the studies that the campaign reuses: oracles, random problems, samplers, constants."""

from __future__ import annotations

import sys

from trust.campaign import ROOT

for _folder in ("tests", "studies", "tests/integrations"):
    if str(ROOT / _folder) not in sys.path:
        sys.path.append(str(ROOT / _folder))

import clicks  # noqa: E402
import interval_coverage  # noqa: E402
import polya_gamma  # noqa: E402
import test_obp_agreement as obp_agreement  # noqa: E402
from oracles import DenseJoint, DenseProblem  # noqa: E402
from problems import Problem, make_problem  # noqa: E402

__all__ = [
    "DenseJoint",
    "DenseProblem",
    "Problem",
    "clicks",
    "interval_coverage",
    "make_problem",
    "obp_agreement",
    "polya_gamma",
]
