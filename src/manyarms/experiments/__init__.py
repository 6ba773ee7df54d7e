"""Experiments: problems x methods x rounds x instances -> tidy rows, resumable; the figures of the paper, and verdicts.

A method of one's own is a subclass of `Method`; see `manyarms.experiments.methods`.
"""

from manyarms.experiments.cell import Cell, Outcome, compute
from manyarms.experiments.methods import METHODS, Method
from manyarms.experiments.problem import Known, Origin, Problem, Task, World, digest_of
from manyarms.experiments.provenance import StaleRowsError
from manyarms.experiments.result_store import Store
from manyarms.experiments.result_table import Table
from manyarms.experiments.run import CellError, Grid, run
from manyarms.experiments.synthetic_world import Synthetic

__all__ = [
    "METHODS",
    "Cell",
    "CellError",
    "Grid",
    "Known",
    "Method",
    "Origin",
    "Outcome",
    "Problem",
    "StaleRowsError",
    "Store",
    "Synthetic",
    "Table",
    "Task",
    "World",
    "compute",
    "digest_of",
    "run",
]
