import json
import math
from dataclasses import replace

import numpy as np
import pytest

from trust import campaign
from trust.check import Check, Outcome
from trust.page import page
from trust.results import Result, read_results, replaced, write_results


def squares(limit: int = 100) -> Check:
    return Check("squares", "Sums", "A square is small.", f"at most {limit}", 10, square, highest(limit), batch=2)


def square(case: int) -> dict[str, int]:
    CALLS.append(case)
    return {"square": case * case}


def highest(limit):
    def summarise(rows):
        top = max(row["square"] for row in rows)
        return Outcome(str(top), top <= limit)

    return summarise


def highest_number(limit):
    return lambda rows: Outcome(str(max(rows)), max(rows) <= limit)


CALLS: list[int] = []


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def run(folder, n_cases=10, limit=100):
    return campaign.run_check(squares(limit), n_cases, folder, 1, lambda _: None)


def test_an_interrupted_campaign_runs_only_the_missing_cases(tmp_path):
    run(tmp_path, 4)
    outcome, journal = run(tmp_path)
    assert outcome == Outcome("81", True)
    assert CALLS == list(range(10))
    assert len(journal.rows) == 10


def test_a_line_that_was_cut_off_runs_again(tmp_path):
    run(tmp_path)
    file = tmp_path / "squares.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    CALLS.clear()
    assert run(tmp_path)[0] == Outcome("81", True)
    assert CALLS == [8, 9]
    assert run(tmp_path)[0] == Outcome("81", True)
    assert CALLS == [8, 9]


def test_results_of_other_code_are_set_aside(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(campaign, "fingerprint", lambda places, **_: "other")
    CALLS.clear()
    run(tmp_path)
    assert CALLS == list(range(10))
    assert len(list(tmp_path.glob("squares.*.jsonl"))) == 1
    assert json.loads((tmp_path / "squares.jsonl").read_text().splitlines()[0]) == {"code": "other"}


FILE = '''"""A file."""
LIMIT = 3
"""The limit."""


def double(x):
    """Twice a number."""
    # By addition.
    return x + x
'''


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("A file", "Another file", True),
        ("The limit", "The largest number", True),
        ("Twice a number", "Two times a number", True),
        ("# By addition.", "# Exact.", True),
        ("x + x", "(x  +  x)", True),
        ("LIMIT = 3", "LIMIT = 4", False),
        ("return x + x", "return x", False),
        ("return x + x", "return 'Twice a number'", False),
        ("def double", "def twice", False),
    ],
)
def test_only_a_change_of_the_code_changes_the_fingerprint(tmp_path, monkeypatch, before, after, same):
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    (tmp_path / "src").mkdir()
    file = tmp_path / "src" / "double.py"
    file.write_text(FILE)
    code = campaign.fingerprint(["src"])
    file.write_text(FILE.replace(before, after))
    assert (campaign.fingerprint(["src"]) == code) is same


def test_a_check_that_names_lines_runs_again_when_they_move(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    (tmp_path / "src").mkdir()
    codes = list[tuple[str, str]]()
    for text in ("x = 1\n", "\n\nx = 1\n"):
        (tmp_path / "src" / "x.py").write_text(text)
        codes.append((campaign.code_of(squares()), campaign.code_of(replace(squares(), names_lines=True))))
    assert codes[0][0] == codes[1][0]
    assert codes[0][1] != codes[1][1]


def test_another_kind_of_file_counts_byte_by_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    codes = set[str]()
    for text in ("# One.", "# Two."):
        (tmp_path / "mutants.toml").write_text(text)
        codes.add(campaign.fingerprint(["mutants.toml"]))
    assert len(codes) == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_cases_run_in_one_process_and_in_several(tmp_path, processes):
    check = Check("roots", "Sums", "A root is small.", "at most 9", 4, math.isqrt, highest_number(1), batch=1)
    outcome, journal = campaign.run_check(check, 4, tmp_path, processes, lambda _: None)
    assert outcome == Outcome("1", True)
    assert journal.rows == {0: 0, 1: 1, 2: 1, 3: 1}


def test_rows_that_no_longer_hold_run_again(tmp_path):
    run(tmp_path)
    CALLS.clear()
    check = replace(squares(), is_current=lambda row: row["square"] != 9)
    assert campaign.n_finished(check, tmp_path) == 3
    campaign.run_check(check, 10, tmp_path, 1, lambda _: None)
    assert CALLS == [3]


def test_a_broken_threshold_shows_on_the_page(tmp_path):
    outcome, journal = run(tmp_path, limit=80)
    text = page([squares(80)], {"squares": Result.of_cases(outcome, 10, journal, "abc")})
    row = f"| `squares` | A square is small. | 10 | at most 80 | 81 | **no** | {journal.finished} | `abc` |"
    assert row in text
    assert "1 of 1 checks have run. **These fail: `squares`.**" in text


def test_the_page_says_which_cases_and_checks_have_not_run(tmp_path):
    outcome, journal = run(tmp_path, 4)
    assert campaign.n_finished(squares(), tmp_path) == 4
    result = Result.of_cases(outcome, 4, journal, "abc")
    text = page([squares(), replace(squares(7), name="cubes")], {"squares": result})
    assert "1 of 2 checks have run. 1 of them ran with fewer cases" in text
    assert "| 4 of 10 |" in text
    assert "- `cubes`: A square is small. (10 cases; at most 7)" in text


def test_a_verdict_from_numpy_numbers_is_kept(tmp_path):
    outcome, journal = run(tmp_path)
    compared = replace(outcome, holds=np.float64(1.0) >= np.float64(0.5))
    write_results({"squares": Result.of_cases(compared, 10, journal, "abc")}, tmp_path / "results.json")
    assert read_results(tmp_path / "results.json")["squares"].holds is True


def test_results_survive_the_file_and_a_short_run_does_not_hide_a_long_one(tmp_path):
    full = Result("9", True, ("a note",), 10, 1.5, "2026-11-18", "abc")
    short, failed = replace(full, n_cases=2, commit="def"), replace(full, n_cases=2, holds=False)
    write_results({"squares": full}, tmp_path / "results.json")
    kept = read_results(tmp_path / "results.json")
    assert kept == {"squares": full}
    assert replaced(kept, {"squares": short, "roots": short}) == {"squares": full, "roots": short}
    assert replaced(kept, {"squares": failed}) == {"squares": failed}
    assert read_results(tmp_path / "none.json") == {}
