"""Triton kernels of the screen: block maxima in half precision, the blocks and pairs that may win, and exact bounds.

The functions of the same names without a leading underscore call them with tensors on a GPU. `half_screen.py` has
these functions in plain PyTorch, for other devices.
"""

# pyright: basic, reportMissingImports=false, reportIndexIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from manyarms.gpu.device import Tensor


@triton.jit
def _rounded_rows(x, low, bounds, scale, n, n_padded, d, P: tl.constexpr, BR: tl.constexpr):
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    feature = tl.arange(0, P)
    source = tl.minimum(rows, n - 1).to(tl.int64)
    values = tl.load(x + source[:, None] * d + feature[None, :], mask=(feature < d)[None, :], other=0.0)
    # The exponent of the largest number, from its bits; 2^-exponent, likewise.
    exponent = (tl.max(tl.abs(values), 1).to(tl.int64, bitcast=True) >> 52) & 0x7FF
    exponent = tl.where(exponent == 0, 1022, tl.minimum(exponent, 2044))
    factor = ((2045 - exponent) << 52).to(tl.float64, bitcast=True)
    values = values * factor[:, None]
    rounded = values.to(tl.float16)
    tl.store(low + rows[:, None] * P + feature[None, :], rounded)
    lost = values - rounded.to(tl.float64)
    tl.store(bounds + rows, (tl.sqrt(tl.sum(values * values, 1)) * (1 + 1e-6)).to(tl.float32))
    tl.store(bounds + n_padded + rows, (tl.sqrt(tl.sum(lost * lost, 1)) * (1 + 1e-6)).to(tl.float32))
    tl.store(scale + rows, factor, mask=rows < n)


@triton.jit
def _block_maxima(
    x, m, x_size, x_loss, m_size, m_loss, tops, floor, n_rows, n_blocks, per_split,
    P: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    feature = tl.arange(0, P)
    left = tl.load(x + rows[:, None] * P + feature[None, :])
    size, loss = tl.load(x_size + rows), tl.load(x_loss + rows)
    first = tl.program_id(1) * per_split
    last = tl.minimum(first + per_split, n_blocks)
    sure = tl.full([BM], float("-inf"), tl.float32)
    for block in tl.range(first, last, num_stages=STAGES):
        wide = tl.full([], 0, tl.int64) + block
        columns = wide * BN + tl.arange(0, BN)
        right = tl.load(m + columns[None, :] * P + feature[:, None])
        top = tl.max(tl.dot(left, right, out_dtype=tops.dtype.element_ty), axis=1)
        tl.store(tops + wide * n_rows + rows, top)
        slack = loss * tl.load(m_size + block) + size * tl.load(m_loss + block)
        sure = tl.maximum(sure, top.to(tl.float32) - slack)
    tl.atomic_max(floor + rows, sure)


@triton.jit
def _hopeful_blocks(
    tops, x_size, x_loss, m_size, m_loss, floor, count, pair_row, pair_block, n_rows, n_inside, n_blocks, capacity,
    BR: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    blocks = tl.program_id(1) * BB + tl.arange(0, BB)
    inside = blocks < n_blocks
    top = tl.load(
        tops + blocks[:, None].to(tl.int64) * n_rows + rows[None, :], mask=inside[:, None], other=float("-inf")
    ).to(tl.float32)
    size, loss = tl.load(x_size + rows), tl.load(x_loss + rows)
    largest, lost = tl.load(m_size + blocks, mask=inside, other=0.0), tl.load(m_loss + blocks, mask=inside, other=0.0)
    slack = loss[None, :] * largest[:, None] + size[None, :] * lost[:, None]
    hope = inside[:, None] & (top + slack >= tl.load(floor + rows)[None, :])
    hope = hope & ((rows < n_inside) & (size > 0))[None, :]
    flat = tl.reshape(hope, [BR * BB]).to(tl.int32)
    total = tl.sum(flat, 0)
    if total > 0:
        place = tl.atomic_add(count, total) + tl.cumsum(flat, 0) - flat
        keep = (flat > 0) & (place < capacity)
        number = tl.arange(0, BR * BB)
        tl.store(pair_row + place, tl.program_id(0) * BR + number % BR, mask=keep)
        tl.store(pair_block + place, tl.program_id(1) * BB + number // BR, mask=keep)


@triton.jit
def _hopeful_pairs(
    x, m, x_size, x_loss, m_sizes, m_losses, floor, n_blocks, pair_row, pair_block, count, row_out, column_out,
    n_columns, capacity, P: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    feature = tl.arange(0, P)
    for pair in range(tl.program_id(0), tl.minimum(tl.load(n_blocks), capacity), tl.num_programs(0)):
        row = tl.load(pair_row + pair)
        columns = tl.load(pair_block + pair).to(tl.int64) * BN + tl.arange(0, BN)
        left = tl.load(x + row * P + feature).to(tl.float32)
        right = tl.load(m + columns[:, None] * P + feature[None, :]).to(tl.float32)
        score = tl.sum(right * left[None, :], axis=1)
        inside = columns < n_columns
        size = tl.load(m_sizes + columns, mask=inside, other=0.0)
        lost = tl.load(m_losses + columns, mask=inside, other=0.0)
        slack = tl.load(x_loss + row) * size + tl.load(x_size + row) * lost
        hope = (inside & (score + slack >= tl.load(floor + row))).to(tl.int32)
        total = tl.sum(hope, 0)
        if total > 0:
            place = tl.atomic_add(count, total) + tl.cumsum(hope, 0) - hope
            keep = (hope > 0) & (place < capacity)
            tl.store(row_out + place, tl.zeros([BN], tl.int64) + row, mask=keep)
            tl.store(column_out + place, columns, mask=keep)


@triton.jit
def _pair_widths(x, forms, pair_row, pair_column, out, count, n_pairs, d, D: tl.constexpr, COUNTED: tl.constexpr):
    i, j = tl.arange(0, D), tl.arange(0, D)
    last = n_pairs
    if COUNTED:
        last = tl.minimum(tl.load(count), n_pairs)
    for pair in range(tl.program_id(0), last, tl.num_programs(0)):
        row, column = tl.load(pair_row + pair).to(tl.int64), tl.load(pair_column + pair).to(tl.int64)
        v = tl.load(x + row * d + i, mask=i < d, other=0.0)
        inside = (i < d)[:, None] & (j < d)[None, :]
        form = tl.load(forms + column * d * d + i[:, None] * d + j[None, :], mask=inside, other=0.0)
        w = tl.sum(form * v[:, None], axis=0)
        # The same vector again, laid out along the other axis.
        v = tl.load(x + row * d + j, mask=j < d, other=0.0)
        tl.store(out + pair, tl.sum(w * v, axis=0))


def rounded_rows(x: Tensor, width: int, multiple: int) -> tuple[Tensor, Tensor, Tensor]:
    """Run the Triton kernel that scales rows and rounds them to half precision; also bounds on both, and the scales."""
    n, d = x.shape
    padded = -(-n // multiple) * multiple
    low = torch.empty(padded, width, dtype=torch.float16, device=x.device)
    bounds = torch.empty(2, padded, dtype=torch.float32, device=x.device)
    scale = torch.empty(n, dtype=torch.float64, device=x.device)
    _rounded_rows[(padded // 16,)](x.contiguous(), low, bounds, scale, n, padded, d, P=width, BR=16, num_warps=4)
    return low, bounds, scale


def block_maxima(
    x: Tensor, m: Tensor, x_bounds: Tensor, m_bounds: Tensor, tile: tuple[int, int, int, int], half: bool
) -> tuple[Tensor, Tensor]:
    """Run the Triton kernel of block maxima: the largest score of each block, and the best of these less its error."""
    (bm, bn, warps, stages), n, blocks = tile, len(x), m_bounds.shape[1]
    tops = torch.empty(blocks, n, dtype=torch.float16 if half else torch.float32, device=x.device)
    floor = torch.full((n,), float("-inf"), dtype=torch.float32, device=x.device)
    # Several waves of programs, so that the last one leaves few multiprocessors idle.
    splits = max(1, min(blocks, -(-_PROGRAMS // (n // bm))))
    per_split = -(-blocks // splits)
    _block_maxima[(n // bm, -(-blocks // per_split))](
        x, m, x_bounds[0], x_bounds[1], m_bounds[0], m_bounds[1], tops, floor, n, blocks, per_split,
        P=x.shape[1], BM=bm, BN=bn, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return tops, floor


def hopeful_pairs(
    x: Tensor, m: Tensor, tops: Tensor, x_bounds: Tensor, m_bounds: Tensor, sizes: Tensor, floor: Tensor,
    block_size: int, n_rows: int, capacity: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Run the Triton kernels that find the pairs of a row and a column that may reach the row's floor."""
    blocks, n = tops.shape
    count = torch.zeros(2, dtype=torch.int32, device=x.device)
    row, block = torch.empty(2, capacity, dtype=torch.int32, device=x.device)
    rows, columns = torch.empty(2, capacity, dtype=torch.int64, device=x.device)
    _hopeful_blocks[(n // 64, -(-blocks // 64))](
        tops, x_bounds[0], x_bounds[1], m_bounds[0], m_bounds[1], floor, count, row, block, n, n_rows, blocks, capacity,
        BR=64, BB=64, num_warps=4,
    )  # fmt: skip
    _hopeful_pairs[(_PROGRAMS,)](
        x, m, x_bounds[0], x_bounds[1], sizes[0], sizes[1], floor, count, row, block, count[1:], rows, columns,
        sizes.shape[1], capacity, P=x.shape[1], BN=block_size, num_warps=4,
    )  # fmt: skip
    return count, rows, columns


def pair_widths(x: Tensor, forms: Tensor, row: Tensor, column: Tensor, count: Tensor | None) -> Tensor:
    """Run the Triton kernel of quadratic forms x_iᵀ C_a x_i of pairs, or of the first `count` of them."""
    out, d = torch.empty(len(row), dtype=torch.float64, device=x.device), x.shape[1]
    if len(row):
        _pair_widths[(min(len(row), 132 * 32),)](
            x,
            forms,
            row,
            column,
            out,
            row if count is None else count,
            len(row),
            d,
            D=triton.next_power_of_2(d),
            COUNTED=count is not None,
            num_warps=1 if d <= 16 else 2,
        )
    return out


_PROGRAMS = 132 * 16
