"""The best of all policies: against draws of all weights from the posterior."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

import manyarms as ma
from manyarms.core.estimate import EmpiricalShape
from manyarms.jobs.best_policy import _draws


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(5)
    k, n = 6, 80
    prior = ma.priors.from_categories(np.arange(k) % 2, dim=2, action_std=0.5)
    contexts, actions = rng.normal(size=(n, 2)) + 0.5, rng.integers(k, size=n)
    rewards = (contexts * prior.sample(rng)[0][actions]).sum(axis=1) + rng.normal(size=n)
    posterior = ma.fit(ma.LoggedData(contexts, actions, rewards, n_actions=k), prior, ma.Gaussian(1.0))
    logs = ma.LoggedData(contexts[:40] + 0.1, actions[:40], rewards[:40], n_actions=k)
    policies = {f"always {a}": ma.TablePolicy(np.eye(k)[a]) for a in range(4)}
    return posterior, logs, policies


def model_only(evaluation):
    """The evaluation with the model's own gains, on these contexts alone: those that draws of the weights give."""

    def narrowed(estimate):
        return replace(estimate, std=estimate.posterior_std)

    rows = tuple(replace(row, checked=None, difference=narrowed(row.difference)) for row in evaluation.policies)
    return replace(evaluation, policies=rows, pairs={key: narrowed(pair) for key, pair in evaluation.pairs.items()})


def test_probabilities_and_losses_are_those_of_draws_of_the_weights(problem):
    posterior, logs, policies = problem
    evaluation = model_only(ma.evaluate(policies, logs, posterior, pairs=True))
    weights = posterior.weights.sample(np.random.default_rng(0), 40_000, np.arange(6))
    mean = logs.contexts.mean(axis=0)
    values = [np.einsum("nd,snd->s", logs.contexts, weights[:, logs.actions]) / len(logs)]
    values = np.column_stack([*values, *(weights[:, a] @ mean for a in range(4))])
    best = np.bincount(values.argmax(axis=1), minlength=5) / len(values)
    loss = (values.max(axis=1, keepdims=True) - values).mean(axis=0)
    names = ["logged", *policies]
    np.testing.assert_allclose([evaluation.probability_best[name] for name in names], best, atol=0.015)
    np.testing.assert_allclose([evaluation.expected_loss[name] for name in names], loss, atol=0.02)


def test_of_one_candidate_the_probability_is_that_of_a_gain_and_the_checked_gain_counts(problem):
    posterior, logs, policies = problem
    evaluation = ma.evaluate({"one": policies["always 1"]}, logs, posterior)
    gain = evaluation.policies[0].checked
    assert evaluation.probability_best["one"] == pytest.approx(gain.probability_positive, abs=0.01)
    assert sum(evaluation.probability_best.values()) == pytest.approx(1.0)
    # E max(gain, 0) - E gain is what is lost by shipping.
    assert evaluation.expected_loss["logged"] - evaluation.expected_loss["one"] == pytest.approx(
        float(gain.shape.shares @ gain.shape.means), abs=0.02
    )


def test_equal_policies_share_the_probability_and_lose_nothing_to_one_another(problem):
    posterior, logs, policies = problem
    same = {"a": policies["always 1"], "b": policies["always 1"], "now": ma.Logged(logs)}
    evaluation = ma.evaluate(same, logs, posterior, pairs=True)
    assert evaluation.expected_loss["a"] == pytest.approx(evaluation.expected_loss["b"], abs=1e-9)
    assert evaluation.probability_best["now"] == evaluation.probability_best["logged"]


def test_without_pairs_or_a_model_there_are_no_probabilities(problem):
    posterior, logs, policies = problem
    assert ma.evaluate(policies, logs, posterior).probability_best == {}
    known = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, np.full(40, 1 / 6), n_actions=6)
    assert ma.evaluate(policies, known, estimators=[ma.IPS()]).expected_loss == {}


def test_what_the_check_adds_is_shared_by_policies_with_the_same_choices_only(problem):
    """To the model the gains are as good as one; what the check adds is as large, and only a and c share it."""
    posterior, logs, policies = problem
    candidates = {"a": policies["always 1"], "b": policies["always 2"], "c": policies["always 1"]}
    evaluation = ma.evaluate(candidates, logs, posterior, pairs=True)
    values, rows = {"a": 0.1, "b": 0.0, "c": 0.1}, []
    for row in evaluation.policies:
        gain = ma.Estimate(values[row.name], 0.3)
        rows.append(replace(row, difference=gain, checked=ma.Estimate(gain.value, 0.5)))
    pairs = {("a", "b"): ma.Estimate(0.1, 1e-6), ("a", "c"): ma.Estimate(0.0, 0.0), ("b", "c"): ma.Estimate(-0.1, 1e-6)}
    evaluation = replace(evaluation, policies=tuple(rows), pairs=pairs)
    rng = np.random.default_rng(1)
    common, (a, b) = 0.3 * rng.normal(size=200_000), 0.4 * rng.normal(size=(2, 200_000))
    a, b = 0.1 + common + a, common + b
    assert evaluation.probability_better("a", "b") == pytest.approx(np.mean(a > b), abs=0.01)
    assert evaluation.probability_better("b", "a") == pytest.approx(np.mean(b > a), abs=0.01)
    assert evaluation.probability_better("a", "c") == 0.5
    assert evaluation.probability_best["b"] == pytest.approx(np.mean((b > a) & (b > 0)), abs=0.01)


@dataclass(frozen=True)
class Skewed:
    """A gain that is log-normal, with no name in the library."""

    spread: float = 0.5

    def interval(self, level):
        return tuple(stats.lognorm(self.spread).interval(level))

    @property
    def probability_positive(self):
        return 1.0


def test_draws_of_a_gain_are_its_quantiles_whatever_its_shape():
    scores = np.linspace(-2.0, 2.0, 11)
    draws = np.random.default_rng(0).gamma(2.0, size=999)
    for shape, quantiles in (
        (EmpiricalShape(draws), np.quantile(draws, stats.norm.cdf(scores))),
        (Skewed(), stats.lognorm(0.5).ppf(stats.norm.cdf(scores))),
    ):
        got = _draws(ma.Estimate(1.0, 1.0, shape=shape), scores)
        np.testing.assert_allclose(got, quantiles, rtol=2e-3)
