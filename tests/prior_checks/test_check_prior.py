"""Checks of prior and noise as a whole: the misfit of the dense joint, and warnings in words."""

import numpy as np
import pytest
from hypothesis import given, settings
from prior_check_problems import (
    BY_CATEGORY,
    draw_events,
    draw_logs,
    prior_of,
    rows_of,
)
from problems import make_problem, recipes
from scipy import stats

import manyarms as ma
from manyarms import priors
from manyarms.prior_checks.check_prior import check_prior


@settings(max_examples=60)
@given(recipes(action_scales=(0.0, 1e-2, 1.0, 10.0)))
def test_misfit_is_that_of_the_dense_joint(recipe):
    problem = make_problem(**recipe)
    found, dense = check_prior(problem.fit()), problem.dense
    n = len(dense.actions)
    if n == 0:
        assert (found.noise, found.prior, found.total) == (None, None, None)
        return
    rows = rows_of(dense.contexts, dense.actions, dense.n_actions)
    mean, cov = prior_of(dense)
    miss = dense.rewards - rows @ mean
    total = miss @ np.linalg.solve(rows @ cov @ rows.T + dense.noise_std**2 * np.eye(n), miss)
    outside, rank = 0.0, 0
    for a in np.unique(dense.actions):
        x, r = dense.contexts[dense.actions == a], dense.rewards[dense.actions == a]
        outside += np.sum((r - x @ np.linalg.lstsq(x, r)[0]) ** 2) / dense.noise_std**2
        rank += np.linalg.matrix_rank(x)
    assert found.total.value == pytest.approx(total, rel=1e-7)
    assert found.total.degrees == n
    assert found.prior.degrees == rank
    assert found.prior.value == pytest.approx(total - outside, rel=1e-6, abs=1e-6)
    assert (found.noise is None) == (rank == n)
    if found.noise is not None:
        assert found.noise.value == pytest.approx(outside, rel=1e-7, abs=1e-7)
        assert found.noise.p_value == pytest.approx(
            2 * min(stats.chi2.cdf(outside, n - rank), stats.chi2.sf(outside, n - rank)), rel=1e-5, abs=1e-12
        )


@pytest.mark.parametrize("weighted", [False, True])
def test_contexts_that_span_less_count_less(weighted):
    """Always the same direction, a feature never seen, fewer rounds than dimensions; weights are counts."""
    rng = np.random.default_rng(9)
    contexts = np.vstack([np.outer(rng.normal(size=9), [0.1, 0.3, 0.7]), rng.normal(size=(9, 3)) * [1, 0, 1],
                          rng.normal(size=(2, 3))])  # fmt: skip
    actions = np.repeat([0, 1, 2], [9, 9, 2])
    counts = rng.integers(1, 4, size=20) if weighted else np.ones(20, dtype=int)
    logs = ma.LoggedData(contexts, actions, rng.normal(size=20), n_actions=4, weights=counts if weighted else None)
    found = check_prior(ma.fit(logs, priors.independent(4, dim=3)))
    assert found.prior.degrees == 1 + 2 + 2
    assert found.noise.degrees == counts.sum() - 5
    written_out = logs.take(np.repeat(np.arange(20), counts))
    rows = rows_of(written_out.contexts, written_out.actions, 4)
    total = written_out.rewards @ np.linalg.solve(rows @ rows.T + np.eye(len(rows)), written_out.rewards)
    assert found.total.value == pytest.approx(total)


def test_p_values_are_uniform_under_the_truth():
    rng = np.random.default_rng(10)
    prior = priors.from_categories([0, 0, 0, 1, 1, 1, 2, 2], dim=2, effect_std=1.0, action_std=0.5)
    found = [check_prior(ma.fit(draw_logs(rng, prior, 0.7, 40), prior, ma.Gaussian(0.7))) for _ in range(250)]
    for part in ("noise", "prior", "total"):
        assert stats.kstest([getattr(each, part).p_value for each in found], "uniform").pvalue > 0.01
    assert not any(each.warnings for each in found)


def test_a_contradicted_prior_or_noise_is_reported_in_words():
    rng = np.random.default_rng(12)
    prior = priors.from_categories(np.arange(100) % 10, dim=2, effect_std=1.0, action_std=0.5)
    logs = draw_logs(rng, prior, 0.5, 1000)

    def warnings(prior, noise_std):
        return check_prior(ma.fit(logs, prior, ma.Gaussian(noise_std))).warnings

    assert warnings(prior, 0.5) == ()
    (wide,) = warnings(priors.from_categories(np.arange(100) % 10, dim=2, effect_std=5.0, action_std=5.0), 0.5)
    (narrow,) = warnings(priors.independent(100, cov=0.05, dim=2), 0.5)
    assert "actions differ less than the prior implies" in wide
    assert "actions differ more than the prior implies" in narrow
    assert "Learn the prior from the logs" in wide
    assert "rewards vary less" in warnings(prior, 1.0)[0]
    assert "rewards vary more" in warnings(prior, 0.2)[0]
    assert ": 0.4952 would fit" in warnings(prior, 0.2)[0]
    assert "correct the noise first" in warnings(priors.independent(100, cov=0.05, dim=2), 0.2)[1]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [ma.Bernoulli(), ma.Bernoulli("laplace"), ma.Poisson(), ma.StudentT()])
@pytest.mark.parametrize("n_rounds", [100, 1000])
def test_the_mean_of_a_prior_is_checked_where_rewards_are_not_gaussian(likelihood, n_rounds):
    """Under the truth it warns of nothing; a prior that expects 50 % clicks is told of 1 %."""
    rng = np.random.default_rng(18)
    found = [check_prior(ma.fit(draw_events(rng, BY_CATEGORY, likelihood, n_rounds), BY_CATEGORY, likelihood))
             for _ in range(40)]  # fmt: skip
    assert not any(each.warnings for each in found)
    # The larger of two coordinates, so each p-value is at most uniform.
    assert stats.kstest([each.mean.p_value for each in found], "uniform", alternative="greater").pvalue > 0.01
    assert "not checked under" in str(found[0])
    off = ma.fit(draw_events(rng, BY_CATEGORY, likelihood, n_rounds, shift=-4.6), BY_CATEGORY, likelihood)
    (warning,) = check_prior(off).warnings
    assert "context column 0" in warning
    assert "below the mean of the prior" in warning
    assert warning in off.value(ma.Uniform(40), np.ones((3, 2))).warnings


def test_a_check_that_was_not_made_says_so():
    logs = draw_events(np.random.default_rng(2), BY_CATEGORY, ma.Bernoulli(), 100)
    found = check_prior(ma.fit(logs, BY_CATEGORY, ma.Bernoulli("paper")))
    assert str(found).splitlines() == [
        'noise and spread: not checked under the treatment "paper"', "nothing was checked",
    ]  # fmt: skip
    half = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=40, weights=np.full(100, 0.5))
    assert "not checked where the weights of rounds are not counts" in str(check_prior(ma.fit(half, BY_CATEGORY)))


def test_a_small_error_is_no_warning_however_much_data_there_are():
    rng = np.random.default_rng(13)
    prior = priors.independent(5, dim=1)
    found = check_prior(ma.fit(draw_logs(rng, prior, 1.05, 20_000), prior))
    assert found.noise.p_value < 1e-6
    assert found.warnings == ()


def test_a_prior_that_was_just_learned_is_not_to_be_learned(tmp_path):
    """Noise and structure held wrong on purpose, so that even the learned prior is contradicted."""
    rng = np.random.default_rng(24)
    logs = draw_logs(rng, priors.independent(60, dim=2), 1.0, 1200)
    more = draw_logs(rng, priors.independent(60, dim=2), 1.0, 300)
    start = priors.from_categories(np.arange(60) % 6, dim=2, action_std=0.1)
    learned = ma.learn_prior(logs, start, action_cov="fixed", learn_noise=False).posterior
    (warning,) = check_prior(learned).warnings
    assert "actions differ more than the prior implies" in warning
    assert "The prior was learned from these rounds" in warning and "compare_priors" in warning
    assert "Learn the prior" not in warning
    learned.save(tmp_path / "model.arrow")
    assert check_prior(ma.load(tmp_path / "model.arrow")).warnings == (warning,)
    for other in (ma.fit(logs, learned.prior), learned.update(more), learned.refit(more)):
        assert any("Learn the prior from the logs" in text for text in check_prior(other).warnings)


@pytest.mark.slow
def test_a_learned_prior_whose_mean_was_kept_is_told_to_set_it():
    rng = np.random.default_rng(25)
    logs = draw_events(rng, BY_CATEGORY, ma.Bernoulli(), 1000, shift=-4.0)
    kept = ma.learn_prior(logs, BY_CATEGORY, ma.Bernoulli(), effect_cov="fixed", means="fixed").posterior
    (warning,) = check_prior(kept).warnings
    assert "The prior was learned from these rounds" in warning and warning.endswith("or set its mean.")
    assert check_prior(ma.learn_prior(logs, BY_CATEGORY, ma.Bernoulli()).posterior).warnings == ()
