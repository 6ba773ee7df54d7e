import numpy as np

import manyarms as ma


def test_covariances_of_two_actions_are_transposes_however_far_the_data_outweigh_the_prior():
    rng = np.random.default_rng(0)
    prior = ma.HierarchicalGaussian(np.zeros(3), 1e16, rng.normal(size=(4, 2, 3)), 1e16)
    logs = ma.LoggedData(rng.normal(size=(40, 2)), rng.integers(4, size=40), rng.normal(size=40), n_actions=4)
    weights = ma.fit(logs, prior, ma.Gaussian(1e-6)).weights
    left, right = np.triu_indices(4)
    assert np.array_equal(weights.cross_cov(left, right), weights.cross_cov(right, left).swapaxes(1, 2))
