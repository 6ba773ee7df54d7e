"""The Triton kernels, run by Triton's interpreter on the processor, against plain PyTorch and double precision."""

import importlib
import sys

import numpy as np
import pytest
from device_cases import module_or_skip, torch_or_skip

from manyarms.gpu.half_screen import HalfScreen, PlainKernels, TileShape

TILE = TileShape(rows=64, columns=16, warps=4, stages=2)


@pytest.fixture
def triton_kernels(monkeypatch):
    """The module of the kernels, imported in such a way that they need no GPU."""
    torch_or_skip()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    module_or_skip("triton")
    monkeypatch.delitem(sys.modules, "manyarms.gpu.triton_kernels", raising=False)
    yield importlib.import_module("manyarms.gpu.triton_kernels")
    del sys.modules["manyarms.gpu.triton_kernels"]


def numbers(rng, *size):
    """Rows of very different sizes, one of them zero, as double-precision tensors."""
    values = rng.normal(size=size) * 10.0 ** rng.integers(-3, 4, size=(size[0], *[1] * (len(size) - 1)))
    values[size[0] // 2] = 0.0
    return torch_or_skip().as_tensor(values)


@pytest.mark.parametrize("n", [1, 16, 37])
def test_rows_are_rounded_as_in_plain_pytorch(triton_kernels, n):
    x = numbers(np.random.default_rng(n), n, 5)
    x[0] *= 1e300
    found, expected = (kernels.rounded_rows(x, 16, 64) for kernels in (triton_kernels, PlainKernels))
    for ours, plain in zip(found, expected, strict=True):
        assert ours.dtype == plain.dtype and np.array_equal(ours, plain)


@pytest.mark.parametrize("half", [False, True])
def test_block_maxima_are_those_of_plain_pytorch_and_their_floor_is_surely_reached(triton_kernels, half):
    rng = np.random.default_rng(3)
    x, columns = numbers(rng, 90, 7), numbers(rng, 150, 7)
    screen = HalfScreen(columns, TILE, half=half)
    low, bounds, scale = PlainKernels.rounded_rows(x, screen.width, TILE.rows)
    found, expected = (
        kernels.block_maxima(low, screen.low, bounds, screen.block_bounds, TILE.numbers, half)
        for kernels in (triton_kernels, PlainKernels)
    )
    rounding = 2e-2 if half else 1e-5
    for ours, plain in zip(found, expected, strict=True):
        assert ours.dtype == plain.dtype and np.allclose(ours, plain, rtol=rounding, atol=rounding)
    exact = ((x @ (columns - screen.centre).T) * (scale * screen.scale)[:, None]).amax(dim=1)
    assert bool((found[1][: len(x)] <= exact).all())


def test_the_pairs_that_may_win_are_those_of_plain_pytorch_and_hold_the_best(triton_kernels):
    rng = np.random.default_rng(4)
    x, columns = numbers(rng, 100, 6), numbers(rng, 1100, 6)
    screen = HalfScreen(columns, TILE)
    rows = screen.rows(x)
    parts = (rows.low, screen.low, rows.tops, rows.bounds, screen.block_bounds, screen.sizes, rows.floor)
    sets, counts = [], []
    for kernels in (triton_kernels, PlainKernels):
        count, row, column = kernels.hopeful_pairs(*parts, TILE.columns, len(x), 1 << 14)
        n_pairs = int(count[1])
        sets.append(set(zip(row[:n_pairs].tolist(), column[:n_pairs].tolist(), strict=True)))
        counts.append(count.tolist())
    assert sets[0] == sets[1] and counts[0] == counts[1] and counts[0][1] == len(sets[0]) < x.shape[0] * 50
    best = (x @ columns.T).argmax(dim=1).tolist()
    # A row of zeros has no best column.
    assert {(i, a) for i, a in enumerate(best) if i != len(x) // 2} <= sets[0]


def test_a_list_of_pairs_that_is_too_short_is_filled_and_its_needed_length_is_known(triton_kernels):
    rng = np.random.default_rng(5)
    x, columns = numbers(rng, 70, 4), numbers(rng, 80, 4)
    screen = HalfScreen(columns, TILE)
    rows = screen.rows(x)
    parts = (rows.low, screen.low, rows.tops, rows.bounds, screen.block_bounds, screen.sizes)
    floor = rows.floor - 1e4
    whole = triton_kernels.hopeful_pairs(*parts, floor, TILE.columns, len(x), 1 << 14)
    short = triton_kernels.hopeful_pairs(*parts, floor, TILE.columns, len(x), 50)
    n_blocks, n_pairs = whole[0].tolist()
    # All pairs of the rows that are not zero.
    assert (n_blocks, n_pairs) == ((len(x) - 1) * 5, (len(x) - 1) * 80)
    assert short[0][0] == n_blocks and short[0][1] == 50 * TILE.columns
    listed = set(zip(*(part[:n_pairs].tolist() for part in whole[1:]), strict=True))
    assert set(zip(*(part[:50].tolist() for part in short[1:]), strict=True)) <= listed and len(listed) == n_pairs


@pytest.mark.parametrize("dim", [1, 3, 16, 20])
@pytest.mark.parametrize("counted", [False, True])
def test_widths_of_pairs_are_the_quadratic_forms(triton_kernels, dim, counted):
    torch, rng = torch_or_skip(), np.random.default_rng(dim)
    x, root = rng.normal(size=(30, dim)), rng.normal(size=(40, dim, dim))
    row, column = rng.integers(0, 30, 200), rng.integers(0, 40, 200)
    forms = root @ root.swapaxes(1, 2)
    count = torch.tensor([150], dtype=torch.int32) if counted else None
    arrays = [torch.as_tensor(part) for part in (x, forms, row, column)]
    found = triton_kernels.pair_widths(*arrays, count).numpy()[: 150 if counted else None]
    expected = np.array([x[i] @ forms[a] @ x[i] for i, a in zip(row, column, strict=True)])[: len(found)]
    assert np.allclose(found, expected, rtol=1e-12)
