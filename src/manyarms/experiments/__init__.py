"""Experiments: problems x methods x rounds x instances -> tidy rows, resumable; the figures of the paper, and verdicts.

A method of one's own is a subclass of `Method`; see `manyarms.experiments.methods`.
"""

from manyarms.experiments.cells import Cell, Outcome, compute
from manyarms.experiments.methods import METHODS, Method
from manyarms.experiments.runner import Grid, run
from manyarms.experiments.store import Store
from manyarms.experiments.synthetic import Synthetic
from manyarms.experiments.world import Known, Problem, Task, World

__all__ = [
    "METHODS",
    "Cell",
    "Grid",
    "Known",
    "Method",
    "Outcome",
    "Problem",
    "Store",
    "Synthetic",
    "Task",
    "World",
    "compute",
    "run",
]
