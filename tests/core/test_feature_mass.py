"""The feature mass of a policy, added up block by block, is the sum over rows written out densely."""

import numpy as np
from numpy.testing import assert_allclose
from scipy import sparse

from manyarms.core.choices import Choices
from manyarms.core.feature_mass import FeatureMassSum

N, K, D = 6, 5, 3


def test_blocks_that_share_different_distributions_add_up():
    rng = np.random.default_rng(0)
    first, second = rng.dirichlet(np.ones(K), size=2)
    named = sparse.csr_array(rng.random((N, K)) * (rng.random((N, K)) < 0.4))
    dense = rng.random((N, K))
    blocks = [
        Choices(N, K, everywhere=first), Choices(N, K, everywhere=first), Choices(N, K, everywhere=second),
        Choices(N, K, named=named), Choices(N, K, everywhere=second), Choices(N, K, dense=dense),
    ]  # fmt: skip
    total, expected, shares, weight = FeatureMassSum(), np.zeros((K, D)), np.zeros(K), 0.0
    for choices in blocks:
        x, w = rng.normal(size=(N, D)), rng.uniform(size=N)
        total.add(choices, x, w)
        p = choices.probabilities() * w[:, None]
        expected, shares, weight = expected + p.T @ x, shares + p.sum(axis=0), weight + w.sum()
    mass = total.mean()
    assert mass.actions.tolist() == list(range(K))
    assert_allclose(mass.vectors, expected / weight, rtol=1e-12)
    assert_allclose(mass.probability, shares / weight, rtol=1e-12)
