import numpy as np
import pytest

import manyarms as ma
from trust import invariance

CHECK, PROCESSES = invariance.CHECKS


def rows_of(*families):
    cases = [case for case, (family, _) in enumerate(invariance.VARIANTS) if not families or family in families]
    return [CHECK.measure(case) for case in cases]


def test_a_case_of_each_family_holds():
    outcome = CHECK.summarise(rows_of())
    assert outcome.holds, outcome
    assert len(outcome.notes) == len(invariance.FAMILIES)


def test_a_fit_that_depends_on_the_order_of_rows_is_noticed(monkeypatch):
    exact = ma.fit

    def first_row_counts_more(logs, *args, **options):
        rewards = np.array(logs.rewards)
        rewards[0] += 1e-3
        return exact(logs.with_rewards(rewards), *args, **options)

    monkeypatch.setattr(ma, "fit", first_row_counts_more)
    rows = [row for row in rows_of("order of rows") if row["rewards"] == "Gaussian"]
    assert not CHECK.summarise(rows).holds


def test_blocks_of_rounds_are_small_and_sums_come_in_another_order():
    rows = [row for row in rows_of("chunk size") if row["rewards"] == "Gaussian"]
    assert all(row["difference"] > 0 for row in rows)


def test_threads_may_not_differ_at_all():
    row = {"family": "threads", "rewards": "Gaussian", "difference": 1e-16}
    assert not CHECK.summarise([row]).holds
    assert CHECK.summarise([row | {"difference": 0.0}]).holds


@pytest.mark.slow
def test_two_processes_fit_as_one_does():
    assert PROCESSES.summarise([PROCESSES.measure(0), PROCESSES.measure(1)]).holds


def test_a_difference_between_processes_is_noticed():
    assert not PROCESSES.summarise([{"rewards": "Gaussian", "processes": 1e-9}]).holds
    assert PROCESSES.summarise([{"rewards": "clicks", "processes": 1e-9}]).holds
