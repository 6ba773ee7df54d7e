"""Worlds whose truth is known, to learn from and to test against."""

from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.shop import Shop
from manyarms.datasets.synthetic import SyntheticProblem

__all__ = ["LinearEnvironment", "Shop", "SyntheticProblem"]
