import numpy as np

from manyarms.core.labels import as_labels


def test_labels_in_columns_are_numbered_by_their_combination():
    columns = np.array([["tea", "red"], ["tea", "blue"], ["mug", "red"], ["tea", "red"], ["mug", None]], dtype=object)
    codes = as_labels("clusters", columns, n_actions=5)
    same = np.equal.outer(codes, codes)
    assert same.tolist() == [[a == b for b in columns.tolist()] for a in columns.tolist()]
