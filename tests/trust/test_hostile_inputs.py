"""Hostile input, in short: every public name is called, and a sample of the cases of the campaign holds."""

from functools import partial

import jaxtyping
import numpy as np
import pytest

import manyarms as ma
from trust import hostile_commands, hostile_inputs
from trust.hostile_names import uncovered_names


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_every_public_name_has_a_hostile_call():
    outcome = hostile_inputs.summarise_names([hostile_inputs.measure_names(0)])
    assert outcome.holds, outcome.notes


def test_a_public_name_without_a_hostile_call_is_noticed():
    names = {call.name for call in hostile_inputs.calls()}
    assert uncovered_names(names) == []
    assert uncovered_names(names - {"fit"}) == ["fit"]
    assert "Greedy.top_k" in uncovered_names({name for name in names if not name.endswith(".top_k")})
    assert not hostile_inputs.summarise_names([{"uncovered": ["fit"], "calls": 3}]).holds


def test_hostile_calls_are_refused_or_answered():
    outcome = hostile_inputs.summarise_cases([hostile_inputs.measure_case(case) for case in range(0, 8500, 97)])
    assert outcome.holds, outcome.notes


def test_hostile_commands_are_refused_or_done():
    rows = [hostile_commands.measure_command(case) for case in range(0, 1500, 131)]
    outcome = hostile_commands.summarise_commands(rows)
    assert outcome.holds, outcome.notes


def defects_of(name, monkeypatch, wrong, cases=20):
    """Defects in the calls of one entry point when a wrong function stands in its place."""
    numbers = [number for number, call in enumerate(hostile_inputs.calls()) if call.name == name]
    call = hostile_inputs.calls()[numbers[0]]
    monkeypatch.setitem(call.__dict__, "function", lambda world: wrong)
    step = len(hostile_inputs.calls())
    rows = [hostile_inputs.measure_case(numbers[0] + step * k) for k in range(cases)]
    return [row["defect"] for row in rows if row["defect"]]


def test_a_function_that_accepts_everything_fails_the_check(monkeypatch):
    assert "accepted" in defects_of("Uniform", monkeypatch, lambda n_actions: 1.0)


def test_a_bare_exception_fails_the_check(monkeypatch):
    def wrong(n_actions):
        raise KeyError("n_actions")

    assert defects_of("Uniform", monkeypatch, wrong)[0].startswith("KeyError")


def test_a_silent_nan_fails_the_check(monkeypatch):
    assert "an answer with NaN or infinity" in defects_of("Uniform", monkeypatch, lambda n_actions: float("nan"))


def test_a_warning_of_numpy_fails_the_check(monkeypatch):
    assert defects_of("Uniform", monkeypatch, lambda n_actions: np.log(np.zeros(1)))[0].startswith("RuntimeWarning")


def test_a_changed_argument_fails_the_check(monkeypatch):
    def wrong(contexts, actions, **_):
        if isinstance(contexts, np.ndarray) and contexts.dtype.kind == "f" and contexts.flags.writeable:
            contexts *= 2
        raise ma.errors.InputError("is refused.", argument="contexts")

    before = hostile_inputs.hostile_world().few
    monkeypatch.setattr(hostile_inputs.hostile_world(), "few", before.copy())
    assert "changed its argument contexts" in defects_of("RewardPosterior.reward_std", monkeypatch, wrong)


@pytest.mark.parametrize(
    ("code", "output", "errors"),
    [
        (1, "", "Traceback (most recent call last):\n"),
        (2, "", "two\nlines\n"),
        (0, '{"value": NaN}', ""),
        (0, "text", ""),
        (3, "{}", ""),
        (0, "{}", "RuntimeWarning: overflow\n"),
    ],
)
def test_a_command_that_misbehaves_fails_the_check(code, output, errors):
    assert hostile_commands._defect("fit", code, output, errors)
    row = {"command": "fit", "what": "", "code": code, "defect": "bad"}
    assert not hostile_commands.summarise_commands([row]).holds


def test_a_command_that_loses_or_leaves_a_file_fails_the_check():
    line = hostile_commands.CommandLine(["update", "--model", "/x/model", "--logs", "/x/logs"], "")
    defect = partial(hostile_commands._file_defect, line)
    assert "wrote new" in defect(2, {}, {"/x/new": "1"})
    assert "changed or removed logs" in defect(0, {"/x/logs": "1"}, {"/x/logs": "2"})
    assert "changed or removed other" in defect(0, {"/x/other": "1"}, {})
    assert "draft" in defect(0, {}, {"/x/.model.abc.tmp": "1"})
    assert not defect(0, {"/x/model": "1"}, {"/x/model": "2"})
