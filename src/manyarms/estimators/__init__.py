"""Other judges of a policy, on one interface: `estimator.estimate(policy, logs)`."""

from manyarms.estimators.compare import Comparison, compare, slope
from manyarms.estimators.estimator import Estimator, Rounds, SamplingEstimator
from manyarms.estimators.importance_weighted import (
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
from manyarms.estimators.intervals import Bootstrap, EmpiricalBernstein, Normal
from manyarms.estimators.logging_policy import EstimatedLogging
from manyarms.estimators.multiple_loggers import BalancedIPS, WeightedIPS
from manyarms.estimators.reward_model import DM, CrossFit, TableModel
from manyarms.estimators.set_weighted import MIPS, OffCEM, PolicyConvolution
from manyarms.estimators.weight_diagnostics import Thresholds, support_by_category

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
    "SamplingEstimator",
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
