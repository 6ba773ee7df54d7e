"""The trend of residuals with surprise: least squares as far as it exceeds its noise, added to what a model says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.estimators.checked_value import _trend, checked_value_parts
from manyarms.estimators.policy_residuals import PolicyResiduals
from manyarms.estimators.surprise_trend import SurpriseTrend

N = 400


def rounds(slope, seed=0, noise=0.3, **columns):
    """Rounds whose rewards fall with surprise, which the model does not know."""
    rng = np.random.default_rng(seed)
    propensities = rng.uniform(0.02, 0.9, size=N)
    predicted = rng.uniform(size=N)
    rewards = predicted + slope * (-np.log(propensities) - 1.0) + noise * rng.normal(size=N)
    logs = ma.LoggedData(
        np.ones((N, 1)), np.zeros(N, dtype=int), rewards, n_actions=4, propensities=propensities, **columns
    )
    return PolicyResiduals(logs, np.ones(N), predicted, predicted), propensities


def test_the_slope_is_that_of_least_squares_less_its_noise():
    """An oracle without the library: polyfit, and the sandwich variance of its slope."""
    seen, propensities = rounds(-0.2)
    surprises = -np.log(propensities)
    residuals = seen.logs.rewards - seen.at_logged
    slope, constant = np.polyfit(surprises, residuals, 1)
    apart, rest = surprises - surprises.mean(), residuals - constant - slope * surprises
    variance = (apart**2 @ rest**2) / (apart @ apart) ** 2 * N / (N - 1)
    trend = SurpriseTrend.learn(seen, propensities)
    trusted = 1 - variance / slope**2
    assert_allclose([trend.slope, trend.level], [trusted * slope, trusted * residuals.mean()], rtol=1e-9)
    assert abs(trend.slope + 0.2) < 0.05


def test_a_model_that_is_right_is_hardly_changed_and_equal_propensities_change_nothing():
    slopes = [SurpriseTrend.learn(*rounds(0.0, seed)).slope for seed in range(20)]
    assert np.median(np.abs(slopes)) < 0.01
    seen, _ = rounds(-0.2)
    trend = SurpriseTrend.learn(seen, np.full(N, 0.25))
    assert trend.slope == 0.0
    assert trend.corrected(seen) is seen


def test_the_weighted_mean_of_all_rounds_stays_and_missing_weight_counts_as_one_round():
    seen, propensities = rounds(-0.2)
    trend, surprises = SurpriseTrend.learn(seen, propensities), -np.log(propensities)
    rng = np.random.default_rng(1)
    policy = PolicyResiduals(seen.logs, rng.uniform(1.0, 3.0, size=N), seen.at_logged, rng.uniform(size=N))
    corrected = trend.corrected(policy)
    # With all weight in the log, self-normalised residuals take back what the trend has added.
    assert_allclose(corrected.model + corrected.correction, policy.model + policy.correction, rtol=1e-12)
    half = PolicyResiduals(seen.logs, 0.5 * (surprises > 1.0), seen.at_logged, seen.expected)
    total = half.weights.sum()
    mean = (half.weights @ surprises + (N - total) * min(np.log(N - total), surprises.max())) / N
    added = trend.level + trend.slope * (np.append(surprises, mean) - surprises.mean())
    assert_allclose(trend.corrected(half).model - half.model, added[-1], rtol=1e-9)
    assert_allclose(trend.corrected(half).at_logged - half.at_logged, added[:-1])


@pytest.mark.parametrize("kind", ["groups", "weights"])
def test_groups_add_noise_and_weights_are_counts(kind):
    plain, propensities = rounds(-0.05)
    if kind == "groups":
        doubled = np.repeat(np.arange(N), 2)
        logs = plain.logs.take(doubled)
        grouped = ma.LoggedData(
            logs.contexts, logs.actions, logs.rewards, logs.propensities, 4, groups=np.repeat(np.arange(N), 2)
        )
        again = PolicyResiduals(grouped, np.ones(2 * N), plain.at_logged[doubled], plain.expected[doubled])
        expected = SurpriseTrend.learn(plain, propensities)
        assert_allclose(SurpriseTrend.learn(again, propensities[doubled]).slope, expected.slope, rtol=1e-9)
    else:
        counts = 1 + np.arange(N) % 3
        weighted = rounds(-0.05, weights=counts.astype(float))[0]
        rows = np.repeat(np.arange(N), counts)
        copies = PolicyResiduals(plain.logs.take(rows), np.ones(len(rows)), plain.at_logged[rows], plain.expected[rows])
        expected = SurpriseTrend.learn(copies, propensities[rows])
        assert_allclose(SurpriseTrend.learn(weighted, propensities).slope, expected.slope, rtol=1e-9)


def test_the_trend_is_kept_if_test_policies_speak_for_it():
    """Surprise that hides errors brings a trend; surprise that test policies see no error in does not."""
    kept = _trend(*rounds(-0.4))
    assert kept.slope < -0.3
    # Rewards are as predicted for every fifth of the predictions, weighted by 1 / π_0; the log prefers lucky rounds.
    rng = np.random.default_rng(3)
    lucky = rng.normal(size=20 * N)
    chosen = rng.random(20 * N) < (shares := 1 / (1 + np.exp(-1.5 * lucky)))
    predicted, propensities = rng.uniform(1.0, 2.0, size=chosen.sum()), shares[chosen]
    n = len(predicted)
    logs = ma.LoggedData(
        np.ones((n, 1)), np.zeros(n, dtype=int), predicted + 0.3 * lucky[chosen], propensities=propensities, n_actions=2
    )
    fair = PolicyResiduals(logs, np.ones(n), predicted, predicted)
    assert SurpriseTrend.learn(fair, propensities).slope < -0.05
    assert _trend(fair, propensities).slope == 0.0


def clicks_for_reasons(slope, seed=0, n=4000):
    """Clicks whose rates differ by action, and fall with surprise."""
    rng = np.random.default_rng(seed)
    actions, propensities = rng.integers(4, size=n), rng.uniform(0.1, 0.9, size=n)
    rates = np.array([0.35, 0.4, 0.45, 0.5])[actions] + slope * (-np.log(propensities) - 0.8)
    rewards = (rng.random(n) < rates).astype(float)
    return ma.LoggedData(np.ones((n, 1)), actions, rewards, n_actions=4, propensities=propensities)


@pytest.mark.parametrize(
    ("likelihood", "slope", "may_be_right"),
    [(ma.Bernoulli(), -0.15, False), (ma.Gaussian(0.5), -0.15, True), (ma.Bernoulli(), 0.0, True)],
    ids=["clicks", "linear", "clicks without a trend"],
)
def test_a_model_of_clicks_that_needs_a_trend_is_not_held_to_be_right(likelihood, slope, may_be_right):
    """A line added to a linear model is another linear model; added to a model of clicks it is none that could be."""
    logs = clicks_for_reasons(slope)
    train, test = logs.take(np.arange(2000)), logs.take(np.arange(2000, 4000))
    checked = ma.Checked(ma.fit(train, ma.priors.independent(4, dim=1), likelihood))
    error = checked_value_parts(checked, ma.Uniform(4), test)[2]
    learned_slope = checked._prepare(test, ma.Uniform(4), None).trend.slope
    assert learned_slope == pytest.approx(slope, abs=0.05)
    assert (learned_slope == 0.0) == (slope == 0.0)
    assert (error.scales.min() == 0.0) == may_be_right


def on_rounds(seen, rows):
    """A policy that repeats some of the rounds, equally often, and so carries their weight."""
    weights = np.zeros(len(seen.logs))
    weights[rows] = len(weights) / len(rows)
    return PolicyResiduals(seen.logs, weights, seen.at_logged, seen.expected)


@pytest.mark.parametrize("slope", [-0.2, 0.2])
def test_hidden_reasons_flatter_a_policy_as_far_as_the_trend_takes_from_it(slope):
    seen, propensities = rounds(slope)
    trend, surprises = SurpriseTrend.learn(seen, propensities), -np.log(propensities)
    extents = list[float]()
    for rows in np.array_split(np.argsort(surprises), 8):
        extra = surprises[rows].mean() - surprises.mean()
        expected = trend.trust * min(abs(extra), 1.0) if slope * extra < 0 else 0.0
        extents.append(trend.flatters(on_rounds(seen, rows)))
        assert_allclose(extents[-1], expected, rtol=1e-9)
    # Some eighths are not flattered, one is in part, and one is in full where surprise is what flatters.
    assert min(extents) == 0.0 and 0.1 < sorted(extents)[-2] < 1.0
    assert (max(extents) == pytest.approx(trend.trust)) == (slope < 0)


@pytest.mark.parametrize(
    ("slope", "likelihood", "options", "is_known", "expected"),
    [
        (0.0, ma.Gaussian(0.5), {}, True, 0.0),
        (-0.15, ma.Gaussian(0.5), {}, True, 0.95),
        (0.0, ma.Gaussian(0.5), {}, False, None),
        (0.0, ma.Bernoulli(), {}, True, None),
        (0.0, ma.Gaussian(0.5), {"n_folds": 0}, True, None),
    ],
    ids=["none", "a trend", "estimated propensities", "clicks", "own choices not doubted"],
)
def test_reasons_flatter_surprising_choices_if_residuals_show_them(slope, likelihood, options, is_known, expected):
    logs = clicks_for_reasons(slope)
    train, test = logs.take(np.arange(2000)), logs.take(np.arange(2000, 4000))
    if not is_known:
        test = ma.LoggedData(test.contexts, test.actions, test.rewards, n_actions=4)
    posterior = ma.fit(train, ma.priors.independent(4, dim=1), likelihood)
    prepared = ma.Checked(posterior, **options)._prepare(test, ma.Uniform(4), None)
    surprising = np.argsort(prepared.propensities)[:20]
    reasons = prepared.reasons(on_rounds(prepared.rounds, surprising))
    assert reasons == (expected if expected is None else pytest.approx(expected, abs=0.05))


def test_the_trust_in_a_trend_is_the_share_of_its_square_that_is_not_noise():
    seen, propensities = rounds(-0.2)
    trend = SurpriseTrend.learn(seen, propensities)
    least_squares = np.polyfit(-np.log(propensities), seen.logs.rewards - seen.at_logged, 1)[0]
    assert_allclose(trend.trust, trend.slope / least_squares, rtol=1e-9)
    assert 0.9 < trend.trust < 1.0
    assert SurpriseTrend.learn(seen, np.full(N, 0.25)).trust == 0.0


def first(n, **columns):
    """The first n rounds of a log with much noise."""
    seen, propensities = rounds(-0.2, noise=5.0, **columns)
    part = seen.logs.take(np.arange(n))
    return PolicyResiduals(part, np.ones(n), seen.at_logged[:n], seen.expected[:n]), propensities[:n]


@pytest.mark.parametrize("n", range(2, 10))
def test_no_line_is_drawn_through_a_few_rounds(n):
    """A line through two rounds leaves no residual, and so would seem to have no noise."""
    trend = SurpriseTrend.learn(*first(n))
    assert (trend.slope, trend.level, trend.trust) == (0.0, 0.0, 0.0)


def test_no_line_is_drawn_where_one_round_or_a_few_groups_carry_it():
    seen, propensities = rounds(-0.2)
    assert SurpriseTrend.learn(seen, propensities).slope < 0
    lone = np.full(N, 0.5) + 1e-3 * np.arange(N) / N
    lone[7] = 1e-6
    assert SurpriseTrend.learn(seen, lone).slope == 0.0
    assert SurpriseTrend.learn(*rounds(-0.2, groups=np.arange(N) % 5)).slope == 0.0
    assert SurpriseTrend.learn(*rounds(-0.2, groups=np.arange(N) % 50)).slope < 0


@pytest.mark.parametrize("n", [2, 4, 8])
def test_intervals_of_a_few_noisy_rounds_contain_the_truth(n):
    """Rewards are noise, so that no policy gains anything."""
    rng, covered = np.random.default_rng(n), 0
    for _ in range(40):
        x, actions = rng.normal(size=(300, 3)), rng.integers(0, 5, size=300)
        logs = ma.LoggedData(x, actions, 5 * rng.normal(size=300), propensities=np.full(300, 0.2), n_actions=5)
        posterior = ma.fit(logs, ma.priors.independent(5, dim=3), ma.Gaussian(5.0))
        p = rng.uniform(0.02, 0.9, size=n)
        few = ma.LoggedData(x[:n] + 1, actions[:n], 5 * rng.normal(size=n), propensities=p, n_actions=5)
        low, high = ma.Checked(posterior).difference(ma.Softmax(posterior, 1.0), ma.Logged(few), few).interval()
        covered += low <= 0 <= high
    assert covered >= 38
