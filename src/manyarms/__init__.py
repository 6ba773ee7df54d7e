"""Bayesian off-policy evaluation and learning when there are many actions.

The flow goes one way: logs and a prior give a posterior, a posterior gives policies, and a posterior judges policies.

    >>> import numpy as np
    >>> import manyarms as ma
    >>> rng = np.random.default_rng(0)
    >>> contexts, actions, rewards = rng.normal(size=(50, 2)), rng.integers(8, size=50), rng.normal(size=50)
    >>> logs = ma.LoggedData(contexts, actions, rewards, n_actions=10)
    >>> categories = np.repeat(np.eye(2), 5, axis=0)
    >>> prior = ma.HierarchicalGaussian(
    ...     latent_mean=np.zeros(4), latent_cov=1.0, mixing=ma.MixedEffects(categories, dim=2), action_cov=0.1
    ... )
    >>> posterior = ma.fit(logs, prior, ma.Gaussian(noise_std=1.0))
    >>> gain = posterior.difference(ma.Greedy(posterior), ma.Logged(logs), contexts)
    >>> gain.probability_positive > 0.5
    True
"""

from manyarms import errors, priors
from manyarms._version import __version__
from manyarms.core.catalog import Catalog
from manyarms.core.data import LoggedData
from manyarms.core.effects import EffectGroup
from manyarms.core.estimate import Estimate
from manyarms.core.features import FeatureMap
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.mixing import MixedEffects
from manyarms.core.policy import Policy
from manyarms.core.statistics import Statistics
from manyarms.estimators import (
    DM,
    DR,
    IPS,
    MIPS,
    SNDR,
    SNIPS,
    BalancedIPS,
    Bootstrap,
    Comparison,
    CrossFit,
    DRos,
    EmpiricalBernstein,
    EstimatedLogging,
    Estimator,
    ExponentialSmoothing,
    LogarithmicSmoothing,
    Normal,
    OffCEM,
    PolicyConvolution,
    Replay,
    SubGaussianDR,
    SubGaussianIPS,
    SwitchDR,
    Thresholds,
    WeightedIPS,
    compare,
    slope,
    support_by_category,
)
from manyarms.inference import condition
from manyarms.jobs import Evaluation, evaluate, score
from manyarms.learners import (
    DMLearner,
    DRLearner,
    IPSLearner,
    LinearSoftmax,
    LogarithmicSmoothingLearner,
    MIPSLearner,
    PolicyConvolutionLearner,
    SNIPSLearner,
    Training,
)
from manyarms.likelihoods import Bernoulli, Gaussian, Hurdle, Likelihood, LogNormal, Poisson, StudentT
from manyarms.loading import load
from manyarms.logs.catalogs import read_catalog
from manyarms.logs.read import read_logs
from manyarms.logs.stream import LogStream
from manyarms.nonlinear import NonlinearHierarchy, chain, fit_nonlinear, sample_posterior
from manyarms.policies import EpsilonGreedy, Greedy, Logged, Pessimistic, Softmax, TablePolicy, Thompson, Uniform
from manyarms.posterior import HurdlePosterior, RewardPosterior, SpreadPosterior, fit, fit_spread
from manyarms.prior_choice import (
    AveragedPosterior,
    CategoryChecks,
    LearnedPrior,
    PriorCheck,
    PriorComparison,
    Sensitivity,
    check_categories,
    check_prior,
    compare_priors,
    learn_prior,
    prior_sensitivity,
)

__all__ = [
    "DM",
    "DR",
    "IPS",
    "MIPS",
    "SNDR",
    "SNIPS",
    "AveragedPosterior",
    "BalancedIPS",
    "Bernoulli",
    "Bootstrap",
    "Catalog",
    "CategoryChecks",
    "Comparison",
    "CrossFit",
    "DMLearner",
    "DRLearner",
    "DRos",
    "EffectGroup",
    "EmpiricalBernstein",
    "EpsilonGreedy",
    "Estimate",
    "EstimatedLogging",
    "Estimator",
    "Evaluation",
    "ExponentialSmoothing",
    "FeatureMap",
    "Gaussian",
    "Greedy",
    "HierarchicalGaussian",
    "Hurdle",
    "HurdlePosterior",
    "IPSLearner",
    "LearnedPrior",
    "Likelihood",
    "LinearSoftmax",
    "LogNormal",
    "LogStream",
    "LogarithmicSmoothing",
    "LogarithmicSmoothingLearner",
    "Logged",
    "LoggedData",
    "MIPSLearner",
    "MixedEffects",
    "NonlinearHierarchy",
    "Normal",
    "OffCEM",
    "Pessimistic",
    "Poisson",
    "Policy",
    "PolicyConvolution",
    "PolicyConvolutionLearner",
    "PriorCheck",
    "PriorComparison",
    "Replay",
    "RewardPosterior",
    "SNIPSLearner",
    "Sensitivity",
    "Softmax",
    "SpreadPosterior",
    "Statistics",
    "StudentT",
    "SubGaussianDR",
    "SubGaussianIPS",
    "SwitchDR",
    "TablePolicy",
    "Thompson",
    "Thresholds",
    "Training",
    "Uniform",
    "WeightedIPS",
    "__version__",
    "chain",
    "check_categories",
    "check_prior",
    "compare",
    "compare_priors",
    "condition",
    "errors",
    "evaluate",
    "fit",
    "fit_nonlinear",
    "fit_spread",
    "learn_prior",
    "load",
    "prior_sensitivity",
    "priors",
    "read_catalog",
    "read_logs",
    "sample_posterior",
    "score",
    "slope",
    "support_by_category",
]
