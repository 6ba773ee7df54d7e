"""The verdict is the surest checked gain, and nothing is shipped that the rewards contradict."""

import numpy as np
import pytest
from decision_world import world
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.core.result_tables import signed_percent
from manyarms.decision.recommendation import recommend
from manyarms.decision.write_report import html_page


def evaluation(**gains):
    rows = [ma.jobs.PolicyResult(name, ma.Estimate(1.0, 0.1), gain) for name, gain in gains.items()]
    return ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.1)), tuple(rows))


@pytest.mark.parametrize(
    ("verdict", "policy", "gains"),
    [
        ("ship", "b", {"a": (0.1, 0.01), "b": (0.2, 0.05), "c": (0.5, 1.0)}),
        ("undecided", "b", {"a": (-0.1, 0.01), "b": (0.1, 0.1)}),
        ("keep", "a", {"a": (-0.1, 0.01), "b": (-0.2, 0.01)}),
    ],
)
def test_the_verdict_is_the_surest_gain_or_none(verdict, policy, gains):
    result = recommend(evaluation(**{name: ma.Estimate(*gain, diagnostics={}) for name, gain in gains.items()}))
    assert (result.verdict, result.policy) == (verdict, policy)
    openings = {"ship": "Ship b", "undecided": "Undecided", "keep": "Keep the current policy"}
    assert result.sentence.startswith(openings[verdict])


@pytest.mark.parametrize(
    ("gain", "sure", "verdict"),
    [
        # P(gain > 0) is 95 % for all.
        ({"kind": "checked"}, None, "ship"),
        ({"kind": "checked"}, 0.96, "undecided"),
        ({"kind": "checked", "diagnostics": {"estimated_propensities": 1.0}}, None, "undecided"),
        ({"kind": "checked", "diagnostics": {"estimated_propensities": 1.0}}, 0.9, "ship"),
        ({"kind": "posterior"}, None, "undecided"),
    ],
    ids=["checked", "as asked for", "estimated propensities", "asked for all the same", "not checked"],
)
def test_cautious_probabilities_need_90_percent_and_others_97_and_a_half(gain, sure, verdict):
    estimate = ma.Estimate(1.645, 1.0, **{"diagnostics": {}, **gain})
    assert recommend(evaluation(a=estimate), sure=sure).verdict == verdict


@pytest.mark.parametrize(("keeps_propensities", "needed"), [(True, 0.9), (False, 0.975)])
def test_a_decision_names_the_probability_that_its_own_gains_need(keeps_propensities, needed):
    train, test, _ = world()
    if not keeps_propensities:
        test = ma.LoggedData(test.contexts, test.actions, test.rewards, n_actions=test.n_actions)
    prior = ma.priors.from_categories(np.arange(test.n_actions) % 6, dim=3)
    posterior = ma.fit(train, prior, ma.Gaussian(1.0))
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, test, posterior)
    assert decision.sure == needed and decision.gains["greedy"].kind == "checked"
    assert ma.decide({"greedy": ma.Greedy(posterior)}, test, posterior, sure=0.8).sure == 0.8


def test_failed_checks_turn_the_next_step_into_a_test_and_leave_the_verdict():
    gains = evaluation(b=ma.Estimate(0.2, 0.05, diagnostics={}))
    assert (
        recommend(gains).next_step == "Ship b. Then run manyarms backtest on new logs to check that the forecasts hold."
    )
    failed = recommend(gains, n_failed=2)
    assert failed.verdict == "ship" and failed.next_step in failed.reason
    assert failed.next_step == "Test b on a share of the traffic first: 2 checks failed."
    assert recommend(evaluation(b=ma.Estimate(-0.1, 0.1, diagnostics={}))).next_step.startswith("Keep the current")


@pytest.mark.parametrize(
    ("mean", "base"), [(0.5, "of the mean logged reward"), (-0.5, "of the size of the mean logged reward")]
)
def test_the_headline_says_what_its_percentage_is_of(mean, base):
    """The mean logged reward differs from the value of the current policy according to the model, here ±0.4."""
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=4000)
    rewards = mean + np.array([-0.1, 0.1])[actions] + 0.1 * rng.normal(size=4000)
    logs = ma.LoggedData(np.ones((4000, 1)), actions, rewards, np.full(4000, 0.5), n_actions=2)
    prior = ma.priors.independent(2, mean=[0.8 * mean], cov=1e-6)
    model = ma.fit(two_arms([0.8 * mean - 0.1, 0.8 * mean + 0.1], 1), prior, ma.Gaussian(0.1))
    decision = ma.decide({"second": ma.TablePolicy(np.array([[0.0, 1.0]] * 4000))}, logs, model)
    gain = decision.gains["second"].value / abs(logs.rewards.mean())
    assert f"is {signed_percent(gain)} {base} (95 % interval" in decision.sentence


def test_where_no_round_is_like_the_choices_of_a_policy_no_interval_is_the_headline():
    def sentence(size):
        gain = ma.Estimate(0.1, 0.2, kind="checked", diagnostics={"effective_sample_size": size})
        row = ma.jobs.PolicyResult("new", ma.Estimate(1.0, 0.1), gain, checked=gain)
        return recommend(
            ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.1)), (row,))
        ).sentence

    assert sentence(0.2) == "Undecided: the log says too little about new to give a useful interval."
    assert "95 % interval" in sentence(3.0)


def test_an_unchecked_gain_that_the_rewards_contradict_is_not_shipped():
    def result(value, size):
        check = ma.Estimate(value, 0.05, kind="sampling", diagnostics={"effective_sample_size": size})
        gain = ma.Estimate(0.3, 0.05, diagnostics={})
        row = ma.jobs.PolicyResult("new", ma.Estimate(1.3, 0.05), gain, estimates={"snips": check})
        return recommend(ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.05)), (row,)))

    assert result(1.25, 1000.0).verdict == result(1.6, 1000.0).verdict == "ship"
    refuted = result(1.05, 1000.0)
    assert refuted.verdict == "undecided" and "but snips contradicts it" in refuted.sentence
    # Far below the model, and still a clear gain.
    assert result(1.15, 1000.0).verdict == "ship"
    # An effective sample size of a handful of rounds refutes nothing.
    assert result(1.05, 20.0).verdict == "ship"


def test_few_rounds_decide_nothing_however_sure_the_model_is():
    gain = ma.Estimate(0.5, 0.01, diagnostics={})
    few, enough = (
        ma.Evaluation(n, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.1)),
                      (ma.jobs.PolicyResult("new", ma.Estimate(1.5, 0.1), gain),))
        for n in (9, 10)
    )  # fmt: skip
    result = recommend(few)
    assert (result.verdict, result.policy) == ("undecided", "new")
    assert result.reason.startswith("9 rounds are too few to check the model.")
    assert result.next_step == "Log more rounds."
    assert recommend(enough).verdict == "ship"


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        ({}, "Add a candidate or a model."),
        ({"IPS": "no propensities"}, "No estimator could evaluate a policy: no prop"),
    ],
)
def test_without_any_estimate_there_is_nothing_to_decide_and_the_reason_is_given(left_out, reason):
    row = ma.jobs.PolicyResult("new", None, left_out=left_out)
    result = recommend(ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", None), (row,)))
    assert result.verdict == "nothing" and result.sentence == "There is no policy to decide on."
    assert result.reason.startswith(reason)


def two_arms(means, seed, n=4000):
    """The current policy shows the first of two arms four times in five."""
    rng = np.random.default_rng(seed)
    actions = rng.choice(2, p=[0.8, 0.2], size=n)
    rewards = np.array(means)[actions] + 0.1 * rng.normal(size=n)
    return ma.LoggedData(np.ones((n, 1)), actions, rewards, np.where(actions == 0, 0.8, 0.2), n_actions=2)


def test_a_model_that_is_wrong_about_the_current_policy_is_corrected_by_the_log():
    """Rewards have moved since the fit, and the best arm is another one: the log itself shows it."""
    posterior = ma.fit(two_arms([0.1, 0.3], 0), ma.priors.independent(2, mean=[0.2], cov=0.05), ma.Gaussian(0.1))
    policies, estimators = {"greedy": ma.Greedy(posterior)}, [ma.SNIPS(), ma.DR(posterior)]
    moved = ma.decide(policies, two_arms([0.5, 0.3], 1), posterior, estimators=estimators)
    bare = posterior.difference(policies["greedy"], ma.Logged(two_arms([0.5, 0.3], 1)), np.ones((4000, 1)))
    assert bare.probability_positive > 0.999
    assert moved.verdict == "keep" and moved.gains["greedy"].probability_positive < 0.001
    assert_allclose(moved.gains["greedy"].value, 0.8 * (0.3 - 0.5), atol=0.02)
    assert ma.decide(policies, two_arms([0.1, 0.3], 1), posterior, estimators=estimators).verdict == "ship"


def test_a_model_whose_noise_the_rewards_contradict_does_not_promise_what_is_not_there():
    """All actions are alike; a model that takes noise for differences sees a gain."""
    rng = np.random.default_rng(5)
    logs = ma.LoggedData(np.ones((3000, 1)), rng.integers(50, size=3000), 1 + rng.normal(size=3000), n_actions=50)
    train, test = logs.split(0.5, rng=rng)
    wrong = ma.fit(train, ma.priors.independent(50, mean=[1.0], cov=1.0), ma.Gaussian(0.05))
    policies = {"greedy": ma.Greedy(wrong)}
    assert wrong.difference(policies["greedy"], ma.Logged(test), test.contexts).probability_positive > 0.999
    decision = ma.decide(policies, test, wrong)
    assert decision.verdict == "undecided"
    low, high = decision.gains["greedy"].interval()
    assert low < 0.0 < high


def test_a_policy_is_not_shipped_on_the_rounds_it_was_learned_from():
    logs = two_arms([0.1, 0.3], 0)
    posterior = ma.fit(logs, ma.priors.independent(2, mean=[0.2], cov=0.05), ma.Gaussian(0.1))
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, logs, posterior)
    assert (
        decision.verdict == "undecided" and "was learned from the rounds that it is evaluated on" in decision.sentence
    )
    other = two_arms([0.1, 0.3], 1)
    assert ma.decide({"greedy": ma.Greedy(posterior)}, other, posterior).verdict == "ship"


def test_a_policy_that_changes_nothing_leaves_nothing_to_decide():
    train, test, catalog = world()
    posterior = ma.fit(train, ma.priors.from_categories(catalog, dim=3))
    same = ma.decide({"same": ma.Logged(test)}, test, posterior)
    assert same.sentence.startswith("Nothing to decide: same") and html_page(same, "Same")
