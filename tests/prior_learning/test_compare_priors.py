"""Comparison of priors: the brute-force scores, and no peeking at held-out rounds."""

import numpy as np
import pytest
from prior_check_problems import BY_CATEGORY, draw_events, draw_logs, given_rewards, rows_of, two_level
from scipy import stats

import manyarms as ma
from manyarms import priors
from manyarms.errors import InputError
from manyarms.prior_checks.check_categories import check_categories
from manyarms.prior_checks.check_prior import check_prior
from manyarms.prior_checks.sensitivity import prior_sensitivity
from manyarms.prior_learning.compare_priors import compare_priors
from manyarms.prior_learning.learn_prior import learn_prior


def brute_force(logs, mean, cov, noise_std, fold):
    """Log evidence, and the log score of every round given the other folds."""
    rows = rows_of(logs.contexts, logs.actions, logs.n_actions)
    rewards = logs.rewards
    everything = stats.multivariate_normal(rows @ mean, rows @ cov @ rows.T + noise_std**2 * np.eye(len(rows)))
    scores = np.empty(len(rows))
    for i in range(len(rows)):
        rest = fold != fold[i]
        m, c = given_rewards(mean, cov, rows[rest], rewards[rest], noise_std)
        scores[i] = stats.norm.logpdf(rewards[i], rows[i] @ m, np.sqrt(rows[i] @ c @ rows[i] + noise_std**2))
    return everything.logpdf(rewards), scores


@pytest.mark.parametrize("grouped", [False, True])
def test_comparison_is_the_brute_force_one(grouped):
    rng = np.random.default_rng(3)
    categories = np.repeat([0, 1, 2], 3)
    groups = rng.integers(12, size=60) if grouped else None
    alike = priors.from_categories(categories, dim=2, effect_std=1.0, action_std=0.3)
    logs = draw_logs(rng, alike, 0.7, 60, groups=groups)
    found = compare_priors(
        logs, {"alike": alike, "apart": priors.independent(9, cov=1.09, dim=2)}, ma.Gaussian(0.7), n_folds=4
    )

    # The fixed folds: rounds, or whole groups, in the order of one permutation.
    units = np.arange(60) if groups is None else np.unique(groups, return_inverse=True)[1]
    fold = (np.random.default_rng(0).permutation(units.max() + 1) % 4)[units]
    expected = {
        "alike": brute_force(logs, *two_level(categories, 2, 1.0, 0.3), 0.7, fold),
        "apart": brute_force(logs, np.zeros(18), 1.09 * np.eye(18), 0.7, fold),
    }
    for row in found:
        evidence, scores = expected[row.name]
        np.testing.assert_allclose(row.log_evidence, evidence, rtol=1e-9)
        np.testing.assert_allclose(row.held_out, scores.mean(), rtol=1e-9)
    best, other = found.rows
    paired = expected[other.name][1] - expected[best.name][1]
    clusters = np.array([np.sum(paired[units == u] - paired.mean()) for u in np.unique(units)])
    n = len(clusters)
    np.testing.assert_allclose(other.difference, paired.mean(), rtol=1e-8)
    np.testing.assert_allclose(other.error, np.sqrt(np.sum(clusters**2) * n / (n - 1)) / 60, rtol=1e-8)
    assert (best.difference, best.verdict) == (0.0, "best")
    assert found.best == best.name and len(found) == len(expected)
    np.testing.assert_allclose(other.evidence_difference, expected[other.name][0] - expected[best.name][0], rtol=1e-7)


def test_a_weight_of_two_is_the_round_twice():
    rng = np.random.default_rng(4)
    prior = priors.from_categories(np.repeat([0, 1], 4), dim=2)
    logs = draw_logs(rng, prior, 1.0, 50)
    counts = rng.integers(0, 4, size=50)
    weighted = ma.LoggedData(
        logs.contexts, logs.actions, logs.rewards, n_actions=8, weights=counts, groups=np.arange(50)
    )
    twice = np.repeat(np.arange(50), counts)
    written_out = ma.LoggedData(
        logs.contexts[twice], logs.actions[twice], logs.rewards[twice], n_actions=8, groups=twice
    )
    candidates = [prior, priors.independent(8, dim=2)]
    for one, other in zip(compare_priors(weighted, candidates), compare_priors(written_out, candidates), strict=True):
        for name, value in vars(one).items():
            assert getattr(other, name) == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value)


def test_the_true_prior_wins_and_a_twin_of_it_is_undecided():
    rng = np.random.default_rng(5)
    categories = rng.integers(20, size=200)
    true = priors.from_categories(categories, dim=3, effect_std=1.0, action_std=0.3)
    logs = draw_logs(rng, true, 0.5, 2000)
    found = compare_priors(
        logs,
        {
            "independent": priors.independent(200, cov=1.09, dim=3),
            "shuffled": priors.from_categories(rng.permutation(categories), dim=3, action_std=0.3),
            "true": true,
            "twin": priors.from_categories(categories, dim=3, effect_std=1.01, action_std=0.301),
        },
        ma.Gaussian(0.5),
    )
    verdicts = {row.name: row.verdict for row in found}
    assert {found.best, *found.undecided} == {"true", "twin"}
    assert verdicts["independent"] == verdicts["shuffled"] == "worse"
    assert [row.held_out for row in found] == sorted((row.held_out for row in found), reverse=True)
    assert compare_priors(logs, [true, true]).undecided == ("1: category",)


def test_what_is_learned_is_learned_without_the_held_out_fold():
    rng = np.random.default_rng(6)
    prior = priors.from_categories(np.repeat(np.arange(5), 8), dim=1)
    logs = draw_logs(rng, prior, 0.8, 240)
    found = compare_priors(logs, {"it": prior}, learn=True, n_folds=3).rows[0]

    fold = np.random.default_rng(0).permutation(240) % 3
    scores = np.empty(240)
    for i in range(3):
        inside, outside = np.flatnonzero(fold == i), np.flatnonzero(fold != i)
        posterior = learn_prior(logs.take(outside), prior).posterior
        x, a, r = logs.contexts[inside], logs.actions[inside], logs.rewards[inside]
        std = np.hypot(posterior.reward_std(x, a), posterior.likelihood.noise_std)
        scores[inside] = stats.norm.logpdf(r, posterior.expected_reward(x, a), std)
    learned = learn_prior(logs, prior)
    assert found.held_out == pytest.approx(scores.mean(), abs=1e-4)
    assert found.log_evidence == pytest.approx(learned.log_evidence, abs=1e-4)
    assert found.n_learned == len(learned.parameters) == 4
    assert found.noise_std == pytest.approx(learned.likelihood.noise_std, rel=1e-3)

    leaked = compare_priors(logs, {"it": learned.prior}, learned.likelihood, n_folds=3).rows[0]
    assert leaked.held_out > found.held_out + 0.01

    # One that was learned from these very rounds is learned anew too; one from other rounds is held as it is.
    again = compare_priors(logs, {"it": learned}, n_folds=3).rows[0]
    assert again.held_out == pytest.approx(found.held_out, abs=1e-4)
    assert again.n_learned == found.n_learned
    elsewhere = learn_prior(draw_logs(rng, prior, 0.8, 100), prior)
    held, plain = compare_priors(logs, {"a": elsewhere, "b": elsewhere.prior}, elsewhere.likelihood, n_folds=3).rows
    assert (held.n_learned, held.held_out, held.log_evidence) == (0, plain.held_out, plain.log_evidence)


def test_groups_that_are_actions_judge_predictions_for_new_ones():
    rng = np.random.default_rng(7)
    categories = np.repeat(np.arange(10), 10)
    prior = priors.from_categories(categories, dim=1, action_std=0.2)
    logs = draw_logs(rng, prior, 0.5, 1500)
    by_action = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=100, groups=logs.actions)
    candidates = {"alike": prior, "apart": priors.independent(100, cov=1.04, dim=1)}
    gaps = [compare_priors(each, candidates, ma.Gaussian(0.5)).rows[1] for each in (logs, by_action)]
    assert all(row.name == "apart" for row in gaps)
    # With 15 rounds an action the categories hardly matter; for an action never seen they are all there is.
    assert gaps[1].difference < 5 * gaps[0].difference < 0


def test_a_posterior_may_not_be_compared_as_a_prior():
    """It may have seen the very rounds that it would be judged on."""
    rng = np.random.default_rng(0)
    prior = priors.independent(30, dim=1)
    logs = draw_logs(rng, prior, 1.0, 100)
    with pytest.raises(InputError, match="'cheat' is a posterior"):
        compare_priors(logs, {"cheat": ma.fit(logs, prior).weights, "honest": prior})


def test_fractional_weights_are_no_counts_and_contradict_nothing():
    rng = np.random.default_rng(1)
    prior = priors.independent(400, dim=1)
    logs = draw_logs(rng, prior, 1.0, 400)
    weights = 0.97 ** np.arange(400)
    decayed = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=400, weights=weights / weights.mean())
    assert check_prior(ma.fit(decayed, prior)).warnings == ()
    assert check_prior(ma.fit(decayed, prior)).prior is None
    assert check_prior(ma.fit(logs, prior)).prior is not None


@pytest.mark.slow
def test_the_treatment_of_the_paper_has_no_evidence_to_be_ranked_by():
    logs = draw_events(np.random.default_rng(1), BY_CATEGORY, ma.Bernoulli(), 400)
    candidates = {"alike": BY_CATEGORY, "apart": priors.independent(40, dim=2)}
    found = compare_priors(logs, candidates, ma.Bernoulli("paper"))
    assert [(row.log_evidence, row.evidence_difference) for row in found] == [(None, None)] * 2
    assert "no evidence" in str(found)
    usual = compare_priors(logs, candidates, ma.Bernoulli())
    assert max(row.evidence_difference for row in usual) == 0.0


def test_tables_fit_and_progress_counts_every_fit():
    rng = np.random.default_rng(8)
    prior = priors.from_categories(np.arange(300) % 60, dim=1)
    logs = draw_logs(rng, prior, 1.0, 600)
    calls = []
    found = compare_priors(
        logs,
        {"a name that is much too long for a column of any table": prior, "b": prior},
        rng=rng,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(i, 12) for i in range(1, 13)]
    posterior = ma.fit(logs, prior)
    checks = check_categories(posterior, logs, [f"a long category name {i % 60}" for i in range(300)])
    sensitivity = prior_sensitivity(posterior, ma.Greedy(posterior), logs.contexts)
    learned = compare_priors(logs, [learn_prior(logs, priors.independent(300, dim=1))])
    for table in (found, learned, checks, check_prior(posterior), sensitivity):
        assert max(len(line) for line in str(table).splitlines()) <= 100
    assert "and 40 more" in str(checks)
    assert [record["name"] for record in found.records()] == [row.name for row in found]
    assert len(checks.records()) == len(checks) == 60
