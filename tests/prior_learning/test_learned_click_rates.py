"""The rate of clicks and counts is learned with the prior, also where all actions share an effect."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, logit

import manyarms as ma
from manyarms.posterior.action_scores import Predictor
from manyarms.prior_learning.evidence import ApproximateEvidence
from manyarms.prior_learning.hyperparameters import Hyperparameters

CATEGORIES = np.arange(40) % 5


def draw_clicks(seed, rate, n_rounds=3000, dim=4):
    """Clicks of 40 actions in 5 categories, the first column of the contexts constant."""
    rng = np.random.default_rng(seed)
    theta = ma.priors.from_categories(CATEGORIES, dim=dim, effect_std=0.3, action_std=0.2).sample(rng)[0]
    contexts = np.column_stack([np.ones(n_rounds), rng.normal(size=(n_rounds, dim - 1))])
    actions = rng.integers(40, size=n_rounds)
    eta = logit(rate) + np.einsum("nd,nd->n", contexts, theta[actions])
    clicks = (rng.random(n_rounds) < expit(eta)).astype(float)
    return ma.LoggedData(contexts, actions, clicks, n_actions=40)


def recipe(dim=4):
    """The prior of the README and of the command line."""
    return ma.priors.from_categories(CATEGORIES, dim=dim, shared_std=1.0)


def moved(prior, column, step):
    """The prior with the mean of its first effect, which all actions share, moved in one column."""
    mean = prior.latent_mean.copy()
    mean[column] += step
    return prior.with_parts(mean, prior.prior_factor, prior.action_covariance, prior.offset)


@pytest.mark.slow
def test_the_recipe_expects_the_click_rate_of_the_logs_and_does_not_block_itself():
    train, test = draw_clicks(1, 0.02, n_rounds=6000).split(0.5, rng=np.random.default_rng(0))
    learned = ma.learn_prior(train, recipe(), ma.Bernoulli())
    expected = ma.Bernoulli().mean_reward(
        *Predictor(learned.prior, ma.Bernoulli()).pairs(train.contexts, train.actions)
    )
    observed = train.rewards.mean()
    assert observed / 1.5 < expected.mean() < 1.5 * observed
    assert ma.check_prior(learned.posterior).warnings == ()
    decision = ma.decide({"greedy": ma.Greedy(learned.posterior)}, test, learned.posterior, categories=CATEGORIES)
    assert not decision.category_checks.flagged
    assert "contradict" not in decision.reason
    assert all(abs(row.prior_z) < 2 for row in decision.category_checks)


@pytest.mark.slow
def test_no_other_mean_has_more_evidence():
    """Finite differences of the evidence of fits: exactly at the top if maximised, close to it if integrated out."""
    logs = draw_clicks(2, 0.04, n_rounds=1500)
    for means, off in (("maximised", 0.02), ("integrated", 0.5)):
        learned = ma.learn_prior(logs, recipe(), ma.Bernoulli(), means=means)
        (mean,) = (p for p in learned.parameters if "mean" in p.name)
        assert mean.name == "shared mean 0"
        assert mean.value == learned.prior.latent_mean[0]

        def evidence(step, prior=learned.prior):
            return ma.fit(logs, moved(prior, 0, step), ma.Bernoulli(), tolerance=1e-10).log_evidence

        low, here, high = (evidence(step) for step in (-0.2, 0.0, 0.2))
        curvature = (2 * here - low - high) / 0.2**2
        assert curvature > 0
        # How far the top of the parabola lies from the learned mean, in standard errors of the mean.
        assert abs((high - low) / 0.4 / curvature) < off * mean.error
        assert evidence(-3 * mean.error) < here > evidence(3 * mean.error)


@pytest.mark.slow
def test_the_posterior_does_not_take_the_learned_rate_for_certain():
    """The common level has at least 94 % of the standard deviation that it has under a flat prior."""
    learned = ma.learn_prior(draw_clicks(3, 0.03), recipe(), ma.Bernoulli())
    even = np.tile(np.eye(4)[0] / 40, (40, 1))
    plugged, flat = (w.variance_of(even, np.arange(40)) ** 0.5 for w in (learned.posterior.weights, learned.flexible))
    assert 0.94 < plugged / flat < 1.01
    assert not any("certain" in note for note in learned.notes)


@pytest.mark.slow
def test_the_constant_column_may_be_any_and_is_needed():
    logs = draw_clicks(4, 0.05, n_rounds=800)
    turned = ma.LoggedData(logs.contexts[:, [1, 2, 0, 3]], logs.actions, logs.rewards, n_actions=40)
    first, last = (ma.learn_prior(each, recipe(), ma.Bernoulli()) for each in (logs, turned))
    assert [p.name for p in last.parameters if "mean" in p.name] == ["shared mean 2"]
    assert last.prior.latent_mean[2] == pytest.approx(first.prior.latent_mean[0], abs=0.02)
    varying = logs.contexts + 0.3 * np.random.default_rng(0).normal(size=logs.contexts.shape)
    without = ma.learn_prior(ma.LoggedData(varying, logs.actions, logs.rewards, n_actions=40), recipe(), ma.Bernoulli())
    assert not without.prior.latent_mean.any()
    assert any("the mean stays as given" in note for note in without.notes)


@pytest.mark.parametrize("dim", [1, 2])
def test_with_few_columns_the_standard_deviation_of_the_shared_effect_stays_as_given(dim):
    logs = draw_clicks(5, 0.1, n_rounds=500, dim=dim)
    learned = ma.learn_prior(logs, recipe(dim), ma.Bernoulli())
    assert_allclose(np.diagonal(learned.prior.latent_cov)[:dim], 1.0)
    assert learned.prior.latent_mean[0] == pytest.approx(logit(logs.rewards.mean()), abs=0.5)
    assert any(note.startswith("shared: its standard deviation stays") for note in learned.notes)


def test_gradient_with_a_mean_in_one_column_is_that_of_the_objective():
    logs = draw_clicks(6, 0.1, n_rounds=300)
    evidence = ApproximateEvidence(logs, ma.Bernoulli(), 40)
    assert evidence.constant == 0
    hyper = Hyperparameters(
        recipe(), None, evidence.seen, evidence.scale, effect_cov="scale", action_cov="scale",
        means="maximised", learn_noise=True, constant=0,
    )  # fmt: skip
    assert hyper.size == 4  # actions, shared, category, one mean
    eta = hyper.start() + 0.2 * np.random.default_rng(0).normal(size=hyper.size)

    def objective(x):
        return ma.fit(logs, hyper.build(x)[0], ma.Bernoulli(), tolerance=1e-11, max_iterations=1000).log_evidence

    differences = [(objective(eta + row) - objective(eta - row)) / 2e-3 for row in 1e-3 * np.eye(hyper.size)]
    assert_allclose(evidence.log_evidence(hyper, eta)[1], differences, rtol=1e-3, atol=1e-3)
