"""Likelihoods refuse rewards outside their support, and arguments out of range."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import InputError, RangeError
from manyarms.likelihoods import Bernoulli, LogNormal, Poisson, StudentT


@pytest.mark.parametrize(
    ("likelihood", "rewards", "message"),
    [
        (Bernoulli(), [0, 1, 0.5], r"0 or 1.*row 2 has 0\.5"),
        (Poisson(), [0, 3, -1, -2], r"row 2 has -1\.0.*LogNormal"),
        (Poisson(), [0, 1.5], r"row 1 has 1\.5"),
        (Poisson(), [1e300], r"row 0 has 1e\+300"),
        (Poisson("laplace"), [2, 0.1], r"row 1 has 0\.1"),
        (LogNormal(), [1.0, 0.0], r"above zero.*row 1 has 0\.0.*Hurdle"),
        (LogNormal(), [-2.0], r"row 0 has -2\.0"),
    ],
)
def test_rewards_outside_the_support_are_refused_by_row(likelihood, rewards, message):
    logs = ma.LoggedData(np.ones((len(rewards), 1)), np.zeros(len(rewards), dtype=int), rewards)
    with pytest.raises(RangeError, match=message):
        ma.fit(logs, ma.priors.independent(1, mean=np.zeros(1), cov=1.0), likelihood)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Poisson("exact"), InputError),
        (lambda: Poisson("paper"), InputError),
        (lambda: StudentT(treatment="exact"), InputError),
        (lambda: StudentT(scale=0.0), RangeError),
        (lambda: StudentT(degrees=1.0), RangeError),
        (lambda: StudentT(scale=np.inf), InputError),
        (lambda: LogNormal(0.0), RangeError),
        (lambda: LogNormal(np.nan), InputError),
    ],
)
def test_arguments_are_checked(make, error):
    with pytest.raises(error):
        make()
