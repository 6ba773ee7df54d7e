"""Every format has the same figures, and charts and reports refuse what they are not made of."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html import escape

import numpy as np
import pytest
from decision_world import CHARTS
from numpy.testing import assert_allclose
from scipy import stats

import manyarms as ma
from manyarms.core.result_tables import signed_number
from manyarms.decision.report_sentences import (
    calibration_sentence,
    pairs_sentence,
    shrinkage_sentence,
    support_sentence,
    values_sentence,
)
from manyarms.decision.write_report import html_page
from manyarms.errors import InputError

WRONG = """
import numpy as np, manyarms as ma
logs = ma.LoggedData(np.ones((9, 1)), np.arange(9) % 3, np.arange(9.0), n_actions=3)
posterior = ma.fit(logs, ma.priors.independent(3, dim=1))
decision = ma.decide({"uniform": ma.Uniform(3)}, logs, posterior)
charts = [getattr(ma.plots, name) for name in ma.plots.__all__ if name != "theme"]
tries = [lambda draw=draw: draw(decision) for draw in charts]
tries += [lambda: ma.decide({"uniform": ma.Uniform(3)}, logs, "model"), lambda: ma.write_report(posterior, "x.html")]
for attempt in tries:
    try:
        attempt()
    except ma.errors.DataTypeError as refused:
        print(refused)
"""


def test_charts_and_reports_refuse_what_they_are_not_made_of(known, tmp_path):
    # In a process of its own, where no annotation is checked before ours.
    process = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True)
    messages = process.stdout.splitlines()
    assert len(messages) == len(ma.plots.__all__) - 1 + 2 and all("must be" in line for line in messages)
    with pytest.raises(InputError, match="path must be in an existing folder"):
        ma.write_report(known[0], tmp_path / "nowhere" / "report.html")
    assert len(repr(known[0])) < 300


def test_the_first_screen_has_the_gain_in_its_unit_what_blocks_it_and_what_to_do_next(known, tmp_path):
    decision, policies, test, posterior = known
    (page,) = ma.write_report(decision, tmp_path / "ship.html", unit="euros")
    first = page.read_text(encoding="utf-8").split('<nav aria-label="Sections">')[0].replace("&nbsp;", " ")
    gain = decision.gains["greedy"]
    low, high = map(signed_number, gain.interval())
    assert f"{signed_number(gain.value)} euros per round" in first and f"interval {low} to {high}" in first
    assert "What to be careful about" in first and escape(decision.next_step) in first
    undecided = ma.decide({"uniform": policies["uniform"]}, test, posterior)
    (page,) = ma.write_report(undecided, tmp_path / "open.html")
    first = page.read_text(encoding="utf-8").split('<nav aria-label="Sections">')[0].replace("&nbsp;", " ")
    assert "What stands in the way of shipping" in first and "Shipping requires at least 90 %" in first
    assert "more rounds" in first and undecided.plan is not None


def test_diagnostics_are_grouped_and_actions_have_their_names(known, tmp_path):
    decision = known[0]
    (page,) = ma.write_report(decision, tmp_path / "report.html")
    html = page.read_text(encoding="utf-8")
    flagged = [entry for entry in decision.diagnostics if entry.colour != "green"]
    table = html.split('aria-label="Diagnostics with problems or cautions"')[1].split("</table>")[0]
    assert len(flagged) > table.count("<tr>") - 1 == len({entry.figure for entry in flagged})
    assert all(row.label.startswith("Tea ") and f">{row.label}</td>" in html for row in decision.traffic_changes.rows)
    # Each meaning stands once below the full table, and warnings have a heading of their own.
    all_of_them = html.split('aria-label="All diagnostics"')[1].split("</details>")[0]
    assert all_of_them.count("mean importance weight; should be close to 1") == 1 and "<h3>Warnings</h3>" in html
    assert "Gain per round [95\N{NO-BREAK SPACE}% interval]" in html
    # Every chart has a sentence of its own.
    assert html.count("<figcaption><strong>") == len(CHARTS)


def test_diagnostics_are_introduced_where_there_are_some(known):
    texts = ("The diagnostics are about every policy", 'aria-label="All diagnostics"')
    for decision, shows in ((known[0], True), (replace(known[0], diagnostics=()), False)):
        page = html_page(decision, "Mine")
        assert [text in page for text in texts] == [shows, shows]


def test_every_cell_of_a_table_has_the_name_of_its_column(known):
    page = html_page(known[0], "Mine")
    all_of_them = page.split('aria-label="All diagnostics"')[1].split("</table>")[0]
    names = re.findall(r'data-label="(.*?)"', all_of_them)
    columns = ["Status", "Policy", "Estimator", "Diagnostic", "Value"]
    assert names == columns * len(known[0].diagnostics) and len(names) == all_of_them.count("<td")


def test_the_page_of_a_backtest_has_the_means_over_the_rounds_of_each_category():
    rng, kinds = np.random.default_rng(2), np.arange(4) % 2
    day = np.repeat(np.arange(4), [50, 90, 10, 40])
    actions, rewards = rng.integers(4, size=190), rng.normal(size=190) + day
    times = np.datetime64("2024-05-01T10:00") + day.astype("timedelta64[D]")
    logs = ma.LoggedData(np.ones((190, 1)), actions, rewards, n_actions=4, times=times)
    result = ma.backtest(logs, prior=ma.priors.from_categories(kinds, dim=1), categories=kinds)
    page, forecast = html_page(result, "Mine"), day >= result.n_training
    rows = page.split('aria-label="Forecasts by category"')[1].split("</table>")[0]
    shown = re.findall(r'data-label="Observed" data-value="(.*?)"', rows)
    means = [rewards[forecast & (kinds[actions] == kind)].mean() for kind in (0, 1)]
    assert sorted(map(float, shown)) == pytest.approx(sorted(means), rel=1e-9)


@pytest.fixture(scope="module")
def days():
    """A backtest of a few days whose intervals hold every mean, and its rounds."""
    rng, day = np.random.default_rng(2), np.repeat(np.arange(6), 50)
    times = np.datetime64("2024-05-01T10:00") + day.astype("timedelta64[D]")
    actions = rng.integers(4, size=300)
    logs = ma.LoggedData(np.ones((300, 1)), actions, rng.normal(size=300), np.full(300, 0.25), n_actions=4, times=times)
    result = ma.backtest(logs, prior=ma.priors.independent(4, dim=1), policies={"even": ma.Uniform(4)}, level=0.9999)
    return result, logs


def test_a_decision_shows_its_backtest_on_the_page_and_in_the_record(days):
    result, logs = days
    posterior = ma.fit(logs.take(np.arange(150)), ma.priors.independent(4, dim=1))
    test = logs.take(np.arange(150, 300))
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, test, posterior, backtest=result)
    page = html_page(decision, "Mine").replace("&nbsp;", " ")
    assert escape(result.sentence).replace(" %", " %") in page.replace("\N{NO-BREAK SPACE}", " ")
    assert 'id="chart-backtest"' in page and "bars the 99.99 % intervals of their forecasts" in page
    n = len(result.series())
    assert all(row.is_inside for row in result.series())
    assert f"{n} of {n} observed means lie inside their intervals." in page
    assert decision.as_json()["backtest"] == result.as_json()
    assert 'id="chart-backtest"' not in html_page(replace(decision, backtest=None), "Mine")


def test_a_chart_of_forecasts_refuses_a_group_that_there_is_none_of(days):
    result = days[0]
    with pytest.raises(InputError, match="There are no forecasts by category to draw"):
        ma.plots.backtest(result, series="category")
    with pytest.raises(InputError, match="group must be one of even; got 'odd'"):
        ma.plots.backtest(result, series="policy", group="odd")


def test_charts_without_evidence_have_no_sentence(known):
    decision = known[0]
    for sentence, without in (
        (shrinkage_sentence, {"shrinkage": None}),
        (support_sentence, {"support": None}),
        (calibration_sentence, {"calibration": None}),
        (shrinkage_sentence, {"shrinkage": replace(decision.shrinkage, rows=decision.shrinkage.rows[:3])}),
        (support_sentence, {"policy": "another"}),
    ):
        assert sentence(decision) != "" and sentence(replace(decision, **without)) == ""
    bare = [replace(row, value=None) for row in decision.evaluation.rows]
    evaluation = replace(decision.evaluation, baseline=bare[0], policies=tuple(bare[1:]))
    assert values_sentence(decision) != "" and values_sentence(replace(decision, evaluation=evaluation)) == ""


def test_every_format_has_the_same_figures(known, tmp_path):
    decision = known[0]
    (page,) = ma.write_report(decision, tmp_path / "report.html", title="A <title>")
    html = page.read_text(encoding="utf-8")
    assert (
        len(html.encode()) < 2_000_000
        and escape(decision.sentence).replace(" %", "&nbsp;%") in html
        and "A &lt;title&gt;" in html
    )
    (path,) = ma.write_report(decision, tmp_path / "report.json")
    figures = json.loads(path.read_text())
    for name in ("verdict", "policy", "sentence", "reason", "probability"):
        assert figures[name] == getattr(decision, name)
    for name, gain in decision.gains.items():
        assert figures["gains"][name]["interval_95"] == list(gain.interval())
    rows = [figures["evaluation"]["baseline"], *figures["evaluation"]["policies"]]
    for row, result in zip(rows, decision.evaluation.rows, strict=True):
        assert row["value"]["interval_95"] == list(result.value.interval())
    for kind, begins in (("svg", b"<svg"), ("png", b"\x89PNG")):
        written = ma.write_report(decision, tmp_path / kind, format=kind)
        assert {image.stem for image in written} == CHARTS
        assert all(image.read_bytes().startswith(begins) for image in written)


@pytest.mark.parametrize(
    ("probability", "words"), [(0.975, "a probability of at least 97.5 %."), (0.9999, "a probability above 99.9 %.")]
)
def test_the_sentence_about_pairs_writes_the_least_probability_in_words(probability, words, known):
    decision, *_ = known
    gain = ma.Estimate(stats.norm.ppf(probability), 1.0)
    rows = (ma.jobs.PolicyResult("new", ma.Estimate(1.0, 0.1), gain),)
    evaluation = ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.1)), rows)
    assert pairs_sentence(replace(decision, evaluation=evaluation)) == f"New beats each of the others with {words}"


def test_one_very_wide_interval_does_not_squeeze_the_others_in_the_chart_of_agreement():
    """The axis then spans the model's intervals and a third of that beside them."""

    def result(name, value):
        wide = ma.Estimate(value, 100.0, kind="sampling")
        return ma.jobs.PolicyResult(name, ma.Estimate(value, 0.1), estimates={"snIPS": wide})

    evaluation = ma.Evaluation(100, 1.0, result("logged", 1.0), (result("new", 2.0),))
    drawn = json.dumps(ma.plots.agreement(evaluation).to_dict())
    low, high = json.loads(re.search(r'"domain": (\[[^]]*\])', drawn)[1])
    half = 0.1 * stats.norm.ppf(0.975)
    room = 0.35 * (1.0 + 2 * half)
    assert_allclose([low, high], [1.0 - half - room, 2.0 + half + room], rtol=1e-9)
