import numpy as np
import pytest

import manyarms as ma
from manyarms.core.labels import as_labels, is_missing
from manyarms.errors import DataTypeError, ShapeError


def test_labels_in_columns_are_numbered_by_their_combination():
    columns = np.array([["tea", "red"], ["tea", "blue"], ["mug", "red"], ["tea", "red"], ["mug", None]], dtype=object)
    codes = as_labels("clusters", columns, n_actions=5)
    same = np.equal.outer(codes, codes)
    assert same.tolist() == [[a == b for b in columns.tolist()] for a in columns.tolist()]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["tea"], ["mug", "red"], ["pot"]], "clusters must have a label for every action"),
        (["tea", "mug"], "clusters must have a label for each of 3 actions; got 2"),
        ([], "labels or .* columns of them; got shape"),
    ],
)
def test_there_is_a_label_for_every_action(labels, message):
    with pytest.raises(ShapeError, match=message):
        as_labels("clusters", labels, n_actions=3)


def test_an_array_is_not_a_missing_label_and_is_refused_with_its_row():
    assert not is_missing(np.array([1.0, np.nan]))
    column = np.empty(2, dtype=object)
    column[:] = ["tea", np.array([1, 2])]
    with pytest.raises(DataTypeError, match=r"categories.*row 1 (has|holds) array\(\[1, 2\]\)"):
        ma.Catalog([0, 1], categories=column)
