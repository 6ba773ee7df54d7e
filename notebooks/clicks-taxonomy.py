# %% [markdown]
# # Clicks with a taxonomy
#
# Clicks are rare, so most items have too few to say anything on their own. But items sit in a tree: department,
# aisle, item. **What does the tree add, and can we rank items that were never shown?**

# %%
import altair as alt
import numpy as np
import pyarrow as pa

import manyarms as ma

# %% [markdown]
# ## The data
#
# A made-up catalog: 6 departments, 4 aisles in each, 12 items in each aisle. Four items in ten were never shown.
# There are no contexts: everybody sees the same page.

# %%
rng = np.random.default_rng(2)
departments = "kitchen garden office sports music pets".split()
paths = [(name, f"{name} {aisle}") for name in departments for aisle in "ABCD" for _ in range(12)]
items = pa.table(
    {
        "item": [f"item-{k}" for k in range(288)],
        "department": [path[0] for path in paths],
        "aisle": [path[1] for path in paths],
    }
)
true_score = np.repeat(rng.normal(0, 0.5, 6), 48) + np.repeat(rng.normal(0, 0.6, 24), 12) + rng.normal(-3.0, 0.2, 288)
shares = np.where(rng.random(288) < 0.6, rng.gamma(0.7, size=288), 0.0)
shares /= shares.sum()

n = 12_000
true_rate = 1 / (1 + np.exp(-true_score))
shown = rng.choice(288, size=n, p=shares)
log = pa.table({"item": items["item"].take(shown), "clicked": (rng.random(n) < true_rate[shown]).astype(float)})
last_week, this_week = log.slice(0, 8000), log.slice(8000)
print(
    f"{log['clicked'].to_numpy().mean():.1%} of the rounds have a click; {np.sum(shares == 0)} items were never shown"
)

# %% [markdown]
# ## Three priors
#
# The prior says which items are alike: none of them, those of a department, or those along the tree. How alike they
# are is learned from the log. The log evidence compares the three: higher is better, and a difference of 5 is a lot.

# %%
priors = {
    "on its own": ma.read_catalog(items, "item"),
    "by department": ma.read_catalog(items, "item", category="department"),
    "by taxonomy": ma.read_catalog(items, "item", taxonomy=["department", "aisle"]),
}
posteriors = {}
for name, catalog in priors.items():
    logs = ma.read_logs(last_week, [], "item", "clicked", catalog=catalog)
    prior = ma.priors.from_catalog(catalog, dim=logs.dim, shared_std=1.0)
    learned = ma.learn_prior(logs, prior, ma.Bernoulli())
    posteriors[name] = learned.posterior
    print(f"{name:<14} log evidence {learned.log_evidence:.0f}")

# %% [markdown]
# ## Items that were never shown
#
# Here are their true click rates beside the estimates (every third item is drawn). A model that treats each item on
# its own gives the same answer for all of them.

# %%
unseen = np.flatnonzero(shares == 0)
anybody = np.ones((len(unseen), 1))  # the features of a context without columns: the intercept
rows = [
    {"prior": name, "true rate": truth, "estimate": estimate}
    for name, posterior in posteriors.items()
    for truth, estimate in list(zip(true_rate[unseen], posterior.expected_reward(anybody, unseen)))[::3]
]
order = list(priors)
points = alt.Chart(alt.Data(values=rows), width=110, height=110).mark_circle(opacity=0.6)
points.encode(
    alt.X("true rate:Q").scale(domain=[0, 0.2], clamp=True),
    alt.Y("estimate:Q").scale(domain=[0, 0.2], clamp=True),
    alt.Facet("prior:N", sort=order, title=None, columns=3),
)

# %%
for name, posterior in posteriors.items():
    top = unseen[np.argsort(-posterior.expected_reward(anybody, unseen))[:20]]
    print(f"{name:<13} true click rate of its 20 favourites: {true_rate[top].mean():.3f}")
print(f"{'at best':<13} {np.sort(true_rate[unseen])[-20:].mean():>43.3f}")

# %% [markdown]
# Nothing was logged about any of these items. What the model knows, it learned from other items of their aisle and
# department.
#
# ## What to ship
#
# The model was fitted on last week's rounds. Its policies are evaluated on this week's rounds.

# %%
posterior = posteriors["by taxonomy"]
later = ma.read_logs(this_week, [], "item", "clicked", catalog=priors["by taxonomy"], features=posterior.features)
policies = {"greedy": ma.Greedy(posterior), "pessimistic": ma.Pessimistic(posterior), "uniform": ma.Uniform(288)}
decision = ma.decide(policies, later, posterior)
print(decision.sentence)
best = policies[decision.policy].actions(np.ones((1, 1)))[0]
print(f"in truth: {true_rate[best] / (true_rate @ shares) - 1:+.0%}")

# %%
ma.plots.gains(decision.evaluation).properties(width=260)
