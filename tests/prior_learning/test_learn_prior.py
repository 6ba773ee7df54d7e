"""Empirical Bayes: the evidence of a prior, its gradient and its maximum, against evidence written out densely."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.errors import InputError, NumericalError
from manyarms.prior_learning.evidence import ExactEvidence, evidence_of
from manyarms.prior_learning.hyperparameters import Hyperparameters


def dense_log_evidence(logs, W, latent_mean, latent_cov, action_cov, offset, noise_std):
    """log N(rewards; mean, cov) with the covariance of all rewards written out. W: (K, d, d'), action_cov: (d, d)."""
    rows = np.einsum("nd,ndp->np", logs.contexts, W[logs.actions])
    same = logs.actions[:, None] == logs.actions[None]
    cov = rows @ latent_cov @ rows.T + same * (logs.contexts @ action_cov @ logs.contexts.T)
    cov += noise_std**2 * np.eye(len(logs))
    miss = logs.rewards - rows @ latent_mean - logs.contexts @ offset
    L = np.linalg.cholesky(cov)
    z = np.linalg.solve(L, miss)
    return -0.5 * (len(logs) * np.log(2 * np.pi) + 2 * np.log(np.diagonal(L)).sum() + z @ z)


def effects(weights, dim):
    """W of `MixedEffects(weights, dim)` written out."""
    return np.einsum("kj,ab->kajb", weights, np.eye(dim)).reshape(len(weights), dim, -1)


def draw_logs(rng, prior, noise_std, n_rounds, n_seen=None):
    theta = prior.sample(rng)[0]
    x = rng.normal(size=(n_rounds, prior.dim))
    x[:, 0] = 1.0
    actions = rng.integers(0, n_seen or prior.n_actions, size=n_rounds)
    rewards = np.einsum("nd,nd->n", x, theta[actions]) + noise_std * rng.normal(size=n_rounds)
    return ma.LoggedData(x, actions, rewards, n_actions=prior.n_actions)


def two_levels(rng, n_actions=40, dim=2):
    """A prior of two levels of effects and its weights: the levels have names of their own."""
    coarse, fine = rng.integers(0, 4, n_actions), rng.integers(0, 12, n_actions)
    weights = np.hstack([np.eye(4)[coarse], np.eye(12)[fine]])
    groups = (ma.EffectGroup("coarse", 4, dim), ma.EffectGroup("fine", 12, dim))
    prior = ma.HierarchicalGaussian(np.zeros(16 * dim), 1.0, ma.MixedEffects(weights, dim), 0.5, effects=groups)
    return prior, weights


@pytest.mark.parametrize("form", ["scale", "diagonal", "full"])
@pytest.mark.parametrize("means", ["integrated", "maximised"])
@pytest.mark.parametrize("avoid_boundary", [False, True])
def test_gradient_is_that_of_the_objective(form, avoid_boundary, means):
    rng = np.random.default_rng(0)
    prior, _ = two_levels(rng)
    logs = draw_logs(rng, prior, 0.8, 150, n_seen=30)
    evidence = ExactEvidence(logs, ma.Gaussian(), 40)
    hyper = Hyperparameters(
        prior, 0.9, evidence.seen, evidence.scale, effect_cov=form, action_cov=form,
        means=means, learn_noise=True,
    )  # fmt: skip
    eta = hyper.start() + 0.3 * rng.normal(size=hyper.size)
    _, slope = evidence.at(hyper, eta, avoid_boundary=avoid_boundary)

    def objective(x):
        built, noise_std = hyper.build(x)
        value = ma.fit(logs, built, ma.Gaussian(noise_std)).log_evidence
        return value + (hyper.penalty(x)[0] if avoid_boundary else 0.0)

    step = 1e-5 * np.eye(hyper.size)
    differences = np.array([(objective(eta + row) - objective(eta - row)) / 2e-5 for row in step])
    assert_allclose(slope, differences, rtol=1e-5, atol=1e-5)


def test_evidence_at_learned_values_is_the_dense_one_and_a_maximum():
    """Boundary prior off: within 1e-6 of a search without gradients on the dense evidence."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        n_actions, dim, n_effects = 24, 2, 6
        weights = np.eye(n_effects)[rng.integers(0, n_effects, n_actions)]
        truth = ma.HierarchicalGaussian(np.tile([1.0, -0.5], 6), 0.7, ma.MixedEffects(weights, dim), 0.3)
        logs = draw_logs(rng, truth, 1.0, 120)
        start = ma.HierarchicalGaussian(np.zeros(12), 1.0, ma.MixedEffects(weights, dim), 1.0)
        learned = ma.learn_prior(logs, start, means="maximised", avoid_boundary=False)
        assert learned.converged

        W = effects(weights, dim)

        def dense(x, logs=logs, W=W):
            noise, effect, action = np.exp(x[:3])
            return -dense_log_evidence(
                logs, W, np.tile(x[3:], 6), effect**2 * np.eye(12), action**2 * np.eye(2), np.zeros(2), noise
            )

        with threadpool_limits(1):
            rough = minimize(dense, np.array([0.0, 0.0, -0.5, 0.0, 0.0]), method="BFGS")
            fine = {"xatol": 1e-9, "fatol": 1e-11, "maxfev": 800}
            best = minimize(dense, rough.x, method="Nelder-Mead", options=fine).fun
        assert learned.log_evidence >= -best - 1e-6
        assert learned.log_evidence == pytest.approx(-best, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("avoid_boundary", [False, True])
def test_objective_never_falls(avoid_boundary):
    for seed in range(4 if avoid_boundary else 2):
        rng = np.random.default_rng(seed)
        prior, _ = two_levels(rng)
        logs = draw_logs(rng, prior, 10.0 ** rng.uniform(-2, 2), 200)
        learned = ma.learn_prior(logs, prior, effect_cov="full", action_cov="diagonal", avoid_boundary=avoid_boundary)
        trace = np.array(learned.trace)
        assert (np.diff(trace) >= -1e-9 * np.abs(trace[:-1])).all()
        # At a singular matrix the maximum lies infinitely far out on the log scale, and steps are many.
        assert len(trace) < (200 if avoid_boundary else 501)


def test_agrees_with_statsmodels_mixed_linear_model():
    """Random intercepts and slopes by action, one mean for all: both can say it. reml=False, boundary prior off."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    rng = np.random.default_rng(5)
    cov = np.array([[1.0, 0.3], [0.3, 0.5]])
    truth = ma.priors.independent(60, mean=np.array([2.0, -1.0]), cov=cov)
    logs = draw_logs(rng, truth, 0.7, 900)
    learned = ma.learn_prior(
        logs, ma.priors.independent(60, dim=2, cov=1.0), action_cov="full", means="maximised", avoid_boundary=False
    )
    model = MixedLM(logs.rewards, logs.contexts, groups=logs.actions, exog_re=logs.contexts)
    theirs = model.fit(reml=False, method="bfgs", maxiter=5000, gtol=1e-9)
    assert theirs.converged
    assert learned.log_evidence >= theirs.llf - 1e-6
    assert_allclose(learned.prior.offset, theirs.fe_params, atol=1e-5)
    assert_allclose(learned.prior.action_cov([0])[0], theirs.cov_re, rtol=1e-3, atol=1e-4)
    assert learned.likelihood.noise_std**2 == pytest.approx(theirs.scale, rel=1e-3)
    # Standard errors of means: theirs hold the variances fixed, ours do not; with 60 actions that is a small thing.
    errors = [p.error for p in learned.parameters if "mean" in p.name]
    assert_allclose(errors, theirs.bse_fe, rtol=0.02)


def test_integrated_means_give_the_restricted_estimates_of_statsmodels():
    """reml=True: as if the mean had a flat prior."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    rng = np.random.default_rng(6)
    truth = ma.priors.independent(12, mean=np.array([2.0, -1.0]), cov=0.5)
    logs = draw_logs(rng, truth, 0.7, 150)
    learned = ma.learn_prior(logs, ma.priors.independent(12, dim=2), action_cov="full", avoid_boundary=False)
    model = MixedLM(logs.rewards, logs.contexts, groups=logs.actions, exog_re=logs.contexts)
    theirs = model.fit(reml=True, method="bfgs", maxiter=5000, gtol=1e-9)
    # Ours is flat only up to a wide normal prior on the mean.
    assert_allclose(learned.prior.offset, theirs.fe_params, rtol=1e-2)
    assert_allclose(learned.prior.action_cov([0])[0], theirs.cov_re, rtol=1e-2, atol=1e-3)
    assert learned.likelihood.noise_std**2 == pytest.approx(theirs.scale, rel=1e-3)
    errors = [p.error for p in learned.parameters if "mean" in p.name]
    assert_allclose(errors, theirs.bse_fe, rtol=1e-2)


def test_learning_needs_statistics_alone():
    rng = np.random.default_rng(1)
    prior, _ = two_levels(rng)
    logs = draw_logs(rng, prior, 1.0, 300)
    shards = [logs.take(slice(i, None, 3)) for i in range(3)]
    statistics = sum(ma.Gaussian().statistics(shard, prior.n_actions) for shard in shards)
    from_logs, from_sums = ma.learn_prior(logs, prior), ma.learn_prior(statistics, prior)
    assert from_sums.log_evidence == pytest.approx(from_logs.log_evidence, abs=1e-7)
    for one, other in zip(from_logs.parameters, from_sums.parameters, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-4, abs=1e-5)


def test_units_of_rewards_and_features_do_not_matter():
    rng = np.random.default_rng(2)
    prior, _ = two_levels(rng)
    logs = draw_logs(rng, prior, 1.0, 300)
    other = ma.LoggedData(logs.contexts / 50, logs.actions, 2000 * logs.rewards, n_actions=logs.n_actions)
    first, second = ma.learn_prior(logs, prior), ma.learn_prior(other, prior)
    for one, two in zip(first.parameters, second.parameters, strict=True):
        unit = 2000 if "noise" in one.name else 100_000
        assert two.value == pytest.approx(unit * one.value, rel=1e-3, abs=1e-3 * unit)


@pytest.mark.slow
def test_a_spread_that_the_data_put_at_zero_is_reported_and_set_to_zero():
    """Actions exactly at their category's effect. Off: zero, said so, and no lower evidence. On: small, not zero."""
    hits = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        weights = np.eye(8)[rng.integers(0, 8, 40)]
        truth = ma.HierarchicalGaussian(np.zeros(16), 1.0, ma.MixedEffects(weights, 2), 0.0)
        logs = draw_logs(rng, truth, 1.0, 200)
        start = ma.HierarchicalGaussian(np.zeros(16), 1.0, ma.MixedEffects(weights, 2), 1.0)
        off, on = ma.learn_prior(logs, start, avoid_boundary=False), ma.learn_prior(logs, start)
        assert not on.boundary
        assert on.prior.action_cov([0])[0, 0, 0] > 0
        assert off.log_evidence >= on.log_evidence - 1e-9
        if off.boundary:
            hits += 1
            assert off.zeroed == ("actions",)
            assert not off.prior.action_covariance.variances.any()
            assert any("zero" in note for note in off.notes)
            assert next(p for p in off.parameters if p.name == "actions std").error is None
            certain = off.averaged(8, rng=rng).value(ma.Uniform(40), logs.contexts)
            assert any("taken for certain" in text for text in certain.warnings)
    assert 1 <= hits < 6


@pytest.mark.slow
def test_a_full_covariance_without_spread_in_one_direction_is_reported():
    rng = np.random.default_rng(0)
    cov = np.array([[1.0, 1.0], [1.0, 1.0]])
    logs = draw_logs(rng, ma.priors.independent(30, mean=np.zeros(2), cov=cov), 1.0, 300)
    start = ma.priors.independent(30, dim=2, cov=1.0)
    off, on = (ma.learn_prior(logs, start, action_cov="full", avoid_boundary=choice) for choice in (False, True))
    assert off.boundary
    assert not on.boundary
    assert off.log_evidence >= on.log_evidence


@pytest.mark.slow
def test_units_of_a_single_column_do_not_matter():
    """An intercept beside a price in other units, with a spread for each coordinate."""
    rng = np.random.default_rng(0)
    theta = np.array([5.0, 1.0]) + rng.normal(size=(60, 2)) * [1.0, 0.3]
    price, actions = rng.normal(size=1500), rng.integers(0, 60, 1500)
    rewards = theta[actions, 0] + price * theta[actions, 1] + rng.normal(size=1500)
    for form in ("diagonal", "full"):
        found = []
        for unit in (1.0, 1e3, 1e-4):
            logs = ma.LoggedData(np.column_stack([np.ones(1500), price * unit]), actions, rewards, n_actions=60)
            start = ma.priors.independent(60, cov=np.array([1.0, unit**-2.0]))
            learned = ma.learn_prior(logs, start, action_cov=form)
            errors = [p.error for p in learned.parameters if "mean" in p.name]
            found.append((learned.log_evidence, *(learned.prior.offset * [1, unit]), *(errors * np.array([1, unit]))))
        assert_allclose(found[1:], [found[0]] * 2, rtol=1e-5)


@pytest.mark.slow
def test_a_taxonomy_with_little_noise_is_learned():
    """A first step as long as the bounds allow would leave what sums of squares can hold."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        paths = rng.integers(0, [4, 5, 5], size=(300, 3))
        prior = ma.priors.from_taxonomy(paths, dim=2, action_std=0.3)
        learned = ma.learn_prior(draw_logs(rng, prior, 0.03, 600), prior)
        assert learned.converged
        assert learned.likelihood.noise_std == pytest.approx(0.03, rel=0.5)
        assert learned.log_evidence > learned.trace[0]


def test_a_correlated_latent_is_learned_by_one_scale():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    prior = ma.HierarchicalGaussian(np.zeros(3), root @ root.T, rng.normal(size=(60, 2, 3)), 0.1)
    logs = draw_logs(rng, prior, 0.5, 1000)
    learned = ma.learn_prior(logs, prior)
    assert [p.name for p in learned.parameters][:3] == ["noise std", "actions std", "latent std"]
    shape = learned.prior.latent_cov / np.trace(learned.prior.latent_cov)
    assert_allclose(shape, root @ root.T / np.trace(root @ root.T), rtol=1e-10)
    mixed = prior + ma.priors.from_categories(rng.integers(0, 5, 60), dim=2)
    assert any("correlated" in note for note in ma.learn_prior(logs, mixed).notes)


def test_effects_of_unseen_actions_alone_stay_as_given():
    rng = np.random.default_rng(0)
    only_new = np.zeros((40, 1))
    only_new[35:] = 1.0
    group = [ma.EffectGroup("promotion", 1, 2)]
    promotion = ma.HierarchicalGaussian(np.zeros(2), 4.0, ma.MixedEffects(only_new, 2), 0.0, effects=group)
    prior = promotion + ma.priors.from_categories(rng.integers(0, 8, 40), dim=2)
    learned = ma.learn_prior(draw_logs(rng, prior, 1.0, 300, n_seen=30), prior)
    assert_allclose(np.diagonal(learned.prior.latent_cov)[:2], 4.0)
    assert [p.name for p in learned.parameters if "mean" in p.name] == ["category mean 0", "category mean 1"]
    assert any(note.startswith("promotion: no logged action") for note in learned.notes)


def test_one_effect_does_not_learn_its_mean_and_says_so():
    """Erratum 4: a single ψ cannot tell its mean from its spread."""
    rng = np.random.default_rng(3)
    weights = np.hstack([np.ones((40, 1)), np.eye(8)[rng.integers(0, 8, 40)]])
    groups = (ma.EffectGroup("shared", 1, 2), ma.EffectGroup("category", 8, 2))
    prior = ma.HierarchicalGaussian(np.zeros(18), 1.0, ma.MixedEffects(weights, 2), 0.5, effects=groups)
    learned = ma.learn_prior(draw_logs(rng, prior, 1.0, 300), prior)
    assert any(note.startswith("shared: a mean and a spread cannot both be learned") for note in learned.notes)
    assert "category: its mean cannot be told apart from the shared effect, so it is not learned" in learned.notes
    assert not learned.prior.latent_mean.any()
    assert "shared std" in [p.name for p in learned.parameters]


def test_fixed_parts_stay_as_they_are():
    rng = np.random.default_rng(4)
    prior, _ = two_levels(rng)
    logs = draw_logs(rng, prior, 1.0, 300)
    learned = ma.learn_prior(
        logs, prior, ma.Gaussian(1.3), effect_cov={"fine": "fixed", "coarse": "diagonal"}, action_cov="fixed",
        means="fixed", learn_noise=False,
    )  # fmt: skip
    assert learned.likelihood.noise_std == 1.3
    assert [p.name for p in learned.parameters] == ["coarse std 0", "coarse std 1"]
    cov = np.diagonal(learned.prior.latent_cov)
    assert_allclose(cov[8:], 1.0)
    assert not np.allclose(cov[:8], 1.0)
    assert_allclose(np.diagonal(learned.prior.action_cov([0])[0] - learned.prior.mixing.cross(
        learned.prior.latent_factor, np.zeros(1, int), np.zeros(1, int))[0]), 0.5)  # fmt: skip


@pytest.mark.slow
def test_log_standard_deviations_are_as_uncertain_as_they_say():
    """20 data sets from a known prior; the study has 200 and the table."""
    z = []
    for seed in range(20):
        rng = np.random.default_rng([7, seed])
        weights = np.eye(20)[np.arange(200) % 20]
        truth = ma.HierarchicalGaussian(np.zeros(80), 0.8**2, ma.MixedEffects(weights, 4), 0.5**2)
        learned = ma.learn_prior(draw_logs(rng, truth, 1.0, 2000), truth)
        for name, value in (("noise std", 1.0), ("actions std", 0.5), ("effects std", 0.8)):
            found = next(p for p in learned.parameters if p.name == name)
            z.append(np.log(found.value / value) / found.error)
    z = np.array(z).reshape(20, 3)
    assert (np.abs(z.mean(axis=0)) < 4 / np.sqrt(20)).all()
    assert ((z.std(axis=0) > 0.5) & (z.std(axis=0) < 1.5)).all()


@pytest.mark.slow
def test_averaging_agrees_with_quadrature():
    """One unknown standard deviation: the mixture against a fine grid over it."""
    rng = np.random.default_rng(8)
    weights = np.eye(6)[np.arange(12) % 6]
    truth = ma.HierarchicalGaussian(np.zeros(12), 1.0, ma.MixedEffects(weights, 2), 0.3)
    logs = draw_logs(rng, truth, 1.0, 60)
    learned = ma.learn_prior(logs, truth, ma.Gaussian(1.0), action_cov="fixed", means="fixed", learn_noise=False)
    averaged = learned.averaged(256, rng=rng)
    policy, contexts = ma.Uniform(12), logs.contexts
    got = averaged.value(policy, contexts)
    grid = np.linspace(np.log(0.05), np.log(30), 300)
    log_weight, means, variances = [], [], []
    for eta in grid:
        prior = ma.HierarchicalGaussian(np.zeros(12), np.exp(2 * eta), ma.MixedEffects(weights, 2), 0.3)
        posterior = ma.fit(logs, prior, ma.Gaussian(1.0))
        wide = learned.evidence.scale.weight * 10
        log_weight.append(posterior.log_evidence + eta - 0.5 * np.exp(2 * eta) * np.mean(wide**-2.0))
        estimate = posterior.value(policy, contexts)
        means.append(estimate.value)
        variances.append(estimate.posterior_std**2)
    share = np.exp(np.array(log_weight) - max(log_weight))
    share /= share.sum()
    mean = share @ means
    std = np.sqrt(share @ (np.array(variances) + (means - mean) ** 2))
    assert got.value == pytest.approx(mean, abs=0.05 * std)
    assert got.posterior_std == pytest.approx(std, rel=0.05)
    low, high = got.interval()
    assert low < got.value < high
    assert got.probability_positive == pytest.approx(1 - got.shape.below(0.0))
    gap = averaged.difference(policy, policy, contexts)
    assert gap.value == pytest.approx(0.0, abs=1e-12)


def test_a_mean_taken_for_certain_is_warned_about_as_far_as_it_narrows_intervals():
    """m rounds an action: Var of the mean of all θ_a is σ² / (K m), and τ² σ² / (τ² m + σ²) / K with the mean known."""
    rng, K, m = np.random.default_rng(0), 30, 50
    actions = np.repeat(np.arange(K), m)

    def learn(spread, **options):
        rewards = (1.0 + spread * rng.normal(size=K))[actions] + rng.normal(size=K * m)
        logs = ma.LoggedData(np.ones((K * m, 1)), actions, rewards, n_actions=K)
        return ma.learn_prior(logs, ma.priors.from_catalog(K, dim=1, **options))

    alike = learn(0.15)
    tau, sigma = np.sqrt(alike.prior.action_cov([0])[0, 0, 0]), alike.likelihood.noise_std
    narrower = 1 - np.sqrt(tau**2 * m / (tau**2 * m + sigma**2))
    (warning,) = (text for text in alike.posterior.value(ma.Uniform(K), np.ones((1, 1))).warnings if "certain" in text)
    assert narrower > 0.1
    assert f"{100 * narrower:.0f}% too narrow" in warning and "an effect that all actions share" in warning
    assert warning in alike.notes
    assert warning not in alike.averaged(8, rng=rng).value(ma.Uniform(K), np.ones((1, 1))).warnings
    for learned in (learn(1.0), learn(0.15, shared_std=1.0)):
        assert not any("certain" in text for text in learned.notes)


def test_few_actions_are_warned_about():
    rng = np.random.default_rng(9)
    truth = ma.priors.independent(5, dim=2, cov=1.0)
    logs = draw_logs(rng, truth, 1.0, 100)
    learned = ma.learn_prior(logs, truth)
    assert any("only 5 actions" in note for note in learned.notes)
    assert any("only 5 actions" in text for text in learned.posterior.value(ma.Uniform(5), logs.contexts).warnings)
    assert any("--averaged" in note for note in learned.notes)
    # Who has followed the advice does not get it again.
    averaged = learned.averaged(rng=rng)
    for texts in (averaged.warnings, averaged.value(ma.Uniform(5), logs.contexts).warnings):
        assert any("only 5 actions were seen" in text and "the intervals include this" in text for text in texts)
        assert not any("--averaged" in text for text in texts)


@pytest.mark.slow
def test_heavy_tails_report_the_scale_that_was_learned():
    rng = np.random.default_rng(10)
    prior = ma.priors.independent(30, dim=1)
    logs = draw_logs(rng, prior, 0.0, 600)
    logs = logs.with_rewards(logs.rewards + 0.5 * rng.standard_t(4.0, size=600))
    learned = ma.learn_prior(logs, prior, ma.StudentT())
    found = learned.parameters[0]
    assert (found.name, found.value) == ("scale", learned.likelihood.scale)
    assert found.value == pytest.approx(0.5, rel=0.2)
    assert f"{found.value:.4g} ± " in str(learned).splitlines()[1]


def test_a_hurdle_is_learned_in_the_two_parts_that_its_error_names():
    rng = np.random.default_rng(11)
    prior = ma.priors.independent(20, dim=1)
    logs = draw_logs(rng, prior, 1.0, 400)
    logs = logs.with_rewards(np.where(rng.random(400) < 0.4, np.exp(logs.rewards), 0.0))
    first = ma.learn_prior(logs.with_rewards((logs.rewards != 0).astype(float)), prior, ma.Bernoulli())
    second = ma.learn_prior(logs.take(np.flatnonzero(logs.rewards)), prior, ma.LogNormal())
    both = ma.fit(logs, (first.prior, second.prior), ma.Hurdle(first.likelihood, second.likelihood))
    assert both.log_evidence == pytest.approx(first.log_evidence + second.log_evidence, abs=1e-3)


@pytest.mark.parametrize("likelihood, event", [(ma.Bernoulli(), "click"), (ma.Poisson(), "event")])
def test_logs_without_an_event_ask_for_a_mean_and_its_recipe_sets_one(likelihood, event):
    rng = np.random.default_rng(12)
    prior = ma.priors.from_categories(np.arange(20) % 4, dim=2)
    logs = draw_logs(rng, prior, 1.0, 50)
    none = logs.with_rewards(np.zeros(50))
    with pytest.raises(InputError, match=f"no {event} yet in 50 rounds.*use ma.fit"):
        ma.learn_prior(none, prior, likelihood)
    low = prior + ma.priors.independent(20, mean=[-4.6, 0.0], cov=0.0)
    assert_allclose(low.action_mean() - prior.action_mean(), np.tile([-4.6, 0.0], (20, 1)))
    assert_allclose(low.action_cov([3]), prior.action_cov([3]))


def test_bad_input_is_refused_with_a_remedy(own_errors):
    rng = np.random.default_rng(0)
    prior, _ = two_levels(rng)
    logs = draw_logs(rng, prior, 1.0, 50)
    flat = ma.LoggedData(logs.contexts, logs.actions, np.full(50, 3.0), n_actions=40)
    empty = logs.take(slice(0, 0))
    posterior = ma.fit(logs, prior)
    for call, words in (
        (lambda: ma.learn_prior(flat, prior), r"all rewards are equal \(3\)"),
        (lambda: ma.learn_prior(empty, prior), "no rounds"),
        (lambda: ma.learn_prior(logs, prior, ma.Hurdle()), "Learn or compare them separately.*ma.fit"),
        (lambda: ma.learn_prior(logs, posterior.weights), "prior is a posterior, which cannot be learned"),
        (lambda: ma.learn_prior(logs, prior, effect_cov="round"), "effect_cov must be"),
        (lambda: ma.learn_prior(logs, prior, effect_cov={"tag": "scale"}), "'coarse', 'fine'.$"),
        (lambda: ma.learn_prior(logs, prior, effect_cov=0.3), "effect_cov must be a word"),
        (lambda: ma.learn_prior(logs, prior, action_cov=np.eye(2)), "action_cov must be"),
        (lambda: ma.learn_prior(ma.Statistics.empty(7, 2), prior), "7 in 2"),
        (
            lambda: ma.learn_prior(
                logs, prior, effect_cov="fixed", action_cov="fixed", means="fixed", learn_noise=False
            ),
            "nothing is left",
        ),
    ):
        with pytest.raises(InputError, match=words):
            call()


def test_effects_that_move_no_action_leave_what_is_learned_without_them():
    rng, n_actions, dim = np.random.default_rng(4), 6, 2
    logs = ma.LoggedData(
        rng.normal(size=(90, dim)), rng.integers(n_actions, size=90), rng.normal(size=90), n_actions=n_actions
    )
    idle = ma.HierarchicalGaussian(np.zeros(3 * dim), 1.0, ma.MixedEffects(np.zeros((n_actions, 3)), dim), 0.3)
    found = ma.learn_prior(logs, idle)
    assert any("no logged action" in note for note in found.notes)
    spread = found.prior.action_covariance.blocks(np.arange(1))[0]
    truth = dense_log_evidence(
        logs, np.zeros((n_actions, dim, 1)), np.zeros(1), np.eye(1), spread, found.prior.offset_of(np.arange(1))[0],
        found.likelihood.noise_std,
    )  # fmt: skip
    assert_allclose(found.log_evidence, truth, rtol=1e-9)


def test_rewards_whose_squares_overflow_are_refused():
    # A single round per action: its rows are kept as they are, so that no earlier sum overflows.
    logs = ma.LoggedData(np.ones((6, 2)), np.arange(6), np.full(6, 1e200), n_actions=6)
    with pytest.raises(NumericalError, match="overflow"):
        ma.learn_prior(logs, ma.priors.independent(6, dim=2), ma.Gaussian(1.0))


def test_a_latent_covariance_written_out_is_learned_like_its_blocks():
    rng = np.random.default_rng(0)
    prior, weights = two_levels(rng, n_actions=20)
    logs = draw_logs(rng, prior, 1.0, 150)
    full = ma.HierarchicalGaussian(
        np.zeros(32), np.eye(32), ma.MixedEffects(weights, 2), 0.5, effects=prior.effects
    )  # fmt: skip
    found, expected = ma.learn_prior(logs, full), ma.learn_prior(logs, prior)
    assert [p.name for p in found.parameters] == [p.name for p in expected.parameters]
    assert_allclose(found.eta, expected.eta, atol=1e-6)
    assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-9)


def test_standard_deviations_of_exactly_zero_stay_zero_and_it_is_said():
    rng = np.random.default_rng(1)
    weights = np.hstack([np.eye(4)[rng.integers(0, 4, 30)], np.eye(3)[rng.integers(0, 3, 30)]])
    groups = (ma.EffectGroup("coarse", 4, 2), ma.EffectGroup("fine", 3, 2))
    variances = np.repeat([1.0, 0.0], [8, 6])
    prior = ma.HierarchicalGaussian(np.zeros(14), variances, ma.MixedEffects(weights, 2), 0.0, effects=groups)
    learned = ma.learn_prior(draw_logs(rng, prior, 1.0, 150), prior)
    assert "fine: a standard deviation of exactly 0 stays 0" in learned.notes
    assert "actions: a standard deviation of exactly 0 stays 0" in learned.notes
    assert [p.name for p in learned.parameters if "std" in p.name] == ["noise std", "coarse std"]
    assert not np.diagonal(learned.prior.latent_cov)[8:].any()
    assert not learned.prior.action_covariance.variances.any()


def test_covariances_of_single_actions_are_learned_by_one_scale():
    rng = np.random.default_rng(2)
    roots = rng.normal(size=(30, 2, 2))
    covs = roots @ roots.swapaxes(1, 2)
    prior = ma.priors.independent(30, cov=covs)
    learned = ma.learn_prior(draw_logs(rng, prior, 1.0, 300), prior, action_cov="diagonal", means="fixed")
    assert "actions: each has its own covariance, so only a common scale is learned" in learned.notes
    got = learned.prior.action_covariance.blocks(np.arange(30))
    assert_allclose(got / np.trace(got, axis1=1, axis2=2).sum(), covs / np.trace(covs, axis1=1, axis2=2).sum())
    (scale,) = np.unique((got / covs).round(9))

    def evidence(factor):
        scaled = ma.priors.independent(30, cov=factor * covs)
        return ma.fit(learned.evidence._logs, scaled, learned.likelihood).log_evidence

    # No other scale has more evidence, but for the weak prior that avoids zero.
    values = [evidence(scale * factor) for factor in (0.25, 1.0, 4.0)]
    assert values[1] == max(values)


def test_one_standard_deviation_at_a_time_is_put_at_zero():
    rng = np.random.default_rng(0)
    prior, _ = two_levels(rng)
    evidence = ExactEvidence(draw_logs(rng, prior, 0.8, 150), ma.Gaussian(), 40)
    hyper = Hyperparameters(
        prior, 0.9, evidence.seen, evidence.scale, effect_cov="diagonal", action_cov="diagonal", means="fixed",
        learn_noise=True,
    )  # fmt: skip
    # Noise, two of actions, two of each level.
    assert hyper.size == 7 and hyper.without(0) is None
    eta = np.log(np.arange(1.0, 8.0))
    reduced = hyper.without(4)
    built, noise_std = reduced.build(np.delete(eta, 4))
    assert reduced.size == 6 and noise_std == pytest.approx(1.0)
    cov = np.diagonal(built.latent_cov)
    assert_allclose(built.action_covariance.blocks(np.zeros(1, dtype=int))[0], np.diag([4.0, 9.0]))
    assert_allclose(cov[:8], np.tile([16.0, 0.0], 4))
    assert_allclose(cov[8:], np.tile([36.0, 49.0], 12))


def test_effects_that_cancel_do_not_learn_their_mean():
    rng = np.random.default_rng(5)
    contrasts = np.where(rng.random((30, 1)) < 0.5, 1.0, -1.0) * [[1.0, -1.0]]
    group = [ma.EffectGroup("contrast", 2, 2)]
    prior = ma.HierarchicalGaussian(np.zeros(4), 1.0, ma.MixedEffects(contrasts, 2), 0.5, effects=group)
    learned = ma.learn_prior(draw_logs(rng, prior, 1.0, 150), prior)
    assert any(note.startswith("contrast: its effects move no logged action on the whole") for note in learned.notes)
    assert not learned.prior.latent_mean.any()


def test_a_search_cut_short_says_so():
    rng = np.random.default_rng(4)
    prior, _ = two_levels(rng)
    learned = ma.learn_prior(draw_logs(rng, prior, 0.2, 300), prior, max_iterations=1)
    assert not learned.converged
    (note,) = (text for text in learned.notes if "had not converged" in text)
    assert note == f"the search had not converged after {len(learned.trace)} iterations; allow more"


def small_learned():
    rng = np.random.default_rng(0)
    prior = ma.priors.from_categories(rng.integers(0, 4, 20), dim=2)
    logs = draw_logs(rng, prior, 1.0, 100)
    return ma.learn_prior(logs, prior), logs


def test_an_average_warns_of_what_was_put_at_zero_and_names_itself():
    learned, logs = small_learned()
    averaged = learned.averaged(8, rng=np.random.default_rng(1))
    assert not learned.boundary
    assert repr(averaged).startswith(f"AveragedPosterior(8 priors drawn, worth {averaged.effective_draws:.3g}; ")
    certain = replace(learned, zeroed=("actions",))
    assert certain.boundary
    values = [
        prior.averaged(8, rng=np.random.default_rng(1)).value(ma.Uniform(20), logs.contexts)
        for prior in (learned, certain)
    ]
    assert values[0].value == values[1].value
    assert [any("actions: put at zero" in text for text in value.warnings) for value in values] == [False, True]


def test_draws_of_a_prior_at_which_the_arithmetic_fails_have_no_weight(monkeypatch):
    learned, logs = small_learned()
    policy, posterior = ma.Uniform(20), ExactEvidence.posterior
    seen = []

    def failing(some):
        def solve(self, hyper, eta, **options):
            seen.append(eta)
            if some(len(seen)):
                raise NumericalError("too far.", "Stay.")
            return posterior(self, hyper, eta, **options)

        return solve

    monkeypatch.setattr(ExactEvidence, "posterior", failing(lambda count: count % 2 == 0))
    assert len(learned.averaged(8, rng=np.random.default_rng(1)).draws) == 4
    monkeypatch.setattr(ExactEvidence, "posterior", failing(lambda count: True))
    nothing = learned.averaged(8, rng=np.random.default_rng(1)).value(policy, logs.contexts)
    plain = learned.posterior.value(policy, logs.contexts)
    assert_allclose([nothing.value, nothing.posterior_std], [plain.value, plain.posterior_std])


def test_laplaces_evidence_has_the_slope_of_its_fits():
    rng = np.random.default_rng(3)
    prior = ma.priors.from_categories(rng.integers(0, 3, 12), dim=2)
    logs = draw_logs(rng, prior, 1.0, 120)
    clicks = ma.LoggedData(logs.contexts, logs.actions, (logs.rewards > 0).astype(float), n_actions=12)
    likelihood = ma.Bernoulli("laplace")
    evidence = evidence_of(clicks, likelihood, 12)
    hyper = Hyperparameters(
        prior, None, evidence.seen, evidence.scale, effect_cov="scale", action_cov="scale", means="fixed",
        learn_noise=False,
    )  # fmt: skip
    eta = np.array([-0.3, 0.2])
    value, slope = evidence.at(hyper, eta, avoid_boundary=False)

    def objective(x):
        # The actions' own spread comes first.
        built = ma.HierarchicalGaussian(
            prior.latent_mean, np.exp(2 * x[1]) * prior.latent_cov, prior.mixing, np.exp(2 * x[0])
        )
        return ma.fit(clicks, built, likelihood, tolerance=1e-12, max_iterations=500).log_evidence

    step = 1e-3 * np.eye(2)
    assert value == pytest.approx(objective(eta), abs=1e-5)
    differences = [(objective(eta + row) - objective(eta - row)) / 2e-3 for row in step]
    assert_allclose(slope, differences, rtol=1e-3, atol=1e-3)


def test_sums_are_refused_where_rounds_are_needed():
    with pytest.raises(InputError, match=r"logs must be rounds under Bernoulli; got Statistics\. Pass LoggedData"):
        evidence_of(ma.Statistics.empty(3, 2), ma.Bernoulli(), 3)


def test_rounds_of_weight_zero_teach_a_stream_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("manyarms.logs.log_stream.BATCH", 50)
    rng = np.random.default_rng(0)
    prior = ma.priors.from_categories(rng.integers(0, 4, 20), dim=2)
    logs = draw_logs(rng, prior, 1.0, 200)
    weights = np.ones(200)
    weights[:60] = 0.0
    table = {"x": logs.contexts[:, 1], "a": logs.actions, "r": logs.rewards, "w": weights}
    pq.write_table(pa.table(table), tmp_path / "logs.parquet", row_group_size=50)
    stream = ma.read_logs(tmp_path / "logs.parquet", ["x"], "a", "r", weight="w", n_actions=20)
    kept = stream.collect().take(np.arange(60, 200))
    assert_allclose(ma.learn_prior(stream, prior).eta, ma.learn_prior(kept, prior).eta, rtol=1e-6, atol=1e-8)
