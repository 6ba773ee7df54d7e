"""A decision repeats what the posterior says, accepts every posterior, and lists what it leaves out."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from decision_world import world
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.decision.decide_files import decide_files
from manyarms.decision.decision_evidence import Calibration, CalibrationBin, calibration_evidence
from manyarms.decision.write_report import html_page
from manyarms.errors import InputError


def test_a_decision_says_what_the_posterior_says(known):
    decision, policies, test, posterior = known
    bare = posterior.difference(policies["greedy"], ma.Logged(test), test.contexts)
    gain = ma.Checked(posterior).difference(policies["greedy"], ma.Logged(test), test)
    row, earned = decision.evaluation.policies[0], abs(test.rewards.mean())
    lift = row.lift
    assert_allclose([row.difference.value, row.difference.std], [bare.value, bare.std], rtol=1e-9)
    assert_allclose([row.checked.value, row.checked.std], [gain.value, gain.std], rtol=1e-9)
    relative = np.array([gain.value, *gain.interval()]) / earned
    assert_allclose([lift.value, *lift.interval()], relative, rtol=1e-6)
    between = posterior.difference(policies["greedy"], policies["uniform"], test.contexts)
    better = decision.evaluation.probability_better
    assert_allclose(better("greedy", "uniform"), between.probability_positive, rtol=1e-9)
    assert_allclose(better("uniform", "greedy"), 1 - between.probability_positive, atol=1e-12)
    assert_allclose(better("logged", "greedy"), 1 - gain.probability_positive, atol=1e-12)
    low, high = lift.interval()
    assert decision.verdict == "ship"
    assert test.rewards.mean() < 0.0
    change = f"its gain over the current policy is {100 * lift.value:+.3g} % of the size of the mean logged reward"
    assert f"{change} (95 % interval {100 * low:+.3g} % to {100 * high:+.3g} %)" in decision.sentence


def test_a_decision_from_files_draws_its_rounds_with_seed_zero_unless_told(tmp_path):
    rng, logs = np.random.default_rng(4), tmp_path / "logs.parquet"
    rows = {"x": rng.normal(size=200), "item": np.arange(200) % 4, "r": rng.normal(size=200), "p": [0.25] * 200}
    pq.write_table(pa.table(rows), logs)
    options = {"context": "x", "policies": ["uniform"], "estimators": ["ips"], "sample": 50}
    means = [
        decide_files(logs, "item", "r", "p", **options, **seed).evaluation.mean_reward
        for seed in ({}, {"seed": 0}, {"seed": 1})
    ]
    assert means[0] == means[1] != means[2]


def test_the_verdict_rests_on_the_gains(known):
    decision = known[0]
    assert list(decision.gains) == ["greedy", "pessimistic", "uniform"]
    assert decision.policy == max(decision.gains, key=lambda name: decision.gains[name].value)
    assert decision.gains["greedy"] is decision.evaluation.policies[0].checked
    assert decision.probability == decision.gains[decision.policy].probability_positive


def test_what_is_missing_is_listed_and_the_rest_is_there(tmp_path):
    train, test, _ = world()
    bare = ma.LoggedData(test.contexts, test.actions, test.rewards, n_actions=60)
    posterior = ma.fit(
        ma.LoggedData(train.contexts, train.actions, train.rewards, n_actions=60),
        ma.priors.independent(60, dim=3, cov=1.0),
    )
    single = ma.decide({"greedy": ma.Greedy(posterior)}, bare, posterior)
    reasons = " ".join(single.omitted)
    assert "no categories" in reasons and "no propensities" in reasons
    html = html_page(single, "One")
    assert 'id="chart-gains"' in html
    assert 'id="chart-probability_better"' not in html and 'id="chart-support"' not in html
    without = ma.decide({"uniform": ma.Uniform(60)}, test, estimators=[ma.SNIPS()])
    assert without.verdict == "estimated" and "they need a model" in " ".join(without.omitted)
    assert without.gains == {} and without.probability is None
    assert 'id="chart-agreement"' in html_page(without, "No model")
    with pytest.raises(InputError, match="format must be one of html, json, svg, png; got 'pdf'"):
        ma.write_report(single, tmp_path / "report.pdf")
    with pytest.raises(InputError, match="trained on all of these rounds"):
        ma.plots.calibration(
            ma.decide(
                {"greedy": ma.Greedy(posterior)}, train, ma.fit(train, ma.priors.independent(60, dim=3, cov=1.0))
            ).calibration
        )


def test_bars_of_a_calibration_are_two_standard_errors_long():
    evidence = Calibration(
        (CalibrationBin(50.0, 0.1, 0.2, 0.03), CalibrationBin(50.0, 0.4, 0.5, None)), True, False, {}
    )
    layers = ma.plots.calibration(evidence).to_dict()["layer"]
    rows = next(layer["data"]["values"] for layer in layers if "low" in layer["data"]["values"][0])
    assert_allclose([[row["low"], row["high"]] for row in rows], [[0.14, 0.26], [0.5, 0.5]])


def test_groups_of_rounds_that_do_not_count_are_not_in_the_calibration(known):
    _, _, test, posterior = known
    expected = posterior.expected_reward(test.contexts, test.actions)
    order = np.argsort(expected, kind="stable")
    lowest = order[: len(test) // 10]
    weights = np.ones(len(test))
    weights[lowest] = 0.0
    rounds = ma.LoggedData(test.contexts, test.actions, test.rewards, n_actions=60, weights=weights)
    groups = calibration_evidence(posterior, rounds, True, {}, None).bins
    assert len(groups) == 9 and sum(group.n_rounds for group in groups) == len(test) - len(lowest)
    means = [test.rewards[part].mean() for part in np.split(order, 10)[1:]]
    assert_allclose([group.observed for group in groups], means)


@pytest.mark.parametrize(("against_truth", "word"), [(False, "observed"), (True, "true")])
def test_a_calibration_says_whether_rewards_were_observed_or_are_the_true_ones(against_truth, word):
    evidence = Calibration((CalibrationBin(50.0, 0.1, 0.2, 0.03),), True, against_truth, {})
    layers = ma.plots.calibration(evidence).to_dict()["layer"]
    assert f"{word} mean reward" in [layer["encoding"]["y"].get("title") for layer in layers]


def test_nothing_is_decided_without_a_policy(known):
    with pytest.raises(InputError, match="no policy to evaluate"):
        ma.decide({}, known[2], known[3])


@pytest.mark.slow
def test_thousands_of_categories_are_summed_up_and_not_checked_one_by_one():
    train, test, _ = world(K=4000)
    posterior = ma.fit(train, ma.priors.independent(4000, dim=3, cov=1.0))
    decision = ma.decide({"uniform": ma.Uniform(4000)}, test, posterior, categories=np.arange(4000))
    assert len(decision.support.rows) == 21 and decision.support.rows[-1].category == "3,980 others"
    assert_allclose(sum(row.logged for row in decision.support.rows), 1.0)
    assert_allclose(sum(row.chosen["uniform"] for row in decision.support.rows), 1.0)
    assert "4,000" in " ".join(decision.omitted) and len(html_page(decision, "Many")) < 2_000_000


def without_one_set_of_weights(kind, folder):
    """A posterior of each kind that the checks of weights cannot look into, with its logs."""
    train, _, _ = world(n=600, K=24)
    logs = ma.LoggedData(train.contexts, train.actions, train.rewards, n_actions=24)
    prior = ma.priors.from_categories(np.arange(24) % 6, dim=3)
    if kind == "hurdle":
        logs = ma.LoggedData(logs.contexts, logs.actions, np.maximum(logs.rewards, 0.0), n_actions=24)
        return ma.fit(logs, prior, ma.Hurdle(ma.Bernoulli(), ma.LogNormal())), logs
    if kind == "averaged":
        return ma.learn_prior(logs, prior).averaged(8, rng=np.random.default_rng(0)), logs
    if kind == "sampled":
        return ma.sample_posterior(logs, prior, ma.Gaussian(1.0), 40, rng=np.random.default_rng(0), n_chains=2), logs
    return ma.fit_sharded(logs, prior, ma.Gaussian(1.0), out=folder / "shards"), logs


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hurdle", "averaged", "sampled", "sharded"])
def test_every_kind_of_posterior_is_accepted_and_what_it_lacks_is_listed(kind, tmp_path):
    posterior, logs = without_one_set_of_weights(kind, tmp_path)
    policies = {"greedy": ma.Greedy(posterior), "uniform": ma.Uniform(24)}
    decision = ma.decide(policies, logs, posterior, categories=np.arange(24) % 6)
    gain = ma.Checked(posterior).difference(policies["greedy"], ma.Logged(logs), logs)
    assert_allclose(decision.gains["greedy"].value, gain.value, rtol=1e-9)
    assert len(decision.support.rows) == 6
    # An averaged posterior shows the weights at the prior that was learned; the others have no single set.
    lacks_weights = kind != "averaged"
    assert (decision.shrinkage is None) == lacks_weights
    assert ("single set of weights" in " ".join(decision.omitted)) == lacks_weights
    assert html_page(decision, kind)
