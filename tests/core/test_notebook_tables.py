"""Results in a notebook show the same figures, escaped, and never too many rows."""

import re
from html import unescape

import numpy as np
import pytest

import manyarms as ma
from manyarms.core.result_tables import SHOWN, html_table

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    catalog = ma.Catalog([EVIL, "b", "c"], categories=[EVIL, "k", "k"])
    logs = ma.LoggedData(np.ones((90, 1)), np.repeat([0, 1, 2], 30), rng.normal(size=90), n_actions=3, catalog=catalog)
    return ma.fit(logs, ma.priors.from_categories(catalog, dim=1)), logs


def cells(html):
    return [unescape(text) for text in re.findall(r"<t[dh](?: [^>]*)?>(.*?)</t[dh]>", html)]


def test_an_estimate_shows_its_interval_and_its_warnings(fitted):
    posterior, logs = fitted
    found = posterior.value(ma.Uniform(3), logs.contexts)
    warned = ma.Estimate(found.value, found.std, warnings=(f"mind {EVIL}",))
    low, high = found.interval()
    assert f"{low:.4g} to {high:.4g}" in cells(found._repr_html_()) and EVIL not in warned._repr_html_()
    assert "mind &lt;script&gt;" in warned._repr_html_()


def test_tables_show_what_their_records_hold(fitted):
    posterior, logs = fitted
    evaluation = ma.evaluate({f"greedy {EVIL}": ma.Greedy(posterior)}, logs, posterior)
    checks = ma.check_categories(posterior, logs, logs.catalog)
    shown = cells(evaluation._repr_html_())
    row = evaluation.policies[0]
    figures = row.value.value, *row.value.interval(), row.gain.value, row.gain.probability_positive
    assert all(f"{value:.4g}" in shown for value in figures) and EVIL not in evaluation._repr_html_()
    for table in (checks, posterior.summary(), ma.decide({"uniform": ma.Uniform(3)}, logs, posterior)):
        html = table._repr_html_()
        assert "<table>" in html and EVIL not in html
        records = getattr(table, "evaluation", table).records()
        assert set(records[0]) <= set(cells(html))
        numbers = [value for row in records for value in row.values() if isinstance(value, float)]
        assert all(f"{value:.4g}" in cells(html) for value in numbers)


def test_a_posterior_shows_its_sizes(fitted):
    shown = cells(fitted[0]._repr_html_())
    assert shown[shown.index("rounds") + 1] == "90" and shown[shown.index("actions") + 1] == "3"


def test_a_hurdle_shows_how_many_rounds_had_a_reward():
    rewards = np.where(np.arange(60) % 3 == 0, 2.0 + np.arange(60) / 60, 0.0)
    logs = ma.LoggedData(np.ones((60, 1)), np.arange(60) % 2, rewards, n_actions=2)
    html = ma.fit(logs, ma.priors.independent(2, dim=1), ma.Hurdle(ma.Bernoulli(), ma.LogNormal(0.5)))._repr_html_()
    shown = cells(html)
    assert shown[shown.index("rounds") + 1] == "60" and shown[shown.index("of them with a reward") + 1] == "20"


def test_long_tables_are_cut_in_the_middle():
    html = html_table([{"row": i} for i in range(1000)])
    assert html.count("<tr>") == SHOWN + 2 and f"{1000 - SHOWN:,} more" in html
    many = ma.priors.independent(100_000, dim=2)
    none = ma.LoggedData(np.empty((0, 2)), np.empty(0, dtype=int), np.empty(0), n_actions=100_000)
    assert ma.fit(none, many).summary()._repr_html_().count("<tr>") <= SHOWN + 1
