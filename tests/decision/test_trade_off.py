"""The trade-off between two goals, against all deterministic policies of a small problem."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import manyarms as ma
from manyarms.errors import InputError, RangeError, ShapeError

K = 4


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    x = np.array([[1.0, 0.3], [1.0, -1.2], [1.0, 2.0]])
    logs = [
        ma.LoggedData(rng.normal(size=(80, 2)), rng.integers(K, size=80), rng.normal(size=80), n_actions=K)
        for _ in range(2)
    ]
    return *(ma.fit(own, ma.priors.independent(K, dim=2)) for own in logs), x


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_no_policy_has_more_of_both_goals_and_each_point_maximises_its_sum(models, better):
    margin, returns, x = models
    curve = ma.trade_off(margin, returns, x, better=better)
    sign = 1.0 if better == "higher" else -1.0
    tables = margin.expected_reward(x), returns.expected_reward(x)
    rows = np.arange(len(x))
    values = np.array([[table[rows, choice].mean() for table in tables] for choice in product(range(K), repeat=len(x))])
    for point in curve.points:
        ours = np.array([point.value.value, sign * point.other.value])
        theirs = values * [1.0, sign]
        assert not ((theirs > ours + 1e-9).all(axis=1)).any()
        assert ours @ [1.0, point.weight] == pytest.approx((theirs @ [1.0, point.weight]).max())
    assert [point.value.value for point in curve.points] == sorted(
        (point.value.value for point in curve.points), reverse=True
    )
    assert curve.points[0].value.value == pytest.approx(margin.value(ma.Greedy(margin), x).value)
    assert len(curve.to_arrow()) == len(curve.points) and "main goal" in str(curve)


def test_a_limit_chooses_the_best_point_within_it(models):
    margin, returns, x = models
    curve = ma.trade_off(margin, returns, x, better="lower", baseline=ma.Uniform(K))
    point = curve.within(0.0)
    assert point.other.value <= 0.0
    assert point.value.value == max(one.value.value for one in curve.points if one.other.value <= 0.0)
    assert curve.within(-1e9) is None


def test_a_blended_policy_can_be_saved_and_drawn(models, tmp_path):
    margin, returns, x = models
    policy = ma.trade_off(margin, returns, x).points[3].policy
    policy.save(tmp_path / "blend.arrow")
    np.testing.assert_array_equal(ma.load(tmp_path / "blend.arrow").actions(x), policy.actions(x))
    assert ma.plots.trade_off(ma.trade_off(margin, returns, x)).to_dict()["description"].startswith("main goal")


def test_the_score_of_a_pair_is_the_weighted_sum_of_its_goals(models):
    margin, returns, x = models
    actions = np.arange(len(x)) % K
    pairs = ma.BlendedGreedy([margin, returns], [1.0, -2.5]).scores.score_pairs(x, actions)
    rows = np.arange(len(x))
    expected = (margin.expected_reward(x) - 2.5 * returns.expected_reward(x))[rows, actions]
    np.testing.assert_allclose(pairs, expected, rtol=1e-12)
    curve = ma.trade_off(margin, returns, x)
    assert repr(curve) == f"TradeOff({len(curve.points)} policies)"


def test_bad_goals_are_refused(models):
    margin, returns, x = models
    with pytest.raises(RangeError, match="weights must be at least 0"):
        ma.trade_off(margin, returns, x, weights=[-1.0])
    other = ma.fit(ma.LoggedData(np.ones((5, 2)), np.arange(5), np.ones(5)), ma.priors.independent(5, dim=2))
    rows, columns = (
        {"x": np.arange(4.0), "z": np.arange(4.0) % 2, "item": [0, 1, 2, 1], "reward": np.ones(4)},
        ("x", "z"),
    )
    by_column = [ma.read_logs(pa.table(rows), [name], "item", "reward") for name in columns]
    first, second = (ma.fit(logs, ma.priors.independent(3, dim=logs.dim)) for logs in by_column)
    with pytest.raises(InputError, match="posteriors must have the same feature map"):
        ma.BlendedGreedy([first, second], [1.0, 1.0])
    with pytest.raises(ShapeError, match="same actions and features"):
        ma.BlendedGreedy([margin, other], [1.0, 1.0])
    with pytest.raises(ShapeError, match="weights must have 2 rows"):
        ma.BlendedGreedy([margin, returns], [1.0])
    with pytest.raises(InputError, match="at least one posterior"):
        ma.BlendedGreedy([], [])
