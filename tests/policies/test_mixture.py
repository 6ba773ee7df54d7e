"""Mixtures of policies, and the most informative policy."""

import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import InputError, PropensityError, ShapeError
from manyarms.policies.most_informative import MostInformative


def by_catalog(ids):
    """The posterior of a few rounds whose actions have these ids."""
    logs = ma.LoggedData(np.ones((3, 2)), [0, 1, 2], np.ones(3), catalog=ma.Catalog(list(ids)))
    return ma.fit(logs, ma.priors.independent(3, dim=2))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def parts(rng):
    contexts = rng.normal(size=(30, 2))
    softmax = ma.LinearSoftmax(rng.normal(size=(5, 2)))
    return contexts, [softmax, ma.Uniform(5), MostInformative(rng.normal(size=(3, 2)), [0, 2, 3], 5)]


def test_a_mixture_is_the_weighted_sum_of_its_parts(parts, tmp_path):
    contexts, policies = parts
    mixed = ma.Mixture(policies, [0.5, 0.2, 0.3])
    expected = sum(s * p.probabilities(contexts) for s, p in zip((0.5, 0.2, 0.3), policies, strict=True))
    np.testing.assert_allclose(mixed.probabilities(contexts), expected, atol=1e-15)
    mixed.save(tmp_path / "mixture.arrow")
    np.testing.assert_array_equal(
        ma.load(tmp_path / "mixture.arrow").probabilities(contexts), mixed.probabilities(contexts)
    )


def test_a_mixture_follows_the_rows_of_its_parts(rng):
    contexts, table = rng.normal(size=(6, 2)), ma.TablePolicy(rng.dirichlet(np.ones(5), size=6))
    mixed = ma.Mixture([table, ma.Uniform(5)], [0.25, 0.75])
    rows = np.array([4, 1])
    np.testing.assert_allclose(
        mixed.take(rows).probabilities(contexts[rows]), mixed.probabilities(contexts)[rows], atol=1e-15
    )


@pytest.mark.parametrize("shown", [[2, 0, 3], [0, 0, 3]])
def test_the_vectors_of_the_most_informative_policy_belong_to_distinct_ascending_actions(shown):
    with pytest.raises(ShapeError, match="shown must be distinct actions in ascending order, at least one"):
        MostInformative(np.ones((3, 2)), shown, 5)


@pytest.mark.parametrize("among", [None, [1, 2, 4]])
def test_the_most_informative_action_has_the_largest_score(parts, among):
    contexts, policies = parts
    policy = policies[2]
    scores = np.zeros((len(contexts), 5))
    for place, action in enumerate(policy.shown):
        scores[:, action] = [abs(sum(x * policy.vectors[place])) for x in contexts]
    allowed = np.zeros(5, dtype=bool)
    allowed[slice(None) if among is None else among] = True
    best = np.where(allowed, scores, -1.0).argmax(axis=1)
    np.testing.assert_array_equal(policy.actions(contexts, eligible=None if among is None else allowed), best)


@pytest.mark.parametrize(
    ("policies", "shares", "error", "message"),
    [
        ([ma.Uniform(3), ma.Uniform(3)], [0.5, 0.6], PropensityError, "shares must sum to 1; got 1.1"),
        ([ma.Uniform(3), ma.Uniform(3)], [1.5, -0.5], PropensityError, "row 1 has -0.5"),
        ([ma.Uniform(3), ma.Uniform(4)], [0.5, 0.5], ShapeError, "policies have 4 and 3 actions"),
        ([], [], InputError, "at least one policy"),
        (
            [ma.LinearSoftmax(np.ones((3, 2))), ma.LinearSoftmax(np.ones((3, 4)))],
            [0.5, 0.5],
            InputError,
            "policies differ in their dim. Mix policies that take the same contexts",
        ),
        (
            [ma.ColumnPolicy("a", ma.Catalog(list(ids))) for ids in ("xyz", "xzy")],
            [0.5, 0.5],
            InputError,
            "policies differ in their",
        ),
        (
            [ma.Greedy(by_catalog("xyz")), ma.Greedy(by_catalog("xzy"))],
            [0.5, 0.5],
            InputError,
            "policies differ in their catalogs. Mix policies on the same catalog",
        ),
    ],
)
def test_bad_shares_are_refused(policies, shares, error, message):
    with pytest.raises(error, match=message):
        ma.Mixture(policies, shares)
