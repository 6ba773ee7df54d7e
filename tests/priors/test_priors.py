"""Builders of priors: each implies the means and covariances that its definition says, written out here densely."""

import doctest
import importlib

import jaxtyping
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import block_diag
from sklearn.mixture import GaussianMixture

import manyarms as ma
from manyarms import errors, priors
from manyarms.core.catalog import Catalog
from manyarms.core.labels import MISSING
from manyarms.priors import clustering

SCALES = dict(effect_std=1.5, action_std=0.7)


def joint(prior):
    """Mean (K, d) and covariance (K d, K d) of all weights, pair by pair from the library."""
    K, d = prior.n_actions, prior.dim
    left, right = np.repeat(np.arange(K), K), np.tile(np.arange(K), K)
    blocks = prior.cross_cov(left, right).reshape(K, K, d, d)
    assert_allclose(prior.action_cov(np.arange(K)), blocks[np.arange(K), np.arange(K)], atol=1e-13)
    return prior.action_mean(), blocks.transpose(0, 2, 1, 3).reshape(K * d, K * d)


def assert_implies(prior, mean, cov, atol=1e-12):
    got_mean, got_cov = joint(prior)
    assert_allclose(got_mean, np.broadcast_to(mean, got_mean.shape), atol=atol)
    assert_allclose(got_cov, cov, atol=atol)


def assert_same(first, second):
    assert first.effects == second.effects
    assert_implies(first, *joint(second), atol=0)


def lifted(between, dim):
    """Cov of weights whose coordinates are independent and alike: (K, K) ⊗ I_d."""
    return np.kron(between, np.eye(dim))


def blobs(rng, sizes=(30, 20, 10), e=3, distance=20.0):
    """Embeddings in clusters that nobody could mistake, and the cluster of each."""
    label = np.repeat(np.arange(len(sizes)), sizes)
    centres = distance * np.eye(len(sizes), e) + 5.0
    return centres[label] + rng.normal(size=(len(label), e)), label


@pytest.mark.parametrize("name", ["categories", "low_rank", "tags", "taxonomy"])
def test_docstring_examples_run(name):
    found = doctest.testmod(importlib.import_module(f"manyarms.priors.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


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

TAGS = [["x", "y"], ["y"], [], ["z", "x", "x", None], {"x": 3.0, "z": 4.0, "w": 0.0}, None]
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


# Taxonomies.

PATHS = [
    ["food", "tea", "green"],
    ["food", "tea", "black"],
    ["food", "tea"],
    ["food", "other", "x"],
    ["home", "other", "x"],
    ["home"],
    ["home"],
    [],
    ["food", "tea", None],
]
STDS = [1.0, 0.5, 0.25]


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


def test_integer_codes_by_level_make_a_taxonomy():
    codes = np.array([[0, 0], [0, 1], [1, 0], [1, 0]])
    between = tree_covariance(codes.tolist(), [1.0, 1.0])
    assert_implies(priors.from_taxonomy(codes, dim=1), 0.0, between + np.eye(4))


@pytest.mark.parametrize("paths", [[[], None, []], np.empty((3, 0)), np.full((3, 2), np.nan)])
def test_a_taxonomy_in_which_nothing_is_known_is_one_node(paths):
    prior = priors.from_taxonomy(paths, dim=1)
    assert [(level.count, level.n_missing) for level in prior.effects] == [(1, 3)]
    assert_implies(prior, 0.0, np.ones((3, 3)) + np.eye(3))


# Embeddings: clusters.


def test_without_dim_the_prior_is_the_mixture_that_scikit_learn_finds():
    embeddings = np.random.default_rng(1).normal(size=(80, 3)) * [1.0, 2.0, 0.5]
    embeddings[:40] += [2.0, 1.0, 0.0]
    _, mixture_rng = np.random.default_rng(5).spawn(2)
    floor = 1e-6 * embeddings.var(axis=0).mean()
    model = GaussianMixture(
        4, covariance_type="diag", reg_covar=floor, max_iter=1000, random_state=int(mixture_rng.integers(2**31 - 1))
    ).fit(embeddings)
    w, means, variances = model.predict_proba(embeddings), model.means_, model.covariances_
    across = sum(np.kron(np.outer(w[:, c], w[:, c]), np.diag(variances[c])) for c in range(4))
    for kind in ("shared", "own"):
        each = w @ variances if kind == "own" else np.tile(variances.mean(axis=0), (80, 1))
        prior = priors.from_embeddings(embeddings, 4, rng=np.random.default_rng(5), action_variance=kind)
        assert_implies(prior, w @ means, across + np.diag(each.reshape(-1)), atol=1e-6)
    assert_allclose(prior.latent_mean.reshape(4, 3), means, atol=1e-6)
    assert not prior.effects[0].has_mean


def test_with_dim_only_the_weights_come_from_the_mixture():
    rng = np.random.default_rng(2)
    embeddings = rng.normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [2.0, 2.0]], 30, axis=0)
    _, mixture_rng = np.random.default_rng(6).spawn(2)
    model = GaussianMixture(
        2, covariance_type="diag", max_iter=1000, random_state=int(mixture_rng.integers(2**31 - 1))
    ).fit(embeddings)
    w = model.predict_proba(embeddings)
    prior = priors.from_embeddings(embeddings, 2, dim=3, rng=np.random.default_rng(6), shared_std=2.0, **SCALES)
    assert_implies(prior, 0.0, lifted(1.5**2 * w @ w.T + 4.0 + 0.7**2 * np.eye(60), 3), atol=1e-5)


@pytest.mark.parametrize("method", ["gmm", "kmeans"])
@pytest.mark.parametrize("n_components", [None, 3])
def test_clear_clusters_are_found_and_counted(method, n_components):
    embeddings, label = blobs(np.random.default_rng(3))
    prior = priors.from_embeddings(embeddings, n_components, dim=2, rng=np.random.default_rng(0), method=method)
    assert prior.effects[0].count == 3
    same = label[:, None] == label
    assert_implies(prior, 0.0, lifted(same + np.eye(len(label)), 2), atol=1e-6)
    # What is negligible is dropped.
    assert prior.mixing.one_effect_each


def test_k_means_without_dim_has_the_means_and_variances_of_its_clusters():
    embeddings, label = blobs(np.random.default_rng(4))
    means = np.array([embeddings[label == c].mean(axis=0) for c in range(3)])
    variances = np.array([embeddings[label == c].var(axis=0) for c in range(3)])
    own = priors.from_embeddings(
        embeddings, 3, rng=np.random.default_rng(0), method="kmeans", action_variance="own", variance_floor=1e-15
    )
    across = block_diag(*[np.kron(np.ones((n, n)), np.diag(v)) for n, v in zip((30, 20, 10), variances, strict=True)])
    assert_implies(own, means[label], across + np.diag(variances[label].reshape(-1)), atol=1e-9)


def test_bic_of_the_hard_clusters_counts_as_scikit_learn_does():
    embeddings, label = blobs(np.random.default_rng(5))
    for fit in (clustering.gaussian_mixture, clustering.k_means):
        found = fit(embeddings, 3, 0, 1e-6)
        model = GaussianMixture(
            3, covariance_type="diag", means_init=[embeddings[label == c].mean(axis=0) for c in range(3)]
        ).fit(embeddings)
        assert_allclose(found.bic, model.bic(embeddings), rtol=1e-6)
    one = clustering.find_clusters(
        embeddings, 1, fit=clustering.k_means, max_components=1, floor=1e-6, rng=np.random.default_rng(0)
    )
    assert_allclose(one.bic, GaussianMixture(1, covariance_type="diag").fit(embeddings).bic(embeddings))


@pytest.mark.parametrize("method", ["gmm", "kmeans"])
@pytest.mark.parametrize("dim, kind", [(None, "shared"), (None, "own"), (2, "shared")])
def test_missing_embeddings_share_an_effect_and_do_not_narrow_the_prior(method, dim, kind):
    embeddings, label = blobs(np.random.default_rng(6))
    with_gaps = np.vstack([embeddings, np.full((2, 3), np.nan)])
    prior, alone = (
        priors.from_embeddings(given, 3, dim=dim, rng=np.random.default_rng(0), method=method, action_variance=kind)
        for given in (with_gaps, embeddings)
    )
    everyone = np.arange(len(label))
    assert_allclose(prior.action_mean(everyone), alone.action_mean())
    assert_allclose(prior.action_cov(everyone), alone.action_cov(everyone))
    group = prior.effects[0]
    assert (group.name, group.n_missing, group.labels) == ("component", 2, (0, 1, 2, MISSING))
    assert_allclose(prior.cross_cov([60, 60], [61, 0])[1], 0.0, atol=1e-12)
    between = prior.cross_cov([60], [61])[0]
    if dim is None:
        assert_allclose(prior.action_mean([60])[0], embeddings.mean(axis=0))
        assert_allclose(np.diag(between), embeddings.var(axis=0), rtol=1e-4)
        within = np.mean([embeddings[label == c].var(axis=0) for c in range(3)], axis=0)
        assert_allclose(np.diag(prior.action_cov([60])[0] - between), within, rtol=1e-3)
    else:
        assert_allclose(between, np.eye(dim))
        assert_allclose(prior.action_cov([60])[0], alone.action_cov([0])[0], rtol=1e-6)


@pytest.mark.parametrize("method", ["gmm", "kmeans"])
def test_clusters_do_not_depend_on_units_or_on_constant_columns(method):
    rng = np.random.default_rng(7)
    embeddings = rng.normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [3.0, 2.0]], 30, axis=0)
    plain, changed = (
        priors.from_embeddings(given, dim=1, rng=np.random.default_rng(0), method=method)
        for given in (embeddings, np.column_stack([np.full(60, 1e3), 1e-9 * embeddings + 3e-9]))
    )
    assert_implies(changed, *joint(plain), atol=1e-5)


def test_a_constant_column_without_dim_gets_the_variance_floor():
    embeddings, _ = blobs(np.random.default_rng(8))
    with_constant = np.column_stack([embeddings, np.full(60, 7.0)])
    prior = priors.from_embeddings(with_constant, 3, rng=np.random.default_rng(0), variance_floor=1e-4)
    floor = 1e-4 * with_constant.var(axis=0).mean()
    assert_allclose(prior.action_mean()[:, 3], 7.0)
    assert_allclose(prior.action_cov(np.arange(60))[:, 3, 3], 2 * floor, rtol=1e-6)


def test_clusters_are_fitted_to_at_most_max_rows_and_weigh_all():
    embeddings, label = blobs(np.random.default_rng(9), sizes=(3000, 2000, 1000))
    got = [
        priors.from_embeddings(embeddings, dim=1, rng=np.random.default_rng(seed), max_rows=90) for seed in (1, 1, 2)
    ]
    assert (got[0].mixing.weights != got[1].mixing.weights).nnz == 0
    for prior in got:
        assert prior.effects[0].count == 3
        pairs = np.random.default_rng(0).integers(6000, size=(2, 500))
        same = (label[pairs[0]] == label[pairs[1]]) + (pairs[0] == pairs[1])
        assert_allclose(prior.cross_cov(*pairs)[:, 0, 0], same, atol=1e-6)


def test_bic_does_not_give_single_rows_a_component_each():
    embeddings = np.random.default_rng(19).normal(size=(12, 4))
    prior = priors.from_embeddings(embeddings, dim=1, rng=np.random.default_rng(0))
    assert prior.effects[0].count <= 2
    # It would, as each raises the density without end.
    bic = [
        GaussianMixture(count, covariance_type="diag", random_state=0).fit(embeddings).bic(embeddings)
        for count in range(1, 12)
    ]
    assert np.argmin(bic) + 1 > 5


@pytest.mark.parametrize("method", ["gmm", "kmeans"])
def test_embeddings_that_are_all_alike_are_one_component(method):
    for embeddings in (np.full((4, 2), 0.1), np.zeros((1, 3))):
        prior = priors.from_embeddings(embeddings, dim=1, rng=np.random.default_rng(0), method=method)
        K = len(embeddings)
        assert_implies(prior, 0.0, np.ones((K, K)) + np.eye(K))


@pytest.mark.parametrize("method", ["gmm", "kmeans"])
def test_repeated_embeddings_can_have_a_component_each(method):
    prior = priors.from_embeddings(
        np.repeat(np.eye(3), 4, axis=0), 3, dim=1, rng=np.random.default_rng(0), method=method
    )
    assert_implies(prior, 0.0, np.kron(np.eye(3), np.ones((4, 4))) + np.eye(12), atol=1e-6)


def test_a_mixture_that_does_not_come_to_rest_is_refused_and_never_chosen(monkeypatch):
    monkeypatch.setattr(clustering, "MAX_STEPS", 1)
    embeddings, _ = blobs(np.random.default_rng(10))
    with pytest.raises(errors.NumericalError, match=r"4 components did not come to rest in 1 steps.*kmeans"):
        priors.from_embeddings(embeddings, 4, dim=1, rng=np.random.default_rng(0))
    chosen = priors.from_embeddings(embeddings, dim=1, rng=np.random.default_rng(0))
    assert chosen.effects[0].count == 1


def test_a_row_far_from_those_drawn_still_gets_weights():
    embeddings = np.vstack([1e-9 * np.random.default_rng(11).normal(size=(300, 2)), [[1e149, -1e149]]])
    prior = priors.from_embeddings(embeddings, 3, dim=1, rng=np.random.default_rng(1), max_rows=50)
    assert_allclose(np.asarray(prior.mixing.weights.sum(axis=1)), 1.0)


# Embeddings: linear.


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("shared_std", [None, 2.0])
def test_weights_linear_in_embeddings_covary_by_their_products(scale, shared_std):
    rng = np.random.default_rng(12)
    embeddings = np.column_stack([rng.normal(size=(7, 2)), np.full(7, 3.0), np.zeros(7)])
    e = embeddings - embeddings.mean(axis=0) if shared_std else embeddings
    length = np.sqrt(np.mean(np.sum(e**2, axis=1)))
    e = e / length if scale else e
    between = np.zeros((8, 8))
    between[:7, :7] = e @ e.T
    between[7, 7] = 1.0 if scale else length**2
    given = np.vstack([embeddings, np.full(4, np.nan)])
    prior = priors.linear_in_embeddings(given, dim=2, scale=scale, shared_std=shared_std, **SCALES)
    assert_implies(prior, 0.0, lifted(1.5**2 * between + (shared_std or 0.0) ** 2 + 0.7**2 * np.eye(8), 2))
    group = prior.effects[-1]
    assert (group.name, group.has_mean, group.n_missing) == ("embedding", False, 1)
    assert group.labels == ((0, 1, MISSING) if shared_std else (0, 1, 2, MISSING))


@pytest.mark.parametrize("size", [1e-170, 1e140])
def test_embeddings_of_any_size_are_scaled(size):
    e = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert_implies(priors.linear_in_embeddings(size * e, dim=1), 0.0, 2 * np.eye(2))


# Low rank.


@pytest.mark.parametrize("shared_std", [None, 2.0])
@pytest.mark.parametrize("each", [True, False])
def test_low_rank_weights_lie_near_their_basis(each, shared_std):
    rng = np.random.default_rng(13)
    basis, mean = rng.normal(size=(4, 5, 2)), rng.normal(size=2)
    given = (basis,) if each else (basis[0], 4)
    prior = priors.low_rank(*given, latent_mean=mean, shared_std=shared_std, **SCALES)
    tall = basis.reshape(20, 2) if each else np.tile(basis[0], (4, 1))
    shared = np.kron(np.ones((4, 4)), (shared_std or 0.0) ** 2 * np.eye(5))
    assert_implies(prior, (tall @ mean).reshape(4, 5), 1.5**2 * tall @ tall.T + shared + 0.7**2 * np.eye(20))
    assert prior.effects[-1] == ma.core.effects.EffectGroup("latent", 2, 1, has_mean=False)


@pytest.mark.parametrize("shared_std", [None, 1.0])
def test_a_basis_that_all_share_is_held_once(shared_std):
    prior = priors.low_rank(np.ones((3, 2)), 10**9, shared_std=shared_std)
    assert_allclose(prior.cross_cov([0], [10**9 - 1])[0], 2 * np.ones((3, 3)) + (shared_std or 0) * np.eye(3))


# Any joint Gaussian.


def random_cov(rng, size, rank=None):
    root = rng.normal(size=(size, rank or size)) * rng.uniform(0.1, 3.0, size=(size, 1))
    return root @ root.T


def related_cov(rng):
    """Actions around common effects: what the family is made for."""
    root = rng.normal(size=(12, 2))
    return root @ root.T + block_diag(*[random_cov(rng, 3) for _ in range(4)])


JOINTS = {
    "random": lambda rng: (random_cov(rng, 12), 4),
    "one action": lambda rng: (random_cov(rng, 3), 1),
    "one dimension": lambda rng: (random_cov(rng, 5), 5),
    "independent": lambda rng: (block_diag(*[random_cov(rng, 3) for _ in range(4)]), 4),
    "related": lambda rng: (related_cov(rng), 4),
    "two sets": lambda rng: (block_diag(random_cov(rng, 6), random_cov(rng, 6)), 4),
    "singular": lambda rng: (random_cov(rng, 12, rank=5), 4),
    "singular actions": lambda rng: (random_cov(rng, 12, rank=1), 4),
    "an action without variance": lambda rng: (block_diag(random_cov(rng, 6), np.zeros((3, 3))), 3),
    "no variance": lambda rng: (np.zeros((6, 6)), 3),
    "units far apart": lambda rng: (random_cov(rng, 6) * np.outer(*[[1e-9, 1.0, 1e9] * 2] * 2), 2),
}


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("seed", range(3))
def test_any_joint_gaussian_is_put_into_the_family_exactly(name, seed):
    rng = np.random.default_rng(seed)
    cov, K = JOINTS[name](rng)
    mean = rng.normal(size=len(cov))
    got_mean, got_cov = joint(priors.from_joint(mean, cov, K))
    assert_allclose(got_mean.reshape(-1), mean)
    stds = np.sqrt(np.diag(cov))
    assert (np.abs(got_cov - cov) <= 1e-10 * np.outer(stds, stds) + 1e-300).all()
    assert joint(priors.from_joint(mean.reshape(K, -1), cov, K))[0].tolist() == got_mean.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_form_needs_no_more_dimensions_than_it_must(seed):
    rng = np.random.default_rng(seed)
    given = {name: make(rng) for name, make in JOINTS.items()}
    dims = {name: priors.from_joint(np.zeros(len(cov)), cov, K).latent_dim for name, (cov, K) in given.items()}
    assert dims["independent"] == dims["one action"] == dims["no variance"] == 0
    assert dims["random"] == 11
    assert dims["singular"] == 5
    assert dims["singular actions"] == 1
    assert dims["two sets"] == 10
    # One set of actions that covary; the others are independent of them and of one another.
    mixed = block_diag(random_cov(rng, 4), np.eye(6))
    assert priors.from_joint(np.zeros(10), mixed, 5).latent_dim == 3


@pytest.mark.parametrize("name", JOINTS)
@pytest.mark.parametrize("rank", [0, 1, 2, 4, 100])
def test_at_a_rank_every_action_stays_exact_and_the_rest_is_within_what_was_left_out(name, rank):
    cov, K = JOINTS[name](np.random.default_rng(4))
    d = len(cov) // K
    prior = priors.from_joint(np.zeros(len(cov)), cov, K, rank=rank)
    assert prior.latent_dim <= rank
    got = joint(prior)[1]
    own = [slice(a * d, (a + 1) * d) for a in range(K)]
    for block in own:
        assert_allclose(got[block, block], cov[block, block], rtol=1e-9, atol=1e-300)
    # In units in which every action has covariance I, by a pseudo-inverse root of each block.
    white = np.zeros_like(cov)
    for block in own:
        scale = np.sqrt(np.diag(cov[block, block]))
        scale = np.where(scale > 0, scale, 1.0)
        values, vectors = np.linalg.eigh(cov[block, block] / np.outer(scale, scale))
        kept = values > 1e-12
        white[block, block] = (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T / scale
    real = np.linalg.eigvalsh(white @ cov @ white.T)
    # The smallest eigenvalue that counts: zeros of directions that have no variance at all do not.
    real = real[len(real) - round(np.trace(white @ cov @ white.T)) :]
    remaining = np.sort(real - max(real.min(initial=1.0), 0.0))[::-1]
    error = np.linalg.norm(white @ (got - cov) @ white.T)
    assert error <= np.sqrt(np.sum(remaining[rank:] ** 2)) + 1e-8


# Sums, catalogs, posteriors.


def every_prior(dim=2):
    """One prior of each kind over the same nine actions."""
    rng = np.random.default_rng(14)
    embeddings = rng.normal(size=(9, 2))
    gmm = np.random.default_rng(0)
    return {
        "categories": priors.from_categories([*"aabbccdd", None], dim=dim, shared_std=0.5),
        "tags": priors.from_tags([["x"], ["x", "y"], []] * 3, dim=dim),
        "taxonomy": priors.from_taxonomy(PATHS, dim=dim, effect_std=STDS),
        "clusters": priors.from_embeddings(embeddings, 2, dim=dim, rng=gmm),
        "clusters of theta": priors.from_embeddings(embeddings, 2, rng=gmm, action_variance="own"),
        "linear": priors.linear_in_embeddings(embeddings, dim=dim),
        "low rank": priors.low_rank(rng.normal(size=(dim, 1)), 9, latent_mean=[1.0]),
        "joint": priors.from_joint(rng.normal(size=9 * dim), random_cov(rng, 9 * dim), 9),
        "independent": priors.independent(9, mean=1.0, cov=2.0, dim=dim),
    }


@pytest.mark.parametrize("right", every_prior())
@pytest.mark.parametrize("left", every_prior())
def test_moments_of_a_sum_are_sums_of_moments(left, right):
    first, second = every_prior()[left], every_prior()[right]
    total = first + second
    (mean_1, cov_1), (mean_2, cov_2) = joint(first), joint(second)
    assert_implies(total, mean_1 + mean_2, cov_1 + cov_2)
    assert total.effects == (*first.effects, *second.effects)


@pytest.mark.parametrize("name", every_prior())
def test_a_fit_conditions_the_joint_that_a_builder_implies(name):
    prior = every_prior()[name]
    mean, cov = joint(prior)
    rng = np.random.default_rng(15)
    contexts, actions, rewards = rng.normal(size=(30, 2)), rng.integers(0, 7, 30), rng.normal(size=30)
    design = np.zeros((30, 18))
    for i, a in enumerate(actions):
        design[i, 2 * a : 2 * a + 2] = contexts[i]
    gain = cov @ design.T @ np.linalg.inv(design @ cov @ design.T + 0.25 * np.eye(30))
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=9)
    got = ma.fit(logs, prior, ma.Gaussian(noise_std=0.5)).weights
    expected = mean.reshape(-1) + gain @ (rewards - design @ mean.reshape(-1))
    assert_implies(got, expected.reshape(9, 2), cov - gain @ design @ cov, atol=1e-9)


def test_a_catalog_and_its_columns_give_the_same_priors():
    rng = np.random.default_rng(16)
    embeddings, labels = rng.normal(size=(9, 2)), ["a", "b", None] * 3
    embeddings[4] = np.nan
    tagged = [["x"], {"y": 2.0}, None] * 3
    catalog = Catalog(range(9), categories=labels, tags=tagged, paths=PATHS, embeddings=embeddings)

    def clusters(given):
        return priors.from_embeddings(given, 2, rng=np.random.default_rng(0))

    for build, plain in (
        (lambda given: priors.from_categories(given, dim=2), labels),
        (lambda given: priors.from_tags(given, dim=2), tagged),
        (lambda given: priors.from_taxonomy(given, dim=2), PATHS),
        (lambda given: priors.linear_in_embeddings(given, dim=2), embeddings),
        (clusters, embeddings),
    ):
        assert_same(build(catalog), build(plain))


# Bad input.


@pytest.fixture
def as_users_run_it():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


E = np.random.default_rng(17).normal(size=(12, 2))
RNG = np.random.default_rng(18)
PART_NAN = np.vstack([E[:5], [[1.0, np.nan]]])
SKEW, INDEFINITE = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
ZERO_VARIANCE = np.array([[0.0, 1e-5], [1e-5, 1.0]])
NEGATIVE = sparse.csr_array(np.array([[1.0, 0.0], [1.0, -2.0]]))


def embed(*args, **options):
    return priors.from_embeddings(*args, **(dict(rng=RNG, dim=2) | options))


BAD = {
    "no dim": (lambda: priors.from_categories(["a"], dim=0), errors.RangeError, "dim must be at least 1"),
    "negative scale": (
        lambda: priors.from_categories(["a"], dim=1, effect_std=-1.0), errors.RangeError, "effect_std must be at least",
    ),
    "NaN scale": (
        lambda: priors.from_tags([["a"]], dim=1, action_std=np.nan), errors.NonFiniteError, "action_std must be finite",
    ),
    "scale beyond arithmetic": (
        lambda: priors.from_categories(["a"], dim=1, shared_std=1e200), errors.RangeError, "shared_std must be",
    ),
    "no actions": (lambda: priors.from_categories([], dim=1), errors.ShapeError, "categories must have at least 1 row"),
    "a catalog that lacks the column": (
        lambda: priors.from_categories(Catalog([1, 2]), dim=1), errors.InputError,
        r"the catalog has no categories.*Catalog\(ids, categories=\.\.\.\)",
    ),
    "categories with two axes": (
        lambda: priors.from_categories(np.ones((3, 2)), dim=1), errors.ShapeError, r"got shape \(3, 2\)",
    ),
    "a category that cannot be hashed": (
        lambda: priors.from_categories(["a", ["b"]], dim=1), errors.DataTypeError, r"categories.*row 1 has \['b'\]",
    ),
    "a tag that cannot be hashed": (
        lambda: priors.from_tags([["a"], ["b", {}]], dim=1), errors.DataTypeError, r"tags.*row 1 has \{\}",
    ),
    "negative tag": (
        lambda: priors.from_tags([{"a": 1.0}, {"b": -1.0}], dim=1), errors.RangeError, "row 1 has -1.0 for 'b'",
    ),
    "NaN tag": (
        lambda: priors.from_tags([{"a": 1.0}, {"b": np.nan}], dim=1), errors.NonFiniteError, "row 1 has nan for 'b'",
    ),
    "a word as weight": (
        lambda: priors.from_tags([["a"], {"b": "1"}], dim=1), errors.DataTypeError, "row 1 has '1' for 'b'",
    ),
    "negative tag in a matrix": (lambda: priors.from_tags(NEGATIVE, dim=1), errors.RangeError, "row 1 has -2.0 for 1"),
    "a gap in a path": (
        lambda: priors.from_taxonomy([["a"], ["a", None, "c"]], dim=1), errors.InputError,
        "row 1 has 'c' at level 3 below a missing label",
    ),
    "a gap in an array of paths": (
        lambda: priors.from_taxonomy(np.array([[1.0, 2.0], [np.nan, 2.0]]), dim=1), errors.InputError, "row 1 has 2.0",
    ),
    "too few scales": (
        lambda: priors.from_taxonomy([["a", "b"]], dim=1, effect_std=[1.0]), errors.ShapeError, "of 2 levels; got 1",
    ),
    "a negative scale of a level": (
        lambda: priors.from_taxonomy([["a", "b"]], dim=1, effect_std=[1.0, -1.0]), errors.RangeError, "row 1 has -1.0",
    ),
    "an unknown node": (
        lambda: priors.from_taxonomy(["a", "b", "c"], {"a": None, "b": "a"}, dim=1), errors.InputError, "row 2 has 'c'",
    ),
    "an unknown parent": (
        lambda: priors.from_taxonomy(["a"], {"a": None, "b": "z"}, dim=1), errors.InputError, "'b' has the parent 'z'",
    ),
    "a cycle": (
        lambda: priors.from_taxonomy(["a"], {"a": "b", "b": "c", "c": "a", "d": "a"}, dim=1), errors.InputError,
        "no cycle; got ('a' -> 'b' -> 'c' -> 'a'|'b' -> 'c' -> 'a' -> 'b'|'c' -> 'a' -> 'b' -> 'c')",
    ),
    "its own parent": (
        lambda: priors.from_taxonomy(["a"], {"a": "a"}, dim=1), errors.InputError, "'a' -> 'a'. Give the root",
    ),
    "a long cycle": (
        lambda: priors.from_taxonomy([0], {i: (i + 1) % 99 for i in range(99)}, dim=1), errors.InputError, r"\.\.\. ->",
    ),
    "parents that are no mapping": (
        lambda: priors.from_taxonomy(["a"], ["a"], dim=1), errors.DataTypeError, "parents must be a mapping.*list",
    ),
    "a tree without nodes": (lambda: priors.from_taxonomy(["a"], {}, dim=1), errors.InputError, "row 0 has 'a'"),
    "NaN in part of an embedding": (lambda: embed(PART_NAN), errors.NonFiniteError, "row 5 holds nan"),
    "NaN in part of an embedding, linear": (
        lambda: priors.linear_in_embeddings(PART_NAN, dim=1), errors.NonFiniteError, "row 5 holds nan",
    ),
    "no embeddings at all": (lambda: embed(np.full((3, 2), np.nan)), errors.NonFiniteError, "all are missing"),
    "no embeddings at all, linear": (
        lambda: priors.linear_in_embeddings(np.full((3, 2), np.nan), dim=1), errors.NonFiniteError, "all are missing",
    ),
    "fewer items than components": (
        lambda: embed(E, 13), errors.RangeError, "n_components must be at most 12, the number of distinct",
    ),
    "fewer distinct items than components": (
        lambda: embed(np.repeat(E[:3], 5, axis=0), 4, method="kmeans"), errors.RangeError, "at most 3.*15 rows.*got 4",
    ),
    "fewer rows drawn than components": (
        lambda: embed(E, 6, max_rows=5), errors.RangeError, "at most 5.*larger max_rows",
    ),
    "embeddings that say nothing of theta": (
        lambda: embed(np.ones((5, 2)), dim=None), errors.RangeError, "all 5 rows used are the same.*dim=",
    ),
    "scales without dim": (lambda: embed(E, dim=None, effect_std=1.0), errors.InputError, "come from the embeddings"),
    "own variances with dim": (lambda: embed(E, action_variance="own"), errors.InputError, "leave dim out"),
    "an unknown method": (lambda: embed(E, method="dbscan"), errors.InputError, "'gmm' or 'kmeans'; got 'dbscan'"),
    "a seed as rng": (lambda: embed(E, rng=0), errors.DataTypeError, "default_rng"),
    "no floor": (lambda: embed(E, variance_floor=0.0), errors.RangeError, "variance_floor must be above 0"),
    "embeddings of zeros": (
        lambda: priors.linear_in_embeddings(np.zeros((3, 2)), dim=1), errors.RangeError, "not all be zero",
    ),
    "constant embeddings, centred": (
        lambda: priors.linear_in_embeddings(np.ones((3, 2)), dim=1, shared_std=1.0), errors.RangeError, "must differ",
    ),
    "a basis for nobody": (lambda: priors.low_rank(np.ones((3, 2))), errors.ShapeError, "pass n_actions="),
    "a basis of other actions": (lambda: priors.low_rank(np.ones((4, 3, 2)), 5), errors.ShapeError, "4 actions"),
    "a basis without columns": (lambda: priors.low_rank(np.ones((3, 0)), 2), errors.ShapeError, "independent"),
    "a latent mean of another length": (
        lambda: priors.low_rank(np.ones((3, 2)), 2, latent_mean=[1.0]), errors.ShapeError, "must have 2 rows; got 1",
    ),
    "a joint that is no square": (lambda: priors.from_joint([0.0], np.ones((2, 3)), 1), errors.ShapeError, "cov must"),
    "a joint of other actions": (lambda: priors.from_joint(np.zeros(4), np.eye(4), 3), errors.ShapeError, "K = 3"),
    "a mean of another length": (
        lambda: priors.from_joint(np.zeros(3), np.eye(4), 2), errors.ShapeError, r"mean must be \(4,\) or \(2, 2\)",
    ),
    "a skew joint": (lambda: priors.from_joint([0, 0], SKEW, 2), errors.CovarianceError, "cov must be symmetric"),
    "an indefinite joint": (lambda: priors.from_joint([0, 0], INDEFINITE, 2), errors.CovarianceError, "positive semi"),
    "a negative variance": (
        lambda: priors.from_joint([0, 0], np.diag([1.0, -1e-3]), 2), errors.CovarianceError, "positive semi",
    ),
    "covariance without variance": (
        lambda: priors.from_joint([0, 0], ZERO_VARIANCE, 2), errors.CovarianceError, "positive semi",
    ),
    "a negative rank": (lambda: priors.from_joint([0.0], [[1.0]], 1, rank=-1), errors.RangeError, "rank must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_at_the_door(name, as_users_run_it):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, errors.InputError)


def test_a_category_seen_once_is_a_category():
    prior = priors.from_categories(["a", "b", "b"], dim=1)
    logs = ma.LoggedData(np.ones((1, 1)), [0], [1.0], n_actions=3)
    posterior = ma.fit(logs, prior, ma.Gaussian(noise_std=1.0))
    assert_allclose(posterior.weights.action_mean()[:, 0], [2 / 3, 0.0, 0.0])
