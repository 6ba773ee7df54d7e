"""Damaged files: cut short, with flipped bits, with pages of zeros; an error of the library or the right answer."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq

import manyarms as ma
from manyarms.errors import ManyarmsError, ModelFileError
from manyarms.experiments.cell import Cell
from manyarms.experiments.cell import Outcome as CellOutcome
from manyarms.experiments.result_store import ROWS, Journal, Store
from trust.check import Check, Outcome, Row
from trust.command_server import run
from trust.kills import shop_folder
from trust.shop_files import CATALOG, CONTEXT, ROLES, content

KINDS = ("cut short", "one bit", "many bits", "zeros", "swapped", "longer", "empty")


def damaged(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """The bytes of a file with a random kind of damage, which never leaves them as they were."""
    kind = str(rng.choice(KINDS, p=[0.25, 0.35, 0.1, 0.1, 0.1, 0.08, 0.02]))
    values = np.frombuffer(data, np.uint8).copy()
    size = len(values)
    if kind == "cut short":
        return kind, data[: int(rng.integers(1, size))]
    if kind == "longer":
        return kind, data + rng.bytes(int(rng.integers(1, 200)))
    if kind == "empty":
        return kind, b""
    if kind == "zeros":
        start = int(rng.integers(size))
        values[start : start + 512] = 0
    elif kind == "swapped":
        length = max(1, size // 8)
        first, second = (int(start) for start in rng.integers(size - length, size=2))
        values[first : first + length], values[second : second + length] = (
            values[second : second + length].copy(),
            values[first : first + length].copy(),
        )
    else:
        places = rng.integers(size, size=1 if kind == "one bit" else int(rng.integers(2, 50)))
        np.bitwise_xor.at(values, places, (1 << rng.integers(8, size=len(places))).astype(np.uint8))
    changed = values.tobytes()
    return (kind, changed) if changed != data else ("cut short", data[:-1])


# Model files.


@cache
def _models() -> tuple[bytes, ...]:
    """Model files of several kinds: Gaussian, clicks, learned prior, policies, a catalog."""
    rng = np.random.default_rng(1602)
    contexts, actions = rng.normal(size=(300, 3)), rng.integers(12, size=300)
    rewards, clicks = rng.normal(size=300), (rng.random(300) < 0.3).astype(float)
    prior = ma.priors.from_categories(np.arange(12) % 3, dim=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spends = ma.LoggedData(contexts, actions, rewards, n_actions=12)
        gaussian = ma.fit(spends, prior)
        bernoulli = ma.fit(ma.LoggedData(contexts, actions, clicks, n_actions=12), prior, ma.Bernoulli())
        learned = ma.learn_prior(spends, prior).posterior
    models = (gaussian, bernoulli, learned, ma.Greedy(gaussian), ma.Softmax(bernoulli, 0.3), ma.Uniform(12))
    files = tuple(_saved(model) for model in models)
    return (*files, (shop_folder() / "shop/model.arrow").read_bytes())


def _saved(model: ma.Policy | ma.RewardPosterior) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        model.save(Path(place) / "model")
        return (Path(place) / "model").read_bytes()


def measure_model_damage(case: int) -> Row:
    """Load a damaged model file: a `ModelFileError`, or a model that is saved as the same bytes as the undamaged."""
    rng = np.random.default_rng([1603, case])
    data = _models()[case % len(_models())]
    kind, changed = damaged(data, rng)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model"
        path.write_bytes(changed)
        try:
            model = ma.load(path)
        except ModelFileError as error:
            ending = "refused" if error.problem and str(path) in str(error) else f"an error that says little: {error}"
        except Exception as error:
            ending = f"{type(error).__name__}: {error}"
        else:
            ending = "same model" if _saved(model) == data else "another model without an error"
        if path.read_bytes() != changed:
            ending = "the file has changed"
    return {"kind": kind, "ending": ending, "file": case % len(_models())}


def summarise_damage(rows: Sequence[Row]) -> Outcome:
    """Every damaged file is refused with an error of the library, or gives the same answer."""
    bad = [(case, row) for case, row in enumerate(rows) if row["ending"] not in GOOD_ENDINGS]
    endings = Counter(row["ending"] for row in rows if row["ending"] in GOOD_ENDINGS)
    notes = [", ".join(f"{ending}: {count:,}" for ending, count in endings.items()) + "."]
    notes += [f"Case {case} ({row['kind']}): {row['ending'][:300]}." for case, row in bad[:10]]
    return Outcome(f"{len(bad)} defects in {len(rows):,} files", not bad, tuple(notes))


GOOD_ENDINGS = ("refused", "same model", "same rows", "same files", "read as other numbers")
"""The last one is for logs and catalogs, whose formats do not tell a changed number from a right one."""


# Files of results.


@cache
def _results() -> dict[Cell, CellOutcome]:
    rng = np.random.default_rng(1604)
    names = list(CellOutcome.__dataclass_fields__)
    results = dict[Cell, CellOutcome]()
    for instance in range(12):
        numbers = dict.fromkeys(names, None) | {name: float(rng.normal()) for name in names if name != "peak_bytes"}
        numbers |= {"n_actions": 10, "dim": 3} if "n_actions" in names else {}
        results[Cell("made up", "ope", "IPS", 100, instance)] = CellOutcome(**numbers)
    return results


def measure_result_damage(case: int) -> Row:
    """Read damaged rows of `reproduce`, from the Parquet file or from a journal: an error, or no wrong row."""
    rng = np.random.default_rng([1605, case])
    expected = _results()
    with tempfile.TemporaryDirectory() as place:
        store = Store(Path(place))
        if case % 2:
            store.write(expected)
            path = store.folder / ROWS
        else:
            journal = Journal(store.folder)
            for cell, outcome in expected.items():
                journal.add(cell, outcome)
            journal.close()
            (path,) = store.folder.glob("journal-*")
        # Files keep fewer digits than computed rows have.
        expected = store.read()
        kind, changed = damaged(path.read_bytes(), rng)
        path.write_bytes(changed)
        try:
            rows = store.read()
        except ManyarmsError:
            ending = "refused"
        except Exception as error:
            ending = f"{type(error).__name__}: {error}"
        else:
            # A lost line of a journal is computed again; a wrong number would stay.
            wrong = [cell for cell, outcome in rows.items() if expected.get(cell) != outcome]
            ending = f"{len(wrong)} wrong rows without an error" if wrong else "same rows"
    return {"kind": kind, "ending": ending, "file": "rows.parquet" if case % 2 else "a journal"}


# Inputs of commands.

_NEW = ("--logs", "logs.parquet", *ROLES)
DAMAGED_INPUTS = (
    ("model.arrow", ("score", "--model", "model.arrow", "--contexts", "logs.parquet", "--out", "out.parquet")),
    ("model.arrow", ("update", "--model", "model.arrow", *_NEW, "--out", "out.arrow")),
    ("model.arrow", ("update", "--model", "model.arrow", *_NEW, "--out", "model.arrow")),
    ("model.arrow", ("learn", "--model", "model.arrow", "--out", "out.arrow")),
    ("logs.parquet", ("score", "--model", "model.arrow", "--contexts", "logs.parquet", "--out", "out.parquet")),
    ("logs.parquet", ("update", "--model", "model.arrow", *_NEW, "--out", "model.arrow")),
    ("logs.parquet", ("fit", *_NEW, *CONTEXT, *CATALOG, "--no-learn-prior", "--out", "out.arrow")),
    ("logs.csv", ("fit", "--logs", "logs.csv", *ROLES, *CONTEXT, *CATALOG, "--no-learn-prior", "--out", "out.arrow")),
    ("logs.csv", ("update", "--model", "model.arrow", "--logs", "logs.csv", *ROLES, "--out", "model.arrow")),
    ("shop/items.parquet", ("fit", *_NEW, *CONTEXT, *CATALOG, "--no-learn-prior", "--out", "out.arrow")),
)
"""Commands, and the one of their input files that is damaged."""


def measure_input_damage(case: int) -> Row:
    """Run a command on a damaged input: one line of error and no file touched, or finite numbers."""
    number = case % len(DAMAGED_INPUTS)
    rng = np.random.default_rng([1606, case])
    name, arguments = DAMAGED_INPUTS[number]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _copy_inputs(folder)
        kind, changed = damaged((folder / name).read_bytes(), rng)
        (folder / name).unlink()
        (folder / name).write_bytes(changed)
        before = content(folder)
        command = run(folder, arguments)
        after = content(folder)
        out = arguments[-1]
        if command.in_one_line:
            ending = "refused" if after == before else "refused, but files have changed"
        elif command.code != 0:
            ending = f"exit code {command.code}: {command.stderr[-300:]}"
        elif {file: data for file, data in after.items() if file != out} != {
            file: data for file, data in before.items() if file != out
        }:
            ending = "another file than the output has changed"
        elif name == "model.arrow" and after[out] != _undamaged_output(number):
            ending = "another result from a damaged model"
        elif name == "model.arrow":
            ending = "same files"
        else:
            ending = _numbers_in(folder / out)
    return {"kind": kind, "ending": ending, "file": name, "command": arguments[0]}


def _copy_inputs(folder: Path) -> None:
    shop = shop_folder() / "shop"
    (folder / "shop").mkdir()
    # Links: a model remembers the place and the time of the files that it has seen.
    (folder / "shop/items.parquet").symlink_to(shop / "items.parquet")
    (folder / "logs.parquet").symlink_to(shop / "day-4.parquet")
    shutil.copy(shop / "model.arrow", folder / "model.arrow")
    pyarrow.csv.write_csv(pq.read_table(shop / "day-4.parquet"), folder / "logs.csv")


@cache
def _undamaged_output(number: int) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _copy_inputs(folder)
        arguments = DAMAGED_INPUTS[number][1]
        assert run(folder, arguments).code == 0
        return content(folder)[arguments[-1]]


def _numbers_in(path: Path) -> str:
    """Whether all numbers of a written model, or of written scores, are finite."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        numbers = [np.asarray(table[name]) for name in ("expected_reward", "reward_std")]
    else:
        model = ma.load(path)
        assert isinstance(model, ma.RewardPosterior)
        numbers = [model.weights.action_mean(), model.weights.action_cov(np.arange(model.n_actions))]
    return "read as other numbers" if all(np.isfinite(part).all() for part in numbers) else "numbers are not finite"


CHECKS = (
    Check(
        "damaged-model-files",
        "Faults",
        "A model file that was cut short or changed anywhere is refused, or the change does not matter.",
        "no defect",
        5000,
        measure_model_damage,
        summarise_damage,
        batch=250,
    ),
    Check(
        "damaged-result-files",
        "Faults",
        "Rows of a reproduction that were damaged on disk are refused or computed again, never believed.",
        "no defect",
        2000,
        measure_result_damage,
        summarise_damage,
        batch=100,
    ),
    Check(
        "damaged-inputs",
        "Faults",
        "A command refuses a damaged input in one line and touches no file, or writes finite numbers.",
        "no defect",
        600,
        measure_input_damage,
        summarise_damage,
        batch=len(DAMAGED_INPUTS),
        shortest=len(DAMAGED_INPUTS),
    ),
)
