"""Likelihoods: how rewards arise from weights, and the posterior under each."""

from manyarms.likelihoods.bernoulli import Bernoulli
from manyarms.likelihoods.gaussian import Gaussian, LogNormal
from manyarms.likelihoods.hurdle import Hurdle
from manyarms.likelihoods.likelihood import Likelihood
from manyarms.likelihoods.poisson import Poisson
from manyarms.likelihoods.student_t import StudentT

__all__ = ["Bernoulli", "Gaussian", "Hurdle", "Likelihood", "LogNormal", "Poisson", "StudentT"]
