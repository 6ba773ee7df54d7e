"""Learners refuse bad input with a typed error."""

import jaxtyping
import numpy as np
import pytest
from small_learners import (
    CLUSTERS,
    EMBEDDINGS,
    D,
    K,
    N,
    bandit,
    make_logs,
    prior,
    random_policy,
)

import manyarms as ma
from manyarms import errors, learners


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
