"""The short form of studies/decisions.py; `make decisions` is the long one."""

import numpy as np
import pytest
import small_data
from pages import DOCS


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


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Made-up files in the owners' formats, so that no download is needed."""
    return small_data.write_all(tmp_path_factory.mktemp("data"), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["kuairec", "movielens"])
def test_no_policy_chooses_a_cell_that_is_not_known(name, data):
    from decision_worlds import LOGGING, given_policies, load_world, logging_policy, write_log

    world = load_world(name, data)
    assert world.observed is not None
    policies = given_policies(world, np.random.default_rng(0)) | {kind: logging_policy(world, kind) for kind in LOGGING}
    for kind, policy in policies.items():
        assert not policy[~world.observed].any(), kind
        assert policy.sum(axis=1) == pytest.approx(1.0), kind
    logs, items = write_log(world, policies["sharp"], 300, np.random.default_rng(1))
    assert world.observed[items, logs.actions].all()


def test_the_value_on_known_cells_is_an_enumeration(data):
    from decision_worlds import load_world, logging_policy

    from manyarms.datasets import load_kuairec

    world = load_world("kuairec", data)
    assert world.observed is not None
    by_user = [world.rewards[user][world.observed[user]].mean() for user in range(len(world.rewards))]
    assert world.value(logging_policy(world, "uniform")) == pytest.approx(np.mean(by_user))
    # Rewards are watch ratios as they were measured, at most 2.
    measured = np.minimum(load_kuairec(data / "kuairec").small.watch_ratio, 2.0)
    assert set(world.rewards[world.observed]) <= set(measured)


@pytest.mark.slow
def test_every_method_answers_on_known_cells(data, tmp_path):
    from decisions import run

    rows = run(["kuairec"], tmp_path, data=data, rounds=[400], logging=["mild"], n_logs=1)
    assert len(rows) == 7 * 6
    for row in rows:
        assert np.isnan(row["gain"]) or row["low"] <= row["gain"] <= row["high"], row


def test_each_real_policy_is_evaluated_from_the_log_of_the_other_and_a_second_run_adds_nothing(
    data, tmp_path, monkeypatch
):
    from decisions import run

    from manyarms.datasets import load_open_bandit

    def short():
        return run(["open-bandit"], tmp_path, data=data, rounds=[400], n_logs=1)

    rows = short()
    assert {(row["logging"], row["candidate"]) for row in rows} == {("random", "bts"), ("bts", "random")}
    assert len(rows) == 2 * 7
    log = load_open_bandit(data / "obd", policy="random")
    (click_rate,) = {row["click_rate"] for row in rows if row["candidate"] == "random"}
    assert click_rate == pytest.approx(log.clicks.mean())
    monkeypatch.setattr("decision_open_bandit.run_log", lambda *_: pytest.fail("this log is there already"))
    assert short() == rows


def test_an_interval_agrees_when_the_errors_of_both_logs_explain_the_difference():
    from decision_open_bandit import agrees

    row = {"value": 0.10, "low": 0.04, "high": 0.13, "click_rate": 0.14, "click_rate_error": 0.0}
    assert not agrees(row)
    # Upwards the interval reaches 0.03, and the click rate has an error of 0.04: together 0.05, by Pythagoras.
    assert agrees({**row, "click_rate": 0.1499, "click_rate_error": 0.04 / 1.96})
    assert not agrees({**row, "click_rate": 0.1501, "click_rate_error": 0.04 / 1.96})
    # Downwards the interval is wider.
    assert agrees({**row, "click_rate": 0.041})
    assert not agrees({**row, "value": np.nan, "low": np.nan, "high": np.nan})


def test_refreshing_a_page_replaces_the_tables_below_a_command_and_nothing_else(tmp_path):
    from decision_tables import refresh

    page = tmp_path / "page.md"
    command = "    python studies/decisions.py --logs 8 --by set"
    page.write_text(f"# Title\n\n{command}\n\n| old |\n|---|\n\n| older |\n\nProse.\n\n| kept |\n")
    calls = []

    def output(words):
        calls.append(words)
        return ["| new |", "|---|"]

    refresh(page, output)
    assert calls == [["--logs", "8", "--by", "set"]]
    once = page.read_text()
    assert once == f"# Title\n\n{command}\n\n| new |\n|---|\n\nProse.\n\n| kept |\n"
    refresh(page, output)
    assert page.read_text() == once


def test_every_command_on_the_page_has_the_tables_that_it_prints(rows, tmp_path):
    """Headers and number of columns; the figures need the real data."""
    from decision_open_bandit import summarise_clicks
    from decision_tables import COMMAND, hindsight, refresh, summarise, table, table_of_clicks, targets, thresholds
    from decisions import arguments

    page = tmp_path / "decisions.md"
    text = (DOCS / "decisions.md").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    clicks = {"rounds": 1, "candidate": "bts", "method": "DR", "click_rate": 0.1, "click_rate_error": 0.1}
    clicks |= {"value": 0.1, "low": 0.0, "high": 0.2, "probability": 0.5}

    def headers(words):
        args = arguments().parse_args(words)
        summary = summarise(rows, args.by)
        kinds = {
            "methods": (table, summary), "targets": (targets, summary), "hindsight": (hindsight, rows),
            "thresholds": (thresholds, rows),
        }  # fmt: skip
        tables = [kinds[kind][0](kinds[kind][1], args.by) for kind in args.table]
        if args.sets == ["open-bandit"]:
            tables = [table_of_clicks(summarise_clicks([clicks]))]
        for number, lines in enumerate(tables):
            yield from ([""] if number else [])
            yield from list(lines)[:2]

    refresh(page, headers)
    kept = page.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith(COMMAND) for line in kept) >= 8
    assert [line for line in kept if line.startswith("| ") and line.split("|")[1].strip() in HEADS] == [
        line for line in text.splitlines() if line.startswith("| ") and line.split("|")[1].strip() in HEADS
    ]


HEADS = {"rounds", "set", "logging", "candidate"}


def test_the_figure_says_in_words_what_it_shows(rows, tmp_path):
    from decision_tables import draw, summarise

    draw(summarise(rows), tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg ")
    assert "Checked at 1,000 rounds" in text


def test_power_in_hindsight_is_that_of_the_best_threshold():
    """200 better candidates, and a worse one that only the 150 likeliest surpass; by trying every threshold."""
    from decision_tables import hindsight

    probabilities = np.concatenate([np.linspace(0.99, 0.6, 200), [0.7]])
    gains = np.concatenate([np.ones(200), [-1.0]])
    rows = [
        {"method": "posterior", "rounds": 10, "probability": p, "true_gain": g}
        for p, g in zip(probabilities, gains, strict=True)
    ]
    best = max(
        (gains[probabilities >= t] > 0).sum()
        for t in probabilities
        if (gains[probabilities >= t] <= 0).sum() <= 0.01 * (probabilities >= t).sum()
    )
    shipped = (probabilities[gains > 0] >= 0.975).sum()
    assert list(hindsight(rows, "rounds"))[2] == f"| all | {best / shipped:.3f} |"


def test_thresholds_count_the_ships_at_each_probability():
    """Three candidates that ship at other thresholds, the last one wrongly; the posterior ships the first two."""
    from decision_tables import thresholds

    rows = [
        {"method": method, "rounds": 10, "probability": probability, "true_gain": gain}
        for method, probabilities in {"posterior": (1.0, 1.0, 0.5), "Checked": (0.98, 0.96, 0.92)}.items()
        for probability, gain in zip(probabilities, (1.0, 1.0, -1.0), strict=True)
    ]
    assert list(thresholds(rows, "rounds"))[2] == "| all | 1 | 0 | 0.500 | 2 | 0 | 1.000 | 3 | 1 | 1.000 |"
