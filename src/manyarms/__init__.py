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

from __future__ import annotations

import importlib
from typing import Any

from manyarms._version import __version__

# Nothing is imported before it is asked for, so that `import manyarms` and `manyarms --help` wait for no numerical
# library. Type checkers and editors read __init__.pyi, which has a line for each of these names.
_NAMES_OF = {
    "briefing": "Briefing brief",
    "core.catalog": "Catalog",
    "core.data": "LoggedData",
    "core.effects": "EffectGroup",
    "core.estimate": "Estimate",
    "core.features": "FeatureMap",
    "core.hierarchy": "HierarchicalGaussian",
    "core.mixing": "MixedEffects",
    "core.policy": "Policy",
    "core.statistics": "Statistics",
    "estimators": (
        "DM DR IPS MIPS SNDR SNIPS BalancedIPS Bootstrap Comparison CrossFit DRos EmpiricalBernstein "
        "EstimatedLogging Estimator ExponentialSmoothing LogarithmicSmoothing Normal OffCEM PolicyConvolution "
        "Replay SubGaussianDR SubGaussianIPS SwitchDR Thresholds WeightedIPS compare slope support_by_category"
    ),
    "inference": "condition",
    "jobs": "Evaluation evaluate score",
    "learners": (
        "DMLearner DRLearner IPSLearner LinearSoftmax LogarithmicSmoothingLearner MIPSLearner "
        "PolicyConvolutionLearner SNIPSLearner Training"
    ),
    "likelihoods": "Bernoulli Gaussian Hurdle Likelihood LogNormal Poisson StudentT",
    "loading": "load",
    "logs.catalogs": "read_catalog",
    "logs.read": "read_logs",
    "logs.stream": "LogStream",
    "nonlinear": "NonlinearHierarchy chain fit_nonlinear sample_posterior",
    "policies": "EpsilonGreedy Greedy Logged Pessimistic Softmax TablePolicy Thompson Uniform",
    "posterior": "HurdlePosterior RewardPosterior SpreadPosterior fit fit_spread",
    "prior_choice": (
        "AveragedPosterior CategoryChecks LearnedPrior PriorCheck PriorComparison Sensitivity check_categories "
        "check_prior compare_priors learn_prior prior_sensitivity"
    ),
    "report.decision": "write_report",
}
_ROOM_OF = {name: room for room, names in _NAMES_OF.items() for name in names.split()}
_NEIGHBOURS = ("arviz", "mlflow", "obp", "sklearn")
"""Modules for other libraries. Not in `__all__`: `from manyarms import *` must not hide scikit-learn by ours."""

__all__ = [*_ROOM_OF, "__version__", "errors", "plots", "priors"]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _ROOM_OF:
        found = getattr(importlib.import_module(f"manyarms.{_ROOM_OF[name]}"), name)
        globals()[name] = found
        return found
    # "a.b" would be sought inside "a", which is no attribute of this package.
    if name.isidentifier():
        try:
            # Importing a room makes it an attribute of the package.
            return importlib.import_module(f"manyarms.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"manyarms.{name}":
                raise
    raise AttributeError(f"module 'manyarms' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NEIGHBOURS})
