"""A small valid world that hostile calls start from: logs, priors, posteriors, policies, a catalog and files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import manyarms as ma
from manyarms import experiments, theory
from manyarms.nonlinear import Layer

N_ROUNDS, N_ACTIONS, DIM = 40, 6, 3


class HostileWorld:
    """Valid arguments for every public call; numbers are multiples of 1/64, so that float32 holds them exactly."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(20240601)
        self.folder = folder
        self.contexts = _coarse(rng.normal(size=(N_ROUNDS, DIM)))
        self.actions = rng.integers(N_ACTIONS - 1, size=N_ROUNDS)
        self.rewards = _coarse(rng.normal(size=N_ROUNDS))
        self.clicks = (rng.random(N_ROUNDS) < 0.4).astype(float)
        self.propensities = np.full(N_ROUNDS, 0.25)
        self.weights = _coarse(rng.uniform(0.5, 2.0, N_ROUNDS))
        self.groups = np.arange(N_ROUNDS) // 2
        self.few = self.contexts[:5]
        self.few_actions = self.actions[:5]
        self.embeddings = _coarse(rng.normal(size=(N_ACTIONS, 2)))
        self.table = np.tile(np.array([0.5, 0.25, 0.125, 0.0625, 0.0625, 0.0]), (N_ROUNDS, 1))
        self.eligible = [[0, 1, 2, 3, 4, 5], [1, 2], [3], [0, 5], [4, 2]]
        self.categories = ["tea", "mug", "pot", "tea", "mug", "pot"]
        self.ids = ["a", "b", "c", "d", "e", "f"]
        self.tags = [["x"], ["x", "y"], ["y"], ["z"], ["z", "x"], ["y"]]
        self.mixing = _coarse(rng.normal(size=(N_ACTIONS, DIM, 2)))
        self.ratings = np.round(rng.uniform(1, 5, size=(30, 12)))

    def rng(self) -> np.random.Generator:
        """A generator that always starts at the same place."""
        return np.random.default_rng(7)

    @cached_property
    def logs(self) -> ma.LoggedData:
        """Rounds with every column."""
        return ma.LoggedData(
            self.contexts, self.actions, self.rewards, self.propensities, N_ACTIONS,
            weights=self.weights, groups=self.groups, times=np.arange(float(N_ROUNDS)),
        )  # fmt: skip

    @cached_property
    def clicked(self) -> ma.LoggedData:
        """Rounds with rewards of 0 and 1."""
        return ma.LoggedData(self.contexts, self.actions, self.clicks, self.propensities, N_ACTIONS)

    @cached_property
    def prior(self) -> ma.HierarchicalGaussian:
        """A prior with category effects."""
        return ma.priors.from_categories(self.categories, dim=DIM)

    @cached_property
    def catalog(self) -> ma.Catalog:
        """A catalog with every column."""
        paths = [["top", name] for name in self.categories]
        return ma.Catalog(self.ids, categories=self.categories, tags=self.tags, paths=paths, embeddings=self.embeddings)

    @cached_property
    def catalog_prior(self) -> ma.HierarchicalGaussian:
        """The prior of the categories of the catalog."""
        return ma.priors.from_catalog(self.catalog, "categories", dim=DIM)

    @cached_property
    def longer_catalog(self) -> ma.Catalog:
        """The catalog with a new action of a known category."""
        return ma.Catalog([*self.ids, "g"], categories=[*self.categories, "tea"])

    @cached_property
    def posterior(self) -> ma.RewardPosterior:
        """A Gaussian posterior."""
        fitted = ma.fit(self.logs, self.prior)
        assert isinstance(fitted, ma.RewardPosterior)
        return fitted

    @cached_property
    def click_posterior(self) -> Any:
        """A posterior of click rates."""
        return ma.fit(self.clicked, self.prior, ma.Bernoulli())

    @cached_property
    def hurdle_posterior(self) -> Any:
        """A posterior of rare positive rewards."""
        return ma.fit(self.clicked, (self.prior, self.prior), ma.Hurdle())

    @cached_property
    def learned(self) -> ma.LearnedPrior:
        """A learned prior."""
        return ma.learn_prior(self.logs, self.prior)

    @cached_property
    def averaged(self) -> Any:
        """A posterior averaged over priors."""
        return self.learned.averaged(8, rng=self.rng())

    @cached_property
    def draws(self) -> Any:
        """Draws from a posterior."""
        return ma.sample_posterior(self.logs, self.prior, n_draws=40, warmup=20, n_chains=2, rng=self.rng())

    @cached_property
    def sharded(self) -> Any:
        """A posterior that lives in a folder."""
        return ma.fit_sharded(self.logs, self.prior, out=self.folder / "shards")

    @cached_property
    def greedy(self) -> ma.Policy:
        """The greedy policy."""
        return ma.Greedy(self.posterior)

    @cached_property
    def uniform(self) -> ma.Policy:
        """The uniform policy."""
        return ma.Uniform(N_ACTIONS)

    @cached_property
    def softmax(self) -> ma.Policy:
        """A softmax policy with weights of its own."""
        return ma.LinearSoftmax(self.prior.action_mean() + 0.5)

    @cached_property
    def policies(self) -> dict[str, ma.Policy]:
        """Two policies by name."""
        return {"greedy": self.greedy, "uniform": self.uniform}

    @cached_property
    def evaluation(self) -> ma.Evaluation:
        """An evaluation of both policies."""
        return ma.evaluate(self.policies, self.logs, self.posterior, estimators=[ma.IPS()], pairs=True)

    @cached_property
    def decision(self) -> ma.Decision:
        """A decision about both policies."""
        return ma.decide(self.policies, self.logs, self.posterior, categories=self.categories)

    @cached_property
    def held_out_decision(self) -> ma.Decision:
        """A decision on rounds that the posterior was not fitted on."""
        later = ma.LoggedData(
            self.contexts[::-1] / 2, self.actions, self.rewards, self.propensities, N_ACTIONS,
            times=np.arange(float(N_ROUNDS)),
        )  # fmt: skip
        return ma.decide(self.policies, later, self.posterior, categories=self.categories)

    @cached_property
    def hierarchy(self) -> ma.NonlinearHierarchy:
        """A hierarchy that is not linear."""
        return ma.NonlinearHierarchy(np.zeros(2), 1.0, self.centres, 0.5, N_ACTIONS, DIM)

    def centres(self, latent: Any, actions: Any) -> Any:
        """The centres of θ_a given ψ."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.tanh(self.mixing[actions] @ latent)

    def layer(self) -> Layer:
        """A latent layer on top of another."""
        return Layer(np.tanh, 0.5, 2)

    @cached_property
    def synthetic(self) -> Any:
        """A synthetic problem."""
        return ma.datasets.SyntheticProblem(N_ACTIONS, DIM, 2)

    @cached_property
    def bayesian(self) -> theory.BayesianProblem:
        """A problem drawn from a prior."""
        return theory.BayesianProblem(self.prior, self.synthetic.draw_contexts)

    @cached_property
    def problem(self) -> experiments.Problem:
        """A problem of the experiments."""
        return experiments.Synthetic(N_ACTIONS, 2, DIM)

    @cached_property
    def environment(self) -> Any:
        """A world whose weights are known."""
        return ma.datasets.LinearEnvironment(self.posterior.weights.action_mean(), 1.0, self.synthetic.draw_contexts)

    @cached_property
    def rated(self) -> Any:
        """A world whose rewards are a matrix."""
        features = np.column_stack([self.ratings[:, :2], np.arange(30) / 32])
        return ma.datasets.MatrixEnvironment(self.ratings, features, np.arange(20, 30))

    @cached_property
    def isotropic(self) -> theory.IsotropicModel:
        """The model of the explicit bounds."""
        return theory.IsotropicModel(DIM, 1.0, 1.0, 1.0, 0.25, 1.5)

    @cached_property
    def log_table(self) -> pa.Table:
        """The rounds as a table with ids, names and times."""
        start = datetime(2024, 1, 1, tzinfo=UTC)
        return pa.table(
            {
                "age": self.contexts[:, 0],
                "city": ["Oslo" if x > 0 else "Riga" for x in self.contexts[:, 1]],
                "item": [self.ids[action] for action in self.actions],
                "spend": self.rewards,
                "click": self.clicks,
                "p": self.propensities,
                "w": self.weights,
                "user": [f"u{group}" for group in self.groups],
                "at": [start + timedelta(hours=row) for row in range(N_ROUNDS)],
            }
        )

    @cached_property
    def catalog_table(self) -> pa.Table:
        """The catalog as a table."""
        return pa.table({"sku": self.ids, "kind": self.categories, "size": np.arange(6.0)})

    @cached_property
    def log_file(self) -> Path:
        """The rounds in Parquet."""
        return self._written("logs.parquet", self.log_table)

    @cached_property
    def new_log_file(self) -> Path:
        """Other rounds in CSV."""
        path = self.folder / "new.csv"
        pyarrow.csv.write_csv(self.log_table.slice(0, 25), path)
        return path

    @cached_property
    def catalog_file(self) -> Path:
        """The catalog in Parquet."""
        return self._written("items.parquet", self.catalog_table)

    @cached_property
    def model_file(self) -> Path:
        """A model fitted on the rounds in Parquet."""
        path = self.folder / "model.arrow"
        ma.jobs.fit_files(
            self.log_file, ["age", "city"], "item", "spend", "p",
            catalog=self.catalog_file, id="sku", category="kind", out=path,
        )  # fmt: skip
        return path

    @cached_property
    def policy_file(self) -> Path:
        """The greedy policy of the model."""
        path = self.folder / "policy.arrow"
        ma.jobs.learn_policy(self.model_file, out=path)
        return path

    def _written(self, name: str, table: pa.Table) -> Path:
        pq.write_table(table, self.folder / name)
        return self.folder / name


def _coarse(values: np.ndarray) -> np.ndarray:
    return np.round(values * 64) / 64


@cache
def hostile_world() -> HostileWorld:
    """The world of this process; its folder is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return HostileWorld(folder)
