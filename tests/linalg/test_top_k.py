"""Top-k over tiles: among equal scores the lowest column wins, also where the equals are in different tiles."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import manyarms as ma
from manyarms.linalg import top_k
from manyarms.linalg.quadratic_forms import Forms

COLUMNS = 23


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of 3 rows and 4 columns, of which up to 2 winners are taken one by one."""
    monkeypatch.setattr(top_k, "ROWS", 3)
    monkeypatch.setattr(top_k, "COLUMNS", 4)
    monkeypatch.setattr(top_k, "FEW", 2)


@pytest.fixture(params=["all equal", "two levels", "best in the last tile"])
def scores(request):
    """Scores of whole numbers, so that equals are equal to the last bit, with many ties across tiles."""
    if request.param == "all equal":
        return np.zeros((7, COLUMNS))
    if request.param == "two levels":
        return np.random.default_rng(0).integers(0, 2, (7, COLUMNS)).astype(float)
    out = np.zeros((7, COLUMNS))
    out[:, -1] = 1.0
    return out


def by_sorting(scores, k):
    """The k best columns of each row, one row at a time: best score first, then lowest column."""
    return [sorted(range(len(row)), key=lambda column: (-row[column], column))[:k] for row in scores]


@pytest.mark.parametrize("k", [1, 2, 3, 9, COLUMNS])
def test_the_lowest_of_equal_columns_wins_across_tiles(scores, k):
    found = top_k.best_scores(*scores.shape, lambda rows, columns: scores[rows, columns].copy(), k)
    assert_array_equal(found, by_sorting(scores, k))
    assert_array_equal(top_k.best_columns(np.eye(len(scores)), scores.T.copy(), k), by_sorting(scores, k))


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_the_lowest_of_equal_lower_bounds_wins_across_tiles(scores, k):
    identities = np.broadcast_to(np.eye(len(scores)), (COLUMNS, len(scores), len(scores)))
    found = top_k.best_lower_bounds(
        np.eye(len(scores)), scores.T.copy(), Forms(lambda names: identities[names]), 0.5, k
    )
    assert_array_equal(found, by_sorting(scores, k))


@pytest.mark.parametrize("k", [1, 3])
def test_policies_without_data_choose_the_lowest_actions(k):
    nothing = ma.LoggedData(np.empty((0, 2)), [], [], n_actions=COLUMNS)
    contexts = np.random.default_rng(0).normal(size=(8, 2))
    for likelihood in (ma.Gaussian(1.0), ma.Bernoulli()):
        posterior = ma.fit(nothing, ma.priors.independent(COLUMNS, dim=2), likelihood)
        for policy in (ma.Greedy(posterior), ma.Pessimistic(posterior)):
            assert_array_equal(policy.top_k(contexts, k), np.tile(np.arange(k), (8, 1)))
