"""Other judges of a policy, on one interface: `estimator.estimate(policy, logs)`."""

from manyarms.estimators.base import Estimator, Rounds
from manyarms.estimators.clustered import MIPS, OffCEM, PolicyConvolution
from manyarms.estimators.comparison import Comparison, compare
from manyarms.estimators.diagnostics import Thresholds, support_by_category
from manyarms.estimators.direct import DM
from manyarms.estimators.intervals import Bootstrap, EmpiricalBernstein, Normal
from manyarms.estimators.models import CrossFit, TableModel
from manyarms.estimators.multiple import BalancedIPS, WeightedIPS
from manyarms.estimators.propensity import EstimatedLogging
from manyarms.estimators.slope import slope
from manyarms.estimators.weighted import (
    DR,
    IPS,
    SNDR,
    SNIPS,
    DRos,
    ExponentialSmoothing,
    LogarithmicSmoothing,
    Replay,
    SubGaussianDR,
    SubGaussianIPS,
    SwitchDR,
)

__all__ = [
    "DM",
    "DR",
    "IPS",
    "MIPS",
    "SNDR",
    "SNIPS",
    "BalancedIPS",
    "Bootstrap",
    "Comparison",
    "CrossFit",
    "DRos",
    "EmpiricalBernstein",
    "EstimatedLogging",
    "Estimator",
    "ExponentialSmoothing",
    "LogarithmicSmoothing",
    "Normal",
    "OffCEM",
    "PolicyConvolution",
    "Replay",
    "Rounds",
    "SubGaussianDR",
    "SubGaussianIPS",
    "SwitchDR",
    "TableModel",
    "Thresholds",
    "WeightedIPS",
    "compare",
    "slope",
    "support_by_category",
]
