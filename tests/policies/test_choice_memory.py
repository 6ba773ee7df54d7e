"""Remembered choices: each context is ranked once, and never mistaken for another."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.policies import scored_policy
from manyarms.policies.choice_memory import ChoiceMemory
from manyarms.posterior.action_scores import Scores


@pytest.fixture
def halves(request):
    n_actions, likelihood = getattr(request, "param", (60, ma.Gaussian(1.0)))
    rng = np.random.default_rng(0)
    category, x, actions = rng.integers(5, size=n_actions), rng.normal(size=(400, 3)), rng.integers(n_actions, size=400)
    rewards = x[:, 0] * (category[actions] % 3) + rng.normal(size=400)
    rewards = (rewards > 1.0).astype(float) if likelihood == ma.Bernoulli() else rewards
    logs = ma.LoggedData(x, actions, rewards, propensities=np.full(400, 1 / n_actions), n_actions=n_actions)
    prior = ma.priors.from_categories(category, dim=3)
    return logs.take(slice(0, 200)), logs.take(slice(200, 400)), prior, likelihood


@pytest.fixture
def remembered(monkeypatch):
    """All choices are remembered, however cheap they are."""
    for kind in (Scores, *Scores.__subclasses__()):
        monkeypatch.setattr(kind, "many_actions", 1)


@pytest.fixture
def forgotten(monkeypatch):
    """No choice is remembered."""
    for kind in (Scores, *Scores.__subclasses__()):
        monkeypatch.setattr(kind, "many_actions", 1 << 30)


@pytest.fixture
def ranked(monkeypatch):
    """How many contexts each kind of policy has ranked."""
    counts, rank = dict[str, int](), scored_policy.ScoredPolicy._ranked

    def counted(self, contexts, eligible, k):
        counts[type(self).__name__] = counts.get(type(self).__name__, 0) + len(contexts)
        return rank(self, contexts, eligible, k)

    monkeypatch.setattr(scored_policy.ScoredPolicy, "_ranked", counted)
    return counts


def evaluated(halves):
    train, test, prior, likelihood = halves
    posterior = ma.fit(train, prior, likelihood)
    table = ma.evaluate({"greedy": ma.Greedy(posterior), "pessimistic": ma.Pessimistic(posterior)}, test, posterior)
    return [value for row in table.records() for value in row.values() if isinstance(value, float)]


def test_evaluate_ranks_every_context_once(halves, remembered, ranked):
    evaluated(halves)
    # Two policies of 200 rounds; greedy is made twice, by the caller and as the model's own proposal.
    assert ranked["Pessimistic"] == 200
    assert ranked["Greedy"] <= 400


@pytest.mark.parametrize("halves", [(400, ma.Bernoulli())], indirect=True)
def test_choices_by_click_rates_cost_so_much_that_those_among_a_few_hundred_actions_are_remembered(halves, ranked):
    evaluated(halves)
    assert ranked["Pessimistic"] == 200
    assert ranked["Greedy"] <= 400


@pytest.mark.parametrize("halves", [(60, ma.Gaussian(1.0)), (400, ma.Bernoulli())], indirect=True)
def test_remembered_choices_give_the_same_numbers(halves, request):
    numbers = dict[str, list[float]]()
    for kind in ("forgotten", "remembered"):
        request.getfixturevalue(kind)
        numbers[kind] = evaluated(halves)
    assert len(numbers["forgotten"]) > 4
    assert_allclose(numbers["remembered"], numbers["forgotten"], rtol=1e-12)


def test_a_context_changed_in_place_is_a_new_context(halves, remembered):
    train, test, prior, _ = halves
    policy, x = ma.Greedy(ma.fit(train, prior)), np.array(test.contexts)
    first = policy.actions(x)
    x *= -1
    assert (policy.actions(x) != first).any()
    assert_array_equal(policy.actions(x), ma.Greedy(ma.fit(train, prior)).top_k(x, 1)[:, 0])


def test_only_equal_bits_are_recalled_also_where_hashes_agree(monkeypatch):
    monkeypatch.setattr("manyarms.policies.choice_memory._keys", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    memory = ChoiceMemory()
    memory.remember(np.array([[1.0, 0.0]]), np.array([7]))
    actions, known = memory.recall(np.array([[1.0, 0.0], [1.0, -0.0], [2.0, 0.0]]))
    assert known.tolist() == [True, False, False]
    assert actions[0] == 7


def test_the_oldest_choices_are_forgotten_first(monkeypatch):
    monkeypatch.setattr("manyarms.policies.choice_memory.MAX_NUMBERS", 6)
    memory = ChoiceMemory()
    for number in range(4):
        memory.remember(np.full((1, 2), float(number)), np.array([number]))
    _, known = memory.recall(np.arange(4.0)[:, None] * np.ones(2))
    assert known.tolist() == [False, True, True, True]


@pytest.mark.parametrize("n_rows", [0, 9])
def test_no_contexts_and_too_many_are_not_remembered(monkeypatch, n_rows):
    monkeypatch.setattr("manyarms.policies.choice_memory.MAX_NUMBERS", 16)
    memory, x = ChoiceMemory(), np.random.default_rng(0).normal(size=(9, 2))
    memory.remember(x[:8], np.arange(8))
    memory.remember(x[:n_rows], np.full(n_rows, 5))
    actions, known = memory.recall(x)
    assert_array_equal(known, np.arange(9) < 8)
    assert_array_equal(actions[:8], np.arange(8))
