"""Worlds whose truth is known, to learn from and to test against, and readers of public data."""

from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.jester import JesterWorld, jester_world, load_jester
from manyarms.datasets.matrix import MatrixEnvironment, factorise
from manyarms.datasets.movielens import (
    MovieLens,
    MovieLensFactors,
    MovieLensWorld,
    load_movielens,
    movielens_factors,
    movielens_world,
)
from manyarms.datasets.shop import Shop
from manyarms.datasets.synthetic import SyntheticProblem

__all__ = [
    "JesterWorld",
    "LinearEnvironment",
    "MatrixEnvironment",
    "MovieLens",
    "MovieLensFactors",
    "MovieLensWorld",
    "Shop",
    "SyntheticProblem",
    "factorise",
    "jester_world",
    "load_jester",
    "load_movielens",
    "movielens_factors",
    "movielens_world",
]
