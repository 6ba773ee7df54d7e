"""Experiments: problems x methods x rounds x instances -> tidy rows; the figures of the paper and its claims, tested.

A user method is a subclass of `Method`; see `manyarms.experiments.methods`.
"""

from manyarms.errors import CellError, StaleRowsError
from manyarms.experiments.cell import Cell, Outcome, Table, compute
from manyarms.experiments.methods import METHODS, Method, MethodTask
from manyarms.experiments.problem import Known, Origin, Problem, Synthetic, World, digest_of
from manyarms.experiments.result_store import Store
from manyarms.experiments.run import Grid, run

__all__ = [
    "METHODS",
    "Cell",
    "CellError",
    "Grid",
    "Known",
    "Method",
    "MethodTask",
    "Origin",
    "Outcome",
    "Problem",
    "StaleRowsError",
    "Store",
    "Synthetic",
    "Table",
    "World",
    "compute",
    "digest_of",
    "run",
]
