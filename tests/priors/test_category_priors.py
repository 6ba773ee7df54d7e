"""Priors from categories and tags: each implies the covariances of its definition, written out here densely."""

import doctest
import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose
from prior_moments import SCALES, TAGS, assert_implies, assert_same, lifted
from scipy import sparse

import manyarms as ma
from manyarms import priors
from manyarms.core.labels import MISSING


@pytest.mark.parametrize("name", ["categories", "from_matrices"])
def test_docstring_examples_run(name):
    result = doctest.testmod(importlib.import_module(f"manyarms.priors.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


# Categories.


@pytest.mark.parametrize("shared_std", [None, 2.0])
@pytest.mark.parametrize("labels", [["b", "a", "b", None, "c", None], np.array([7, 3, 7, np.nan, 5, np.nan])])
def test_actions_of_one_category_share_its_effect(labels, shared_std):
    prior = priors.from_categories(labels, dim=2, shared_std=shared_std, **SCALES)
    same = np.zeros((6, 6))
    for group in ([0, 2], [1], [4], [3, 5]):
        same[np.ix_(group, group)] = 1.0
    assert_implies(prior, 0.0, lifted(1.5**2 * same + (shared_std or 0.0) ** 2 + 0.7**2 * np.eye(6), 2))


def test_categories_are_told_by_name_and_missing_ones_are_counted():
    prior = priors.from_categories(["b", "a", "b", None], dim=2, shared_std=1.0)
    shared, category = prior.effects
    assert (shared.name, shared.count, shared.part_dim) == ("shared", 1, 2)
    assert (category.name, category.count, category.part_dim, category.has_mean) == ("category", 3, 2, True)
    assert category.labels == ("a", "b", MISSING)
    assert category.n_missing == 1


def test_a_catalog_without_any_category_has_one_effect():
    prior = priors.from_categories([None, np.nan, None], dim=1, **SCALES)
    assert prior.effects[0].n_missing == 3
    assert_implies(prior, 0.0, 1.5**2 * np.ones((3, 3)) + 0.7**2 * np.eye(3))


def test_scales_may_be_zero():
    assert_implies(priors.from_categories([0, 0], dim=1, effect_std=0.0, action_std=0.0), 0.0, np.zeros((2, 2)))


# Tags.

NAMES = ["x", "y", "z"]


def dense_tags(normalise):
    weights = np.zeros((6, 4))
    for a, row in enumerate(TAGS):
        for tag in row or []:
            if tag in NAMES:
                weights[a, NAMES.index(tag)] = row[tag] if isinstance(row, dict) else 1.0
    if normalise:
        for a in range(6):
            weights[a] /= np.linalg.norm(weights[a]) or 1.0
    known = [0, 1, 3, 4]
    weights[[2, 5], 3] = np.sqrt(np.mean(np.linalg.norm(weights[known], axis=1) ** 2))
    return weights


@pytest.mark.parametrize("shared_std", [None, 2.0])
@pytest.mark.parametrize("normalise", [True, False])
def test_actions_covary_by_the_tags_they_have_in_common(normalise, shared_std):
    prior = priors.from_tags(TAGS, dim=2, normalise=normalise, shared_std=shared_std, **SCALES)
    w = dense_tags(normalise)
    assert_implies(prior, 0.0, lifted(1.5**2 * w @ w.T + (shared_std or 0.0) ** 2 + 0.7**2 * np.eye(6), 2))
    group = prior.effects[-1]
    assert (group.name, group.labels, group.n_missing) == ("tag", ("x", "y", "z", MISSING), 2)


def test_the_number_of_tags_does_not_widen_the_prior():
    prior = priors.from_tags([["a"], ["a", "b", "c", "d"], []], dim=3)
    assert_allclose(prior.action_cov([0, 1, 2]), np.broadcast_to(2 * np.eye(3), (3, 3, 3)), atol=1e-14)


def test_a_sparse_matrix_of_weights_gives_the_prior_of_its_rows_and_loses_empty_columns():
    dense = np.array([[1.0, 0, 2, 0], [0, 0, 3, 0], [0, 0, 0, 0], [4, 0, 0, 0]])
    prior = priors.from_tags(sparse.coo_array(dense), dim=2, **SCALES)
    assert prior.effects[0].labels == (0, 2, MISSING)
    rows = [{column: row[column] for column in np.flatnonzero(row).tolist()} for row in dense]
    assert_same(prior, priors.from_tags(rows, dim=2, **SCALES))


def test_weights_of_any_size_are_normalised():
    prior = priors.from_tags([{"a": 1e200, "b": 1e200}, {"a": 1e-200}], dim=1, action_std=0.0)
    assert_allclose(prior.cross_cov([0, 0, 1], [0, 1, 1])[:, 0, 0], [1.0, np.sqrt(0.5), 1.0])


def test_a_category_seen_once_is_a_category():
    prior = priors.from_categories(["a", "b", "b"], dim=1)
    logs = ma.LoggedData(np.ones((1, 1)), [0], [1.0], n_actions=3)
    posterior = ma.fit(logs, prior, ma.Gaussian(noise_std=1.0))
    assert_allclose(posterior.weights.action_mean()[:, 0], [2 / 3, 0.0, 0.0])
