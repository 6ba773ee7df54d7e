"""The capped policy against the whole linear programme of small problems, and its limits on all of them."""

import numpy as np
import pytest
from scipy.optimize import linprog

import manyarms as ma
from manyarms.errors import InfeasibleError, InputError, RangeError, ShapeError

K, D = 8, 3
CATEGORY = np.array(["tea", "tea", "mug", "mug", "mug", "pot", "pot", "pot"])
COSTS = np.array([1.0, 2.0, 0.5, 0.0, 3.0, 1.0, 1.5, 0.2])


def problem(n=30, seed=0, clicks=False):
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(n), rng.normal(size=(n, D - 1))])
    actions = rng.integers(K, size=n)
    noise = rng.normal(size=n)
    rewards = (noise > 0).astype(float) if clicks else 0.3 * actions + noise
    logs = ma.LoggedData(x, actions, rewards, n_actions=K)
    posterior = ma.fit(logs, ma.priors.independent(K, dim=D), ma.Bernoulli() if clicks else ma.Gaussian(1.0))
    return posterior, np.column_stack([np.ones(n), rng.normal(size=(n, D - 1))])


def best_value(posterior, x, caps, budgets, costs, price=0.0):
    """The optimum of the programme over all pairs of context and action, written out in full."""
    n, scores = len(x), posterior.expected_reward(x) - price * costs
    upper = [np.tile(np.arange(K) == a, n) / n for a in range(K)]
    upper += [np.tile((CATEGORY == name) * costs, n) / n for name in budgets]
    equal = np.kron(np.eye(n), np.ones(K))
    limits = [*caps, *budgets.values()]
    result = linprog(-scores.reshape(-1) / n, upper, limits, equal, np.ones(n), method="highs")
    return -result.fun


@pytest.mark.parametrize("clicks", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_policy_is_the_optimum_of_the_programme_and_keeps_to_its_limits(seed, clicks):
    posterior, x = problem(seed=seed, clicks=clicks)
    caps, budgets = np.full(K, 0.21), {"pot": 0.25, "mug": 0.2}
    policy = ma.CappedPolicy(posterior, x, max_share=0.21, budgets=budgets, costs=COSTS, categories=CATEGORY, price=0.1)
    p = policy.probabilities(x)
    shares = p.mean(axis=0)
    assert (shares <= caps + 1e-9).all()
    for name, limit in budgets.items():
        assert (shares * COSTS)[CATEGORY == name].sum() <= limit + 1e-9
    value = (p * (posterior.expected_reward(x) - 0.1 * COSTS)).sum() / len(x)
    assert value == pytest.approx(best_value(posterior, x, caps, budgets, COSTS, 0.1), abs=1e-8)
    # All but a few contexts have one action, chosen by score minus price.
    assert len(policy.tied_contexts) <= K + 2
    priced = posterior.expected_reward(x) - policy.prices
    assert (priced[np.arange(len(x)), policy.actions(x)] >= priced.max(axis=1) - 1e-7).all()


def test_limits_hold_where_all_contexts_are_alike_and_where_some_count_more():
    posterior, x = problem()
    one = np.tile(x[:1], (50, 1))
    shares = ma.CappedPolicy(posterior, one, max_share=0.3).probabilities(one).mean(axis=0)
    np.testing.assert_allclose(np.sort(shares)[-4:], [0.1, 0.3, 0.3, 0.3], atol=1e-9)
    weights = np.random.default_rng(0).integers(0, 4, size=len(x)).astype(float)
    policy = ma.CappedPolicy(posterior, x, max_share=0.2, weights=weights)
    assert (np.average(policy.probabilities(x), axis=0, weights=weights) <= 0.2 + 1e-9).all()


def test_without_limits_it_is_greedy_and_new_contexts_get_one_action():
    posterior, x = problem()
    greedy = ma.Greedy(posterior)
    np.testing.assert_array_equal(ma.CappedPolicy(posterior, x).actions(x), greedy.actions(x))
    capped = ma.CappedPolicy(posterior, x, max_share=0.2)
    new = x + 0.01
    assert (capped.probabilities(new).max(axis=1) == 1.0).all()
    assert capped.actions(x, eligible=[[3]] * len(x)).tolist() == [3] * len(x)


def test_many_contexts_and_actions_are_priced_without_an_array_of_all_pairs():
    rng = np.random.default_rng(1)
    n, k = 900, 300
    logs = ma.LoggedData(rng.normal(size=(2000, 4)), rng.integers(k, size=2000), rng.normal(size=2000), n_actions=k)
    posterior = ma.fit(logs, ma.priors.independent(k, dim=4), ma.Gaussian(1.0))
    x = rng.normal(size=(n, 4))
    policy = ma.CappedPolicy(posterior, x, max_share=0.01)
    shares = policy.probabilities(x).mean(axis=0)
    assert shares.max() <= 0.01 + 1e-9 and shares.sum() == pytest.approx(1.0)
    priced = posterior.expected_reward(x) - policy.prices
    # Duality: no policy within the caps can be better than the prices allow.
    bound = priced.max(axis=1).mean() + 0.01 * policy.prices.sum()
    assert posterior.value(policy, x).value == pytest.approx(bound, abs=1e-7)


def test_a_saved_policy_makes_the_same_choices(tmp_path):
    posterior, x = problem()
    policy = ma.CappedPolicy(posterior, x, max_share=0.2)
    policy.save(tmp_path / "capped.arrow")
    np.testing.assert_array_equal(ma.load(tmp_path / "capped.arrow").probabilities(x), policy.probabilities(x))


def test_limits_that_cannot_hold_are_named():
    posterior, x = problem()
    with pytest.raises(InfeasibleError, match=r"do not allow: max_share of 8 actions \(0.1 each, 0.8 in all\)\."):
        ma.CappedPolicy(posterior, x, max_share=0.1)
    # Six caps on what the budget does not cover leave too little, and the budget is named with them.
    others = np.where(CATEGORY == "tea", 1.0, 0.1)
    with pytest.raises(InfeasibleError, match=r"the budget of tea \(0.2\), max_share of 6 actions \(0.1 each, 0.6 in"):
        ma.CappedPolicy(posterior, x, max_share=others, budgets={"tea": 0.2}, categories=CATEGORY)
    everything = {"tea": 0.3, "mug": 0.2, "pot": 0.4}
    with pytest.raises(
        InfeasibleError, match=r"do not allow: the budget of tea \(0.3\), the budget of mug \(0.2\), the b"
    ):
        ma.CappedPolicy(posterior, x, budgets=everything, categories=CATEGORY)
    with pytest.raises(InfeasibleError, match=r"do not allow: the budget \(-0.5\)"):
        ma.CappedPolicy(posterior, x, budgets=-0.5, costs=COSTS)
    few = np.where(np.arange(K) < 2, 0.3, 0.0)
    with pytest.raises(InfeasibleError, match=r"max_share of 8 actions \(0.6 in all\)"):
        ma.CappedPolicy(posterior, x, max_share=few)
    # One action is free, so a budget of nothing can be met.
    free = ma.CappedPolicy(posterior, x, budgets=0.0, costs=COSTS)
    assert (free.actions(x) == 3).all()
    with pytest.raises(InputError, match="has no category 'wine'; there are mug, pot, tea"):
        ma.CappedPolicy(posterior, x, budgets={"wine": 0.1}, categories=CATEGORY)
    with pytest.raises(InputError, match="by category need the categories"):
        ma.CappedPolicy(posterior, x, budgets={"tea": 0.1})
    with pytest.raises(ShapeError, match="costs must have 8 rows"):
        ma.CappedPolicy(posterior, x, budgets=1.0, costs=[1.0])
    with pytest.raises(RangeError, match="max_share must not be negative"):
        ma.CappedPolicy(posterior, x, max_share=-0.1)
    with pytest.raises(InfeasibleError, match=r"the budget of e \(0.01\), 3 other budgets"):
        ma.CappedPolicy(posterior, x, budgets=dict.fromkeys("abcdefgh", 0.01), categories=list("abcdefgh"))
    with pytest.raises(ShapeError, match="contexts must have at least one row"):
        ma.CappedPolicy(posterior, x[:0])
    with pytest.raises(InputError, match="price needs the costs"):
        ma.CappedPolicy(posterior, x, price=1.0)
