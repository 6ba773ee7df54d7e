import numpy as np

from trust import coverage_levels

(CHECK,) = coverage_levels.CHECKS


def test_a_few_problems_hold():
    outcome = CHECK.summarise([CHECK.measure(case) for case in range(10)])
    assert outcome.holds, outcome


def rows_with(on_contexts, in_population, n=2000):
    """Rows of one quantity that cover in these shares of the problems, at each level."""
    share = (np.arange(n) + 0.5) / n
    return [
        {"greedy": [[bool(s < a), bool(s < b)] for a, b in zip(on_contexts, in_population, strict=True)]} for s in share
    ]


def test_coverage_that_is_off_at_a_single_level_is_noticed():
    right = coverage_levels.LEVELS
    assert CHECK.summarise(rows_with(right, right)).holds
    for wrong in ((0.5, 0.8, 0.92, 0.99), (0.5, 0.8, 0.95, 0.975), (0.55, 0.8, 0.95, 0.99)):
        assert not CHECK.summarise(rows_with(wrong, right)).holds
    assert not CHECK.summarise(rows_with(right, (0.5, 0.8, 0.91, 0.99))).holds
    # In the population, intervals may be too wide.
    assert CHECK.summarise(rows_with(right, (0.6, 0.9, 0.97, 0.999))).holds
