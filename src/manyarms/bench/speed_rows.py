"""Rows of times and memory, kept in a file, and the comparison of two such files: what became slower."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from manyarms._base.checks import as_path
from manyarms._base.files import replace_files
from manyarms.core.result_tables import Tabular
from manyarms.errors import DataFileError

SLOWER = 1.2
"""A stage whose CPU time grew by a larger factor than the machine's has become slower; less is noise."""
BRIEF = 0.005
"""Stages that take less CPU time than this, in seconds, are never called slower: the clock is too coarse."""
OWN_FORM = "manyarms"
"""The form of a row that two files are compared by."""


@dataclass(frozen=True)
class SpeedRow:
    """One measurement of a stage.

    Attributes:
        stage: The name of the stage.
        form: The library or the plain form that computed it.
        n_actions: K.
        n_rounds: n.
        dim: d.
        cpu_s: CPU seconds of all threads, the least of a few runs.
        wall_s: Seconds on the clock, the least of the same runs.
        peak_mb: The most memory that Python and NumPy held during a call beyond what they held before, in MB; None
            where it was not measured.
        limit_s: The least CPU time that this machine needs for the operations and bytes of the stage; None where these
            are not known.
        difference: The largest difference from our answer, divided by the largest number in it; None where there is
            nothing to compare.
    """

    stage: str
    form: str
    n_actions: int
    n_rounds: int
    dim: int
    cpu_s: float
    wall_s: float
    peak_mb: float | None = None
    limit_s: float | None = None
    difference: float | None = None

    @property
    def size(self) -> tuple[int, int, int]:
        """K, n and d."""
        return self.n_actions, self.n_rounds, self.dim


@dataclass(frozen=True)
class SpeedRows(Tabular):
    """All rows of a run, with the limits of the machine and the versions of the libraries.

    Attributes:
        rows: The measurements.
        limits: The speed of the machine by name, each a number per CPU second.
        made_with: Versions and the machine.
    """

    rows: tuple[SpeedRow, ...]
    limits: Mapping[str, float] = field(default_factory=dict[str, float])
    made_with: Mapping[str, str] = field(default_factory=dict[str, str])

    def records(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]

    def content(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {"made_with": dict(self.made_with), "limits": dict(self.limits), "rows": self.records()}

    def save(self, path: Path) -> None:
        """Write the rows as JSON, whole or not at all."""
        replace_files({as_path("path", path): (json.dumps(self.content(), indent=1) + "\n").encode()})

    @classmethod
    def load(cls, path: Path) -> SpeedRows:
        """Read rows that `save` has written."""
        path = as_path("path", path)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            rows = tuple(SpeedRow(**row) for row in content["rows"])
            return cls(rows, dict(content["limits"]), dict(content["made_with"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise DataFileError(
                f"{path} does not hold rows of a benchmark.", "Pass a file that --rows wrote."
            ) from None

    def forms_of(self, stage: str, size: tuple[int, int, int]) -> dict[str, SpeedRow]:
        """The rows of one stage at one size, by form."""
        return {row.form: row for row in self.rows if row.stage == stage and row.size == size}


@dataclass(frozen=True)
class SpeedChange:
    """One stage at one size in two runs.

    Attributes:
        stage: The name of the stage.
        size: K, n and d.
        before: CPU seconds in the first run.
        after: CPU seconds in the second.
        ratio: After by before, in units of the machine: 1 if a stage and the machine slowed down alike.
    """

    stage: str
    size: tuple[int, int, int]
    before: float
    after: float
    ratio: float

    @property
    def is_slower(self) -> bool:
        """True if the change is more than noise."""
        return self.ratio > SLOWER and self.after > BRIEF


@dataclass(frozen=True)
class SpeedComparison(Tabular):
    """Two runs compared, stage by stage.

    Attributes:
        changes: Every stage and size that both runs have.
        machine: How many times as long the machine took for a matrix product and a copy in the second run.
    """

    changes: tuple[SpeedChange, ...]
    machine: float

    @property
    def slower(self) -> list[str]:
        """The stages that became slower, each once."""
        return list(dict.fromkeys(change.stage for change in self.changes if change.is_slower))

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if not self.changes:
            return "The two files have no stage of the same size in common."
        return f"Slower: {', '.join(self.slower)}." if self.slower else "Nothing became slower."

    def records(self) -> list[dict[str, Any]]:
        return [
            {"stage": change.stage, "n_actions": change.size[0], "n_rounds": change.size[1], "dim": change.size[2],
             "before_s": change.before, "after_s": change.after, "ratio": change.ratio, "slower": change.is_slower}
            for change in self.changes
        ]  # fmt: skip


def compare_speed(before: SpeedRows, after: SpeedRows) -> SpeedComparison:
    """Compare the rows of two runs: the CPU times of our form, in units of what the machine could do in each run.

    Args:
        before: The earlier rows.
        after: The later ones, of the same or another version, on the same or another machine.
    """
    shared = [name for name in before.limits if name in after.limits]
    machine = float(np.exp(np.mean([np.log(before.limits[name] / after.limits[name]) for name in shared] or [0.0])))
    earlier = {(row.stage, row.size): row for row in _own(before.rows)}
    pairs = [(earlier[key], row) for row in _own(after.rows) if (key := (row.stage, row.size)) in earlier]
    changes = [
        SpeedChange(row.stage, row.size, old.cpu_s, row.cpu_s, row.cpu_s / max(old.cpu_s, 1e-9) / machine)
        for old, row in pairs
    ]
    return SpeedComparison(tuple(changes), machine)


def _own(rows: Sequence[SpeedRow]) -> list[SpeedRow]:
    return [row for row in rows if row.form == OWN_FORM]
