"""Estimators of the value of a policy from logged rounds, on one interface: `estimator.estimate(policy, logs)`."""

from manyarms.estimators.estimator import Estimator, Rounds, SamplingEstimator

__all__ = ["Estimator", "Rounds", "SamplingEstimator"]
