"""Classification as bandit feedback: rows come by, actions are labels, and the reward of the chosen one is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from manyarms._base.checks import as_actions, as_floats, as_matrix
from manyarms._base.rng import split
from manyarms.datasets.observed_ratings import as_sparse, check_cells
from manyarms.datasets.rating_matrix import MatrixEnvironment, draw_test_users
from manyarms.errors import RangeError, ShapeError
from manyarms.linalg.indexing import shape_of


class ClassificationEnvironment(MatrixEnvironment):
    """A row comes by, drawn at random; x = its features; action a is worth 1 if a is one of its labels and else 0.

    Rows are what users are in a `MatrixEnvironment`, with the labels as its matrix: some are there to log from, others
    to judge on, and a log's `groups` are its rows.

    Args:
        features: (n, d).
        labels: (n,) class numbers, one a row; or (n, K) zeros and ones, dense or SciPy sparse, any number of ones a
            row. It is held as a sparse matrix.
        test_share: The share of rows that policies are judged on.
        noise_std: The standard deviation of Gaussian noise on every logged reward.
        rng: Draws the rows to judge on.
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        test_share: float = 0.5,
        noise_std: float = 0.0,
        rng: np.random.Generator,
    ):
        (rows_rng,) = split(rng, "rows")
        features = as_matrix("features", features)
        table = _as_labels(labels)
        if shape_of(table)[0] != len(features):
            raise ShapeError(f"labels must have one row a row of features: {len(features)}; got {shape_of(table)[0]}.")
        if len(features) < 2:
            raise ShapeError(f"features must have rows to log from and to judge on; got {len(features)}.")
        test_rows = draw_test_users(len(features), test_share, rows_rng)
        super().__init__(table, features, test_rows, noise_std=noise_std)


def _as_labels(labels: Any) -> sparse.csr_array:
    """(n, K) ones where a label is one of the row's, and nothing else stored."""
    if sparse.issparse(labels):
        table = as_sparse("labels", labels)
    elif _is_flat(labels):
        numbers = as_actions("labels", labels)
        n, n_actions = len(numbers), int(numbers.max(initial=-1)) + 1
        table = sparse.csr_array((np.ones(n), numbers.copy(), np.arange(n + 1)), shape=(n, n_actions))
    else:
        table = sparse.csr_array(as_floats("labels", labels, ndim=(1, 2)))
    fine = (table.data == 0.0) | (table.data == 1.0)
    check_cells("labels", table, fine, RangeError, "must be 0 or 1", "Pass class numbers as a vector.")
    table.eliminate_zeros()
    return table


def _is_flat(labels: Any) -> bool:
    try:
        return np.ndim(labels) == 1
    except ValueError:  # lists of several lengths, refused with all that is not rectangular
        return False
