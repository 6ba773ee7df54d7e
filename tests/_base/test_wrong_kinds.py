"""Arguments of a wrong kind, and numbers at the edge of their range, are refused by typed errors, not by Python's."""

import warnings

import jaxtyping
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

import manyarms as ma
from manyarms import datasets, errors, experiments, jobs, learners, nonlinear, theory


@pytest.fixture(autouse=True)
def as_users_run_it():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


RNG = np.random.default_rng(0)
X = np.arange(12.0).reshape(4, 3) / 8
LOGS = ma.LoggedData(X, [0, 1, 1, 4], [1.0, 0.0, 2.0, 1.0], np.full(4, 0.2), n_actions=5)
PRIOR = ma.priors.independent(5, dim=3)
POSTERIOR = ma.fit(LOGS, PRIOR)
CLICKS = ma.fit(ma.LoggedData(X, LOGS.actions, [1.0, 0.0, 0.0, 1.0], n_actions=5), PRIOR, ma.Bernoulli())
SYNTHETIC = datasets.SyntheticProblem(5, 3, 2)
WORLD = datasets.LinearEnvironment(np.ones((5, 3)), 1.0, SYNTHETIC.draw_contexts)
SOFTMAX = ma.LinearSoftmax(np.ones((5, 3)))
HUGE = 10**400

CALLS = {
    "rows of another type": lambda: LOGS.take(np.array([0.5])),
    "rows beyond the end": lambda: LOGS.take(np.array([4])),
    "rows of a table policy": lambda: ma.TablePolicy(np.full((4, 5), 0.2)).take("x"),
    "rows of the logged policy": lambda: ma.Logged(LOGS).take({"a": 1}),
    "a catalog that is none": lambda: ma.Catalog(["a"]).grown_with(3),
    "ids that are one text": lambda: ma.Catalog(["a"]).find("a"),
    "ids that cannot be hashed": lambda: ma.Catalog(["a"]).find([["a"]]),
    "features that are none": lambda: ma.FeatureMap(3),
    "a feature that is none": lambda: ma.FeatureMap(["age"]),
    "statistics of half an action": lambda: ma.Statistics.empty(2.5, 3),
    "statistics of fewer actions": lambda: POSTERIOR.statistics.with_actions(3),
    "a layer without a function": lambda: nonlinear.Layer(3, 1.0, 2),
    "layers that are none": lambda: ma.chain(np.zeros(2), 1.0, 3, np.tanh, 1.0, 5, 3),
    "a catalog of a policy": lambda: ma.LinearSoftmax(np.ones((5, 3)), catalog=b"x"),
    "the name of an estimator": lambda: ma.IPS(name=3),
    "thresholds that are none": lambda: ma.DM(POSTERIOR, thresholds=True),
    "a threshold that is none": lambda: ma.Thresholds(max_weight_share="x"),
    "an interval of another method": lambda: ma.Normal("bootstrap"),
    "an estimate that is a text": lambda: ma.Estimate("1", 1.0),
    "an estimate with half a line": lambda: ma.Estimate(1.0, -1.0),
    "an integer beyond floats": lambda: ma.Gaussian(HUGE),
    "a class as the eligible sets": lambda: SOFTMAX.probabilities(X, eligible=list),
    "logs of a learner": lambda: ma.IPSLearner().learn(3),
    "the policy of an objective": lambda: ma.IPSLearner().objective(None, LOGS),
    "a remedy for gaps that does not exist": lambda: ma.score(
        POSTERIOR, {"a": [1.0]}, "out.parquet", missing="nonsense"
    ),
    "training that is an array": lambda: ma.IPSLearner(training=np.zeros(2)),
    "the policy of a direct learner": lambda: ma.DMLearner(PRIOR, policy=3),
    "policies that are no mapping": lambda: ma.evaluate(b"x", LOGS, POSTERIOR),
    "estimators that are none": lambda: ma.evaluate({"u": ma.Uniform(5)}, LOGS, estimators="ips"),
    "contexts of other rows": lambda: ma.evaluate({"u": ma.Uniform(5)}, LOGS, POSTERIOR, contexts=b"x"),
    "policies of a decision": lambda: ma.decide(np.nan, LOGS, POSTERIOR),
    "policies of a comparison": lambda: ma.compare({"x": 3}, LOGS, [ma.IPS()]),
    "estimators of slope": lambda: ma.slope({3: ma.IPS()}, SOFTMAX, LOGS),
    "a policy by category": lambda: ma.support_by_category(None, LOGS, list("abcde")),
    "a flag that is a text": lambda: ma.priors.from_tags([["a"]] * 5, dim=3, normalise="no"),
    "a flag that is an array": lambda: ma.learn_prior(LOGS, PRIOR, learn_noise=np.ones(2)),
    "a flag of an update": lambda: POSTERIOR.update(LOGS, allow_repeats=np.nan),
    "a path that is a number": lambda: ma.write_report(ma.decide({"u": ma.Uniform(5)}, LOGS, POSTERIOR), 3.5),
    "a path with a lone surrogate": lambda: ma.load("\ud800"),
    "a path of a data set": lambda: datasets.load_movielens(3.5),
    "a path that is too long": lambda: experiments.Store("x" * 5000),
    "logs without a path": lambda: jobs.fit_files(None, ["age"], "item", "spend"),
    "a column that is a list": lambda: jobs.fit_files("nowhere", ["age"], ["item"], "spend"),
    "a seed that is a mapping": lambda: jobs.learn_policy(POSTERIOR, seed={}),
    "the name of a policy": lambda: jobs.policy_named(["greedy"], POSTERIOR),
    "the name of a likelihood": lambda: jobs.likelihood_named({}),
    "the stream of a sample": lambda: jobs.sample_rounds(b"x", 3, rng=RNG),
    "a seed as a generator": lambda: SYNTHETIC.draw_contexts(3, 5),
    "a policy of a world": lambda: WORLD.log(None, 5, RNG),
    "contexts of a world": lambda: WORLD.value(ma.Uniform(5), X.T),
    "a world without contexts": lambda: datasets.LinearEnvironment(np.ones((5, 3)), 1.0, 3),
    "the prior of a problem": lambda: theory.BayesianProblem(np.nan, SYNTHETIC.draw_contexts),
    "the problem of a risk": lambda: theory.bayes_mse(3, X, [0] * 4, 5, rng=RNG),
    "the model of a bound": lambda: theory.explicit_bound({}, 5, [0.5]),
    "the posterior of a width": lambda: theory.bayesian_width(None, X, [0] * 4),
    "the posterior of an error": lambda: theory.mse_bound(len, X, [0] * 4),
    "an instance that is a fraction": lambda: experiments.compute(
        experiments.Synthetic(5, 2, 3), experiments.METHODS["IPS"], "ope", 20, 1.5
    ),
    "logging by an unknown word": lambda: experiments.Synthetic(logging="x"),
    "logging policies that are none": lambda: ma.BalancedIPS(3, [0] * 4),
    "shrinkage that is an array": lambda: ma.DRos(POSTERIOR, np.array([])),
    "logs of a sensitivity": lambda: ma.prior_sensitivity(POSTERIOR, SOFTMAX, X, logs=[]),
    "logs of a logging policy": lambda: ma.EstimatedLogging(True),
    "the rate of an optimiser": lambda: learners.Adam(HUGE),
    "an optimiser that is a mapping": lambda: ma.Training({}),
    "an optimiser that is an array": lambda: ma.Training(np.zeros(2)),
    "categories without budgets": lambda: ma.CappedPolicy(POSTERIOR, X, max_share=0.5, categories=b"abcde"),
    "categories that cannot be hashed": lambda: ma.CappedPolicy(POSTERIOR, X, categories=[[0]] * 5),
    "segments that cannot be hashed": lambda: LOGS.with_segments([[0]] * 4),
    "segments to follow": lambda: ma.SegmentPolicy(SOFTMAX, SOFTMAX, [0] * 4, [[0]]),
    "rewards of a guardrail": lambda: ma.Guardrail("returns", {}),
    "costs of a guardrail": lambda: ma.Guardrail("returns", costs=object()),
    "a generator that is not used": lambda: ma.priors.from_catalog(5, dim=3, rng=object()),
    "a format that is empty": lambda: ma.write_report(
        ma.decide({"u": ma.Uniform(5)}, LOGS, POSTERIOR), "report.html", format={}
    ),
    "the names of goals": lambda: ma.plots.trade_off(ma.trade_off(POSTERIOR, POSTERIOR, X), names="ab"),
    "one goal of two": lambda: ma.plots.trade_off(ma.trade_off(POSTERIOR, POSTERIOR, X), names=["a"]),
    "contexts that no policy reads": lambda: ma.evaluate(
        {"u": ma.Uniform(5)}, LOGS, POSTERIOR, contexts=np.full((4, 3), np.nan)
    ),
    "contexts of a width": lambda: theory.frequentist_width(POSTERIOR, object(), [0], 1.0),
    "sparse contexts of a width": lambda: theory.frequentist_width(POSTERIOR, sparse.csr_array(X), [0] * 4, 1.0),
    "categories of a catalog that cannot be hashed": lambda: ma.Catalog(["a", "b"], categories=[["x"], ["y"]]),
    "tags that cannot be hashed": lambda: ma.Catalog(["a", "b"], tags=[["x"], [["y"]]]),
    "paths that cannot be hashed": lambda: ma.Catalog(["a", "b"], paths=[["x", "y"], ["x", {}]]),
    "noise whose square overflows": lambda: ma.priors.ridge(5, 3, penalty=1.0, noise_std=1e300),
    "a penalty of almost nothing": lambda: ma.priors.ridge(5, 3, penalty=5e-324),
    "a start at the end of the numbers": lambda: ma.fit_nonlinear(
        LOGS, ma.NonlinearHierarchy(np.zeros(2), 1.0, lambda latent, _: np.ones((5, 3)), 0.5, 5, 3), start=[1e200, 0.0]
    ),
    "contexts of an evaluation that are one number": lambda: ma.evaluate(
        {"softmax": SOFTMAX}, LOGS, POSTERIOR, contexts=np.array(1.0)
    ),
    "sparse contexts of an evaluation": lambda: ma.evaluate(
        {"softmax": SOFTMAX}, LOGS, POSTERIOR, contexts=sparse.csr_array(X)
    ),
    "contexts of an evaluation with a row less": lambda: ma.evaluate(
        {"softmax": SOFTMAX}, LOGS, POSTERIOR, contexts=pa.table({"x": [1.0, 2.0, 3.0]})
    ),
    "a set of ids": lambda: ma.Catalog(["a"]).find({"b"}),
    "a mapping of ids": lambda: ma.Catalog(["a"]).find({"b": 1}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_kind_is_refused(name):
    with warnings.catch_warnings(), pytest.raises(errors.ManyarmsError) as caught:
        warnings.simplefilter("error")
        CALLS[name]()
    assert caught.value.problem
    assert "\n" not in str(caught.value)


OVERFLOWS = {
    "actions at infinity": lambda: POSTERIOR.reward_std(X, np.array([0, 1, np.inf, 2])),
    "feature mass": lambda: SOFTMAX.feature_mass(np.full((4, 3), 1e308), weights=np.full(4, 2.0)),
    "draws of Thompson": lambda: ma.Thompson(POSTERIOR, 20, rng=RNG).probabilities(np.full((4, 3), 1e308)),
    "squares of tiny noise": lambda: ma.fit(LOGS, PRIOR, ma.Gaussian(5e-324)),
    "rows in units of small noise": lambda: ma.fit(
        ma.LoggedData(np.full((4, 3), 1e200), LOGS.actions, LOGS.rewards, n_actions=5), PRIOR, ma.Gaussian(1e-149)
    ),
    "chances of a click": lambda: CLICKS.expected_reward(np.full((4, 3), 1e200)),
    "chances of the clicks of pairs": lambda: CLICKS.expected_reward(np.full((4, 3), 1e200), [0] * 4),
    "goals of which one is a click": lambda: ma.BlendedGreedy([POSTERIOR, CLICKS], [1.0, 0.5]).actions(
        np.full((4, 3), 1e200), eligible=[[0, 1], [1, 2], [2], [3, 4]]
    ),
    "variance of a value": lambda: ma.prior_sensitivity(POSTERIOR, SOFTMAX, np.full((4, 3), 1e308)),
    "noise of a wrong prior": lambda: SYNTHETIC.misspecified(SYNTHETIC.draw_prior(RNG), 1e300, rng=RNG),
    "covariances of a prior": lambda: ma.HierarchicalGaussian(
        np.zeros(2), 1e200, np.full((5, 3, 2), 1e200), 1.0
    ).action_cov([0]),
    "number of periods": lambda: ma.backtest(
        ma.LoggedData(X, LOGS.actions, LOGS.rewards, n_actions=5, times=np.arange(1.0, 5.0)), prior=PRIOR, period=5e-324
    ),
    "contexts of a capped policy": lambda: ma.CappedPolicy(POSTERIOR, np.diag([1e308] * 3), max_share=0.5),
    "squares of standard deviations": lambda: theory.mse_bound(POSTERIOR, np.full((4, 3), 1e200), [0] * 4),
    "squared errors of a simulation": lambda: theory.bayes_mse(
        theory.BayesianProblem(PRIOR, SYNTHETIC.draw_contexts), np.full((1, 3), 1e200), [0], 5, rng=RNG, n_instances=2
    ),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_numbers_that_overflow_are_refused_without_a_warning_of_numpy(name):
    with warnings.catch_warnings(), pytest.raises(errors.ManyarmsError):
        warnings.simplefilter("error")
        OVERFLOWS[name]()


def test_tiny_weights_and_levels_keep_their_meaning():
    groups, weights = [0, 0, 1, 1], np.array([1.0, 2.0, 1.0, 3.0])
    value = POSTERIOR.value(SOFTMAX, X, weights=weights, groups=groups)
    tiny = POSTERIOR.value(SOFTMAX, X, weights=weights * 1e-300, groups=groups)
    np.testing.assert_allclose([tiny.value, tiny.std], [value.value, value.std], rtol=1e-9)
    assert np.isfinite(theory.confidence_radius(3, 5e-324))


def test_an_unknown_policy_of_an_evaluation_is_refused_by_name():
    evaluation = ma.evaluate({"u": ma.Uniform(5)}, LOGS, POSTERIOR)
    assert 0 <= evaluation.probability_better("u", "logged") <= 1
    with pytest.raises(errors.InputError, match="must be one of 'logged', 'u'; got 'v'"):
        evaluation.probability_better("v", "u")


def test_ids_are_found_in_a_column_of_any_library():
    catalog = ma.Catalog(["a", 7])
    for ids in (pa.array(["7", "x", "a"]), pd.Series(["7", "x", "a"], index=[5, 6, 7]), np.array(["7", "x", "a"])):
        assert catalog.find(ids).tolist() == [1, -1, 0]


@pytest.mark.parametrize("prior", [PRIOR, ma.priors.from_categories(["a", "b", "b", "a", "b"], dim=3)])
def test_draws_of_no_action_are_empty(prior):
    assert prior.sample(RNG, 2, []).shape == (2, 0, 3)


def test_rows_may_be_a_mask_or_count_from_the_end():
    assert LOGS.take(np.array([True, False, False, True])).actions.tolist() == [0, 4]
    assert LOGS.take(np.array([-1])).actions.tolist() == [4]
    assert LOGS.take([]).actions.tolist() == []


def test_a_message_that_quotes_an_array_is_one_line():
    assert str(errors.InputError("got [[1]\n [2]].", "Pass\nothers.", argument="x")) == "x got [[1]  [2]]. Pass others."
