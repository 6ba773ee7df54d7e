"""The problem that a benchmark times stages on: rounds of a given size, and everything that stages start from."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyarms.bench import plain_forms as plain
from manyarms.core import HierarchicalGaussian, LoggedData, Statistics
from manyarms.likelihoods import Gaussian
from manyarms.posterior import RewardPosterior, fit
from manyarms.priors import from_categories

CATEGORIES, EFFECT_STD, ACTION_STD = 20, 1.0, 0.5


class BenchSize(NamedTuple):
    """The size of a benchmark problem: K, n and d."""

    n_actions: int
    n_rounds: int
    dim: int

    def shared(self, share: float) -> BenchSize:
        """The size with a share of the actions and rounds."""
        return BenchSize(max(2, round(share * self.n_actions)), max(20, round(share * self.n_rounds)), self.dim)


class BenchProblem:
    """Rounds on actions in categories, drawn from the prior, with everything that stages start from."""

    def __init__(self, size: BenchSize, seed: int, folder: Path):
        self.size, self.seed, self.folder = size, seed, folder
        K, n, d = size
        rng = np.random.default_rng(seed)
        self.category = np.r_[
            np.arange(min(CATEGORIES, K)), rng.integers(min(CATEGORIES, K), size=max(0, K - CATEGORIES))
        ]
        self.contexts, self.actions = rng.normal(size=(n, d)), rng.integers(K, size=n)
        effects = EFFECT_STD * rng.normal(size=(CATEGORIES, d))
        # Only the actions that are logged need weights, so that making a problem is cheap for any K.
        seen, where = np.unique(self.actions, return_inverse=True)
        weights = effects[self.category[seen]] + ACTION_STD * rng.normal(size=(len(seen), d))
        self.predictor = np.einsum("nd,nd->n", self.contexts, weights[where])
        self.rewards = self.predictor + rng.normal(size=n)
        self.clicks = (rng.random(n) < 1 / (1 + np.exp(-0.5 * self.predictor))).astype(float)
        # Rewards whose level differs between actions, whatever the context.
        self.levels = weights[where, 0] + self.rewards - self.predictor
        self.shares = rng.dirichlet(np.ones(K))
        self.model = plain.PlainModel(self.category, EFFECT_STD, ACTION_STD, 1.0)

    @property
    def square_floats(self) -> float:
        """K d², the size of all covariances."""
        return float(self.size.n_actions * self.size.dim**2)

    @property
    def some_contexts(self) -> np.ndarray:
        """At most 200 contexts, for which actions are chosen."""
        return self.contexts[:200]

    @cached_property
    def logs(self) -> LoggedData:
        """The rounds with Gaussian rewards."""
        K, n, _ = self.size
        return LoggedData(self.contexts, self.actions, self.rewards, propensities=np.full(n, 1 / K), n_actions=K)

    @cached_property
    def other_logs(self) -> LoggedData:
        """The rounds with the actions of another policy, which chooses among the same ones."""
        K, n, _ = self.size
        return LoggedData(self.contexts, self.actions[::-1].copy(), np.zeros(n), n_actions=K)

    @cached_property
    def click_logs(self) -> LoggedData:
        """The rounds with clicks."""
        return LoggedData(self.contexts, self.actions, self.clicks, n_actions=self.size.n_actions)

    @cached_property
    def prior(self) -> HierarchicalGaussian:
        """The prior of the categories."""
        return from_categories(self.category, dim=self.size.dim, effect_std=EFFECT_STD, action_std=ACTION_STD)

    @cached_property
    def statistics(self) -> Statistics:
        """The sufficient statistics."""
        return Gaussian(1.0).statistics(self.logs, self.size.n_actions)

    @cached_property
    def posterior(self) -> RewardPosterior:
        """The posterior, with its means computed."""
        out = fit(self.logs, self.prior)
        out.weights.action_mean()
        return out

    @cached_property
    def plain_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """The statistics of all actions, by the textbook form."""
        return plain.batched_statistics(self.contexts, self.actions, self.rewards, self.size.n_actions)

    @cached_property
    def plain_posterior(self) -> plain.PlainPosterior:
        """The posterior of all actions, by the textbook form."""
        return plain.batched_posterior(self.model, *self.plain_statistics)

    @cached_property
    def file(self) -> Path:
        """The rounds as a Parquet file."""
        columns = {f"x{i}": column for i, column in enumerate(self.contexts.T)}
        path = self.folder / f"{'-'.join(map(str, self.size))}.parquet"
        pq.write_table(pa.table({**columns, "action": self.actions, "reward": self.rewards}), path)
        return path
