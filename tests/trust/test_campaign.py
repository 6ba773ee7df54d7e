import json
from dataclasses import replace

import pytest

from trust import campaign
from trust.check import Check, Outcome
from trust.page import Line, page


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
    monkeypatch.setattr(campaign, "fingerprint", lambda places: "other")
    CALLS.clear()
    run(tmp_path)
    assert CALLS == list(range(10))
    assert len(list(tmp_path.glob("squares.*.jsonl"))) == 1
    assert json.loads((tmp_path / "squares.jsonl").read_text().splitlines()[0]) == {"code": "other"}


def test_rows_that_no_longer_hold_run_again(tmp_path):
    run(tmp_path)
    CALLS.clear()
    check = replace(squares(), is_current=lambda row: row["square"] != 9)
    assert campaign.n_finished(check, tmp_path) == 3
    campaign.run_check(check, 10, tmp_path, 1, lambda _: None)
    assert CALLS == [3]


def test_a_broken_threshold_shows_on_the_page(tmp_path):
    outcome, journal = run(tmp_path, limit=80)
    text = page([Line(squares(80), outcome, 10, journal.seconds, journal.finished)])
    assert "| `squares` | A square is small. | 10 | at most 80 | 81 | **no** |" in text
    assert "1 of 1 checks have run. **These fail: `squares`.**" in text


def test_the_page_says_which_cases_and_checks_have_not_run(tmp_path):
    outcome, journal = run(tmp_path, 4)
    assert campaign.n_finished(squares(), tmp_path) == 4
    text = page([Line(squares(), outcome, 4, journal.seconds, journal.finished)], [squares(7)], "abc")
    assert "commit `abc`. 1 of 2 checks have run. 1 of them ran with fewer cases" in text
    assert "| 4 of 10 |" in text
    assert "- `squares`: A square is small. (10 cases; at most 7)" in text
