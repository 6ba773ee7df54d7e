"""The figures of the paper: every method runs, every claim rests on rows, numbers agree with a reference."""

import os
from dataclasses import replace

import numpy as np
import pytest
from small_experiments import outcome

from manyarms.experiments import (
    METHODS,
    Synthetic,
    compute,
)
from manyarms.experiments.cell import Table, score
from manyarms.experiments.figure import PAPER_SIZE, QUICK
from manyarms.experiments.paper_synthetic import SMALL_ERRORS, SMALL_REWARDS
from manyarms.experiments.paper_text import KUAIREC_2000, PAPER_TEXT
from manyarms.experiments.reproduction import figures


def test_the_smaller_catalog_agrees_with_an_independent_implementation():
    """Few instances: means within four joint standard errors."""
    problem = Synthetic(n_actions=100)
    for reference in SMALL_REWARDS + SMALL_ERRORS:
        assert reference.problem == problem.label
        outcomes = [compute(problem, METHODS[reference.method], reference.kind, 1000, i) for i in range(12)]
        values = [score(reference.kind, outcome) for outcome in outcomes]
        joint = np.hypot(reference.error, np.std(values, ddof=1) / np.sqrt(len(values)))
        assert np.mean(values) == pytest.approx(reference.mean, abs=4 * joint), reference


def test_figures_have_distinct_names_known_methods_and_claims_on_what_they_run():
    for name, figure in figures().items():
        assert name == figure.name
        # Two instances are enough to see whether every comparison can be made.
        for size in (replace(size, instances=2, slow_instances=2, exact=True) for size in (QUICK, PAPER_SIZE)):
            cells = {cell for grid in figure.grids(size) for cell in grid.cells()}
            assert cells and {cell.method for cell in cells} <= set(METHODS)
            everything = {cell: outcome(0.1, 1.0, 0.0, 1.0) for cell in cells}
            for claim, result in figure.test_claims(Table(everything), size):
                if claim.quote == KUAIREC_2000 and size.name == "quick":
                    continue  # it names a number of rounds that the quick size leaves out
                assert result.comparisons, f"{name}: {claim.text} rests on nothing at size {size.name}"
                assert result.verdict != "not run", f"{name}: {claim.text} needs what is not run at {size.name}"


@pytest.mark.slow
def test_every_method_of_every_synthetic_figure_runs():
    done = set()
    for figure in figures().values():
        for panel in figure.panels:
            if not isinstance(panel.problem, Synthetic):
                continue
            problem = replace(panel.problem, n_actions=15, dim=3, latent_dim=2)
            for name in panel.methods:
                if (problem, panel.kind, name) not in done:
                    done.add((problem, panel.kind, name))
                    result = compute(problem, METHODS[name], panel.kind, 40, 1)
                    assert np.isfinite(score(panel.kind, result))
    assert len(done) > 60


def test_claims_of_the_paper_quote_its_text_and_every_sentence_is_tested_or_has_a_reason():
    quotes = {claim.quote for figure in figures().values() for claim in figure.claims if claim.quote}
    assert quotes == {sentence.words for sentence in PAPER_TEXT if not sentence.reason}
    assert len({sentence.words for sentence in PAPER_TEXT}) == len(PAPER_TEXT) > 100


def test_on_part_of_kuairec_no_claim_is_called_tested(tmp_path, made_up):
    (tmp_path / "kuairec").mkdir()
    (tmp_path / "kuairec" / "small_matrix_subsample_watch_ratio.parquet").touch()
    assert all(claim.untestable for claim in figures(str(tmp_path))["kuairec"].claims)
    assert not any(claim.untestable for claim in figures(str(made_up))["kuairec"].claims)


REAL = [
    "figure-2",
    "movielens-sizes",
    "movielens",
    "movielens-halves",
    "movielens-epsilon-greedy",
    "kuairec",
    "jester",
    "open-bandit",
    "digits",
]


# Those that are not fast share their problems with those that are.
FAST = {"kuairec", "open-bandit"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in REAL])
@pytest.mark.parametrize("where", ["made-up", pytest.param("real", marks=pytest.mark.slow)])
def test_every_method_of_every_figure_on_data_runs(name, where, request):
    if where == "real" and "MANYARMS_DATA" not in os.environ:
        pytest.skip("MANYARMS_DATA is not set")
    data = os.environ["MANYARMS_DATA"] if where == "real" else str(request.getfixturevalue("made_up"))
    for panel in figures(data)[name].panels:
        for method in panel.methods:
            result = compute(panel.problem, METHODS[method], panel.kind, 200, 1)
            assert np.isfinite(score(panel.kind, result))


def test_kuairec_is_called_partial_only_when_it_is(made_up, tmp_path):
    whole = figures(str(made_up))["kuairec"]
    assert "partial" not in whole.panels[0].problem.label and "PARTIAL" not in whole.note
    (tmp_path / "kuairec").mkdir()
    (tmp_path / "kuairec" / "small_matrix_subsample_watch_ratio.parquet").touch()
    part = figures(str(tmp_path))["kuairec"]
    assert "partial" in part.panels[0].problem.label and "PARTIAL" in part.note
