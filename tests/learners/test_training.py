"""Optimisers climb, are determined by their generator, and stop by held-out rounds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from small_learners import D, K, N, every_learner, make_learner, make_logs, model, random_policy

import manyarms as ma
from manyarms import learners


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


def test_adam_makes_thirty_passes_by_default(logs):
    seen = []
    ma.SNIPSLearner(training=ma.Training(learners.Adam(), progress=seen.append, rng=np.random.default_rng(0))).learn(
        logs
    )
    assert [progress.step for progress in seen] == list(range(1, 31))


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


class Scripted(learners.Optimiser):
    """Reports given weights, whatever the objective."""

    def __init__(self, path):
        self.path = path

    def maximise(self, objective, report, rng, start):
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


def test_of_several_penalties_the_rounds_held_out_choose():
    logs, ridges, best = make_logs(3000, weights=None), [0.001, 0.1, 0.01, 1.0], {}

    def learned(ridge, progress=None):
        training = ma.Training(
            learners.LBFGS(300), holdout=0.4, patience=300, ridge=ridge, rng=np.random.default_rng(3), progress=progress
        )
        return ma.SNIPSLearner(training=training).learn(logs).weights

    path = []
    chosen = learned(ridges, path.append)
    assert list(dict.fromkeys(step.ridge for step in path)) == [1.0, 0.1, 0.01, 0.001]
    for ridge in ridges:
        alone = []
        learned(ridge, alone.append)
        best[ridge] = max(step.held_out for step in alone), len(alone)
        # The objective has several maxima, and the path may end in a higher one.
        assert [step for step in path if step.ridge == ridge][-1].objective > 0.98 * alone[-1].objective
    highest = max(path, key=lambda step: step.held_out)
    assert highest.held_out > 0.98 * max(value for value, _ in best.values())
    # Where the last penalty ended is a good start for the next.
    assert len(path) < 0.8 * sum(steps for _, steps in best.values())
    again = []
    learned([highest.ridge, *(ridge for ridge in ridges if ridge > highest.ridge)], again.append)
    assert chosen.any() and highest in again


@pytest.mark.parametrize("optimiser", [learners.LBFGS(20), learners.Adam(0.1, 5)], ids=["lbfgs", "adam"])
def test_each_penalty_starts_where_the_one_before_ended(optimiser):
    logs, starts, ends = make_logs(300, weights=None), [], []

    class Watched(type(optimiser)):
        def maximise(self, objective, report, rng, start):
            starts.append((objective.ridge, start.copy()))

            def noted(step, value, weights):
                ends.append(weights)
                return report(step, value, weights)

            super().maximise(objective, noted, rng, start)

    watched = Watched(*vars(optimiser).values())
    rng = np.random.default_rng(0)
    ma.IPSLearner(training=ma.Training(watched, holdout=0.3, ridge=np.array([0.01, 1.0]), rng=rng)).learn(logs)
    (first, zeros), (second, warm) = starts
    assert (first, second) == (1.0, 0.01) and not zeros.any() and warm.any()
    assert any(np.array_equal(warm, weights) for weights in ends)


@pytest.mark.parametrize(
    ("ridge", "message"),
    [([], "holds no penalty"), ([0.1, -1.0], "must be at least 0"), ([0.1, 0.2], "compared on held-out rounds")],
)
def test_penalties_that_cannot_be_tried_are_refused(ridge, message):
    with pytest.raises(ma.errors.ManyarmsError, match=message) as caught:
        ma.Training(ridge=ridge)
    assert caught.value.argument == "ridge"


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


def test_adam_passes_over_the_rounds_thirty_times(logs):
    steps = []
    training = ma.Training(learners.Adam(), rng=np.random.default_rng(0), progress=steps.append)
    ma.IPSLearner(training=training).learn(logs)
    assert len(steps) == 30


def test_the_share_held_out_is_the_one_asked_for():
    training = ma.Training(holdout=0.2, rng=np.random.default_rng(0))
    groups = np.repeat(np.arange(20), 3)
    held = training._held_out(groups, np.random.default_rng(1))
    assert held.sum() == 12 and len(np.unique(groups[held])) == 4
