"""Forecasts of a backtest against the dense joint Gaussian, its sums against SciPy, its alarm by quadrature."""

from datetime import timedelta

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError
from manyarms.jobs.drift_alarm import drift_evidence
from manyarms.jobs.reward_forecast import RewardForecast, reward_sums_of
from manyarms.posterior.model_line import model_line

K, NOISE, EFFECT, ACTION = 5, 0.7, 0.9, 0.4
CATEGORY = np.array([0, 0, 1, 1, 1])


def draw_log(n=60, days=3, seed=0, shift=0.0, shift_from=np.inf, k=K, category=CATEGORY):
    rng = np.random.default_rng(seed)
    effects = EFFECT * rng.normal(size=(category.max() + 1, 2))
    weights = effects[category] + ACTION * rng.normal(size=(k, 2))
    contexts, actions = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.integers(k, size=n)
    day = np.sort(rng.integers(days, size=n))
    rewards = (contexts * weights[actions]).sum(axis=1) + NOISE * rng.normal(size=n) + shift * (day >= shift_from)
    times = np.datetime64("2024-05-01T00:00:00") + day * 86400 + rng.integers(86400, size=n)
    return ma.LoggedData(contexts, actions, rewards, n_actions=k, times=times), day


def first_model(logs, day):
    """The model of the first day, with the true prior."""
    prior = ma.priors.from_categories(CATEGORY, dim=2, effect_std=EFFECT, action_std=ACTION)
    return ma.fit(logs.take(np.flatnonzero(day == 0)), prior, ma.Gaussian(NOISE))


def dense_forecast(logs, past, future, weights):
    """Mean and std of the mean reward of `future` given `past`, from the joint covariance of all rewards."""
    same = CATEGORY[logs.actions][:, None] == CATEGORY[logs.actions]
    alike = logs.actions[:, None] == logs.actions
    cov = (logs.contexts @ logs.contexts.T) * (EFFECT**2 * same + ACTION**2 * alike)
    seen = cov[np.ix_(past, past)] + NOISE**2 * np.diag(1 / weights[past])
    gain = np.linalg.solve(seen, cov[np.ix_(past, future)])
    mean = gain.T @ logs.rewards[past]
    after = cov[np.ix_(future, future)] - cov[np.ix_(future, past)] @ gain + NOISE**2 * np.eye(len(future))
    return mean.mean(), np.sqrt(after.mean())


@pytest.mark.parametrize("half_life", [None, timedelta(days=2)])
def test_forecasts_are_those_of_the_joint_gaussian_of_all_rewards(half_life):
    logs, day = draw_log()
    logged_by = np.where(np.arange(len(logs)) % 3 == 0, "old", "new")
    rest = logs.take(np.flatnonzero(day > 0))
    result = ma.backtest(
        rest, first_model(logs, day), categories=CATEGORY, logged_by=logged_by[day > 0], half_life=half_life
    )
    assert len(result.forecasts) == 2 * (1 + 2 + 2)
    for row in result.forecasts:
        today = int(row.period[-2:]) - 1
        chosen = {"category": CATEGORY[logs.actions].astype(str), "logged by": logged_by}.get(row.series)
        future = np.flatnonzero((day == today) & (True if chosen is None else chosen == row.group))
        # The ages of the rounds in the model are not known: they count from the first forecast.
        ages = np.maximum(today - np.maximum(day, 1), 0)
        weights = np.ones(len(logs)) if half_life is None else 0.5 ** (ages / 2.0)
        mean, std = dense_forecast(logs, np.flatnonzero(day < today), future, weights)
        assert_allclose([row.forecast, row.std], [mean, std], rtol=1e-9)
        assert_allclose(row.observed, logs.rewards[future].mean())
        assert_allclose(row.z, (row.observed - mean) / std, rtol=1e-7)


def test_a_round_of_weight_two_counts_as_that_round_twice():
    logs, day = draw_log()
    rest = logs.take(np.flatnonzero(day > 0))
    twice = np.sort(np.concatenate([np.arange(len(rest)), np.arange(0, len(rest), 4)]))
    weights = np.where(np.arange(len(rest)) % 4 == 0, 2.0, 1.0)
    weighted = ma.LoggedData(rest.contexts, rest.actions, rest.rewards, n_actions=K, times=rest.times, weights=weights)
    ours, theirs = (ma.backtest(rounds, first_model(logs, day)).forecasts for rounds in (weighted, rest.take(twice)))
    # Rounds of one moment twice over; the second copy is counted as new, with a warning.
    assert_allclose([[a.forecast, a.std, a.observed] for a in ours], [[a.forecast, a.std, a.observed] for a in theirs])


@pytest.mark.parametrize("rate, variance, n", [(0.004, 1e-6, 1400), (0.3, 0.01, 50), (0.3, 0.0, 50)])
def test_sums_of_clicks_and_counts_are_those_of_scipy(rate, variance, n):
    """Beta-binomial and negative binomial by SciPy's own formulas; binomial and Poisson where the rate is known."""
    size = rate * (1 - rate) / variance - 1 if variance else np.inf
    clicks = stats.betabinom(n, size * rate, size * (1 - rate)) if variance else stats.binom(n, rate)
    shape = rate**2 / variance if variance else np.inf
    counts = stats.nbinom(shape, shape / (shape + n * rate)) if variance else stats.poisson(n * rate)
    for likelihood, expected in ((ma.Bernoulli(), clicks), (ma.Poisson(), counts)):
        counted = reward_sums_of(likelihood).counts(rate, variance, float(n))
        assert counted is not None
        totals, shares = counted
        assert_allclose(shares, expected.pmf(totals), atol=1e-10)
        forecast = RewardForecast(rate, 0.1, float(n), (totals, shares))
        assert_allclose(np.array(forecast.interval(0.9)) * n, expected.ppf([0.05, 0.95]))
        for total in (0, int(n * rate), int(3 * n * rate) + 1):
            middle = expected.sf(total) + expected.pmf(total) / 2
            assert_allclose(forecast.z_score(total / n), -stats.norm.ppf(middle), atol=1e-6)


def test_noise_is_the_variance_of_rewards_around_their_mean():
    rng = np.random.default_rng(0)
    m, v = 0.3, 0.2
    eta = m + np.sqrt(v) * rng.normal(size=400_000)
    for likelihood, variances in {
        ma.Bernoulli(): 1 / (1 + np.exp(-eta)) * (1 / (1 + np.exp(eta))),
        ma.Poisson(): np.exp(eta),
        ma.LogNormal(0.5): np.exp(2 * eta + 0.25) * np.expm1(0.25),
    }.items():
        noise = reward_sums_of(likelihood).noise(np.array([m]), np.array([v]))[0]
        assert noise == pytest.approx(variances.mean(), abs=5 * variances.std() / np.sqrt(len(eta)))


def test_the_evidence_of_drift_is_a_martingale_if_the_forecasts_are_right():
    """E(evidence after one more score | the scores so far) = evidence so far, by quadrature over that score."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(80)
    shares = shares / shares.sum()
    past = np.array([0.4, -1.3, 2.1, 0.2])
    for t in range(len(past)):
        before = np.exp(drift_evidence(past[:t]).log_evidence[-1]) if t else 1.0
        after = [np.exp(drift_evidence(np.append(past[:t], z)).log_evidence[-1]) for z in nodes]
        assert shares @ after == pytest.approx(before, rel=2e-3)


def test_right_forecasts_rarely_raise_an_alarm_and_drift_soon_does():
    rng = np.random.default_rng(1)
    right, shifted = rng.normal(size=(300, 40)), rng.normal(size=(60, 40))
    shifted[:, 20:] += 2.0
    assert np.mean([drift_evidence(z).first_above(20.0) is not None for z in right]) <= 0.05
    places = [drift_evidence(z).first_above(20.0) for z in shifted]
    assert all(place is not None for place in places) and np.median(places) <= 26


def test_the_beginning_of_a_drift_is_the_change_point_that_makes_all_scores_most_probable():
    """A high score just before rewards fall for good: the day after it, by densities of SciPy over all starts."""
    scores = np.array([0.3, -0.5, 0.8, 2.9, -4.0, -3.8, -3.5, -4.4, -3.9])
    evidence = drift_evidence(scores)
    place = evidence.first_above(20.0)
    assert place == 4

    def log_density(start):
        rest = scores[start:]
        shifted = stats.multivariate_normal(cov=np.eye(len(rest)) + 1.0).logpdf(rest)
        larger = stats.norm(scale=2.0).logpdf(rest).sum()
        return stats.norm.logpdf(scores[:start]).sum() + np.logaddexp(shifted, larger)

    assert evidence.began(place) == int(np.argmax([log_density(start) for start in range(place + 1)])) == 4


def test_the_size_of_a_drift_is_the_mean_error_since_it_began_in_the_unit_of_the_reward(tmp_path):
    category = np.arange(12) % 3
    logs, _ = draw_log(2400, 16, seed=3, shift=0.5, shift_from=10, k=12, category=category)
    result = ma.backtest(logs, categories=category)
    alarm = result.alarms[0]
    since = [row for row in result.series() if row.period >= alarm.since]
    rounds, errors = np.array([[row.n_rounds, row.observed - row.forecast] for row in since]).T
    assert alarm.error == pytest.approx((rounds * errors).sum() / rounds.sum())
    # Right after the shift all of it is an error; then the model learns it.
    assert 0.2 < alarm.error < 0.6
    (path,) = ma.write_report(result, tmp_path / "backtest.html", unit="euros")
    page = path.read_text().replace("&nbsp;", " ")
    assert f"the mean reward per round has been {alarm.error:.3g} euros (" in page and "above the forecasts" in page
    assert f"<dt>What to do next</dt><dd>{result.next_step}" in page and alarm.since in result.next_step


def test_a_drifting_log_is_noticed_and_a_steady_one_is_not():
    category = np.arange(12) % 3
    logs, _ = draw_log(2400, 16, seed=3, shift=0.5, shift_from=10, k=12, category=category)
    result = ma.backtest(logs, categories=category)
    assert result.verdict == "drift" and result.alarms[0].series == "all"
    assert result.alarms[0].since in ("2024-05-09", "2024-05-10", "2024-05-11", "2024-05-12") and result.alarms[0].z > 0
    assert result.n_training == 3 and result.discrepancy > 0.2
    assert "higher than forecast since about" in result.sentence
    assert len(result.to_arrow()) == len(result.forecasts) and result.as_json()["verdict"] == "drift"
    steady, _ = draw_log(2400, 16, seed=3, k=12, category=category)
    held = ma.backtest(steady, categories=category)
    assert held.verdict == "held" and held.coverage >= 0.8 and held.discrepancy < 0.1


def test_the_value_of_a_policy_is_compared_with_its_estimate_by_weights():
    logs, day = draw_log(300, 3)
    known = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, np.full(300, 1 / K), n_actions=K, times=logs.times)
    rest, model = known.take(np.flatnonzero(day > 0)), first_model(logs, day)
    target = ma.TablePolicy(np.eye(K)[2])
    row = ma.backtest(rest, model, policies={"mug": target}).series("policy", "mug")[0]
    first = known.take(np.flatnonzero(day == 1))
    assert row.forecast == pytest.approx(model.value(target, first.contexts).value)
    assert row.observed == pytest.approx(first.rewards[first.actions == 2].mean())


def test_days_without_rounds_are_counted_and_not_forecast():
    logs, day = draw_log(90, 6)
    gap = logs.take(np.flatnonzero((day != 2) & (day != 3)))
    result = ma.backtest(gap, prior=ma.priors.from_categories(CATEGORY, dim=2))
    assert [row.period for row in result.series()] == ["2024-05-02", "2024-05-05", "2024-05-06"]
    assert result.n_empty == 2


def test_the_footer_of_the_page_gives_the_model_in_words():
    logs, _ = draw_log()
    result = ma.backtest(logs, prior=ma.priors.from_categories(CATEGORY, dim=2))
    assert result.made_with["model"].startswith("5 actions, 5 of them logged; 60 rounds; 2 features; log evidence -")
    purchases = logs.with_rewards(np.where(logs.rewards > 0, np.exp(logs.rewards), 0.0))
    hurdle = ma.fit(purchases, ma.priors.from_categories(CATEGORY, dim=2), ma.Hurdle())
    assert model_line(hurdle).startswith("5 actions, 5 of them logged; 60 rounds; 2 features; log evidence -")


def test_bad_input_is_answered_in_a_sentence():
    logs, day = draw_log()
    one_day = logs.take(np.flatnonzero(day == 1))
    with pytest.raises(InputError, match="all of one period, 2024-05-02, so there is nothing to forecast"):
        ma.backtest(one_day)
    # A shorter period makes something of one day, and a model of earlier rounds does too.
    prior = ma.priors.from_categories(CATEGORY, dim=2)
    assert len(ma.backtest(one_day, prior=prior, period=timedelta(hours=8)).series()) >= 1
    assert len(ma.backtest(one_day, first_model(logs, day)).series()) == 1
    untimed = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=K)
    with pytest.raises(InputError, match="have no times"):
        ma.backtest(untimed)
    numbered = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=K, times=day)
    with pytest.raises(InputError, match="period must be a number"):
        ma.backtest(numbered)
    with pytest.raises(InputError, match="has seen these rounds"):
        ma.backtest(logs, first_model(logs, day))
    with pytest.raises(InputError, match="training must leave a period"):
        ma.backtest(logs, training=3)
    with pytest.raises(ShapeError, match="logged_by"):
        ma.backtest(logs, logged_by=["a"])
    with pytest.raises(RangeError, match="at most 2,000"):
        ma.backtest(draw_log(5000, 40)[0], period=timedelta(seconds=1))


def test_rounds_of_weight_zero_change_no_forecast():
    logs, day = draw_log()
    rng = np.random.default_rng(1)
    weights = (rng.random(len(logs)) < 0.7) * 1.0
    names = np.where(rng.random(len(logs)) < 0.5, "old", "new")
    p = np.full(len(logs), 1 / K)
    columns = (logs.contexts, logs.actions, logs.rewards, p, K)
    weighted = ma.LoggedData(*columns, times=logs.times, weights=weights)
    kept = np.flatnonzero(weights)
    table = rng.dirichlet(np.ones(K), size=len(logs))
    model = first_model(logs, day)
    later = np.flatnonzero(day > 0)
    results = [
        ma.backtest(
            one.take(rows), model, categories=CATEGORY, logged_by=names[rows],
            policies={"mine": ma.TablePolicy(table[rows])},
        )
        for one, rows in ((weighted, later), (weighted, np.intersect1d(later, kept)))
    ]  # fmt: skip
    first, second = (
        [(row.series, row.group, row.period, row.n_rounds, row.forecast, row.observed) for row in result.forecasts]
        for result in results
    )
    assert first == second and {row[0] for row in first} > {"all", "category", "logged by"}


def test_a_forecast_needs_a_variance_of_the_rewards():
    noise = reward_sums_of(ma.StudentT(0.5, 4.0)).noise(np.zeros(3), np.zeros(3))
    assert_allclose(noise, stats.t(4.0, scale=0.5).var())
    with pytest.raises(InputError, match=r"variance of rewards under StudentT.*not known.*more than 2 degrees"):
        reward_sums_of(ma.StudentT(0.5, 2.0))


def test_sums_that_are_certain_or_too_many_have_no_list_of_totals():
    clicks, counts = (reward_sums_of(likelihood).counts for likelihood in (ma.Bernoulli(), ma.Poisson()))
    assert clicks(0.0, 0.0, 10.0) is None and clicks(1.0, 0.0, 10.0) is None and counts(0.0, 0.0, 10.0) is None
    assert clicks(0.5, 1e-3, 1e12) is None and counts(50.0, 1.0, 1e12) is None


def test_what_a_backtest_cannot_use_is_refused(own_errors):
    logs, day = draw_log()
    later, model = logs.take(np.flatnonzero(day > 0)), first_model(logs, day)
    with pytest.raises(InputError, match="policies need propensities to compare their values with what happened"):
        ma.backtest(later, model, policies={"uniform": ma.Uniform(K)})
    for options in (dict(prior=model.prior), dict(likelihood=ma.Gaussian(1.0)), dict(training=1)):
        (name,) = options
        with pytest.raises(InputError, match=f"{name} cannot be combined with a fitted model. Leave it out"):
            ma.backtest(later, model, **options)
    with pytest.raises(InputError, match="logs have no rounds"):
        ma.backtest(logs.take(np.arange(0)))
    for period, words in ((timedelta(0), "above zero; got 0:00:00"), (timedelta.max, "too long: 999999999 days")):
        with pytest.raises(RangeError, match=f"period (must be|is) {words}"):
            ma.backtest(logs, period=period)
    far = ma.LoggedData(np.ones((2, 1)), [0, 1], [0.0, 1.0], times=np.array(["2024", "20000"], dtype="datetime64[Y]"))
    with pytest.raises(RangeError, match="times must lie within ten thousand years of 1970"):
        ma.backtest(far)
    zeros = ma.LoggedData(np.ones((2, 1)), [0, 1], [0.0, 1.0], times=[1, 2], weights=[1.0, 0.0])
    with pytest.raises(DataTypeError, match="policies must be a mapping; got"):
        ma.backtest(zeros, policies=[ma.Uniform(2)])


def test_a_long_backtest_shows_its_latest_periods_and_counts_the_earlier_ones():
    logs, _ = draw_log(n=600, days=55)
    result = ma.backtest(logs, categories=CATEGORY, training=10)
    lines = str(result).splitlines()
    shown = [line for line in lines if line.startswith("2024-")]
    assert lines[1] == "... 5 earlier periods ..." and len(shown) == 40
    assert shown[-1].startswith("2024-06-24")
    assert repr(result) == f"Backtest(45 periods: {result.sentence})"
