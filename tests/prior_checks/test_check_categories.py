"""Checks by category: exact under the truth, and only a category whose rewards contradict the posterior is flagged."""

import numpy as np
import pytest
from prior_check_problems import (
    BY_CATEGORY,
    CATEGORIES,
    RECIPE,
    draw_events,
    draw_logs,
    given_rewards,
    prior_of,
    rows_of,
)
from problems import make_problem
from scipy import integrate, stats
from scipy.special import expit

import manyarms as ma
from manyarms import priors
from manyarms.prior_checks.check_categories import check_categories


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_category_checks_are_those_of_the_dense_joint(held_out, weighted):
    problem = make_problem(**{**RECIPE, "n_actions": 6, "n_rounds": 40})
    rng = np.random.default_rng(14)
    labels = np.array(["b", None, "a", "b", "a", "never"], dtype=object)
    n, sigma = 40, problem.noise_std
    counts = rng.integers(0, 3, size=n) if weighted else np.ones(n, dtype=int)
    contexts = rng.normal(size=(n, 3)) if held_out else problem.logs.contexts
    actions = np.minimum(rng.integers(6, size=n), 4) if held_out else np.minimum(problem.logs.actions, 4)
    rewards = rng.normal(size=n)
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=6, weights=counts if weighted else None)
    posterior = ma.fit(problem.logs if held_out else logs, problem.prior, ma.Gaussian(sigma))
    found = check_categories(posterior, logs, labels)
    assert found.held_out is held_out
    assert {row.category for row in found} == {"a", "b", "(missing)"}

    twice = np.repeat(np.arange(n), counts)
    rows, r, own = rows_of(contexts, actions, 6)[twice], rewards[twice], labels[actions][twice]
    mean, cov = prior_of(problem.dense)
    seen, seen_r = (
        (rows_of(problem.logs.contexts, problem.logs.actions, 6), problem.logs.rewards) if held_out else (rows, r)
    )
    post_mean, post_cov = given_rewards(mean, cov, seen, seen_r, sigma)
    if held_out:
        residual_cov = rows @ post_cov @ rows.T + sigma**2 * np.eye(len(rows))
    else:
        # r - r̂ = (I - H) (r - E r), with H the map from rewards to fitted ones.
        V = rows @ cov @ rows.T + sigma**2 * np.eye(len(rows))
        left = np.eye(len(rows)) - np.linalg.solve(V, rows @ cov @ rows.T).T
        residual_cov = left @ V @ left.T
    for row in found:
        mine = own == (None if row.category == "(missing)" else row.category)
        assert (row.n_rounds, row.n_actions) == (mine.sum(), len(np.unique(actions[twice][mine])))
        assert row.observed == pytest.approx(r[mine].mean())
        one = rows[mine].sum(axis=0)
        for m, c, got_mean, got_z in ((mean, cov, row.prior_mean, row.prior_z),
                                      (post_mean, post_cov, row.posterior_mean, row.posterior_z)):  # fmt: skip
            assert got_mean == pytest.approx(one @ m / mine.sum())
            assert got_z == pytest.approx((r[mine].sum() - one @ m) / np.sqrt(one @ c @ one + mine.sum() * sigma**2))
        squares = np.sum((r - rows @ post_mean)[mine] ** 2)
        assert row.dispersion == pytest.approx(squares / np.diagonal(residual_cov)[mine].sum())


@pytest.mark.slow
def test_z_scores_are_normal_and_flags_are_rare_under_the_truth():
    rng = np.random.default_rng(15)
    prior = priors.from_categories(np.arange(16) // 4, dim=1, effect_std=1.0, action_std=0.5)
    flagged, prior_z, held_out_z = 0, [], []
    for _ in range(200):
        logs = draw_logs(rng, prior, 0.7, 120)
        train, test = logs.split(0.7, rng=rng)
        posterior = ma.fit(train, prior, ma.Gaussian(0.7))
        checks = check_categories(posterior, train, np.arange(16) // 4)
        flagged += bool(checks.flagged)
        prior_z.append({r.category: r for r in checks}[0].prior_z)
        held_out_z.append({r.category: r for r in check_categories(posterior, test, np.arange(16) // 4)}[1].posterior_z)
    assert stats.kstest(prior_z, "norm").pvalue > 0.01
    assert stats.kstest(held_out_z, "norm").pvalue > 0.01
    assert flagged <= 20  # 10 are expected at most


def test_only_the_category_that_is_off_is_flagged():
    rng = np.random.default_rng(16)
    categories = np.arange(200) % 20
    prior = priors.independent(200, cov=0.04, dim=1)
    logs = draw_logs(rng, prior, 0.5, 4000)
    shift, noise = (categories == 3)[logs.actions], (categories == 7)[logs.actions]
    contexts = np.ones((4000, 1))
    theta = 0.2 * rng.normal(size=200)[logs.actions]
    rewards = theta + 0.5 * rng.normal(size=4000) * np.where(noise, 2.0, 1.0) + 3.0 * shift
    logs = ma.LoggedData(contexts, logs.actions, rewards, n_actions=200)
    found = check_categories(ma.fit(logs, prior, ma.Gaussian(0.5)), logs, categories)
    flags = {row.category: row.flags for row in found.flagged}
    assert set(flags) == {3, 7}
    assert "posterior mean" in flags[3]
    assert flags[7] == ("dispersion",)
    assert {row.category for row in found.rows[:2]} == {3, 7}


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [ma.Bernoulli(), ma.Poisson(), ma.LogNormal()])
@pytest.mark.parametrize("n_rounds", [100, 1000])
def test_categories_of_clicks_counts_and_amounts_are_rarely_flagged_under_the_truth(likelihood, n_rounds):
    rng = np.random.default_rng(19)
    flagged, prior_z, held_out_z = 0, [], []
    for _ in range(40):
        train, test = draw_events(rng, BY_CATEGORY, likelihood, n_rounds).split(0.7, rng=rng)
        posterior = ma.fit(train, BY_CATEGORY, likelihood)
        checks = check_categories(posterior, train, CATEGORIES)
        flagged += bool(checks.flagged)
        prior_z += [row.prior_z for row in checks]
        held_out_z += [row.posterior_z for row in check_categories(posterior, test, CATEGORIES)]
    assert flagged <= 6  # 2 are expected at most
    for z in (prior_z, held_out_z):
        assert abs(np.mean(z)) < 4 / np.sqrt(len(z))
        assert 0.75 < np.std(z) < 1.25


@pytest.mark.parametrize("likelihood", [ma.Bernoulli(), ma.Poisson(), ma.LogNormal()])
def test_only_the_category_whose_events_are_off_is_flagged(likelihood):
    rng = np.random.default_rng(20)
    prior = priors.independent(40, cov=0.04, dim=2)
    train, test = draw_events(rng, prior, likelihood, 6000).split(0.5, rng=rng)
    wrong = (CATEGORIES == 3)[test.actions]
    moved = draw_events(rng, prior, likelihood, 6000, shift=1.0).rewards[: len(test)]
    test = test.with_rewards(np.where(wrong, moved, test.rewards))
    found = check_categories(ma.fit(train, prior, likelihood), test, CATEGORIES)
    assert found.held_out
    assert [(row.category, row.flags) for row in found.flagged] == [(3, ("posterior mean",))]


def test_a_prior_that_is_far_off_is_shown_and_not_flagged():
    """A narrow prior at 50 % clicks and logs with 2 %: the posterior is right, whatever the prior expected."""
    rng = np.random.default_rng(22)
    n, categories = 20_000, np.arange(10) % 2
    contexts, actions = np.ones((n, 1)), rng.integers(10, size=n)
    logs = ma.LoggedData(contexts, actions, (rng.random(n) < 0.02).astype(float), n_actions=10)
    train, test = logs.split(0.5, rng=rng)
    prior = priors.from_categories(categories, dim=1, effect_std=1.0, action_std=0.3)
    for rounds in (train, test):
        found = check_categories(ma.fit(train, prior, ma.Bernoulli()), rounds, categories)
        assert found.held_out is (rounds is test)
        assert found.flagged == ()
        assert all(row.prior_z < -3.0 and row.prior_mean == pytest.approx(0.5) for row in found)
        assert all(row.p_value > 0.05 for row in found)


def test_the_smallest_p_value_and_its_correction_count_the_tests_of_the_posterior_alone():
    """Held-out Gaussian rewards have one test per category: flagged below (1 - level) / categories."""
    rng = np.random.default_rng(23)
    prior = priors.from_categories(np.arange(20) // 5, dim=1, effect_std=1.0, action_std=0.5)
    train, test = draw_logs(rng, prior, 0.7, 400).split(0.7, rng=rng)
    posterior = ma.fit(train, prior, ma.Gaussian(0.7))
    rows = check_categories(posterior, test, np.arange(20) // 5).rows
    assert [row.p_value for row in rows] == pytest.approx([2 * stats.norm.sf(abs(row.posterior_z)) for row in rows])
    least = rows[0].p_value
    for factor, flagged in ((1.01, 1), (0.99, 0)):
        assert (
            len(check_categories(posterior, test, np.arange(20) // 5, level=1 - 4 * least * factor).flagged) == flagged
        )


SIMULATED = {
    "wide clicks": (ma.Bernoulli(), lambda rng, eta: rng.random(len(eta)) < expit(eta), 2.0, -4.0),
    "narrow clicks": (ma.Bernoulli(), lambda rng, eta: rng.random(len(eta)) < expit(eta), 0.2, -2.0),
    "wide counts": (ma.Poisson(), lambda rng, eta: rng.poisson(np.exp(eta)), 1.0, -2.0),
    "narrow counts": (ma.Poisson(), lambda rng, eta: rng.poisson(np.exp(eta)), 0.2, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SIMULATED)
def test_tails_of_sums_are_those_of_simulated_logs(case):
    """3,000 draws of all weights, and of the rewards that they give: how many sums lie below a rare one."""
    likelihood, draw, std, mean = SIMULATED[case]
    rng, n, n_draws, n_categories = np.random.default_rng(21), 400, 3000, 6
    categories = np.arange(18) % n_categories
    built = priors.from_categories(categories, dim=3, effect_std=std, action_std=std / 2, shared_std=std / 2)
    prior = ma.HierarchicalGaussian(built.latent_mean, built.latent_cov, built.mixing, std**2 / 4, [mean, 0.0, 0.0])
    contexts = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    actions = np.arange(n) % 18
    sums = np.empty((n_draws, n_categories))
    for i, theta in enumerate(prior.sample(rng, n_draws)):
        rewards = draw(rng, np.einsum("nd,nd->n", contexts, theta[actions]))
        sums[i] = np.bincount(categories[actions], rewards, minlength=n_categories)

    for level in (0.003, 0.02, 0.98, 0.997):
        wanted, rewards = np.quantile(sums, level, axis=0, method="nearest").astype(int), np.zeros(n)
        for c, total in enumerate(wanted):
            mine = np.flatnonzero(categories[actions] == c)
            rewards[mine] = total // len(mine) + (np.arange(len(mine)) < total % len(mine))
        logs = ma.LoggedData(contexts, actions, rewards, n_actions=18)
        for row in check_categories(ma.fit(logs, prior, likelihood), logs, categories):
            below, equal = (np.mean(test(sums[:, row.category], wanted[row.category])) for test in (np.less, np.equal))
            tail = min(below + equal / 2, 1 - below - equal / 2)
            error = 4 * np.sqrt(tail / n_draws) + 0.3 * tail
            assert stats.norm.cdf(-abs(row.prior_z)) == pytest.approx(tail, abs=error)


def test_one_action_and_one_context_have_the_exact_predictive_of_clicks():
    """P(sum <= y) by adaptive quadrature over the one predictor that there is."""
    prior = priors.independent(1, mean=-3.0, cov=4.0, dim=1)
    logs = ma.LoggedData(np.ones((30, 1)), np.zeros(30, int), np.repeat([1.0, 0.0], [12, 18]))
    (row,) = check_categories(ma.fit(logs, prior, ma.Bernoulli()), logs, ["it"])

    def tail(p):
        def inside(eta):
            return p(expit(eta)) * stats.norm.pdf(eta, -3.0, 2.0)

        return integrate.quad(inside, -25.0, 20.0, points=[-3.0, 0.0], limit=200)[0]

    above = tail(lambda p: stats.binom.sf(11, 30, p))
    strictly = tail(lambda p: stats.binom.sf(12, 30, p))
    assert row.prior_z == pytest.approx(stats.norm.isf((above + strictly) / 2), rel=1e-3)
    assert row.prior_mean == pytest.approx(tail(lambda p: p), rel=1e-3)


@pytest.mark.slow
def test_thousands_of_categories_take_seconds():
    rng = np.random.default_rng(17)
    categories = np.arange(9000) % 3000
    prior = priors.from_categories(categories, dim=2)
    logs = draw_logs(rng, prior, 1.0, 20_000)
    found = check_categories(ma.fit(logs, prior), logs, categories, level=0.99)
    assert len(found) > 2900
    assert len(found.flagged) <= 1
