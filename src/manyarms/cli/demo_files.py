"""The files of the demo: a spec and a script to start from, written without replacing a user's own work."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from string import Template

from manyarms._base.arrow import parquet_bytes
from manyarms._base.files import replace_files
from manyarms.datasets.shop import CUSTOMER_COLUMNS, ShopLog
from manyarms.errors import ManyarmsError

LEDGER = ".manyarms-demo"
"""A file in the folder with the checksum of every file that the demo wrote. Any other file is the user's."""

_SPEC = Template("""\
# The files and columns that the commands use; pass this file with --spec.
# It works as it is on the demo's files. For your own data, change the names.
# Paths are relative to the folder of this file.

[logs]
path = "logs.parquet"         # a file, folder or glob of Parquet, CSV or Arrow files
context = $context
action = "item"               # column: the action that was shown
reward = "margin"             # column: the reward that followed
propensity = "propensity"     # delete this line if probabilities were not logged
# time = "at"                 # column: time of the round; half_life and maturity need it
# half_life = "14d"           # a round this old has half the weight
# maturity = "2d"             # leave out younger rounds: their rewards may still arrive

[catalog]
path = "catalog.parquet"      # all items, including those never shown
id = "item"
category = "category"         # or use tags, taxonomy or embedding instead

[likelihood]
kind = "gaussian"             # bernoulli for clicks, poisson for counts, log-normal for positive amounts
""")

_SCRIPT = Template("""\
# Should one of these policies replace the current one? Written by `manyarms demo`.
#
# The script works as it is on the demo's files. For your own data, change the
# names at the top. It needs manyarms and nothing else.
#
#   LOGS      one row per round: the customer's columns, the item shown, the reward,
#             and the probability with which it was shown. The model learns from this file.
#   NEW_LOGS  later rounds of the same kind: the policies are evaluated on these.
#   CATALOG   one row per item, shown or not: its id and its category.

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import manyarms as ma

HERE = Path(__file__).absolute().parent
LOGS, NEW_LOGS, CATALOG = HERE / "logs.parquet", HERE / "new-logs.parquet", HERE / "catalog.parquet"
ITEM, CATEGORY, REWARD, PROBABILITY = "item", "category", "margin", "propensity"
# Numbers of about unit scale; an intercept is added below.
CONTEXT = $context

table = pq.read_table(CATALOG)
catalog = ma.Catalog(table[ITEM], categories=table[CATEGORY])


def read(path):
    logs = pq.read_table(path)
    columns = [logs[name].to_numpy() for name in CONTEXT]
    contexts = np.column_stack([np.ones(len(logs)), *columns])
    actions, rewards = catalog.numbers(logs[ITEM]), logs[REWARD].to_numpy()
    propensities = logs[PROBABILITY].to_numpy()
    return ma.LoggedData(contexts, actions, rewards, propensities, n_actions=len(catalog))


old, new = read(LOGS), read(NEW_LOGS)

# All items share one effect; each category adds its own, and so does each item.
# Items that were never shown borrow from those that were. The standard
# deviations of these effects and of the noise are learned from the log.
prior = ma.priors.from_categories(catalog, dim=old.dim, shared_std=1.0)
learned = ma.learn_prior(old, prior)
posterior = learned.posterior
print(learned, end="\\n\\n")

# The gain is the model's, corrected with the rewards of the new rounds.
current, checked = ma.Logged(new), ma.Checked(posterior)
print(f"{'current policy':<14} {posterior.value(current, new.contexts)}")
for name, policy in {
    "greedy": ma.Greedy(posterior),
    "pessimistic": ma.Pessimistic(posterior),
    "uniform": ma.Uniform(len(catalog)),
}.items():
    value = posterior.value(policy, new.contexts)
    gain = checked.difference(policy, current, new)
    probability = gain.probability_positive
    print(f"{name:<14} {value}  gain {gain}  P(beats current) {probability:.4f}")
""")


class _OccupiedError(ManyarmsError):
    """A file of the user stands where the demo would write one."""


def refuse_foreign(folder: Path, names: list[str]) -> None:
    """Raise if one of the demo's files exists and is not as `write_ours` left it."""
    ours = _ledger(folder)
    for path in (folder / name for name in names):
        # Reading a pipe or a device would never end.
        if path.exists() and not (path.is_file() and _checksum(path.read_bytes()) in ours):
            raise _OccupiedError(
                f"{path} was changed, or was not written by the demo, so it is not replaced.",
                "Choose another --out, or pass --force to replace it.",
            )


def write_ours(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the demo's files into the folder, and record that they are its own.

    The ledger is written first and keeps the files that were there. Wherever this stops, the folder's files are known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    present = {_checksum(file.read_bytes()) for file in folder.iterdir() if file.is_file()} & _ledger(folder)
    known = sorted(present | {_checksum(content) for content in contents.values()})
    replace_files({folder / LEDGER: "".join(f"{line}\n" for line in known).encode()})
    replace_files({folder / name: content for name, content in contents.items()})


def _ledger(folder: Path) -> set[str]:
    path = folder / LEDGER
    return set(path.read_text(encoding="ascii", errors="replace").split()) if path.is_file() else set()


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def shop_files(log: ShopLog) -> dict[str, bytes]:
    """Files of the demo: both halves of the shop's log, to learn from and to evaluate on, and its catalog.

    They are Parquet files, given as their content by name.
    """
    rounds = log.logs_table
    half = len(rounds) // 2
    tables = {"logs": rounds.slice(0, half), "new-logs": rounds.slice(half), "catalog": log.catalog_table}
    return {f"{name}.parquet": parquet_bytes(table) for name, table in tables.items()}


def templates() -> dict[str, bytes]:
    """Files of the demo to start from: the spec for the commands and the script in Python, with columns filled in."""
    context = json.dumps(list(CUSTOMER_COLUMNS))
    files = {"shop.toml": _SPEC, "decide.py": _SCRIPT}
    return {name: template.substitute(context=context).encode() for name, template in files.items()}


def commands(folder: Path) -> tuple[str, str]:
    """The commands to run on the demo's files once the spec names the user's own data."""
    spec, model = (shlex.quote(str(folder / name)) for name in ("shop.toml", "model.arrow"))
    page, new = (shlex.quote(str(folder / name)) for name in ("my-report.html", "new-logs.parquet"))
    return (
        f"manyarms fit --spec {spec} --out {model}",
        f"manyarms report --spec {spec} --model {model} --logs {new} --out {page}",
    )
