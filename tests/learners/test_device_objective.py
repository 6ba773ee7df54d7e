"""Training on a device: the objective, the gradient and the policy of the processor."""

import numpy as np
import pytest
from device_cases import HERE, fake_torch, stand_in, torch_or_skip
from numpy.testing import assert_allclose
from small_learners import (
    CLUSTERS,
    EMBEDDINGS,
    MAKERS,
    D,
    K,
    N,
    every_learner,
    make_learner,
    make_logs,
    random_policy,
    with_and_without_eligible,
)

import manyarms as ma
from manyarms import learners
from manyarms.core.eligibility import as_eligibility
from manyarms.learners import device_objective
from manyarms.learners.device_objective import DeviceObjective


def both(learner, logs, eligible=None):
    """The objective of a learner on the processor and on the device."""
    rounds = learner.training_rounds(logs, as_eligibility(eligible, N, K))
    here = learner.training.objective(rounds, learner.criterion)
    return here, DeviceObjective.place(here, HERE)


@every_learner
@with_and_without_eligible
@pytest.mark.parametrize("imitation", [0.0, 0.4])
def test_value_and_gradient_are_those_of_the_processor(which, restricted, imitation, logs, eligible):
    torch_or_skip()
    learner = make_learner(which, training=ma.Training(imitation=imitation, ridge=0.05))
    here, there = both(learner, logs, eligible if restricted else None)
    weights = random_policy().weights
    value, gradient = here.value_and_gradient(weights)
    got = there.value_and_gradient(weights)
    assert_allclose(got[0], value, rtol=1e-13)
    assert_allclose(got[1], gradient, rtol=1e-11, atol=1e-14)
    assert there.value(weights) == got[0]
    rows = np.random.default_rng(1).permutation(len(here))[:40]
    value, gradient = here.take(rows).value_and_gradient(weights)
    got = there.take(rows).value_and_gradient(weights)
    assert_allclose(got[0], value, rtol=1e-13)
    assert_allclose(got[1], gradient, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("which", MAKERS)
def test_gradients_on_a_device_are_those_of_finite_differences(which, logs, eligible):
    torch_or_skip()
    _, there = both(make_learner(which, training=ma.Training(imitation=0.4, ridge=0.05)), logs, eligible)
    weights, step, expected = random_policy().weights, 1e-5, np.empty((K, D))
    for place in np.ndindex(K, D):
        move = np.zeros((K, D))
        move[place] = step
        expected[place] = (there.value(weights + move) - there.value(weights - move)) / (2 * step)
    assert_allclose(there.value_and_gradient(weights)[1], expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("which", ["DR cross-fitted", "snIPS", "MIPS", "PC"])
def test_results_do_not_depend_on_the_tile_and_a_tile_shrinks_to_the_memory(which, logs, eligible, monkeypatch):
    torch_or_skip()
    learner = make_learner(which, training=ma.Training(imitation=0.1))
    _, whole = both(learner, logs, eligible)
    monkeypatch.setattr(device_objective, "free_memory", lambda device: 30_000)
    _, parts = both(learner, logs, eligible)
    assert whole.on_device.tile_rows > N and parts.on_device.tile_rows < 60
    weights = random_policy().weights
    first, second = (objective.value_and_gradient(weights) for objective in (whole, parts))
    assert_allclose(first[0], second[0], rtol=1e-13)
    assert_allclose(first[1], second[1], rtol=1e-11, atol=1e-14)


def test_one_set_for_all_rounds_is_the_same_set_in_every_round(logs):
    torch_or_skip()
    shared = np.arange(K) != 2
    logs = logs.take(np.flatnonzero(logs.actions != 2))
    learner, weights = ma.IPSLearner(), random_policy().weights
    rounds = [
        learner.training_rounds(logs, as_eligibility(given, len(logs), K)) for given in (shared, [shared] * len(logs))
    ]
    found = [
        DeviceObjective.place(ma.Training().objective(part, learner.criterion), HERE).value_and_gradient(weights)
        for part in rounds
    ]
    assert_allclose(found[0][0], found[1][0], rtol=1e-14)
    assert_allclose(found[0][1], found[1][1], rtol=1e-12, atol=1e-15)
    assert np.array_equal(found[0][1][2], -1e-4 * weights[2])


@pytest.mark.parametrize(
    "optimiser", [learners.LBFGS(30), learners.Adam(0.1, n_epochs=4, batch_size=32)], ids=["lbfgs", "adam"]
)
@pytest.mark.parametrize("which", ["IPS", "snIPS", "DR", "MIPS"])
def test_a_policy_learned_on_a_device_is_that_of_the_processor(which, optimiser, logs, monkeypatch):
    torch_or_skip()
    stand_in(monkeypatch, "manyarms.learners.training")
    steps = {"cpu": [], "cuda": []}

    def learned(device):
        training = ma.Training(
            optimiser,
            holdout=0.2,
            imitation=0.01,
            rng=np.random.default_rng(0),
            device=device,
            progress=steps[device].append,
        )
        learner = make_learner(which, training=training)
        policy = learner.learn(logs)
        return policy, learner.objective(policy, logs)

    (here, value), (there, same) = learned("cpu"), learned("cuda")
    assert isinstance(there.weights, np.ndarray) and np.abs(here.weights).max() > 0.1
    assert same == pytest.approx(value, rel=1e-9)
    assert_allclose(there.weights, here.weights, rtol=1e-7, atol=1e-8)
    assert len(steps["cpu"]) == len(steps["cuda"]) > 3
    for ours, theirs in zip(steps["cuda"], steps["cpu"], strict=True):
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-9)
        assert ours.held_out == pytest.approx(theirs.held_out, rel=1e-9)


def test_scores_far_apart_on_a_device_neither_overflow_nor_become_nan(logs):
    torch_or_skip()
    here, there = both(ma.IPSLearner(training=ma.Training(imitation=1.0)), logs)
    weights = 1e4 * random_policy().weights
    value, gradient = here.value_and_gradient(weights)
    got = there.value_and_gradient(weights)
    assert_allclose(got[0], value, rtol=1e-12)
    assert_allclose(got[1], gradient, rtol=1e-9, atol=1e-12)


def test_rewards_too_large_for_a_device_are_an_error(monkeypatch):
    torch_or_skip()
    stand_in(monkeypatch, "manyarms.learners.training")
    logs = ma.LoggedData(np.ones((5, D)), np.zeros(5, int), np.full(5, 1e308), np.full(5, 1e-3), K)
    with pytest.raises(ma.errors.NumericalError, match="Rescale"):
        ma.IPSLearner(training=ma.Training(device="cuda")).learn(logs)


@pytest.mark.parametrize("learner", [ma.MIPSLearner(CLUSTERS), ma.PolicyConvolutionLearner(EMBEDDINGS, 3)])
def test_too_little_memory_for_training_is_an_error_that_says_how_much(learner, logs, monkeypatch):
    rounds = learner.training_rounds(logs, None)
    objective = learner.training.objective(rounds, learner.criterion)
    fake_torch(monkeypatch, 1, free=-2_000_000_000 + 5_000)
    with pytest.raises(
        ma.errors.DeviceError, match=r"training on \d+ rounds of 7 actions needs .* GB on cuda:0"
    ) as caught:
        DeviceObjective.place(objective, "cuda:0")
    assert "fewer rounds" in caught.value.remedy


def test_a_device_that_is_not_there_is_refused_when_training_is_set_up(monkeypatch):
    fake_torch(monkeypatch, 0)
    with pytest.raises(ma.errors.DeviceError, match="PyTorch sees no GPU"):
        ma.Training(device="cuda")
    with pytest.raises(ma.errors.InputError, match='must be "cpu"'):
        ma.Training(device="gpu")


def test_logs_without_weights_train_alike(monkeypatch):
    torch_or_skip()
    here, there = both(ma.SNIPSLearner(), make_logs(weights=None))
    assert_allclose(
        there.value_and_gradient(np.zeros((K, D)))[1], here.value_and_gradient(np.zeros((K, D)))[1], atol=1e-14
    )


def test_two_folds_predict_their_own_rounds(logs):
    """One mean for all rounds is a shorter path, which two folds must not take."""
    torch_or_skip()
    model = ma.CrossFit(ma.priors.independent(K, dim=D), n_folds=2, rng=np.random.default_rng(4))
    here, there = both(ma.DRLearner(model), logs, None)
    weights = random_policy().weights
    (value, gradient), got = here.value_and_gradient(weights), there.value_and_gradient(weights)
    assert_allclose(got[0], value, rtol=1e-13)
    assert_allclose(got[1], gradient, rtol=1e-11, atol=1e-14)
