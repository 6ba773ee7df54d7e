"""Bayes risks by simulation, the paper's bounds on them, and bounds that hold where the paper's do not.

A Bayes risk is an average over worlds drawn from the prior: it describes a method, not one data set.

    >>> import numpy as np
    >>> from manyarms import datasets, theory
    >>> rng = np.random.default_rng(0)
    >>> synthetic = datasets.SyntheticProblem(n_actions=20, dim=5, latent_dim=3)
    >>> prior = synthetic.draw_prior(rng)
    >>> problem = theory.BayesianProblem(prior, synthetic.draw_contexts, synthetic.noise_std)
    >>> risk = theory.bayes_suboptimality(problem, n_rounds=50, n_instances=40, rng=rng)
    >>> risk.mean < theory.corrected_bound(prior.n_actions, risk.expected_squared_norm)
    True
"""

from manyarms.posterior import bayesian_width, confidence_radius, frequentist_width
from manyarms.theory.bayes_risk import (
    BayesianProblem,
    BayesMSE,
    BayesSuboptimality,
    IsotropicModel,
    bayes_mse,
    bayes_suboptimality,
    corrected_bound,
    explicit_bound,
    explicit_squared_norm,
    mse_bound,
    theorem_1_bound,
)

__all__ = [
    "BayesMSE",
    "BayesSuboptimality",
    "BayesianProblem",
    "IsotropicModel",
    "bayes_mse",
    "bayes_suboptimality",
    "bayesian_width",
    "confidence_radius",
    "corrected_bound",
    "explicit_bound",
    "explicit_squared_norm",
    "frequentist_width",
    "mse_bound",
    "theorem_1_bound",
]
