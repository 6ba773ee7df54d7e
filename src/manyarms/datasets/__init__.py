"""Worlds whose truth is known, to learn from and to test against, and readers of public data."""

from manyarms.datasets.classification import ClassificationEnvironment
from manyarms.datasets.data_files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, Source, cache_folder, download
from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.jester import JesterWorld, jester_world, load_jester
from manyarms.datasets.kuairec import KuaiRec, WatchedWorld, load_kuairec, split_cells, watched_world
from manyarms.datasets.movielens import (
    MovieLens,
    MovieLensFactors,
    MovieLensWorld,
    load_movielens,
    movielens_factors,
    movielens_world,
)
from manyarms.datasets.open_bandit import OpenBanditLog, load_open_bandit, merged_levels
from manyarms.datasets.rating_matrix import MatrixEnvironment, factorise
from manyarms.datasets.shop import Shop
from manyarms.datasets.synthetic_problem import SyntheticProblem

__all__ = [
    "KUAIREC",
    "MOVIELENS_1M",
    "OPEN_BANDIT",
    "ClassificationEnvironment",
    "JesterWorld",
    "KuaiRec",
    "LinearEnvironment",
    "MatrixEnvironment",
    "MovieLens",
    "MovieLensFactors",
    "MovieLensWorld",
    "OpenBanditLog",
    "Shop",
    "Source",
    "SyntheticProblem",
    "WatchedWorld",
    "cache_folder",
    "download",
    "factorise",
    "jester_world",
    "load_jester",
    "load_kuairec",
    "load_movielens",
    "load_open_bandit",
    "merged_levels",
    "movielens_factors",
    "movielens_world",
    "split_cells",
    "watched_world",
]
