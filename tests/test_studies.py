"""The short form of the studies: the long ones are make targets of their own."""

import pytest


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say():
    """200 problems: at a coverage of 95 %, a share below 90 % has a chance of two in a thousand."""
    from interval_coverage import run

    for name, (on_contexts, in_population) in run(200, seed=1).items():
        assert 0.90 < on_contexts <= 0.995, name
        assert in_population > 0.90, name


@pytest.mark.slow
def test_guardrails_block_what_harms_another_goal():
    """20 worlds: at a rate of 5 %, more than 4 broken guardrails have a chance of three in a thousand."""
    from guardrails import run

    shares = run(20, seed=1, pull=0.3)
    assert shares["guarded breaks"] <= 0.2 and shares["guarded worse"] <= 0.15
    assert shares["free breaks"] >= 0.5


@pytest.mark.slow
def test_forecasts_of_the_next_day_hold_and_right_ones_rarely_raise_an_alarm():
    """30 worlds of 19 days: the standard error of the coverage is about one per cent."""
    from backtests import run

    shares = run(30, seed=1)
    assert 0.91 <= shares["coverage"] <= 0.985 and 0.93 <= shares["coverage by category"] <= 0.97
    assert shares["false alarms"] <= 0.17 and shares["alarms under drift"] >= 0.9
