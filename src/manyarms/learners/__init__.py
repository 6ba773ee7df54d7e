"""Learners: `learner.learn(logs)` returns a policy.

Learners of softmax policies maximise an estimate of the value, trained as `Training` says. `DMLearner` fits a posterior
and chooses by it.
"""

<<<<<<< HEAD
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
from manyarms.policies.softmax import LinearSoftmax
=======
from manyarms.learners.learner import Learner, SoftmaxLearner
from manyarms.learners.training import LBFGS, Adam, Optimiser, TrainingStep
>>>>>>> main

__all__ = ["LBFGS", "Adam", "Learner", "Optimiser", "SoftmaxLearner", "TrainingStep"]
