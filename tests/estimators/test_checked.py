"""The checked estimate follows the log where it can tell, the model where it cannot, and says how unsure either is."""

import numpy as np
import pytest
from checked_by_hand import CheckedByHand
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, RangeError
from manyarms.estimators.value_on_grid import ResidualEvidence, _grid

K, D = 8, 3


def clicks(n, seed=0, rate=None):
    """Rewards of 0 and 1 that no linear model fits, logged uniformly at random."""
    rng = np.random.default_rng(seed)
    contexts = np.column_stack([np.ones(n), rng.normal(size=(n, D - 1))])
    actions = rng.integers(K, size=n)
    rates = true_rates(contexts)[np.arange(n), actions] if rate is None else rate
    return ma.LoggedData(
        contexts, actions, (rng.random(n) < rates) * 1.0, n_actions=K, propensities=np.full(n, 1.0 / K)
    )


def true_rates(contexts):
    """High in a ring around the origin, whose place differs by action."""
    radius = np.hypot(contexts[:, 1], contexts[:, 2])
    return 0.05 + 0.6 * np.exp(-((radius[:, None] - np.linspace(0.2, 2.0, K)) ** 2) / 0.1)


def model(logs):
    return ma.fit(logs, ma.priors.independent(K, dim=D, cov=0.1), ma.Gaussian(0.4))


def fixed(action, n):
    probabilities = np.zeros((n, K))
    probabilities[:, action] = 1.0
    return ma.TablePolicy(probabilities)


@pytest.mark.parametrize("rewards", ["clicks", "amounts", "signed"])
def test_the_interval_is_that_of_bayes_rule_by_brute_force(rewards):
    """An oracle without the library: prior times likelihood, integrated by adaptive quadrature."""
    train, test = clicks(400), clicks(300, seed=1)
    noise = {"clicks": 0.0, "amounts": 1.0, "signed": -1.0}[rewards]
    if noise:
        rng = np.random.default_rng(2)
        train, test = (
            ma.LoggedData(
                part.contexts, part.actions, noise * part.rewards * rng.exponential(2.0, len(part)), n_actions=K,
                propensities=part.propensities,
            )
            for part in (train, test)
        )  # fmt: skip
    posterior, n = model(train), len(test)
    policy = fixed(3, n)
    gain = ma.Checked(posterior, scale=0.7, n_folds=0).difference(policy, ma.Logged(test), test)

    by_hand = CheckedByHand(
        weights=(test.actions == 3) * K * 1.0,
        at_logged=posterior.expected_reward(test.contexts, test.actions),
        expected=posterior.expected_reward(test.contexts, np.full(n, 3)),
        rewards=test.rewards,
        posterior_std=posterior.difference(policy, ma.Logged(test), test.contexts).posterior_std,
        kind=rewards,
    )
    assert_allclose([by_hand.below(x) for x in gain.interval()], [0.025, 0.975], atol=1e-3)
    assert_allclose(by_hand.below(gain.value), 0.5, atol=2e-3)
    assert_allclose(1 - by_hand.below(0.0), gain.probability_positive, atol=2e-3)


def test_with_many_rounds_it_is_the_doubly_robust_value():
    train, test = clicks(500), clicks(60_000, seed=1)
    posterior = model(train)
    policy = ma.Greedy(posterior)
    checked = ma.Checked(posterior, n_folds=0).estimate(policy, test)
    robust = ma.SNDR(posterior).estimate(policy, test)
    assert abs(checked.value - robust.value) < 0.1 * robust.std
    assert_allclose(checked.std, robust.std, rtol=0.1)
    truth = true_rates(test.contexts)[np.arange(len(test)), policy.actions(test.contexts)].mean()
    low, high = checked.interval()
    assert low < truth < high
    assert abs(posterior.value(policy, test.contexts).value - truth) > 3 * checked.std


def test_without_overlap_it_is_the_model_and_doubts_it():
    logs = clicks(300)
    never = logs.take(np.flatnonzero(logs.actions != 5))
    posterior = model(clicks(400, seed=3))
    estimate = ma.Checked(posterior, n_folds=0).estimate(fixed(5, len(never)), never)
    expected = posterior.value(fixed(5, len(never)), never.contexts)
    low, high = estimate.interval()
    # On the logarithmic axis the middle is the model's value.
    assert_allclose(estimate.value, expected.value, rtol=0.02)
    assert high - low > 3 * (expected.interval()[1] - expected.interval()[0])
    assert estimate.diagnostics["effective_sample_size"] == 0.0
    assert any("cannot check the model" in text for text in estimate.warnings)


def test_a_policy_that_does_what_was_logged_gains_nothing_for_certain():
    logs = clicks(300)
    gain = ma.Checked(model(clicks(300, seed=2))).difference(ma.Logged(logs), ma.Logged(logs), logs)
    assert (gain.value, gain.std, gain.probability_positive) == (0.0, 0.0, 0.5)
    assert gain.interval() == (0.0, 0.0)


def test_the_value_of_the_current_policy_is_the_mean_reward():
    logs = clicks(2000)
    value = ma.Checked(model(clicks(300, seed=2))).estimate(ma.Logged(logs), logs)
    assert abs(value.value - logs.rewards.mean()) < 0.2 * value.std
    assert_allclose(value.std, logs.rewards.std() / np.sqrt(len(logs)), rtol=0.2)


def test_the_parts_add_up_and_more_rounds_narrow_it():
    train, test = clicks(400), clicks(300, seed=1)
    posterior = model(train)
    gain = ma.Checked(posterior).difference(ma.Greedy(posterior), ma.Logged(test), test)
    parts = gain.diagnostics
    assert gain.kind == "checked"
    assert_allclose(parts["model"] + parts["correction"], gain.value, rtol=1e-9)
    assert parts["std_with_twice_the_rounds"] < gain.std
    sure, unsure = (
        ma.Checked(posterior, scale=scale).difference(ma.Greedy(posterior), ma.Logged(test), test)
        for scale in (0.1, 1.0)
    )
    assert sure.diagnostics["discrepancy"] < 0.3 * unsure.diagnostics["discrepancy"]


def test_the_error_of_the_model_is_at_least_what_a_backtest_observed():
    rng = np.random.default_rng(3)
    logs = clicks(1200)
    posterior, test = model(logs.take(np.arange(600))), logs.take(np.arange(600, 1200))

    def gain(**options):
        return ma.Checked(posterior, n_folds=0, **options).difference(ma.Greedy(posterior), ma.Logged(test), test)

    # A known scale that is too small is that of the backtest, and a known larger one stays.
    assert gain(scale=0.0, least_scale=0.7).interval() == gain(scale=0.7).interval()
    assert gain(scale=0.7, least_scale=0.2).interval() == gain(scale=0.7).interval()
    day = np.repeat(np.arange(12), 100)
    drifting = logs.with_rewards(np.where((day >= 6) & (rng.random(1200) < 0.6), 1.0, logs.rewards))
    columns = (drifting.contexts, drifting.actions, drifting.rewards)
    days = ma.LoggedData(*columns, n_actions=logs.n_actions, times=day)
    observed = ma.backtest(days, likelihood=ma.Bernoulli(), period=1.0).discrepancy
    learned, doubted = gain(), gain(least_scale=observed)
    assert observed > 0.2
    assert doubted.diagnostics["error_scale"] >= max(observed, learned.diagnostics["error_scale"])
    assert doubted.std > learned.std


def test_a_model_never_predicts_a_round_it_has_seen():
    """A posterior that has learned the rounds by heart has no residuals on them, and would look right."""
    logs, others = clicks(200, rate=0.5), clicks(200, seed=1, rate=0.5)
    by_heart = ma.priors.independent(K, dim=D, cov=1e4)
    learned, policy = ma.fit(logs, by_heart, ma.Gaussian(0.1)), ma.Greedy(ma.fit(others, by_heart, ma.Gaussian(0.1)))
    bare = learned.difference(policy, ma.Logged(logs), logs.contexts)
    assert min(bare.probability_positive, 1 - bare.probability_positive) < 0.01
    gain = ma.Checked(learned).difference(policy, ma.Logged(logs), logs)
    low, high = gain.interval()
    assert low < 0.0 < high
    assert gain.diagnostics["evaluated_on_training_rounds"] == 1.0


def test_rounds_of_one_user_count_less_than_independent_ones():
    test = clicks(4000, seed=1)
    twice = np.repeat(np.arange(4000), 2)
    doubled = {name: getattr(test, name)[twice] for name in ("contexts", "actions", "rewards", "propensities")}
    posterior = model(clicks(400))
    rounds = ma.LoggedData(**doubled, n_actions=K)
    users = ma.LoggedData(**doubled, n_actions=K, groups=twice)
    checked = ma.Checked(posterior, n_folds=0)
    once, alone, grouped = (checked.estimate(ma.Greedy(posterior), logs) for logs in (test, rounds, users))
    assert alone.std < 0.8 * once.std
    assert_allclose(grouped.std, once.std, rtol=0.15)


def test_weights_of_rounds_are_counts():
    test = clicks(300, seed=1)
    weights = np.where(np.arange(300) < 100, 2.0, 1.0)
    rows = np.repeat(np.arange(300), weights.astype(int))
    posterior = model(clicks(400))
    weighted = ma.LoggedData(
        test.contexts, test.actions, test.rewards, n_actions=K, propensities=test.propensities, weights=weights
    )
    for scale, tolerance in ((0.7, 2e-3), (None, 2e-2)):
        # A round at the border of two test policies belongs to one of them, its copies may belong to both.
        checked, policy = ma.Checked(posterior, scale=scale, n_folds=0), ma.Greedy(posterior)
        first, second = (checked.difference(policy, ma.Logged(x), x) for x in (weighted, test.take(rows)))
        assert_allclose(
            [first.value, first.std, *first.interval()],
            [second.value, second.std, *second.interval()],
            rtol=tolerance,
            atol=1e-3,
        )


def test_estimated_propensities_and_every_kind_of_reward_are_accepted():
    train, test = clicks(400), clicks(400, seed=1)
    unknown = ma.LoggedData(test.contexts, test.actions, test.rewards, n_actions=K)
    posterior = ma.fit(train, ma.priors.independent(K, dim=D), ma.Bernoulli())
    gain = ma.Checked(posterior).difference(ma.Greedy(posterior), ma.Logged(unknown), unknown)
    known = ma.Checked(posterior).difference(ma.Greedy(posterior), ma.Logged(test), test)
    assert gain.diagnostics["estimated_propensities"] == 1.0
    assert abs(gain.value - known.value) < known.std


def test_bad_input_is_refused_with_its_argument(own_errors):
    logs = clicks(50)
    posterior = model(logs)
    with pytest.raises(DataTypeError, match="posterior"):
        ma.Checked(posterior.prior)
    with pytest.raises(RangeError, match="scale"):
        ma.Checked(posterior, scale=-1.0)
    with pytest.raises(InputError, match="at least 2 rounds"):
        ma.Checked(posterior).estimate(ma.Uniform(K), logs.take(np.arange(1)))


def test_a_log_without_a_click_does_not_prove_that_there_are_none():
    train, test = clicks(400, rate=0.0), clicks(400, seed=1, rate=0.0)
    posterior = model(train)
    gain = ma.Checked(posterior).difference(ma.Greedy(posterior), ma.Logged(test), test)
    low, high = gain.interval()
    assert low < 0.0 < high
    assert 0.05 < gain.probability_positive < 0.95


@pytest.mark.parametrize("propensity", [1e-160, 1e-12])
def test_absurd_propensities_leave_a_finite_answer(propensity):
    test = clicks(200, seed=1)
    strange = ma.LoggedData(test.contexts, test.actions, test.rewards, np.full(200, propensity), K)
    gain = ma.Checked(model(clicks(200))).difference(ma.Uniform(K), ma.Logged(strange), strange)
    assert np.isfinite([gain.value, gain.std, *gain.interval()]).all()


def test_the_estimate_does_not_depend_on_the_threads_of_blas():
    # OpenBLAS adds up a product of two vectors in threads from ten thousand elements on.
    logs = clicks(40_000)
    posterior = model(clicks(500, seed=1))
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            gain = ma.Checked(posterior).difference(ma.Greedy(posterior), ma.Logged(logs), logs)
        results.append((gain.value, gain.std, gain.diagnostics))
    assert results[0] == results[1]


def test_two_folds_are_enough_for_the_model_to_learn_from_the_log():
    posterior, test = model(clicks(50)), clicks(300, seed=1)
    policy = fixed(3, len(test))
    by_folds = [ma.Checked(posterior, n_folds=n_folds).estimate(policy, test).value for n_folds in (0, 1, 2)]
    assert by_folds[0] == by_folds[1]
    assert by_folds[1] != by_folds[2]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-2.0, np.inf), (-np.inf, 3.0)])
def test_the_grid_of_values_ends_where_values_end(low, high):
    evidence = ResidualEvidence(
        model=0.4, centre=0.4, baseline=0.0, distance=0.5, observed=0.6, inverse_size=0.1, spread=0.2,
        effective_size=50.0, context_error=0.0, low=low, high=high, is_binary=False, size=1.0,
    )  # fmt: skip
    grid = _grid(evidence, 0.0, np.array([0.5, 1.0, 2.0]), 1.0)
    assert (np.diff(grid) > 0).all()
    assert grid[0] == low or not np.isfinite(low)
    assert grid[-1] == high or not np.isfinite(high)
    assert low <= grid[0] < grid[-1] <= high
