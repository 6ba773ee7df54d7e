"""Valid calls of data types, priors, fits and posteriors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import manyarms as ma
from manyarms import nonlinear, theory
from trust.hostile_call import Arguments, HostileCall, make_call, make_method
from trust.hostile_world import HostileWorld


def core_calls() -> Iterator[HostileCall]:
    """Data types of the core."""
    yield make_call("LoggedData", ma.LoggedData, lambda w: dict(
        contexts=w.contexts, actions=w.actions, rewards=w.rewards, propensities=w.propensities, n_actions=6,
        weights=w.weights, groups=w.groups, times=np.arange(40.0), segments=w.groups % 2))  # fmt: skip
    yield make_call("LoggedData", ma.LoggedData, lambda w: dict(
        contexts=w.contexts, actions=w.actions, rewards=w.rewards, n_actions=6, logging_policy=w.uniform,
        catalog=w.catalog))  # fmt: skip
    yield make_method("LoggedData.split", lambda w: w.logs, lambda w: dict(fraction=0.5, by="row", rng=w.rng()))
    yield make_method("LoggedData.take", lambda w: w.logs, lambda w: dict(rows=w.few_actions))
    yield make_method("LoggedData.with_segments", lambda w: w.logs, lambda w: dict(segments=w.groups % 2))
    yield make_method(
        "LoggedData.with_eligible",
        lambda w: w.logs,
        lambda w: dict(eligible=np.ones((len(w.logs), w.logs.n_actions), dtype=bool)),
    )
    yield make_method("LoggedData.batches", lambda w: w.logs, lambda w: dict(size=7))
    yield make_call("Catalog", ma.Catalog, lambda w: dict(
        ids=w.ids, categories=w.categories, tags=w.tags, paths=[["t", name] for name in w.categories],
        embeddings=w.embeddings), tags="labels", paths="labels")  # fmt: skip
    yield make_method("Catalog.numbers", lambda w: w.catalog, lambda w: dict(ids=w.ids[:3]))
    yield make_method("Catalog.name_of", lambda w: w.catalog, lambda w: dict(action=2))
    yield make_method("Catalog.find", lambda w: w.catalog, lambda w: dict(ids=w.ids[:3]))
    yield make_method(
        "Catalog.grown_with",
        lambda w: ma.Catalog(w.ids, categories=w.categories),
        lambda w: dict(other=w.longer_catalog),
    )
    yield make_call("EffectGroup", ma.EffectGroup, lambda w: dict(name="kinds", count=3, part_dim=3, has_mean=True))
    yield make_call("Estimate", ma.Estimate, lambda w: dict(value=1.0, std=0.5))
    yield make_method("Estimate.interval", lambda w: ma.Estimate(1.0, 0.5), lambda w: dict(level=0.9, of="population"))
    yield make_method("Estimate.record", lambda w: ma.Estimate(1.0, 0.5), lambda w: dict(level=0.9))
    yield make_call("FeatureMap", ma.FeatureMap, lambda w: dict(features=[], intercept=True))
    yield make_method("FeatureMap.from_json", lambda w: ma.FeatureMap, lambda w: dict(data=ma.FeatureMap([]).as_json()))
    yield make_call("HierarchicalGaussian", ma.HierarchicalGaussian, lambda w: dict(
        latent_mean=np.zeros(2), latent_cov=np.eye(2), mixing=w.mixing, action_cov=np.eye(3),
        offset=np.zeros(3)))  # fmt: skip
    prior_methods: dict[str, Callable[[HostileWorld], Arguments]] = {
        "action_cov": lambda w: dict(actions=w.few_actions),
        "action_mean": lambda w: dict(actions=w.few_actions),
        "cross_cov": lambda w: dict(left=w.few_actions, right=w.few_actions),
        "sample": lambda w: dict(rng=w.rng(), size=2, actions=w.few_actions),
    }
    for name, arguments in prior_methods.items():
        yield make_method(f"HierarchicalGaussian.{name}", lambda w: w.prior, arguments)
    yield make_method("HierarchicalGaussian.with_actions", lambda w: ma.HierarchicalGaussian(
        np.zeros(2), np.eye(2), w.mixing, 1.0), lambda w: dict(mixing=w.mixing[:2], action_cov=np.eye(3)))  # fmt: skip
    yield make_call("MixedEffects", ma.MixedEffects, lambda w: dict(weights=np.eye(6)[:, :3], dim=3))
    yield make_method("Statistics.empty", lambda w: ma.Statistics, lambda w: dict(n_actions=6, dim=3))
    yield make_method("Statistics.with_actions", lambda w: w.posterior.statistics, lambda w: dict(n_actions=9))


def prior_calls() -> Iterator[HostileCall]:
    """Builders of priors."""
    scales = dict(effect_std=1.0, action_std=0.5, shared_std=1.0)
    p = ma.priors
    yield make_call(
        "priors.from_categories", p.from_categories, lambda w: dict(categories=w.categories, dim=3, **scales)
    )
    yield make_call("priors.from_tags", p.from_tags, lambda w: dict(tags=w.tags, dim=3, normalise=True, **scales),
                tags="labels")  # fmt: skip
    yield make_call("priors.from_taxonomy", p.from_taxonomy, lambda w: dict(
        paths=[["t", name] for name in w.categories], dim=3, **(scales | {"effect_std": np.array([0.5, 0.25])})),
        paths="labels")  # fmt: skip
    yield make_call("priors.from_embeddings", p.from_embeddings, lambda w: dict(
        embeddings=w.embeddings, n_components=2, dim=3, rng=w.rng(), method="gmm", action_variance="shared",
        max_rows=100, max_components=3, variance_floor=1e-6, **scales))  # fmt: skip
    yield make_call("priors.linear_in_embeddings", p.linear_in_embeddings, lambda w: dict(
        embeddings=w.embeddings, dim=3, scale=True, **scales))  # fmt: skip
    yield make_call("priors.low_rank", p.low_rank, lambda w: dict(
        basis=w.mixing[0], n_actions=6, latent_mean=np.zeros(2), **scales))  # fmt: skip
    yield make_call("priors.from_joint", p.from_joint, lambda w: dict(
        mean=np.zeros(6), cov=np.eye(6), n_actions=3, rank=2))  # fmt: skip
    yield make_call(
        "priors.independent", p.independent, lambda w: dict(n_actions=6, mean=np.zeros(3), cov=np.eye(3), dim=3)
    )
    yield make_call("priors.ridge", p.ridge, lambda w: dict(n_actions=6, dim=3, penalty=1.0, noise_std=1.0))
    yield make_call("priors.from_catalog", p.from_catalog, lambda w: dict(
        catalog=w.catalog, kind="categories", dim=3, rng=w.rng(), **scales))  # fmt: skip
    yield make_call(
        "priors.new_actions", p.new_actions, lambda w: dict(prior=w.catalog_prior, catalog=w.longer_catalog)
    )


def fit_calls() -> Iterator[HostileCall]:
    """Fits, and what learns or checks a prior."""
    yield make_call("fit", ma.fit, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), start=w.posterior, max_iterations=20, tolerance=1e-4,
        engine="local"))  # fmt: skip
    yield make_call("fit", ma.fit, lambda w: dict(
        logs=w.clicked, prior=w.prior, likelihood=ma.Bernoulli(), max_iterations=20, tolerance=1e-4,
        device="cpu"))  # fmt: skip
    yield make_call("fit_sharded", ma.fit_sharded, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), out=w.folder / "fresh"), out="out")  # fmt: skip
    yield make_call("condition", ma.condition, lambda w: dict(
        prior=w.prior, statistics=w.posterior.statistics, noise_std=1.0))  # fmt: skip
    yield make_call("fit_nonlinear", ma.fit_nonlinear, lambda w: dict(
        logs=w.logs, hierarchy=w.hierarchy, likelihood=ma.Gaussian(), start=np.zeros(2), max_iterations=20,
        tolerance=1e-6))  # fmt: skip
    yield make_call("sample_posterior", ma.sample_posterior, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), n_draws=10, rng=w.rng(), warmup=5, thin=1,
        n_chains=2))  # fmt: skip
    yield make_call("NonlinearHierarchy", ma.NonlinearHierarchy, lambda w: dict(
        latent_mean=np.zeros(2), latent_cov=np.eye(2), function=w.centres, action_cov=np.eye(3), n_actions=6,
        dim=3))  # fmt: skip
    yield make_method("NonlinearHierarchy.sample", lambda w: w.hierarchy, lambda w: dict(
        rng=w.rng(), size=2, actions=w.few_actions))  # fmt: skip
    yield make_method("NonlinearHierarchy.linearised", lambda w: w.hierarchy, lambda w: dict(latent=np.zeros(2)))
    yield make_call("chain", ma.chain, lambda w: dict(
        latent_mean=np.zeros(2), latent_cov=np.eye(2), layers=[w.layer()], function=w.centres, action_cov=np.eye(3),
        n_actions=6, dim=3))  # fmt: skip
    yield make_method("nonlinear.NonlinearPosterior.refit", lambda w: ma.fit_nonlinear(
        w.logs, w.hierarchy), lambda w: dict(
        logs=w.logs))  # fmt: skip
    yield make_call("nonlinear.Layer", nonlinear.Layer, lambda w: dict(function=np.tanh, cov=np.eye(2), size=2))
    yield make_call("learn_prior", ma.learn_prior, lambda w: dict(
        logs=w.logs, prior=w.prior, likelihood=ma.Gaussian(), effect_cov="scale", action_cov="scale",
        means="integrated", learn_noise=True, avoid_boundary=True, max_iterations=20), effect_cov="name")  # fmt: skip
    yield make_method("LearnedPrior.averaged", lambda w: w.learned, lambda w: dict(n_draws=4, rng=w.rng()))
    yield make_call("compare_priors", ma.compare_priors, lambda w: dict(
        logs=w.logs, priors=[w.prior, ma.priors.independent(6, dim=3)], likelihood=ma.Gaussian(), learn=False,
        n_folds=2, rng=w.rng()))  # fmt: skip
    yield make_call("check_prior", ma.check_prior, lambda w: dict(posterior=w.posterior))
    yield make_call("check_categories", ma.check_categories, lambda w: dict(
        posterior=w.posterior, logs=w.logs, categories=w.categories, level=0.9))  # fmt: skip
    yield make_call("prior_sensitivity", ma.prior_sensitivity, lambda w: dict(
        posterior=w.posterior, policy=w.greedy, contexts=w.few, baseline=w.uniform, eligible=w.eligible,
        weights=w.weights[:5], logs=w.logs))  # fmt: skip
    yield make_call("load", ma.load, lambda w: dict(path=w.model_file))


def likelihood_calls() -> Iterator[HostileCall]:
    """Likelihoods."""
    yield make_call("Gaussian", ma.Gaussian, lambda w: dict(noise_std=1.0))
    yield make_call("LogNormal", ma.LogNormal, lambda w: dict(noise_std=1.0))
    yield make_call("StudentT", ma.StudentT, lambda w: dict(scale=1.0, degrees=4.0, treatment="variational"))
    yield make_call("Bernoulli", ma.Bernoulli, lambda w: dict(treatment="variational", expected="quadrature"))
    yield make_call("Poisson", ma.Poisson, lambda w: dict(treatment="variational"))
    yield make_call("Hurdle", ma.Hurdle, lambda w: dict(occurs=ma.Bernoulli(), amount=ma.LogNormal()))


def posterior_calls() -> Iterator[HostileCall]:
    """Methods of every kind of posterior."""
    owners: dict[str, Callable[[HostileWorld], Any]] = {
        "RewardPosterior": lambda w: w.posterior,
        "RewardPosterior.": lambda w: w.click_posterior,
        "HurdlePosterior": lambda w: w.hurdle_posterior,
        "AveragedPosterior": lambda w: w.averaged,
        "ShardedPosterior": lambda w: w.sharded,
        "nonlinear.PosteriorDraws": lambda w: w.draws,
    }

    def options(w: HostileWorld) -> Arguments:
        return dict(contexts=w.few, eligible=w.eligible, weights=w.weights[:5], groups=w.groups[:5])

    for name, owner in owners.items():
        kind = name.removesuffix(".")
        for method in ("expected_reward", "reward_std"):
            yield make_method(f"{kind}.{method}", owner, lambda w: dict(contexts=w.few, actions=w.few_actions))
        yield make_method(f"{kind}.value", owner, lambda w: dict(policy=w.softmax, **options(w)))
        for method in ("difference", "lift"):
            yield make_method(f"{kind}.{method}", owner, lambda w: dict(
                policy=w.softmax, baseline=w.uniform, **options(w)))  # fmt: skip
        yield make_method(f"{kind}.value_draws", owner, lambda w: dict(
            policy=w.softmax, n_draws=20, rng=w.rng(), baseline=w.uniform, **options(w)))  # fmt: skip
    posterior: Callable[[HostileWorld], Any] = lambda w: w.posterior  # noqa: E731
    new: Callable[[HostileWorld], ma.LoggedData] = lambda w: w.logs.with_rewards(w.rewards + 1.0)  # noqa: E731
    yield make_method(
        "RewardPosterior.update", posterior, lambda w: dict(logs=new(w), allow_repeats=True, engine="local")
    )
    yield make_method("RewardPosterior.refit", posterior, lambda w: dict(logs=new(w), engine="local"))
    yield make_method("RewardPosterior.summary", posterior, lambda w: dict(actions=np.array([0, 2])))
    yield make_method("ItemVectors.queries", lambda w: w.posterior.item_vectors(), lambda w: dict(contexts=w.few))
    yield make_method("RewardPosterior.discounted", posterior, lambda w: dict(share=0.5))
    yield make_method("RewardPosterior.with_actions", lambda w: ma.fit(w.logs, ma.HierarchicalGaussian(
        np.zeros(2), np.eye(2), w.mixing, 1.0)), lambda w: dict(mixing=w.mixing[:2], action_cov=np.eye(3)))  # fmt: skip
    yield make_method("RewardPosterior.save", posterior, lambda w: dict(path=w.folder / "saved"), path="out")
    yield make_method("HurdlePosterior.update", lambda w: w.hurdle_posterior, lambda w: dict(logs=w.clicked))
    yield make_method("HurdlePosterior.refit", lambda w: w.hurdle_posterior, lambda w: dict(logs=w.clicked))
    yield make_method("HurdlePosterior.with_actions", lambda w: w.hurdle_posterior, lambda w: dict(
        mixing=ma.MixedEffects(np.eye(6)[:2, :3], 3), action_cov=1.0))  # fmt: skip
    yield make_method("ShardedPosterior.action_cov", lambda w: w.sharded, lambda w: dict(actions=w.few_actions))
    yield make_call("theory.bayesian_width", theory.bayesian_width, lambda w: dict(
        posterior=w.posterior, contexts=w.few, actions=w.few_actions, delta=0.1))  # fmt: skip
    yield make_call("theory.frequentist_width", theory.frequentist_width, lambda w: dict(
        posterior=w.posterior, contexts=w.few, actions=w.few_actions, weight_norms=np.ones(5), delta=0.1))  # fmt: skip
    yield make_call("theory.mse_bound", theory.mse_bound, lambda w: dict(
        posterior=w.posterior, contexts=w.few, actions=w.few_actions))  # fmt: skip
