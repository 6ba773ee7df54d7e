"""Eligible sets that no row can be chosen from, or that are not sets, are refused by row."""

import numpy as np
import pytest
from scipy import sparse

import manyarms as ma
from manyarms.errors import DataTypeError, EligibilityError, NonFiniteError, ShapeError

X = np.ones((4, 2))
NAN = sparse.csr_array(np.array([[1.0, 0.0, 1.0], [np.nan, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))
BAD = {
    "a mask of other actions": (np.array([True, False]), ShapeError, "one entry per action.*: 3; got 2"),
    "an empty mask": (np.zeros(3, bool), EligibilityError, "row 0: the mask for all rows is empty"),
    "NaN": (NAN, NonFiniteError, "holds NaN.*Store True"),
    "a number per row": ([0, 1, 2, 0], DataTypeError, "a flat list of integer action numbers; row 0 does not"),
    "a function of one number": (lambda rows: 7, DataTypeError, "a list of action numbers per row: .*not iterable"),
    "lists of a ragged kind": (lambda rows: [[0, [1]]] * 4, DataTypeError, "a list of action numbers per row"),
    "a function of too few rows": (lambda rows: [[0]] * 3, ShapeError, "must give 4 lists from row 0 on; got 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_sets_that_are_not_sets_are_refused(name, own_errors):
    eligible, error, message = BAD[name]
    with pytest.raises(error, match=message) as caught:
        ma.Uniform(3).probabilities(X, eligible=eligible)
    assert caught.value.argument == "eligible"


def test_one_mask_for_all_rows_is_the_same_as_a_mask_per_row():
    mask = np.array([True, False, True])
    one, each = (ma.Uniform(3).probabilities(X, eligible=sets) for sets in (mask, np.tile(mask, (4, 1))))
    assert one.tolist() == each.tolist() == [[0.5, 0.0, 0.5]] * 4
