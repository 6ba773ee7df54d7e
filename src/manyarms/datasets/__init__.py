"""Worlds whose truth is known, to learn from and to test against, and readers of public data."""

from manyarms.datasets.classification import ClassificationEnvironment
from manyarms.datasets.data_files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, DataSource, cache_folder, download
from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.jester import JesterWorld, jester_world, load_jester
from manyarms.datasets.kuairec import KuaiRec, KuaiRecWorld, kuairec_world, load_kuairec, split_cells
from manyarms.datasets.movielens import (
    MovieLens,
    MovieLensFactors,
    MovieLensWorld,
    load_movielens,
    movielens_factors,
    movielens_world,
)
from manyarms.datasets.open_bandit import OpenBanditLog, load_open_bandit, merge_levels
from manyarms.datasets.rating_matrix import MatrixEnvironment, factorise
from manyarms.datasets.shop import Shop
from manyarms.datasets.synthetic_problem import SyntheticProblem

__all__ = [
    "KUAIREC",
    "MOVIELENS_1M",
    "OPEN_BANDIT",
    "ClassificationEnvironment",
    "DataSource",
    "JesterWorld",
    "KuaiRec",
    "KuaiRecWorld",
    "LinearEnvironment",
    "MatrixEnvironment",
    "MovieLens",
    "MovieLensFactors",
    "MovieLensWorld",
    "OpenBanditLog",
    "Shop",
    "SyntheticProblem",
    "cache_folder",
    "download",
    "factorise",
    "jester_world",
    "kuairec_world",
    "load_jester",
    "load_kuairec",
    "load_movielens",
    "load_open_bandit",
    "merge_levels",
    "movielens_factors",
    "movielens_world",
    "split_cells",
]
