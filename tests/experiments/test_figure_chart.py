"""Figures drawn from made-up results: the numbers in them, and what a reader finds in the files."""

import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose

from manyarms.experiments import figure_chart as chart
from manyarms.experiments import method_style as palette
from manyarms.experiments.cell import Cell, Outcome, Table
from manyarms.experiments.figure import Figure, Panel
from manyarms.experiments.methods import METHODS, MISSPECIFIED, PAPER
from manyarms.experiments.problem import Synthetic

SMALL, LARGE = Synthetic(n_actions=10), Synthetic(n_actions=1000)
NAMES = PAPER
ODD = "<script>alert(\"1\")</script> & 'two'\x00\nlines, é"
EVALUATION = Figure("evaluation", "Evaluation & learning", "", (Panel("K < 11", SMALL, "ope", NAMES),))


def rows(problem=SMALL, kind="ope", methods=NAMES, rounds=(100, 1000), count=4, values=None, width=None):
    """Results of every combination, drawn at random unless `values` are given, with intervals when `width` is."""
    rng, results = np.random.default_rng(0), {}
    for method in methods:
        for n in rounds:
            for i in range(count):
                value = rng.random() if values is None else values[i]
                low, high = (None, None) if width is None else (value - width, value + width)
                results[Cell(problem.label, kind, method, n, i)] = Outcome(
                    value, 2.0, low, high, problem.n_actions, 3, 0.0, seconds=0.5 + i, peak_bytes=None
                )
    return results


def saved(figure, results, folder, **options):
    """Every text of the drawn SVG, and its description."""
    chart.save_figure(chart.draw_figure(figure, Table(results), **options), folder / "drawn")
    root = ElementTree.fromstring((folder / "drawn.svg").read_bytes())
    return [element.text for element in root.iter() if element.text], root.get("aria-label")


def only(points):
    (point,) = points
    return point


@pytest.mark.parametrize("kind", ["ope", "opl"])
def test_points_are_means_with_standard_errors_over_instances(kind):
    values = np.array([1.0, 2.5, -3.0, 4.0])
    figure = Figure("f", "", "", (Panel("p", SMALL, kind, ("sDM",)),))
    point = only(chart.mean_points(figure, Table(rows(kind=kind, methods=["sDM"], rounds=[100], values=values))))
    scores = (values - 2) ** 2 if kind == "ope" else values / 2
    assert (point.panel, point.method, point.x, point.count) == ("p", "sDM", 100, 4)
    assert_allclose([point.mean, point.error], [scores.mean(), scores.std(ddof=1) / 2])


def test_coverage_is_a_share_with_binomial_error_and_leaves_out_methods_without_interval():
    figure = replace(EVALUATION, measure="coverage")
    results = rows(methods=["sDM"], rounds=[100], values=[2.0, 2.5, 4.0, 1.5], width=1) | rows(methods=["IPS"])
    point = only(chart.mean_points(figure, Table(results)))
    assert (point.method, point.mean, point.count) == ("sDM", 0.75, 4)
    assert_allclose(point.error, np.sqrt(0.75 * 0.25 / 4))


def test_times_are_averaged_where_they_are_known():
    figure = replace(EVALUATION, measure="seconds")
    results = rows(methods=["sDM"], rounds=[100])
    lost = next(iter(results))
    results[lost] = replace(results[lost], seconds=float("nan"))
    point = only(chart.mean_points(figure, Table(results)))
    assert_allclose([point.mean, point.error, point.count], [2.5, 1 / np.sqrt(3), 3])


def test_a_single_instance_has_no_error_bar():
    point = only(chart.mean_points(EVALUATION, Table(rows(methods=["sDM"], rounds=[100], count=1))))
    assert np.isnan(point.error)
    assert point.ends == (point.mean, point.mean)


def test_actions_run_along_the_axis_and_a_panel_keeps_to_its_own_rounds():
    panels = tuple(Panel(f"K = {p.n_actions}", p, "ope", ("sDM",), rounds=(1000,)) for p in (SMALL, LARGE))
    figure = Figure("f", "", "", panels, axis="n_actions")
    results = rows(SMALL) | rows(LARGE, rounds=(100, 1000, 5000))
    points = chart.mean_points(figure, Table(results))
    assert [point.x for point in points] == [10, 1000]
    there = np.array([results[Cell(LARGE.label, "ope", "sDM", 1000, i)].value for i in range(4)])
    assert_allclose(points[1].mean, ((there - 2) ** 2).mean())


def test_a_drawn_file_names_panels_and_methods_and_describes_itself(tmp_path):
    panels = (*EVALUATION.panels, Panel("Learning", LARGE, "opl", NAMES[:3]))
    texts, description = saved(replace(EVALUATION, panels=panels), rows() | rows(LARGE, "opl"), tmp_path)
    assert {*NAMES, "K < 11", "Learning", "MSE", "relative reward", "100", "1k"} <= set(texts)
    assert all(words in description for words in (*NAMES, "Evaluation & learning", "K < 11", "Mean squared error"))
    assert "not run" not in texts


def test_ticks_are_at_the_rounds_that_were_run(tmp_path):
    texts, _ = saved(EVALUATION, rows(rounds=(250, 1500, 20_000), methods=["sDM"], values=[2.1] * 4), tmp_path)
    assert [text for text in texts if text[0].isdigit()][:3] == ["250", "1.5k", "20k"]


def test_a_panel_without_rows_says_that_it_was_not_run(tmp_path):
    panels = (*EVALUATION.panels, Panel("Learning", LARGE, "opl", NAMES))
    texts, _ = saved(replace(EVALUATION, panels=panels), rows(), tmp_path)
    assert texts.count("not run") == 1
    texts, _ = saved(replace(EVALUATION, panels=panels), {}, tmp_path)
    assert texts.count("not run") == 2


def test_odd_names_are_shown_as_they_are_and_break_nothing(tmp_path):
    shown = ODD.replace("\x00", " ").replace("\n", " ")
    figure = Figure("f", ODD, "", (Panel(ODD, SMALL, "ope", ("sDM", ODD)),))
    texts, description = saved(figure, rows(methods=["sDM", ODD]), tmp_path)
    assert texts.count(shown) == 2
    assert description.count(shown) == 3


@pytest.mark.parametrize("scores", [[2.0] * 4, [2.0, 2.0, 2.0, 2e6], [2.0, 2.0, 2.0, 2.0 + 1e-9]])
def test_errors_of_zero_or_across_zero_keep_their_place_on_a_log_axis(scores, tmp_path):
    results = rows() | rows(methods=["sDM"], values=scores)
    saved(EVALUATION, results, tmp_path)
    text = (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert "NaN" not in text
    assert "Infinity" not in text
    groups = [group for group in ElementTree.fromstring(text).iter() if "mark-symbol" in group.get("class", "")]
    (marks,) = (group for group in groups if len(group) == 2 * len(NAMES))
    heights = [float(mark.get("transform").split(",")[1].rstrip(")")) for mark in marks]
    assert 0 <= min(heights) < max(heights) <= 340


def test_scores_that_are_not_finite_are_left_out_of_the_drawing(tmp_path):
    results = rows(methods=["sDM"]) | rows(methods=["IPS"], values=[1.0, np.inf, 1.0, 1.0])
    texts, _ = saved(EVALUATION, results | rows(methods=["DR"], values=[np.nan] * 4), tmp_path)
    assert "sDM" in texts


def test_both_files_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    drawn = chart.draw_figure(EVALUATION, Table(rows(methods=["sDM"])))
    chart.save_figure(drawn, tmp_path / "k-0.5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k-0.5.pdf", "k-0.5.png", "k-0.5.svg"]
    assert (tmp_path / "k-0.5.svg").read_text(encoding="utf-8").endswith("</svg>")
    assert (tmp_path / "k-0.5.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "k-0.5.pdf").read_bytes().startswith(b"%PDF")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(file):
        raise OSError("no space left")

    monkeypatch.setattr("manyarms._base.files._sync", full)
    with pytest.raises(OSError, match="no space left"):
        chart.save_figure(chart.draw_figure(EVALUATION, Table(rows())), tmp_path / "k-0.5")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_methods_look_alike_in_all_figures_and_unlike_one_another():
    everything = palette.styles([*METHODS, "mine", "yours", "theirs"])
    assert len({(style.colour, style.shape, style.hollow) for style in everything.values()}) == len(everything)
    assert palette.styles(["mine", "IPS"]) == {name: everything[name] for name in ("IPS", "mine")}
    assert everything["sDM"].width == max(style.width for style in everything.values())
    assert set(METHODS) <= set(palette.STYLES)
    for family in MISSPECIFIED.values():
        assert len({everything[name].shape for name in family}) == 1


def test_more_user_methods_than_spare_colours_still_differ():
    own = palette.styles(f"method {i}" for i in range(20))
    assert len({(style.colour, style.shape) for style in own.values()}) == 20


def test_drawing_costs_nothing_until_something_is_drawn():
    code = "import sys, manyarms.experiments.reproduction; assert not {'altair', 'vl_convert'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_points_lie_at_their_own_number_of_rounds():
    drawn = chart.draw_figure(EVALUATION, Table(rows())).to_dict()
    places = {row["x"] for data in _data(drawn) for row in data if "x" in row}
    assert places == {100, 1000}


def _data(spec):
    """The rows of data in every part of a chart."""
    if isinstance(spec, dict):
        if isinstance(spec.get("values"), list) and spec["values"] and isinstance(spec["values"][0], dict):
            yield spec["values"]
        for part in spec.values():
            yield from _data(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _data(part)


def test_what_lacks_to_one_is_drawn_on_a_log_axis(tmp_path):
    figure = Figure("f", "", "", (Panel("Learning", LARGE, "opl", ("sDM",)),), measure="regret")
    results = rows(LARGE, "opl", ["sDM"], (100,), values=[1.98, 1.9, 1.96, 1.96])
    (point,) = chart.mean_points(figure, Table(results))
    assert_allclose(point.mean, 1 - np.mean([0.99, 0.95, 0.98, 0.98]))
    texts, _ = saved(figure, results, tmp_path)
    assert "1 - relative reward" in texts


def test_a_wide_figure_has_an_axis_for_each_problem(tmp_path):
    panels = tuple(Panel(str(i), problem, "ope", ("sDM",)) for i in range(2) for problem in (SMALL, LARGE))
    results = rows(methods=["sDM"], values=[2.1] * 4) | rows(LARGE, methods=["sDM"], values=[102.0] * 4)
    texts, _ = saved(Figure("f", "", "", panels, columns=4), results, tmp_path)
    shared, _ = saved(Figure("f", "", "", panels, columns=2), results, tmp_path)
    assert "1k" in shared and "0.1" in shared and texts.count("MSE") == 4


def test_panels_share_a_vertical_axis_with_all_of_their_kind_or_of_their_row_or_with_none(tmp_path):
    panels = tuple(Panel(str(i), problem, "ope", ("sDM",)) for i in range(2) for problem in (SMALL, LARGE))
    results = rows(methods=["sDM"], values=[2.1] * 4) | rows(LARGE, methods=["sDM"], values=[102.0] * 4)
    figures = {
        share: Figure("f", "", "", (panels[0], panels[2], panels[1], panels[3]), columns=2, share_axes=share)
        for share in ("figure", "row", "panel")
    }
    domains = {
        share: _y_domains(chart.draw_figure(figure, Table(results)).to_dict()) for share, figure in figures.items()
    }
    assert len(set(domains["figure"])) == 1
    assert domains["row"][0] == domains["row"][1] != domains["row"][2] == domains["row"][3]
    assert {share: saved(figure, results, tmp_path)[0].count("MSE") for share, figure in figures.items()} == {
        "figure": 2,
        "row": 2,
        "panel": 4,
    }


def _y_domains(spec):
    """The ends of the vertical axis of each panel."""
    return [tuple(panel["layer"][0]["encoding"]["y"]["scale"]["domain"]) for panel in spec["vconcat"][0]["concat"]]


def _axes(spec):
    """Every vertical axis in every part of a chart."""
    if isinstance(spec, dict):
        if isinstance(spec.get("y"), dict):
            yield spec["y"]
        for part in spec.values():
            yield from _axes(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _axes(part)


def test_a_method_that_agrees_with_another_is_drawn_through_its_mark():
    """Hollow marks are transparent and above solid ones."""
    looks = palette.styles(["sDM", "sDM (learned prior)"])
    assert palette.style_columns(looks["sDM (learned prior)"])["fill"] == "transparent"
    figure = Figure("f", "", "", (Panel("p", SMALL, "ope", tuple(looks)),))
    drawn = chart.draw_figure(figure, Table(rows(methods=list(looks), rounds=[100]))).to_dict()
    marks = [data for data in _data(drawn) if {row.get("method") for row in data} == set(looks)][-1]
    assert [row["method"] for row in marks] == ["sDM", "sDM (learned prior)"]
    linear, paper = (palette.STYLES[name].dash for name in ("sDM (Bernoulli)", "sDM (Bernoulli, paper)"))
    assert linear != paper


def test_coverage_is_drawn_up_to_one_and_not_below_zero():
    figure = Figure("f", "", "", (Panel("One", SMALL, "ope", ("sDM",)),), measure="coverage")
    drawn = chart.draw_figure(figure, Table(rows(methods=["sDM"], values=[2.1] * 4))).to_dict()
    axes = [axis for axis in _axes(drawn) if "domain" in axis.get("scale", {})]
    assert {axis["scale"]["domain"][1] for axis in axes} == {1.0}
    assert all(0.0 <= axis["scale"]["domain"][0] < 1.0 for axis in axes)
    assert "intervals that contain the truth" in str(drawn)


def test_the_legend_gives_each_family_of_misspecified_priors_a_column():
    families = [family[:3] for family in MISSPECIFIED.values()][:2]
    names = ["sDM", *families[0], *families[1]]
    assert chart._columns(palette.styles(names)) == [["sDM"], *map(list, families)]
