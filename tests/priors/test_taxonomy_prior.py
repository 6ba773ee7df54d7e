"""The prior from a tree: actions covary by the levels that they share."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from prior_moments import PATHS, STDS, assert_implies, assert_same, lifted

from manyarms import priors
from manyarms.core.catalog import Catalog
from manyarms.core.labels import MISSING


def tree_covariance(paths, stds):
    """Σ_l std_l² over the levels down to which two paths, filled up with "(missing)", agree."""
    filled = [
        [label for label in path if label is not None] + [MISSING] * (len(stds) - sum(p is not None for p in path))
        for path in paths
    ]
    return np.array(
        [
            [sum(s**2 for level, s in enumerate(stds) if a[: level + 1] == b[: level + 1]) for b in filled]
            for a in filled
        ]
    )


@pytest.mark.parametrize("form", ["lists", "array"])
@pytest.mark.parametrize("shared_std", [None, 2.0])
def test_actions_covary_by_the_levels_they_share(form, shared_std):
    padded = np.array([path + [None] * (4 - len(path)) for path in PATHS], dtype=object)
    given = PATHS if form == "lists" else padded
    prior = priors.from_taxonomy(given, dim=2, effect_std=STDS, action_std=0.7, shared_std=shared_std)
    between = tree_covariance(PATHS, STDS) + (shared_std or 0.0) ** 2 + 0.7**2 * np.eye(9)
    assert_implies(prior, 0.0, lifted(between, 2))


def test_levels_are_groups_whose_nodes_are_known_by_their_paths():
    levels = priors.from_taxonomy(PATHS, dim=2).effects
    assert [level.name for level in levels] == ["level 1", "level 2", "level 3"]
    assert [level.n_missing for level in levels] == [1, 3, 5]
    assert levels[0].labels == (("food",), ("home",), (MISSING,))
    assert set(levels[1].labels) == {
        ("food", "tea"), ("food", "other"), ("home", "other"), ("home", MISSING), (MISSING, MISSING),
    }  # fmt: skip
    assert ("food", "tea", MISSING) in levels[2].labels


def test_being_known_less_well_does_not_narrow_the_prior():
    prior = priors.from_taxonomy(PATHS, dim=1, effect_std=STDS)
    assert_allclose(prior.action_cov(np.arange(9))[:, 0, 0], 1 + sum(s**2 for s in STDS))


@pytest.mark.parametrize("as_catalog", [False, True])
def test_a_taxonomy_by_parents_is_the_same_by_paths(as_catalog):
    parents = {
        "green": "tea",
        "tea": "food",
        "food": None,
        "rice": "food",
        "home": np.nan,
        "mug": "home",
        "unused": "mug",
    }
    nodes = ["green", "tea", "home", "mug", None, "rice", "green"]
    paths = [
        ["food", "tea", "green"], ["food", "tea"], ["home"], ["home", "mug"], [], ["food", "rice"],
        ["food", "tea", "green"],
    ]  # fmt: skip
    given = Catalog(range(7), categories=nodes) if as_catalog else nodes
    options = dict(dim=2, effect_std=STDS, shared_std=0.3)
    assert_same(priors.from_taxonomy(given, parents, **options), priors.from_taxonomy(paths, **options))


def test_the_first_node_of_a_taxonomy_may_be_a_leaf():
    parents = {"food": None, "apple": "fruit", "fruit": "food"}
    options = dict(dim=2, effect_std=STDS, shared_std=0.3)
    by_parents = priors.from_taxonomy(["apple", "fruit", "food"], parents, **options)
    paths = [["food", "fruit", "apple"], ["food", "fruit"], ["food"]]
    assert_same(by_parents, priors.from_taxonomy(paths, **options))


def test_integer_codes_by_level_make_a_taxonomy():
    codes = np.array([[0, 0], [0, 1], [1, 0], [1, 0]])
    between = tree_covariance(codes.tolist(), [1.0, 1.0])
    assert_implies(priors.from_taxonomy(codes, dim=1), 0.0, between + np.eye(4))


@pytest.mark.parametrize("paths", [[[], None, []], np.empty((3, 0)), np.full((3, 2), np.nan)])
def test_a_taxonomy_in_which_nothing_is_known_is_one_node(paths):
    prior = priors.from_taxonomy(paths, dim=1)
    assert [(level.count, level.n_missing) for level in prior.effects] == [(1, 3)]
    assert_implies(prior, 0.0, np.ones((3, 3)) + np.eye(3))
