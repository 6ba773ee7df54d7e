"""Every public entry point with a valid call, from which hostile calls are made.

hostile_names.py checks that no public name is missing here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from scipy import sparse

import manyarms as ma
from manyarms import datasets, experiments, jobs, learners, nonlinear, theory
from trust.hostile_world import HostileWorld

Arguments = dict[str, Any]


@dataclass(frozen=True)
class HostileCall:
    """An entry point and its valid arguments.

    Args:
        name: The public name, with its module or class.
        function: What is called, given the world.
        arguments: The valid arguments, given the world.
        kinds: The kind of an argument where its value does not show it.
    """

    name: str
    function: Callable[[HostileWorld], Callable[..., Any]]
    arguments: Callable[[HostileWorld], Arguments]
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])

    def kind_of(self, argument: str, value: Any) -> str:
        """The kind of an argument, which decides how it is corrupted."""
        return self.kinds.get(argument) or _KINDS_BY_NAME.get(argument) or _kind_of_value(value)


_KINDS_BY_NAME = {
    "eligible": "eligible",
    "rows": "rows",
    "groups": "groups",
    "times": "groups",
    "name": "name",
    "title": "name",
}
_KINDS_BY_TYPE: tuple[tuple[Any, str], ...] = (
    (bool, "flag"),
    (int, "count"),
    (float, "number"),
    (str, "choice"),
    (Path, "path"),
    (np.random.Generator, "rng"),
    ((list, tuple, dict), "collection"),
    ((FunctionType, MethodType, np.ufunc, type), "function"),
)


def _kind_of_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "actions" if value.dtype.kind == "i" else "numbers"
    if isinstance(value, list) and value and isinstance(value[0], str):  # pyright: ignore[reportUnknownArgumentType]
        return "labels"
    return next((kind for type_, kind in _KINDS_BY_TYPE if isinstance(value, type_)), "object")


def _call(name: str, function: Any, arguments: Callable[[HostileWorld], Arguments], **kinds: str) -> HostileCall:
    return HostileCall(name, lambda world: function, arguments, kinds)


def _method(
    name: str, owner: Callable[[HostileWorld], Any], arguments: Callable[[HostileWorld], Arguments], **kinds: str
) -> HostileCall:
    method = name.rsplit(".", 1)[1]
    return HostileCall(name, lambda world: getattr(owner(world), method), arguments, kinds)


def _core() -> Iterator[HostileCall]:
    yield _call("LoggedData", ma.LoggedData, lambda w: dict(
        contexts=w.contexts, actions=w.actions, rewards=w.rewards, propensities=w.propensities, n_actions=6,
        weights=w.weights, groups=w.groups, times=np.arange(40.0)))  # fmt: skip
    yield _call("LoggedData", ma.LoggedData, lambda w: dict(
        contexts=w.contexts, actions=w.actions, rewards=w.rewards, n_actions=6, logging_policy=w.uniform,
        catalog=w.catalog))  # fmt: skip
    yield _method("LoggedData.split", lambda w: w.logs, lambda w: dict(fraction=0.5, by="row", rng=w.rng()))
    yield _method("LoggedData.take", lambda w: w.logs, lambda w: dict(rows=w.few_actions))
    yield _method("LoggedData.batches", lambda w: w.logs, lambda w: dict(size=7))
    yield _call("Catalog", ma.Catalog, lambda w: dict(
        ids=w.ids, categories=w.categories, tags=w.tags, paths=[["t", name] for name in w.categories],
        embeddings=w.embeddings), tags="labels", paths="labels")  # fmt: skip
    yield _method("Catalog.numbers", lambda w: w.catalog, lambda w: dict(ids=w.ids[:3]))
    yield _method("Catalog.find", lambda w: w.catalog, lambda w: dict(ids=w.ids[:3]))
    yield _method(
        "Catalog.grown_with",
        lambda w: ma.Catalog(w.ids, categories=w.categories),
        lambda w: dict(other=w.longer_catalog),
    )
    yield _call("EffectGroup", ma.EffectGroup, lambda w: dict(name="kinds", count=3, part_dim=3, has_mean=True))
    yield _call("Estimate", ma.Estimate, lambda w: dict(value=1.0, std=0.5))
    yield _method("Estimate.interval", lambda w: ma.Estimate(1.0, 0.5), lambda w: dict(level=0.9, of="population"))
    yield _method("Estimate.record", lambda w: ma.Estimate(1.0, 0.5), lambda w: dict(level=0.9))
    yield _call("FeatureMap", ma.FeatureMap, lambda w: dict(features=[], intercept=True))
    yield _method("FeatureMap.from_json", lambda w: ma.FeatureMap, lambda w: dict(data=ma.FeatureMap([]).as_json()))
    yield _call("HierarchicalGaussian", ma.HierarchicalGaussian, lambda w: dict(
        latent_mean=np.zeros(2), latent_cov=np.eye(2), mixing=w.mixing, action_cov=np.eye(3),
        offset=np.zeros(3)))  # fmt: skip
    prior_methods: dict[str, Callable[[HostileWorld], Arguments]] = {
        "action_cov": lambda w: dict(actions=w.few_actions),
        "action_mean": lambda w: dict(actions=w.few_actions),
        "cross_cov": lambda w: dict(left=w.few_actions, right=w.few_actions),
        "sample": lambda w: dict(rng=w.rng(), size=2, actions=w.few_actions),
    }
    for name, arguments in prior_methods.items():
        yield _method(f"HierarchicalGaussian.{name}", lambda w: w.prior, arguments)
    yield _method("HierarchicalGaussian.with_actions", lambda w: ma.HierarchicalGaussian(
        np.zeros(2), np.eye(2), w.mixing, 1.0), lambda w: dict(mixing=w.mixing[:2], action_cov=np.eye(3)))  # fmt: skip
    yield _call("MixedEffects", ma.MixedEffects, lambda w: dict(weights=np.eye(6)[:, :3], dim=3))
    yield _method("Statistics.empty", lambda w: ma.Statistics, lambda w: dict(n_actions=6, dim=3))
    yield _method("Statistics.with_actions", lambda w: w.posterior.statistics, lambda w: dict(n_actions=9))


def _priors() -> Iterator[HostileCall]:
    scales = dict(effect_std=1.0, action_std=0.5, shared_std=1.0)
    p = ma.priors
    yield _call("priors.from_categories", p.from_categories, lambda w: dict(categories=w.categories, dim=3, **scales))
    yield _call("priors.from_tags", p.from_tags, lambda w: dict(tags=w.tags, dim=3, normalise=True, **scales),
                tags="labels")  # fmt: skip
    yield _call("priors.from_taxonomy", p.from_taxonomy, lambda w: dict(
        paths=[["t", name] for name in w.categories], dim=3, **scales), paths="labels")  # fmt: skip
    yield _call("priors.from_embeddings", p.from_embeddings, lambda w: dict(
        embeddings=w.embeddings, n_components=2, dim=3, rng=w.rng(), method="gmm", action_variance="shared",
        max_rows=100, max_components=3, variance_floor=1e-6, **scales))  # fmt: skip
    yield _call("priors.linear_in_embeddings", p.linear_in_embeddings, lambda w: dict(
        embeddings=w.embeddings, dim=3, scale=True, **scales))  # fmt: skip
    yield _call("priors.low_rank", p.low_rank, lambda w: dict(
        basis=w.mixing[0], n_actions=6, latent_mean=np.zeros(2), **scales))  # fmt: skip
    yield _call("priors.from_joint", p.from_joint, lambda w: dict(
        mean=np.zeros(6), cov=np.eye(6), n_actions=3, rank=2))  # fmt: skip
    yield _call(
        "priors.independent", p.independent, lambda w: dict(n_actions=6, mean=np.zeros(3), cov=np.eye(3), dim=3)
    )
    yield _call("priors.ridge", p.ridge, lambda w: dict(n_actions=6, dim=3, penalty=1.0, noise_std=1.0))
    yield _call("priors.from_catalog", p.from_catalog, lambda w: dict(
        catalog=w.catalog, kind="categories", dim=3, rng=w.rng(), **scales))  # fmt: skip
    yield _call("priors.new_actions", p.new_actions, lambda w: dict(prior=w.catalog_prior, catalog=w.longer_catalog))


def _fits() -> Iterator[HostileCall]:
    yield _call("fit", ma.fit, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), start=w.posterior, max_iterations=20, tolerance=1e-4,
        engine="local"))  # fmt: skip
    yield _call("fit", ma.fit, lambda w: dict(
        logs=w.clicked, prior=w.prior, likelihood=ma.Bernoulli(), max_iterations=20, tolerance=1e-4))  # fmt: skip
    yield _call("fit_sharded", ma.fit_sharded, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), out=w.folder / "fresh"), out="out")  # fmt: skip
    yield _call("condition", ma.condition, lambda w: dict(
        prior=w.prior, statistics=w.posterior.statistics, noise_std=1.0))  # fmt: skip
    yield _call("fit_nonlinear", ma.fit_nonlinear, lambda w: dict(
        logs=w.logs, hierarchy=w.hierarchy, likelihood=ma.Gaussian(), start=np.zeros(2), max_iterations=20,
        tolerance=1e-6))  # fmt: skip
    yield _call("sample_posterior", ma.sample_posterior, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), n_draws=10, rng=w.rng(), warmup=5, thin=1,
        n_chains=2))  # fmt: skip
    yield _call("NonlinearHierarchy", ma.NonlinearHierarchy, lambda w: dict(
        latent_mean=np.zeros(2), latent_cov=np.eye(2), function=w.centres, action_cov=np.eye(3), n_actions=6,
        dim=3))  # fmt: skip
    yield _method("NonlinearHierarchy.sample", lambda w: w.hierarchy, lambda w: dict(
        rng=w.rng(), size=2, actions=w.few_actions))  # fmt: skip
    yield _method("NonlinearHierarchy.linearised", lambda w: w.hierarchy, lambda w: dict(latent=np.zeros(2)))
    yield _call("chain", ma.chain, lambda w: dict(
        latent_mean=np.zeros(2), latent_cov=np.eye(2), layers=[w.layer()], function=w.centres, action_cov=np.eye(3),
        n_actions=6, dim=3))  # fmt: skip
    yield _method("nonlinear.NonlinearPosterior.refit", lambda w: ma.fit_nonlinear(w.logs, w.hierarchy), lambda w: dict(
        logs=w.logs))  # fmt: skip
    yield _call("nonlinear.Layer", nonlinear.Layer, lambda w: dict(function=np.tanh, cov=np.eye(2), size=2))
    yield _call("learn_prior", ma.learn_prior, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), effect_cov="scale", action_cov="scale",
        means="integrated", learn_noise=True, avoid_boundary=True, max_iterations=20))  # fmt: skip
    yield _method("LearnedPrior.averaged", lambda w: w.learned, lambda w: dict(n_draws=4, rng=w.rng()))
    yield _call("compare_priors", ma.compare_priors, lambda w: dict(
        logs=w.logs, priors=[w.prior, ma.priors.independent(6, dim=3)], likelihood=ma.Gaussian(), learn=False,
        n_folds=2, rng=w.rng()))  # fmt: skip
    yield _call("check_prior", ma.check_prior, lambda w: dict(posterior=w.posterior))
    yield _call("check_categories", ma.check_categories, lambda w: dict(
        posterior=w.posterior, logs=w.logs, categories=w.categories, level=0.9))  # fmt: skip
    yield _call("prior_sensitivity", ma.prior_sensitivity, lambda w: dict(
        posterior=w.posterior, policy=w.greedy, contexts=w.few, baseline=w.uniform, eligible=w.eligible,
        weights=w.weights[:5], logs=w.logs))  # fmt: skip
    yield _call("load", ma.load, lambda w: dict(path=w.model_file))


def _likelihoods() -> Iterator[HostileCall]:
    yield _call("Gaussian", ma.Gaussian, lambda w: dict(noise_std=1.0))
    yield _call("LogNormal", ma.LogNormal, lambda w: dict(noise_std=1.0))
    yield _call("StudentT", ma.StudentT, lambda w: dict(scale=1.0, degrees=4.0, treatment="variational"))
    yield _call("Bernoulli", ma.Bernoulli, lambda w: dict(treatment="variational", expected="quadrature"))
    yield _call("Poisson", ma.Poisson, lambda w: dict(treatment="variational"))
    yield _call("Hurdle", ma.Hurdle, lambda w: dict(occurs=ma.Bernoulli(), amount=ma.LogNormal()))


def _posteriors() -> Iterator[HostileCall]:
    owners: dict[str, Callable[[HostileWorld], Any]] = {
        "RewardPosterior": lambda w: w.posterior,
        "RewardPosterior.": lambda w: w.click_posterior,
        "HurdlePosterior": lambda w: w.hurdle_posterior,
        "AveragedPosterior": lambda w: w.averaged,
        "ShardedPosterior": lambda w: w.sharded,
        "nonlinear.PosteriorDraws": lambda w: w.draws,
    }
    options: Callable[[HostileWorld], Arguments] = (
        lambda w: dict(  # noqa: E731
            contexts=w.few, eligible=w.eligible, weights=w.weights[:5], groups=w.groups[:5]
        )
    )
    for name, owner in owners.items():
        kind = name.removesuffix(".")
        for method in ("expected_reward", "reward_std"):
            yield _method(f"{kind}.{method}", owner, lambda w: dict(contexts=w.few, actions=w.few_actions))
        yield _method(f"{kind}.value", owner, lambda w: dict(policy=w.softmax, **options(w)))
        for method in ("difference", "lift"):
            yield _method(f"{kind}.{method}", owner, lambda w: dict(
                policy=w.softmax, baseline=w.uniform, **options(w)))  # fmt: skip
        yield _method(f"{kind}.value_draws", owner, lambda w: dict(
            policy=w.softmax, n_draws=20, rng=w.rng(), baseline=w.uniform, **options(w)))  # fmt: skip
    posterior: Callable[[HostileWorld], Any] = lambda w: w.posterior  # noqa: E731
    new: Callable[[HostileWorld], ma.LoggedData] = lambda w: w.logs.with_rewards(w.rewards + 1.0)  # noqa: E731
    yield _method("RewardPosterior.update", posterior, lambda w: dict(logs=new(w), allow_repeats=True, engine="local"))
    yield _method("RewardPosterior.refit", posterior, lambda w: dict(logs=new(w), engine="local"))
    yield _method("RewardPosterior.summary", posterior, lambda w: dict(actions=np.array([0, 2])))
    yield _method("RewardPosterior.discounted", posterior, lambda w: dict(share=0.5))
    yield _method("RewardPosterior.with_actions", lambda w: ma.fit(w.logs, ma.HierarchicalGaussian(
        np.zeros(2), np.eye(2), w.mixing, 1.0)), lambda w: dict(mixing=w.mixing[:2], action_cov=np.eye(3)))  # fmt: skip
    yield _method("RewardPosterior.save", posterior, lambda w: dict(path=w.folder / "saved"), path="out")
    yield _method("HurdlePosterior.update", lambda w: w.hurdle_posterior, lambda w: dict(logs=w.clicked))
    yield _method("HurdlePosterior.refit", lambda w: w.hurdle_posterior, lambda w: dict(logs=w.clicked))
    yield _method("HurdlePosterior.with_actions", lambda w: w.hurdle_posterior, lambda w: dict(
        mixing=ma.MixedEffects(np.eye(6)[:2, :3], 3), action_cov=1.0))  # fmt: skip
    yield _method("ShardedPosterior.action_cov", lambda w: w.sharded, lambda w: dict(actions=w.few_actions))
    yield _call("theory.bayesian_width", theory.bayesian_width, lambda w: dict(
        posterior=w.posterior, contexts=w.few, actions=w.few_actions, delta=0.1))  # fmt: skip
    yield _call("theory.frequentist_width", theory.frequentist_width, lambda w: dict(
        posterior=w.posterior, contexts=w.few, actions=w.few_actions, weight_norms=np.ones(5), delta=0.1))  # fmt: skip
    yield _call("theory.mse_bound", theory.mse_bound, lambda w: dict(
        posterior=w.posterior, contexts=w.few, actions=w.few_actions))  # fmt: skip


def _policies() -> Iterator[HostileCall]:
    yield _call("Greedy", ma.Greedy, lambda w: dict(posterior=w.posterior))
    yield _call("EpsilonGreedy", ma.EpsilonGreedy, lambda w: dict(policy=w.uniform, epsilon=0.1))
    yield _call("Pessimistic", ma.Pessimistic, lambda w: dict(posterior=w.posterior, delta=0.1))
    yield _call("Softmax", ma.Softmax, lambda w: dict(posterior=w.posterior, temperature=0.5))
    yield _call("LinearSoftmax", ma.LinearSoftmax, lambda w: dict(weights=w.mixing[..., 0], catalog=w.catalog))
    yield _call("Thompson", ma.Thompson, lambda w: dict(posterior=w.posterior, n_draws=20, rng=w.rng()))
    yield _call("TablePolicy", ma.TablePolicy, lambda w: dict(probabilities=w.table[0]))
    yield _call("TablePolicy", ma.TablePolicy, lambda w: dict(probabilities=w.table[:5]))
    yield _call("Uniform", ma.Uniform, lambda w: dict(n_actions=6))
    yield _call("Logged", ma.Logged, lambda w: dict(logs=w.logs))
    yield _call("EstimatedLogging", ma.EstimatedLogging, lambda w: dict(
        logs=w.logs, categories=w.categories, smoothing=0.5, penalty=1.0))  # fmt: skip
    owners: dict[str, Callable[[HostileWorld], Any]] = {
        "Greedy": lambda w: w.greedy,
        "EpsilonGreedy": lambda w: ma.EpsilonGreedy(w.greedy, 0.2),
        "Pessimistic": lambda w: ma.Pessimistic(w.posterior),
        "Softmax": lambda w: ma.Softmax(w.posterior, 0.5),
        "LinearSoftmax": lambda w: w.softmax,
        "Thompson": lambda w: ma.Thompson(w.posterior, 20, rng=w.rng()),
        "TablePolicy": lambda w: ma.TablePolicy(np.full(6, 1 / 6)),
        "Uniform": lambda w: w.uniform,
        "EstimatedLogging": lambda w: ma.EstimatedLogging(w.logs),
    }
    methods: dict[str, Callable[[HostileWorld], Arguments]] = {
        "actions": lambda w: {},
        "probabilities": lambda w: {},
        "feature_mass": lambda w: dict(weights=w.weights[:5]),
        "probability_of": lambda w: dict(actions=np.array([1, 2, 3, 5, 4])),
        "sample": lambda w: dict(rng=w.rng()),
        "top_k": lambda w: dict(k=1),
        "probability_chunks": lambda w: dict(chunk_size=2),
    }
    for name, owner in owners.items():
        for method, more in methods.items():
            yield _method(f"{name}.{method}", owner, lambda w, more=more: dict(
                contexts=w.few, eligible=w.eligible, **more(w)))  # fmt: skip
    yield _method("Policy.save", lambda w: w.softmax, lambda w: dict(path=w.folder / "saved"), path="out")
    yield _method("TablePolicy.take", lambda w: ma.TablePolicy(w.table), lambda w: dict(rows=w.few_actions))
    yield _method("Logged.take", lambda w: ma.Logged(w.logs), lambda w: dict(rows=w.few_actions))
    yield _method("Logged.actions", lambda w: ma.Logged(w.logs), lambda w: dict(contexts=w.contexts))


_ESTIMATORS: dict[str, tuple[Any, Callable[[HostileWorld], Arguments]]] = {
    "IPS": (ma.IPS, lambda w: dict(clip=0.01, cap=10.0)),
    "SNIPS": (ma.SNIPS, lambda w: dict(clip=0.01, cap=10.0)),
    "DR": (ma.DR, lambda w: dict(model=w.posterior, clip=0.01, cap=10.0)),
    "SNDR": (ma.SNDR, lambda w: dict(model=w.posterior, clip=0.01, cap=10.0)),
    "DRos": (ma.DRos, lambda w: dict(model=w.posterior, shrinkage=10.0)),
    "ExponentialSmoothing": (ma.ExponentialSmoothing, lambda w: dict(alpha=0.5)),
    "LogarithmicSmoothing": (ma.LogarithmicSmoothing, lambda w: dict(parameter=0.5)),
    "Replay": (ma.Replay, lambda w: dict()),
    "SubGaussianDR": (ma.SubGaussianDR, lambda w: dict(model=w.posterior, parameter=0.5)),
    "SubGaussianIPS": (ma.SubGaussianIPS, lambda w: dict(parameter=0.5)),
    "SwitchDR": (ma.SwitchDR, lambda w: dict(model=w.posterior, threshold=5.0)),
    "WeightedIPS": (ma.WeightedIPS, lambda w: dict(strata=w.groups % 2, model=w.posterior)),
    "BalancedIPS": (ma.BalancedIPS, lambda w: dict(
        logging_policies=[w.uniform, w.uniform], strata=w.groups % 2, model=w.posterior)),
    "MIPS": (ma.MIPS, lambda w: dict(clusters=np.arange(6) % 3, clip=0.01)),
    "OffCEM": (ma.OffCEM, lambda w: dict(clusters=np.arange(6) % 3, model=w.posterior, clip=0.01)),
    "PolicyConvolution": (ma.PolicyConvolution, lambda w: dict(embeddings=w.embeddings, k=2, clip=0.01)),
}  # fmt: skip


def _estimators() -> Iterator[HostileCall]:
    for name, (made, arguments) in _ESTIMATORS.items():
        yield _call(name, made, lambda w, arguments=arguments: dict(
            interval=ma.Normal(), thresholds=ma.Thresholds(), name="mine", **arguments(w)), strata="groups",
            clusters="groups")  # fmt: skip
        policy = "greedy" if name == "Replay" else "softmax"
        logs = "clicked" if name == "LogarithmicSmoothing" else "logs"
        for method in ("estimate", "contributions"):
            yield _method(
                f"{name}.{method}", lambda w, made=made, arguments=arguments: made(**arguments(w)),
                lambda w, policy=policy, logs=logs: dict(
                    policy=getattr(w, policy), logs=getattr(w, logs), eligible=[list(range(6))] * 40),
            )  # fmt: skip
    yield _call("DM", ma.DM, lambda w: dict(posterior=w.posterior, name="mine", thresholds=ma.Thresholds()))
    yield _method("DM.estimate", lambda w: ma.DM(w.posterior), lambda w: dict(policy=w.softmax, logs=w.logs))
    yield _call("Checked", ma.Checked, lambda w: dict(posterior=w.posterior, scale=1.0, n_folds=2, name="mine"))
    yield _method("Checked.estimate", lambda w: ma.Checked(w.posterior), lambda w: dict(policy=w.softmax, logs=w.logs))
    yield _method("Checked.difference", lambda w: ma.Checked(w.posterior), lambda w: dict(
        policy=w.softmax, baseline=w.uniform, logs=w.logs))  # fmt: skip
    yield _call("CrossFit", ma.CrossFit, lambda w: dict(
        prior=w.prior, likelihood=ma.Gaussian(), n_folds=2, rng=w.rng()))  # fmt: skip
    yield _call("Bootstrap", ma.Bootstrap, lambda w: dict(n_draws=20, rng=w.rng()))
    yield _call("EmpiricalBernstein", ma.EmpiricalBernstein, lambda w: dict(width=10.0))
    yield _call("Normal", ma.Normal, lambda w: dict(method="normal"))
    yield _call("Thresholds", ma.Thresholds, lambda w: dict(
        min_effective_sample_size=100.0, max_weight_share=0.05, mean_weight_error=0.2, max_unsupported_mass=0.1,
        max_prior_share=0.5))  # fmt: skip
    yield _call("support_by_category", ma.support_by_category, lambda w: dict(
        policy=w.softmax, logs=w.logs, categories=w.categories))  # fmt: skip
    yield _call("compare", ma.compare, lambda w: dict(
        policies=dict(w.policies), logs=w.logs, estimators=[ma.IPS(), ma.SNIPS()], allow_training_rounds=True))  # fmt: skip
    yield _call("slope", ma.slope, lambda w: dict(
        estimators=[ma.IPS(), ma.SNIPS()], policy=w.softmax, logs=w.logs, level=0.9))  # fmt: skip


_LEARNERS: dict[str, tuple[Any, Callable[[HostileWorld], Arguments]]] = {
    "IPSLearner": (ma.IPSLearner, lambda w: dict(clip=0.01)),
    "SNIPSLearner": (ma.SNIPSLearner, lambda w: dict(clip=0.01)),
    "DRLearner": (ma.DRLearner, lambda w: dict(model=w.posterior, clip=0.01)),
    "LogarithmicSmoothingLearner": (ma.LogarithmicSmoothingLearner, lambda w: dict(parameter=0.5)),
    "MIPSLearner": (ma.MIPSLearner, lambda w: dict(clusters=np.arange(6) % 3, clip=0.01)),
    "PolicyConvolutionLearner": (
        ma.PolicyConvolutionLearner, lambda w: dict(embeddings=w.embeddings, k=2, clip=0.01)),
}  # fmt: skip


def _learners() -> Iterator[HostileCall]:
    for name, (made, arguments) in _LEARNERS.items():
        quick = ma.Training(learners.LBFGS(5))
        yield _call(name, made, lambda w, arguments=arguments: dict(
            training=ma.Training(learners.LBFGS(5)), **arguments(w)), clusters="groups")  # fmt: skip
        owner: Callable[[HostileWorld], Any] = lambda w, made=made, arguments=arguments, quick=quick: made(  # noqa: E731
            training=quick, **arguments(w)
        )
        every: Callable[[HostileWorld], Any] = lambda w: [list(range(6))] * 40  # noqa: E731
        yield _method(f"{name}.learn", owner, lambda w: dict(logs=w.clicked, eligible=every(w)))
        yield _method(f"{name}.objective", owner, lambda w: dict(policy=w.softmax, logs=w.clicked, eligible=every(w)))
    yield _call("DMLearner", ma.DMLearner, lambda w: dict(
        prior=w.prior, likelihood=ma.Gaussian(), policy=ma.Greedy, name="mine"))  # fmt: skip
    yield _method("DMLearner.learn", lambda w: ma.DMLearner(w.prior), lambda w: dict(logs=w.logs))
    yield _call("Training", ma.Training, lambda w: dict(
        optimiser=learners.LBFGS(5), holdout=0.2, patience=2, imitation=0.1, ridge=1e-4, rng=w.rng()))  # fmt: skip
    yield _call("learners.LBFGS", learners.LBFGS, lambda w: dict(max_iterations=5, tolerance=1e-4))
    yield _call("learners.Adam", learners.Adam, lambda w: dict(learning_rate=0.05, n_epochs=2, batch_size=16))


def _decisions() -> Iterator[HostileCall]:
    yield _call("evaluate", ma.evaluate, lambda w: dict(
        policies=dict(w.policies), logs=w.logs, posterior=w.posterior, estimators=[ma.IPS()], contexts=w.contexts,
        pairs=True))  # fmt: skip
    yield _method("Evaluation.probability_better", lambda w: w.evaluation, lambda w: dict(
        first="greedy", second="uniform"))  # fmt: skip
    yield _call("decide", ma.decide, lambda w: dict(
        policies=dict(w.policies), logs=w.logs, posterior=w.posterior, estimators=[ma.IPS()], categories=w.categories,
        sure=0.9, contexts=w.contexts))  # fmt: skip
    yield _call("write_report", ma.write_report, lambda w: dict(
        decision=w.decision, path=w.folder / "report.html", format="html", title="Mine"), path="out")  # fmt: skip
    for chart in ("values", "gains", "probability_better", "agreement"):
        yield HostileCall(
            f"plots.{chart}", lambda w, chart=chart: getattr(ma.plots, chart), lambda w: dict(evaluation=w.evaluation)
        )
    for chart in ("support", "shrinkage", "traffic_changes", "calibration"):
        yield HostileCall(
            f"plots.{chart}", lambda w, chart=chart: getattr(ma.plots, chart),
            lambda w, chart=chart: dict(evidence=getattr(w.held_out_decision, chart)),
        )  # fmt: skip


def _jobs() -> Iterator[HostileCall]:
    names = dict.fromkeys(
        ("action", "reward", "propensity", "weight", "group", "time", "id", "category", "context", "kind"), "column"
    )
    columns = dict(action="item", reward="spend", propensity="p", weight="w", group="user", time="at")
    catalog: Callable[[HostileWorld], Arguments] = lambda w: dict(  # noqa: E731
        catalog=w.catalog_file, id="sku", category="kind"
    )
    yield _call("read_logs", ma.read_logs, lambda w: dict(
        logs=w.log_file, context=["age", "city"], catalog=w.catalog, missing="refuse", unknown="refuse", max_levels=10,
        **columns), **names)  # fmt: skip
    yield _call("read_catalog", ma.read_catalog, lambda w: dict(
        catalog=w.catalog_file, id="sku", category="kind", embedding=["size"]), **names)  # fmt: skip
    yield _call("jobs.fit_files", jobs.fit_files, lambda w: dict(
        logs=w.log_file, context=["age", "city"], out=w.folder / "fitted", seed=0, engine="local",
        prior="categories", **columns, **catalog(w)), out="out", **names)  # fmt: skip
    yield _call("jobs.update_files", jobs.update_files, lambda w: dict(
        model=w.model_file, logs=w.new_log_file, out=w.folder / "updated", allow_repeats=False, **columns),
        out="out", **names)  # fmt: skip
    yield _call("jobs.evaluate_files", jobs.evaluate_files, lambda w: dict(
        logs=w.new_log_file, model=w.model_file, seed=0, policies=["greedy"], estimators=["ips"], **columns),
        **names)  # fmt: skip
    yield _call("jobs.learn_policy", jobs.learn_policy, lambda w: dict(
        model=w.model_file, policy="greedy", seed=0, out=w.folder / "learned"), out="out")  # fmt: skip
    yield _call("score", ma.score, lambda w: dict(
        model=w.model_file, contexts=w.log_file, out=w.folder / "scores", top_k=2, keep=["user"], missing="refuse",
        engine="local"), out="out")  # fmt: skip
    yield _call("jobs.estimator_named", jobs.estimator_named, lambda w: dict(text="dr", posterior=w.posterior))
    yield _call("jobs.likelihood_named", jobs.likelihood_named, lambda w: dict(kind="gaussian", noise_std=1.0))
    yield _call("jobs.policy_named", jobs.policy_named, lambda w: dict(
        text="thompson:20", posterior=w.posterior, n_actions=6, n_draws=20, rng=w.rng()))  # fmt: skip
    yield _call("jobs.sample_rounds", jobs.sample_rounds, lambda w: dict(
        stream=ma.read_logs(w.log_file, ["age"], "item", "spend", catalog=w.catalog), n=5, rng=w.rng()))  # fmt: skip
    yield _method("LogStream.batches", lambda w: ma.read_logs(
        w.log_file, ["age"], "item", "spend", catalog=w.catalog), lambda w: dict(size=7))  # fmt: skip
    yield _call("engines.as_engine", ma.engines.as_engine, lambda w: dict(engine="local"))


def _worlds() -> Iterator[HostileCall]:
    yield _call("datasets.SyntheticProblem", datasets.SyntheticProblem, lambda w: dict(
        n_actions=6, dim=3, latent_dim=2, latent_var=3.0, action_var=1.0, noise_std=1.0, binary=False))  # fmt: skip
    synthetic: Callable[[HostileWorld], Any] = lambda w: w.synthetic  # noqa: E731
    yield _method("datasets.SyntheticProblem.draw_contexts", synthetic, lambda w: dict(rng=w.rng(), n=5))
    yield _method("datasets.SyntheticProblem.draw_prior", synthetic, lambda w: dict(rng=w.rng()))
    yield _method("datasets.SyntheticProblem.draw_environment", synthetic, lambda w: dict(prior=w.prior, rng=w.rng()))
    yield _method("datasets.SyntheticProblem.misspecified", synthetic, lambda w: dict(
        prior=w.synthetic.draw_prior(w.rng()), level=0.5, means=True, covs=True, rng=w.rng()))  # fmt: skip
    yield _call("datasets.LinearEnvironment", datasets.LinearEnvironment, lambda w: dict(
        weights=w.mixing[..., 0], noise_std=1.0, draw_contexts=w.synthetic.draw_contexts))  # fmt: skip
    for name, owner in (("LinearEnvironment", lambda w: w.environment), ("MatrixEnvironment", lambda w: w.rated)):
        size = 6 if name == "LinearEnvironment" else 12
        yield _method(f"datasets.{name}.contexts", owner, lambda w: dict(n=5, rng=w.rng()))
        yield _method(
            f"datasets.{name}.log", owner, lambda w, size=size: dict(policy=ma.Uniform(size), n=5, rng=w.rng())
        )
        yield _method(f"datasets.{name}.value", owner, lambda w, owner=owner, size=size: dict(
            policy=ma.Uniform(size), contexts=owner(w).contexts(5, w.rng())))  # fmt: skip
        yield _method(f"datasets.{name}.optimal_value", owner, lambda w, owner=owner: dict(
            contexts=owner(w).contexts(5, w.rng())))  # fmt: skip
    yield _method("datasets.LinearEnvironment.expected_reward", lambda w: w.environment, lambda w: dict(
        contexts=w.few, actions=w.few_actions))  # fmt: skip
    for method in ("values", "value"):
        yield _method(f"datasets.LinearEnvironment.{method}", lambda w: w.environment, lambda w: dict(
            policy=w.uniform, contexts=w.few, eligible=w.eligible))  # fmt: skip
    yield _method("datasets.MatrixEnvironment.eligible", lambda w: w.rated, lambda w: dict(users=w.few_actions))
    yield _call("datasets.MatrixEnvironment", datasets.MatrixEnvironment, lambda w: dict(
        matrix=w.ratings, features=w.ratings[:, :3], test_users=np.arange(20, 30), noise_std=0.5))  # fmt: skip
    yield _call("datasets.ClassificationEnvironment", datasets.ClassificationEnvironment, lambda w: dict(
        features=w.contexts, labels=w.actions, test_share=0.5, noise_std=0.5, rng=w.rng()), labels="groups")  # fmt: skip
    yield _call("datasets.Shop", datasets.Shop, lambda w: dict(
        n_items=20, n_categories=4, n_rounds=100, n_days=5, mean_margin=0.3, category_std=0.04, item_std=0.03,
        noise_std=0.8, popularity_exponent=1.6, fashion_std=0.7, eagerness=12.5))  # fmt: skip
    shop: Callable[[HostileWorld], Any] = lambda w: datasets.Shop(20, 4, 100, 5)  # noqa: E731
    yield _method("datasets.Shop.draw", shop, lambda w: dict(rng=w.rng()))
    yield _method("datasets.Shop.prior", shop, lambda w: dict(categories=np.arange(20) % 4), categories="groups")
    yield _call("datasets.factorise", datasets.factorise, lambda w: dict(matrix=w.ratings, rank=2, rng=w.rng()))
    yield _call(
        "datasets.split_cells", datasets.split_cells, lambda w: dict(matrix=sparse.csr_array(w.ratings), rng=w.rng())
    )
    yield _call("datasets.jester_world", datasets.jester_world, lambda w: dict(
        matrix=w.ratings, rank=2, n_actions=5, n_prior_users=10, test_share=0.5, rng=w.rng()))  # fmt: skip
    yield _call("datasets.kuairec_world", datasets.kuairec_world, lambda w: dict(
        log_matrix=sparse.csr_array(w.ratings), prior_matrix=sparse.csr_array(w.ratings), categories=[[k % 3] for k in range(12)], rank=2, test_share=0.5,
        rng=w.rng()), categories="labels")  # fmt: skip
    for name in ("jester", "kuairec", "movielens", "open_bandit"):
        yield _call(f"datasets.load_{name}", getattr(datasets, f"load_{name}"), lambda w: dict(path=w.folder / "none"))


def _theory() -> Iterator[HostileCall]:
    yield _call("theory.BayesianProblem", theory.BayesianProblem, lambda w: dict(
        prior=w.prior, draw_contexts=w.synthetic.draw_contexts, noise_std=1.0, logging_policy=w.uniform))  # fmt: skip
    yield _method("theory.BayesianProblem.draw", lambda w: w.bayesian, lambda w: dict(n_rounds=5, rng=w.rng()))
    yield _call("theory.IsotropicModel", theory.IsotropicModel, lambda w: dict(
        dim=3, noise_std=1.0, action_std=1.0, latent_std=1.0, smallest_eigenvalue=0.25, moment_ratio=1.5))  # fmt: skip
    yield _call("theory.bayes_mse", theory.bayes_mse, lambda w: dict(
        problem=w.bayesian, contexts=w.few, actions=w.few_actions, n_rounds=5, rng=w.rng(), fit_prior=w.prior,
        n_instances=2))  # fmt: skip
    yield _call("theory.bayes_suboptimality", theory.bayes_suboptimality, lambda w: dict(
        problem=w.bayesian, n_rounds=5, rng=w.rng(), fit_prior=w.prior, n_instances=2, n_contexts=3))  # fmt: skip
    yield _call("theory.confidence_radius", theory.confidence_radius, lambda w: dict(dim=3, delta=0.1))
    yield _call("theory.corrected_bound", theory.corrected_bound, lambda w: dict(
        n_actions=6, expected_squared_norm=1.0))  # fmt: skip
    for name in ("explicit_bound", "explicit_squared_norm"):
        yield _call(f"theory.{name}", getattr(theory, name), lambda w: dict(
            model=w.isotropic, n_rounds=10, optimal_propensities=np.full(5, 0.25)))  # fmt: skip
    yield _call("theory.theorem_1_bound", theory.theorem_1_bound, lambda w: dict(dim=3, expected_norm=1.0))


def _experiments() -> Iterator[HostileCall]:
    yield _call("experiments.Synthetic", experiments.Synthetic, lambda w: dict(
        n_actions=6, latent_dim=2, dim=3, logging="uniform", binary=False, target="best"))  # fmt: skip
    yield _method("experiments.Synthetic.draw", lambda w: w.problem, lambda w: dict(rng=w.rng()))
    yield _call("experiments.Store", experiments.Store, lambda w: dict(folder=w.folder / "store"), folder="out")
    yield _call("experiments.compute", experiments.compute, lambda w: dict(
        problem=w.problem, method=experiments.METHODS["IPS"], kind="ope", n=20, instance=0))  # fmt: skip


def _bridges() -> Iterator[HostileCall]:
    obp = importlib.import_module("manyarms.integrations.obp")
    bridge = importlib.import_module("manyarms.integrations.sklearn")
    yield _call("obp.logs", obp.logs, lambda w: dict(feedback=dict(
        context=w.contexts, action=w.actions, reward=w.rewards, n_actions=6)))  # fmt: skip
    yield _call("obp.feedback", obp.feedback, lambda w: dict(logs=w.clicked, expected_reward=w.table))
    yield _call("obp.action_dist", obp.action_dist, lambda w: dict(
        policy=w.softmax, contexts=w.few, eligible=w.eligible, len_list=2))  # fmt: skip
    yield _call("obp.policy", obp.policy, lambda w: dict(action_dist=w.table[..., None]))
    yield _call("obp.estimated_rewards", obp.estimated_rewards, lambda w: dict(
        posterior=w.posterior, contexts=w.few, len_list=2))  # fmt: skip
    yield _call("obp.reward_model", obp.reward_model, lambda w: dict(estimated_rewards=w.table[..., None]))
    fitted: Callable[[HostileWorld], Any] = lambda w: bridge.SDMRegressor(n_actions=6).fit(  # noqa: E731
        w.contexts, w.rewards, w.actions
    )
    yield _method("sklearn.SDMRegressor.fit", lambda w: bridge.SDMRegressor(n_actions=6), lambda w: dict(
        X=w.contexts, y=w.rewards, action=w.actions, sample_weight=w.weights))  # fmt: skip
    yield _method("sklearn.SDMRegressor.predict", fitted, lambda w: dict(X=w.few, action=w.few_actions))
    yield _method("sklearn.SDMRegressor.score", fitted, lambda w: dict(X=w.contexts, y=w.rewards, action=w.actions))


def every_call() -> tuple[HostileCall, ...]:
    """All entry points, in a fixed order."""
    parts = (
        _core, _priors, _fits, _likelihoods, _posteriors, _policies, _estimators, _learners, _decisions, _jobs, _worlds,
        _theory, _experiments, _bridges,
    )  # fmt: skip
    return tuple(call for part in parts for call in part())
