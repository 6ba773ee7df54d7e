"""Experiments: problems x methods x rounds x instances -> tidy rows, resumable; the figures of the paper, and verdicts.

A method of one's own is a subclass of `Method`; see `manyarms.experiments.methods`.
"""

from manyarms.experiments.cells import Cell, Outcome, compute
from manyarms.experiments.ledger import StaleRowsError
from manyarms.experiments.methods import METHODS, Method
from manyarms.experiments.origins import Origin, digest_of
from manyarms.experiments.runner import CellError, Grid, run
from manyarms.experiments.store import Store
from manyarms.experiments.synthetic import Synthetic
from manyarms.experiments.table import Table
from manyarms.experiments.world import Known, Problem, Task, World

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
