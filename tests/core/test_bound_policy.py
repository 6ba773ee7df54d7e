"""A policy on rounds with candidates chooses among those that are eligible there too."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import manyarms as ma
from manyarms.core.bound_policy import on_rounds
from manyarms.errors import EligibilityError

CANDIDATES = np.array([[1, 1, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]], dtype=bool)
PROBABILITIES = np.array([0.1, 0.2, 0.3, 0.4])


@pytest.fixture
def bound():
    rounds = ma.LoggedData(np.ones((3, 1)), [0, 1, 2], np.zeros(3), n_actions=4)
    rounds.eligible = sparse.csr_array(CANDIDATES.astype(float))
    return on_rounds(ma.TablePolicy(PROBABILITIES), rounds)


def test_a_policy_chooses_among_the_candidates_that_are_eligible(bound):
    eligible = np.array([[1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0]], dtype=bool)
    for sets in (None, eligible, sparse.csr_array(eligible)):
        kept = PROBABILITIES * CANDIDATES * (1 if sets is None else eligible)
        expected = kept / kept.sum(axis=1, keepdims=True)
        assert_allclose(bound.probabilities(np.ones((3, 1)), eligible=sets), expected, rtol=1e-14)


def test_a_row_without_a_candidate_that_is_eligible_is_named(bound):
    eligible = np.array([[1, 0, 1, 1], [1, 0, 0, 1], [0, 0, 1, 0]], dtype=bool)
    with pytest.raises(EligibilityError, match=r"has no candidate that is eligible in row 1. Leave such rows out"):
        bound.probabilities(np.ones((3, 1)), eligible=eligible)
