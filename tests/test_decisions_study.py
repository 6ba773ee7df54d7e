"""The short form of studies/decisions.py; `make decisions` is the long one."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("decisions")


@pytest.fixture(scope="module")
def rows(folder):
    """One log of 1,000 rounds of scikit-learn's digits."""
    return short_run(folder)


def short_run(folder):
    from decisions import run

    return run(["digits"], folder, rounds=[1000], logging=["mild"], n_logs=1)


def test_every_method_answers_for_every_candidate(rows):
    methods, candidates = {row["method"] for row in rows}, {row["candidate"] for row in rows}
    assert (len(methods), len(candidates)) == (7, 6)
    assert {(row["method"], row["candidate"]) for row in rows} == {(m, c) for m in methods for c in candidates}
    assert len(rows) == len(methods) * len(candidates)
    for row in rows:
        assert row["low"] <= row["gain"] <= row["high"], row


def test_the_truth_is_an_enumeration_of_all_items(rows):
    """The policy that takes the digit of the highest score: its value is the share of digits that it gets right."""
    from decisions import load_world, logging_policy

    world = load_world("digits", None)
    right = [world.rewards[item, np.argmax(world.scores[item])] for item in range(len(world.rewards))]
    current = logging_policy(world, "mild")
    logged = [sum(p * r for p, r in zip(current[i], world.rewards[i], strict=True)) for i in range(len(right))]
    for row in rows:
        if row["candidate"] == "outside":
            assert row["true_value"] == pytest.approx(np.mean(right))
            assert row["true_gain"] == pytest.approx(np.mean(right) - np.mean(logged))


def test_a_run_that_is_resumed_adds_nothing_and_reads_the_same_rows(folder, rows, monkeypatch):
    files = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    monkeypatch.setattr("decisions.run_log", lambda *_: pytest.fail("this log is there already"))
    assert short_run(folder) == rows
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == files


def test_checked_intervals_hold_the_truth_more_often_than_those_of_the_bare_posterior(rows):
    from decisions import summarise

    coverage = {row["method"]: row["coverage"] for row in summarise(rows) if row["part"] == "all"}
    assert coverage["Checked"] >= 5 / 6
    assert coverage["Checked"] > coverage["posterior"]


def test_a_candidate_without_an_answer_is_neither_covered_nor_shipped_and_counts_in_no_error():
    from decisions import summarise

    facts = {
        "set": "", "likelihood": "", "propensities": "", "logging": "", "rounds": 10, "log": 0,
        "true_value": 2.0, "true_gain": 1.0,
    }  # fmt: skip
    sure = {"gain": 1.0, "low": 0.5, "high": 1.5, "probability": 0.99, "value": 2.2}
    silent = dict.fromkeys(sure, np.nan)
    rows = [
        {**facts, "candidate": "a", "method": "one", **sure},
        {**facts, "candidate": "a", "method": "two", **sure},
        {**facts, "candidate": "b", "method": "one", **sure, "value": 4.0},
        {**facts, "candidate": "b", "method": "two", **silent},
    ]
    one, two = (row for row in summarise(rows) if row["part"] == "all")
    assert (one["coverage"], one["ships"], one["power"], one["no_answer"]) == (1.0, 2, 1.0, 0)
    assert (two["coverage"], two["ships"], two["power"], two["no_answer"]) == (0.5, 1, 0.5, 1)
    # Of "b", of which one method says nothing, no error counts.
    assert one["error"] == two["error"] == pytest.approx(0.1)
    assert one["width"] == pytest.approx(0.5)
