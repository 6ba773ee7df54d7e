"""The registry of model files: every kind of object that one may hold, by its saved name, and where its class is.

Loading a file looks up nothing outside this table, so a file cannot make anything else.
"""

from __future__ import annotations

import importlib

from manyarms.model_file.save import Saved

MODELS = {
    "reward posterior": "posterior.reward_posterior:RewardPosterior",
    "hurdle posterior": "posterior.hurdle_posterior:HurdlePosterior",
    "greedy": "policies.greedy:Greedy",
    "pessimistic": "policies.pessimistic:Pessimistic",
    "softmax": "policies.softmax:Softmax",
    "thompson": "policies.thompson:Thompson",
    "epsilon-greedy": "policies.greedy:EpsilonGreedy",
    "uniform": "policies.uniform:Uniform",
    "table": "policies.table:TablePolicy",
    "capped": "policies.capped:CappedPolicy",
    "blended greedy": "policies.greedy:BlendedGreedy",
    "segments": "policies.segment_policy:SegmentPolicy",
    "column": "policies.column_policy:ColumnPolicy",
    "lookup": "policies.lookup_policy:LookupPolicy",
    "linear softmax": "policies.softmax:LinearSoftmax",
    "mixture": "policies.mixture:Mixture",
    "most informative": "policies.most_informative:MostInformative",
}
"""The kinds that have a file of their own: posteriors and policies."""

PARTS = {
    "gaussian": "likelihoods.gaussian:Gaussian",
    "log-normal": "likelihoods.gaussian:LogNormal",
    "bernoulli": "likelihoods.bernoulli:Bernoulli",
    "poisson": "likelihoods.poisson:Poisson",
    "student t": "likelihoods.student_t:StudentT",
    "hierarchical Gaussian": "core.hierarchical_gaussian:HierarchicalGaussian",
    "dense mixing": "core.mixing:DenseMixing",
    "mixed effects": "core.mixing:MixedEffects",
    "action covariance": "core.action_covariance:ActionCovariance",
    "effects": "core.effect_group:EffectGroup",
    "block factor": "core.latent_covariance:BlockFactor",
    "eliminated factor": "core.latent_covariance:EliminatedFactor",
    "block Cholesky factor": "linalg.block_cholesky:BlockCholesky",
    "plan": "linalg.block_cholesky:EliminationPlan",
    "layer": "linalg.block_cholesky:EliminationLayer",
    "observed": "core.observed_rows:ObservedRows",
    "rank group": "core.observed_rows:ObservedGroup",
    "statistics": "core.statistics:Statistics",
    "rows": "core.statistics:ActionRows",
    "sums": "core.statistics:ActionSums",
    "fingerprint": "core.fingerprint:Fingerprint",
    "feature map": "core.feature_map:FeatureMap",
    "catalog": "core.catalog:Catalog",
    "words": "core.labels:WordLabels",
    "integers": "core.labels:IntegerLabels",
    "mixed labels": "core.labels:MixedLabels",
    "ragged labels": "core.labels:RaggedLabels",
}
"""The kinds that occur as parts of models."""


def kind_of(name: str) -> type[Saved]:
    """The class of a kind in the registry, imported when a file needs it."""
    module, _, kind = {**MODELS, **PARTS}[name].partition(":")
    return getattr(importlib.import_module(f"manyarms.{module}"), kind)
