"""Experiments: cells, the store, the runner, claims, methods of one's own."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_data
from numpy.testing import assert_allclose
from scipy import stats

import manyarms as ma
from manyarms.core.logged_data import LoggedData
from manyarms.datasets import SyntheticProblem
from manyarms.errors import DataFileError, InputError
from manyarms.experiments import (
    METHODS,
    Cell,
    Grid,
    Known,
    Origin,
    Outcome,
    Problem,
    Store,
    Synthetic,
    World,
    compute,
    run,
)
from manyarms.experiments.cell import Table, covered, draw_log, draw_world, generator, score
from manyarms.experiments.claim import Claim, above_zero
from manyarms.experiments.claim_requirements import (
    BestIsBetter,
    BetterThanEach,
    Covers,
    GainGrows,
    GainLargerAt,
    MatchesReferences,
    NearTruth,
    Reference,
)
from manyarms.experiments.figure import PAPER_SIZE, QUICK, Figure, Panel, Size, head_to_heads
from manyarms.experiments.methods import check_names, check_specs, load_method, methods_by_name
from manyarms.experiments.paper_synthetic import SMALL_ERRORS, SMALL_REWARDS
from manyarms.experiments.problem import digest_of, shortfall
from manyarms.experiments.reproduction import figures
from manyarms.experiments.result_store import (
    COSTS,
    MADE_OF,
    ROWS,
    BusyError,
    Journal,
    Provenance,
    StaleMethodError,
    StaleRowsError,
)
from manyarms.experiments.run import CellError, WorkerError, missing_cells

SMALL = Synthetic(n_actions=20, latent_dim=3, dim=4)
GRID = Grid(SMALL, "ope", ("sDM", "DM (Bayes)", "IPS", "DR"), (30, 60), 3)
LEARN = Grid(SMALL, "opl", ("sDM", "snIPS"), (30,), 2)


def outcome(value, truth=1.0, low=None, high=None, seconds=0.01):
    return Outcome(value, truth, low, high, 20, 4, 0.0, seconds, None)


# ---------------------------------------------------------------- cells and the runner


def test_a_cell_computed_alone_is_the_cell_of_the_run(tmp_path):
    results = run([GRID, LEARN], Store(tmp_path), workers=2)
    assert set(results) == {*GRID.cells(), *LEARN.cells()}
    draw_world.cache_clear()
    draw_log.cache_clear()
    for cell in (Cell(SMALL.label, "ope", "DR", 60, 2), Cell(SMALL.label, "opl", "snIPS", 30, 1)):
        alone = compute(SMALL, METHODS[cell.method], cell.kind, cell.n, cell.instance)
        assert replace(alone, seconds=0.0) == replace(results[cell], seconds=0.0)


def test_rows_are_the_same_bytes_whatever_the_order_and_the_number_of_processes(tmp_path):
    run([LEARN, GRID], Store(tmp_path / "two"), workers=2)
    store = Store(tmp_path / "one")
    run([LEARN], store, workers=1)
    run([replace(GRID, instances=1)], store, workers=1)
    run([GRID], store, workers=1)
    assert (tmp_path / "one" / ROWS).read_bytes() == (tmp_path / "two" / ROWS).read_bytes()
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [".lock", COSTS, ROWS]


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


def test_the_log_is_that_of_the_world_and_the_truth_that_of_enumeration():
    world = draw_world(SMALL, 3)
    probabilities = world.target.probabilities(world.contexts)
    expected = world.contexts @ world.environment.weights.T
    assert_allclose(world.target_value, (probabilities * expected).sum(axis=1).mean())
    assert_allclose(world.best_value, expected.max(axis=1).mean())
    logs = world.log(4000, np.random.default_rng(0))
    noise = logs.rewards - np.einsum("nd,nd->n", logs.contexts, world.environment.weights[logs.actions])
    assert abs(noise.mean()) < 4 / np.sqrt(4000) and abs(noise.std() - 1) < 0.05
    assert np.all(logs.propensities == 1 / 20)


def test_the_epsilon_greedy_log_picks_the_best_action_half_the_time():
    world = draw_world(replace(SMALL, logging="epsilon-greedy"), 0)
    logs = world.log(4000, np.random.default_rng(1))
    best = (logs.contexts @ world.environment.weights.T).argmax(axis=1)
    share = 0.5 + 0.5 / 20
    assert abs((logs.actions == best).mean() - share) < 4 * np.sqrt(share * (1 - share) / 4000)
    assert_allclose(logs.propensities[logs.actions == best], share)


def test_binary_worlds_have_clicks_and_their_truth_is_that_of_enumeration():
    world = draw_world(replace(SMALL, binary=True), 0)
    chance = 1 / (1 + np.exp(-(world.contexts @ world.environment.weights.T)))
    assert_allclose(world.best_value, chance.max(axis=1).mean())
    assert_allclose(world.target_value, 0.5 * chance.max(axis=1).mean() + 0.5 * chance.mean())
    logs = world.log(3000, np.random.default_rng(0))
    assert set(np.unique(logs.rewards)) == {0.0, 1.0}
    expected = world.environment.expected_reward(logs.contexts, logs.actions)
    assert abs((logs.rewards - expected).mean()) < 4 * 0.5 / np.sqrt(3000)


def test_brute_force_on_all_weights_at_once_gives_the_answer_of_sdm():
    for instance in range(3):
        ours, brute = (compute(SMALL, METHODS[name], "ope", 60, instance) for name in ("sDM", "joint posterior"))
        assert_allclose([ours.value, ours.low, ours.high], [brute.value, brute.low, brute.high], rtol=1e-9)


# ---------------------------------------------------------------- wrong priors


@pytest.mark.parametrize("level", [0.0, 0.5, 1.5])
def test_wrong_priors_are_off_by_uniform_noise_and_stay_definite(level):
    recipe = SyntheticProblem(n_actions=50, dim=10, latent_dim=8)
    prior = recipe.draw_prior(np.random.default_rng(0))
    wrong = recipe.misspecified(prior, level, rng=np.random.default_rng(1))
    for right, off in ((prior.latent_mean, wrong.latent_mean), (prior.mixing.matrices, wrong.mixing.matrices)):
        assert level <= (off - right).min() and (off - right).max() <= level + 0.5
    latent = wrong.latent_cov
    noise = latent - 3.0 * np.eye(8)
    assert_allclose(latent, latent.T)
    assert level - 1e-9 <= noise.min() and noise.max() <= level + 0.5 + 1e-9
    spread = wrong.action_cov(np.arange(50)) - np.einsum(
        "kdp,pq,keq->kde", wrong.mixing.matrices, latent, wrong.mixing.matrices
    )
    assert np.linalg.eigvalsh(spread).min() > 0.9e-3


def test_means_and_covariances_can_be_wrong_apart_with_the_same_noise():
    recipe = SyntheticProblem(n_actions=10, dim=3, latent_dim=2)
    prior = recipe.draw_prior(np.random.default_rng(0))
    both, means, covs = (
        recipe.misspecified(prior, 1.0, means=m, covs=c, rng=np.random.default_rng(1))
        for m, c in ((True, True), (True, False), (False, True))
    )
    assert np.array_equal(means.latent_mean, both.latent_mean) and np.array_equal(covs.latent_mean, prior.latent_mean)
    assert_allclose(covs.latent_cov, both.latent_cov)
    assert_allclose(means.latent_cov, prior.latent_cov)


# ---------------------------------------------------------------- the store


def test_a_torn_line_is_forgotten_and_all_whole_ones_are_kept(tmp_path):
    journal = Journal(tmp_path)
    cells = [Cell("p", "ope", "m", 10, i) for i in range(3)]
    for i, cell in enumerate(cells):
        journal.add(cell, outcome(0.1 * i))
    journal.close()
    (path,) = tmp_path.glob("journal-*")
    whole = path.read_bytes()
    for cut in range(whole.rindex(b"\n", 0, -1) + 1, len(whole) - 1, 17):
        path.write_bytes(whole[:cut])
        assert set(Store(tmp_path).read()) == set(cells[:2])
    path.write_bytes(whole[:-1])
    assert set(Store(tmp_path).read()) == set(cells)


def test_what_a_full_disk_tears_costs_one_cell(tmp_path, monkeypatch):
    write, journal = os.write, Journal(tmp_path)
    cells = [Cell("p", "ope", "m", 10, i) for i in range(3)]
    journal.add(cells[0], outcome(0.1))

    def half(file, line):
        write(file, line[: len(line) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        journal.add(cells[1], outcome(0.2))
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:7]))
    journal.add(cells[2], outcome(0.3))
    journal.close()
    assert set(Store(tmp_path).read()) == {cells[0], cells[2]}


def test_rows_of_another_version_are_refused_and_not_mixed(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.write({Cell("p", "ope", "m", 10, 0): outcome(0.5)})
    journal = Journal(tmp_path)
    journal.add(Cell("p", "ope", "m", 10, 1), outcome(0.5))
    journal.close()
    monkeypatch.setattr("manyarms.experiments.result_store.RECIPE", 99)
    with pytest.raises(DataFileError, match=r"rows\.parquet is of another version"):
        store.read()
    (tmp_path / ROWS).unlink()
    with pytest.raises(DataFileError, match=r"journal-.* is of another version"):
        store.read()


def test_what_was_forgotten_does_not_come_back(tmp_path):
    journal = Journal(tmp_path)
    for method in ("kept", "gone"):
        journal.add(Cell("p", "ope", method, 10, 0), outcome(0.5))
    journal.close()
    assert {cell.method for cell in Store(tmp_path).compact(drop=["gone"])} == {"kept"}
    assert {cell.method for cell in Store(tmp_path).read()} == {"kept"}


def test_values_come_back_from_disk_to_the_bit(tmp_path):
    rng, store = np.random.default_rng(0), Store(tmp_path)
    results = {
        Cell("a, b", "ope", "sDM", 7, i): Outcome(
            *map(float, rng.normal(size=4) * 10.0 ** rng.integers(-300, 300)), 5, 2, 0.5, 0.1, None
        )
        for i in range(50)
    } | {Cell("a, b", "opl", "sDM", 7, 0): Outcome(0.5, 1.0, None, None, 5, 2, 0.0, 0.25, 123)}
    store.write(results)
    assert Store(tmp_path).read() == results
    rows = pq.read_table(tmp_path / ROWS).to_pylist()
    assert all(
        row["score"] == score(row["kind"], results[Cell(*(row[k] for k in Cell.__dataclass_fields__))]) for row in rows
    )


def test_a_crash_between_writing_rows_and_dropping_journals_counts_nothing_twice(tmp_path):
    journal = Journal(tmp_path)
    cell = Cell("p", "ope", "m", 10, 0)
    journal.add(cell, outcome(0.5))
    journal.close()
    store = Store(tmp_path)
    store.write(store.read())
    assert len(list(tmp_path.glob("journal-*"))) == 1
    assert store.compact() == {cell: outcome(0.5)}
    assert pq.read_table(tmp_path / ROWS).num_rows == 1


@pytest.mark.parametrize("damage", ["half", "text", "columns"])
def test_a_damaged_results_file_is_refused_by_name_and_left_alone(damage, tmp_path):
    store = Store(tmp_path)
    store.write({Cell("p", "ope", "m", 10, 0): outcome(0.5)})
    path = tmp_path / ROWS
    if damage == "columns":
        pq.write_table(pq.read_table(path).drop_columns(["value"]), path)
    else:
        path.write_bytes(path.read_bytes()[:300] if damage == "half" else b"not parquet")
    before = path.read_bytes()
    with pytest.raises(DataFileError, match=r"rows\.parquet.*(Move it away)"):
        store.compact()
    assert path.read_bytes() == before


def test_two_runs_in_one_folder_are_refused(tmp_path):
    with Store(tmp_path).lock(), pytest.raises(BusyError, match="another run"):
        run([GRID], Store(tmp_path), workers=1)


def test_a_file_is_no_folder_for_results(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is a file, not a folder"):
        Store(tmp_path / "file")


def test_all_but_the_cells_to_keep_are_forgotten(tmp_path):
    store, cells = Store(tmp_path), [Cell("p", "ope", "m", 10, i) for i in range(4)]
    store.write({cell: outcome(0.5) for cell in cells})
    assert set(store.keep(cells[:2])) == set(Store(tmp_path).read()) == set(cells[:2])
    assert pq.read_table(tmp_path / COSTS).num_rows == 2


# ---------------------------------------------------------------- what rows were made of


@dataclass(frozen=True)
class Weighed(Problem):
    """A problem made of data: a file with the value of each of two actions."""

    path: str
    label: str = "weighed"

    def draw(self, rng):
        return CoinWorld(self._values())

    def origin(self):
        return Origin(digest_of(self._values()), shortfall(actions=(len(self._values()), 3)))

    def _values(self):
        if not Path(self.path).exists():
            raise DataFileError("no data.")
        return np.array(Path(self.path).read_text().split(), dtype=float)


@pytest.fixture
def weighed(tmp_path):
    path = tmp_path / "values.txt"

    def write(text):
        path.write_text(text)
        draw_world.cache_clear()
        draw_log.cache_clear()
        return Grid(Weighed(str(path)), "ope", ("sDM",), (20,), 2)

    return write


def test_rows_of_other_data_are_refused_and_can_be_made_anew(weighed, tmp_path):
    store = Store(tmp_path / "out")
    before = run([weighed("1 2")], store, workers=1)
    assert run([weighed("1 2")], store, workers=1) == before
    for grid in (weighed("1.5 2"), replace(weighed("1.5 2"), instances=3)):
        with pytest.raises(StaleRowsError, match=r"out holds rows of 'weighed'.*other data.*drop=\['weighed'\]"):
            run([grid], store, workers=1)
    assert store.read() == before, "nothing was computed"
    store.compact(drop=["weighed"])
    after = run([weighed("1.5 2")], store, workers=1)
    assert {found.truth for found in after.values()} == {1.5}


def test_rows_without_a_digest_are_taken_on_only_if_their_truth_is_that_of_the_data(weighed, tmp_path):
    store = Store(tmp_path / "out")
    run([weighed("1 2")], store, workers=1)
    path = tmp_path / "out" / MADE_OF
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(StaleRowsError, match=r"truth of instance 0 is 1 there and 1\.5 here"):
        run([weighed("1.5 2")], store, workers=1)
    assert not path.exists()
    counts = []
    run([weighed("1 2")], store, workers=1, progress=lambda done, total: counts.append(total))
    assert path.read_bytes() == kept and counts == [0], "taken on, and nothing computed"


def test_finished_rows_can_be_read_where_the_data_is_not(weighed, tmp_path):
    store, grid = Store(tmp_path / "out"), weighed("1 2")
    before = run([grid], store, workers=1)
    (tmp_path / "values.txt").unlink()
    assert run([grid], store, workers=1) == before
    with pytest.raises(DataFileError, match="no data"):
        run([replace(grid, instances=3)], store, workers=1)
    assert Provenance.read(tmp_path / "out").problems["weighed"].caveat == "not the full data: 2 actions instead of 3"


def test_a_damaged_ledger_is_refused_with_the_way_out(tmp_path):
    (tmp_path / MADE_OF).write_text("{")
    with pytest.raises(DataFileError, match="Delete it"):
        Provenance.read(tmp_path)


def test_digests_tell_values_types_shapes_and_texts_apart():
    parts = [np.zeros(4), np.zeros((2, 2)), np.zeros(4, dtype=np.int64), np.ones(4), ["a", "b"], ["ab"]]
    assert len({digest_of(part) for part in parts}) == len(parts)
    assert digest_of(np.arange(6).reshape(2, 3).T) == digest_of(np.ascontiguousarray(np.arange(6).reshape(2, 3).T))
    assert digest_of(np.array(["a", "b"], dtype=object)) == digest_of(["a", "b"])


def test_data_that_is_cut_short_has_another_digest_and_a_caveat(made_up, tmp_path):
    for name in ("movielens", "jester", "kuairec", "open-bandit"):
        (origin,) = {panel.problem.origin() for panel in figures(str(made_up))[name].panels}
        assert origin.digest == figures(str(made_up) + "/.")[name].panels[0].problem.origin().digest
        assert ("not the full data" in origin.caveat) == (name in ("movielens", "jester"))
    (tmp_path / "ml-1m").mkdir()
    for name in ("ratings.dat", "movies.dat"):
        text = (made_up / "ml-1m" / name).read_text(encoding="latin-1")
        (tmp_path / "ml-1m" / name).write_text(text if name[0] == "m" else "\n".join(text.split("\n")[:-1]))
    cut, whole = (figures(str(folder))["movielens"].panels[0].problem.origin() for folder in (tmp_path, made_up))
    assert cut.digest != whole.digest and cut.caveat != whole.caveat


# ---------------------------------------------------------------- failing methods, methods of one's own

OWN = """
import manyarms as ma
from manyarms.experiments import Method

class Mine(Method):
    name = "mine"
    def estimate(self, task, target):
        return ma.IPS().estimate(target, task.logs)
    def learn(self, task):
        return ma.Uniform(task.logs.n_actions)

class Broken(Method):
    name = "broken"
    def learn(self, task):
        raise ZeroDivisionError("my mistake")

class Late(Method):
    name = "late"
    def learn(self, task):
        if len(task.logs) > 40:
            raise ValueError("rows over 40")
        return ma.Uniform(task.logs.n_actions)

class Taken(Method):
    name = "sDM"
    def learn(self, task): ...

class Empty(Method):
    name = "empty"

class Nameless(Method):
    def learn(self, task): ...
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_method_of_ones_own_is_one_class_and_one_flag(own, tmp_path):
    place = f"{own}:Mine"
    grids = [Grid(SMALL, "ope", ("mine", "IPS"), (40,), 2), Grid(SMALL, "opl", ("mine",), (40,), 2)]
    results = run(grids, Store(tmp_path / "out"), extra_methods=[place], workers=1)
    for instance in range(2):
        mine, ips = (results[Cell(SMALL.label, "ope", name, 40, instance)] for name in ("mine", "IPS"))
        assert (mine.value, mine.low) == (ips.value, ips.low)
        world = draw_world(SMALL, instance)
        assert results[Cell(SMALL.label, "opl", "mine", 40, instance)].value == world.value(ma.Uniform(20))


def test_it_is_put_into_every_panel_that_it_can_be_in(own):
    mine = load_method(f"{own}:Mine")
    broken = load_method(f"{own}:Broken")
    for figure in figures().values():
        extended = figure.with_methods([mine, broken])
        assert all("mine" in panel.methods for panel in extended.panels)
        assert all(("broken" in panel.methods) == (panel.kind == "opl") for panel in extended.panels)


BAD = """
import numpy as np
import manyarms as ma
from manyarms.experiments import Method

class Exits(Method):
    name = "exits"
    def learn(self, task):
        raise SystemExit(0)

class Swaps(Method):
    name = "swaps"
    def estimate(self, task, target):
        return ma.Uniform(20)

class Number(Method):
    name = "number"
    def estimate(self, task, target):
        return 3.0

class Nan(Method):
    name = "nan"
    def estimate(self, task, target):
        return ma.Estimate(float("nan"), 1.0)

class Single(Method):
    name = "single"
    def estimate(self, task, target):
        return ma.Estimate(np.float32(0.5), np.float32(0.25))
"""


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("Exits", "opl", "SystemExit"),
        ("Swaps", "ope", "must be an ma.Estimate; got Uniform"),
        ("Number", "ope", "must be an ma.Estimate; got float"),
        ("Nan", "ope", "is nan"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_never_a_row(name, kind, words, tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    grids = [Grid(SMALL, kind, (name.lower(),), (40,), 1)]
    with pytest.raises(CellError, match=words):
        run(grids, Store(tmp_path / "out"), extra_methods=[f"{tmp_path}/bad.py:{name}"], workers=1)
    assert Store(tmp_path / "out").read() == {}


def test_numbers_of_any_width_become_rows(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    grids = [Grid(SMALL, "ope", ("single",), (40,), 1)]
    (found,) = run(grids, Store(tmp_path / "out"), extra_methods=[f"{tmp_path}/bad.py:Single"], workers=1).values()
    assert found.value == 0.5


def test_a_file_of_ones_own_may_use_dataclasses_neighbours_and_any_name(tmp_path):
    (tmp_path / "neighbour.py").write_text("NAME = 'mine'")
    (tmp_path / "json.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom neighbour import NAME\n"
        "from manyarms.experiments import Method\n@dataclass\nclass Mine(Method):\n    name: str = NAME\n"
        "    def learn(self, task): ...\n"
    )
    assert load_method(f"{tmp_path}/json.py:Mine").name == "mine"


def test_a_method_that_fails_is_named_with_its_cell_before_anything_else_is_run(own, tmp_path):
    grids = [Grid(SMALL, "opl", ("DM (Bayes)", "broken"), (40, 80), 2)]
    with pytest.raises(CellError, match=r"broken failed on .*opl, n = 40, instance 0.*ZeroDivisionError: my mistake"):
        run(grids, Store(tmp_path / "out"), extra_methods=[f"{own}:Broken"], workers=1)
    assert Store(tmp_path / "out").read() == {}


def test_what_was_finished_before_a_method_failed_stays_and_nothing_is_begun_after(own, tmp_path):
    grids = [Grid(SMALL, "opl", ("late", "DM (Bayes)"), (40,), 6)]
    with pytest.raises(CellError, match=r"late failed on .*rows over 40"):
        run([*grids, replace(grids[0], rounds=(41,))], Store(tmp_path), extra_methods=[f"{own}:Late"], workers=1)
    kept = Store(tmp_path).read()
    assert Cell(SMALL.label, "opl", "late", 40, 0) in kept and len(kept) < 24


def test_a_method_that_was_changed_is_not_mixed_with_its_old_rows(own, tmp_path):
    grids, place = [Grid(SMALL, "opl", ("mine", "sDM"), (40,), 1)], f"{own}:Mine"
    store = Store(tmp_path / "out")
    before = run(grids, store, extra_methods=[place], workers=1)
    assert run(grids, store, extra_methods=[place], workers=1) == before
    own.write_text(OWN + "# changed")
    with pytest.raises(StaleMethodError, match=r"own\.py has changed since its rows were made.*drop=\['mine'\]"):
        run(grids, store, extra_methods=[place], workers=1)
    store.compact(drop=["mine"])
    after = run(grids, store, extra_methods=[place], workers=1)
    sdm, mine = (Cell(SMALL.label, "opl", name, 40, 0) for name in ("sDM", "mine"))
    assert after[sdm] == before[sdm] and after[mine].value == before[mine].value


@pytest.mark.parametrize(
    ("methods", "extra", "words"),
    [
        (("sDM", "sdm"), [], "no method sdm. There are: .*DM .Bayes.; .*sDM"),
        (("joint posterior",), [], "joint posterior has no `learn`"),
        (("sDM",), "own.py:Mine", "must be a list of texts"),
    ],
)
def test_what_cannot_be_run_is_refused_before_workers_start(methods, extra, words, tmp_path):
    with pytest.raises(InputError, match=words):
        run([Grid(SMALL, "opl", methods, (40,), 1)], Store(tmp_path), extra_methods=extra, workers=1)
    assert list(tmp_path.glob("*")) == []
    # The hook that checks annotations would be first to refuse this one.
    with pytest.raises(InputError, match=r"extra_methods must be texts.*got Direct\. Name it as file\.py:Class"):
        check_specs([METHODS["sDM"]])


def test_a_script_without_a_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(
        "from pathlib import Path\nfrom manyarms.experiments import Grid, Store, Synthetic, run\n"
        "run([Grid(Synthetic(n_actions=5), 'opl', ('sDM',), (20,), 2)], Store(Path('out')), workers=1)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    last = done.stderr.strip().split("\n")[-1]
    assert done.returncode == 1 and WorkerError.__name__ in last
    assert 'behind `if __name__ == "__main__":`' in last and "--" not in last and "memory" not in last


def test_ones_own_is_compared_with_each_other_pair_by_pair():
    rng = np.random.default_rng(5)
    base = rng.normal(0.5, 0.1, 12)
    scores = {"mine": base, "worse": base - 0.1 + rng.normal(0, 0.01, 12), "better": base + 0.1, "same": base}
    figure = Figure("f", "", "", (Panel("p", replace(Coin(), label="p"), "opl", tuple(scores)),))
    (standing,) = head_to_heads(figure, ["mine", "absent"], Table(results_of(scores)), Size("quick", (10, 20), 12, 2))
    found = {match.rival: match for match in standing.matches}
    assert {name: match.decision for name, match in found.items()} == {
        "worse": "for", "better": "against", "same": "tie",
    }  # fmt: skip
    gains = base - scores["worse"]
    assert found["worse"].comparison.words == f"{gains.mean():+.3g} ± {gains.std(ddof=1) / np.sqrt(12):.2g}"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("{}:Taken", "'sDM', which is taken"),
        ("{}:Empty", "neither"),
        ("{}:Nameless", "no name"),
        ("{}:Missing", "no class Missing"),
        ("{}", "does not say which class"),
        ("no-such-file.py:Mine", "not a file"),
        ("no_such_module:Mine", "cannot be imported"),
    ],
)
def test_a_method_that_cannot_be_used_is_refused_with_the_way_out(place, words, own):
    with pytest.raises(InputError, match=words):
        methods_by_name((place.format(own),))


def test_unknown_names_are_told_which_exist():
    with pytest.raises(InputError, match=r"no figure nonsense.*synthetic-opl"):
        check_names(["nonsense"], figures(), "figure")


# ---------------------------------------------------------------- claims


def results_of(scores, kind="opl", problem="p", n=10):
    return {
        Cell(problem, kind, method, n, i): outcome(value if kind == "opl" else 1 + np.sqrt(value))
        for method, values in scores.items()
        for i, value in enumerate(values)
    }


def verdict(part, results, rounds=(10,)):
    return Claim("", (part,)).test(Table(results), {label: set(rounds) for label in part.labels}).verdict


def test_p_values_are_those_of_a_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.6, 0.1, 12), rng.normal(0.5, 0.1, 12)
    (comparison,) = BetterThanEach("p", "opl", "a", ("b",), (10,)).comparisons(Table(results_of({"a": a, "b": b})))
    assert_allclose(comparison.p_for, stats.ttest_rel(a, b, alternative="greater").pvalue)
    assert_allclose(comparison.p_against, stats.ttest_rel(a, b, alternative="less").pvalue)
    (squared,) = BetterThanEach("p", "ope", "a", ("b",), (10,)).comparisons(Table(results_of({"a": a, "b": b}, "ope")))
    assert_allclose(squared.p_for, stats.ttest_rel(a, b, alternative="less").pvalue)


def test_verdicts():
    rng = np.random.default_rng(1)
    base = rng.normal(0.5, 0.1, 20)
    noise = rng.normal(0, 0.01, 20)
    scores = {
        "ours": base,
        "worse": base - 0.05 + noise,
        "better": base + 0.05 + noise,
        "same": base + noise - noise.mean(),
    }
    results = results_of(scores)

    def against(*rivals):
        return verdict(BetterThanEach("p", "opl", "ours", rivals, (10,)), results)

    assert against("worse") == "holds"
    assert against("worse", "better") == "does not hold"
    assert against("worse", "same") == "undecided"
    assert against("worse", "unknown") == "not run"
    assert against("ours") == "undecided"


def test_a_claim_that_is_true_by_chance_only_is_seldom_called_decided():
    rng, called = np.random.default_rng(2), []
    for _ in range(400):
        draws = rng.normal(size=(6, 10))
        results = results_of({name: 0.5 + 0.01 * row for name, row in zip("abcdef", draws, strict=True)})
        called.append(verdict(BetterThanEach("p", "opl", "a", tuple("bcdef"), (10,)), results))
    # Each at most 5 % by construction; rivals share method a, so that the two are far from independent.
    assert called.count("holds") < 400 * 0.05 + 4 * np.sqrt(400 * 0.05)
    assert called.count("does not hold") < 400 * 0.05 + 4 * np.sqrt(400 * 0.05)


def test_only_rounds_that_were_to_be_run_count():
    results = results_of({"a": [0.9, 0.8, 0.9], "b": [0.1, 0.2, 0.1]})
    part = BetterThanEach("p", "opl", "a", ("b",), (10, 20))
    assert verdict(part, results, (10,)) == "holds"
    assert verdict(part, results, (10, 20)) == "not run"
    assert verdict(part, results, (20,)) == "not run"


def test_a_growing_gap_is_told_from_a_steady_one():
    rng = np.random.default_rng(3)

    def gap(size, problem):
        base = rng.normal(0.5, 0.1, 15)
        return results_of({"a": base + size + rng.normal(0, 0.01, 15), "b": base}, problem=problem)

    problems = (("small", "s"), ("large", "l"))
    part = GainGrows(problems, "opl", "a", "b", 10)
    assert verdict(part, gap(0.1, "s") | gap(0.3, "l")) == "holds"
    assert verdict(part, gap(0.3, "s") | gap(0.1, "l")) == "does not hold"
    assert verdict(part, gap(0.2, "s")) == "not run"
    more = GainLargerAt("p", "opl", "a", "b", 10, 20)
    here = results_of({"a": 0.9 + rng.normal(0, 0.01, 9), "b": np.full(9, 0.1)})
    there = results_of({"a": 0.5 + rng.normal(0, 0.01, 9), "b": np.full(9, 0.1)}, n=20)
    assert verdict(more, here | there, (10, 20)) == "holds"


def test_the_best_of_some_is_what_counts():
    results = results_of({"good": [0.9, 0.91, 0.9], "bad": [0.1, 0.1, 0.12], "other": [0.5, 0.5, 0.51]})
    assert verdict(BestIsBetter("p", "opl", ("bad", "good"), ("other",), (10,)), results) == "holds"
    assert verdict(BestIsBetter("p", "opl", ("bad",), ("other",), (10,)), results) == "does not hold"


def test_agreement_with_references_is_within_two_joint_standard_errors():
    values = np.tile([0.4, 0.5, 0.6, 0.5], 5)
    results = results_of({"m": values})
    joint = np.hypot(values.std(ddof=1) / np.sqrt(20), 0.03)

    def agrees(distance, of=results):
        return verdict(MatchesReferences((Reference("p", "opl", "m", 10, 0.5 + distance * joint, 0.03),)), of)

    assert agrees(1.99) == agrees(-1.99) == "holds"
    assert agrees(2.01) == "does not hold"  # 4.4 % two-sided, of one comparison
    assert agrees(0.0, results_of({"m": values[:8]})) == "undecided", "too few instances to say anything"


def test_of_many_references_one_may_be_beyond_two_standard_errors_without_refuting_all():
    rng, called = np.random.default_rng(4), []
    for _ in range(200):
        results = results_of({str(m): rng.normal(0.5, 0.1, 25) for m in range(16)})
        references = tuple(Reference("p", "opl", str(m), 10, 0.5, 0.0) for m in range(16))
        called.append(verdict(MatchesReferences(references), results))
    assert called.count("does not hold") < 200 * 0.05 + 4 * np.sqrt(200 * 0.05)
    assert called.count("undecided") > 20


def test_coverage_is_judged_against_its_own_error():
    def held(n_inside, n):
        return {Cell("p", "ope", "m", 10, i): outcome(0.0, 1.0, 0.0, 2.0 if i < n_inside else 0.5) for i in range(n)}

    assert verdict(Covers("p", "m", (10,)), held(190, 200)) == "holds"
    assert verdict(Covers("p", "m", (10,)), held(184, 200)) == "holds"
    assert verdict(Covers("p", "m", (10,)), held(178, 200)) == "does not hold"
    assert verdict(Covers("p", "m", (10,)), held(19, 20)) == "undecided", "too few instances to say anything"


def test_a_truth_that_is_itself_a_sample_may_miss_by_its_own_error():
    def held(truth_error):
        sure = Outcome(0.0, 1.5, -1.0, 1.0, 20, 4, truth_error, 0.1, None)
        return float(covered([sure])[0])

    assert held(0.0) == 0.0
    # 1.5 is beyond a half-width of 1, and within hypot(1, 1.96 * 0.6).
    assert held(0.6) == 1.0 and held(0.5) == 0.0


def test_the_error_of_the_truth_is_that_of_its_contexts():
    for binary in (False, True):
        world = draw_world(replace(SMALL, binary=binary), 0)
        expected = world.contexts @ world.environment.weights.T
        expected = 1 / (1 + np.exp(-expected)) if binary else expected
        by_context = (world.target.probabilities(world.contexts) * expected).sum(axis=1)
        assert_allclose(world.target_error, by_context.std(ddof=1) / np.sqrt(len(by_context)))


def test_an_estimate_so_vague_that_it_cannot_be_wrong_is_not_called_right():
    def near(value, half):
        cells = {Cell("p", "ope", "m", 10, i): outcome(value, 0.004, value - half, value + half) for i in range(5)}
        return verdict(NearTruth("p", ("m",), 10), cells)

    assert near(0.0045, 0.002) == "holds"
    assert near(50.0, 510.0) == "undecided"
    assert near(0.02, 0.002) == "does not hold"


def test_a_difference_too_small_to_matter_is_a_tie_and_not_a_finding():
    rng = np.random.default_rng(6)
    noise = rng.normal(0, 1e-5, 30)
    assert above_zero("", 10, noise, margin=1e-3).tie and not above_zero("", 10, noise).tie
    assert not above_zero("", 10, noise * 1e3, margin=1e-3).tie, "an error this large leaves it open"
    base = rng.normal(0.5, 0.1, 30)
    scores = {"ours": base, "worse": base - 0.1 + noise, "same": base + 2 * noise, "hair": base + 4e-4 + noise}
    results = results_of(scores)
    assert verdict(BetterThanEach("p", "opl", "ours", ("worse", "same", "hair"), (10,)), results) == "holds"
    assert verdict(BetterThanEach("p", "opl", "ours", ("hair",), (10,)), results) == "undecided", (
        "ties alone show nothing"
    )
    assert verdict(BetterThanEach("p", "ope", "ours", ("hair",), (10,)), results_of(scores, "ope")) == "holds", (
        "no ties there"
    )


def test_the_best_of_several_equals_is_not_called_better():
    rng, called = np.random.default_rng(7), []
    for _ in range(300):
        results = results_of({name: rng.normal(0.5, 0.1, 10) for name in "abcd"})
        called.append(verdict(BestIsBetter("p", "opl", ("a", "b", "c"), ("d",), (10,)), results))
    assert called.count("holds") < 300 * 0.05 + 4 * np.sqrt(300 * 0.05)


def test_gains_at_two_numbers_of_rounds_are_paired_by_instance():
    here = {Cell("p", "opl", m, 10, i): outcome(0.5 + 0.1 * i * (m == "a")) for m in "ab" for i in range(1, 10)}
    there = {Cell("p", "opl", m, 20, i): outcome(0.5 + 0.1 * i * (m == "a")) for m in "ab" for i in range(9)}
    (comparison,) = GainLargerAt("p", "opl", "a", "b", 10, 20).comparisons(Table(here | there))
    assert comparison.count == 8 and comparison.p_for == comparison.p_against == 1.0


def test_only_the_cells_of_a_figure_count_in_its_verdict():
    results = results_of({"a": [0.9] * 6, "b": [0.1, 0.1, 0.1, 0.95, 0.99, 0.99]})
    part = BetterThanEach("p", "opl", "a", ("b",), (10,))
    first = [cell for cell in results if cell.instance < 3]
    assert Claim("", (part,)).test(Table(results, first), {"p": {10}}).comparisons[0].count == 3


def test_the_smaller_catalog_agrees_with_an_independent_implementation():
    """Few instances: means within four joint standard errors."""
    problem = Synthetic(n_actions=100)
    for reference in SMALL_REWARDS + SMALL_ERRORS:
        assert reference.problem == problem.label
        found = [compute(problem, METHODS[reference.method], reference.kind, 1000, i) for i in range(12)]
        values = [score(reference.kind, outcome) for outcome in found]
        joint = np.hypot(reference.error, np.std(values, ddof=1) / np.sqrt(len(values)))
        assert np.mean(values) == pytest.approx(reference.mean, abs=4 * joint), reference


# ---------------------------------------------------------------- the figures


def test_figures_have_distinct_names_known_methods_and_claims_on_what_they_run():
    for name, figure in figures().items():
        assert name == figure.name
        for size in (QUICK, PAPER_SIZE):
            cells = {cell for grid in figure.grids(size) for cell in grid.cells()}
            assert cells and {cell.method for cell in cells} <= set(METHODS)
            everything = {cell: outcome(0.1, 1.0, 0.0, 1.0) for cell in cells}
            for claim, finding in figure.test_claims(Table(everything), size):
                assert finding.comparisons, f"{name}: {claim.text} rests on nothing at size {size.name}"
                assert finding.verdict != "not run", f"{name}: {claim.text} needs what is not run at {size.name}"


def test_every_method_of_every_synthetic_figure_runs():
    done = set()
    for figure in figures().values():
        for panel in figure.panels:
            if not isinstance(panel.problem, Synthetic):
                continue
            problem = replace(panel.problem, n_actions=15, dim=3, latent_dim=2)
            for name in panel.methods:
                if (problem, panel.kind, name) not in done:
                    done.add((problem, panel.kind, name))
                    found = compute(problem, METHODS[name], panel.kind, 40, 1)
                    assert np.isfinite(score(panel.kind, found))
    assert len(done) > 60


REAL = ["movielens", "movielens-halves", "movielens-epsilon-greedy", "kuairec", "jester", "open-bandit", "digits"]


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    return small_data.write_all(tmp_path_factory.mktemp("data"), np.random.default_rng(0))


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("where", ["made-up", "real"])
def test_every_method_of_every_figure_on_data_runs(name, where, request):
    if where == "real" and "MANYARMS_DATA" not in os.environ:
        pytest.skip("MANYARMS_DATA is not set")
    data = os.environ["MANYARMS_DATA"] if where == "real" else str(request.getfixturevalue("made_up"))
    for panel in figures(data)[name].panels:
        for method in panel.methods:
            found = compute(panel.problem, METHODS[method], panel.kind, 200, 1)
            assert np.isfinite(score(panel.kind, found))


def test_kuairec_is_called_partial_only_when_it_is(made_up, tmp_path):
    whole = figures(str(made_up))["kuairec"]
    assert "partial" not in whole.panels[0].problem.label and "PARTIAL" not in whole.note
    (tmp_path / "kuairec").mkdir()
    (tmp_path / "kuairec" / "small_matrix_subsample_watch_ratio.parquet").touch()
    part = figures(str(tmp_path))["kuairec"]
    assert "partial" in part.panels[0].problem.label and "PARTIAL" in part.note


@dataclass(frozen=True)
class Coin(Problem):
    """A problem of one's own, for the runner: two actions, no context."""

    label: str = "coin"

    def draw(self, rng):
        return CoinWorld()


class CoinWorld(World):
    def __init__(self, values=(1.0, 2.0)):
        self.values = np.array(values)
        prior = ma.priors.independent(2, dim=1)
        self.known = Known(prior, prior, 1.0, np.eye(2), prior, lambda: np.array([0, 1]))
        self.target, self.target_value, self.best_value = ma.TablePolicy([1.0, 0.0]), float(values[0]), 2.0

    def log(self, n, rng):
        actions = rng.integers(2, size=n)
        return LoggedData(np.ones((n, 1)), actions, self.values[actions], np.full(n, 0.5), 2)

    def value(self, policy):
        return float(policy.probabilities(np.ones((1, 1)))[0] @ self.values)


def test_a_problem_of_ones_own_needs_a_label_and_a_draw():
    found = compute(Coin(), METHODS["sDM"], "opl", 50, 0)
    assert (found.value, found.truth) == (2.0, 2.0)
    assert isinstance(found.peak_bytes, int) and found.peak_bytes > 0
    assert_allclose(compute(Coin(), METHODS["snIPS"], "ope", 500, 1).value, 1.0)


# ---------------------------------------------------------------- the command, killed


def manyarms(*arguments, **options):
    command = [sys.executable, "-c", "from manyarms.cli import app; app()", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_that_is_killed_goes_on_and_ends_with_the_rows_of_one_that_was_not(tmp_path):
    figure = ["reproduce", "digits", "--quick", "--instances", "2", "--workers", "2"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    deadline = time.monotonic() + 120
    with manyarms(*figure, "--out", killed) as process:
        while sum(len(path.read_bytes().split()) for path in killed.glob("journal-*")) < 500:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    journals = list(killed.glob("journal-*"))
    assert journals and not (killed / ROWS).exists()
    workers = [int(path.name.split("-")[1]) for path in journals]
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)
    kept = Store(killed).read()
    assert len(kept) >= 15
    for folder in (killed, whole):
        output, errors = manyarms(*figure, "--out", folder).communicate(timeout=300)
        assert "digits" in output and errors.startswith("digits (1 of 1): ") and errors.count("\n") == 1
    assert (killed / ROWS).read_bytes() == (whole / ROWS).read_bytes()
    after = Store(killed).read()
    assert all(after[cell] == kept[cell] for cell in kept), "a finished cell was computed again"
    assert {path.suffix for path in whole.iterdir()} >= {".svg", ".png", ".md", ".parquet"}


def test_ctrl_c_is_answered_at_once_and_keeps_what_was_finished(tmp_path):
    figure = ["reproduce", "digits", "--quick", "--instances", "20", "--workers", "2", "--out", tmp_path / "out"]
    with manyarms(*figure, start_new_session=True) as process:
        deadline = time.monotonic() + 120
        while sum(path.stat().st_size for path in (tmp_path / "out").glob("journal-*")) < 2000:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        # As a terminal does: to all processes of the group.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    lines = errors.strip().split("\n")
    assert process.returncode == 130
    assert [line.split()[0] for line in lines] == ["digits", "stopping", "Stopped."], errors
    assert not list((tmp_path / "out").glob("journal-*")) and len(Store(tmp_path / "out").read()) >= 5
