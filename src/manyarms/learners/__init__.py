"""Learners: `learner.learn(logs)` is a policy.

Those of softmax policies maximise an estimate of the value (`Training` says how); `DMLearner` fits and chooses.
"""

from manyarms.learners.base import Learner, SoftmaxLearner
from manyarms.learners.clustered import MIPSLearner, PolicyConvolutionLearner
from manyarms.learners.direct import DMLearner
from manyarms.learners.linear_softmax import LinearSoftmax
from manyarms.learners.optimisers import LBFGS, Adam, Optimiser
from manyarms.learners.training import Progress, Training
from manyarms.learners.weighted import DRLearner, IPSLearner, LogarithmicSmoothingLearner, SNIPSLearner

__all__ = [
    "LBFGS",
    "Adam",
    "DMLearner",
    "DRLearner",
    "IPSLearner",
    "Learner",
    "LinearSoftmax",
    "LogarithmicSmoothingLearner",
    "MIPSLearner",
    "Optimiser",
    "PolicyConvolutionLearner",
    "Progress",
    "SNIPSLearner",
    "SoftmaxLearner",
    "Training",
]
