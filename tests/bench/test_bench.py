"""Every stage that is timed gives the answer of its plain forms; a comparison of two runs names what became slower."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from manyarms.bench import plain_forms as plain
from manyarms.bench.bench_problem import BenchProblem, BenchSize
from manyarms.bench.machine_limits import MachineLimits, measure_limits
from manyarms.bench.run_stages import FULL, SMALL, BenchPlan, peak_mb, run_stages
from manyarms.bench.speed_page import AXES, write_page
from manyarms.bench.speed_rows import SpeedRow, SpeedRows, compare_speed
from manyarms.bench.stages import LOOP, OURS, STAGES, TEXTBOOK
from manyarms.cli import app
from manyarms.errors import DataFileError, InputError

TINY = BenchPlan(BenchSize(40, 400, 3), (20, 40), (400,), (3,), 5.0, 1)


@pytest.fixture(scope="module")
def tiny():
    return run_stages(plan=TINY)


def test_every_stage_agrees_with_its_plain_forms(tiny):
    assert {row.stage for row in tiny.rows} == set(STAGES)
    for row in tiny.rows:
        tolerance = STAGES[row.stage].tolerance
        if row.difference is not None:
            assert row.difference <= tolerance, row
    exact = {row.stage for row in tiny.rows if row.difference is not None and STAGES[row.stage].tolerance == 1e-10}
    assert exact == {
        "statistics", "posterior", "fit", "independent arms", "value", "difference", "greedy", "pessimistic",
        "out of core", "estimators",
    }  # fmt: skip


def test_a_wrong_answer_shows_as_a_difference(tmp_path, monkeypatch):
    right = plain.batched_value
    monkeypatch.setattr(plain, "batched_value", lambda *given: (right(*given)[0] + 1e-6, right(*given)[1]))
    rows = run_stages(["value"], plan=TINY).rows
    assert all((row.difference or 0.0) > 1e-8 for row in rows if row.form == TEXTBOOK)
    assert all((row.difference or 0.0) < 1e-12 for row in rows if row.form == LOOP)


def test_thompson_and_its_plain_forms_choose_alike(tmp_path):
    problem = BenchProblem(BenchSize(6, 60, 2), 0, tmp_path)
    x, rng = problem.contexts[:3], np.random.default_rng(1)
    drawn = [
        form(problem.model, problem.plain_posterior, x, 4000, rng)
        for form in (plain.loop_thompson, plain.batched_thompson)
    ]
    shares = [np.stack([np.bincount(column, minlength=6) / 4000 for column in chosen.T]) for chosen in drawn]
    from manyarms.policies import Thompson

    ours = Thompson(problem.posterior, 4000, rng=rng).probabilities(x)
    # Five standard errors of a difference of two shares of 4,000 draws.
    for other in shares:
        np.testing.assert_allclose(ours, other, atol=5 * np.sqrt(0.5 / 4000))


def test_rows_have_times_memory_and_limits(tiny):
    for row in tiny.rows:
        assert row.cpu_s >= 0 and row.wall_s > 0
        assert row.peak_mb is None or row.peak_mb > 0
    limited = {row.stage for row in tiny.rows if row.limit_s}
    assert {"statistics", "greedy", "out of core"} <= limited and "learn_prior" not in limited
    assert min(tiny.limits.values()) > 1e6 and tiny.made_with["numpy"] == np.__version__


def test_memory_is_that_of_the_largest_array():
    assert 8.0 < peak_mb(lambda: np.ones(1_000_000)) < 8.1


def test_the_limit_is_the_larger_of_operations_and_bytes():
    limits = MachineLimits(flops=100.0, copied=10.0)
    assert limits.seconds(50.0, 1.0) == 0.5 and limits.seconds(5.0, 20.0) == 2.0
    measured = measure_limits(size=64, repeats=1)
    assert measured.flops > 0 and measured.copied > 0


def test_a_form_that_takes_long_is_not_run_at_larger_sizes():
    hasty = TINY._replace(patience=0.0)
    forms = {(row.form, row.n_actions) for row in run_stages(["fit"], plan=hasty).rows}
    assert forms == {(OURS, 20), (OURS, 40), (LOOP, 20), (TEXTBOOK, 20)}


def test_sizes_vary_one_number_at_a_time():
    for plan in (SMALL, FULL):
        sizes = plan.sizes(1.0)
        assert plan.middle in sizes and len(set(sizes)) == len(sizes)
        assert all(sum(a != b for a, b in zip(size, plan.middle, strict=True)) <= 1 for size in sizes)


def rows_of(limits=None, **seconds):
    rows = [SpeedRow(stage, OURS, 10, 100, 2, cpu, cpu) for stage, cpu in seconds.items()]
    return SpeedRows((*rows, SpeedRow("fit", LOOP, 10, 100, 2, 9.0, 9.0)), limits or {"flops": 1e9, "copied": 1e9})


def test_a_comparison_names_the_stage_that_became_slower():
    before, after = rows_of(fit=1.0, value=0.5, greedy=0.001), rows_of(fit=1.1, value=0.8, greedy=0.002)
    comparison = compare_speed(before, after)
    # 10 % is noise, and so is anything in a few milliseconds.
    assert comparison.slower == ["value"] and comparison.sentence == "Slower: value."
    assert compare_speed(after, before).sentence == "Nothing became slower."


def test_a_slower_machine_slows_nothing_down():
    half = {"flops": 0.5e9, "copied": 0.5e9}
    comparison = compare_speed(rows_of(fit=1.0, value=1.0), rows_of(half, fit=2.0, value=3.0))
    assert comparison.machine == pytest.approx(2.0) and comparison.slower == ["value"]
    assert [change.ratio for change in comparison.changes] == pytest.approx([1.0, 1.5])


def test_runs_without_a_stage_in_common_say_so():
    assert "no stage" in compare_speed(rows_of(fit=1.0), rows_of(value=1.0)).sentence


def test_rows_survive_a_file(tiny, tmp_path):
    tiny.save(tmp_path / "rows.json")
    assert SpeedRows.load(tmp_path / "rows.json") == replace(tiny, made_with=dict(tiny.made_with))
    (tmp_path / "other.json").write_text('{"rows": [{"stage": 1}]}')
    with pytest.raises(DataFileError, match="does not hold rows"):
        SpeedRows.load(tmp_path / "other.json")


def test_a_stage_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="stage"):
        run_stages(["fitt"], plan=TINY)


def test_the_page_shows_a_table_and_curves(tiny, tmp_path):
    paths = write_page(tiny, TINY, tmp_path / "page", "manyarms bench")
    # Only the number of actions varies in this run.
    assert [path.name for path in paths] == ["index.md", "rows.json", "actions.svg"]
    text = paths[0].read_text()
    assert all(f"| {stage} |" in text for stage in STAGES) and "(actions.svg)" in text
    svg = paths[2].read_text()
    assert all(stage in svg for stage in STAGES) and AXES["actions"][1] in svg


def test_the_command_prints_a_table_and_compares(tmp_path, monkeypatch):
    monkeypatch.setattr("manyarms.bench.run_stages.SMALL", TINY)
    run = CliRunner().invoke(app, ["bench", "fit", "value", "--rows", str(tmp_path / "now.json")])
    assert run.exit_code == 0, (run.output, run.exception)
    lines = run.stdout.splitlines()
    assert lines[0].split()[0] == "stage" and [line.split()[0] for line in lines[1:3]] == ["fit", "value"]
    now = SpeedRows.load(tmp_path / "now.json")
    slow = replace(
        now, rows=tuple(replace(row, cpu_s=row.cpu_s + 1.0) if row.stage == "fit" else row for row in now.rows)
    )
    slow.save(tmp_path / "slow.json")
    files = [str(tmp_path / name) for name in ("now.json", "slow.json")]
    compared = CliRunner().invoke(app, ["bench", "--compare", *files])
    assert compared.exit_code == 3 and compared.stdout.splitlines()[-1] == "Slower: fit."
    as_json = CliRunner().invoke(app, ["bench", "--json", "--compare", *files])
    assert json.loads(as_json.stdout)["slower"] == ["fit"]
    assert CliRunner().invoke(app, ["bench", "--compare", files[0], files[0]]).exit_code == 0
    refused = CliRunner().invoke(app, ["bench", "fit", "--compare", *files])
    assert refused.exit_code == 2 and "--compare" in refused.stderr
