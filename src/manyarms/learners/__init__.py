"""Learners: `learner.learn(logs)` returns a policy.

Learners of softmax policies maximise an estimate of the value, trained as `Training` says. `DMLearner` fits a posterior
and chooses by it.
"""

from manyarms.learners.learner import Learner, SoftmaxLearner
from manyarms.learners.training import LBFGS, Adam, Optimiser, TrainingStep

__all__ = ["LBFGS", "Adam", "Learner", "Optimiser", "SoftmaxLearner", "TrainingStep"]
