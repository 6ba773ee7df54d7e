"""Simulated worlds with a known truth, and readers of public data sets."""

from manyarms.datasets.data_files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, DataSource, cache_folder, download
from manyarms.datasets.environment import LinearEnvironment, SyntheticProblem
from manyarms.datasets.jester import JesterWorld, jester_world, load_jester
from manyarms.datasets.kuairec import KuaiRec, KuaiRecWorld, kuairec_world, load_kuairec
from manyarms.datasets.matrix_environment import ClassificationEnvironment, MatrixEnvironment
from manyarms.datasets.movielens import (
    MovieLens,
    MovieLensFactors,
    MovieLensWorld,
    load_movielens,
    movielens_factors,
    movielens_world,
)
from manyarms.datasets.open_bandit import OpenBanditLog, load_open_bandit, merge_levels
from manyarms.datasets.rating_matrix import factorise, split_cells
from manyarms.datasets.sample_data import write_sample_data
from manyarms.datasets.shop import Shop

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
    "write_sample_data",
]
