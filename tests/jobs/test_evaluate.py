"""An evaluation needs rounds, a policy that could be evaluated on them, and something to evaluate with."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import InputError

K = 3


def logs(n=30, **options):
    rng = np.random.default_rng(0)
    contexts, actions = rng.normal(size=(n, 2)), rng.integers(K, size=n)
    return ma.LoggedData(contexts, actions, rng.normal(size=n), n_actions=K, **options)


@pytest.fixture
def posterior():
    return ma.fit(logs(), ma.priors.independent(K, dim=2))


def test_rounds_without_weight_or_none_are_refused(posterior):
    uniform = {"uniform": ma.Uniform(K)}
    with pytest.raises(InputError, match="there are no rounds to evaluate on"):
        ma.evaluate(uniform, logs(0), posterior)
    with pytest.raises(InputError, match="all rounds have weight zero, so there is nothing to evaluate on"):
        ma.evaluate(uniform, logs(weights=np.zeros(30)), posterior)


def test_the_current_policy_keeps_its_name_and_candidates_its_catalog(posterior):
    with pytest.raises(InputError, match=r"'logged' is the name of the current policy\. Give the candidate another"):
        ma.evaluate({"logged": ma.Uniform(K)}, logs(), posterior)
    here, elsewhere = (ma.Catalog(ids) for ids in (["tea", "mug", "pot"], ["tea", "pot", "mug"]))
    other = ma.LinearSoftmax(np.zeros((K, 2)), catalog=elsewhere)
    with pytest.raises(InputError, match="new was learned with another catalog than that of the logs, so its actions"):
        ma.evaluate({"new": other}, logs(catalog=here), posterior)
