"""Choices hold probabilities in parts; questions about them are answered as from the dense matrix."""

import numpy as np
import pytest
from scipy import sparse

from manyarms.core.choices import Choices
from manyarms.linalg.indexing import chunks

N, K = 50, 7


@pytest.mark.parametrize("parts", [("named", "everywhere"), ("named", "dense"), ("everywhere", "dense"), ("dense",)])
@pytest.mark.parametrize("k", [1, 3, K])
def test_the_most_probable_actions_are_those_of_the_dense_matrix_whatever_the_parts(parts, k):
    rng = np.random.default_rng(len(parts))
    named = rng.random((N, K)) * (rng.random((N, K)) < 0.5) if "named" in parts else np.zeros((N, K))
    everywhere = rng.random(K) if "everywhere" in parts else np.zeros(K)
    dense = rng.random((N, K)) if "dense" in parts else np.zeros((N, K))
    choices = Choices(
        N, K, sparse.csr_array(named) if "named" in parts else None, everywhere if "everywhere" in parts else None,
        dense if "dense" in parts else None,
    )  # fmt: skip
    expected = np.argsort(-(named + everywhere + dense), axis=1)[:, :k]
    assert choices.top_k(k).tolist() == expected.tolist()


def test_the_most_probable_actions_do_not_depend_on_the_rows_held_at_a_time(monkeypatch):
    rng = np.random.default_rng(0)
    named, everywhere = sparse.csr_array(rng.random((N, K)) * (rng.random((N, K)) < 0.5)), rng.random(K)
    whole = Choices(N, K, named, everywhere, None).top_k(3)
    monkeypatch.setattr("manyarms.core.choices.chunks", lambda n, size: chunks(n, 8))
    assert Choices(N, K, named, everywhere, None).top_k(3).tolist() == whole.tolist()
