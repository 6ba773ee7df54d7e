"""The page of the reproduction: what is written from results, and what other pages say about it."""

import re
from pathlib import Path

import numpy as np
import pytest
from small_experiments import results_of

from manyarms.experiments.cell import Table
from manyarms.experiments.changed_verdicts import CHANGED_VERDICTS, changed_table
from manyarms.experiments.claim import BetterThanEach, Claim
from manyarms.experiments.figure import Figure
from manyarms.experiments.paper_text import PAPER_TEXT
from manyarms.experiments.reproduction import figures
from manyarms.experiments.reproduction_page import (
    exceptions,
    missing_lines,
    paper_table,
    verdict_marks,
)

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


def test_a_claim_with_two_sentences_stands_beside_both():
    quotes = tuple(sentence.words for sentence in PAPER_TEXT if not sentence.reason)[:2]
    claim = Claim("ours is better", (BetterThanEach("p", "opl", "a", ("b",), (10,)),), quotes=quotes)
    result = claim.test(Table(results_of({"a": [0.9, 0.8], "b": [0.1, 0.2]})), {"p": {10}})
    lines = paper_table([(Figure("f", "", "", ()), claim, result)], everything=False)
    assert sum("ours is better" in line for line in lines) == 2


def test_reasons_link_figures_that_there_are():
    linked = {name for sentence in PAPER_TEXT for name in re.findall(r"\]\(#([\w-]+)\)", sentence.reason)}
    assert linked and linked <= set(figures())
