import numpy as np
import pytest

import manyarms as ma
from trust import invariance

CHECK, PROCESSES = invariance.CHECKS


def rows_of(*families, kinds=("Gaussian",)):
    variants = enumerate(invariance.VARIANTS)
    return [CHECK.measure(case) for case, (family, kind) in variants if family in families and kind in kinds]


def test_a_case_of_each_family_holds_with_gaussian_rewards():
    outcome = CHECK.summarise(rows_of(*invariance.FAMILIES))
    assert outcome.holds, outcome
    assert len(outcome.notes) == len(invariance.FAMILIES)


@pytest.mark.slow
def test_a_case_of_each_family_holds_in_the_loop():
    outcome = CHECK.summarise(rows_of(*invariance.FAMILIES, kinds=("clicks", "counts", "Student-t")))
    assert outcome.holds, outcome


def test_a_fit_that_depends_on_the_order_of_rows_is_noticed(monkeypatch):
    exact = ma.fit

    def first_row_counts_more(logs, *args, **options):
        rewards = np.array(logs.rewards)
        rewards[0] += 1e-3
        return exact(logs.with_rewards(rewards), *args, **options)

    monkeypatch.setattr(ma, "fit", first_row_counts_more)
    assert not CHECK.summarise(rows_of("order of rows")).holds


def test_blocks_of_rounds_are_small_and_sums_come_in_another_order():
    assert all(row["difference"] > 0 for row in rows_of("chunk size"))


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
