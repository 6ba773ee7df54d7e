"""Rewards that are not Gaussian, as a user meets them: wide posteriors, hurdles, other columns, wrong turns."""

from itertools import pairwise

import jaxtyping
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats
from scipy.special import expit, log_expit

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, NumericalError, RangeError, ShapeError
from manyarms.likelihoods import Poisson
from manyarms.likelihoods.likelihood import QuadratureLikelihood

WIDTHS = (0.1, 0.5, 1.0, 1.49, 1.51, 2.0, 3.0, 5.0, 10.0, 30.0)


@pytest.fixture
def unchecked():
    """As users run it: without the types that these tests check."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def integral(f, m, s):
    """E f(η) for η ~ N(m, s²), by scipy between the places where the integrand turns."""
    bends = np.clip([-40.0, -m / s - 40 / s, -m / s - 5 / s, -m / s, -m / s + 5 / s, -m / s + 40 / s, 0.0, s], -40, 40)
    edges = np.unique([*bends, -10.0, 10.0, 40.0])
    return sum(
        integrate.quad(lambda z: f(m + s * z) * stats.norm.pdf(z), a, b, epsabs=0, epsrel=1e-9, full_output=1)[0]
        for a, b in pairwise(edges)
    )


# One round.


@pytest.mark.parametrize("s", WIDTHS)
def test_expectations_of_clicks_are_the_integrals_however_wide_the_predictor(s):
    one, means = ma.Bernoulli(), np.array([-30.0, -20.0, -10.0, -5.0, -2.0, -0.3, 0.0, 1.0, 5.0])
    v, clicked, not_clicked = np.full_like(means, s**2), np.ones_like(means), np.zeros_like(means)
    rate = np.array([integral(expit, m, s) for m in means])
    assert_allclose(one.mean_reward(means, v), rate, rtol=1e-6)
    assert_allclose(one.score(means, v), rate, rtol=1e-6)
    assert_allclose(one.log_predictive(clicked, means, v), np.log(rate), rtol=1e-6, atol=1e-6)
    slope = np.array([integral(lambda eta: expit(eta) * expit(-eta), m, s) for m in means])
    assert_allclose(one.mean_slope(means, v), slope, rtol=1e-5)
    found, weight = one.slopes(not_clicked, means, v)
    assert_allclose(-found, rate, rtol=1e-6)
    assert_allclose(weight, slope, rtol=1e-5)
    for reward, sign in ((clicked, 1.0), (not_clicked, -1.0)):
        exact = [integral(lambda eta, sign=sign: log_expit(sign * eta), m, s) for m in means]
        assert_allclose(one.expected_log_density(reward, means, v), exact, rtol=1e-6)


def test_where_quadrature_ends_the_closed_form_goes_on():
    m, (left, right) = np.linspace(-30.0, 30.0, 301), (1.5**2, np.nextafter(1.5, 2.0) ** 2)
    one, click = ma.Bernoulli(), np.ones(301)
    for f in (one.mean_reward, one.mean_slope, lambda m, v: one.expected_log_density(click, m, v)):
        assert_allclose(f(m, np.full(301, left)), f(m, np.full(301, right)), rtol=2e-6, atol=1e-15)


class ByQuadrature(QuadratureLikelihood):
    """Clicks again, as a likelihood of one's own."""

    treatment = "variational"

    def log_density(self, rewards, predictor):
        return log_expit((2 * rewards - 1) * predictor)

    def derivatives(self, rewards, predictor):
        return rewards - expit(predictor), -expit(predictor) * expit(-predictor)

    def mean_reward(self, mean, variance):
        return ma.Bernoulli().mean_reward(mean, variance)

    def mean_slope(self, mean, variance):
        return ma.Bernoulli().mean_slope(mean, variance)


def test_a_likelihood_of_ones_own_is_integrated_however_wide_the_predictor():
    m, s = (grid.ravel() for grid in np.meshgrid([-30.0, -10.0, -3.0, 0.0, 3.0, 10.0], WIDTHS))
    for reward in (0.0, 1.0):
        r = np.full_like(m, reward)
        for name in ("expected_log_density", "slopes", "log_predictive"):
            got, closed = (getattr(one, name)(r, m, s**2) for one in (ByQuadrature(), ma.Bernoulli()))
            assert_allclose(got, closed, rtol=1e-3, atol=1e-5)


# Hurdles.


def bought(rewards, *, n_actions=3, weights=None):
    """Rounds with one feature, actions in turn."""
    n = len(rewards)
    return ma.LoggedData(np.ones((n, 1)), np.arange(n) % n_actions, rewards, n_actions=n_actions, weights=weights)


def flat(mean, cov, n_actions=3):
    return ma.priors.independent(n_actions, mean=np.array([mean]), cov=cov)


SHOP = ma.Hurdle(ma.Bernoulli(), ma.LogNormal(0.5))


def test_an_action_shown_but_never_bought_is_unsupported():
    """Action 1 was shown and never bought: what it would fetch is the prior's."""
    posterior = ma.fit(bought([2.0, 0.0, 0.0] * 10), flat(0.0, 1.0), SHOP)
    for action, share in ((0, 0.0), (1, 1.0)):
        always = ma.TablePolicy(np.eye(3)[[action] * 4])
        estimate = posterior.value(always, np.ones((4, 1)))
        assert estimate.diagnostics["unsupported_mass"] == share
        assert any("never with a reward" in text for text in estimate.warnings) == (share > 0)


def test_a_part_without_rounds_is_said_to_be_the_priors():
    posterior = ma.fit(bought([0.0] * 9), flat(0.0, 1.0), SHOP)
    warnings = posterior.value(ma.Uniform(3), np.ones((4, 1))).warnings
    assert any("how much a reward is" in text for text in warnings)
    assert not any("whether there is" in text for text in warnings)


def test_the_spread_of_a_hurdle_counts_the_product_of_both_errors():
    """Amounts as uncertain as they are large; draws of all weights are the oracle, actions share what they have."""
    rng = np.random.default_rng(0)
    shared = ma.priors.from_categories(np.zeros(3, dtype=int), dim=1, effect_std=0.5, action_std=0.3)
    priors = (shared + flat(-0.5, 0.0), ma.HierarchicalGaussian(np.ones(1), 4.0, np.ones((3, 1, 1)), 1.0))
    empty = ma.LoggedData(np.empty((0, 1)), [], [], n_actions=3)
    posterior = ma.fit(empty, priors, ma.Hurdle(ma.Bernoulli(), ma.Gaussian(1.0)))
    x = np.ones((3, 1))
    drawn = [part.sample(rng, 400_000)[:, :, 0] for part in priors]
    rewards = expit(drawn[0]) * drawn[1]
    assert_allclose(posterior.reward_std(x, [0, 1, 2]), rewards.std(axis=0), rtol=0.01)
    assert_allclose(posterior.value(ma.Uniform(3), x).posterior_std, rewards.mean(axis=1).std(), rtol=0.01)
    gap, table = rewards @ [0.5, -0.5, 0.0], ma.TablePolicy(np.eye(3)[[0, 0]])
    found = posterior.difference(table, ma.TablePolicy(np.eye(3)[[1, 1]]), x[:2])
    assert_allclose(found.posterior_std, 2 * gap.std(), rtol=0.01)


def test_a_hurdle_names_the_row_of_the_log_as_it_was_given():
    rewards = [0.0, 0.0, 5.0, 0.0, -2.0]
    for verb in (
        lambda logs: ma.fit(logs, flat(0.0, 1.0), SHOP),
        ma.fit(bought([0.0, 1.0, 2.0]), flat(0.0, 1.0), SHOP).update,
        ma.fit(bought([0.0, 1.0, 2.0]), flat(0.0, 1.0), SHOP).refit,
    ):
        with pytest.raises(RangeError, match=r"row 4 has -2\.0.*Hurdle\(Bernoulli\(\), Gaussian"):
            verb(bought(rewards))
    assert ma.fit(bought(rewards), flat(0.0, 1.0), ma.Hurdle(ma.Bernoulli(), ma.Gaussian())).converged


def test_a_hurdle_has_the_verbs_of_a_posterior():
    rng = np.random.default_rng(1)
    logs = bought(np.where(rng.random(60) < 0.5, rng.lognormal(size=60), 0.0))
    first = ma.fit(logs.take(slice(0, 30)), flat(0.0, 1.0), SHOP, max_iterations=1)
    assert not first.converged
    assert any("allow more iterations" in text for text in first.warnings)
    whole, again = ma.fit(logs, flat(0.0, 1.0), SHOP), first.refit(logs)
    assert again.converged
    assert again.warnings == ()
    assert_allclose(again.expected_reward(np.ones((1, 1))), whole.expected_reward(np.ones((1, 1))), rtol=1e-3)
    grown = whole.with_actions(np.zeros((2, 1, 0)))
    assert grown.n_actions == 5
    assert grown.value(ma.Uniform(5), np.ones((4, 1))).diagnostics["unsupported_mass"] == pytest.approx(0.4)


def test_estimators_take_a_hurdle():
    """DM is its value; DR is mean of w (r - r̂) + Σ_a π r̂, with the product of both parts for r̂."""
    rng = np.random.default_rng(2)
    train, test = (
        ma.LoggedData(
            np.ones((90, 1)), np.arange(90) % 3, np.where(rng.random(90) < 0.5, rng.lognormal(size=90), 0.0),
            np.full(90, 1 / 3), n_actions=3,
        )
        for _ in range(2)
    )  # fmt: skip
    prior = flat(0.0, 1.0)
    posterior, policy = ma.fit(train, prior, SHOP), ma.TablePolicy(np.tile([0.5, 0.5, 0.0], (90, 1)))
    expected = posterior.expected_reward(np.ones((1, 1)))[0]
    direct = expected @ [0.5, 0.5, 0.0]
    assert ma.DM(posterior).estimate(policy, test).value == pytest.approx(direct)
    weights = np.array([1.5, 1.5, 0.0])[test.actions]
    doubly = np.mean(weights * (test.rewards - expected[test.actions])) + direct
    assert ma.DR(posterior).estimate(policy, test).value == pytest.approx(doubly)
    crossed = ma.DR(ma.CrossFit((prior, prior), SHOP, n_folds=3, rng=rng)).estimate(policy, test)
    assert crossed.value == pytest.approx(doubly, abs=3 * crossed.std)
    with pytest.raises(DataTypeError, match="Gaussian or StudentT"):
        ma.DRLearner(posterior).learn(test)


# Values by draws.


def test_draws_keep_the_exact_mean_and_tell_of_a_tail_too_heavy_for_them():
    """E r = e^(9/2 + 1/2); with 1000 draws of a log-normal of variance 9 the mean is anywhere between 60 and 300."""
    rng = np.random.default_rng(3)
    empty = ma.LoggedData(np.empty((0, 1)), [], [], n_actions=1)
    posterior = ma.fit(empty, flat(0.0, 9.0, 1), ma.LogNormal(1.0))
    policy, x = ma.Uniform(1), np.ones((2, 1))
    drawn = posterior.value_draws(policy, x, n_draws=1000, rng=rng)
    assert drawn.value == posterior.value(policy, x).value == pytest.approx(np.exp(5.0))
    draws = drawn.posterior_shape.draws
    assert drawn.diagnostics["monte_carlo_std"] == pytest.approx(draws.std(ddof=1) / np.sqrt(1000))
    assert any("one of 1000 draws" in text for text in drawn.warnings)
    narrow = ma.fit(empty, flat(0.0, 0.25, 1), ma.LogNormal(1.0)).value_draws(policy, x, n_draws=200, rng=rng)
    assert not any("draws" in text for text in narrow.warnings)
    probit = ma.fit(empty, flat(-4.0, 4.0, 1), ma.Bernoulli(expected="probit"))
    found = probit.value_draws(policy, x, n_draws=2000, rng=rng)
    assert found.value == found.posterior_shape.draws.mean() != probit.value(policy, x).value


def test_an_estimate_is_printed_without_its_draws():
    posterior = ma.fit(bought([1.0, 0.0, 1.0]), flat(0.0, 1.0), ma.Bernoulli())
    drawn = posterior.value_draws(ma.Uniform(3), np.ones((2, 1)), n_draws=500, rng=np.random.default_rng(0))
    assert "monte_carlo_std" in repr(drawn)
    assert len(repr(drawn)) < 1000


# Steps, starts, updates.


class Backwards(Poisson):
    """Slopes with the wrong sign: every step goes down."""

    def slopes(self, rewards, mean, variance):
        slope, weight = super().slopes(rewards, mean, variance)
        return -5.0 * slope, weight


def test_a_fit_that_no_step_helps_is_not_told_to_take_more_of_them():
    stuck = ma.fit(bought([3.0, 9.0, 0.0] * 4), flat(0.0, 1.0), Backwards())
    assert not stuck.converged
    assert any("no step raised the objective" in text for text in stuck.warnings)
    assert not any("more iterations" in text for text in stuck.warnings)


def test_an_update_does_not_mend_a_fit_that_was_cut_short():
    short = ma.fit(bought([1.0, 0.0, 0.0] * 9), flat(0.0, 1.0), ma.Bernoulli(), max_iterations=1)
    more = ma.LoggedData(np.full((6, 1), 0.5), [0, 1, 2] * 2, [1.0, 0.0, 1.0] * 2)
    assert not short.update(more).converged
    assert ma.fit(more, flat(0.0, 1.0), ma.Bernoulli()).update(more.with_rewards(np.ones(6))).converged


def test_refit_linearises_anew():
    """The mode moves far with more rounds; the slope of tanh there is another."""
    rng = np.random.default_rng(4)
    hierarchy = ma.NonlinearHierarchy(
        np.zeros(1), 4.0, lambda psi, items: np.tile(3.0 * np.tanh(psi), (len(items), 1)), 0.01, n_actions=4, dim=1
    )
    few, many = (
        ma.LoggedData(np.ones((n, 1)), np.arange(n) % 4, centre + 0.3 * rng.normal(size=n), n_actions=4)
        for n, centre in ((4, 0.5), (400, 2.7))
    )
    first = ma.fit_nonlinear(few, hierarchy, ma.Gaussian(0.3))
    again, fresh = first.refit(many), ma.fit_nonlinear(many, hierarchy, ma.Gaussian(0.3))
    assert_allclose(again.latent_mode, fresh.latent_mode, atol=1e-3)
    assert_allclose(again.weights.action_cov([0]), fresh.weights.action_cov([0]), rtol=1e-2)
    assert abs(again.latent_mode[0] - first.latent_mode[0]) > 0.5
    with pytest.raises(InputError, match="fit_nonlinear"):
        first.with_actions(np.ones((1, 1, 1)), offset=np.zeros(1)).refit(many)


def test_starts_that_do_not_fit_are_refused():
    logs = bought([1.0, 0.0, 1.0])
    other = ma.fit(ma.LoggedData(np.ones((4, 1)), [0, 1, 2, 3], [1, 0, 1, 0]), flat(0.0, 1.0, 4), ma.Bernoulli())
    with pytest.raises(ShapeError, match="start has 4 actions in 1 dimensions; the prior has 3 in 1"):
        ma.fit(logs, flat(0.0, 1.0), ma.Bernoulli(), start=other)


def test_heavy_tails_say_that_intervals_are_too_narrow():
    for degrees, told in ((1.5, True), (3.0, True), (6.0, False)):
        posterior = ma.fit(bought([1.0, 0.0, 1.0]), flat(0.0, 1.0), ma.StudentT(1.0, degrees))
        assert any("too narrow" in text for text in posterior.warnings) == told


# Wrong turns.


def test_a_policy_learned_from_clicks_is_told_when_judged_on_the_spend_of_the_same_rounds():
    rng = np.random.default_rng(5)
    x, actions = rng.normal(size=(200, 2)), rng.integers(0, 3, 200)
    clicks = (rng.random(200) < 0.5).astype(float)
    columns = {"propensities": np.full(200, 1 / 3), "n_actions": 3}
    learned = ma.fit(ma.LoggedData(x, actions, clicks, **columns), ma.priors.independent(3, dim=2), ma.Bernoulli())
    for rounds, reused in ((x, True), (rng.normal(size=(200, 2)), False)):
        spend = ma.LoggedData(rounds, actions, clicks * rng.lognormal(size=200), **columns)
        found = ma.IPS().estimate(ma.Greedy(learned), spend)
        assert found.diagnostics["evaluated_on_training_rounds"] == reused


def test_sums_of_rewards_are_not_read_as_sums_of_logarithms():
    sums = ma.Gaussian().statistics(bought([1.0, 2.0, 3.0]), 3)
    for likelihood in (ma.LogNormal(), ma.StudentT(), ma.Poisson()):
        with pytest.raises(InputError, match="needs the rounds themselves"):
            ma.fit(sums, flat(0.0, 1.0), likelihood)


@pytest.mark.parametrize(
    ("likelihood", "bad"),
    [(ma.Bernoulli(), 0.5), (ma.Poisson(), -1.0), (ma.LogNormal(), 0.0), (SHOP, -3.0)],
    ids=["clicks", "counts", "amounts", "hurdle"],
)
def test_rounds_of_weight_zero_may_hold_anything_and_rows_keep_their_numbers(likelihood, bad):
    rewards = [bad, 1.0, 1.0, 1.0, 1.0]
    got = ma.fit(bought(rewards, weights=[0.0, 1.0, 1.0, 1.0, 1.0]), flat(0.0, 1.0), likelihood)
    kept = ma.fit(bought(rewards).take(np.arange(1, 5)), flat(0.0, 1.0), likelihood)
    x = np.ones((1, 1))
    assert_allclose(got.expected_reward(x), kept.expected_reward(x))
    assert np.isfinite(got.log_evidence)
    with pytest.raises(RangeError, match=f"row 4 has {bad}"):
        ma.fit(bought([bad, 1.0, 1.0, 1.0, bad], weights=[0.0, 1, 1, 1, 1]), flat(0.0, 1.0), likelihood)


def test_a_class_for_a_likelihood_is_to_be_called(unchecked):
    for kind in (ma.Bernoulli, ma.Hurdle):
        with pytest.raises(DataTypeError, match=rf"Pass {kind.__name__}\(\)"):
            ma.fit(bought([1.0, 0.0, 1.0]), flat(0.0, 1.0), kind)
        with pytest.raises(DataTypeError, match=rf"Pass {kind.__name__}\(\)"):
            ma.CrossFit(flat(0.0, 1.0), kind, rng=np.random.default_rng(0))
    with pytest.raises(DataTypeError, match="likelihood must be a likelihood"):
        ma.CrossFit(flat(0.0, 1.0), "clicks", rng=np.random.default_rng(0))


def test_what_runs_now_is_tied_to_the_rows_of_its_log():
    logs = bought([1.0, 0.0, 1.0])
    posterior = ma.fit(logs, flat(0.0, 1.0), ma.Bernoulli())
    with pytest.raises(ShapeError, match="3 rows of its log, and there are 5 contexts"):
        posterior.difference(ma.Greedy(posterior), ma.Logged(logs), np.ones((5, 1)))


def test_an_overflow_is_an_error_of_its_own_kind_and_no_warning():
    """Warnings are errors in these tests."""
    logs = bought([1.0, 2.0, 1.0])
    wide = ma.fit(logs, flat(0.0, 1e5), ma.LogNormal(1.0))
    both = ma.fit(logs, (flat(0.0, 1.0), flat(0.0, 1e5)), SHOP)
    x = 100.0 * np.ones((400, 1))
    for posterior in (wide, both):
        for verb in (
            lambda p=posterior: p.value(ma.Uniform(3), x),
            lambda p=posterior: p.value(ma.Greedy(p), x),
            lambda p=posterior: p.difference(ma.Greedy(p), ma.Uniform(3), x),
            lambda p=posterior: p.value_draws(ma.Uniform(3), x, n_draws=10, rng=np.random.default_rng(0)),
        ):
            with pytest.raises(NumericalError):
                verb()
