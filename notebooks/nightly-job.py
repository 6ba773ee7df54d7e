# %% [markdown]
# # A nightly job with late rewards
#
# A purchase may come days after the visit. A job that reads the log every night sees zeros where money is still on
# its way. **How do you update a model every night without believing those zeros, and how do you notice when it no
# longer holds?**

# %%
from datetime import UTC, datetime, timedelta
from pathlib import Path

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import manyarms as ma
from manyarms import jobs

# %% [markdown]
# ## The data
#
# Thirty made-up items on five shelves, 300 visits per day. A purchase reaches the log a day and a half after the
# visit on average. From day 15 on people spend less on tea.

# %%
rng = np.random.default_rng(0)
start, days, per_day = datetime(2026, 3, 2, tzinfo=UTC), 24, 300
shelf = np.repeat(["tea", "mugs", "pots", "soap", "toys"], 6)
catalog = ma.Catalog([f"{name}-{k % 6}" for k, name in enumerate(shelf)], categories=shelf)
level = np.repeat([2.0, 1.0, 1.5, 0.5, 1.2], 6) + rng.normal(0, 0.2, size=30)

n = days * per_day
when = np.sort(rng.uniform(0, days, size=n))  # in days
item, age = rng.integers(30, size=n), rng.normal(45, 12, size=n)
drop = (shelf[item] == "tea") & (when >= 15)
spent = np.maximum(level[item] + 0.01 * (age - 45) - 1.0 * drop + rng.normal(0, 0.5, size=n), 0.0)
arrives = when + rng.exponential(1.5, size=n)


def rounds(first, last, now):
    """The visits of some days, as the log shows them at the end of day `now`."""
    rows = np.flatnonzero((when >= first) & (when < last))
    return pa.table(
        {
            "time": [start + timedelta(days=float(day)) for day in when[rows]],
            "age": age[rows],
            "item": catalog.ids[item[rows]].tolist(),
            "spent": np.where(arrives[rows] <= now, spent[rows], 0.0),
        }
    )


# %% [markdown]
# ## Two nightly jobs
#
# Each night writes the days that are still open to a folder, since their purchases may still change, and updates its
# model with it. The careful job sets `maturity`: rounds younger than six days wait. The model remembers which rounds
# it has used, so the same file can be named again the next night.


# %%
def night(name, now, maturity):
    """Fit the first model, or update it, with the files that the job sees at the end of day `now`."""
    folder, model = Path(name), Path(f"{name}.arrow")
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.parquet"):
        file.unlink()
    # Without a maturity each day is used once, the night it is over.
    newest = [now - 1] if maturity is None else range(now - maturity - 1, now)
    for day in range(now) if not model.exists() else newest:
        pq.write_table(rounds(day, day + 1, now), folder / f"day-{day:02d}.parquet")
    roles = {"action": "item", "reward": "spent", "time": "time", "now": start + timedelta(days=now), "out": model}
    if maturity is not None:
        roles["maturity"] = timedelta(days=maturity)
    if model.exists():
        return jobs.update_files(model, folder, **roles).posterior
    return jobs.fit_files(folder, "age", catalog=catalog, **roles).posterior


# %%
everyone = pa.table({"age": np.linspace(20, 70, 200)})
rows = []
for now in range(8, 15):
    for name, maturity in (("careless", None), ("careful", 6)):
        value = night(name, now, maturity).value(ma.Uniform(30), everyone)
        low, high = value.interval()
        rows.append({"night": now, "job": name, "value": value.value, "low": low, "high": high})
truth = spent[when < 15].mean()
print(f"true spending per visit {truth:.2f}")
for row in rows[-2:]:
    print(f"{row['job']:<9} {row['value']:.2f}, 95 % interval {row['low']:.2f} to {row['high']:.2f}")

# %%
base = alt.Chart(alt.Data(values=rows), width=300, height=200).encode(
    alt.X("night:O"), alt.Color("job:N", title=None).legend(orient="top")
)
lines = base.mark_line(point=True).encode(alt.Y("value:Q", title="spending per visit").scale(zero=False))
bars = base.mark_rule().encode(alt.Y("low:Q"), alt.Y2("high:Q"))
(lines + bars) + alt.Chart(alt.Data(values=[{"truth": truth}])).mark_rule(strokeDash=[4, 3]).encode(alt.Y("truth:Q"))

# %% [markdown]
# The dashed line is the truth. The careless job is wrong from the first night and stays wrong, and its interval
# shrinks around the wrong value.
#
# ## Does the model still hold?
#
# A backtest forecasts each day from the days before it and compares. The alarm is built so that a model that holds
# raises it with a probability of at most 5 %, however many days you look at.

# %%
mature = rounds(0, days - 6, now=days)
logs = ma.read_logs(mature, "age", "item", "spent", catalog=catalog, time="time")
result = ma.backtest(logs, period=timedelta(days=1))
print(result.sentence)

# %%
ma.plots.backtest(result).properties(width=300)

# %% [markdown]
# The alarm names the day and the shelf. It does not say why: that is for someone who knows the shop. From here,
# `half_life` makes old rounds count less, or fit again on the days since the change.
#
# The same job on the command line, once per night:
#
# ```
# manyarms update --model model.arrow --logs open/ --action item --reward spent \
#     --time time --maturity 6d --out model.arrow
# ```
