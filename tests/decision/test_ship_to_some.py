"""A policy that ships to some follows the segments that gain, and no round evaluates a choice that it took part in."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.decision import ship_to_some as module
from manyarms.jobs.segments import SegmentLabels, gains_by_posterior

K = 12


def shop(n=1500, seed=0):
    """Items of one kind are worth more, except abroad, where they cost as much."""
    rng = np.random.default_rng(seed)
    segments = np.array(["north", "south", "abroad"])[rng.integers(3, size=n)]
    actions = rng.integers(K, size=n)
    worth = np.where(actions < 4, 1.0, 0.0) * np.where(segments == "abroad", -1.0, 1.0)
    rewards = worth + 0.3 * rng.normal(size=n)
    logs = ma.LoggedData(np.ones((n, 1)), actions, rewards, np.full(n, 1 / K), K, segments=segments)
    train, test = logs.take(np.arange(n // 3)), logs.take(np.arange(n // 3, n))
    return ma.fit(train, ma.priors.from_categories(np.arange(K) // 4, dim=1)), test


def test_the_segments_that_gain_are_followed_and_the_gain_is_that_of_the_mixture():
    posterior, test = shop()
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, test, posterior)
    some = decision.ship_to_some
    assert some.follow == ("north", "south") and some.n_segments == 3
    # 0.667 in two thirds of the traffic, and the opposite in the last third.
    low, high = some.gain.interval()
    assert low < 0.444 < high and some.gain.value > some.everywhere.value
    assert "2 of 3 segments" in some.sentence and some.sentence in decision.segment_sentences
    assert decision.as_json()["ship_to_some"]["follow"] == ["north", "south"]


def test_a_round_does_not_evaluate_a_choice_that_it_took_part_in():
    posterior, test = shop()
    greedy, labels = ma.Greedy(posterior), SegmentLabels(test.segments)
    model = gains_by_posterior(greedy, test, posterior, labels)
    first, second = module._halves(test)
    rewards = test.rewards.copy()
    rewards[first] = -rewards[first]
    before, after = (
        module._chosen_by_other_half(ma.Checked(posterior, n_folds=0), greedy, rounds, labels, model)
        for rounds in (test, test.with_rewards(rewards))
    )
    assert set(first) | set(second) == set(range(len(test)))
    # Other rewards in one half change the choice for the other half, and not for their own.
    assert (before[first] == after[first]).all() and (before[second] != after[second]).any()


def test_rounds_of_weight_zero_are_as_good_as_absent():
    posterior, test = shop(n=600)
    greedy, weights = ma.Greedy(posterior), np.ones(len(test))
    weights[::3] = 0.0
    kept = np.flatnonzero(weights)
    columns = test.contexts, test.actions, test.rewards, test.propensities, K
    weighted = ma.LoggedData(*columns, weights=weights, segments=test.segments)
    gains = {"north": 1.0, "south": 1.0, "abroad": -1.0}
    got, expected = (
        module.ship_to_some("greedy", greedy, rounds, posterior, gains, seen=False)
        for rounds in (weighted, test.take(kept))
    )
    assert got.follow == expected.follow == ("north", "south")
    for name in ("gain", "everywhere"):
        one, other = getattr(got, name), getattr(expected, name)
        np.testing.assert_allclose([one.value, one.std], [other.value, other.std], rtol=1e-9)


def test_too_few_rounds_or_one_segment_give_no_answer():
    posterior, test = shop(n=300)
    greedy = ma.Greedy(posterior)
    gains = {"north": 1.0, "all": 1.0}
    assert module.ship_to_some("greedy", greedy, test.take(np.arange(12)), posterior, gains, seen=False) is None
    alone = test.with_segments(["all"] * len(test))
    assert module.ship_to_some("greedy", greedy, alone, posterior, gains, seen=False) is None


@pytest.mark.parametrize(("noise", "seed"), [(3.0, 21), (6.0, 10)])
def test_the_followed_segments_are_those_with_a_positive_gain_in_the_table(noise, seed):
    """Noisy rewards, so that the level of the gains is not that of the segments' own rewards."""
    rng = np.random.default_rng(seed)
    posterior, test = shop(n=600, seed=seed)
    noisy = test.with_rewards(test.rewards + noise * rng.normal(size=len(test)))
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, noisy, posterior)
    better = {row.segment for row in decision.evaluation.segments.of_policy("greedy") if row.gain.value > 0}
    assert set(decision.ship_to_some.follow) == better
