"""Policies and estimators by name."""

import pytest

import manyarms as ma
from manyarms.errors import InputError
from manyarms.jobs import estimator_named, policy_named


def test_policies_and_estimators_by_name(shop):
    posterior = ma.load(shop / "model.arrow")
    assert policy_named("pessimistic:0.2", posterior).delta == 0.2
    assert policy_named("thompson:7", posterior, n_draws=5).n_draws == 7
    assert policy_named("thompson", posterior, n_draws=5).n_draws == 5
    assert policy_named("uniform", n_actions=3).n_actions == 3
    assert estimator_named("ips:0.1").clip == 0.1 and estimator_named("switch-dr:5", posterior).threshold == 5.0
    for words, call in (
        ("no policy 'gredy'; the policies are greedy, pessimistic", lambda: policy_named("gredy", posterior)),
        ("needs a number, its temperature", lambda: policy_named("softmax", posterior)),
        ("takes no number", lambda: policy_named("greedy:1", posterior)),
        ("a number after its colon", lambda: policy_named("softmax:warm", posterior)),
        ("a whole number", lambda: policy_named("thompson:1.5", posterior)),
        ("is made from a model", lambda: policy_named("greedy")),
        ("how many actions", lambda: policy_named("uniform")),
        ("no estimator 'dm'", lambda: estimator_named("dm", posterior)),
        ("uses a reward model", lambda: estimator_named("dr")),
        ("a floor on the propensity.*weights of at most 10 write ips:0.1", lambda: estimator_named("ips:10")),
        ("a floor on the propensity, from 0 to 1", lambda: estimator_named("dr:-1", posterior)),
        ("weights of at most 10 pass cap=10", lambda: ma.SNIPS(10.0)),
    ):
        with pytest.raises(InputError, match=words):
            call()
