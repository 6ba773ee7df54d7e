"""The combination of all metadata of a catalog, against its covariance written out."""

import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose
from prior_moments import joint

import manyarms as ma
from manyarms.errors import InputError

module = importlib.import_module("manyarms.priors.from_catalog")
K = 12
CATEGORIES = ["tea", "mug", "tea", None] * 3
PATHS = [["food", "hot"], ["home"], ["food", "cold"]] * 4
TAGS = [["a"], ["a", "b"], [], ["b", "c", "d"]] * 3


def points(n=K, e=3):
    out = np.random.default_rng(1).normal(size=(n, e)) * [5.0, 2.0, 0.01][:e] + 4.0
    out[5] = np.nan
    return out


def catalog(n=K, embeddings=None):
    known = points() if embeddings is None else embeddings
    return ma.Catalog(range(n), categories=CATEGORIES[:n], paths=PATHS[:n], tags=TAGS[:n], embeddings=known[:n])


def same(labels):
    return np.array([[a == b for b in labels] for a in labels], dtype=float)


def principal_gram(rows):
    """Covariances through the first two principal components by SVD, scaled to mean square one; 1 among the missing."""
    missing = np.isnan(rows[:, 0])
    centred = np.where(missing[:, None], 0.0, rows - np.nanmean(rows, axis=0))
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    scores = (u * s)[:, :2]
    scores = scores / np.sqrt((scores[~missing] ** 2).sum(axis=1).mean())
    return scores @ scores.T + np.outer(missing, missing)


def tag_gram():
    weights = np.array([[tag in tags for tag in "abcd"] + [not tags] for tags in TAGS], dtype=float)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return weights @ weights.T


def test_the_combination_is_the_sum_of_the_effects_of_all_metadata():
    prior = ma.priors.from_catalog(catalog(), dim=2, effect_std=0.5, action_std=0.3, shared_std=2.0)
    assert [group.name for group in prior.effects] == ["shared", "category", "level 1", "level 2", "tag", "embedding"]
    deep = [(*path, None)[:2] for path in PATHS]
    alike = same(CATEGORIES) + same([path[0] for path in PATHS]) + same(deep) + tag_gram() + principal_gram(points())
    expected = np.kron(0.25 * alike + 4.0 + 0.09 * np.eye(K), np.eye(2))
    assert_allclose(joint(prior)[1], expected, atol=1e-10)


def test_embeddings_add_no_more_components_than_are_affordable():
    wide = np.random.default_rng(0).normal(size=(K, 40))
    few = ma.Catalog(range(K), categories=CATEGORIES, embeddings=wide)
    counts = [ma.priors.from_catalog(few, dim=dim).effects[-1].count for dim in (1, 128, 600)]
    assert counts == [K - 1, 4, 1]
    many = ma.Catalog(range(60), categories=CATEGORIES * 5, embeddings=np.random.default_rng(0).normal(size=(60, 40)))
    assert ma.priors.from_catalog(many, dim=2).effects[-1].count == module.MOST_COMPONENTS


def test_metadata_that_cannot_be_solved_with_the_others_are_left_out(monkeypatch):
    # All tags share actions with all others: none can be eliminated before the rest.
    tags = [[f"t{i}" for i in np.random.default_rng(k).choice(300, 150, replace=False)] for k in range(100)]
    crossed = ma.Catalog(range(100), categories=[str(k % 7) for k in range(100)], tags=tags)
    assert [group.name for group in ma.priors.from_catalog(crossed, dim=4).effects] == ["category", "tag"]
    monkeypatch.setattr(module, "MOST_DENSE_ROWS", 1000)
    assert [group.name for group in ma.priors.from_catalog(crossed, dim=4).effects] == ["category"]
    assert [group.name for group in ma.priors.from_catalog(crossed, "tags", dim=4).effects] == ["tag"]


@pytest.mark.parametrize("alike", [np.ones((K, 2)), np.full((K, 2), np.nan)])
def test_embeddings_that_do_not_differ_are_left_out(alike):
    known = ma.Catalog(range(K), categories=CATEGORIES, embeddings=alike)
    assert [group.name for group in ma.priors.from_catalog(known, dim=1).effects] == ["category"]


def test_new_actions_are_projected_on_the_components_of_the_earlier_ones():
    rows = points()
    old, grown = catalog(9), catalog()
    prior = ma.priors.from_catalog(old, dim=2, shared_std=1.0)
    whole = prior.with_actions(ma.priors.new_actions(prior, grown))
    # The map from embeddings to components, from the SVD of the earlier actions alone.
    kept = rows[:9][~np.isnan(rows[:9, 0])]
    _, _, axes = np.linalg.svd(kept - kept.mean(axis=0), full_matrices=False)
    scores = (rows - kept.mean(axis=0)) @ axes[:2].T
    size = (((kept - kept.mean(axis=0)) @ axes[:2].T) ** 2).sum(axis=1).mean()
    start = sum(group.count for group in prior.effects[:-1])
    weights = whole.mixing.weights.toarray()[:, start : start + 2]
    assert_allclose(weights[9:] @ weights[9:].T, scores[9:] @ scores[9:].T / size, rtol=1e-9)
    moved = rows.copy()
    moved[0] += 1.0
    with pytest.raises(InputError, match="earlier actions have other embeddings"):
        ma.priors.new_actions(prior, catalog(embeddings=moved))
    lacking = rows.copy()
    lacking[10] = np.nan
    no_missing = ma.Catalog(range(5), categories=CATEGORIES[:5], embeddings=lacking[:5])
    after = ma.Catalog(range(11), categories=CATEGORIES[:11], embeddings=lacking[:11])
    with pytest.raises(InputError, match="action 5 lacks an embedding"):
        ma.priors.new_actions(ma.priors.from_catalog(no_missing, dim=1), after)


def test_a_combined_model_is_learned_checked_and_saved(tmp_path):
    rng = np.random.default_rng(0)
    contexts = np.column_stack([np.ones(400), rng.normal(size=400)])
    rewards = rng.normal(size=400)
    logs = ma.LoggedData(contexts, rng.integers(K, size=400), rewards, n_actions=K, catalog=catalog())
    learned = ma.learn_prior(logs, ma.priors.from_catalog(logs.catalog, dim=2, shared_std=1.0))
    names = [parameter.name for parameter in learned.parameters]
    assert {"category std", "level 1 std", "level 2 std", "tag std", "embedding std"} <= set(names)
    learned.posterior.save(tmp_path / "model.arrow")
    again = ma.load(tmp_path / "model.arrow")
    assert_allclose(again.expected_reward(contexts), learned.posterior.expected_reward(contexts), rtol=1e-12)
    assert len(ma.check_categories(again, logs, logs.catalog)) == 3


def test_metadata_that_say_nothing_leave_independent_actions():
    flat = ma.Catalog(range(4), embeddings=np.ones((4, 2)))
    prior = ma.priors.from_catalog(flat, "combined", dim=2, action_std=0.3, shared_std=2.0)
    assert_allclose(joint(prior)[1], np.kron(np.full((4, 4), 4.0) + 0.09 * np.eye(4), np.eye(2)))
    with pytest.raises(InputError, match="a prior of tags needs a catalog that has them") as refusal:
        ma.priors.from_catalog(4, "tags", dim=2)
    assert refusal.value.flag_remedy == "Pass --catalog."


def grown_prior(old, new, shared):
    """The covariance of all actions once those beyond the old embeddings were added."""
    first, second = (ma.Catalog(range(len(rows)), embeddings=rows) for rows in (old, np.vstack([old, new])))
    prior = ma.priors.from_catalog(first, "linear-embeddings", dim=1, shared_std=shared)
    return prior, second


@pytest.mark.parametrize("shared", [None, 0.7])
def test_new_actions_share_the_effect_of_missing_embeddings_and_constant_columns_need_no_effect(shared):
    gap = [np.nan] * 3
    old = np.array([[1.0, 0.2, 0.0 if shared is None else 5.0], [-1.0, 0.4, 0.0 if shared is None else 5.0], gap])
    new = np.array([[0.5, -0.3, old[0, 2]], gap])
    prior, catalog = grown_prior(old, new, shared)
    empty = ma.LoggedData(np.empty((0, 1)), [], [], n_actions=3)
    posterior = ma.fit(empty, prior).with_actions(ma.priors.new_actions(prior, catalog), catalog=catalog)
    points = np.vstack([old, new])
    centred = points - (np.nanmean(old, axis=0) if shared else 0.0)
    missing = np.isnan(points[:, 0])
    centred = np.where(missing[:, None], 0.0, centred) / np.sqrt(np.nanmean(np.sum(centred[:3] ** 2, axis=1)))
    alike = centred @ centred.T + np.outer(missing, missing) + (shared or 0.0) ** 2 + np.eye(5)
    left, right = (grid.ravel() for grid in np.meshgrid(np.arange(5), np.arange(5), indexing="ij"))
    assert_allclose(posterior.weights.cross_cov(left, right).reshape(5, 5), alike, atol=1e-9)


@pytest.mark.parametrize("shared", [None, 0.7])
def test_new_embeddings_that_the_prior_cannot_place_are_refused(shared):
    constant = 0.0 if shared is None else 5.0
    old = np.array([[1.0, constant], [-1.0, constant], [0.5, constant]])
    prior, catalog = grown_prior(old, [[0.3, constant + 1.0]], shared)
    with pytest.raises(InputError, match="action 3 has a new value in column 1 of its embedding, which was the same"):
        ma.priors.new_actions(prior, catalog)
    with pytest.raises(InputError, match="action 3 lacks an embedding, and every earlier action has one"):
        ma.priors.new_actions(prior, ma.Catalog(range(4), embeddings=np.vstack([old, [[np.nan, np.nan]]])))
    bent = np.vstack([old, [[0.3, constant]]])
    bent[1, 0] = 4.0
    with pytest.raises(InputError, match="earlier actions have other embeddings in this catalog than at the fit"):
        ma.priors.new_actions(prior, ma.Catalog(range(4), embeddings=bent))


def test_new_actions_need_what_the_prior_was_made_of():
    old = ma.Catalog(range(3), paths=[["a", "x"], ["a", "y"], ["b", "z"]])
    prior = ma.priors.from_catalog(old, "taxonomy", dim=1)
    flat = ma.Catalog(range(4), paths=[["a"], ["a"], ["b"], ["b"]])
    with pytest.raises(InputError, match="the catalog no longer has a level 2"):
        ma.priors.new_actions(prior, flat)
    dense = ma.HierarchicalGaussian(np.zeros(2), 1.0, np.ones((3, 1, 2)), 1.0)
    with pytest.raises(InputError, match="does not record what new actions would share"):
        ma.priors.new_actions(dense, flat)
