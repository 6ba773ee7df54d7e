"""The lines to run on one's own data: a script that does with any Parquet log what the demo does with its own."""

from __future__ import annotations

from string import Template

from manyarms.datasets.shop import CUSTOMER_COLUMNS, Shop

_HEADER = """\
# Which policy should run: what runs now, or one of these? Written by `manyarms demo`.
#
# It runs as it is on the demo's files. For your own data set the names and the
# prior at its top; it needs manyarms, and nothing that manyarms does not bring.
#
#   LOGS     a row a round: the customer's columns, the item shown, the reward.
#   CATALOG  a row an item, shown or not: its id and its category.

"""

_BODY = Template("""\
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse

import manyarms as ma

HERE = Path(__file__).parent
LOGS, CATALOG = HERE / "logs.parquet", HERE / "catalog.parquet"
ITEM, CATEGORY, REWARD = "item", "category", "margin"
# Numbers of about unit scale; an intercept is added below.
CONTEXT = $context
# The demo knows its scales. On your own data begin with MEAN and NOISE_STD the
# mean and standard deviation of the reward and a tenth of that for the others,
# and keep the scales with the highest posterior.log_evidence.
MEAN, CATEGORY_STD, ITEM_STD, NOISE_STD = $scales

logs, catalog = pq.read_table(LOGS), pq.read_table(CATALOG)
number = {item: k for k, item in enumerate(catalog[ITEM].to_pylist())}
actions = [number[item] for item in logs[ITEM].to_pylist()]
columns = [logs[name].to_numpy() for name in CONTEXT]
contexts = np.column_stack([np.ones(len(logs)), *columns])
rewards = logs[REWARD].to_numpy()
data = ma.LoggedData(contexts, actions, rewards, n_actions=len(number))

# An effect a category, and each item's own around it: so that items never
# shown borrow from those that were.
names, code = np.unique(catalog[CATEGORY].to_pylist(), return_inverse=True)
one_hot = sparse.identity(len(names), format="csr")[code]
prior = ma.HierarchicalGaussian(
    latent_mean=np.tile([MEAN] + [0.0] * len(CONTEXT), len(names)),
    latent_cov=CATEGORY_STD**2,
    mixing=ma.MixedEffects(one_hot, dim=contexts.shape[1]),
    action_cov=ITEM_STD**2,
)
posterior = ma.fit(data, prior, ma.Gaussian(NOISE_STD))

now = ma.Logged(data)
print(f"{'what runs now':<14} {posterior.value(now, contexts)}")
for name, policy in {
    "greedy": ma.Greedy(posterior),
    "pessimistic": ma.Pessimistic(posterior),
    "uniform": ma.Uniform(len(number)),
}.items():
    value = posterior.value(policy, contexts)
    gain = posterior.difference(policy, now, contexts)
    sure = gain.probability_positive
    print(f"{name:<14} {value}  vs now {gain}  beats now {sure:.4f}")
""")


def script_body(shop: Shop) -> str:
    """The script, with the column names and the prior's scales of the demo filled in."""
    scales = (shop.mean_margin, shop.category_std, shop.item_std, shop.noise_std)
    context = ", ".join(f'"{name}"' for name in CUSTOMER_COLUMNS)
    return _BODY.substitute(context=f"[{context}]", scales=", ".join(str(scale) for scale in scales))


def script_file(shop: Shop) -> str:
    """The script with a header that says what it is for: what is saved as decide.py."""
    return _HEADER + script_body(shop)
