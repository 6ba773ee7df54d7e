"""Checks of a prior refuse bad input, naming the prior or the argument."""

import numpy as np
import pytest

import manyarms as ma
from manyarms import errors, priors
from manyarms.prior_checks.check_categories import check_categories
from manyarms.prior_checks.check_prior import check_prior
from manyarms.prior_checks.sensitivity import prior_sensitivity
from manyarms.prior_learning.compare_priors import compare_priors

LOGS = ma.LoggedData(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], np.arange(6.0), n_actions=3)
PRIOR = priors.independent(3, dim=2)
POSTERIOR = ma.fit(LOGS, PRIOR)
CLICKS = LOGS.with_rewards(np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]))
CLICKED, HEAVY = ma.fit(CLICKS, PRIOR, ma.Bernoulli()), ma.fit(LOGS, PRIOR, ma.StudentT())
BAD = {
    "two likelihoods": (
        lambda: compare_priors(LOGS, [PRIOR], ma.Hurdle()),
        errors.DataTypeError,
        "compare them separately",
    ),
    "clicks without their logs": (
        lambda: prior_sensitivity(CLICKED, ma.Uniform(3), LOGS.contexts),
        errors.InputError,
        "under Bernoulli the posterior must be fitted anew.*Pass all rounds of the fit as logs=",
    ),
    "clicks with other logs": (
        lambda: prior_sensitivity(CLICKED, ma.Uniform(3), LOGS.contexts, logs=CLICKS.take(slice(0, 4))),
        errors.InputError,
        "logs has 4 rounds; the posterior was fitted to 6",
    ),
    "categories of heavy tails": (
        lambda: check_categories(HEAVY, LOGS, [0, 1, 2]),
        errors.InputError,
        "cannot be checked under StudentT",
    ),
    "categories of clicks that are none": (
        lambda: check_categories(CLICKED, LOGS, [0, 1, 2]),
        errors.RangeError,
        "must be 0 or 1",
    ),
    "no priors": (lambda: compare_priors(LOGS, []), errors.InputError, "at least one prior"),
    "one bare prior": (lambda: compare_priors(LOGS, PRIOR), errors.DataTypeError, "list, or a mapping"),
    "no prior at all": (lambda: compare_priors(LOGS, {"x": 3}), errors.DataTypeError, "prior 'x' must be.*got int"),
    "a name that is none": (lambda: compare_priors(LOGS, {1: PRIOR}), errors.DataTypeError, "strings as names; got 1"),
    "a prior of another dimension": (
        lambda: compare_priors(LOGS, {"fine": PRIOR, "flat": priors.independent(3, dim=1)}),
        errors.ShapeError,
        "prior 'flat': contexts of the logs have 2 columns",
    ),
    "a prior of fewer actions": (
        lambda: compare_priors(LOGS, [priors.independent(2, dim=2)]),
        errors.ShapeError,
        "prior '0: independent': the logs have 3 actions",
    ),
    "nothing to learn": (
        lambda: compare_priors(
            ma.LoggedData(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], np.zeros(6)), {"x": PRIOR}, learn=True
        ),
        errors.InputError,
        "prior 'x': all rewards, or all contexts, are 0",
    ),
    "more folds than rounds": (lambda: compare_priors(LOGS, [PRIOR], n_folds=7), errors.InputError, "n_folds.*got 7"),
    "one fold": (lambda: compare_priors(LOGS, [PRIOR], n_folds=1), errors.RangeError, "n_folds must be at least 2"),
    "a seed": (lambda: compare_priors(LOGS, [PRIOR], rng=3), errors.DataTypeError, "default_rng"),
    "logs that are none": (lambda: compare_priors(POSTERIOR, [PRIOR]), errors.DataTypeError, "a LoggedData"),
    "a noise that is none": (lambda: compare_priors(LOGS, [PRIOR], 0.5), errors.DataTypeError, "likelihood must be"),
    "a prior to be checked": (lambda: check_prior(PRIOR), errors.DataTypeError, r"a posterior from fit\(\)"),
    "a posterior as prior": (
        lambda: check_prior(ma.fit(LOGS, POSTERIOR.weights)),
        errors.InputError,
        "itself a posterior.*update",
    ),
    "too few categories": (
        lambda: check_categories(POSTERIOR, LOGS, ["a", "b"]),
        errors.ShapeError,
        "categories must have 3 labels.*got 2",
    ),
    "labels that cannot be told apart": (
        lambda: check_categories(POSTERIOR, LOGS, [["a"], "b", "c"]),
        errors.DataTypeError,
        "hashable labels; row 0",
    ),
    "a level of one": (
        lambda: check_categories(POSTERIOR, LOGS, [0, 1, 2], level=1.0),
        errors.RangeError,
        "level must be above 0.0 and below 1.0",
    ),
    "no rounds to check on": (
        lambda: check_categories(POSTERIOR, LOGS.take(slice(0, 0)), [0, 1, 2]),
        errors.InputError,
        "no rounds",
    ),
    "a policy of other actions": (
        lambda: prior_sensitivity(POSTERIOR, ma.Uniform(4), LOGS.contexts),
        errors.ShapeError,
        "policy has 4 actions",
    ),
    "a baseline of other actions": (
        lambda: prior_sensitivity(POSTERIOR, ma.Uniform(3), LOGS.contexts, baseline=ma.Uniform(2)),
        errors.ShapeError,
        "baseline has 2 actions",
    ),
    "weights instead of a posterior": (
        lambda: prior_sensitivity(POSTERIOR.weights, ma.Uniform(3), LOGS.contexts),
        errors.DataTypeError,
        r"a posterior from fit\(\)",
    ),
}


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_name(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
