"""Estimators refuse bad input with a typed error."""

import numpy as np
import pytest

import manyarms as ma

BAD_LOGS = dict(contexts=np.ones((4, 1)), actions=[0, 1, 0, 1], rewards=[0.0, 1.0, 1.0, 0.0])
CALLS = {
    "policy on other actions": (
        lambda: ma.IPS().estimate(ma.Uniform(3), ma.LoggedData(**BAD_LOGS)),
        ma.errors.ShapeError, "policy has 3 actions",
    ),
    "clusters of another length": (
        lambda: ma.MIPS([0, 1, 1]).estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS)),
        ma.errors.ShapeError, "3 actions",
    ),
    "fractional clusters": (lambda: ma.MIPS([0.5, 1]), ma.errors.DataTypeError, "clusters must be integers"),
    "no clusters": (lambda: ma.MIPS(np.empty(0, dtype=int)), ma.errors.ShapeError, "clusters"),
    "more neighbours than actions": (
        lambda: ma.PolicyConvolution(np.ones((3, 1)), 4), ma.errors.ShapeError, "at most the number of actions, 3",
    ),
    "NaN embeddings": (
        lambda: ma.PolicyConvolution([[1.0], [np.nan]], 1),
        ma.errors.NonFiniteError, "embeddings must be finite; row 1",
    ),
    "all weights zero": (
        lambda: ma.SNIPS().estimate(ma.TablePolicy([0, 0, 1.0]), ma.LoggedData(**BAD_LOGS, n_actions=3)),
        ma.errors.InputError, "all weights are zero",
    ),
    "replay of a random policy": (
        lambda: ma.Replay().estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS)), ma.errors.InputError, "deterministic",
    ),
    "replay without a match": (
        lambda: ma.Replay().estimate(ma.TablePolicy([0, 0, 1.0]), ma.LoggedData(**BAD_LOGS, n_actions=3)),
        ma.errors.InputError, "all weights are zero",
    ),
    "negative rewards under a logarithm": (
        lambda: ma.LogarithmicSmoothing(1.0).estimate(
            ma.Uniform(2), ma.LoggedData(np.ones((2, 1)), [0, 1], [1.0, -1.0])
        ),
        ma.errors.InputError, "row 1 has -1.0",
    ),
    "a model that is none": (lambda: ma.DR("model"), ma.errors.DataTypeError, "CrossFit"),
    "alpha above one": (lambda: ma.ExponentialSmoothing(1.5), ma.errors.InputError, "alpha must be .* at most 1"),
    "negative clip": (lambda: ma.IPS(clip=-1.0), ma.errors.InputError, "clip must be at least 0"),
    "strata of another length": (
        lambda: ma.WeightedIPS([0, 1]).estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS)),
        ma.errors.ShapeError, "strata",
    ),
    "strata without a policy": (lambda: ma.BalancedIPS([ma.Uniform(2)], [0, 1]), ma.errors.ShapeError, "policy 1"),
    "one round": (
        lambda: ma.IPS().estimate(ma.Uniform(2), ma.LoggedData([[1.0]], [0], [1.0], n_actions=2)),
        ma.errors.InputError, "at least 2 rounds",
    ),
    "an empty log": (
        lambda: ma.EstimatedLogging(ma.LoggedData(np.empty((0, 1)), [], [], n_actions=2)),
        ma.errors.InputError, r"cannot be estimated from an empty log\. Pass propensities",
    ),
    "an action that no logging policy takes": (
        lambda: ma.BalancedIPS([ma.TablePolicy([1.0, 0.0])], [0] * 4).estimate(
            ma.Uniform(2), ma.LoggedData(**BAD_LOGS)
        ),
        ma.errors.InputError, "no logging policy can have logged the action of row 1",
    ),
    "a stratum of one round": (
        lambda: ma.WeightedIPS([0, 0, 0, 1]).estimate(
            ma.Uniform(2), ma.LoggedData(**BAD_LOGS, propensities=np.full(4, 0.5))
        ),
        ma.errors.InputError, r"every stratum needs at least 2 rounds.*Use balanced IPS",
    ),
    "a set that the logging policy never takes": (
        lambda: ma.MIPS([0, 1]).estimate(
            ma.Uniform(2), ma.LoggedData(**BAD_LOGS, logging_policy=ma.TablePolicy([1.0, 0.0]))
        ),
        ma.errors.InputError, r"probability zero to the set of the action in row 1.*or pass clip",
    ),
    "no embeddings": (
        lambda: ma.PolicyConvolution(np.ones((3, 0)), 1),
        ma.errors.ShapeError, r"embeddings must have at least one action and one column; got shape \(3, 0\)",
    ),
    "no estimator to choose": (
        lambda: ma.slope([], ma.Uniform(2), ma.LoggedData(**BAD_LOGS)),
        ma.errors.InputError, "slope needs at least one estimator",
    ),
    "a function of rows in cross-fitting": (
        lambda: ma.CrossFit(ma.priors.independent(2, dim=1), n_folds=2, rng=np.random.default_rng(0)).predict(
            ma.Uniform(2), ma.LoggedData(**BAD_LOGS), lambda rows: None
        ),
        ma.errors.InputError, r"eligible must not be a function here.*Pass a sparse matrix",
    ),
    "nothing to compare": (lambda: ma.compare({}, ma.LoggedData(**BAD_LOGS), []), ma.errors.InputError, "at least one"),
    "split without a generator": (
        lambda: ma.LoggedData(**BAD_LOGS).split(0.5), ma.errors.InputError, r"rng=np\.random",
    ),
    "split by groups that are not there": (
        lambda: ma.LoggedData(**BAD_LOGS).split(0.5, by="group", rng=np.random.default_rng(0)),
        ma.errors.InputError, "no groups",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_bad_calls_are_refused(name):
    call, error, message = CALLS[name]
    with pytest.raises(error, match=message):
        call()


MORE_CALLS = {
    "no policy": lambda logs: ma.IPS().estimate("uniform", logs),
    "an interval by name": lambda logs: ma.IPS(interval="normal"),
    "one number for clusters": lambda logs: ma.MIPS(3),
    "one group": lambda logs: ma.IPS().estimate(
        ma.Uniform(2), ma.LoggedData(**BAD_LOGS, groups=np.zeros(4, dtype=int))
    ),
    "weights that sum to one": lambda logs: ma.IPS().estimate(
        ma.Uniform(2), ma.LoggedData(**BAD_LOGS, weights=np.full(4, 0.25))
    ),
    "weights of zero": lambda logs: ma.IPS().estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS, weights=np.zeros(4))),
    "no support": lambda logs: ma.IPS().estimate(ma.TablePolicy([0, 0, 1.0]), ma.LoggedData(**BAD_LOGS, n_actions=3)),
    "a logger of other rows": lambda logs: ma.LoggedData(
        **BAD_LOGS, logging_policy=ma.TablePolicy(np.full((7, 2), 0.5))
    ),
    "a split with nothing on one side": lambda logs: logs.split(0.01, by="time"),
}


@pytest.mark.parametrize("name", MORE_CALLS)
def test_more_bad_calls_are_refused(name):
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ma.errors.InputError):
            MORE_CALLS[name](ma.LoggedData(**BAD_LOGS))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
