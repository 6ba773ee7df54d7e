"""Classification sets as worlds: classes are rewards of one and zero."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from world_data import Tilted, rng

import manyarms as ma
from manyarms.datasets import ClassificationEnvironment
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.data / 16.0, data.target


def test_classes_are_rewards_of_one_and_zero(digits):
    x, y = digits
    environment = ClassificationEnvironment(x, y, test_share=0.3, rng=rng(40))
    assert (environment.n_actions, environment.dim) == (10, 64)
    assert len(environment.test_users) == round(0.3 * len(x))
    test = environment.test_users
    assert_array_equal(environment.test_contexts, x[test])
    policy = Tilted(rng(41).normal(size=(10, 64)))
    chances = policy.probabilities(x)
    assert_allclose(environment.value(policy), chances[test, y[test]].mean(), rtol=1e-12)
    assert_allclose(environment.value(ma.Uniform(10)), 0.1, rtol=1e-12)
    assert environment.optimal_value() == 1.0
    assert environment.value(environment.optimal_policy()) == 1.0
    assert_array_equal(environment.optimal_policy().actions(x), y)
    logs = environment.log(policy, 3000, rng(42))
    assert_array_equal(logs.rewards, logs.actions == y[logs.groups])
    assert_allclose(logs.propensities, chances[logs.groups, logs.actions], rtol=1e-12)
    assert not np.isin(logs.groups, test).any()
    assert logs.logging_policy is policy
    noisy = ClassificationEnvironment(x, y, noise_std=0.2, rng=rng(40)).log(policy, 3000, rng(43))
    assert abs((noisy.rewards - (noisy.actions == y[noisy.groups])).std() / 0.2 - 1) < 4 / np.sqrt(6000)


def test_several_labels_a_row_are_several_good_actions():
    x, labels = rng(44).normal(size=(80, 4)), rng(45).random((80, 6)) < 0.3
    assert (labels.sum(axis=1) > 1).any()
    assert (labels.sum(axis=1) == 0).any()
    given = [labels, labels.astype(int).tolist(), sparse.csr_array(labels), sparse.coo_matrix(labels.astype(np.int8))]
    policy = ma.EpsilonGreedy(Tilted(rng(46).normal(size=(6, 4))), 0.2)
    chances = policy.probabilities(x)
    for form in given:
        environment = ClassificationEnvironment(x, form, rng=rng(47))
        test = environment.test_users
        brute = np.mean([sum(chances[i, a] for a in range(6) if labels[i, a]) for i in test])
        assert_allclose(environment.value(policy), brute, rtol=1e-12)
        assert_allclose(environment.optimal_value(), labels[test].any(axis=1).mean(), rtol=1e-12)
        assert_allclose(environment.value(environment.optimal_policy()), environment.optimal_value(), rtol=1e-12)
        logs = environment.log(policy, 500, rng(48))
        assert_array_equal(logs.rewards, labels[logs.groups, logs.actions])


def test_many_labels_are_never_written_out(monkeypatch):
    n, n_labels = 3000, 200_000
    numbers = rng(49).integers(n_labels, size=(n, 3))
    labels = sparse.csr_array((np.ones(3 * n), (np.repeat(np.arange(n), 3), numbers.reshape(-1))), shape=(n, n_labels))
    labels.data[:] = 1.0
    environment = ClassificationEnvironment(rng(50).normal(size=(n, 2)), labels, rng=rng(51))

    def refuse(*_, **__):
        raise AssertionError("a sparse matrix was written out")

    monkeypatch.setattr(type(labels), "toarray", refuse)
    best = environment.optimal_policy()
    share = labels[environment.test_users].sum() / len(environment.test_users) / n_labels
    assert environment.optimal_value() == 1.0
    assert_allclose(environment.value(ma.Uniform(n_labels)), share, rtol=1e-10)
    assert_allclose(environment.value(ma.EpsilonGreedy(best, 0.5)), 0.5 + 0.5 * share, rtol=1e-10)
    logs = environment.log(best, 1000, rng(52))
    assert (logs.rewards == 1.0).all()


def test_bad_labels_are_refused_by_row():
    x = rng(53).normal(size=(6, 2))
    two = np.zeros((6, 3))
    two[4, 1] = 2.0
    wrong = [
        ([0, 1, 2, -1, 0, 1], InputError, "labels must not be negative; row 3 has -1"),
        ([0, 1, 1.5, 1, 0, 1], DataTypeError, "labels must be integers; row 2"),
        (list("abcabc"), DataTypeError, "labels must hold numbers"),
        ([0, 1, 2, 1, 0], ShapeError, "labels must have one row per row of features: 6; got 5"),
        (two, RangeError, "labels must be 0 or 1; row 4 holds 2"),
        (sparse.csr_array(two), RangeError, "labels must be 0 or 1; row 4 holds 2"),
        (np.array([[0], [1], [2], [0], [0], [0]]), RangeError, "row 2 holds 2.0. Pass class numbers as a vector"),
        ([[0], [1, 2], [0], [1], [2], [0]], ShapeError, "rectangular"),
        (np.full((6, 3), np.nan), InputError, "labels must be finite; row 0"),
    ]
    for labels, error, message in wrong:
        with pytest.raises(error, match=message):
            ClassificationEnvironment(x, labels, rng=rng())
    with pytest.raises(ShapeError, match="got 1"):
        ClassificationEnvironment(x[:1], [0], rng=rng())
