import numpy as np
import pytest

import manyarms as ma
from manyarms.errors import ShapeError

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


@pytest.mark.parametrize("second", [TWO, np.diag([0.5, 2.0]), np.stack([ONE, TWO, 2 * TWO])], ids=np.ndim)
def test_the_covariance_of_a_sum_of_priors_is_the_sum_of_their_covariances(second):
    first, second_prior = (ma.HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), np.zeros((3, 2, 0)), cov)
                           for cov in (ONE + 0.1, second))  # fmt: skip
    diagonal = ma.HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), np.zeros((3, 2, 0)), [0.3, 4.0])
    both = first + second_prior + diagonal
    want = np.broadcast_to(ONE + 0.1 + second + np.diag([0.3, 4.0]), (3, 2, 2))
    np.testing.assert_allclose(both.action_cov(np.arange(3)), want, rtol=1e-14)
    # Actions that share a covariance keep doing so, which is what keeps a large catalog cheap.
    assert (both.action_covariance.each is None) == (second.ndim == 2)


def test_new_actions_need_a_covariance_where_each_has_its_own():
    prior = ma.HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), np.zeros((2, 2, 0)), np.stack([ONE, TWO]))
    with pytest.raises(ShapeError, match=r"differs by action here. Pass action_cov= for the new actions too") as caught:
        prior.with_actions(np.zeros((1, 2, 0)))
    assert caught.value.argument == "action_cov"
