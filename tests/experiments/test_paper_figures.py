"""The figures of the paper: every method runs, every claim rests on rows, numbers agree with a reference."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_experiments import outcome

from manyarms.experiments import (
    METHODS,
    Synthetic,
    compute,
)
from manyarms.experiments.cell import Cell, Table, draw_log, draw_world, score
from manyarms.experiments.figure import PAPER_SIZE, QUICK
from manyarms.experiments.methods import MethodTask
from manyarms.experiments.paper_synthetic import SMALL_ERRORS, SMALL_REWARDS
from manyarms.experiments.paper_text import KUAIREC_2000, PAPER_TEXT
from manyarms.experiments.reproduction import figures
from manyarms.likelihoods import Bernoulli
from manyarms.posterior import fit


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
                if KUAIREC_2000 in claim.quotes and size.name == "quick":
                    continue  # it names a number of rounds that the quick size leaves out
                assert result.comparisons, f"{name}: {claim.text} rests on nothing at size {size.name}"
                assert result.verdict != "not run", f"{name}: {claim.text} needs what is not run at {size.name}"


GRIDS = {
    "grid-opl": ("opl", "uniform", False),
    "grid-ope": ("ope", "uniform", False),
    "grid-epsilon-greedy": ("opl", "epsilon-greedy", False),
    "grid-misspecified-likelihood-opl": ("opl", "uniform", True),
    "grid-misspecified-likelihood-ope": ("ope", "uniform", True),
    "grid-misspecified-prior-opl": ("opl", "uniform", False),
    "grid-misspecified-prior-ope": ("ope", "uniform", False),
}


@pytest.mark.parametrize("name", GRIDS)
def test_each_grid_of_the_appendix_has_a_panel_for_every_number_of_actions_and_latent_dimension(name):
    kind, logging, binary = GRIDS[name]
    figure = figures()[name]
    problems = [panel.problem for panel in figure.panels]
    wanted = [(K, latent) for K in (100, 1000) for latent in (5, 10, 20)]
    assert [(p.n_actions, p.latent_dim, p.dim, p.logging, p.binary) for p in problems] == [
        (K, latent, 10, logging, binary) for K, latent in wanted
    ]
    assert {panel.kind for panel in figure.panels} == {kind}
    paper = {"sDM", "DM (Bayes)", "DM (Freq)", "IPS", "snIPS", "DR", "MIPS", "PC"}
    prior = {"sDM", "DM (Bayes)", *(f"sDM, prior off by {v}" for v in ("0.5", "1", "1.5"))}
    for panel in figure.panels:
        assert set(panel.methods) >= (prior if "prior" in name else paper)


def test_at_paper_size_gradient_learners_of_the_grids_have_fifty_instances():
    for name, (kind, _, _) in GRIDS.items():
        counts = {m: grid.instances for grid in figures()[name].grids(PAPER_SIZE) for m in grid.methods}
        assert min(counts.values()) >= 50, (name, kind, counts)


def test_rows_of_the_published_run_on_synthetic_problems_are_still_wanted():
    """A changed label or method name would compute thousands of cells again."""
    stored = Path(__file__).parents[2] / "docs" / "reproduction" / "rows.parquet"
    keys = pq.read_table(stored, columns=["problem", "kind", "method", "n", "instance"]).to_pylist()
    wanted = {cell for figure in figures().values() for grid in figure.grids(PAPER_SIZE) for cell in grid.cells()}
    synthetic = [Cell(**key) for key in keys if key["problem"].startswith("synthetic")]
    assert synthetic and set(synthetic) <= wanted


def test_sdm_has_the_papers_treatment_of_clicks_beside_the_variational_one():
    """Each is the posterior that the likelihood of its name gives, and they differ."""
    problem = Synthetic(n_actions=50, dim=3, latent_dim=3, binary=True)
    world, logs = draw_world(problem, 0), draw_log(problem, 0, 300)
    task = MethodTask(logs, world.known, None, np.random.default_rng(0))
    values = {}
    for name, treatment in (("sDM (Bernoulli)", "variational"), ("sDM (Bernoulli, paper)", "paper")):
        expected = "probit" if treatment == "paper" else "quadrature"
        posterior = fit(logs, world.known.prior, Bernoulli(treatment, expected=expected))
        values[name] = METHODS[name].estimate(task, world.target).value
        assert values[name] == posterior.value(world.target, logs.contexts).value
    assert abs(values["sDM (Bernoulli)"] - values["sDM (Bernoulli, paper)"]) > 1e-3


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
    quotes = {quote for figure in figures().values() for claim in figure.claims for quote in claim.quotes}
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
