"""A feature map needs a feature, says what it reads, and equal maps are one key."""

import numpy as np
import pyarrow as pa
import pytest

import manyarms as ma
from manyarms.core.feature_map import Embedding, FeatureMap, Numeric
from manyarms.errors import NonFiniteError, ShapeError


def test_a_map_without_a_column_needs_the_intercept():
    with pytest.raises(ShapeError, match="needs at least one column or an intercept"):
        FeatureMap([], intercept=False)
    assert FeatureMap([])(pa.table({"x": [1, 2]})).tolist() == [[1.0], [1.0]]


def test_a_feature_that_overflows_is_named_with_its_row():
    phi = FeatureMap([Numeric("age"), Numeric("spend", 0.0, 1e-10)])
    table = pa.table({"age": [30.0, 40.0], "spend": [1.0, 1e300]})
    with pytest.raises(NonFiniteError, match=r"feature spend overflows in row 1. Rescale its column"):
        phi(table)


def test_equal_maps_are_one_key_and_different_ones_are_two():
    first, again = (FeatureMap([Numeric("age", 30.0, 3.0), Embedding("e", 2)]) for _ in range(2))
    other = FeatureMap([Numeric("age", 31.0, 3.0), Embedding("e", 2)])
    assert len({first, again, other}) == 2
    assert repr(first) == "FeatureMap(age, e: d=4)"


def test_contexts_of_a_fit_on_arrays_are_not_read_from_a_table():
    x = np.ones((4, 2))
    posterior = ma.fit(ma.LoggedData(x, [0, 1, 0, 1], np.zeros(4)), ma.priors.independent(2, dim=2))
    with pytest.raises(ma.errors.InputError, match="there is no feature map to read it with"):
        posterior.expected_reward(pa.table({"a": [1.0], "b": [2.0]}))
