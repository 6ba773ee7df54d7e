# %% [markdown]
# # A shop's margin
#
# A shop sells 600 items on 12 shelves. It shows one item per visit and logs the margin in euros. Two thirds of the
# items have never been shown. **Which item should each visitor see, and what would that earn?**

# %%
import altair as alt
import numpy as np
import pyarrow as pa

import manyarms as ma

# %% [markdown]
# ## The data
#
# The shop is made up, so that we can compare every answer with the truth. Each item earns about as much as its shelf
# does, and what it earns depends on the visitor's age.

# %%
rng = np.random.default_rng(4)
names = "tea mugs books plants soap games lamps rugs pasta shoes hats toys".split()
shelf = np.repeat(names, 50)
items = pa.table({"item": [f"{name}-{k}" for name in names for k in range(50)], "shelf": shelf})

true_weights = (
    np.repeat(rng.normal(0, [0.3, 0.4], size=(12, 2)), 50, axis=0) + rng.normal(0, 0.15, size=(600, 2)) + [1, 0]
)


def true_margin(age, item):
    """The expected margin of an item, by its number in the catalog."""
    return true_weights[item, 0] + true_weights[item, 1] * (age - 45) / 15


# %% [markdown]
# The shop's current policy shows a few popular items most of the time, whoever the visitor is.

# %%
n = 8000
popularity = np.where(np.arange(600) % 50 < 16, rng.pareto(1.2, size=600), 0.0)
popularity /= popularity.sum()
shown, age = rng.choice(600, size=n, p=popularity), rng.uniform(20, 70, size=n)
log = pa.table(
    {
        "age": age,
        "item": items["item"].take(shown),
        "margin": true_margin(age, shown) + rng.normal(size=n),
        "propensity": popularity[shown],
    }
)
for row in log.slice(0, 3).to_pylist():
    print({name: cell if name == "item" else round(cell, 3) for name, cell in row.items()})

# %% [markdown]
# ## The answer
#
# Read the two tables and ask. `decide` learns a model from each half of the log and evaluates it on the other half.

# %%
catalog = ma.read_catalog(items, "item", category="shelf")
logs = ma.read_logs(log, "age", "item", "margin", "propensity", catalog)
decision = ma.decide(None, logs, unit="euros")
print(decision.sentence)

# %%
ma.plots.gains(decision.evaluation).properties(width=260)

# %% [markdown]
# `greedy` always shows the item with the highest expected margin. `pessimistic` prefers items that it knows well.
# `softmax` spreads its
# choices over several good items.
#
# ## Is it true?
#
# In your own shop you cannot look this up. Here we can:

# %%
visitors = rng.uniform(20, 70, size=2000)
best = decision.candidates[decision.policy].actions(pa.table({"age": visitors}))
current = true_margin(visitors[:, None], np.arange(600)) @ popularity
print(f"true gain of {decision.policy}: {np.mean(true_margin(visitors, best) - current):+.2f} euros per visit")
print(f"estimated: {decision.gains[decision.policy]}")
print(f"share of its choices that the shop had never shown: {np.mean(popularity[best] == 0):.0%}")

# %% [markdown]
# ## Where it comes from
#
# Items learn from their shelf. An item with many visits keeps close to its own mean margin, one with few is pulled
# towards its shelf, and one without any visit gets the estimate of its shelf, with a wide interval. The chart shows
# the items of one shelf, for a visitor of 45: points and lines are estimates with 95 % intervals, ticks are true
# margins.

# %%
learned = ma.learn_prior(logs, "categories").posterior
tea, middle = np.arange(50), pa.table({"age": [45.0] * 50})
mean, error = learned.expected_reward(middle, tea), 1.96 * learned.reward_std(middle, tea)
visits = np.bincount(shown, minlength=600)[tea]
rows = [
    {"visits": int(v) + 0.5, "estimate": m, "low": m - e, "high": m + e, "truth": t}
    for v, m, e, t in zip(visits, mean, error, true_margin(45, tea))
]
base = alt.Chart(alt.Data(values=rows), width=300, height=240).encode(
    alt.X("visits:Q", title="visits (0 is drawn at 0.5)").scale(type="log")
)
bars = base.mark_rule(opacity=0.4).encode(alt.Y("low:Q", title="margin of an item of tea, euros"), alt.Y2("high:Q"))
(bars + base.mark_circle().encode(alt.Y("estimate:Q"))) + base.mark_tick(color="darkorange").encode(alt.Y("truth:Q"))

# %% [markdown]
# ## Next
#
# Write the page for the person who decides, and save the policy for the shop:

# %%
ma.write_report(decision, "report.html", title="What should the shop show?")
decision.candidates["greedy"].save("policy.arrow")
