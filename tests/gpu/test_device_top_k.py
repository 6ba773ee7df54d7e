"""Choices on a device are those of double precision, whatever half precision makes of the scores."""

import numpy as np
import pytest
from device_cases import HERE, covariances, means_with_twins, torch_or_skip

from manyarms.errors import NumericalError
from manyarms.gpu import half_screen
from manyarms.gpu.device_top_k import DeviceBounds, DeviceMeans, smallest_widths
from manyarms.gpu.distinct_rows import DistinctRows
from manyarms.gpu.half_screen import HalfScreen, TileShape, TooManyPairs

TILE = TileShape(64, 32, 4, 2)


def ranked(scores, k):
    """The k best columns by sorting; lower numbers first among equals."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize(("n_actions", "dim", "k"), [(1, 1, 1), (50, 3, 1), (700, 20, 4), (3000, 16, 1), (900, 40, 30)])
def test_best_means_match_a_sort_of_all_scores(n_actions, dim, k, half):
    torch_or_skip()
    rng = np.random.default_rng(n_actions + k)
    means, x = means_with_twins(rng, n_actions, dim), rng.normal(size=(70, dim))
    # A row of zeros ties all actions.
    x[3] = 0.0
    got = DeviceMeans(means, HERE, tile=TILE, half=half).best(x, k)
    # One product per pair, as on the device: sums in another order may tie differently.
    want = ranked((x[:, None, :] * means).sum(axis=2), k)
    assert np.array_equal(got, want)


def test_means_that_half_precision_cannot_tell_apart_are_told_apart():
    torch_or_skip()
    rng = np.random.default_rng(0)
    means = rng.normal(size=(1, 8)) + 1e-7 * rng.normal(size=(2000, 8)) + 10.0 * (rng.random((2000, 1)) < 0.5)
    x = rng.normal(size=(60, 8))
    assert np.array_equal(DeviceMeans(means, HERE, tile=TILE).best(x), ranked(x @ means.T, 1))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e150])
def test_the_bound_holds_for_every_pair(scale):
    torch = torch_or_skip()
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(500, 12, dtype=torch.float64, generator=generator) * scale
    x = torch.randn(64, 12, dtype=torch.float64, generator=generator) / scale
    columns[::7] *= 1e-5
    for half in (True, False):
        screen = HalfScreen(columns, TILE, half)
        rows = screen.rows(x)
        exact = ((x @ (columns - screen.centre).T) * rows.scale[:, None]).to(torch.float32)
        low = (rows.low.to(torch.float32) @ screen.low[:500].to(torch.float32).T)[:64]
        low = low.to(torch.float16).to(torch.float32) if half else low
        slack = rows.bounds[1, :64, None] * screen.sizes[0] + rows.bounds[0, :64, None] * screen.sizes[1]
        assert ((low - exact).abs() <= slack).all()
        # And it is not idle: a hundredth of it would be too little.
        assert ((low - exact).abs() > 0.01 * slack).any()


@pytest.mark.parametrize(("n_actions", "dim", "k"), [(40, 2, 1), (600, 6, 5), (2000, 16, 1)])
def test_best_lower_bounds_match_brute_force(n_actions, dim, k):
    torch_or_skip()
    rng = np.random.default_rng(dim)
    means, cov, x = rng.normal(size=(n_actions, dim)), covariances(rng, n_actions, dim), rng.normal(size=(40, dim))
    means[n_actions // 2 :: 3] = means[n_actions // 2]
    got = DeviceBounds(lambda part: (means[part], cov[part]), means.shape, 2.5, HERE).best(x, k)
    widths = np.sqrt(np.maximum(np.einsum("nd,kde,ne->nk", x, cov, x), 0.0))
    scores = x @ means.T - 2.5 * widths
    taken = np.take_along_axis(scores, got, axis=1)
    np.testing.assert_allclose(taken, np.take_along_axis(scores, ranked(scores, k), axis=1), rtol=0, atol=1e-12)
    assert all(len(set(row)) == k for row in got.tolist())


def test_smallest_widths_are_tight_lower_bounds():
    torch = torch_or_skip()
    cov = covariances(np.random.default_rng(1), 300, 9)
    exact = np.sqrt(np.maximum(np.linalg.eigvalsh(cov)[:, 0], 0.0))
    got = smallest_widths(torch.from_numpy(cov)).numpy()
    assert (got <= exact).all()
    assert got[0] == 0.0 and (got[1:] >= 0.85 * exact[1:]).all()


def test_where_the_screen_leaves_too_much_the_product_decides(monkeypatch):
    torch_or_skip()
    monkeypatch.setattr(half_screen, "MOST_PAIRS", 3)
    rng = np.random.default_rng(2)
    means, cov, x = rng.normal(size=(300, 5)), covariances(rng, 300, 5), rng.normal(size=(20, 5))
    ranking = DeviceMeans(means, HERE, tile=TILE)
    with pytest.raises(TooManyPairs):
        ranking.hopeful(ranking_rows(x), 2)
    assert np.array_equal(ranking.best(x, 2), ranked(x @ means.T, 2))
    bounds = DeviceBounds(lambda part: (means[part], cov[part]), means.shape, 1.0, HERE)
    widths = np.sqrt(np.maximum(np.einsum("nd,kde,ne->nk", x, cov, x), 0.0))
    assert np.array_equal(bounds.best(x, 2), ranked(x @ means.T - widths, 2))


def test_choices_without_a_look_at_the_numbers_are_the_same(monkeypatch):
    torch = torch_or_skip()
    rng = np.random.default_rng(7)
    means, cov, x = means_with_twins(rng, 800, 6), covariances(rng, 800, 6), rng.normal(size=(50, 6))
    x[3] = 0.0
    for ranking in (DeviceMeans(means, HERE), DeviceBounds(lambda part: (means[part], cov[part]), (800, 6), 1.0, HERE)):
        best, doubts = ranking.best_and_doubts(ranking_rows(x))
        assert not doubts and torch.equal(best, ranking.best_on_device(ranking_rows(x))[:, 0])
        # Rows whose pairs do not fit, and rows that overflow, are found out.
        monkeypatch.setattr("manyarms.gpu.device_top_k.PAIRS_AT_ONCE", 5)
        assert ranking.best_and_doubts(ranking_rows(x))[1]
        monkeypatch.undo()
        large = ranking_rows(np.where(np.arange(50)[:, None] == 8, 1e308, x))
        assert ranking.best_and_doubts(large)[1]


def ranking_rows(x):
    return torch_or_skip().from_numpy(x)


def test_results_do_not_depend_on_the_tile_or_on_the_rows_at_once():
    torch_or_skip()
    rng = np.random.default_rng(3)
    means, x = means_with_twins(rng, 1000, 7), rng.normal(size=(200, 7))
    whole = DeviceMeans(means, HERE)
    parts = DeviceMeans(means, HERE, tile=TILE)
    parts.rows_at_once = 64
    assert np.array_equal(whole.best(x, 3), parts.best(x, 3))


def test_scores_that_overflow_name_their_row():
    torch_or_skip()
    x = np.ones((5, 2))
    x[3] = 1e200
    with pytest.raises(NumericalError, match="row 3 of contexts"):
        DeviceMeans(np.full((4, 2), 1e200) * np.arange(1, 5)[:, None], HERE).best(x)


def test_distinct_rows_match_numpy():
    torch = torch_or_skip()
    rows = np.random.default_rng(4).integers(0, 3, size=(500, 4)).astype(float)
    rows[::5] *= -1.0
    distinct = DistinctRows(torch.from_numpy(rows))
    _, first = np.unique(rows + 0.0, axis=0, return_index=True)
    assert distinct.first.tolist() == sorted(first.tolist())
    which = torch.arange(len(distinct))
    row, member, value = distinct.expanded(which, which, which.to(torch.float64), 1000)
    assert sorted(member.tolist()) == list(range(500)) and torch.equal(row.to(torch.float64), value)
    assert np.array_equal(rows[member.numpy()], rows[distinct.first[row].numpy()])
