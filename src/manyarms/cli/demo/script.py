"""The way to one's own data: a spec for the commands, and a script that does with any log what the demo does."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from string import Template

from manyarms.datasets.shop import CUSTOMER_COLUMNS

_HEADER = """\
# Which policy should run: what runs now, or one of these? Written by `manyarms demo`.
#
# It runs as it is on the demo's files. For your own data set the names at its
# top; it needs manyarms, and nothing that manyarms does not bring.
#
#   LOGS     a row a round: the customer's columns, the item shown, the reward.
#   CATALOG  a row an item, shown or not: its id and its category.

"""

_SPEC = Template("""\
# What the commands read with --spec: which files, and which column is what.
# It runs as it is on the demo's files. For your own data change the names;
# paths are taken from the folder of this file.

[logs]
path = "logs.parquet"         # a file, a folder or a glob of Parquet, CSV or Arrow
context = $context
action = "item"               # the column that says what was shown
reward = "margin"             # the column that says what came back
propensity = "propensity"     # leave it out where the probabilities were not logged
# time = "at"                 # for the next two: when the round was
# half_life = "14d"           # a round this old counts half
# maturity = "2d"             # younger rounds are left out: their rewards may still come in

[catalog]
path = "catalog.parquet"      # all items, also those never shown
id = "item"
category = "category"         # what items share; also: tags, taxonomy, embedding

[likelihood]
kind = "gaussian"             # bernoulli for clicks, poisson for counts, log-normal for amounts
""")

_BODY = Template("""\
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import manyarms as ma

HERE = Path(__file__).parent
LOGS, CATALOG = HERE / "logs.parquet", HERE / "catalog.parquet"
ITEM, CATEGORY, REWARD = "item", "category", "margin"
# Numbers of about unit scale; an intercept is added below.
CONTEXT = $context

logs, table = pq.read_table(LOGS), pq.read_table(CATALOG)
catalog = ma.Catalog(table[ITEM], categories=table[CATEGORY])
actions = catalog.numbers(logs[ITEM])
columns = [logs[name].to_numpy() for name in CONTEXT]
contexts = np.column_stack([np.ones(len(logs)), *columns])
rewards = logs[REWARD].to_numpy()
data = ma.LoggedData(contexts, actions, rewards, n_actions=len(catalog))

# An effect that all items share, one a category around it, and each item's
# own around that: so that items never shown borrow from those that were. How
# far these spread, and the noise of a reward, are learned from the log.
dim = contexts.shape[1]
prior = ma.priors.from_categories(catalog, dim=dim, shared_std=1.0)
learned = ma.learn_prior(data, prior)
posterior = learned.posterior
print(learned, end="\\n\\n")

now = ma.Logged(data)
print(f"{'what runs now':<14} {posterior.value(now, contexts)}")
for name, policy in {
    "greedy": ma.Greedy(posterior),
    "pessimistic": ma.Pessimistic(posterior),
    "uniform": ma.Uniform(len(catalog)),
}.items():
    value = posterior.value(policy, contexts)
    gain = posterior.difference(policy, now, contexts)
    sure = gain.probability_positive
    print(f"{name:<14} {value}  vs now {gain}  beats now {sure:.4f}")
""")


def commands(folder: Path) -> tuple[str, str]:
    """What to run once the spec names one's own data."""
    spec, model = (shlex.quote(str(folder / name)) for name in ("shop.toml", "model.arrow"))
    page = shlex.quote(str(folder / "my-report.html"))
    return (
        f"manyarms fit --spec {spec} --out {model}",
        f"manyarms report --spec {spec} --model {model} --out {page}",
    )


def spec_file() -> str:
    """A commented spec, with the names of the demo filled in: what is saved as shop.toml."""
    return _SPEC.substitute(context=_names())


def _names() -> str:
    return f"[{', '.join(f'{json.dumps(name)}' for name in CUSTOMER_COLUMNS)}]"


def script_body() -> str:
    """The script, with the column names of the demo filled in."""
    return _BODY.substitute(context=_names())


def script_file() -> str:
    """The script with a header that says what it is for: what is saved as decide.py."""
    return _HEADER + script_body()
