"""Wrong shapes are noticed while the tests run, in the first calls of every test."""

import jaxtyping
import numpy as np
import pytest

from manyarms.linalg.quadratic_forms import row_norms


@pytest.mark.parametrize("test", ["a test", "the next test"])
def test_the_first_call_with_a_wrong_shape_fails(test):
    with pytest.raises(jaxtyping.TypeCheckError, match="vectors"):
        row_norms(np.ones(3), np.zeros(3, dtype=int), lambda _: np.ones((3, 1, 1)))
