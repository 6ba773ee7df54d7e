"""Shares by category and changes of traffic count the choices of a policy."""

import numpy as np
import pytest
from decision_world import world
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.core.choices import ChoiceShares
from manyarms.decision.decision_evidence import (
    Categories,
    CategorySupport,
    Support,
    support_evidence,
    traffic_evidence,
)
from manyarms.decision.write_report import write_chart
from manyarms.errors import InputError


def test_shares_by_category_count_choices(known):
    decision, policies, test, _ = known
    chosen, kinds = policies["greedy"].actions(test.contexts), np.arange(60) % 6
    for row in decision.support.rows:
        mine = kinds == int(row.category[-1])
        assert_allclose(row.logged, mine[test.actions].mean())
        assert_allclose(row.chosen["greedy"], mine[chosen].mean(), atol=1e-12)
        never = mine & ~np.isin(np.arange(60), test.actions)
        assert_allclose(row.unsupported["greedy"], never[chosen].mean(), atol=1e-12)


def test_changes_of_traffic_count_choices(known):
    decision, policies, test, _ = known
    chosen = policies["greedy"].actions(test.contexts)
    change = np.bincount(chosen, minlength=60) / len(test) - np.bincount(test.actions, minlength=60) / len(test)
    changes = decision.traffic_changes
    assert_allclose([row.change for row in changes.rows[:3]], np.sort(change)[::-1][:3], atol=1e-12)
    assert_allclose(changes.rows[-1].change, change.min(), atol=1e-12)
    assert_allclose(changes.moved, np.maximum(change, 0).sum(), atol=1e-12)


def test_every_category_can_be_listed_by_itself():
    _, test, _ = world(K=4000)
    evaluation = ma.evaluate({"uniform": ma.Uniform(4000)}, test, estimators=[ma.SNIPS()])
    whole = support_evidence(evaluation, test, Categories(np.arange(4000)), shown=5000)
    assert len(whole.rows) == 4000 and whole.n_summed == 0


def test_categories_beyond_those_shown_are_summed_up():
    _, test, _ = world()
    evaluation = ma.evaluate({"uniform": ma.Uniform(60)}, test, estimators=[ma.SNIPS()])
    kinds = np.arange(60) % 6
    support = support_evidence(evaluation, test, Categories(kinds), shown=2)
    assert len(support.rows) == 3 and support.n_summed == 4
    listed, rest = [int(row.category) for row in support.rows[:2]], support.rows[2]
    others = ~np.isin(kinds, listed)
    assert rest.category == "4 others" and rest.n_actions == others.sum() == 40
    assert_allclose(rest.logged, others[test.actions].mean())
    assert_allclose(rest.chosen["uniform"], 40 / 60)
    never = others & ~np.isin(np.arange(60), test.actions)
    assert_allclose(rest.unsupported["uniform"], never.mean())


def test_the_chart_of_categories_is_ordered_by_its_own_bars_and_its_legend_has_no_others():
    shares = {"a": (0.1, 0.2, 0.9), "b": (0.3, 0.1, 0.0), "c": (0.2, 0.5, 0.1), "2 others": (0.4, 0.2, 0.0)}
    rows = [
        CategorySupport(name, 1, 1, log, {"x": x, "y": y}, {"x": 0.0, "y": y}) for name, (log, x, y) in shares.items()
    ]
    chart = ma.plots.support(Support(tuple(rows), 2), "x").to_dict()
    encoding = chart["layer"][0]["encoding"]
    assert encoding["y"]["sort"] == ["c", "b", "a", "2 others"]
    assert encoding["color"]["scale"]["domain"] == ["in the evaluated log", "under x"]
    other = ma.plots.support(Support(tuple(rows), 2), "y").to_dict()["layer"][0]["encoding"]
    assert other["color"]["scale"]["domain"] == ["in the evaluated log", "under y", "under y, never logged"]


def test_changes_too_small_to_be_seen_are_not_listed():
    logs = ma.LoggedData(np.ones((1000, 1)), np.repeat([0, 1, 2], [499, 500, 1]), np.ones(1000), n_actions=3)
    changes = traffic_evidence("x", ChoiceShares(np.array([0]), np.array([1.0])), logs, None, None)
    assert [row.action for row in changes.rows] == ["0", "1"]


def test_axes_write_numbers_as_tables_do(tmp_path):
    logs = ma.LoggedData(np.ones((100, 1)), np.repeat([0, 1], 50), np.ones(100), n_actions=2)
    changes = traffic_evidence("x", ChoiceShares(np.array([0]), np.array([1.0])), logs, None, None)
    write_chart(ma.plots.traffic_changes(changes), tmp_path / "chart.svg")
    labels = (tmp_path / "chart.svg").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert ">-40 %<" in labels and ">0 %<" in labels and ">+40 %<" in labels


def test_an_interval_is_cut_only_if_it_is_far_wider_than_the_others():
    def titles(std):
        rows = [
            ma.jobs.PolicyResult(name, ma.Estimate(value, 0.1), estimates={"snIPS": ma.Estimate(value, std)})
            for name, value in (("logged", 1.0), ("x", 2.0))
        ]
        chart = ma.plots.agreement(ma.Evaluation(100, 1.0, rows[0], (rows[1],))).to_dict()
        return chart["layer"][0]["encoding"]["x"]["title"]

    assert titles(0.4) == ["value per round"] and titles(3.0) == ["value per round", "(arrow: the interval goes on)"]


def test_charts_without_anything_to_draw_say_what_to_evaluate_with():
    rows = [ma.jobs.PolicyResult(name, None) for name in ("logged", "x")]
    bare = ma.Evaluation(100, 1.0, rows[0], (rows[1],))
    for draw, words in (
        (ma.plots.probability_better, "no probabilities to draw. Evaluate the policies with a posterior and pairs="),
        (ma.plots.agreement, "no estimates to draw. Evaluate the policies with a posterior or estimators"),
        (ma.plots.segments, "no segments to draw. Evaluate the policies with segments="),
    ):
        with pytest.raises(InputError, match=words):
            draw(bare)
    support = Support((CategorySupport("a", 1, 1, 1.0, {"x": 1.0}, {"x": 0.0}),), 0)
    with pytest.raises(InputError, match="policy must be one of x; got 'z'"):
        ma.plots.support(support, "z")
