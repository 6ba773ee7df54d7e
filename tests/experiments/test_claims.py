"""Claims: p-values are those of t-tests, and verdicts follow their rules."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from small_experiments import outcome, results_of

from manyarms.experiments import Cell, Synthetic
from manyarms.experiments.cell import Table
from manyarms.experiments.claim import (
    BestIsBetter,
    BetterThanEach,
    Claim,
    ClaimResult,
    GainGrows,
    GainLargerAt,
    better_on_each,
    level_against,
    verdict_of,
)
from manyarms.experiments.method_comparison import MethodComparison, above_zero
from manyarms.experiments.number_requirements import AboveLogged, Covers, MatchesReferences, NearTruth, Reference


def verdict(requirement, results, rounds=(10,)):
    return Claim("", (requirement,)).test(Table(results), {label: set(rounds) for label in requirement.labels}).verdict


def test_p_values_are_those_of_a_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.6, 0.1, 12), rng.normal(0.5, 0.1, 12)
    (comparison,) = BetterThanEach("p", "opl", "a", ("b",), (10,)).comparisons(Table(results_of({"a": a, "b": b})))
    assert_allclose(comparison.p_for, stats.ttest_rel(a, b, alternative="greater").pvalue)
    assert_allclose(comparison.p_against, stats.ttest_rel(a, b, alternative="less").pvalue)
    (squared,) = BetterThanEach("p", "ope", "a", ("b",), (10,)).comparisons(Table(results_of({"a": a, "b": b}, "ope")))
    assert_allclose(squared.p_for, stats.ttest_rel(a, b, alternative="less").pvalue)


def test_two_methods_without_any_error_are_level():
    """Gains are divided by the mean errors, unless there are none."""
    results = results_of({"a": np.zeros(8), "b": np.zeros(8)}, "ope")
    (comparison,) = BetterThanEach("p", "ope", "a", ("b",), (10,)).comparisons(Table(results))
    assert [set(sample.values()) for sample in comparison.samples] == [{0.0}]


def test_verdicts():
    rng = np.random.default_rng(1)
    base = rng.normal(0.5, 0.1, 20)
    noise = rng.normal(0, 0.01, 20)
    scores = {
        "ours": base,
        "worse": base - 0.05 + noise,
        "better": base + 0.05 + noise,
        "same": base + noise - noise.mean(),
    }
    results = results_of(scores)

    def against(*rivals):
        return verdict(BetterThanEach("p", "opl", "ours", rivals, (10,)), results)

    assert against("worse") == "holds"
    assert against("worse", "better") == "does not hold"
    assert against("worse", "same") == "undecided"
    assert against("worse", "unknown") == "not run"
    assert against("ours") == "undecided"


def test_a_claim_that_is_true_by_chance_only_is_seldom_called_decided():
    rng, called = np.random.default_rng(2), []
    for _ in range(400):
        draws = rng.normal(size=(6, 10))
        results = results_of({name: 0.5 + 0.01 * row for name, row in zip("abcdef", draws, strict=True)})
        called.append(verdict(BetterThanEach("p", "opl", "a", tuple("bcdef"), (10,)), results))
    # Each at most 5 % by construction; rivals share method a, so that the two are far from independent.
    assert called.count("holds") < 400 * 0.05 + 4 * np.sqrt(400 * 0.05)
    assert called.count("does not hold") < 400 * 0.05 + 4 * np.sqrt(400 * 0.05)


def test_only_rounds_that_were_to_be_run_count():
    results = results_of({"a": [0.9, 0.8, 0.9], "b": [0.1, 0.2, 0.1]})
    requirement = BetterThanEach("p", "opl", "a", ("b",), (10, 20))
    assert verdict(requirement, results, (10,)) == "holds"
    assert verdict(requirement, results, (10, 20)) == "not run"
    assert verdict(requirement, results, (20,)) == "not run"


def test_a_growing_gap_is_distinguished_from_a_steady_one():
    rng = np.random.default_rng(3)

    def gap(size, problem):
        base = rng.normal(0.5, 0.1, 15)
        return results_of({"a": base + size + rng.normal(0, 0.01, 15), "b": base}, problem=problem)

    problems = (("small", "s"), ("large", "l"))
    requirement = GainGrows(problems, "opl", "a", "b", 10)
    assert verdict(requirement, gap(0.1, "s") | gap(0.3, "l")) == "holds"
    assert verdict(requirement, gap(0.3, "s") | gap(0.1, "l")) == "does not hold"
    assert verdict(requirement, gap(0.2, "s")) == "not run"
    more = GainLargerAt("p", "opl", "a", "b", 10, 20)
    here = results_of({"a": 0.9 + rng.normal(0, 0.01, 9), "b": np.full(9, 0.1)})
    there = results_of({"a": 0.5 + rng.normal(0, 0.01, 9), "b": np.full(9, 0.1)}, n=20)
    assert verdict(more, here | there, (10, 20)) == "holds"


def test_the_best_of_some_is_what_counts():
    results = results_of({"good": [0.9, 0.91, 0.9], "bad": [0.1, 0.1, 0.12], "other": [0.5, 0.5, 0.51]})
    assert verdict(BestIsBetter("p", "opl", ("bad", "good"), ("other",), (10,)), results) == "holds"
    assert verdict(BestIsBetter("p", "opl", ("bad",), ("other",), (10,)), results) == "does not hold"


def test_agreement_with_references_is_within_two_joint_standard_errors():
    values = np.tile([0.4, 0.5, 0.6, 0.5], 5)
    results = results_of({"m": values})
    joint = np.hypot(values.std(ddof=1) / np.sqrt(20), 0.03)

    def agrees(distance, of=results):
        return verdict(MatchesReferences((Reference("p", "opl", "m", 10, 0.5 + distance * joint, 0.03),)), of)

    assert agrees(1.99) == agrees(-1.99) == "holds"
    assert agrees(2.01) == "does not hold"  # 4.4 % two-sided, of one comparison
    assert agrees(0.0, results_of({"m": values[:8]})) == "undecided", "too few instances to say anything"


def test_of_many_references_one_may_be_beyond_two_standard_errors_without_refuting_all():
    rng, called = np.random.default_rng(4), []
    for _ in range(200):
        results = results_of({str(m): rng.normal(0.5, 0.1, 25) for m in range(16)})
        references = tuple(Reference("p", "opl", str(m), 10, 0.5, 0.0) for m in range(16))
        called.append(verdict(MatchesReferences(references), results))
    assert called.count("does not hold") < 200 * 0.05 + 4 * np.sqrt(200 * 0.05)
    assert called.count("undecided") > 20


def test_coverage_is_tested_against_its_own_error():
    def held(n_inside, n):
        return {Cell("p", "ope", "m", 10, i): outcome(0.0, 1.0, 0.0, 2.0 if i < n_inside else 0.5) for i in range(n)}

    assert verdict(Covers("p", "m", (10,)), held(190, 200)) == "holds"
    assert verdict(Covers("p", "m", (10,)), held(184, 200)) == "holds"
    assert verdict(Covers("p", "m", (10,)), held(178, 200)) == "does not hold"
    assert verdict(Covers("p", "m", (10,)), held(19, 20)) == "undecided", "too few instances to say anything"


def test_an_estimate_so_vague_that_it_cannot_be_wrong_is_not_called_right():
    def near(value, half):
        cells = {Cell("p", "ope", "m", 10, i): outcome(value, 0.004, value - half, value + half) for i in range(5)}
        return verdict(NearTruth("p", ("m",), 10), cells)

    assert near(0.0045, 0.002) == "holds"
    assert near(50.0, 510.0) == "undecided"
    assert near(0.02, 0.002) == "does not hold"


def test_a_difference_too_small_to_matter_is_a_tie_and_not_a_finding():
    rng = np.random.default_rng(6)
    noise = rng.normal(0, 1e-5, 30)
    by_instance = dict(enumerate(noise))
    assert above_zero("", 10, by_instance, margin=1e-3).tie and not above_zero("", 10, by_instance).tie
    assert not above_zero("", 10, dict(enumerate(noise * 1e3)), margin=1e-3).tie, "an error this large leaves it open"
    base = rng.normal(0.5, 0.1, 30)
    scores = {"ours": base, "worse": base - 0.1 + noise, "same": base + 2 * noise, "hair": base + 4e-4 + noise}
    results = results_of(scores)
    assert verdict(BetterThanEach("p", "opl", "ours", ("worse", "same", "hair"), (10,)), results) == "holds"
    assert verdict(BetterThanEach("p", "opl", "ours", ("hair",), (10,)), results) == "undecided", (
        "ties alone show nothing"
    )
    assert verdict(BetterThanEach("p", "ope", "ours", ("hair",), (10,)), results_of(scores, "ope")) == "holds", (
        "no ties there"
    )


def test_the_best_of_several_equals_is_not_called_better():
    rng, called = np.random.default_rng(7), []
    for _ in range(300):
        results = results_of({name: rng.normal(0.5, 0.1, 10) for name in "abcd"})
        called.append(verdict(BestIsBetter("p", "opl", ("a", "b", "c"), ("d",), (10,)), results))
    assert called.count("holds") < 300 * 0.05 + 4 * np.sqrt(300 * 0.05)


def test_gains_at_two_numbers_of_rounds_are_paired_by_instance():
    here = {Cell("p", "opl", m, 10, i): outcome(0.5 + 0.1 * i * (m == "a")) for m in "ab" for i in range(1, 10)}
    there = {Cell("p", "opl", m, 20, i): outcome(0.5 + 0.1 * i * (m == "a")) for m in "ab" for i in range(9)}
    (comparison,) = GainLargerAt("p", "opl", "a", "b", 10, 20).comparisons(Table(here | there))
    assert comparison.count == 8 and comparison.p_for == comparison.p_against == 1.0


def test_only_the_cells_of_a_figure_count_in_its_verdict():
    results = results_of({"a": [0.9] * 6, "b": [0.1, 0.1, 0.1, 0.95, 0.99, 0.99]})
    requirement = BetterThanEach("p", "opl", "a", ("b",), (10,))
    first = [cell for cell in results if cell.instance < 3]
    assert Claim("", (requirement,)).test(Table(results, first), {"p": {10}}).comparisons[0].count == 3


def test_a_target_above_the_logged_policy_needs_both_of_them():
    def cells(method, value):
        return {Cell("p", "ope", method, 10, i): outcome(value, 1.0, value - 0.1, value + 0.1) for i in range(3)}

    claim = AboveLogged("p", ("m",), 10)
    assert verdict(claim, cells("m", 2.0) | cells("logged", 1.0)) == "holds"
    assert verdict(claim, cells("m", 1.0) | cells("logged", 2.0)) == "does not hold"
    assert verdict(claim, cells("m", 2.0)) == "not run"
    assert verdict(claim, cells("logged", 1.0)) == "not run"


def test_decisions_against_share_their_level_as_holm_says():
    rng = np.random.default_rng(8)
    for _ in range(200):
        p = rng.uniform(size=8) ** rng.integers(1, 6)
        comparisons = [MethodComparison(str(i), "", (10,), 5, p_against=value) for i, value in enumerate(p)]
        order = np.argsort(p)
        adjusted = np.empty(8)
        adjusted[order] = np.minimum(1, np.maximum.accumulate((8 - np.arange(8)) * p[order]))
        level = level_against(comparisons)
        assert [c.decision(level) == "against" for c in comparisons] == list(adjusted < 0.05)


def test_one_comparison_in_many_does_not_decide_a_claim():
    good = [MethodComparison(str(i), "", (10,), 5, p_for=1e-6) for i in range(251)]
    bad = MethodComparison("bad", "", (10,), 5, p_against=1e-9)
    unsure = MethodComparison("open", "", (10,), 5, p_for=0.4, p_against=0.6)
    assert verdict_of([*good, bad]) == "holds"
    assert verdict_of([*good[:9], bad]) == "does not hold"
    assert verdict_of([*good, *[bad] * 6]) == "does not hold"
    assert verdict_of([*good[:19], unsure]) == "holds" and verdict_of([*good[:18], unsure]) == "undecided"


def test_the_averaged_verdict_is_a_t_test_of_means_over_n():
    rng = np.random.default_rng(9)
    a, b = rng.normal(0.6, 0.2, (2, 12)), rng.normal(0.5, 0.2, (2, 12))
    results = results_of({"a": a[0], "b": b[0]}) | results_of({"a": a[1], "b": b[1]}, n=20)
    claim = Claim("", (BetterThanEach("p", "opl", "a", ("b",), (10, 20)),))
    (average,) = claim.test(Table(results), {"p": {10, 20}}).averages
    expected = stats.ttest_1samp((a - b).mean(axis=0), 0, alternative="greater")
    assert_allclose(average.p_for, expected.pvalue)
    assert average.rounds == (10, 20) and average.count == 12
    assert claim.test(Table(results), {"p": {10}}).averaged_verdict is None


def test_squared_errors_at_each_n_count_alike_in_the_average():
    rng = np.random.default_rng(10)
    a, b = rng.uniform(0.5, 1.5, (2, 12)), rng.uniform(0.5, 1.5, (2, 12))
    scales = np.array([[1.0], [1e-4]])
    results = {}
    for n, ours, theirs in zip((10, 20), scales * a, scales * b, strict=True):
        results |= results_of({"a": ours, "b": theirs}, "ope", n=n)
    claim = Claim("", (BetterThanEach("p", "ope", "a", ("b",), (10, 20)),))
    (average,) = claim.test(Table(results), {"p": {10, 20}}).averages
    each = (b - a) / (a.mean(axis=1) + b.mean(axis=1))[:, None]
    assert_allclose(average.p_for, stats.ttest_1samp(each.mean(axis=0), 0, alternative="greater").pvalue, rtol=1e-6)


def test_gaps_between_problems_are_averaged_over_n_before_a_welch_test():
    rng = np.random.default_rng(11)
    problems, rounds = (("small", "s"), ("large", "l")), (10, 20)
    gains = {label: rng.normal(shift, 0.1, (2, 15)) for label, shift in (("s", 0.1), ("l", 0.2))}
    results = {}
    for label, values in gains.items():
        for n, gain in zip(rounds, values, strict=True):
            results |= results_of({"a": 0.5 + gain, "b": np.full(15, 0.5)}, problem=label, n=n)
    claim = Claim("", tuple(GainGrows(problems, "opl", "a", "b", n) for n in rounds))
    (average,) = claim.test(Table(results), {label: set(rounds) for label in "sl"}).averages
    small, large = (values.mean(axis=0) for values in gains.values())
    welch = stats.ttest_ind(large, small, equal_var=False)
    error = (large.mean() - small.mean()) / welch.statistic
    assert_allclose(average.p_for, stats.t.sf((large.mean() - small.mean()) / error, 14))


def test_a_claim_that_the_data_cannot_show_has_no_verdict():
    results = results_of({"a": [0.9, 0.8, 0.9], "b": [0.1, 0.2, 0.1]})
    claim = Claim("", (BetterThanEach("p", "opl", "a", ("b",), (10,)),), untestable="a part of the data")
    result = claim.test(Table(results), {"p": {10}})
    assert result.verdict == "not testable" and len(result.comparisons) == 1


def test_no_two_comparisons_of_a_claim_have_the_same_place_in_its_table():
    """Else the average over n would mix problems."""
    results = results_of({"a": [0.9, 0.8], "b": [0.1, 0.2]}) | results_of(
        {"a": [0.9, 0.8], "b": [0.1, 0.2]}, problem="q"
    )
    rounds = {"p": {10}, "q": {10}}
    for kind in (BetterThanEach, BestIsBetter):
        ours = "a" if kind is BetterThanEach else ("a",)
        with pytest.raises(ValueError, match="prefix"):
            Claim("", [kind(name, "opl", ours, ("b",), (10,)) for name in "pq"]).test(Table(results), rounds)
        parts = [kind(name, "opl", ours, ("b",), (10,), prefix=f"{name}: ") for name in "pq"]
        assert len(Claim("", parts).test(Table(results), rounds).comparisons) == 2
    on_each = better_on_each({"p": Synthetic(10), "q": Synthetic(20)}, "opl", "a", ("b",))
    for name, requirement in zip("pq", on_each, strict=True):
        assert requirement.prefix == f"{name}: "


def test_a_tie_is_a_tie_however_sure_its_sign_is():
    by_instance = dict(enumerate(np.full(30, 4e-4) + np.random.default_rng(12).normal(0, 1e-5, 30)))
    sure = above_zero("", 10, by_instance, margin=1e-3)
    assert sure.p_for < 1e-9 and sure.decision() == "tie"


def test_averaged_over_n_the_best_of_several_equals_is_seldom_called_better():
    """One candidate for all n; chosen anew at each n, the best of equals would be called better in a fifth of cases."""
    rng, called, rounds = np.random.default_rng(13), [], (10, 20, 30, 40, 50, 60)
    for _ in range(300):
        results = {}
        for n in rounds:
            results |= results_of({name: rng.normal(0.5, 0.1, 20) for name in "abcd"}, n=n)
        claim = Claim("", (BestIsBetter("p", "opl", ("a", "b", "c"), ("d",), rounds),))
        called.append(claim.test(Table(results), {"p": set(rounds)}).averaged_verdict)
    assert called.count("holds") < 300 * 0.05 + 4 * np.sqrt(300 * 0.05)


def test_averaged_over_n_the_best_is_one_method_and_is_named():
    results = results_of({"a": [0.9, 0.91], "b": [0.7, 0.71], "c": [0.5, 0.52]})
    results |= results_of({"a": [0.6, 0.61], "b": [0.7, 0.71], "c": [0.5, 0.52]}, n=20)
    claim = Claim("", (BestIsBetter("p", "opl", ("a", "b"), ("c",), (10, 20)),))
    result = claim.test(Table(results), {"p": {10, 20}})
    assert [comparison.numbers[:2] for comparison in result.comparisons] == ["a:", "b:"]
    (average,) = result.averages
    assert average.numbers.startswith("a: +0.245")


def test_a_comparison_with_few_instances_is_open_also_when_averaged():
    rng, rounds, results = np.random.default_rng(14), (10, 20), {}
    for n in rounds:
        results |= results_of({"a": rng.normal(0.9, 0.01, 15), "b": rng.normal(0.1, 0.01, 15)}, n=n)
    claim = Claim("", (BetterThanEach("p", "opl", "a", ("b",), rounds),))
    few, enough = (claim.test(Table(results), {"p": set(rounds)}, least=least) for least in (16, 15))
    assert (few.verdict, few.averaged_verdict) == ("undecided", "undecided")
    assert (enough.verdict, enough.averaged_verdict) == ("holds", "holds")


def test_relative_averages_are_labelled_as_such():
    for kind, column in (("opl", "mean over n"), ("ope", "mean over n, relative")):
        results = results_of({"a": [0.9, 0.8], "b": [0.1, 0.2]}, kind) | results_of(
            {"a": [0.9, 0.8], "b": [0.1, 0.2]}, kind, n=20
        )
        claim = Claim("", (BetterThanEach("p", kind, "a", ("b",), (10, 20)),))
        (average,) = claim.test(Table(results), {"p": {10, 20}}).averages
        assert average.column == column


def test_a_claim_that_holds_counts_what_is_against_it():
    good = [above_zero(f"{i}", 10, dict(enumerate(0.5 + 0.01 * np.arange(9)))) for i in range(60)]
    bad = above_zero("bad", 10, dict(enumerate(-0.5 - 0.01 * np.arange(9))))
    result = ClaimResult((*good, bad))
    assert result.verdict == "holds" and result.against == 1
