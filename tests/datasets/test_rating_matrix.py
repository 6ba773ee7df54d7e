"""Factorisation of rating matrices, and the rotation that aligns two of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import orthogonal_procrustes
from scipy.stats import special_ortho_group
from world_data import rng

from manyarms.datasets import (
    factorise,
    rating_matrix,
)
from manyarms.datasets.rating_matrix import alignment
from manyarms.errors import DataTypeError, InputError, RangeError


@pytest.mark.parametrize("path", ["dense", "sparse", "iterated"])
@pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
def test_factors_are_the_largest_singular_vectors(monkeypatch, path, shape):
    given = rng(2).normal(size=shape) * (rng(3).random(shape) < 0.5)
    if path == "iterated":
        monkeypatch.setattr(rating_matrix, "DENSE_CELLS", 0)
    users, items = factorise(given if path == "dense" else sparse.coo_array(given), 4, rng(4))
    U, s, Vt = np.linalg.svd(given)
    assert_allclose(users @ items.T, U[:, :4] @ np.diag(s[:4]) @ Vt[:4], atol=1e-10)
    assert_allclose(users.T @ users, np.diag(s[:4]), atol=1e-10)
    assert_allclose(items.T @ items, np.diag(s[:4]), atol=1e-10)
    assert (items.max(axis=0) > -items.min(axis=0)).all()
    for again in (factorise(given, 4, rng(4)), factorise(given, 4, rng(5))):
        assert_allclose(again[0], users, atol=1e-10)
        assert_allclose(again[1], items, atol=1e-10)


def test_factors_of_full_rank_give_the_matrix_back(monkeypatch):
    monkeypatch.setattr(rating_matrix, "DENSE_CELLS", 0)
    given = rng(6).normal(size=(7, 5))
    users, items = factorise(given, 5, rng())
    assert_allclose(users @ items.T, given, atol=1e-12)


def test_alignment_finds_a_known_rotation_and_the_best_one_otherwise():
    source = rng(7).normal(size=(40, 4))
    turn = special_ortho_group(4, seed=8).rvs() * [1, 1, -1, 1]  # a reflection is allowed too
    assert_allclose(alignment(source, source @ turn), turn, atol=1e-12)
    target = source @ turn + rng(9).normal(size=(40, 4))
    assert_allclose(alignment(source, target), orthogonal_procrustes(source, target)[0], atol=1e-12)


def test_what_cannot_be_factorised_is_refused():
    for rank, error in ((0, RangeError), (4, RangeError), (2.0, DataTypeError)):
        with pytest.raises((error, TypeError), match="rank"):
            factorise(np.ones((3, 5)), rank, rng())
    with pytest.raises(InputError, match="not zero"):
        factorise(np.zeros((3, 5)), 2, rng())
    for bad in (np.array([[1.0, np.nan], [1.0, 1.0]]), sparse.csr_array([[1.0, np.inf], [1.0, 1.0]])):
        with pytest.raises(InputError, match="matrix must be finite"):
            factorise(bad, 1, rng())


def test_cells_that_are_stored_twice_are_added_up():
    twice = sparse.csr_array((np.array([1.0, 4.0, 2.0]), np.array([2, 0, 2]), np.array([0, 3, 3])), shape=(2, 3))
    table = rating_matrix.as_rating_matrix("matrix", twice)
    assert table.indices.tolist() == [0, 2] and table.data.tolist() == [4.0, 3.0]
    assert twice.nnz == 3
