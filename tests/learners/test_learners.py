"""Learners: their objectives against the estimators, gradients against differences, policies against brute force."""

import jaxtyping
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import manyarms as ma
from manyarms import errors, learners
from manyarms.core.eligibility import as_eligibility
from manyarms.learners.objective import Objective

N, K, D = 150, 7, 3  # blocks have at least 32 rounds, so that these make five blocks in four lanes
rng = np.random.default_rng(3)
CLUSTERS = np.array([0, 1, 2, 0, 1, 2, 0])
EMBEDDINGS = rng.normal(size=(K, 2))


def make_logs(n=N, seed=0, **known):
    """Rounds of a random softmax policy; rewards are not negative, so that every learner takes them."""
    rng = np.random.default_rng(seed)
    logging = ma.LinearSoftmax(0.7 * rng.normal(size=(K, D)))
    contexts = rng.normal(size=(n, D))
    actions = logging.sample(contexts, rng)
    known = {
        "propensities": logging.probability_of(contexts, actions),
        "logging_policy": logging,
        "weights": rng.integers(0, 4, n) + 0.25 * rng.integers(0, 2, n),
    } | known
    return ma.LoggedData(contexts, actions, rng.gamma(2.0, size=n), n_actions=K, **known)


@pytest.fixture(scope="module")
def logs():
    return make_logs()


@pytest.fixture(scope="module")
def eligible(logs):
    """Two to six actions a round, the logged one among them."""
    rng = np.random.default_rng(1)
    return [
        np.union1d(rng.choice(K, rng.integers(1, 6), replace=False), [a, (a + 1) % K]).tolist() for a in logs.actions
    ]


def prior():
    return ma.priors.independent(K, mean=0.3, cov=0.5, dim=D)


def model():
    """A posterior of other rounds."""
    return ma.fit(make_logs(80, seed=9), prior())


def cross_fit():
    return ma.CrossFit(prior(), n_folds=3, rng=np.random.default_rng(4))


MAKERS = {
    "IPS": (ma.IPSLearner, ma.IPS),
    "IPS clipped": (lambda **kw: ma.IPSLearner(0.2, **kw), lambda: ma.IPS(0.2)),
    "snIPS": (ma.SNIPSLearner, ma.SNIPS),
    "DR": (lambda **kw: ma.DRLearner(model(), 0.1, **kw), lambda: ma.DR(model(), 0.1)),
    "DR cross-fitted": (lambda **kw: ma.DRLearner(cross_fit(), **kw), lambda: ma.DR(cross_fit())),
    "MIPS": (lambda **kw: ma.MIPSLearner(CLUSTERS, **kw), lambda: ma.MIPS(CLUSTERS)),
    "PC": (
        lambda **kw: ma.PolicyConvolutionLearner(EMBEDDINGS, 3, 0.05, **kw),
        lambda: ma.PolicyConvolution(EMBEDDINGS, 3, 0.05),
    ),
    "LS": (
        lambda **kw: ma.LogarithmicSmoothingLearner(0.3, **kw),
        lambda: ma.LogarithmicSmoothing(0.3),
    ),
    "LS at 0": (lambda **kw: ma.LogarithmicSmoothingLearner(0.0, **kw), ma.IPS),
}
every_learner = pytest.mark.parametrize("which", MAKERS)
with_and_without_eligible = pytest.mark.parametrize("restricted", [False, True], ids=["all", "eligible"])


def make_learner(which, **kw):
    return MAKERS[which][0](**kw)


def random_policy(seed=5, n_actions=K):
    return ma.LinearSoftmax(np.random.default_rng(seed).normal(size=(n_actions, D)))


# Objectives


@every_learner
@with_and_without_eligible
def test_an_objective_is_the_estimate_of_its_estimator(which, restricted, logs, eligible):
    sets = eligible if restricted else None
    estimate = MAKERS[which][1]().estimate(random_policy(), logs, eligible=sets)
    found = make_learner(which).objective(random_policy(), logs, eligible=sets)
    assert_allclose(found, estimate.value, rtol=1e-10)


@pytest.mark.parametrize("which", ["IPS", "snIPS", "MIPS", "PC"])
@pytest.mark.parametrize("known", [{"propensities": None}, {"propensities": None, "logging_policy": None}])
def test_propensities_that_logs_lack_are_those_of_the_estimator(which, known):
    logs = make_logs(**known)
    estimate = MAKERS[which][1]().estimate(random_policy(), logs)
    assert_allclose(make_learner(which).objective(random_policy(), logs), estimate.value, rtol=1e-10)


def test_clusters_of_one_action_and_neighbourhoods_of_one_are_ips(logs):
    ips = ma.IPSLearner().objective(random_policy(), logs)
    alone = ma.MIPSLearner(np.arange(K)[::-1]).objective(random_policy(), logs)
    nearest = ma.PolicyConvolutionLearner(EMBEDDINGS, 1).objective(random_policy(), logs)
    assert_allclose([alone, nearest], ips, rtol=1e-12)


def test_one_cluster_and_one_neighbourhood_leave_the_mean_reward_and_nothing_to_learn(logs):
    mean = np.average(logs.rewards, weights=logs.weights)
    for learner in (ma.MIPSLearner(np.zeros(K, dtype=int)), ma.PolicyConvolutionLearner(EMBEDDINGS, K)):
        assert_allclose(learner.objective(random_policy(), logs), mean, rtol=1e-12)
        assert_allclose(learner.learn(logs).weights, 0.0, atol=1e-6)


# Gradients


def central_differences(function, at, step=1e-5):
    out = np.empty(at.shape)
    for place in np.ndindex(*at.shape):
        move = np.zeros(at.shape)
        move[place] = step
        out[place] = (function(at + move) - function(at - move)) / (2 * step)
    return out


@every_learner
@with_and_without_eligible
def test_gradients_are_those_of_finite_differences(which, restricted, logs, eligible):
    learner = make_learner(which, training=ma.Training(imitation=0.4, ridge=0.05))
    problem = learner.training_rounds(logs, as_eligibility(eligible if restricted else None, N, K))
    objective = learner.training.objective(problem, learner.criterion)
    weights = random_policy().weights
    value, gradient = objective.value_and_gradient(weights)
    expected = central_differences(objective.value, weights)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
    assert value == objective.value(weights)


def test_penalties_are_as_written(logs):
    learner, policy = ma.IPSLearner(training=ma.Training(imitation=0.4, ridge=0.05)), random_policy()
    chance = policy.probability_of(logs.contexts, logs.actions)
    pull = 0.4 * np.average(np.log(chance), weights=logs.weights)
    found = learner.training.objective(learner.training_rounds(logs, None), learner.criterion).value(policy.weights)
    expected = learner.objective(policy, logs) + pull - 0.05 / 2 * np.sum(policy.weights**2)
    assert_allclose(found, expected, rtol=1e-12)


@every_learner
def test_results_do_not_depend_on_the_size_of_blocks(which, logs):
    learner = make_learner(which)
    problem = learner.training_rounds(logs, None)
    weights = random_policy().weights
    found = [
        Objective(problem, learner.criterion, imitation=0.2, block_numbers=size).value_and_gradient(weights)
        for size in (1, 50 * K, 1 << 18)
    ]
    for value, gradient in found[1:]:
        assert_allclose(value, found[0][0], rtol=1e-12)
        assert_allclose(gradient, found[0][1], rtol=1e-9, atol=1e-12)


@every_learner
def test_a_row_of_weight_two_is_that_row_twice_and_of_weight_zero_none(which):
    whole = make_logs(60)
    counts = np.arange(60) % 3
    weighted = make_logs(60, weights=counts)
    repeated = make_logs(60, weights=None).take(np.repeat(np.arange(60), counts))
    learner = make_learner(which, training=ma.Training(learners.LBFGS(5), imitation=0.1))
    if which == "DR cross-fitted":  # rows that are copies of one another may fall into different folds
        learner = ma.DRLearner(ma.fit(whole, prior()), training=learner.training)
    found, expected = learner.learn(weighted), learner.learn(repeated)
    assert_allclose(found.weights, expected.weights, rtol=1e-6, atol=1e-9)


def test_scores_far_apart_neither_overflow_nor_become_nan(logs):
    objective = Objective(ma.IPSLearner().training_rounds(logs, None), ma.IPSLearner().criterion, imitation=1.0)
    value, gradient = objective.value_and_gradient(1e4 * random_policy().weights)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_rewards_too_large_are_an_error_and_not_infinity():
    logs = ma.LoggedData(np.ones((5, D)), np.zeros(5, int), np.full(5, 1e308), np.full(5, 1e-3), K)
    with pytest.raises(errors.NumericalError, match="Rescale"):
        ma.IPSLearner().learn(logs)


# Optimisers


@every_learner
def test_lbfgs_never_goes_down_and_gains(which, logs):
    seen = []
    training = ma.Training(learners.LBFGS(12), imitation=0.01, progress=seen.append)
    learner = make_learner(which, training=training)
    policy = learner.learn(logs)
    climb = [p.objective for p in seen]
    assert np.all(np.diff(climb) >= 0)
    assert all(p.held_out is None for p in seen)
    assert [p.step for p in seen] == list(range(1, len(seen) + 1))
    uniform = ma.LinearSoftmax(np.zeros((K, D)))
    assert learner.objective(policy, logs) > learner.objective(uniform, logs) + 0.1
    found = training.objective(learner.training_rounds(logs, None), learner.criterion).value(policy.weights)
    assert_allclose(found, climb[-1], rtol=1e-12)


@every_learner
def test_adam_gains(which, logs):
    training = ma.Training(learners.Adam(0.1, n_epochs=20, batch_size=64), rng=np.random.default_rng(0))
    learner = make_learner(which, training=training)
    uniform = ma.LinearSoftmax(np.zeros((K, D)))
    assert learner.objective(learner.learn(logs), logs) > learner.objective(uniform, logs) + 0.1


@pytest.mark.parametrize("optimiser", [learners.LBFGS(5), learners.Adam(n_epochs=3)], ids=["lbfgs", "adam"])
def test_learning_is_determined_by_the_generator(optimiser, logs):
    def learned(seed):
        training = ma.Training(optimiser, holdout=0.3, rng=np.random.default_rng(seed))
        learner = ma.SNIPSLearner(training=training)
        first, second = learner.learn(logs).weights, learner.learn(logs).weights
        assert_array_equal(first, second)
        return first

    assert_array_equal(learned(0), learned(0))
    assert not np.array_equal(learned(0), learned(1))


def test_gradients_of_minibatches_average_to_the_whole():
    learner = ma.DRLearner(model(), training=ma.Training(imitation=0.1, ridge=0.1))
    objective = learner.training.objective(learner.training_rounds(make_logs(weights=None), None), learner.criterion)
    weights = random_policy().weights
    batches = np.random.default_rng(0).permutation(N).reshape(5, -1)
    parts = [objective.take(rows).value_and_gradient(weights)[1] for rows in batches]
    assert_allclose(np.mean(parts, axis=0), objective.value_and_gradient(weights)[1], rtol=1e-9, atol=1e-12)


def test_the_first_step_of_adam_is_the_sign_of_the_gradient():
    logs = make_logs(weights=None)
    training = ma.Training(learners.Adam(0.1, 1, batch_size=N), rng=np.random.default_rng(0))
    learner = ma.IPSLearner(training=training)
    objective = training.objective(learner.training_rounds(logs, None), learner.criterion)
    gradient = objective.value_and_gradient(np.zeros((K, D)))[1]
    assert_allclose(learner.learn(logs).weights, 0.1 * np.sign(gradient), rtol=1e-4)


# Early stopping


class Scripted(learners.Optimiser):
    """Reports given weights, whatever the objective."""

    def __init__(self, path):
        self.path = path

    def maximise(self, objective, report, rng):
        for step, weights in enumerate(self.path, start=1):
            if not report(step, objective.value(weights), weights):
                return


def test_the_best_weights_on_the_rounds_held_out_are_kept(logs):
    path = [random_policy(seed).weights for seed in range(12)]
    seen = []
    training = ma.Training(Scripted(path), holdout=0.4, patience=20, rng=np.random.default_rng(2), progress=seen.append)
    policy = ma.IPSLearner(training=training).learn(logs)
    assert len(seen) == len(path)
    best = int(np.argmax([p.held_out for p in seen]))
    assert 0 < best < len(path) - 1
    assert_array_equal(policy.weights, path[best])


def test_training_stops_when_patience_is_over_and_may_keep_the_start():
    # What was logged is worth something, and an action that never was is worth nothing to IPS.
    logs = ma.LoggedData(np.ones((20, 1)), np.zeros(20, int), np.ones(20), np.full(20, 0.5), 2)
    worse, seen = np.array([[0.0], [5.0]]), []
    training = ma.Training(
        Scripted([worse] * 9), holdout=0.4, patience=4, rng=np.random.default_rng(2), progress=seen.append
    )
    policy = ma.IPSLearner(training=training).learn(logs)
    assert [p.step for p in seen] == [1, 2, 3, 4]
    assert_array_equal(policy.weights, 0.0)


def test_whole_groups_are_held_out_and_evaluated_without_penalties():
    groups = np.arange(N) % 2
    logs = make_logs(groups=groups)
    seen = []
    training = ma.Training(
        Scripted([random_policy().weights]), holdout=0.5, ridge=0.3, imitation=0.2, rng=np.random.default_rng(0),
        progress=seen.append,
    )  # fmt: skip
    learner = ma.SNIPSLearner(training=training)
    learner.learn(logs)
    halves = [learner.objective(random_policy(), logs.take(np.flatnonzero(groups == g))) for g in (0, 1)]
    assert np.isclose(halves, seen[0].held_out, rtol=1e-12).sum() == 1


@pytest.mark.parametrize("optimiser", [learners.LBFGS(200), learners.Adam(0.1, 200)], ids=["lbfgs", "adam"])
def test_early_stopping_stops_early(optimiser):
    seen = []
    training = ma.Training(
        optimiser, holdout=0.3, patience=3, ridge=0.0, rng=np.random.default_rng(1), progress=seen.append
    )
    ma.SNIPSLearner(training=training).learn(make_logs(600, weights=None))
    best = int(np.argmax([p.held_out for p in seen]))
    assert best > 0
    assert len(seen) - 1 - best == 3


# What is learned


def bandit(n, seed):
    """Three kinds of customers, four actions, binary rewards: a table that a linear softmax can follow."""
    rng = np.random.default_rng(seed)
    chances = np.array([[0.1, 0.2, 0.3, 0.8], [0.7, 0.1, 0.4, 0.2], [0.3, 0.3, 0.9, 0.1]])
    kind, actions = rng.integers(0, 3, n), rng.integers(0, 4, n)
    rewards = (rng.random(n) < chances[kind, actions]).astype(float)
    logs = ma.LoggedData(np.eye(3)[kind], actions, rewards, np.full(n, 0.25), 4, logging_policy=ma.Uniform(4))
    return logs, chances


def learners_of_four(training):
    some = ma.fit(bandit(300, 8)[0], ma.priors.independent(4, dim=3))
    return [
        ma.IPSLearner(training=training),
        ma.SNIPSLearner(training=training),
        ma.DRLearner(some, training=training),
        ma.MIPSLearner(np.arange(4), training=training),
        ma.PolicyConvolutionLearner(np.arange(4.0)[:, None], 1, training=training),
        ma.LogarithmicSmoothingLearner(0.1, training=training),
    ]


@pytest.mark.parametrize(
    "training",
    [
        ma.Training(),
        ma.Training(learners.Adam(0.1, n_epochs=20), holdout=0.2, rng=np.random.default_rng(0)),
    ],
    ids=["lbfgs", "adam"],
)
def test_with_plenty_of_data_learners_come_close_to_the_best_policy(training):
    logs, chances = bandit(3000, 0)
    best = chances.max(axis=1).mean()
    direct = ma.DMLearner(ma.priors.independent(4, dim=3), ma.Gaussian(0.5))
    for learner in [*learners_of_four(training), direct]:
        value = np.mean(np.sum(learner.learn(logs).probabilities(np.eye(3)) * chances, axis=1))
        assert value > 0.95 * best, learner.name


def test_the_pull_towards_logged_actions_ends_at_the_logging_policy():
    logs, _ = bandit(3000, 0)
    actions = np.where(logs.contexts[:, 0] > 0, 1, logs.actions)
    skewed = ma.LoggedData(logs.contexts, actions, logs.rewards, n_actions=4, logging_policy=ma.Uniform(4))
    learner = ma.IPSLearner(training=ma.Training(imitation=1e4, ridge=0.0))
    counts = np.stack([np.bincount(actions[logs.contexts[:, j] > 0], minlength=4) for j in range(3)])
    found = learner.learn(skewed).probabilities(np.eye(3))
    assert_allclose(found, counts / counts.sum(axis=1, keepdims=True), atol=2e-3)


def test_what_was_never_eligible_is_never_preferred(logs):
    # Action 6 pays most but may not be chosen: its scores do not move at all.
    rewards = np.where(logs.actions == 6, 50.0, logs.rewards)
    rich = ma.LoggedData(logs.contexts, logs.actions, rewards, logs.propensities, K)
    allowed = np.ones((N, K), dtype=bool)
    allowed[:, 6] = False
    for eligible in (allowed, sparse.csr_array(allowed), lambda rows: allowed[rows], allowed[0]):
        policy = ma.IPSLearner(training=ma.Training(learners.LBFGS(10))).learn(rich, eligible=eligible)
        assert_array_equal(policy.weights[6], 0.0)
        assert np.abs(policy.weights[:6]).min() > 0


def test_the_direct_method_is_a_fit_and_a_choice(logs):
    posterior = ma.fit(logs, prior(), ma.Gaussian(0.7))
    learner = ma.DMLearner(prior(), ma.Gaussian(0.7), policy=ma.Pessimistic)
    assert_array_equal(learner.learn(logs).actions(logs.contexts), ma.Pessimistic(posterior).actions(logs.contexts))
    assert isinstance(ma.DMLearner(prior()).learn(logs), ma.Greedy)


def test_a_learned_policy_remembers_its_rounds(logs):
    mine, others = make_logs(weights=None).split(0.5, rng=np.random.default_rng(0))
    elsewhere = make_logs(50, seed=11, weights=None)
    training = ma.Training(learners.LBFGS(3))
    policies = [
        ma.IPSLearner(training=training).learn(mine),
        ma.DRLearner(ma.fit(elsewhere, prior()), training=training).learn(mine),
        ma.DMLearner(prior()).learn(mine),
    ]
    for policy in policies:
        warned = [any("learned from" in w for w in ma.IPS().estimate(policy, part).warnings)
                  for part in (mine, others)]  # fmt: skip
        assert warned == [True, False]
    assert policies[1].learned_from == (mine.fingerprint, elsewhere.fingerprint)


# The policy


def brute_force(weights, contexts, eligible=None):
    scores = np.exp(contexts @ weights.T)
    if eligible is not None:
        for i, ids in enumerate(eligible):
            scores[i, np.setdiff1d(np.arange(len(weights)), ids)] = 0.0
    return scores / scores.sum(axis=1, keepdims=True)


@with_and_without_eligible
def test_a_linear_softmax_is_its_formula(restricted, logs, eligible):
    policy, x = random_policy(), logs.contexts
    sets = eligible if restricted else None
    expected = brute_force(policy.weights, x, sets)
    assert_allclose(policy.probabilities(x, eligible=sets), expected, rtol=1e-12)
    chance = policy.probability_of(x, logs.actions, eligible=sets)
    assert_allclose(chance, expected[np.arange(N), logs.actions], rtol=1e-12)
    assert_array_equal(policy.actions(x, eligible=sets), expected.argmax(axis=1))
    order = np.argsort(-expected, axis=1, kind="stable")[:, :3]
    top = np.where(np.take_along_axis(expected, order, axis=1) > 0, order, -1)
    assert_array_equal(policy.top_k(x, 3, eligible=sets), top)
    mass = policy.feature_mass(x, eligible=sets)
    assert_allclose(mass.vectors, (expected.T @ x / N)[mass.actions], rtol=1e-10, atol=1e-14)
    drawn = np.stack([policy.sample(x, np.random.default_rng(s), eligible=sets) for s in range(400)])
    shares = np.mean(drawn == logs.actions, axis=0)
    assert np.all(np.abs(shares - chance) < 5 * np.sqrt(chance * (1 - chance) / 400) + 1e-9)


def test_the_likeliest_action_is_found_without_probabilities_of_all(monkeypatch):
    policy = ma.LinearSoftmax(np.random.default_rng(0).normal(size=(3000, D)))
    x = np.random.default_rng(1).normal(size=(20, D))
    expected = np.argsort(-(x @ policy.weights.T), axis=1)
    monkeypatch.setattr(ma.LinearSoftmax, "choices", None)
    assert_array_equal(policy.top_k(x, 5), expected[:, :5])
    assert_array_equal(policy.actions(x), expected[:, 0])


# Bad input


def bad_calls():
    logs, few = make_logs(weights=np.arange(N) % 5), make_logs(4)
    negative = ma.LoggedData(few.contexts, few.actions, [1.0, 2.0, -3.0, 1.0], few.propensities, K)
    nothing = make_logs(weights=np.zeros(N))
    zero = ma.LoggedData(np.ones((3, D)), [0, 1, 2], np.ones(3), n_actions=K,
                         logging_policy=ma.TablePolicy(np.eye(K)[0]))  # fmt: skip
    not_logged = [[(a + 1) % K] for a in logs.actions]
    # A round of weight zero does not count, whatever is eligible there.
    some_missing = [[(int(a) + (i in (5, 8))) % K] for i, a in enumerate(logs.actions)]
    ips, draws = ma.IPSLearner(), np.random.default_rng(0)
    return {
        "clusters of another length": (
            lambda: ma.MIPSLearner([0, 1]).learn(logs), errors.ShapeError, "built for 2 actions"),
        "embeddings of another length": (
            lambda: ma.PolicyConvolutionLearner(np.ones((3, 1)), 1).learn(logs), errors.ShapeError, "3 actions"),
        "k too large": (lambda: ma.PolicyConvolutionLearner(EMBEDDINGS, 8), errors.ShapeError, "at most"),
        "negative rewards": (
            lambda: ma.LogarithmicSmoothingLearner(0.1).learn(negative), errors.InputError, "row 2 has -3"),
        "negative parameter": (lambda: ma.LogarithmicSmoothingLearner(-0.1), errors.InputError, "at least 0"),
        "all weights zero": (lambda: ips.learn(nothing), errors.InputError, "none of the 150 rounds"),
        "an empty log": (lambda: ips.learn(logs.take(slice(0, 0))), errors.InputError, "empty log"),
        "zero propensities": (lambda: ips.learn(zero), errors.InputError, "probability zero to .* in row 1"),
        "a set of probability zero": (
            lambda: ma.MIPSLearner(CLUSTERS).learn(zero), errors.InputError, "probability zero to .* in row 1"),
        "nothing logged is eligible": (
            lambda: ips.learn(logs, eligible=not_logged), errors.EligibilityError, "all weights are zero"),
        "imitating what is not eligible": (
            lambda: ma.IPSLearner(training=ma.Training(imitation=0.1)).learn(logs, eligible=some_missing),
            errors.EligibilityError, "row 8 is not eligible"),
        "a model of another size": (
            lambda: ma.DRLearner(ma.fit(logs, prior())).learn(bandit(9, 0)[0]), errors.ShapeError, "7 actions"),
        "no model": (lambda: ma.DRLearner("DM"), errors.DataTypeError, "str"),
        "chance without a generator": (lambda: ma.Training(holdout=0.2), errors.InputError, "rng="),
        "minibatches without a generator": (lambda: ma.Training(learners.Adam()), errors.InputError, "rng="),
        "a seed for a generator": (
            lambda: ma.Training(holdout=0.2, rng=3), errors.DataTypeError, "default_rng"),
        "nothing left to hold out": (
            lambda: ma.IPSLearner(training=ma.Training(holdout=0.01, rng=draws)).learn(few),
            errors.InputError, "holds out 0 of"),
        "everything held out": (lambda: ma.Training(holdout=1.0, rng=draws), errors.InputError, "below 1"),
        "a negative penalty": (lambda: ma.Training(ridge=-1.0), errors.InputError, "at least 0"),
        "a string for an optimiser": (lambda: ma.Training("adam"), errors.DataTypeError, "LBFGS"),
        "options that are no Training": (
            lambda: ma.IPSLearner(training={"ridge": 1.0}), errors.DataTypeError, "dict"),
        "a batch of nothing": (lambda: learners.Adam(batch_size=0), errors.InputError, "at least 1"),
        "a policy of another size": (
            lambda: ips.objective(random_policy(n_actions=4), logs), errors.ShapeError, "4 actions"),
        "weights without actions": (lambda: ma.LinearSoftmax(np.ones((0, 2))), errors.ShapeError, "one row per action"),
        "weights that are not numbers": (
            lambda: ma.LinearSoftmax([[np.nan]]), errors.NonFiniteError, "finite"),
        "no prior": (lambda: ma.DMLearner(0.1), errors.DataTypeError, "float"),
    }  # fmt: skip


@pytest.fixture
def unchecked():
    """The package as users have it: its own errors, not those of the shape checks that tests turn on."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_is_refused(name):
    call, error, message = bad_calls()[name]
    with pytest.raises(error, match=message):
        call()
