"""Priors from embeddings: clusters as scikit-learn finds them, and weights linear in the embedding."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from prior_moments import SCALES, assert_implies, blobs, joint, lifted
from scipy.linalg import block_diag
from sklearn.mixture import GaussianMixture

from manyarms import errors, priors
from manyarms.core.labels import MISSING
from manyarms.priors import clusters as clustering


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


def test_a_mixture_that_does_not_converge_is_refused_and_never_chosen(monkeypatch):
    monkeypatch.setattr(clustering, "MAX_STEPS", 1)
    embeddings, _ = blobs(np.random.default_rng(10))
    with pytest.raises(errors.NumericalError, match=r"4 components did not converge in 1 steps.*kmeans"):
        priors.from_embeddings(embeddings, 4, dim=1, rng=np.random.default_rng(0))
    chosen = priors.from_embeddings(embeddings, dim=1, rng=np.random.default_rng(0))
    assert chosen.effects[0].count == 1


def test_a_row_far_from_those_drawn_still_gets_weights():
    embeddings = np.vstack([1e-9 * np.random.default_rng(11).normal(size=(300, 2)), [[1e149, -1e149]]])
    prior = priors.from_embeddings(embeddings, 3, dim=1, rng=np.random.default_rng(1), max_rows=50)
    assert_allclose(np.asarray(prior.mixing.weights.sum(axis=1)), 1.0)


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
