"""Every builder: sums, catalogs and fits agree with the joint distribution that it implies."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from prior_moments import PATHS, STDS, assert_implies, assert_same, joint, random_cov

import manyarms as ma
from manyarms import priors
from manyarms.core.catalog import Catalog


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


@pytest.mark.parametrize(("left", "right"), list(combinations_with_replacement(every_prior(), 2)))
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
