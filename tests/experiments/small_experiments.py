"""Small problems, worlds and results that the tests of experiments share."""

from dataclasses import dataclass

import numpy as np

import manyarms as ma
from manyarms.core.logged_data import LoggedData
from manyarms.experiments import (
    Cell,
    Grid,
    Known,
    Outcome,
    Problem,
    Synthetic,
    World,
)

SMALL = Synthetic(n_actions=20, latent_dim=3, dim=4)
GRID = Grid(SMALL, "ope", ("sDM", "DM (Bayes)", "IPS", "DR"), (30, 60), 3)
LEARN = Grid(SMALL, "opl", ("sDM", "snIPS"), (30,), 2)


def outcome(value, truth=1.0, low=None, high=None, seconds=0.01):
    return Outcome(value, truth, low, high, 20, 4, 0.0, seconds, None)


def results_of(scores, kind="opl", problem="p", n=10):
    return {
        Cell(problem, kind, method, n, i): outcome(value if kind == "opl" else 1 + np.sqrt(value))
        for method, values in scores.items()
        for i, value in enumerate(values)
    }


@dataclass(frozen=True)
class Coin(Problem):
    """A user problem, for the runner: two actions, no context."""

    label: str = "coin"

    def draw(self, rng):
        return CoinWorld()


class CoinWorld(World):
    def __init__(self, values=(1.0, 2.0)):
        self.values = np.array(values)
        prior = ma.priors.independent(2, dim=1)
        self.known = Known(prior, prior, 1.0, np.eye(2), prior, lambda: np.array([0, 1]))
        self.target, self.target_value, self.best_value = ma.TablePolicy([1.0, 0.0]), float(values[0]), 2.0

    def log(self, n, rng):
        actions = rng.integers(2, size=n)
        return LoggedData(np.ones((n, 1)), actions, self.values[actions], np.full(n, 0.5), 2)

    def value(self, policy):
        return float(policy.probabilities(np.ones((1, 1)))[0] @ self.values)
