"""How rewards arise from weights: logs in, statistics out."""

from manyarms.likelihoods.base import Likelihood
from manyarms.likelihoods.bernoulli import Bernoulli
from manyarms.likelihoods.gaussian import Gaussian
from manyarms.likelihoods.hurdle import Hurdle
from manyarms.likelihoods.log_normal import LogNormal
from manyarms.likelihoods.poisson import Poisson
from manyarms.likelihoods.student_t import StudentT

__all__ = ["Bernoulli", "Gaussian", "Hurdle", "Likelihood", "LogNormal", "Poisson", "StudentT"]
