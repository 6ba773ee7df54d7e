import numpy as np
import pytest

import manyarms as ma

ONE, TWO = 0.5 * np.eye(2), np.array([[2.0, 0.3], [0.3, 1.0]])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0.5, 0.5),
        (0.5, 2.0),
        (ONE, TWO),
        (0.5, TWO),
        (np.zeros((2, 2)), TWO),
        (np.stack([ONE, TWO, ONE]), np.stack([TWO, ONE])),
    ],
)
def test_new_actions_have_the_covariance_that_was_given_and_old_ones_keep_theirs(old, new):
    prior = ma.HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), np.zeros((3, 2, 0)), old)
    grown = prior.with_actions(np.zeros((2, 2, 0)), action_cov=new)
    parts = [np.broadcast_to(cov if np.ndim(cov) else cov * np.eye(2), (n, 2, 2)) for cov, n in ((old, 3), (new, 2))]
    np.testing.assert_allclose(grown.action_cov(np.arange(5)), np.concatenate(parts), rtol=1e-14)
