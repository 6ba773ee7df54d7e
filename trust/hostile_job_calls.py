"""Valid calls of jobs, simulated worlds, bounds, experiments and bridges."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

import manyarms as ma
from manyarms import datasets, experiments, jobs, theory
from trust.hostile_call import Arguments, HostileCall, make_call, make_method
from trust.hostile_world import HostileWorld


def job_calls() -> Iterator[HostileCall]:
    """Jobs that read and write files."""
    names = dict.fromkeys(
        ("action", "reward", "propensity", "weight", "group", "time", "id", "category", "context", "kind"), "column"
    )
    columns = dict(action="item", reward="spend", propensity="p", weight="w", group="user", time="at")
    catalog: Callable[[HostileWorld], Arguments] = lambda w: dict(  # noqa: E731
        catalog=w.catalog_file, id="sku", category="kind"
    )
    yield make_call("read_logs", ma.read_logs, lambda w: dict(
        logs=w.log_file, context=["age", "city"], catalog=w.catalog, missing="refuse", unknown="refuse", max_levels=10,
        **columns), **names)  # fmt: skip
    yield make_call("doctor", ma.doctor, lambda w: dict(
        logs=w.log_file, action="item", reward="spend", propensity="p", group="user", time="at", **catalog(w)),
        **names)  # fmt: skip
    yield make_call("explain", ma.explain, lambda w: dict(term="propensity"))
    yield make_call("read_catalog", ma.read_catalog, lambda w: dict(
        catalog=w.catalog_file, id="sku", category="kind", embedding=["size"]), **names)  # fmt: skip
    yield make_call("jobs.fit_files", jobs.fit_files, lambda w: dict(
        logs=w.log_file, context=["age", "city"], out=w.folder / "fitted", seed=0, engine="local",
        prior="categories", **columns, **catalog(w)), out="out", **names)  # fmt: skip
    yield make_call("jobs.update_files", jobs.update_files, lambda w: dict(
        model=w.model_file, logs=w.new_log_file, out=w.folder / "updated", allow_repeats=False, **columns),
        out="out", **names)  # fmt: skip
    yield make_call("jobs.evaluate_files", jobs.evaluate_files, lambda w: dict(
        logs=w.new_log_file, model=w.model_file, seed=0, policies=["greedy"], estimators=["ips"], **columns),
        **names)  # fmt: skip
    yield make_call("jobs.backtest_files", jobs.backtest_files, lambda w: dict(
        logs=w.log_file, context=["age", "city"], level=0.9, false_alarm=0.1, training=1, logged_by="city",
        **columns, **catalog(w)), logged_by="column", **names)  # fmt: skip
    yield make_call("jobs.learn_policy", jobs.learn_policy, lambda w: dict(
        model=w.model_file, policy="greedy", seed=0, out=w.folder / "learned"), out="out")  # fmt: skip
    yield make_call("score", ma.score, lambda w: dict(
        model=w.model_file, contexts=w.log_file, out=w.folder / "scores", top_k=2, keep=["user"], missing="refuse",
        engine="local"), out="out")  # fmt: skip
    yield make_call("jobs.estimator_named", jobs.estimator_named, lambda w: dict(text="dr", posterior=w.posterior))
    yield make_call("jobs.likelihood_named", jobs.likelihood_named, lambda w: dict(kind="gaussian", noise_std=1.0))
    yield make_call("jobs.policy_named", jobs.policy_named, lambda w: dict(
        text="thompson:20", posterior=w.posterior, n_actions=6, n_draws=20, rng=w.rng()))  # fmt: skip
    yield make_call("jobs.sample_rounds", jobs.sample_rounds, lambda w: dict(
        stream=ma.read_logs(w.log_file, ["age"], "item", "spend", catalog=w.catalog), n=5, rng=w.rng()))  # fmt: skip
    yield make_method("LogStream.batches", lambda w: ma.read_logs(
        w.log_file, ["age"], "item", "spend", catalog=w.catalog), lambda w: dict(size=7))  # fmt: skip
    yield make_call("engines.as_engine", ma.engines.as_engine, lambda w: dict(engine="local"))


def environment_calls() -> Iterator[HostileCall]:
    """Simulated worlds and readers of data sets."""
    yield make_call("datasets.SyntheticProblem", datasets.SyntheticProblem, lambda w: dict(
        n_actions=6, dim=3, latent_dim=2, latent_var=3.0, action_var=1.0, noise_std=1.0, binary=False))  # fmt: skip
    synthetic: Callable[[HostileWorld], Any] = lambda w: w.synthetic  # noqa: E731
    yield make_method("datasets.SyntheticProblem.draw_contexts", synthetic, lambda w: dict(rng=w.rng(), n=5))
    yield make_method("datasets.SyntheticProblem.draw_prior", synthetic, lambda w: dict(rng=w.rng()))
    yield make_method(
        "datasets.SyntheticProblem.draw_environment", synthetic, lambda w: dict(prior=w.prior, rng=w.rng())
    )
    yield make_method("datasets.SyntheticProblem.misspecified", synthetic, lambda w: dict(
        prior=w.synthetic.draw_prior(w.rng()), level=0.5, means=True, covs=True, rng=w.rng()))  # fmt: skip
    yield make_call("datasets.LinearEnvironment", datasets.LinearEnvironment, lambda w: dict(
        weights=w.mixing[..., 0], noise_std=1.0, draw_contexts=w.synthetic.draw_contexts))  # fmt: skip
    for name, owner in (("LinearEnvironment", lambda w: w.environment), ("MatrixEnvironment", lambda w: w.rated)):
        size = 6 if name == "LinearEnvironment" else 12
        yield make_method(f"datasets.{name}.contexts", owner, lambda w: dict(n=5, rng=w.rng()))
        yield make_method(
            f"datasets.{name}.log", owner, lambda w, size=size: dict(policy=ma.Uniform(size), n=5, rng=w.rng())
        )
        yield make_method(f"datasets.{name}.value", owner, lambda w, owner=owner, size=size: dict(
            policy=ma.Uniform(size), contexts=owner(w).contexts(5, w.rng())))  # fmt: skip
        yield make_method(f"datasets.{name}.optimal_value", owner, lambda w, owner=owner: dict(
            contexts=owner(w).contexts(5, w.rng())))  # fmt: skip
    yield make_method("datasets.LinearEnvironment.expected_reward", lambda w: w.environment, lambda w: dict(
        contexts=w.few, actions=w.few_actions))  # fmt: skip
    for method in ("values", "value"):
        yield make_method(f"datasets.LinearEnvironment.{method}", lambda w: w.environment, lambda w: dict(
            policy=w.uniform, contexts=w.few, eligible=w.eligible))  # fmt: skip
    yield make_method("datasets.MatrixEnvironment.eligible", lambda w: w.rated, lambda w: dict(users=w.few_actions))
    yield make_call("datasets.MatrixEnvironment", datasets.MatrixEnvironment, lambda w: dict(
        matrix=w.ratings, features=w.ratings[:, :3], test_users=np.arange(20, 30), noise_std=0.5))  # fmt: skip
    yield make_call("datasets.ClassificationEnvironment", datasets.ClassificationEnvironment, lambda w: dict(
        features=w.contexts, labels=w.actions, test_share=0.5, noise_std=0.5, rng=w.rng()),
        labels="groups")  # fmt: skip
    yield make_call("datasets.write_sample_data", datasets.write_sample_data, lambda w: dict(
        out=w.folder / "practice"), out="out folder")  # fmt: skip
    yield make_call("datasets.Shop", datasets.Shop, lambda w: dict(
        n_items=20, n_categories=4, n_rounds=100, n_days=5, mean_margin=0.3, category_std=0.04, item_std=0.03,
        noise_std=0.8, popularity_exponent=1.6, fashion_std=0.7, eagerness=12.5))  # fmt: skip
    shop: Callable[[HostileWorld], Any] = lambda w: datasets.Shop(20, 4, 100, 5)  # noqa: E731
    yield make_method("datasets.Shop.draw", shop, lambda w: dict(rng=w.rng()))
    yield make_method("datasets.Shop.prior", shop, lambda w: dict(categories=np.arange(20) % 4), categories="groups")
    yield make_call("datasets.factorise", datasets.factorise, lambda w: dict(matrix=w.ratings, rank=2, rng=w.rng()))
    yield make_call(
        "datasets.split_cells", datasets.split_cells, lambda w: dict(matrix=sparse.csr_array(w.ratings), rng=w.rng())
    )
    yield make_call("datasets.jester_world", datasets.jester_world, lambda w: dict(
        matrix=w.ratings, rank=2, n_actions=5, n_prior_users=10, test_share=0.5, rng=w.rng()))  # fmt: skip
    yield make_call("datasets.kuairec_world", datasets.kuairec_world, lambda w: dict(
        log_matrix=sparse.csr_array(w.ratings), prior_matrix=sparse.csr_array(w.ratings),
        categories=[[k % 3] for k in range(12)], rank=2, test_share=0.5,
        rng=w.rng()), categories="labels")  # fmt: skip
    for name in ("jester", "kuairec", "movielens", "open_bandit"):
        yield make_call(
            f"datasets.load_{name}", getattr(datasets, f"load_{name}"), lambda w: dict(path=w.folder / "none")
        )


def theory_calls() -> Iterator[HostileCall]:
    """Bounds and Bayes risks."""
    yield make_call("theory.BayesianProblem", theory.BayesianProblem, lambda w: dict(
        prior=w.prior, draw_contexts=w.synthetic.draw_contexts, noise_std=1.0, logging_policy=w.uniform))  # fmt: skip
    yield make_method("theory.BayesianProblem.draw", lambda w: w.bayesian, lambda w: dict(n_rounds=5, rng=w.rng()))
    yield make_call("theory.IsotropicModel", theory.IsotropicModel, lambda w: dict(
        dim=3, noise_std=1.0, action_std=1.0, latent_std=1.0, smallest_eigenvalue=0.25, moment_ratio=1.5))  # fmt: skip
    yield make_call("theory.bayes_mse", theory.bayes_mse, lambda w: dict(
        problem=w.bayesian, contexts=w.few, actions=w.few_actions, n_rounds=5, rng=w.rng(), fit_prior=w.prior,
        n_instances=2))  # fmt: skip
    yield make_call("theory.bayes_suboptimality", theory.bayes_suboptimality, lambda w: dict(
        problem=w.bayesian, n_rounds=5, rng=w.rng(), fit_prior=w.prior, n_instances=2, n_contexts=3))  # fmt: skip
    yield make_call("theory.confidence_radius", theory.confidence_radius, lambda w: dict(dim=3, delta=0.1))
    yield make_call("theory.corrected_bound", theory.corrected_bound, lambda w: dict(
        n_actions=6, expected_squared_norm=1.0))  # fmt: skip
    for name in ("explicit_bound", "explicit_squared_norm"):
        yield make_call(f"theory.{name}", getattr(theory, name), lambda w: dict(
            model=w.isotropic, n_rounds=10, optimal_propensities=np.full(5, 0.25)))  # fmt: skip
    yield make_call("theory.theorem_1_bound", theory.theorem_1_bound, lambda w: dict(dim=3, expected_norm=1.0))


def experiment_calls() -> Iterator[HostileCall]:
    """Experiments."""
    yield make_call("experiments.Synthetic", experiments.Synthetic, lambda w: dict(
        n_actions=6, latent_dim=2, dim=3, logging="uniform", binary=False, target="best"))  # fmt: skip
    yield make_method("experiments.Synthetic.draw", lambda w: w.problem, lambda w: dict(rng=w.rng()))
    yield make_call(
        "experiments.Store", experiments.Store, lambda w: dict(folder=w.folder / "store"), folder="out folder"
    )
    yield make_call("experiments.compute", experiments.compute, lambda w: dict(
        problem=w.problem, method=experiments.METHODS["IPS"], kind="ope", n=20, instance=0))  # fmt: skip


def bridge_calls() -> Iterator[HostileCall]:
    """Bridges to other libraries."""
    obp = importlib.import_module("manyarms.integrations.obp")
    bridge = importlib.import_module("manyarms.integrations.sklearn")
    yield make_call("obp.logs", obp.logs, lambda w: dict(feedback=dict(
        context=w.contexts, action=w.actions, reward=w.rewards, n_actions=6)))  # fmt: skip
    yield make_call("obp.feedback", obp.feedback, lambda w: dict(logs=w.clicked, expected_reward=w.table))
    yield make_call("obp.action_dist", obp.action_dist, lambda w: dict(
        policy=w.softmax, contexts=w.few, eligible=w.eligible, len_list=2))  # fmt: skip
    yield make_call("obp.policy", obp.policy, lambda w: dict(action_dist=w.table[..., None]))
    yield make_call("obp.estimated_rewards", obp.estimated_rewards, lambda w: dict(
        posterior=w.posterior, contexts=w.few, len_list=2))  # fmt: skip
    yield make_call("obp.reward_model", obp.reward_model, lambda w: dict(estimated_rewards=w.table[..., None]))
    fitted: Callable[[HostileWorld], Any] = lambda w: bridge.SDMRegressor(n_actions=6).fit(  # noqa: E731
        w.contexts, w.rewards, w.actions
    )
    yield make_method("sklearn.SDMRegressor.fit", lambda w: bridge.SDMRegressor(n_actions=6), lambda w: dict(
        X=w.contexts, y=w.rewards, action=w.actions, sample_weight=w.weights))  # fmt: skip
    yield make_method("sklearn.SDMRegressor.predict", fitted, lambda w: dict(X=w.few, action=w.few_actions))
    yield make_method("sklearn.SDMRegressor.score", fitted, lambda w: dict(X=w.contexts, y=w.rewards, action=w.actions))
