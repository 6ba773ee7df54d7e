# %% [markdown]
# # Router logs
#
# A router sends each prompt to one of 30 combinations of a language model and a tool. Every answer gets a grade,
# every call has a cost, and not every combination is available for every prompt. **Which one should handle which
# prompt, and what does quality cost?**

# %%
import altair as alt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

import manyarms as ma

# %% [markdown]
# ## The data
#
# Made-up prompts on six topics. Both prompts and tools are texts, so one text embedding serves both. Here it is
# TF-IDF with eight components; yours may come from any embedding model.

# %%
rng = np.random.default_rng(0)
words = {
    "code": "python function bug error test loop class compile",
    "maths": "integral proof equation solve theorem sum matrix limit",
    "search": "news latest today price who when website find",
    "tables": "spreadsheet column chart average rows csv plot filter",
    "writing": "letter poem tone rewrite story email polite draft",
    "translation": "french german translate spanish phrase meaning italian word",
}
vocabulary = {topic: text.split() for topic, text in words.items()}
topics = rng.choice(list(words), size=4000)
prompts = [" ".join(rng.choice(vocabulary[topic], 6)) for topic in topics]

tools = {
    "interpreter": ("code", "tables"),
    "solver": ("maths",),
    "browser": ("search",),
    "dictionary": ("translation", "writing"),
    "none": (),
}
sizes = {"nano": 0.05, "mini": 0.1, "small": 0.2, "medium": 0.4, "large": 0.8, "giant": 1.6}  # cents per call
models = [(size, tool) for size in sizes for tool in tools]
about = [" ".join(words[topic] for topic in tools[tool]) for _, tool in models]
costs = np.array([sizes[size] for size, _ in models])

vectoriser = TfidfVectorizer().fit([*prompts, *about])
components = TruncatedSVD(8, random_state=0).fit(vectoriser.transform(prompts))
prompt_vectors = components.transform(vectoriser.transform(prompts))
tool_vectors = components.transform(vectoriser.transform(about))

# %% [markdown]
# The grade depends on the size of the model and on whether the tool fits the prompt. The old router picks at random
# among the candidates of a prompt: those that are allowed and not overloaded. It knows that each had the same
# probability.

# %%
fits = np.array([[topic in tools[tool] for _, tool in models] for topic in topics])
true_grade = 4 + 1.2 * np.log2(costs / 0.05) / 5 + 2.5 * fits + rng.normal(0, 0.2, size=30)
candidates = [np.sort(rng.choice(30, size=8, replace=False)) for _ in prompts]
chosen = np.array([rng.choice(options) for options in candidates])
grades = true_grade[np.arange(4000), chosen] + rng.normal(size=4000)
print(f"mean grade {grades.mean():.2f}, mean cost {costs[chosen].mean():.2f} cents per prompt")

# %% [markdown]
# ## Learn from half of the log
#
# What is the reward? Grade minus price times cost: the price says how many points a cent must buy. Combinations with
# similar tools and sizes should behave alike, so the weights of an action are a linear function of its embedding.

# %%
contexts = np.column_stack([np.ones(4000), prompt_vectors])
embeddings = np.column_stack([tool_vectors, np.log2(costs)])
first, second = np.arange(2000), np.arange(2000, 4000)


def learn(price):
    """The posterior of grade minus price times cost, from the first half of the log."""
    logs = ma.LoggedData(contexts, chosen, grades - price * costs[chosen], np.full(4000, 1 / 8), n_actions=30)
    prior = ma.priors.linear_in_embeddings(embeddings, dim=contexts.shape[1], shared_std=1.0)
    return ma.learn_prior(logs.take(first), prior).posterior, logs.take(second)


posterior, later = learn(price=0.5)
router = ma.Greedy(posterior)

# %% [markdown]
# ## Evaluate on the other half
#
# `eligible=` holds the candidates of each prompt, and the router chooses among them. The model gives its answer, and
# DR checks it with the grades of the second half.

# %%
options = [candidates[row] for row in second]
print("model's gain:", posterior.difference(router, ma.Logged(later), later.contexts, eligible=options))
print("old router:  ", f"{later.rewards.mean():.3f}")
print("new, by DR:  ", ma.DR(posterior).estimate(router, later, eligible=options))

picks = router.actions(later.contexts, eligible=options)
truth = true_grade[second, picks] - 0.5 * costs[picks]
print("in truth:    ", f"{truth.mean():.3f}")

# %% [markdown]
# ## What does quality cost?
#
# One router per price. Each point is a router; the true grade is known because the log is made up.

# %%
rows = []
for price in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):
    posterior, later = learn(price)
    picks = ma.Greedy(posterior).actions(later.contexts, eligible=options)
    expected = posterior.expected_reward(later.contexts, picks) + price * costs[picks]
    for kind, grade in (("estimated", expected), ("true", true_grade[second, picks])):
        rows.append({"price": price, "cost": costs[picks].mean(), "grade": grade.mean(), "kind": kind})
rows.append({"price": 0, "cost": costs[chosen].mean(), "grade": grades.mean(), "kind": "old router"})
base = alt.Chart(alt.Data(values=rows), width=300, height=240).encode(
    alt.X("cost:Q", title="cents per prompt"),
    alt.Y("grade:Q", title="mean grade").scale(zero=False),
    alt.Color("kind:N", title=None).legend(orient="top"),
)
base.mark_line(point=True)

# %% [markdown]
# The new routers beat the old one in grade at every price, and those with a high price also cost less. Where to stop
# on this curve is a decision about money, not about statistics.
