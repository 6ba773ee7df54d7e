"""Bayes risks against closed forms, bounds where they hold, and the paper's first bound where it does not."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

import manyarms as ma
from manyarms import datasets, theory
from manyarms.errors import CovarianceError, InputError, PropensityError, RangeError, ShapeError

SE = 4.0  # how many standard errors a simulated mean may lie off


def z_score(values):
    """How many standard errors the mean lies above zero."""
    return values.mean() / (values.std(ddof=1) / math.sqrt(len(values)))


def uneven(n_actions):
    """A logging policy that prefers some actions."""
    return ma.TablePolicy(np.arange(1, n_actions + 1) / (n_actions * (n_actions + 1) / 2))


def synthetic(seed, *, noise_std=0.7, logging_policy=None, **sizes):
    """The paper's synthetic model, its prior drawn once."""
    kind = datasets.SyntheticProblem(noise_std=noise_std, **sizes)
    prior = kind.draw_prior(np.random.default_rng(seed))
    return theory.BayesianProblem(prior, kind.draw_contexts, noise_std, logging_policy)


def ones(rng, n):
    return np.ones((n, 1))


def pairs(problem, rng, n):
    return problem.draw_contexts(rng, n), rng.integers(problem.prior.n_actions, size=n)


# Theorem 3.


@pytest.mark.slow
@pytest.mark.parametrize(("n_rounds", "marginal"), [(0, False), (15, False), (60, False), (15, True)])
def test_bayes_mse_equals_the_expected_squared_norm(n_rounds, marginal):
    # Also with ψ integrated out: r̂ then conditions on the rounds of one action only, and is calibrated given those.
    problem = synthetic(1, n_actions=6, dim=3, latent_dim=2, logging_policy=uneven(6))
    fit_prior = problem.prior.marginal() if marginal else None
    rng = np.random.default_rng(2)
    contexts, actions = pairs(problem, rng, 8)
    risk = theory.bayes_mse(problem, contexts, actions, n_rounds, rng=rng, fit_prior=fit_prior, n_instances=250)
    assert np.all(np.abs(risk.mean - risk.expected_squared_norm) < SE * risk.standard_error)
    ratio = (risk.squared_error / risk.expected_squared_norm).mean(axis=1)
    assert abs(z_score(ratio - 1.0)) < SE
    assert ratio.std() / math.sqrt(len(ratio)) < 0.07


def test_bayes_mse_exceeds_the_squared_norm_when_the_prior_is_too_sure():
    problem = synthetic(1, n_actions=6, dim=3, latent_dim=2)
    prior = problem.prior
    sure = ma.HierarchicalGaussian(prior.latent_mean, 0.3, prior.mixing, 0.1)
    rng = np.random.default_rng(3)
    contexts, actions = pairs(problem, rng, 5)
    risk = theory.bayes_mse(problem, contexts, actions, 15, rng=rng, fit_prior=sure, n_instances=100)
    assert z_score((risk.squared_error - risk.squared_norm).mean(axis=1)) > 5


def test_mse_bound_is_the_dense_posterior_variance_and_ignores_rewards():
    problem = synthetic(4, n_actions=3, dim=2, latent_dim=2, noise_std=0.7)
    rng = np.random.default_rng(5)
    _, logs = problem.draw(7, rng)
    x, a = pairs(problem, rng, 6)
    W = problem.prior.mixing.apply(np.eye(2), np.arange(3)).transpose(1, 2, 0).reshape(6, 2)
    cov = 3.0 * W @ W.T + np.eye(6)
    rows = np.zeros((7, 6))
    query = np.zeros((6, 6))
    for i in range(7):
        rows[i, 2 * logs.actions[i] : 2 * logs.actions[i] + 2] = logs.contexts[i]
    for i in range(6):
        query[i, 2 * a[i] : 2 * a[i] + 2] = x[i]
    gain = np.linalg.solve(rows @ cov @ rows.T + 0.49 * np.eye(7), rows @ cov)
    expected = np.diag(query @ (cov - cov @ rows.T @ gain) @ query.T)
    for rewards in (logs.rewards, -3.0 * logs.rewards):
        again = ma.LoggedData(logs.contexts, logs.actions, rewards, n_actions=3)
        posterior = ma.fit(again, problem.prior, ma.Gaussian(0.7))
        assert_allclose(theory.mse_bound(posterior, x, a), expected, rtol=1e-10)


# Theorem 1 and what replaces it.


def test_bounds_are_these_numbers():
    assert theory.theorem_1_bound(9, 0.5) == pytest.approx(3.0)
    assert theory.corrected_bound(1000, 1.0) == pytest.approx(5.386772, abs=1e-6)  # √(4 · 6.907755 + 2 · 0.693147)
    assert theory.corrected_bound(1, 4.0) == pytest.approx(2 * 1.177410, abs=1e-5)  # 2 √(2 log 2)


@pytest.mark.parametrize(
    ("n_actions", "dim", "latent_dim", "n_rounds"), [(10, 5, 5, 0), (10, 5, 5, 100), (30, 8, 4, 40)]
)
def test_both_bounds_hold_when_actions_are_few(n_actions, dim, latent_dim, n_rounds):
    problem = synthetic(6, n_actions=n_actions, dim=dim, latent_dim=latent_dim, logging_policy=uneven(n_actions))
    risk = theory.bayes_suboptimality(problem, n_rounds, rng=np.random.default_rng(7), n_instances=60, n_contexts=50)
    assert risk.mean > SE * risk.standard_error
    upper = risk.mean + SE * risk.standard_error
    assert upper < theory.theorem_1_bound(dim, risk.expected_norm)
    assert upper < theory.corrected_bound(n_actions, risk.expected_squared_norm)


@pytest.mark.slow
@pytest.mark.parametrize("n_actions", [100, 1000])
def test_theorem_1_fails_for_independent_normal_weights(n_actions):
    # φ = 1, θ_a ~ N(0, 1), no data: greedy earns 0, the best action the largest of K normals, and the bound says 2.
    prior = ma.priors.independent(n_actions, dim=1, mean=0.0, cov=1.0)
    problem = theory.BayesianProblem(prior, ones)
    risk = theory.bayes_suboptimality(problem, 0, rng=np.random.default_rng(8), n_instances=250, n_contexts=1)
    largest, _ = integrate.quad(
        lambda z: z * n_actions * stats.norm.pdf(z) * stats.norm.cdf(z) ** (n_actions - 1), -9, 9, points=[2, 3, 4]
    )
    assert abs(risk.mean - largest) < SE * risk.standard_error
    assert theory.theorem_1_bound(1, risk.expected_norm) == pytest.approx(2.0)
    assert risk.mean - 2.0 > 6 * risk.standard_error
    assert risk.mean < theory.corrected_bound(n_actions, risk.expected_squared_norm)


@pytest.mark.slow
def test_theorem_1_fails_in_the_papers_model_with_one_feature_and_no_latent_mean():
    # d = d' = 1, φ = 1, Σ = 3, Σ_a = 1, μ = 0, no data; over many draws of W the two sides are 4.03 and 3.25.
    mixing = np.random.default_rng(9).uniform(-1, 1, (1000, 1, 1))
    problem = theory.BayesianProblem(ma.HierarchicalGaussian([0.0], 3.0, mixing, 1.0), ones)
    risk = theory.bayes_suboptimality(problem, 0, rng=np.random.default_rng(10), n_instances=300, n_contexts=1)
    bound = theory.theorem_1_bound(1, risk.expected_norm)
    assert abs(risk.mean - 4.03) < SE * risk.standard_error
    assert bound == pytest.approx(3.25, abs=0.15)
    assert z_score(risk.suboptimality - 2.0 * risk.norm) > 6
    assert risk.mean + SE * risk.standard_error < theory.corrected_bound(1000, risk.expected_squared_norm)


@pytest.mark.slow
@pytest.mark.parametrize("n_rounds", [0, 100])
def test_theorem_1_fails_in_the_papers_model_with_one_feature_and_many_actions(n_rounds):
    # d = d' = 1, all else as in its experiments; data does not repair it, for it leaves most actions unseen.
    problem = synthetic(9, n_actions=10_000, dim=1, latent_dim=1, noise_std=1.0)
    risk = theory.bayes_suboptimality(problem, n_rounds, rng=np.random.default_rng(10), n_instances=200, n_contexts=20)
    assert risk.mean > theory.theorem_1_bound(1, risk.expected_norm)
    assert z_score(risk.suboptimality - 2.0 * risk.norm) > 6
    assert risk.mean + SE * risk.standard_error < theory.corrected_bound(10_000, risk.expected_squared_norm)


@pytest.mark.parametrize("n_actions", [1, 10, 300])
def test_corrected_bound_covers_the_largest_of_squared_normals(n_actions):
    largest = np.random.default_rng(11).standard_normal((2000, n_actions)) ** 2
    assert largest.max(axis=1).mean() < theory.corrected_bound(n_actions, 1.0) ** 2


# The explicit bound.


def circle(rng, n):
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)])


CIRCLE = theory.IsotropicModel(
    dim=2, noise_std=0.8, action_std=0.5, latent_std=1.2, smallest_eigenvalue=0.5, moment_ratio=math.sqrt(1.5)
)


def circle_problem(n_actions):
    """(A0)-(A2): contexts on the unit circle, W_a with orthonormal rows, uniform logging."""
    draws = np.random.default_rng(12).standard_normal((n_actions, 4, 2))
    mixing = np.linalg.qr(draws)[0].swapaxes(1, 2)
    prior = ma.HierarchicalGaussian(np.full(4, 0.3), 1.2**2, mixing, 0.5**2)
    return theory.BayesianProblem(prior, circle, 0.8)


@pytest.mark.parametrize(
    ("n_actions", "n_rounds", "informative"), [(3, 20, False), (40, 500, False), (3, 20_000, True)]
)
def test_explicit_bound_holds_under_its_assumptions(n_actions, n_rounds, informative):
    risk = theory.bayes_suboptimality(
        circle_problem(n_actions), n_rounds, rng=np.random.default_rng(13), n_instances=40, n_contexts=50
    )
    propensities = np.full(5, 1 / n_actions)
    norm = theory.explicit_squared_norm(CIRCLE, n_rounds, propensities)
    assert risk.squared_norm.max() < norm
    assert (norm < 0.5**2) == informative  # less than the prior's own uncertainty: the log has counted
    assert risk.mean + SE * risk.standard_error < theory.explicit_bound(CIRCLE, n_rounds, propensities)
    assert risk.mean + SE * risk.standard_error < theory.corrected_bound(n_actions, norm)


def test_explicit_bound_agrees_with_a_hand_computation():
    d, n, s, s0, t, g, h = 2, 20_000, 0.8, 0.5, 1.2, 0.5, math.sqrt(1.5)
    total = 0.0
    for p in (0.5, 0.41, 0.003):
        m = math.floor(p / 2 * n)
        alpha = m - 7 * h * math.sqrt(m * (d + 2 * math.log(n)))
        assert (alpha > 0) == (p > 0.1)
        below = s**-2 * g * max(alpha, 0.0) + s0**-2
        total += d / below + t**2 * s0**-4 * d / below**2 + (s0**2 + t**2) * d * math.exp(-n * p**2 / 2)
    expected = 2 * math.sqrt(total / 3 + 2 * d * (s0**2 + t**2) / n)
    assert theory.explicit_bound(CIRCLE, n, [0.5, 0.41, 0.003]) == pytest.approx(expected, rel=1e-12)


def test_explicit_bound_falls_back_to_the_prior_where_alpha_is_negative():
    prior_variance, n = 0.5**2 + 1.2**2, 1000
    expected = prior_variance * (1 + math.exp(-n * 0.01**2 / 2) + 2 / n)
    assert theory.explicit_squared_norm(CIRCLE, n, [0.01]) == pytest.approx(expected, rel=1e-12)


# Widths.


@pytest.mark.parametrize("dim", [1, 3, 20])
@pytest.mark.parametrize("delta", [0.001, 0.05, 0.5, 0.99])
def test_confidence_radius_is_beyond_the_chi_quantile(dim, delta):
    assert stats.chi2.cdf(theory.confidence_radius(dim, delta) ** 2, dim) >= 1 - delta


def worst_contexts(cov, miss):
    """The contexts x, one a row, with the largest |xᵀ miss| / ‖x‖ in cov: to cover there is to cover everywhere."""
    return np.linalg.solve(cov, miss[..., None])[..., 0]


@pytest.mark.slow
def test_bayesian_widths_cover_all_contexts_at_once():
    problem = synthetic(14, n_actions=5, dim=3, latent_dim=2, logging_policy=uneven(5))
    everyone, deltas = np.arange(5), (0.05, 0.9)
    covered = []
    for rng in np.random.default_rng(15).spawn(300):
        world, logs = problem.draw(30, rng)
        posterior = ma.fit(logs, problem.prior, ma.Gaussian(problem.noise_std))
        miss = world.weights - posterior.weights.action_mean()
        x = worst_contexts(posterior.weights.action_cov(everyone), miss)
        error = np.abs(np.einsum("kd,kd->k", x, miss))
        covered.append([(error <= theory.bayesian_width(posterior, x, everyone, delta)).mean() for delta in deltas])
    for delta, share in zip(deltas, np.mean(covered, axis=0), strict=True):
        exact = stats.chi2.cdf(theory.confidence_radius(3, delta) ** 2, 3)
        assert share >= 1 - delta
        assert abs(share - exact) < SE * math.sqrt(exact * (1 - exact) / len(covered))


def test_frequentist_widths_cover_fixed_weights_where_bayesian_ones_do_not():
    prior = ma.priors.independent(2, mean=[0.5, -0.5, 0.0], cov=np.diag([0.3, 0.5, 0.8]))
    weights = np.array([[3.0, 2.0, -2.0], [-2.0, 4.0, 1.0]])  # far from what the prior expects
    rng = np.random.default_rng(16)
    contexts, actions = rng.uniform(-1, 1, (12, 3)), np.repeat([0, 1], 6)
    both = np.arange(2)
    covered = {"frequentist": [], "bayesian": []}
    for _ in range(150):
        rewards = np.einsum("nd,nd->n", contexts, weights[actions]) + 0.7 * rng.standard_normal(12)
        posterior = ma.fit(ma.LoggedData(contexts, actions, rewards), prior, ma.Gaussian(0.7))
        miss = weights - posterior.weights.action_mean()
        x = worst_contexts(posterior.weights.action_cov(both), miss)
        error = np.abs(np.einsum("kd,kd->k", x, miss))
        norms = np.linalg.norm(weights, axis=1)
        covered["frequentist"].append(error <= theory.frequentist_width(posterior, x, both, norms, 0.2))
        covered["bayesian"].append(error <= theory.bayesian_width(posterior, x, both, 0.2))
    assert np.all(np.mean(covered["frequentist"], axis=0) >= 0.8)
    assert np.all(np.mean(covered["bayesian"], axis=0) < 0.2)


def test_frequentist_width_adds_the_distance_to_the_prior():
    prior = ma.priors.independent(2, mean=[3.0, 4.0], cov=np.diag([0.25, 2.0]))
    posterior = ma.fit(ma.LoggedData([[1.0, 2.0]], [0], [1.0], n_actions=2), prior)
    x, actions = np.array([[0.3, -0.4], [1.0, 0.2]]), np.array([1, 0])
    # α(2, 0.1) = √(2 + 2 √(2 · 2.302585) + 2 · 2.302585) = 3.301076; (c + 5) / √0.25.
    radius = 3.301076 + (np.array([1.0, 7.0]) + 5.0) / 0.5
    got = theory.frequentist_width(posterior, x, actions, [1.0, 7.0], 0.1)
    assert_allclose(got, radius * posterior.reward_std(x, actions), rtol=1e-6)


# Greedy is the best there is.


def paired(problem, n_rounds, n_instances, **methods):
    """Suboptimality instance by instance, the same worlds and logs for each method."""
    return {
        name: theory.bayes_suboptimality(
            problem, n_rounds, rng=np.random.default_rng(17), n_instances=n_instances, n_contexts=50, **how
        )
        for name, how in methods.items()
    }


@pytest.mark.slow
def test_greedy_beats_pessimism_and_every_other_prior():
    problem = synthetic(18, n_actions=60, dim=4, latent_dim=4, noise_std=1.0)
    prior = problem.prior
    elsewhere = ma.HierarchicalGaussian(prior.latent_mean + 5.0, 0.1, prior.mixing, 1.0)
    risks = paired(
        problem,
        80,
        100,
        greedy={},
        pessimistic={"learn": lambda posterior: ma.Pessimistic(posterior, delta=0.05)},
        unstructured={"fit_prior": prior.marginal()},
        elsewhere={"fit_prior": elsewhere},
    )
    greedy = risks.pop("greedy")
    for name, risk in risks.items():
        assert z_score(risk.suboptimality - greedy.suboptimality) > 4, name


def test_methods_meet_the_same_worlds_and_seeds_repeat():
    problem = synthetic(19, n_actions=20, dim=3, latent_dim=2)
    risks = paired(problem, 30, 20, first={}, again={}, pessimistic={"learn": ma.Pessimistic})
    assert np.array_equal(risks["first"].suboptimality, risks["again"].suboptimality)
    assert np.array_equal(risks["first"].norm, risks["pessimistic"].norm)
    assert len(np.unique(risks["first"].suboptimality)) == 20
    assert not risks["first"].suboptimality.flags.writeable


def test_suboptimality_is_what_the_world_says_it_is():
    # One instance written out: contexts do not vary, so V is one number a policy.
    prior = ma.priors.independent(4, dim=1, mean=0.0, cov=1.0)
    problem = theory.BayesianProblem(prior, ones, 0.5)
    risk = theory.bayes_suboptimality(problem, 6, rng=np.random.default_rng(20), n_instances=2, n_contexts=3)
    for i, child in enumerate(np.random.default_rng(20).spawn(2)):
        world, logs = problem.draw(6, child.spawn(2)[0])
        counts = np.bincount(logs.actions, minlength=4)
        sums = np.bincount(logs.actions, weights=logs.rewards, minlength=4)
        mean, var = sums / (counts + 0.25), 0.25 / (counts + 0.25)
        theta = world.weights[:, 0]
        assert risk.suboptimality[i] == pytest.approx(theta.max() - theta[mean.argmax()], abs=1e-12)
        assert risk.norm[i] == pytest.approx(math.sqrt(var[theta.argmax()]))
        assert risk.squared_norm[i] == pytest.approx(var[theta.argmax()])


# The door.


def test_wrong_arguments_raise_typed_errors():
    problem = synthetic(21, n_actions=4, dim=2, latent_dim=1)
    rng = np.random.default_rng(22)
    other = ma.priors.independent(5, dim=2)
    wrong = [
        (RangeError, lambda: theory.theorem_1_bound(0, 1.0)),
        (InputError, lambda: theory.theorem_1_bound(3, -1.0)),
        (InputError, lambda: theory.corrected_bound(3, float("nan"))),
        (PropensityError, lambda: theory.explicit_bound(CIRCLE, 100, [0.2, 1.2])),
        (ShapeError, lambda: theory.explicit_bound(CIRCLE, 100, [])),
        (RangeError, lambda: theory.explicit_bound(CIRCLE, 0, [0.2])),
        (RangeError, lambda: theory.IsotropicModel(2, 1.0, 1.0, 1.0, 0.6, 1.5)),
        (InputError, lambda: theory.IsotropicModel(2, 1.0, 1.0, 1.0, 0.5, 0.5)),
        (InputError, lambda: theory.BayesianProblem(problem.prior, problem.draw_contexts, 0.0)),
        (ShapeError, lambda: theory.BayesianProblem(problem.prior, problem.draw_contexts, 1.0, ma.Uniform(3))),
        (RangeError, lambda: theory.bayes_suboptimality(problem, 5, rng=rng, n_instances=1)),
        (RangeError, lambda: theory.bayes_suboptimality(problem, -1, rng=rng)),
        (ShapeError, lambda: theory.bayes_suboptimality(problem, 5, rng=rng, fit_prior=other)),
        (ShapeError, lambda: theory.bayes_mse(problem, np.ones((2, 2)), [0], 5, rng=rng)),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()


@pytest.mark.usefixtures("own_errors")
def test_the_assumptions_of_an_explicit_bound_must_be_a_model():
    with pytest.raises(InputError, match="model must be an IsotropicModel"):
        theory.explicit_squared_norm("isotropic", 100, [0.2])


def test_a_simulated_risk_is_averaged_over_instances():
    errors, norms = np.random.default_rng(0).random((2, 5, 3))
    risk = theory.BayesMSE(errors, norms)
    assert_allclose(risk.mean, [sum(column) / 5 for column in errors.T])
    assert_allclose(risk.expected_squared_norm, [sum(column) / 5 for column in norms.T])
    assert_allclose(risk.standard_error, stats.sem(errors, axis=0))


def test_a_frequentist_width_needs_definite_covariances_and_a_norm_per_row():
    covs = np.stack([np.eye(2), np.diag([1.0, 0.0])])
    logs = ma.LoggedData(np.ones((4, 2)), [0, 1, 0, 1], np.ones(4))
    posterior = ma.fit(logs, ma.priors.independent(2, cov=covs), ma.Gaussian(1.0))
    with pytest.raises(CovarianceError, match=r"the prior covariance of action 1 is singular.*Use bayesian_width"):
        theory.frequentist_width(posterior, np.ones((2, 2)), [0, 1], 1.0)
    with pytest.raises(ShapeError, match="weight_norms must be one number or have 2 rows; got 3"):
        theory.frequentist_width(posterior, np.ones((2, 2)), [0, 0], [1.0, 1.0, 1.0])
    one, each = (theory.frequentist_width(posterior, np.eye(2), [0, 0], norms) for norms in (2.0, [2.0, 2.0]))
    np.testing.assert_allclose(one, each)
