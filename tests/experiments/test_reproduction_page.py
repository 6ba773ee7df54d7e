"""The page of the reproduction: what is written from results, and what other pages say about it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_experiments import Coin, outcome, results_of

from manyarms.experiments import Cell, Origin, Store
from manyarms.experiments import reproduction as module
from manyarms.experiments.cell import Table
from manyarms.experiments.changed_verdicts import CHANGED_VERDICTS, changed_table
from manyarms.experiments.claim import BetterThanEach, Claim
from manyarms.experiments.figure import QUICK, Figure, Panel
from manyarms.experiments.paper_text import PAPER_TEXT
from manyarms.experiments.reproduction import Reproduction, figures
from manyarms.experiments.reproduction_page import (
    cell_text,
    cost_table,
    exceptions,
    missing_lines,
    own_table,
    paper_table,
    verdict_marks,
)
from manyarms.experiments.result_store import Provenance

ROOT = Path(__file__).parents[2]


def claim_counts():
    """The distinct claims in the first table of the stored page, with their verdicts at every n."""
    page = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    table = page.split("## The paper's words, with verdicts")[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[3:5] for line in table.splitlines() if line.startswith("| ")]
    verdicts = {test.strip(): verdict.strip() for test, verdict in rows if verdict.strip() and "](#" in test}
    counts = {
        words: sum(mark in verdict for verdict in verdicts.values())
        for words, mark in {"hold": "✓", "do not": "✗", "are undecided": "○", "cannot": "not testable"}.items()
    }
    assert sum(counts.values()) == len(verdicts), "every claim of the page has a verdict"
    return len(verdicts), counts


def test_counts_of_claims_in_the_readme_and_the_limits_are_those_of_the_page():
    total, counts = claim_counts()
    readme = re.sub(r"\s+", " ", (ROOT / "README.md").read_text("utf-8"))
    assert (
        f"of the paper's {total} claims, {counts['hold']} hold, {counts['do not']} do not, {counts['are undecided']} "
        f"are undecided, and {counts['cannot']} cannot be tested with the data at hand"
    ) in readme
    limits = re.sub(r"\s+", " ", (ROOT / "docs" / "limits.md").read_text("utf-8"))
    claims = "[claims](reproduction.md#the-papers-words-with-verdicts)"
    assert f"Of the paper's {total} {claims}, {counts['are undecided']} are undecided" in limits


def test_claims_whose_verdict_changed_are_claims_of_their_figures():
    known = figures()
    for changed in CHANGED_VERDICTS:
        about = [claim for claim in known[changed.figure].claims if changed.is_about(changed.figure, claim)]
        assert about and (len(about) == 1 or not changed.claim), changed
        assert changed.claim == "" or changed.before in ("holds", "does not hold", "undecided")


LEVEL = np.linspace(-0.1, 0.1, 30)
"""Differences with mean zero, and too large for a tie."""


@pytest.fixture
def tested():
    """One claim of a made-up figure under the name of the first changed verdict, which does not hold."""
    rng = np.random.default_rng(0)
    base = rng.normal(0.5, 0.01, 30)
    results = results_of(
        {"ours": base, "better": base + rng.normal(0.1, 0.01, 30), "worse": base - 0.1, "level": base + LEVEL}
    )
    changed = CHANGED_VERDICTS[0]
    claim = Claim(changed.claim, (BetterThanEach("p", "opl", "ours", ("worse", "better", "level"), (10,)),))
    result = claim.test(Table(results), {"p": {10}})
    return [(Figure(changed.figure, "", "", (), (claim,)), claim, result)]


def test_todays_verdict_of_a_changed_claim_comes_from_the_results(tested):
    changed = CHANGED_VERDICTS[0]
    assert changed.before == "holds"
    lines = [line for line in changed_table(tested) if line.startswith(f"| [{changed.figure}]")]
    assert len(lines) == 1 and "✓ holds | ✗ does not hold | – |" in lines[0]
    figure, _, _ = tested[0]
    holds = Claim(changed.claim, (BetterThanEach("p", "opl", "ours", ("worse",), (10,)),))
    results = results_of({"ours": [0.9, 0.8, 0.9], "worse": [0.1, 0.2, 0.1]})
    same = [(figure, holds, holds.test(Table(results), {"p": {10}}))]
    assert not any(line.startswith(f"| [{changed.figure}]") for line in changed_table(same)), "it is no longer changed"


def test_exceptions_name_what_is_against_a_claim_and_what_is_open(tested):
    _, _, result = tested[0]
    assert exceptions(result.comparisons) == "Against: ours over better (n = 10). Open: ours over level (n = 10)."
    many = [comparison for _ in range(13) for comparison in result.comparisons]
    assert "Against: 13 comparisons in 1 row of the table below." in exceptions(many)


def test_a_claim_that_holds_says_how_many_comparisons_are_against_it():
    rng = np.random.default_rng(1)
    scores = {"ours": rng.normal(0.9, 0.01, 30), "better": rng.normal(0.95, 0.01, 30)}
    scores |= {f"worse {i}": rng.normal(0.1, 0.01, 30) for i in range(60)}
    rivals = tuple(name for name in scores if name != "ours")
    claim = Claim("", (BetterThanEach("p", "opl", "ours", rivals, (10,)),))
    result = claim.test(Table(results_of(scores)), {"p": {10}})
    assert verdict_marks(result) == ("✓ holds (1 against)", "–")


def test_missing_instances_are_listed_only_where_some_are_missing():
    whole = {("panel", "sDM"): (50, 50, 50)}
    assert missing_lines({"figure": whole}) == []
    lines = missing_lines({"figure": whole, "other": {("panel", "sDM"): (50, 50, 50), ("panel", "IPS"): (8, 20, 50)}})
    assert "| [other](#other) | 8 of 50: IPS |" in lines and not any("[figure]" in line for line in lines)


def test_our_own_claims_are_listed_with_their_verdicts(tested):
    figure, claim, result = tested[0]
    lines = own_table([*tested, (figure, replace(claim, text="theirs", quotes=("words",)), result)])
    rows = [line for line in lines if line.startswith("| [")]
    assert rows == [f"| [{figure.name}](#{figure.name}) | {cell_text(claim.text)} | ✗ does not hold | – | {result} |"]


def test_costs_are_those_at_the_largest_number_of_rounds():
    panel = Panel("One", Coin(), "opl", ("ours", "never run", "timeless"))
    cells = {Cell("coin", "opl", "ours", n, i): (n, i) for n in (10, 1000) for i in range(3)}
    results = {cell: outcome(1.0, seconds=n * (1 + i) / 1e4) for cell, (n, i) in cells.items()}
    results = {
        cell: replace(row, peak_bytes=2_500_000) if cell.instance == 0 else row for cell, row in results.items()
    } | {Cell("coin", "opl", "timeless", 10, 0): outcome(1.0, seconds=float("nan"))}
    lines = cost_table(Figure("f", "", "", (panel,)), Table(results))
    # The median of 0.1, 0.2 and 0.3 seconds.
    assert lines[2:] == ["| One | ours | 1,000 | 200.0 ms | 2.5 MB |"]


@pytest.fixture
def reproduced(tmp_path):
    """Rows of a problem that a figure needs, and of one that it does not, by methods of later revisions."""
    figure = Figure("f", "", "", (Panel("One", Coin(), "ope", ("sDM", "DM (Freq)")),))
    wanted = {cell for grid in figure.grids(QUICK) for cell in grid.cells()}
    unwanted = {Cell("other", "ope", "IPS", 20, i) for i in range(4)}
    Store(tmp_path).write(dict.fromkeys(wanted | unwanted, outcome(1.0)))
    Provenance({"other": Origin("x")}, revisions={"DM (Freq)": 2, "IPS": 3}).write(tmp_path)
    return Reproduction(tmp_path, QUICK), figure, wanted


def test_pruning_leaves_the_rows_of_the_figures_and_what_is_recorded_of_them(reproduced, tmp_path):
    reproduction, figure, wanted = reproduced
    assert reproduction.prune([figure]) == 4
    assert set(Store(tmp_path).read()) == wanted
    assert Provenance.read(tmp_path) == Provenance(revisions={"DM (Freq)": 2})
    assert reproduction.prune([figure]) == 0


def test_the_page_names_the_methods_that_were_run_anew(reproduced):
    reproduction, figure, _ = reproduced
    assert "tuned settings: DM (Freq), IPS. " in reproduction._reruns()[0]
    reproduction.prune([figure])
    assert "tuned settings: DM (Freq). " in reproduction._reruns()[0]


def test_only_data_sets_with_a_source_are_downloaded_and_each_once(monkeypatch, tmp_path):
    got = []
    monkeypatch.setattr(module, "download", lambda source, folder: got.append((source, folder)))
    named = [replace(Figure("f", "", "", ()), data=name) for name in ("ml-1m", "", "ml-1m", "kuairec")]
    known = [name for name in ("ml-1m", "kuairec") if name in module.SOURCES]
    assert "ml-1m" in known
    module.download_data(named, tmp_path)
    module.download_data(named[:1], None)
    expected = [(module.SOURCES[name], tmp_path / name) for name in known]
    assert got == [*expected, (module.SOURCES["ml-1m"], None)]


def test_a_claim_with_two_sentences_stands_beside_both():
    quotes = tuple(sentence.words for sentence in PAPER_TEXT if not sentence.reason)[:2]
    claim = Claim("ours is better", (BetterThanEach("p", "opl", "a", ("b",), (10,)),), quotes=quotes)
    result = claim.test(Table(results_of({"a": [0.9, 0.8], "b": [0.1, 0.2]})), {"p": {10}})
    lines = paper_table([(Figure("f", "", "", ()), claim, result)], everything=False)
    assert sum("ours is better" in line for line in lines) == 2


def test_reasons_link_figures_that_there_are():
    linked = {name for sentence in PAPER_TEXT for name in re.findall(r"\]\(#([\w-]+)\)", sentence.reason)}
    assert linked and linked <= set(figures())
