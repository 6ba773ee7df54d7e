"""Confidence sequences: the formula round by round, and the coverage of all looks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import InputError, RangeError


def by_hand(numbers, error):
    """The interval after each round of numbers in [0, 1], as the paper has it, one round at a time."""
    ends, low, high = [], 0.0, 1.0
    staked = won = paid = 0.0
    for t in range(1, len(numbers) + 1):
        past = numbers[: t - 1]
        guesses = [(0.5 + sum(past[: i + 1])) / (i + 2) for i in range(t - 1)]
        mean = guesses[-1] if guesses else 0.5
        variance = (0.25 + sum((x - m) ** 2 for x, m in zip(past, guesses, strict=True))) / t
        stake = min(0.5, np.sqrt(2 * np.log(2 / error) / (variance * t * np.log(1 + t))))
        x = numbers[t - 1]
        staked, won = staked + stake, won + stake * x
        paid += 4 * (x - mean) ** 2 * (-np.log(1 - stake) - stake) / 4
        half = (np.log(2 / error) + paid) / staked
        low, high = max(low, won / staked - half), min(high, won / staked + half)
        ends.append((low, high))
    return np.array(ends)


def test_intervals_are_those_of_the_formula_round_by_round():
    rewards = np.random.default_rng(0).beta(0.5, 2.0, size=60)
    sequence = ma.ConfidenceSequence(-1.0, 3.0)
    assert_allclose(sequence.intervals(4 * rewards - 1, 0.9), 4 * by_hand(rewards, 0.1) - 1, rtol=1e-10)


def test_a_look_does_not_depend_on_later_rounds():
    rewards = np.random.default_rng(1).random(500)
    sequence = ma.ConfidenceSequence(0.0, 1.0)
    assert_allclose(sequence.intervals(rewards)[:200], sequence.intervals(rewards[:200]), rtol=1e-12)


def test_all_looks_cover_and_those_of_the_normal_interval_do_not():
    """1,000 looks at each of 200 logs; the study has 10,000 looks."""
    from confidence_sequences import share_of_logs_covered

    sequence, normal = share_of_logs_covered(n_logs=200, n_looks=1000, rate=0.2, seed=0)
    assert sequence >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 200)
    assert normal < 0.8


@pytest.fixture
def logs():
    rng = np.random.default_rng(3)
    actions = rng.integers(2, size=400)
    return ma.LoggedData(
        np.ones((400, 1)), actions, (rng.random(400) < 0.3 + 0.3 * actions) * 1.0, np.full(400, 0.5), 2
    )


def test_an_estimate_has_the_interval_of_its_last_look(logs):
    policy, interval = ma.TablePolicy([0.1, 0.9]), ma.ConfidenceSequence(0.0, 2.0)
    estimate = ma.IPS(cap=2.0, interval=interval).estimate(policy, logs)
    contributions = ma.IPS(cap=2.0).contributions(policy, logs)
    assert estimate.method == "sequence"
    assert estimate.interval(0.9) == pytest.approx(interval.intervals(contributions, 0.9)[-1])
    # The probability is the level of the one-sided bound at which zero is reached.
    level = estimate.probability_positive
    assert estimate.interval(2 * level - 1 - 1e-9)[0] >= 0
    low, high = estimate.interval()
    narrow = ma.IPS(cap=2.0).estimate(policy, logs).interval()
    assert high - low > narrow[1] - narrow[0]


@pytest.mark.parametrize("rewards", [np.zeros(50), np.tile([-1.0, 1.0], 25)])
def test_where_every_interval_holds_zero_both_signs_are_as_likely(rewards):
    logs = ma.LoggedData(np.ones((50, 1)), np.zeros(50, dtype=int), rewards, np.ones(50), 1)
    estimate = ma.IPS(interval=ma.ConfidenceSequence(-1.0, 1.0)).estimate(ma.Uniform(1), logs)
    low, high = estimate.interval(0.01)
    assert low <= 0.0 <= high and estimate.probability_positive == 0.5
    bernstein = ma.IPS(interval=ma.EmpiricalBernstein(2.0)).estimate(ma.Uniform(1), logs)
    assert bernstein.value == 0.0 and bernstein.probability_positive == 0.5


def test_what_it_does_not_hold_for_is_refused(logs):
    policy, interval = ma.TablePolicy([0.1, 0.9]), ma.ConfidenceSequence(0.0, 1.0)
    with pytest.raises(RangeError, match="contributions must be from low=0 to high=1; row"):
        ma.IPS(interval=interval).estimate(policy, logs).interval()
    with pytest.raises(InputError, match="this estimate is a ratio"):
        ma.SNIPS(interval=interval).estimate(policy, logs)
    grouped = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 2, groups=np.arange(400) // 2)
    with pytest.raises(InputError, match="these are in groups"):
        ma.IPS(interval=interval).estimate(policy, grouped)
    columns = logs.contexts, logs.actions, logs.rewards, logs.propensities, 2
    with pytest.raises(InputError, match=r"counts rounds once; these have weights\. Repeat rows instead"):
        ma.IPS(cap=2.0, interval=ma.ConfidenceSequence(0.0, 2.0)).estimate(
            policy, ma.LoggedData(*columns, weights=np.full(400, 2.0))
        )
    with pytest.raises(RangeError, match="high must be above low=1; got 0"):
        ma.ConfidenceSequence(1.0, 0.0)
