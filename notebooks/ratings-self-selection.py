# %% [markdown]
# # Ratings and self-selection
#
# People rate the films that they chose to watch, and they choose films that they will like. So the mean rating of a
# film says how much *its own audience* likes it. **Which film should be on the front page, where everybody sees it?**

# %%
import altair as alt
import numpy as np

import manyarms as ma

# %% [markdown]
# ## The data
#
# Forty made-up films. Each has a quality, and a theme from "action" (+1) to "romance" (-1). Each person has a taste
# on the same scale. People pick films that match their taste, and a match adds to the rating.

# %%
rng = np.random.default_rng(1)
K, n = 40, 8000
quality, theme = rng.normal(0, 0.25, size=K), rng.uniform(-1, 1, size=K)
taste = rng.normal(size=n)

chances = np.exp(2.0 * taste[:, None] * theme)
chances /= chances.sum(axis=1, keepdims=True)
films = (chances.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
ratings = 3 + quality[films] + 0.8 * taste * theme[films] + rng.normal(0, 0.5, size=n)

# %% [markdown]
# For a random visitor the match is zero on average, so the true front-page rating of a film is 3 + its quality. Mean
# ratings are something else: films with a strong theme look best, because only their fans have rated them.

# %%
mean_rating = np.bincount(films, ratings) / np.bincount(films)
rows = [{"theme": t, "too high by": m - 3 - q} for t, m, q in zip(theme, mean_rating, quality)]
alt.Chart(alt.Data(values=rows), width=300, height=220).mark_circle(size=60).encode(
    alt.X("theme:Q", title="theme: romance (-1) to action (+1)"),
    alt.Y("too high by:Q", title="mean rating minus truth"),
)

# %% [markdown]
# ## With and without the cause
#
# Suppose that we know people's tastes, say from a questionnaire. Then the model can tell a good film from a good
# match. If nobody wrote them down, no model can, and its intervals do not show it.

# %%
contexts = {"taste unknown": np.ones((n, 1)), "taste known": np.column_stack([np.ones(n), taste])}
visitors = rng.normal(size=2000)
everybody = {
    "taste unknown": np.ones((2000, 1)),
    "taste known": np.column_stack([np.ones(2000), visitors]),
}
posteriors, logs = {}, {}
for name, columns in contexts.items():
    logs[name] = ma.LoggedData(columns, films, ratings, n_actions=K)
    prior = ma.priors.from_catalog(K, dim=columns.shape[1], shared_std=1.0)
    posteriors[name] = ma.learn_prior(logs[name], prior).posterior
    values = [posteriors[name].value(ma.TablePolicy(np.eye(K)[film]), everybody[name]) for film in range(K)]
    best = int(np.argmax([value.value for value in values]))
    print(f"{name}: film {best}, expected rating {values[best]}, in truth {3 + quality[best]:.2f}")
print(f"the best film is {np.argmax(quality)}, {3 + quality.max():.2f}")

# %% [markdown]
# ## How to notice
#
# **A small random sample.** Ask 500 people to rate a film that was drawn at random. They did not choose it, so their
# mean rating is honest. If the model's value for these rounds is off by more than both errors, something that drove
# the choice is missing.

# %%
asked, drawn = rng.normal(size=500), rng.integers(K, size=500)
answers = 3 + quality[drawn] + 0.8 * asked * theme[drawn] + rng.normal(0, 0.5, size=500)
error = 1.96 * answers.std() / np.sqrt(500)
print(f"mean rating           {answers.mean():.2f} ± {error:.2f}")
for name, columns in {
    "taste unknown": np.ones((500, 1)),
    "taste known": np.column_stack([np.ones(500), asked]),
}.items():
    sample = ma.LoggedData(columns, drawn, answers, n_actions=K)
    print(f"model, {name:<14} {posteriors[name].value(ma.Logged(sample), columns)}")

# %% [markdown]
# **A bound on hidden causes.** Without a random sample, ask how strong a hidden cause would have to be to overturn
# the result. Here it is the gain of the best film over a film drawn at random.

# %%
name = "taste known"
front_page = ma.TablePolicy(np.eye(K)[np.argmax(quality)])
cause = ma.hidden_cause(posteriors[name], front_page, ma.Uniform(K), contexts[name], logs=logs[name])
print(cause)

# %% [markdown]
# ## What to remember
#
# - Log what people looked at when they chose, and pass it as context.
# - Keep a small share of random rounds. They are the only check that does not rest on a model.
# - `manyarms doctor` warns about signs of self-selection in a log, before any fit.
