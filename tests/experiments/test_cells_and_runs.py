"""Cells: computed alone or together, in any order and number of processes, with the same outcome."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_experiments import GRID, LEARN, SMALL, Coin

from manyarms._base.rng import generator
from manyarms.experiments import (
    METHODS,
    Cell,
    Outcome,
    Store,
    compute,
    run,
)
from manyarms.experiments.cell import draw_log, draw_world
from manyarms.experiments.number_requirements import covered
from manyarms.experiments.result_store import (
    COSTS,
    ROWS,
    stored,
)
from manyarms.experiments.run import missing_cells


@pytest.mark.slow
def test_a_cell_computed_alone_is_the_cell_of_the_run(tmp_path):
    results = run([GRID, LEARN], Store(tmp_path), workers=2)
    assert set(results) == {*GRID.cells(), *LEARN.cells()}
    draw_world.cache_clear()
    draw_log.cache_clear()
    for cell in (Cell(SMALL.label, "ope", "DR", 60, 2), Cell(SMALL.label, "opl", "snIPS", 30, 1)):
        alone = compute(SMALL, METHODS[cell.method], cell.kind, cell.n, cell.instance)
        assert replace(stored(alone), seconds=0.0) == replace(results[cell], seconds=0.0)


@pytest.mark.slow
def test_rows_are_the_same_bytes_whatever_the_order_and_the_number_of_processes(tmp_path):
    run([LEARN, GRID], Store(tmp_path / "two"), workers=2)
    store = Store(tmp_path / "one")
    run([LEARN], store, workers=1)
    run([replace(GRID, instances=1)], store, workers=1)
    run([GRID], store, workers=1)
    assert (tmp_path / "one" / ROWS).read_bytes() == (tmp_path / "two" / ROWS).read_bytes()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [".lock", COSTS, ROWS]


@pytest.mark.slow
def test_what_is_done_is_not_done_again(tmp_path):
    store, counts = Store(tmp_path), []
    run([GRID], store, workers=1)
    run([GRID, LEARN], store, workers=1, progress=lambda done, total: counts.append((done, total)))
    n_new = len(list(LEARN.cells()))
    assert counts[0] == (0, n_new) and counts[-1] == (n_new, n_new)
    assert missing_cells([GRID, LEARN], store.read()) == []


def test_methods_share_instances_and_logs_and_instances_differ():
    first, second = (draw_log(SMALL, 0, 30) for _ in range(2))
    assert first is second
    other = SMALL.draw(generator("world", SMALL.label, 0)).log(30, generator("log", SMALL.label, 0, 30))
    assert np.array_equal(first.rewards, other.rewards) and np.array_equal(first.actions, other.actions)
    assert not np.array_equal(first.contexts, draw_log(SMALL, 1, 30).contexts)


def test_brute_force_on_all_weights_at_once_gives_the_answer_of_sdm():
    for instance in range(3):
        ours, brute = (compute(SMALL, METHODS[name], "ope", 60, instance) for name in ("sDM", "joint posterior"))
        assert_allclose([ours.value, ours.low, ours.high], [brute.value, brute.low, brute.high], rtol=1e-9)


def test_a_truth_that_is_itself_a_sample_may_miss_by_its_own_error():
    def held(truth_error):
        sure = Outcome(0.0, 1.5, -1.0, 1.0, 20, 4, truth_error, 0.1, None)
        return float(covered([sure])[0])

    assert held(0.0) == 0.0
    # 1.5 is beyond a half-width of 1, and within hypot(1, 1.96 * 0.6).
    assert held(0.6) == 1.0 and held(0.5) == 0.0


def test_a_user_problem_needs_a_label_and_a_draw():
    result = compute(Coin(), METHODS["sDM"], "opl", 50, 0)
    assert (result.value, result.truth) == (2.0, 2.0)
    assert isinstance(result.peak_bytes, int) and result.peak_bytes > 0
    assert_allclose(compute(Coin(), METHODS["snIPS"], "ope", 500, 1).value, 1.0)


def test_the_first_instances_come_first_and_each_world_once():
    batches = missing_cells([GRID, LEARN], {})
    worlds = [(batch.cells[0].instance, batch.problem.label) for batch in batches]
    assert worlds == sorted(worlds), "a run that is stopped leaves whole instances"
