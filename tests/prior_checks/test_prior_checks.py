"""Comparing priors, checking one against the logs, and how far a value hangs on it."""

import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from problems import make_problem, recipes
from scipy import integrate, stats
from scipy.special import expit

import manyarms as ma
from manyarms import errors, priors
from manyarms.errors import InputError
from manyarms.prior_checks.check_categories import check_categories, check_prior
from manyarms.prior_checks.compare_priors import compare_priors
from manyarms.prior_checks.sensitivity import THRESHOLD, prior_sensitivity
from manyarms.prior_learning.learn_prior import learn_prior


@pytest.fixture
def as_users_run_it():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Oracles: everything as one Gaussian over all rewards and all weights.


def rows_of(contexts, actions, n_actions):
    """The matrix that takes all θ, one under the other, to the expected rewards."""
    n, d = contexts.shape
    out = np.zeros((n, n_actions, d))
    out[np.arange(n), actions] = contexts
    return out.reshape(n, n_actions * d)


def prior_of(dense):
    """Mean and covariance of all θ."""
    stacked = dense.mixing.reshape(dense.n_actions * dense.dim, dense.latent_dim)
    cov = stacked @ dense.latent_cov @ stacked.T
    for a in range(dense.n_actions):
        block = slice(a * dense.dim, (a + 1) * dense.dim)
        cov[block, block] += dense.action_cov[a]
    return stacked @ dense.latent_mean + dense.offset.reshape(-1), cov


def given_rewards(mean, cov, rows, rewards, noise_std):
    """Mean and covariance of all θ given rewards."""
    gain = np.linalg.solve(rows @ cov @ rows.T + noise_std**2 * np.eye(len(rows)), rows @ cov).T
    return mean + gain @ (rewards - rows @ mean), cov - gain @ rows @ cov


def two_level(categories, dim, effect_std, action_std):
    """Mean and covariance of all θ under `from_categories`, written out."""
    same = np.equal.outer(categories, categories)
    across = effect_std**2 * same + action_std**2 * np.eye(len(categories))
    return np.zeros(len(categories) * dim), np.kron(across, np.eye(dim))


def draw_logs(rng, prior, noise_std, n_rounds, **options):
    """Rounds from the prior itself."""
    theta = prior.sample(rng)[0]
    contexts = rng.normal(size=(n_rounds, prior.dim))
    actions = rng.integers(prior.n_actions, size=n_rounds)
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + noise_std * rng.normal(size=n_rounds)
    return ma.LoggedData(contexts, actions, rewards, n_actions=prior.n_actions, **options)


def draw_events(rng, prior, likelihood, n_rounds, shift=0.0):
    """Clicks, counts, amounts or heavy tails from the prior itself, but for a shift of all predictors."""
    theta = prior.sample(rng)[0]
    contexts = np.column_stack([np.ones(n_rounds), rng.normal(size=(n_rounds, prior.dim - 1))])
    actions = rng.integers(prior.n_actions, size=n_rounds)
    eta = np.einsum("nd,nd->n", contexts, theta[actions]) + shift
    draw = {
        "Bernoulli": lambda: (rng.random(n_rounds) < expit(eta)).astype(float),
        "Poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "LogNormal": lambda: np.exp(eta + rng.normal(size=n_rounds)),
        "StudentT": lambda: eta + rng.standard_t(4.0, size=n_rounds),
    }
    return ma.LoggedData(contexts, actions, draw[type(likelihood).__name__](), n_actions=prior.n_actions)


CATEGORIES = np.arange(40) % 5
BY_CATEGORY = priors.from_categories(CATEGORIES, dim=2, effect_std=1.0, action_std=0.5)


# Comparing.


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
    assert found.best == best.name
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


# Sensitivity.


def scaled_problem(problem, prior_power, likelihood_power):
    """The same problem with Σ, Σ_a and σ written out anew."""
    dense = problem.dense
    prior = ma.HierarchicalGaussian(
        dense.latent_mean,
        dense.latent_cov / prior_power,
        dense.mixing,
        dense.action_cov / prior_power,
        dense.offset,
    )
    return ma.fit(problem.logs, prior, ma.Gaussian(problem.noise_std / np.sqrt(likelihood_power)))


def distance(first, second, reach=3.6):
    """Cumulative Jensen-Shannon distance of two normals, by adaptive quadrature of its definition."""
    low, high = first.value - reach * first.posterior_std, first.value + reach * first.posterior_std

    def one(flip):
        p = stats.norm(flip * first.value, first.posterior_std).cdf
        q = stats.norm(flip * second.value, second.posterior_std).cdf
        ends = sorted((flip * low, flip * high))

        def divergence(x, f, g):
            half = 1 / (2 * np.log(2))
            return f(x) * (np.log2(f(x)) - np.log2((f(x) + g(x)) / 2)) + half * (g(x) - f(x))

        def area(f):
            return integrate.quad(f, *ends, epsabs=1e-14, epsrel=1e-12, limit=200)[0]

        return np.sqrt(
            (area(lambda x: divergence(x, p, q)) + area(lambda x: divergence(x, q, p))) / (area(p) + area(q))
        )

    return max(one(1.0), one(-1.0))


RECIPE = dict(
    seed=11, n_actions=5, dim=3, n_rounds=25, mixing_form="dense", cov_form="each", latent_form="full",
    offset_form="each", latent_dim=2, action_scale=1.0, noise_std=1.0,
)  # fmt: skip


@pytest.mark.parametrize("with_baseline", [False, True])
def test_sensitivity_is_that_of_refits_with_scaled_prior_and_noise(with_baseline):
    problem = make_problem(**RECIPE)
    rng = np.random.default_rng(1)
    contexts, policy = rng.normal(size=(7, 3)), ma.TablePolicy(rng.dirichlet(np.ones(5)))
    baseline = ma.Uniform(5) if with_baseline else None

    def value(prior_power=1.0, likelihood_power=1.0):
        posterior = scaled_problem(problem, prior_power, likelihood_power)
        if baseline is None:
            return posterior.value(policy, contexts)
        return posterior.difference(policy, baseline, contexts)

    found, plain = prior_sensitivity(problem.fit(), policy, contexts, baseline=baseline), value()
    assert (found.value, found.std) == (pytest.approx(plain.value), pytest.approx(plain.posterior_std))
    for component, name in ((found.prior, "prior_power"), (found.likelihood, "likelihood_power")):
        near = sum(distance(plain, value(**{name: alpha})) for alpha in (1.01, 1 / 1.01))
        assert component.sensitivity == pytest.approx(near / (2 * np.log2(1.01)), rel=1e-4)
        double = value(**{name: 2.0})
        assert component.move == pytest.approx((double.value - plain.value) / plain.posterior_std, rel=1e-8)
        assert component.std_ratio == pytest.approx(double.posterior_std / plain.posterior_std, rel=1e-8)


def test_sensitivity_is_what_weighted_draws_say():
    """As the paper computes it: 4,000 draws of the value, reweighted, and their weighted distribution functions."""
    problem = make_problem(**RECIPE)
    policy, contexts = ma.Uniform(5), np.random.default_rng(2).normal(size=(6, 3))
    found, plain = prior_sensitivity(problem.fit(), policy, contexts), problem.fit().value(policy, contexts)
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000, plain.value, plain.posterior_std)

    def cjs(x, weights):
        order = np.argsort(x)
        width, p = np.diff(x[order]), (np.arange(len(x)) + 1.0)[:-1] / len(x)
        q = (np.cumsum(weights[order]) / weights.sum())[:-1]
        parts = p * np.log2(2 * p / (p + q)) + q * np.log2(2 * q / (p + q))
        return np.sqrt(width @ parts / (width @ (p + q)))

    for component, name in ((found.prior, "prior_power"), (found.likelihood, "likelihood_power")):
        total = 0.0
        for alpha in (1.01, 1 / 1.01):
            powers = {"prior_power": 1.0, "likelihood_power": 1.0, name: alpha}
            moved = scaled_problem(problem, **powers).value(policy, contexts)
            log_ratio = stats.norm.logpdf(draws, moved.value, moved.posterior_std)
            weights = np.exp(log_ratio - stats.norm.logpdf(draws, plain.value, plain.posterior_std))
            total += max(cjs(draws, weights), cjs(-draws, weights))
        assert component.sensitivity == pytest.approx(total / (2 * np.log2(1.01)), rel=0.03)


def test_diagnosis_tells_conflict_domination_and_neither():
    def of(prior_std, mean, n_rounds):
        prior = priors.independent(2, mean=mean, cov=prior_std**2, dim=1)
        rewards = np.resize([-1.0, 1.0], n_rounds)
        logs = ma.LoggedData(np.ones((n_rounds, 1)), np.resize([0, 0, 1, 1], n_rounds), rewards, n_actions=2)
        return prior_sensitivity(ma.fit(logs, prior), ma.Uniform(2), np.ones((1, 1)))

    assert of(10.0, 0.0, 100).diagnosis == "-"
    assert of(1.0, 0.0, 0).diagnosis == "the prior decides (weak likelihood)"
    assert of(0.1, 0.0, 4).diagnosis == "the prior decides (weak likelihood)"
    assert of(0.5, 5.0, 8).diagnosis == "prior-data conflict"
    assert of(1.0, 1.5, 4).diagnosis == "the scale of the prior matters"
    for found in (of(0.5, 5.0, 8), of(1.0, 1.5, 4)):
        assert min(found.prior.sensitivity, found.likelihood.sensitivity) > THRESHOLD


def test_a_value_without_doubt_does_not_move():
    logs = ma.LoggedData(np.ones((4, 1)), [0, 0, 1, 1], [1.0, 0.0, 2.0, 1.0])
    sure = prior_sensitivity(ma.fit(logs, priors.independent(2, mean=1.0, cov=0.0, dim=1)), ma.Uniform(2), [[2.0]])
    assert (sure.value, sure.std, sure.prior.sensitivity) == (2.0, 0.0, 0.0)
    assert sure.diagnosis == "the prior decides (weak likelihood)"
    plain = ma.fit(logs, priors.independent(2, dim=1))
    same = prior_sensitivity(plain, ma.Uniform(2), [[2.0]], baseline=ma.Uniform(2))
    assert (same.value, same.std, same.diagnosis) == (0.0, 0.0, "-")


def test_a_fit_in_steps_is_as_sensitive_as_one_of_all_rounds():
    problem = make_problem(**RECIPE)
    first, second = problem.logs.take(slice(0, 10)), problem.logs.take(slice(10, 25))
    steps = ma.fit(second, ma.fit(first, problem.prior).weights)
    policy, contexts = ma.Uniform(5), problem.logs.contexts
    one, other = (prior_sensitivity(p, policy, contexts) for p in (problem.fit(), steps))
    assert one.prior.sensitivity == pytest.approx(other.prior.sensitivity, rel=1e-8)
    assert one.misfit.value == pytest.approx(other.misfit.value)


@pytest.mark.parametrize("with_baseline", [False, True])
@pytest.mark.parametrize("likelihood", [ma.Bernoulli(), ma.Poisson(), ma.StudentT(), ma.LogNormal()])
def test_sensitivity_of_other_rewards_is_that_of_refits(likelihood, with_baseline):
    """Power of the prior: covariances divided; of the likelihood: weights times it. Values as `value` has them."""
    rng = np.random.default_rng(3)
    logs = draw_events(rng, BY_CATEGORY, likelihood, 300)
    posterior = ma.fit(logs, BY_CATEGORY, likelihood)
    policy, baseline = ma.Greedy(posterior), ma.Uniform(40) if with_baseline else None
    x = logs.contexts[:50]

    def value(prior_power=1.0, likelihood_power=1.0):
        prior = priors.from_categories(
            CATEGORIES, dim=2, effect_std=prior_power**-0.5, action_std=0.5 * prior_power**-0.5
        )
        weighted = ma.LoggedData(
            logs.contexts, logs.actions, logs.rewards, n_actions=40, weights=np.full(300, likelihood_power)
        )
        found = ma.fit(weighted, prior, likelihood, tolerance=1e-10, max_iterations=1000)
        return found.value(policy, x) if baseline is None else found.difference(policy, baseline, x)

    found, plain = prior_sensitivity(posterior, policy, x, baseline=baseline, logs=logs), value()
    assert (found.value, found.std) == (pytest.approx(plain.value), pytest.approx(plain.posterior_std))
    for component, name in ((found.prior, "prior_power"), (found.likelihood, "likelihood_power")):
        near = sum(distance(plain, value(**{name: alpha})) for alpha in (1.01, 1 / 1.01))
        assert component.sensitivity == pytest.approx(near / (2 * np.log2(1.01)), rel=0.01)
        double = value(**{name: 2.0})
        assert component.move == pytest.approx((double.value - plain.value) / plain.posterior_std, rel=1e-3, abs=1e-4)
        assert component.std_ratio == pytest.approx(double.posterior_std / plain.posterior_std, rel=1e-4)


# Checking prior and noise.


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
    assert "actions differ less than the prior says" in wide
    assert "actions differ more than the prior says" in narrow
    assert "ma.learn_prior" in wide
    assert "rewards vary less" in warnings(prior, 1.0)[0]
    assert "rewards vary more" in warnings(prior, 0.2)[0]
    assert ": 0.4952 would fit" in warnings(prior, 0.2)[0]
    assert "mend the noise first" in warnings(priors.independent(100, cov=0.05, dim=2), 0.2)[1]


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
    assert "not checked where weights of rounds are no counts" in str(check_prior(ma.fit(half, BY_CATEGORY)))


def test_a_small_error_is_no_warning_however_much_data_there_are():
    rng = np.random.default_rng(13)
    prior = priors.independent(5, dim=1)
    found = check_prior(ma.fit(draw_logs(rng, prior, 1.05, 20_000), prior))
    assert found.noise.p_value < 1e-6
    assert found.warnings == ()


# Checking categories.


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
    rewards = theta + 0.5 * rng.normal(size=4000) * np.where(noise, 2.0, 1.0) + 1.0 * shift
    logs = ma.LoggedData(contexts, logs.actions, rewards, n_actions=200)
    found = check_categories(ma.fit(logs, prior, ma.Gaussian(0.5)), logs, categories)
    flags = {row.category: row.flags for row in found.flagged}
    assert set(flags) == {3, 7}
    assert "prior mean" in flags[3]
    assert flags[7] == ("dispersion",)
    assert {row.category for row in found.rows[:2]} == {3, 7}


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
    logs = draw_events(rng, prior, likelihood, 3000)
    wrong = (CATEGORIES == 3)[logs.actions]
    rewards = np.where(wrong, draw_events(rng, prior, likelihood, 3000, shift=1.0).rewards, logs.rewards)
    logs = logs.with_rewards(rewards)
    found = check_categories(ma.fit(logs, prior, likelihood), logs, CATEGORIES)
    assert [row.category for row in found.flagged] == [3]
    assert "prior mean" in found.flagged[0].flags


SIMULATED = {
    "wide clicks": (ma.Bernoulli(), lambda rng, eta: rng.random(len(eta)) < expit(eta), 2.0, -4.0),
    "narrow clicks": (ma.Bernoulli(), lambda rng, eta: rng.random(len(eta)) < expit(eta), 0.2, -2.0),
    "wide counts": (ma.Poisson(), lambda rng, eta: rng.poisson(np.exp(eta)), 1.0, -2.0),
    "narrow counts": (ma.Poisson(), lambda rng, eta: rng.poisson(np.exp(eta)), 0.2, 0.0),
}


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


def test_thousands_of_categories_take_seconds():
    rng = np.random.default_rng(17)
    categories = np.arange(9000) % 3000
    prior = priors.from_categories(categories, dim=2)
    logs = draw_logs(rng, prior, 1.0, 20_000)
    found = check_categories(ma.fit(logs, prior), logs, categories, level=0.99)
    assert len(found) > 2900
    assert len(found.flagged) <= 1


# Bad input.

LOGS = ma.LoggedData(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], np.arange(6.0), n_actions=3)
PRIOR = priors.independent(3, dim=2)
POSTERIOR = ma.fit(LOGS, PRIOR)
CLICKS = LOGS.with_rewards(np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]))
CLICKED, HEAVY = ma.fit(CLICKS, PRIOR, ma.Bernoulli()), ma.fit(LOGS, PRIOR, ma.StudentT())
BAD = {
    "two likelihoods": (lambda: compare_priors(LOGS, [PRIOR], ma.Hurdle()), errors.DataTypeError, "compare them apart"),
    "clicks without their logs": (
        lambda: prior_sensitivity(CLICKED, ma.Uniform(3), LOGS.contexts),
        errors.InputError,
        "under Bernoulli the posterior must be fitted anew.*pass all rounds of the fit as logs=",
    ),
    "clicks with other logs": (
        lambda: prior_sensitivity(CLICKED, ma.Uniform(3), LOGS.contexts, logs=CLICKS.take(slice(0, 4))),
        errors.InputError,
        "fitted to 6 rounds; logs has 4",
    ),
    "categories of heavy tails": (
        lambda: check_categories(HEAVY, LOGS, [0, 1, 2]),
        errors.InputError,
        "cannot be checked under StudentT",
    ),
    "categories of clicks that are none": (
        lambda: check_categories(CLICKED, LOGS, [0, 1, 2]),
        errors.RangeError,
        "must be 0 or 1",
    ),
    "no priors": (lambda: compare_priors(LOGS, []), errors.InputError, "at least one prior"),
    "one bare prior": (lambda: compare_priors(LOGS, PRIOR), errors.DataTypeError, "list, or a mapping"),
    "no prior at all": (lambda: compare_priors(LOGS, {"x": 3}), errors.DataTypeError, "prior 'x' must be.*got int"),
    "a name that is none": (lambda: compare_priors(LOGS, {1: PRIOR}), errors.DataTypeError, "names.*strings; got 1"),
    "a prior of another dimension": (
        lambda: compare_priors(LOGS, {"fine": PRIOR, "flat": priors.independent(3, dim=1)}),
        errors.ShapeError,
        "prior 'flat': contexts of the logs have 2 columns",
    ),
    "a prior of fewer actions": (
        lambda: compare_priors(LOGS, [priors.independent(2, dim=2)]),
        errors.ShapeError,
        "prior '0: independent': the logs have 3 actions",
    ),
    "nothing to learn": (
        lambda: compare_priors(
            ma.LoggedData(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], np.zeros(6)), {"x": PRIOR}, learn=True
        ),
        errors.InputError,
        "prior 'x': all rewards, or all contexts, are 0",
    ),
    "more folds than rounds": (lambda: compare_priors(LOGS, [PRIOR], n_folds=7), errors.InputError, "n_folds=7 needs"),
    "one fold": (lambda: compare_priors(LOGS, [PRIOR], n_folds=1), errors.RangeError, "n_folds must be at least 2"),
    "a seed": (lambda: compare_priors(LOGS, [PRIOR], rng=3), errors.DataTypeError, "default_rng"),
    "logs that are none": (lambda: compare_priors(POSTERIOR, [PRIOR]), errors.DataTypeError, "a LoggedData"),
    "a noise that is none": (lambda: compare_priors(LOGS, [PRIOR], 0.5), errors.DataTypeError, "likelihood must be"),
    "a prior to be checked": (lambda: check_prior(PRIOR), errors.DataTypeError, r"what fit\(\) returned"),
    "a posterior as prior": (
        lambda: check_prior(ma.fit(LOGS, POSTERIOR.weights)),
        errors.InputError,
        "posterior itself.*update",
    ),
    "too few categories": (
        lambda: check_categories(POSTERIOR, LOGS, ["a", "b"]),
        errors.ShapeError,
        "categories must have 3 labels.*got 2",
    ),
    "labels that cannot be told apart": (
        lambda: check_categories(POSTERIOR, LOGS, [["a"], "b", "c"]),
        errors.DataTypeError,
        "hashable labels; row 0",
    ),
    "a level of one": (
        lambda: check_categories(POSTERIOR, LOGS, [0, 1, 2], level=1.0),
        errors.RangeError,
        "level must be above 0.0 and below 1.0",
    ),
    "no rounds to check on": (
        lambda: check_categories(POSTERIOR, LOGS.take(slice(0, 0)), [0, 1, 2]),
        errors.InputError,
        "no rounds",
    ),
    "a policy of other actions": (
        lambda: prior_sensitivity(POSTERIOR, ma.Uniform(4), LOGS.contexts),
        errors.ShapeError,
        "policy has 4 actions",
    ),
    "a baseline of other actions": (
        lambda: prior_sensitivity(POSTERIOR, ma.Uniform(3), LOGS.contexts, baseline=ma.Uniform(2)),
        errors.ShapeError,
        "baseline has 2 actions",
    ),
    "weights instead of a posterior": (
        lambda: prior_sensitivity(POSTERIOR.weights, ma.Uniform(3), LOGS.contexts),
        errors.DataTypeError,
        r"what fit\(\) returned",
    ),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_name(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
