"""What the rows of a folder were made of: the data of each problem, and the file of each method of one's own.

It is kept beside the rows and written before the first of them is computed, so that there are none it does not know.
Rows of other data, or of a method that has changed since, are refused: mixed with new ones they would be found nowhere.

What a problem is made of beside random numbers: a digest of its data tells rows of two data sets apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from manyarms._base.files import replace_files
from manyarms.errors import DataFileError, ManyarmsError
from manyarms.experiments.cell import Cell, world_of
from manyarms.experiments.method_files import OwnFile
from manyarms.experiments.problem import Origin, Problem
from manyarms.experiments.result_store import Results

FILE = "made-of.json"

SAME = 1e-6
"""Relative distance within which two truths are those of the same data: machines differ by far less, data by more."""


class StaleRowsError(ManyarmsError):
    """Rows in a folder were made of something else than what is at hand.

    Attributes:
        what: Which, in a sentence.
        redo: The problem or method whose rows have to be forgotten.
    """

    def __init__(self, what: str, redo: str):
        super().__init__(f"{what} Use another folder, or forget these rows first: store.compact(drop=[{redo!r}]).")
        self.what, self.redo = what, redo


class StaleMethodError(StaleRowsError):
    """The file of a method of one's own has changed since its rows were made."""


@dataclass(frozen=True)
class Ledger:
    """What rows were made of.

    Attributes:
        problems: The data of each problem that has any, by its label.
        methods: A digest of the file of each method of one's own, by its name.
    """

    problems: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    methods: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """That of a folder; an empty one when there is none."""
        path = folder / FILE
        if not path.exists():
            return cls()
        try:
            found = json.loads(path.read_bytes())
            problems = {label: Origin(**origin) for label, origin in found["problems"].items()}
            return cls(problems, {str(name): str(digest) for name, digest in found["methods"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as damage:
            raise DataFileError(
                f"{path} is damaged. Delete it: the rows beside it are then compared with the data once more."
            ) from damage

    def write(self, folder: Path) -> None:
        """Replace that of a folder."""
        problems = {label: asdict(origin) for label, origin in sorted(self.problems.items())}
        text = json.dumps({"problems": problems, "methods": dict(sorted(self.methods.items()))}, indent=2)
        replace_files({folder / FILE: f"{text}\n".encode()})

    def only(self, cells: Iterable[Cell]) -> Ledger:
        """What these were made of."""
        kept = {name for cell in cells for name in (cell.problem, cell.method)}
        return Ledger(
            {label: origin for label, origin in self.problems.items() if label in kept},
            {name: digest for name, digest in self.methods.items() if name in kept},
        )


def agree(
    folder: Path, problems: Mapping[str, Problem], own: Mapping[str, OwnFile], done: Results, todo: Iterable[str]
) -> None:
    """Refuse rows of other data or other code than those at hand, and remember what new ones will be made of.

    Args:
        folder: Where the rows are.
        problems: What is asked for, by label.
        own: The files of methods of one's own, by name.
        done: The rows.
        todo: Labels of problems that rows are still missing of: only these cannot do without their data.
    """
    ledger, missing = Ledger.read(folder), set(todo)
    some_row = {cell.problem: cell for cell in sorted(done, reverse=True)}
    origins = dict(ledger.problems)
    for label, problem in problems.items():
        try:
            origin = problem.origin()
        except DataFileError:
            if label in missing:
                raise
            continue
        if origin is not None:
            if label in some_row:
                _check_origin(folder, problem, origin, ledger.problems.get(label), some_row[label], done)
            origins[label] = origin
    with_rows = {cell.method for cell in done}
    for name, file in own.items():
        if name in with_rows and ledger.methods.get(name) != file.digest:
            raise StaleMethodError(f"{file.name} has changed since its rows were made.", name)
    methods = {**ledger.methods, **{name: file.digest for name, file in own.items()}}
    renewed = replace(ledger, problems=origins, methods=methods)
    if renewed != ledger:
        renewed.write(folder)


def _check_origin(
    folder: Path, problem: Problem, origin: Origin, known: Origin | None, cell: Cell, done: Results
) -> None:
    what = f"{folder} holds rows of {problem.label!r} that were made of other data than that at hand"
    if known is not None:
        if known.digest != origin.digest:
            raise StaleRowsError(f"{what}.", problem.label)
        return
    # Rows from before data was remembered: taken to be of the data at hand, once, if one of their truths is.
    world = world_of(problem, cell.instance)
    there, here = done[cell].truth, world.target_value if cell.kind == "ope" else world.best_value
    if not np.isclose(there, here, rtol=SAME, atol=0.0, equal_nan=True):
        raise StaleRowsError(
            f"{what}: the truth of instance {cell.instance} is {there:g} there and {here:g} here.", problem.label
        )
