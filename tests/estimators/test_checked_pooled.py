"""Two halves that evaluate one another's policies give one gain, over all rounds."""

import numpy as np
import pytest
from checked_by_hand import SCALE, CheckedByHand
from numpy.testing import assert_allclose
from test_checked import D, K, clicks, fixed, model

import manyarms as ma
from manyarms.estimators.checked_value import pooled_difference
from manyarms.estimators.logging_policy import EstimatedLogging


def part(checked, policy, logs):
    return checked, policy, ma.Logged(logs), logs


def figures(estimate):
    return [estimate.value, estimate.std, estimate.probability_positive, *estimate.interval()]


def concatenated(*parts, **columns):
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("contexts", "actions", "rewards", "propensities")
    }
    return ma.LoggedData(**joined, n_actions=K, **columns)


@pytest.mark.parametrize("kind", ["plain", "groups", "weights"])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_equal_halves_with_one_policy_and_one_model_that_is_sure_are_one_log(kind, scale):
    half, n = clicks(300, seed=1), 300
    columns = [{}, {}]
    if kind == "groups":
        columns = [{"groups": np.arange(n) // 3 + start} for start in (0, n)]
    if kind == "weights":
        columns = 2 * [{"weights": 1.0 + np.arange(n) % 3}]
    halves = [concatenated(half, **extra) for extra in columns]
    both = {name: np.concatenate([extra[name] for extra in columns]) for name in columns[0]}
    sure = ma.priors.independent(K, dim=D, mean=0.1 * np.arange(1, K * D + 1).reshape(K, D) / D, cov=1e-24)
    whole, posterior = concatenated(half, half, **both), ma.fit(clicks(400), sure, ma.Gaussian(0.4))
    policy, checked = ma.Greedy(posterior), ma.Checked(posterior, scale=scale, n_folds=0)
    pooled = pooled_difference([part(checked, policy, logs) for logs in halves])
    expected = checked.difference(policy, ma.Logged(whole), whole)
    assert_allclose(figures(pooled), figures(expected), rtol=1e-12)
    assert_allclose(list(pooled.diagnostics.values()), list(expected.diagnostics.values()), rtol=1e-12)


@pytest.mark.parametrize("kind", ["clicks", "amounts", "signed"])
def test_two_policies_and_two_models_follow_bayes_rule_by_brute_force(kind):
    """An oracle without the library: every round has the policy and the model of its own part."""
    noise, rng = {"clicks": 0.0, "amounts": 1.0, "signed": -1.0}[kind], np.random.default_rng(2)
    halves = [clicks(260), clicks(300, seed=1)]
    if noise:
        halves = [
            ma.LoggedData(
                half.contexts, half.actions, noise * half.rewards * rng.exponential(2.0, len(half)), n_actions=K,
                propensities=half.propensities,
            )
            for half in halves
        ]  # fmt: skip
    posteriors, chosen = [model(half) for half in halves[::-1]], (3, 5)
    parts, columns, stds = [], [], []
    for posterior, action, logs in zip(posteriors, chosen, halves, strict=True):
        policy = fixed(action, len(logs))
        parts.append(part(ma.Checked(posterior, scale=SCALE, n_folds=0), policy, logs))
        at_logged = posterior.expected_reward(logs.contexts, logs.actions)
        expected = posterior.expected_reward(logs.contexts, np.full(len(logs), action))
        columns.append([(logs.actions == action) * K * 1.0, at_logged, expected, logs.rewards])
        stds.append(posterior.difference(policy, ma.Logged(logs), logs.contexts).posterior_std)
    gain = pooled_difference(parts)
    spread = (260 * stds[0] + 300 * stds[1]) / 560
    rounds = map(np.concatenate, zip(*columns, strict=True))
    by_hand = CheckedByHand(*rounds, posterior_std=spread, kind=kind, is_pooled=True)
    assert_allclose([by_hand.below(x) for x in gain.interval()], [0.025, 0.975], atol=1e-3)
    assert_allclose(by_hand.below(gain.value), 0.5, atol=2e-3)
    assert_allclose(1 - by_hand.below(0.0), gain.probability_positive, atol=2e-3)


def problem(n, seed, noise_std, n_actions=5):
    """Rewards drawn from the model's own prior: both halves of a log, and the true weights."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n_actions)
    actions = rng.integers(n_actions, size=n)
    rewards = theta[actions] + noise_std * rng.normal(size=n)
    logs = ma.LoggedData(np.ones((n, 1)), actions, rewards, np.full(n, 1 / n_actions), n_actions)
    return logs.take(np.arange(n // 2)), logs.take(np.arange(n // 2, n)), theta


def swapped(first, second, noise_std, **options):
    """The greedy policy of each half, and its gain: one way, and pooled."""
    prior = ma.priors.independent(first.n_actions, dim=1)
    posteriors = [ma.fit(half, prior, ma.Gaussian(noise_std)) for half in (first, second)]
    policies = [ma.Greedy(posterior) for posterior in posteriors]
    there, back = (
        part(ma.Checked(posterior, **options), policy, logs)
        for posterior, policy, logs in zip(posteriors, policies, (second, first), strict=True)
    )
    return policies, there[0].difference(*there[1:]), pooled_difference([there, back])


def width(estimate):
    low, high = estimate.interval()
    return high - low


def test_where_noise_dominates_the_pooled_interval_is_narrower_by_the_square_root_of_two():
    ratios = []
    for seed in range(2):
        first, second, _ = problem(4000, seed, noise_std=2.0)
        # With a model that may be far off, only the noise of the rewards matters.
        _, one_way, pooled = swapped(first, second, 2.0, scale=3.0)
        ratios.append(width(pooled) / width(one_way))
    assert_allclose(np.median(ratios), np.sqrt(0.5), rtol=0.1)


@pytest.mark.slow
def test_where_the_model_is_right_the_pooled_interval_is_narrower_and_covers():
    ratios, errors, covered = [], [], []
    for seed in range(100):
        first, second, theta = problem(400, seed, noise_std=2.0)
        policies, one_way, pooled = swapped(first, second, 2.0)
        truth = np.mean([theta[policy.actions(np.ones((1, 1)))[0]] for policy in policies]) - theta.mean()
        low, high = pooled.interval()
        covered.append(low <= truth <= high)
        ratios.append(width(pooled) / width(one_way))
        errors.append((pooled.value - truth) / pooled.std)
    # The standard error of a coverage of 95 % is 2.2 %, that of the spread 7 %. The residuals of rounds that have
    # taught the other half's model must not count twice: that would give a spread of 1.13, and cover 89 %.
    assert np.mean(covered) >= 0.9
    assert np.sqrt(np.mean(np.square(errors))) < 1.1
    assert 0.75 < np.median(ratios) < 0.95


def test_estimated_propensities_are_those_of_each_part():
    halves = [
        ma.LoggedData(half.contexts, half.actions, half.rewards, n_actions=K)
        for half in (clicks(300), clicks(300, seed=1))
    ]
    posterior = model(clicks(400, seed=2))
    policy, known = ma.Greedy(posterior), []
    for half in halves:
        estimated = EstimatedLogging(half).probability_of(half.contexts, half.actions)
        known.append(ma.LoggedData(half.contexts, half.actions, half.rewards, estimated, K))
    # Estimated propensities are more in doubt than known ones, unless the scale of errors is given.
    first, second = (
        pooled_difference([part(ma.Checked(posterior, n_folds=0, scale=0.5), policy, half) for half in logs])
        for logs in (halves, known)
    )
    assert_allclose(figures(first), figures(second), rtol=1e-12)
    assert (first.diagnostics["estimated_propensities"], second.diagnostics["estimated_propensities"]) == (1.0, 0.0)


def test_a_policy_that_has_seen_its_rounds_is_noticed_in_either_half():
    first, second = clicks(200), clicks(200, seed=1)
    models = {name: model(half) for name, half in (("first", first), ("second", second))}
    for source, seen in (("first", 0.0), ("second", 1.0)):
        # The second part evaluates either what the first half has learned, or what it has learned itself.
        there = part(ma.Checked(models["second"]), ma.Greedy(models["second"]), first)
        back = part(ma.Checked(models[source]), ma.Greedy(models[source]), second)
        assert pooled_difference([there, back]).diagnostics["evaluated_on_training_rounds"] == seen
