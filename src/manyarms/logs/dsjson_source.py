"""Decisions in dsjson files of Vowpal Wabbit: one per line, with its candidates, its choice and its cost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any

from manyarms._base.arrow import pa
from manyarms.core.fingerprint import Fingerprint
from manyarms.errors import DataFileError, without_full_stop
from manyarms.logs.file_source import content_digest
from manyarms.logs.sources import Source

LOOK = 1000
"""The first lines, which show the columns and their types."""

OWN: dict[str, pa.DataType] = {
    "action": pa.string(),
    "reward": pa.float64(),
    "propensity": pa.float64(),
    "eligible": pa.list_(pa.string()),
    "time": pa.string(),
    "event": pa.string(),
    "weight": pa.float64(),
}
"""The columns that every decision has; those of its context follow, under the names that they have there."""


class DsjsonSource(Source):
    """The decisions of dsjson files, as rows.

    The reward is minus the cost, the candidates are `eligible`, and a decision that stands for others, which were left
    out of the log with probability `pdrop`, has the weight 1 / (1 - pdrop). A candidate is called by its `_tag`, by its
    feature `id`, or else by all its features. Features that all candidates share are columns such as `User.age`.

    Args:
        files: The files, in order; names may end in .gz.
        report: As in `FileSource`.
    """

    def __init__(self, files: Sequence[Path], report: Callable[[int, int | None], None] | None = None):
        self.files, self._report = list(files), report
        self._begins = dict[int, str]()
        first = [_context_of(decision) for decision in islice(self._decisions(), LOOK)]
        if not first:
            raise DataFileError(f"{self.files[0]} holds no decision.", "Pass files with a line of JSON per decision.")
        names = dict.fromkeys(name for context in first for name in context)
        kinds = {name: _type_of([context[name] for context in first if name in context]) for name in names}
        self._types = OWN | kinds
        self.columns = list(self._types)

    @property
    def identity(self) -> str:
        stats = ((file, file.stat()) for file in self.files)
        return repr([(str(file.resolve()), stat.st_size, stat.st_mtime_ns) for file, stat in stats])

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """One fingerprint for each file."""
        return tuple(Fingerprint(content_digest(file), 1, path=str(file.resolve())) for file in self.files)

    def only(self, files: Sequence[Path]) -> DsjsonSource:
        part = copy(self)
        part._begins = {}
        part.files = [file for file in self.files if file in set(files)]
        return part

    def place_of(self, row: int) -> str:
        earlier = [first for first in self._begins if first <= row]
        if len(self.files) == 1:
            decision = next(islice(self._decisions(), row, None), None)
            return "" if decision is None else decision.where
        if not earlier:
            return ""
        return f"row {row - max(earlier)} of {self._begins[max(earlier)]}"

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        names, done = list(dict.fromkeys(columns)), 0
        decisions = self._decisions()
        if self._report is not None:
            self._report(done, None)
        while block := list(islice(decisions, size)):
            yield pa.RecordBatch.from_pydict(self._rows(block, names))
            done += len(block)
            if self._report is not None:
                self._report(done, None)

    def _rows(self, block: list[_Decision], names: list[str]) -> dict[str, pa.Array]:
        """Some columns of some decisions."""
        contexts = [_context_of(decision) for decision in block]
        rows = dict[str, pa.Array]()
        for name in names:
            kind = self._types[name]
            values = [
                decision.own(name) if name in OWN else context.get(name)
                for decision, context in zip(block, contexts, strict=True)
            ]
            if pa.types.is_string(kind):
                values = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
            try:
                rows[name] = pa.array(values, kind)
            except (pa.ArrowException, TypeError, ValueError):
                decision, value = next(pair for pair in zip(block, values, strict=True) if not _fits(pair[1], kind))
                raise DataFileError(
                    f"{decision.where} has {value!r} as {name}, which is {kind} in the first {LOOK:,} lines.",
                    "Write it as the others are, or leave the feature out.",
                ) from None
        return rows

    def _decisions(self) -> Iterator[_Decision]:
        """All decisions in order. Empty lines do not count."""
        row = 0
        for file in self.files:
            self._begins[row] = str(file)
            with gzip.open(file) if file.name.endswith(".gz") else open(file, "rb") as lines:
                try:
                    for number, line in enumerate(lines, start=1):
                        if line.strip():
                            yield _Decision(line, f"line {number} of {file}")
                            row += 1
                except (OSError, EOFError) as damage:
                    raise DataFileError(f"{file} cannot be read: {without_full_stop(damage)}.") from damage


class _Decision:
    """A line of a dsjson file, checked; `where` names the line in errors."""

    def __init__(self, line: bytes, where: str):
        self.where = where
        try:
            self.content = json.loads(line)
        except json.JSONDecodeError as damage:
            # Its own text counts lines within this one.
            reason = f"{damage.msg.removesuffix(' at')} at character {damage.pos + 1}"
            raise self.broken(f"is not JSON: {reason}") from None
        except ValueError as damage:
            raise self.broken(f"is not JSON: {without_full_stop(damage)}") from None
        context = self.content.get("c") if isinstance(self.content, dict) else None
        if not isinstance(context, dict):
            raise self.broken("has no context `c`, so it is not a decision")
        if "_slots" in context:
            raise self.broken("decides for several slots at once, and one is expected")
        candidates = context.get("_multi")
        if not isinstance(candidates, list) or not candidates or not all(isinstance(one, dict) for one in candidates):
            raise self.broken("has no candidates in `c._multi`")
        self.context, self.candidates = context, [_name_of(candidate) for candidate in candidates]
        self.choice = self._choice()

    def broken(self, problem: str) -> DataFileError:
        """The error for this line."""
        number, _, file = self.where.removeprefix("line ").partition(" of ")
        how = "" if file.endswith(".gz") else f", as in `sed -i {number}d {file}`"
        return DataFileError(f"{self.where} {problem}.", f"Remove the line{how}, or write it again.")

    def _choice(self) -> int:
        """The place of the chosen candidate. VW counts from one in `a` and `_label_Action`, and from zero otherwise."""
        content, order = self.content, self.content.get("a")
        place = content.get("_labelIndex")
        if place is None and "_label_Action" in content:
            place = _less_one(content["_label_Action"])
        if place is None and isinstance(order, list) and order:
            place = _less_one(order[0])
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(self.candidates):
            problem = f"chooses candidate {place!r}, counted from zero" if place is not None else "has no choice"
            raise self.broken(f"{problem}; there are {len(self.candidates)} candidates")
        return place

    def own(self, name: str) -> Any:
        """The value of one of the columns that every decision has."""
        content = self.content
        if name == "action":
            return self.candidates[self.choice]
        if name == "eligible":
            return list(dict.fromkeys(self.candidates))
        if name == "reward":
            cost = self._number("_label_cost")
            return None if cost is None else -cost
        if name == "propensity":
            return self._number("_label_probability")
        if name == "weight":
            dropped = self._number("pdrop") or 0.0
            if not 0 <= dropped < 1:
                raise self.broken(f"has the pdrop {dropped}, which must be in [0, 1)")
            return 1 / (1 - dropped)
        return content.get("Timestamp" if name == "time" else "EventId")

    def _number(self, name: str) -> float | None:
        """A number of the line; None where there is none."""
        value = self.content.get(name)
        if value is not None and not _is_number(value):
            raise self.broken(f"has {value!r} as {name}, which must be a number")
        return None if value is None else float(value)


def _less_one(number: Any) -> Any:
    return number - 1 if isinstance(number, int) else number


def _context_of(decision: _Decision) -> dict[str, Any]:
    """The features that all candidates of a decision share, with dots in their names; own columns keep their names."""
    flat = dict(_flat("", {name: value for name, value in decision.context.items() if name != "_multi"}))
    return {f"c.{name}" if name in OWN else name: value for name, value in flat.items()}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The features in a value; VW ignores names that begin with an underscore."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not name.startswith("_"):
                yield from _flat(f"{prefix}.{name}" if prefix else name, inner)
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for inner in value:
            yield from _flat(prefix, inner)
    elif value is not None:
        yield prefix, value


def _name_of(candidate: Mapping[str, Any]) -> str:
    """The id of a candidate: its tag, its feature `id`, or all its features."""
    if isinstance(candidate.get("_tag"), str):
        return candidate["_tag"]
    features = dict(_flat("", candidate))
    own = [value for name, value in features.items() if name.rpartition(".")[2] == "id"]
    if len(own) == 1:
        return str(own[0])
    return ", ".join(f"{name}={value}" for name, value in sorted(features.items())) or "(no features)"


def _type_of(values: list[Any]) -> pa.DataType:
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    if all(_is_number(value) for value in values):
        return pa.float64()
    if all(isinstance(value, list) and all(map(_is_number, value)) for value in values):
        return pa.list_(pa.float64())
    return pa.string()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError):
        return False
    return True
