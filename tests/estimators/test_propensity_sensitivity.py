"""The marginal sensitivity model, against a search over all extreme propensities of a small log."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import InputError

N = 8


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(2)
    logging = np.array([0.5, 0.3, 0.2])
    actions = rng.choice(3, p=logging, size=N)
    rewards = actions + rng.normal(size=N)
    logs = ma.LoggedData(rng.normal(size=(N, 1)), actions, rewards, logging[actions], n_actions=3)
    return logs, ma.TablePolicy([0.1, 0.2, 0.7])


def corners(logs, policy, odds, self_normalised):
    """The estimate for all extreme propensities: their odds are multiplied or divided."""
    p, pi = logs.propensities, policy.probability_of(logs.contexts, logs.actions)
    values = []
    for powers in product((-1.0, 1.0), repeat=N):
        bent = p / (1 - p) * odds ** np.array(powers)
        weights = pi * (1 + bent) / bent
        values.append(weights @ logs.rewards / (weights.sum() if self_normalised else N))
    return min(values), max(values)


@pytest.mark.parametrize("self_normalised", [True, False])
@pytest.mark.parametrize("odds", [1.0, 1.3, 4.0, 100.0])
def test_bounds_are_those_of_all_extreme_propensities(world, odds, self_normalised):
    bounds = ma.propensity_sensitivity(*world[::-1], self_normalised=self_normalised, columns=False).bounds(odds)
    assert_allclose(bounds, corners(*world, odds, self_normalised), rtol=1e-12)


def test_the_tipping_point_is_that_of_the_search(world):
    logs, policy = world
    answer = ma.propensity_sensitivity(policy, logs)
    mean = logs.rewards.mean()
    assert answer.gain > 0
    assert corners(logs, policy, answer.tipping, True)[0] == pytest.approx(mean, abs=1e-9)
    assert corners(logs, policy, answer.tipping * 0.999, True)[0] > mean
    assert answer.value == pytest.approx(ma.SNIPS().estimate(policy, logs).value)
    assert answer.records() == [{"column": name, "odds": factor} for name, factor in answer.columns] != []


def test_a_loss_tips_upwards(world):
    logs, policy = world
    worse = ma.LoggedData(logs.contexts, logs.actions, -logs.rewards, logs.propensities, 3)
    up, down = (ma.propensity_sensitivity(policy, part, columns=False) for part in (logs, worse))
    assert down.gain == pytest.approx(-up.gain)
    assert down.tipping == pytest.approx(up.tipping)


def test_a_column_that_decided_the_logged_action_is_stronger_than_one_that_did_not():
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(3000, 2))
    p = 1 / (1 + np.exp(-1.5 * contexts[:, 0]))
    actions = (rng.random(3000) < p).astype(int)
    logs = ma.LoggedData(contexts, actions, actions + rng.normal(size=3000), np.where(actions, p, 1 - p), 2)
    answer = ma.propensity_sensitivity(ma.TablePolicy([0.2, 0.8]), logs)
    (first, strong), (second, weak) = answer.columns
    assert (first, second) == ("column 0", "column 1")
    # The odds differ from their mean by e^{1.5 x}, and |x| is below 1.96 in 95 % of the rounds.
    assert strong == pytest.approx(np.exp(1.5 * 1.96), rel=0.35)
    assert weak < 1.2
    assert "hiding column 0, the strongest context column, would change them" in answer.sentence


def test_a_gain_that_no_propensity_can_overturn_says_so():
    logs = ma.LoggedData(np.ones((4, 1)), [0, 0, 1, 1], [1.0, 1.0, 3.0, 3.0], [0.5] * 4, 2)
    answer = ma.propensity_sensitivity(ma.TablePolicy([0.0, 1.0]), logs, columns=False)
    assert answer.tipping == np.inf
    assert answer.sentence == "No error in the propensities could overturn the gain of +1.00."
    assert answer.record()["tipping_odds"] is None
    with pytest.raises(InputError, match="never chooses a logged action"):
        ma.propensity_sensitivity(
            ma.TablePolicy([0.0, 0.0, 1.0]), ma.LoggedData(np.ones((4, 1)), [0, 0, 1, 1], np.ones(4), [0.5] * 4, 3)
        )


def test_a_gain_that_the_correct_propensities_do_not_show_tips_at_once():
    """The estimate is the mean reward: the gain over it is nothing, whatever its sign."""
    rewards = np.array([1.0, 2.0, 4.0, 3.0])
    logs = ma.LoggedData(np.ones((4, 1)), [0, 1, 0, 1], rewards, np.full(4, 0.5), n_actions=2)
    answer = ma.propensity_sensitivity(ma.Uniform(2), logs, columns=False)
    assert answer.gain == 0.0 and answer.tipping == 1.0
