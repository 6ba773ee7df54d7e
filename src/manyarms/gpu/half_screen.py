"""The screen: which columns of X Mᵀ may have the largest entry of a row, found in half precision with rigorous bounds.

Rows and columns are scaled by powers of two and rounded to half precision: x = x̂ + δ, m = m̂ + ε. A computed score then
differs from x·m by at most ‖δ‖ ‖m‖ + ‖x‖ (‖ε‖ + γ ‖m‖), where γ bounds the rounding of the sums inside a matrix unit.
So a column whose score plus this bound stays below what another column surely reaches cannot win. The few that are
left, about one per row, are the pairs whose scores are then computed in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manyarms.gpu.device import Tensor, load_torch

LEAST_FEATURES = 16
"""Matrix units multiply at least so many features at once; fewer are padded with zeros."""
MOST_FEATURES = 256
"""With more features than this a tile does not fit into the fast memory of a multiprocessor."""
MOST_PAIRS = 1 << 26
"""Pairs that are computed exactly; where more are left, the screen has not helped."""


@dataclass(frozen=True)
class TileShape:
    """A tile of the half-precision screen, the work of one program: rows, columns, warps, and blocks loaded ahead."""

    rows: int
    columns: int
    warps: int
    stages: int

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The four numbers, for the kernels."""
        return self.rows, self.columns, self.warps, self.stages


class TooManyPairs(Exception):
    """The half-precision screen leaves so many pairs that a product in double precision is faster."""


class HalfScreen:
    """Half-precision copy of the columns of a product X Mᵀ, with the bounds that make its maxima rigorous.

    Args:
        columns: M, (K, d), in double precision, on the device.
        tile: The shape of a tile; the default suits the device.
        half: Whether sums inside a matrix unit are in half precision too: twice as fast, with a wider bound.
    """

    def __init__(self, columns: Tensor, tile: TileShape | None = None, half: bool = True):
        torch = load_torch()
        self.n_columns, self.dim = columns.shape
        self.width = max(LEAST_FEATURES, 1 << (self.dim - 1).bit_length())
        self.tile = tile or _default_tile(self.width)
        self.half = half
        # Every score of a row moves by the same amount when M moves by one vector, so the ranking does not depend on
        # it; what is left is smaller, and so is its rounding.
        self.centre = columns.mean(dim=0)
        moved = columns - self.centre
        self.scale = _power_of_two(moved.abs().max())
        low = _padded(moved * self.scale, self.width, self.tile.columns)
        self.low = low.to(torch.float16)
        sizes = low.norm(dim=1) * (1 + 1e-6)
        left = (low - self.low.to(torch.float64)).norm(dim=1) * (1 + 1e-6)
        # 1e-15 covers the rounding of the centring; the last term, half-precision numbers next to zero.
        centring = 1e-15 * self.scale * (columns.norm(dim=1).max() + self.centre.norm())
        losses = (left + self._sum_rounding() * sizes + centring + 2.0**-22) * (1 + 1e-6)
        bounds = torch.stack([sizes, losses]).to(torch.float32)
        self.sizes = bounds[:, : self.n_columns].contiguous()
        self.block_bounds = bounds.reshape(2, -1, self.tile.columns).amax(dim=2).contiguous()

    def _sum_rounding(self) -> float:
        """γ: half-precision sums are rounded once per 16 features; single-precision ones lose two bits at most."""
        steps = self.width // 16
        return (steps + 1) * 2.0**-10 if self.half else self.width * 2.0**-21 + 2.0**-18

    def rows(self, x: Tensor) -> ScreenedRows:
        """The block maxima of some rows."""
        low, bounds, scale = self._kernels.rounded_rows(x, self.width, self.tile.rows)
        tops, floor = self._kernels.block_maxima(low, self.low, bounds, self.block_bounds, self.tile.numbers, self.half)
        return ScreenedRows(self, x, low, bounds, scale * self.scale, tops, floor)

    @property
    def _kernels(self) -> Any:
        if self.low.is_cuda:
            from manyarms.gpu import triton_kernels  # noqa: PLC0415

            return triton_kernels
        return PlainKernels

    def bytes_per_row(self) -> int:
        """Memory that a row of X needs on the device while it is screened."""
        return self.block_bounds.shape[1] * (2 if self.half else 4) + 64 * self.width


@dataclass(frozen=True, eq=False)
class ScreenedRows:
    """Block maxima of some rows in half precision, with the floor that the best of each row surely reaches.

    Rows are padded to whole tiles; scores are in units of `scale`, and less x·centre.
    """

    screen: HalfScreen
    x: Tensor
    low: Tensor
    bounds: Tensor
    scale: Tensor
    tops: Tensor
    floor: Tensor

    def kth_floor(self, k: int) -> Tensor:
        """A number that the k-th best score of each row surely reaches: k blocks have a column that reaches it."""
        torch = load_torch()
        if k == 1:
            return self.floor
        if k > len(self.tops):
            return torch.full_like(self.floor, float("-inf"))
        bounds, blocks = self.bounds, self.screen.block_bounds
        out = torch.empty_like(self.floor)
        for part in torch.arange(len(out), device=out.device).split(4096):
            slack = bounds[1, part] * blocks[0][:, None] + bounds[0, part] * blocks[1][:, None]
            out[part] = (self.tops[:, part].to(torch.float32) - slack).topk(k, dim=0).values[-1]
        return out

    def scaled_floor(self, least: Tensor) -> Tensor:
        """A floor given as scores, in the units of the screen and rounded down."""
        torch = load_torch()
        floor = (least - self.x @ self.screen.centre) * self.scale
        floor = floor - 1e-6 * (floor.abs() + 1e-3 * self.bounds[0, : len(floor)].to(torch.float64))
        return _pad_rows(floor.to(torch.float32)[:, None], len(self.low))[:, 0]

    def best_block(self) -> Tensor:
        """The block with the largest score, for each row."""
        return self.tops[:, : len(self.x)].argmax(dim=0)

    def pairs(self, floor: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and columns of all pairs whose score may reach the floor of their row; none for a row of zeros.

        Raises:
            TooManyPairs: If there are more than it pays to compute.
        """
        capacity = 4 * len(floor) + (1 << 16)
        while True:
            count, rows, columns = self.pairs_at_most(floor, capacity)
            n_blocks, n_pairs = count.tolist()
            if max(n_pairs, 16 * n_blocks) > MOST_PAIRS:
                raise TooManyPairs
            if max(n_blocks, n_pairs) <= capacity:
                return rows[:n_pairs], columns[:n_pairs]
            # Where blocks were left out, their pairs have not been counted yet.
            capacity = 2 * max(n_blocks, n_pairs)

    def pairs_at_most(self, floor: Tensor, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """The numbers of blocks and of pairs that may reach the floor, and rows and columns of so many pairs."""
        screen = self.screen
        parts = (self.low, screen.low, self.tops, self.bounds, screen.block_bounds, screen.sizes, floor)
        return screen._kernels.hopeful_pairs(*parts, screen.tile.columns, len(self.x), capacity)


class PlainKernels:
    """The half-precision screen in plain PyTorch, for any device; it shares no code with the Triton kernels."""

    @staticmethod
    def rounded_rows(x: Tensor, width: int, multiple: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows scaled by powers of two and rounded to half precision, bounds on both, and the scales."""
        torch = load_torch()
        scale = _power_of_two(x.abs().amax(dim=1))
        values = _padded(x * scale[:, None], width, multiple)
        low = values.to(torch.float16)
        size, lost = (part.norm(dim=1) * (1 + 1e-6) for part in (values, values - low.to(torch.float64)))
        return low, torch.stack([size, lost]).to(torch.float32), scale

    @staticmethod
    def block_maxima(
        x: Tensor, m: Tensor, x_bounds: Tensor, m_bounds: Tensor, tile: tuple[int, int, int, int], half: bool
    ) -> tuple[Tensor, Tensor]:
        """The largest score of every block of columns in every row, and the best of these less its error."""
        torch = load_torch()
        scores = (x.to(torch.float32) @ m.to(torch.float32).T).to(torch.float16 if half else torch.float32)
        tops = scores.reshape(len(x), -1, tile[1]).amax(dim=2).T.contiguous()
        slack = x_bounds[1] * m_bounds[0][:, None] + x_bounds[0] * m_bounds[1][:, None]
        return tops, (tops.to(torch.float32) - slack).amax(dim=0)

    @staticmethod
    def hopeful_pairs(
        x: Tensor, m: Tensor, tops: Tensor, x_bounds: Tensor, m_bounds: Tensor, sizes: Tensor, floor: Tensor,
        block_size: int, n_rows: int, capacity: int,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """The pairs of a row and a column that may reach the row's floor, by way of the pairs of a row and a block."""
        torch = load_torch()
        slack = x_bounds[1] * m_bounds[0][:, None] + x_bounds[0] * m_bounds[1][:, None]
        hope = (tops.to(torch.float32) + slack >= floor) & (x_bounds[0] > 0)
        block, row = torch.nonzero(hope[:, :n_rows], as_tuple=True)
        n_blocks, row, block = len(row), row[:capacity], block[:capacity]
        columns = block[:, None] * block_size + torch.arange(block_size, device=x.device)
        inside = columns < sizes.shape[1]
        scores = torch.einsum("pd,pcd->pc", x[row].to(torch.float32), m[columns].to(torch.float32))
        size, lost = sizes[:, columns.clamp_max(sizes.shape[1] - 1)]
        slack = x_bounds[1, row][:, None] * size + x_bounds[0, row][:, None] * lost
        hope = inside & (scores + slack >= floor[row][:, None])
        rows = row[:, None].expand_as(columns)[hope]
        count = torch.tensor([n_blocks, len(rows)], device=x.device)
        return count, rows[:capacity], columns[hope][:capacity]

    @staticmethod
    def pair_widths(x: Tensor, forms: Tensor, row: Tensor, column: Tensor, count: Tensor | None) -> Tensor:
        """Quadratic forms x_iᵀ C_a x_i of pairs."""
        torch = load_torch()
        return torch.einsum("pd,pde,pe->p", x[row], forms[column], x[row])


def _default_tile(width: int) -> TileShape:
    """The fastest tile for so many features, as measured (docs/gpu.md)."""
    if width <= 64:
        return TileShape(128, 256, 4, 3)
    return TileShape(128, 128, 4, 3) if width <= 128 else TileShape(64, 64, 4, 2)


def _power_of_two(largest: Tensor) -> Tensor:
    """A power of two that brings numbers of this size to between one half and one; one for zero."""
    torch = load_torch()
    mantissa, exponent = torch.frexp(largest)
    # The smallest numbers have no reciprocal.
    exponent = exponent.clamp_min(-1000)
    return torch.where(mantissa == 0, torch.ones_like(largest), torch.ldexp(torch.ones_like(largest), -exponent))


def _padded(rows: Tensor, width: int, multiple: int) -> Tensor:
    """Rows with zeros to the right and copies of the last one below: a copy never changes a maximum."""
    torch = load_torch()
    out = torch.zeros(-(-len(rows) // multiple) * multiple, width, dtype=rows.dtype, device=rows.device)
    out[: len(rows), : rows.shape[1]] = rows
    out[len(rows) :] = out[len(rows) - 1]
    return out


def _pad_rows(rows: Tensor, n: int) -> Tensor:
    torch = load_torch()
    return torch.cat([rows, rows[-1:].expand(n - len(rows), *rows.shape[1:])]) if n > len(rows) else rows
