"""Learners: `learner.learn(logs)` is a policy.

Those of softmax policies maximise an estimate of the value (`Training` says how); `DMLearner` fits and chooses.
"""

from manyarms.learners.learner import DMLearner, Learner, SoftmaxLearner
from manyarms.learners.training import LBFGS, Adam, Optimiser, Training, TrainingStep
from manyarms.learners.weighted_learners import (
    DRLearner,
    IPSLearner,
    LogarithmicSmoothingLearner,
    MIPSLearner,
    PolicyConvolutionLearner,
    SNIPSLearner,
)
from manyarms.policies.linear_softmax import LinearSoftmax

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
    "SNIPSLearner",
    "SoftmaxLearner",
    "Training",
    "TrainingStep",
]
