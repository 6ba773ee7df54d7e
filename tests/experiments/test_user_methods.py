"""User methods: loaded from a file, run beside the others, refused or reported when they fail."""

import re
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from small_experiments import SMALL, Coin, CoinWorld, results_of

import manyarms as ma
from manyarms.errors import CellError, InputError, NonFiniteError, StaleRowsError, WorkerError
from manyarms.experiments import (
    METHODS,
    Cell,
    Grid,
    Store,
    run,
)
from manyarms.experiments.cell import Table, compute, draw_log, draw_world
from manyarms.experiments.figure import Figure, Panel, Size, head_to_heads
from manyarms.experiments.methods import Method, MethodTask, check_method_names
from manyarms.experiments.reproduction import figures
from manyarms.experiments.user_methods import check_method_paths, load_method, with_user_methods

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


def test_a_user_method_is_one_class_and_one_flag(own, tmp_path):
    spec = f"{own}:Mine"
    grids = [Grid(SMALL, "ope", ("mine", "IPS, no clip"), (40,), 2), Grid(SMALL, "opl", ("mine",), (40,), 2)]
    results = run(grids, Store(tmp_path / "out"), extra_methods=[spec], workers=1)
    for instance in range(2):
        mine, ips = (results[Cell(SMALL.label, "ope", name, 40, instance)] for name in ("mine", "IPS, no clip"))
        assert (mine.value, mine.low) == (ips.value, ips.low)
        world = draw_world(SMALL, instance)
        uniform = pytest.approx(world.value(ma.Uniform(20)), rel=1e-6)
        assert results[Cell(SMALL.label, "opl", "mine", 40, instance)].value == uniform


def test_it_is_put_into_every_panel_that_it_can_be_in(own):
    mine = load_method(f"{own}:Mine")
    broken = load_method(f"{own}:Broken")
    for figure in figures().values():
        extended = figure.with_methods([mine, broken])
        assert all("mine" in panel.methods for panel in extended.panels)
        assert all(("broken" in panel.methods) == (panel.kind == "opl") for panel in extended.panels)


@pytest.mark.slow
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


@pytest.mark.slow
def test_numbers_of_any_width_become_rows(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    grids = [Grid(SMALL, "ope", ("single",), (40,), 1)]
    (result,) = run(grids, Store(tmp_path / "out"), extra_methods=[f"{tmp_path}/bad.py:Single"], workers=1).values()
    assert result.value == 0.5


def test_a_user_file_may_use_dataclasses_neighbours_and_any_name(tmp_path):
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


@pytest.mark.slow
def test_what_was_finished_before_a_method_failed_stays_and_nothing_is_begun_after(own, tmp_path):
    grids = [Grid(SMALL, "opl", ("late", "DM (Bayes)"), (40,), 6)]
    with pytest.raises(CellError, match=r"late failed on .*rows over 40"):
        run([*grids, replace(grids[0], rounds=(41,))], Store(tmp_path), extra_methods=[f"{own}:Late"], workers=1)
    kept = Store(tmp_path).read()
    assert Cell(SMALL.label, "opl", "late", 40, 0) in kept and len(kept) < 24


@pytest.mark.slow
def test_a_method_that_was_changed_is_not_mixed_with_its_old_rows(own, tmp_path):
    grids, spec = [Grid(SMALL, "opl", ("mine", "sDM"), (40,), 1)], f"{own}:Mine"
    store = Store(tmp_path / "out")
    before = run(grids, store, extra_methods=[spec], workers=1)
    assert run(grids, store, extra_methods=[spec], workers=1) == before
    own.write_text(OWN + "# changed")
    with pytest.raises(StaleRowsError, match=r"own\.py has changed since its rows were made.*drop=\['mine'\]"):
        run(grids, store, extra_methods=[spec], workers=1)
    store.compact(drop=["mine"])
    after = run(grids, store, extra_methods=[spec], workers=1)
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
    with pytest.raises(InputError, match=r"extra_methods must be texts.*got DirectMethod\. Name it as file\.py:Class"):
        check_method_paths([METHODS["sDM"]])


@pytest.mark.slow
def test_a_script_without_a_guard_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "script.py").write_text(
        "from pathlib import Path\nfrom manyarms.experiments import Grid, Store, Synthetic, run\n"
        "run([Grid(Synthetic(n_actions=5), 'opl', ('sDM',), (20,), 2)], Store(Path('out')), workers=1)\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    last = done.stderr.strip().split("\n")[-1]
    assert done.returncode == 1 and WorkerError.__name__ in last
    assert 'behind `if __name__ == "__main__":`' in last and "--" not in last and "memory" not in last


def test_a_user_method_is_compared_with_each_other_pair_by_pair():
    rng = np.random.default_rng(5)
    base = rng.normal(0.5, 0.1, 12)
    scores = {"mine": base, "worse": base - 0.1 + rng.normal(0, 0.01, 12), "better": base + 0.1, "same": base}
    figure = Figure("f", "", "", (Panel("p", replace(Coin(), label="p"), "opl", tuple(scores)),))
    (pair,) = head_to_heads(figure, ["mine", "absent"], Table(results_of(scores)), Size("quick", (10, 20), 12, 2))
    comparisons = dict(pair.comparisons)
    assert {name: comparison.decision() for name, comparison in comparisons.items()} == {
        "worse": "for", "better": "against", "same": "tie",
    }  # fmt: skip
    gains = base - scores["worse"]
    assert comparisons["worse"].numbers == f"{gains.mean():+.3g} ± {gains.std(ddof=1) / np.sqrt(12):.2g}"


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
        with_user_methods((place.format(own),))


def test_unknown_names_are_refused_with_those_that_exist():
    with pytest.raises(InputError, match=r"no figure nonsense.*synthetic-opl"):
        check_method_names(["nonsense"], figures(), "figure")


def test_a_class_that_cannot_be_made_without_arguments_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from manyarms.experiments import Method\n"
        "class Mine(Method):\n    name = 'mine'\n    def __init__(self, rate): ...\n    def learn(self, task): ...\n"
    )
    with pytest.raises(InputError, match=r"Mine\(\) failed: TypeError: .*'rate'.*It must need no arguments"):
        load_method(f"{tmp_path}/mine.py:Mine")


def test_a_method_without_an_answer_of_a_kind_says_so():
    world, logs = draw_world(SMALL, 0), draw_log(SMALL, 0, 30)
    task = MethodTask(logs, world.known, None, np.random.default_rng(0))
    with pytest.raises(NotImplementedError, match="IPS has no estimate"):
        Method.estimate(METHODS["IPS"], task, world.target)
    evaluators = [method for method in METHODS.values() if method.offers("ope") and not method.offers("opl")]
    assert evaluators
    for method in evaluators:
        with pytest.raises(NotImplementedError, match=f"{re.escape(method.name)} has no learn"):
            method.learn(task)


@dataclass(frozen=True)
class Unknown(Coin):
    """A problem of which nobody knows the value of a policy."""

    label: str = "unknown"

    def draw(self, rng):
        world = CoinWorld()
        world.value = lambda policy: float("nan")
        return world


def test_a_value_that_is_not_finite_is_never_an_outcome():
    with pytest.raises(NonFiniteError, match=r"the value that DM \(Bayes\) learned is nan"):
        compute(Unknown(), METHODS["DM (Bayes)"], "opl", 30, 0)
