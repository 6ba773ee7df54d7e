"""A short form of the checks of faults and load, and proof that each of them can fail."""

from dataclasses import replace

import numpy as np
import pytest

from manyarms._base.arrow import pq
from trust import damage, faults, kills, load
from trust.scorecard import CHECKS
from trust.shop_files import COMMANDS

BY_NAME = {check.name: check for check in CHECKS}


def outcome_of(name, n_cases):
    check = BY_NAME[name]
    return check.summarise([check.measure(case) for case in range(n_cases)])


@pytest.mark.parametrize(
    ("name", "n_cases"),
    [("killed-commands", 5), ("damaged-model-files", 60), ("damaged-result-files", 40), ("damaged-inputs", 10)],
)
def test_short_forms_of_the_checks_of_single_files_hold(name, n_cases):
    outcome = outcome_of(name, n_cases)
    assert outcome.holds, outcome.notes


@pytest.mark.parametrize(("name", "n_cases"), [("full-disk", 5), ("writers-at-once", 4)])
def test_short_forms_of_the_checks_of_disks_and_writers_hold(name, n_cases):
    outcome = outcome_of(name, n_cases)
    assert outcome.holds, outcome.notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_cases"),
    [
        ("killed-commands", 2 * len(COMMANDS)),
        ("full-disk", len(COMMANDS)),
        ("writers-at-once", len(faults.WRITERS)),
        ("killed-reproductions", 1),
        ("dead-workers", 2),
        ("flat-memory", load.SHORTEST),
        ("same-bytes", 8),
    ],
)
def test_longer_forms_of_the_checks_hold(name, n_cases):
    outcome = outcome_of(name, n_cases)
    assert outcome.holds, outcome.notes


@pytest.mark.slow
def test_small_models_are_the_same_bytes_from_two_processes():
    outcome = load.summarise_determinism([load.measure_determinism(case) for case in (0, 3)])
    assert outcome.holds, outcome.notes


# The checks can fail.


def test_a_torn_a_lost_and_an_unexpected_file_are_defects():
    old, new = {"model": b"old", "page": b"old"}, {"model": b"new"}
    assert kills.torn_files({"model": b"ne", "other": b"", ".model.x.tmp": b"n"}, old, new) == [
        "page is lost",
        "model is torn",
        "other is unexpected",
    ]
    assert kills.torn_files({"model": b"new", "page": b"old"}, old, new) == []


def test_a_command_that_writes_without_drafts_is_caught(monkeypatch):
    at_a_random_moment = kills._random_kill
    monkeypatch.setattr(kills, "_random_kill", lambda *given: replace(at_a_random_moment(*given), without_drafts=True))
    outcome = kills.summarise_kills([kills.measure_kills(case * len(COMMANDS)) for case in range(3)])
    assert not outcome.holds and any("torn" in note for note in outcome.notes)


def test_rows_without_checksums_are_caught(monkeypatch):
    read_table = pq.read_table
    monkeypatch.setattr(pq, "read_table", lambda path, **_: read_table(path))
    outcome = outcome_of("damaged-result-files", 60)
    assert not outcome.holds and any("wrong rows" in note for note in outcome.notes)


def test_bad_rows_fail_every_summary():
    killed = {"command": "fit", "kills": 4, "defects": ["model.arrow is torn"]}
    assert not kills.summarise_kills([killed]).holds
    assert not kills.summarise_kills([{**killed, "kills": 0, "defects": []}]).holds
    assert kills.summarise_kills([{**killed, "defects": []}]).holds
    assert not damage.summarise_damage([{"kind": "one bit", "ending": "another model without an error"}]).holds
    assert not faults.summarise_defects([{"command": "fit", "outcome": "", "defects": ["left behind"]}]).holds


def row_of_load(case, memory, **changes):
    row = {
        "process": 1,
        "time": 60.0 * case,
        "memory": memory,
        "open_files": 9,
        "threads": 3,
        "updates": 4,
        "same": True,
    }
    return row | {"files": ["model.arrow", "scores.parquet"]} | changes


def test_growing_memory_open_files_and_other_results_fail_the_check_of_load():
    flat = [row_of_load(case, 2e8 + 1e5 * (case % 3)) for case in range(40)]
    assert load.summarise_load(flat).holds
    assert not load.summarise_load([row_of_load(case, 2e8 + 5e5 * case) for case in range(40)]).holds
    assert not load.summarise_load([row_of_load(case, 2e8, open_files=case) for case in range(40)]).holds
    assert not load.summarise_load([*flat, row_of_load(40, 2e8, same=False)]).holds
    assert not load.summarise_load([*flat, row_of_load(40, 2e8, files=["model.arrow", ".draft.tmp"])]).holds


def test_one_other_digest_fails_the_check_of_determinism():
    rows = [{"size": 0, "threads": 1, "cores": 1, "digests": {"model": "a"}} for _ in range(3)]
    assert load.summarise_determinism(rows).holds
    assert not load.summarise_determinism([*rows, rows[0] | {"digests": {"model": "b"}}]).holds
    assert not load.summarise_determinism([*rows, rows[0] | {"digests": {"failed": "no memory"}}]).holds


def test_damage_always_changes_the_bytes():
    data = bytes(range(256)) * 20
    kinds = set()
    for case in range(300):
        kind, changed = damage.damaged(data, np.random.default_rng(case))
        kinds.add(kind)
        assert changed != data
    assert kinds == set(damage.KINDS)
