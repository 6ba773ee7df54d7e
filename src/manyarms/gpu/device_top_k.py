"""Top-k on a GPU: the columns of X Mᵀ with the largest entries, or with the largest lower bounds, row by row.

The result is that of double precision: `half_screen.py` finds the few pairs that may win, and only these are computed.
Columns that are equal, such as actions never logged of one category, are screened once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.errors import NumericalError
from manyarms.gpu.device import Tensor, free_memory, load_torch, require_memory, upload
from manyarms.gpu.distinct_rows import DistinctRows
from manyarms.gpu.half_screen import MOST_FEATURES, HalfScreen, PlainKernels, ScreenedRows, TileShape, TooManyPairs
from manyarms.gpu.recorded import Recorded

ANCHORS = 1024
"""Well-known columns whose lower bounds in a row say where its best one must be."""
FEW_ROWS, PAIRS_AT_ONCE = 2048, 1 << 17
"""Up to so many rows, launches are recorded; and the pairs that a recording has room for."""


class DeviceRanking(ABC):
    """Columns on a GPU, ranked by their score in each row of X."""

    device: str
    n_columns: int
    dim: int
    _recorded: Recorded | None = None
    _before: Any = None

    def best(self, x: Float[Array, "n d"], k: int = 1) -> Int[Array, "n k"]:
        """The k best columns of each row, best first, lower column numbers first among equals."""
        return self.best_on_device(upload(x, self.device), k).cpu().numpy()

    def best_on_device(self, x: Tensor, k: int = 1) -> Tensor:
        """The k best columns of rows that are on the device already."""
        torch = load_torch()
        if len(x) == 0:
            return torch.empty(0, k, dtype=torch.int64, device=self.device)
        if k == 1 and x.is_cuda and len(x) <= FEW_ROWS and self.dim < MOST_FEATURES:
            best = self._best_by_recording(x)
            if best is not None:
                return best
        parts = [self._best_of_part(part, k) for part in x.split(self.rows_at_once)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @cached_property
    def rows_at_once(self) -> int:
        """Rows whose block maxima fit into a quarter of the free memory."""
        fit = free_memory(self.device) // 4 // self.screen.bytes_per_row()
        # Positions in the table of block maxima are 32-bit numbers in places.
        fit = min(fit, (1 << 30) // self.screen.block_bounds.shape[1], 1 << 17)
        return max(self.screen.tile.rows, fit // self.screen.tile.rows * self.screen.tile.rows)

    @cached_property
    def screen(self) -> HalfScreen:
        """The screen of the distinct columns."""
        return self.new_screen()

    @abstractmethod
    def new_screen(self) -> HalfScreen:
        """Make the screen."""

    @property
    @abstractmethod
    def distinct(self) -> DistinctRows:
        """The distinct columns."""

    def hopeful(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows and distinct columns of all pairs that may be among the k best of their row."""
        screened, floor = self.screened(x, k)
        return screened.pairs(floor)

    @abstractmethod
    def screened(self, x: Tensor, k: int) -> tuple[ScreenedRows, Tensor]:
        """The screened rows, and a floor in its units that the k best of each row surely reach."""

    @abstractmethod
    def scores(self, x: Tensor, row: Tensor, column: Tensor, count: Tensor | None = None) -> Tensor:
        """Scores of pairs, in double precision; columns by their number among the distinct ones.

        Where `count` is given, only so many pairs count, and the rest may get any score.
        """

    @abstractmethod
    def all_scores(self, x: Tensor, columns: slice) -> Tensor:
        """Scores of some distinct columns in all rows, in double precision."""

    def _best_by_recording(self, x: Tensor) -> Tensor | None:
        """The best columns of few rows: launches would take longer than the work, so they are recorded and replayed.

        None if the usual way is needed: for the first rows of this number, which may be the last, and where there are
        more pairs than were foreseen or a score overflows.
        """
        with _RECORDING:
            if self._recorded is None or self._recorded.shape != x.shape:
                again, self._before = self._before == x.shape, x.shape
                self._recorded = Recorded(self.best_and_doubts, x) if again else None
            if self._recorded is None:
                return None
            best, doubts = self._recorded(x)
            return None if bool(doubts) else best[:, None].clone()

    def best_and_doubts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The best column of each row without any look at the numbers, and whether they may be wrong."""
        torch, (screened, floor) = load_torch(), self.screened(x, 1)
        count, row, column = screened.pairs_at_most(floor, PAIRS_AT_ONCE)
        valid = torch.arange(len(row), device=x.device) < count[1]
        row, column = torch.where(valid, row, 0), torch.where(valid, column, 0)
        value = torch.where(valid, self.scores(x, row, column, count[1:]), -torch.inf)
        row, column, value = self.distinct.expanded(row, column, value, 1)
        best, finite = self._highest(x, row, column, value, valid)
        return best, ~finite.all() | (count > PAIRS_AT_ONCE).any()

    def _highest(self, x: Tensor, row: Tensor, column: Tensor, value: Tensor, valid: Tensor | None = None) -> Any:
        """The pair of each row with the highest score, and whether that is finite; the lowest column among equals."""
        torch, n = load_torch(), len(x)
        # Every column scores nothing in a row of zeros, and the lowest numbers win.
        zeros = (x == 0).all(dim=1)
        top = torch.full((n,), -torch.inf, dtype=torch.float64, device=x.device).scatter_reduce(0, row, value, "amax")
        highest = value == top[row] if valid is None else (value == top[row]) & valid
        best = torch.full((n,), self.n_columns, dtype=torch.int64, device=x.device)
        best = best.scatter_reduce(0, row, torch.where(highest, column, self.n_columns), "amin")
        return torch.where(zeros, 0, best), torch.isfinite(top) | zeros

    def _best_of_part(self, x: Tensor, k: int) -> Tensor:
        try:
            if self.dim + 1 > MOST_FEATURES:
                raise TooManyPairs
            row, column = self.hopeful(x, k)
        except TooManyPairs:
            row, column = self._best_by_product(x, k)
        return self._select(x, row, column, k)

    def _select(self, x: Tensor, row: Tensor, column: Tensor, k: int) -> Tensor:
        """The k best of the given pairs of each row."""
        torch, n = load_torch(), len(x)
        value = self.scores(x, row, column)
        row, column, value = self.distinct.expanded(row, column, value, k)
        best, finite = self._highest(x, row, column, value)
        if not bool(finite.all()):
            bad = int(torch.argmin(finite.to(torch.int8)))
            raise NumericalError(f"scores overflow in row {bad} of contexts.", "Rescale the contexts.")
        if k == 1:
            return best[:, None]
        order = torch.argsort(column, stable=True)
        order = order[torch.argsort(-value[order], stable=True)]
        order = order[torch.argsort(row[order], stable=True)]
        row, column = row[order], column[order]
        rank = torch.arange(len(row), device=x.device) - torch.searchsorted(row, row)
        out = torch.full((n, k), -1, dtype=torch.int64, device=x.device)
        chosen = rank < k
        out[row[chosen], rank[chosen]] = column[chosen]
        return torch.where((x == 0).all(dim=1)[:, None], torch.arange(k, device=x.device), out)

    def _best_by_product(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The pairs of the k best columns of each row, from all scores, a tile at a time."""
        torch, n, total = load_torch(), len(x), len(self.distinct)
        step = max(1024, min(total, free_memory(self.device) // 8 // max(1, 24 * n)))
        values = torch.full((n, 0), -torch.inf, dtype=torch.float64, device=x.device)
        columns = torch.empty((n, 0), dtype=torch.int64, device=x.device)
        for start in range(0, total, step):
            scores = self.all_scores(x, slice(start, min(total, start + step)))
            best, where = scores.topk(min(k, scores.shape[1]), dim=1)
            values, columns = torch.cat([values, best], 1), torch.cat([columns, where + start], 1)
            if values.shape[1] > k:
                values, order = values.topk(k, dim=1)
                columns = columns.gather(1, order)
        row = torch.arange(n, device=x.device)[:, None].expand_as(columns)
        return row.reshape(-1), columns.reshape(-1)


class DeviceMeans(DeviceRanking):
    """Columns ranked by x·m_a.

    Args:
        means: M, (K, d).
        device: The GPU.
        tile, half: The shape of the screen's tiles, and the precision of its sums; see `HalfScreen`.
    """

    def __init__(self, means: Float[Array, "K d"], device: str, *, tile: TileShape | None = None, half: bool = True):
        self.device, (self.n_columns, self.dim) = device, means.shape
        require_memory(
            device, 4 * means.size * 8, f"ranking {len(means):,} actions with {means.shape[1]} features",
            "Rank the actions in several parts.",
        )  # fmt: skip
        self._distinct = DistinctRows(upload(means, device))
        self._tile, self._half = tile, half

    @property
    def distinct(self) -> DistinctRows:
        return self._distinct

    def new_screen(self) -> HalfScreen:
        return HalfScreen(self.distinct.rows, self._tile, self._half)

    def screened(self, x: Tensor, k: int) -> tuple[ScreenedRows, Tensor]:
        screened = self.screen.rows(x)
        return screened, screened.kth_floor(k)

    def scores(self, x: Tensor, row: Tensor, column: Tensor, count: Tensor | None = None) -> Tensor:
        return (x[row] * self.distinct.rows[column]).sum(dim=1)

    def all_scores(self, x: Tensor, columns: slice) -> Tensor:
        return x @ self.distinct.rows[columns].T


class DeviceBounds(DeviceRanking):
    """Columns ranked by their lower bounds x·m_a - radius ‖x‖ in C_a.

    A lower bound never exceeds x·m_a - radius ‖x‖ s_a, where s_a² is at most the smallest eigenvalue of C_a. That is a
    product of [x, -radius ‖x‖] and [m_a, s_a], which can be screened.

    Args:
        marginals: A function that gives m_a and C_a of some columns, as arrays or on the device.
        shape: K and d.
        radius: How many standard deviations the bound lies below the mean.
        device: The GPU.
    """

    def __init__(
        self, marginals: Callable[[Array], tuple[Any, Any]], shape: tuple[int, int], radius: float, device: str
    ):
        torch = load_torch()
        self.device, self.radius, (self.n_columns, self.dim) = device, radius, shape
        size, K = self.dim * self.dim, self.n_columns
        require_memory(
            device, 8 * K * (2 * size + 8 * self.dim), f"ranking the lower bounds of {K:,} actions",
            f"Rank at most {free_memory(device) // (8 * (2 * size + 8 * self.dim)):,} actions at once.",
        )  # fmt: skip
        joined = torch.empty(K, self.dim + size, dtype=torch.float64, device=device)
        for start in range(0, K, _CHUNK):
            part = slice(start, min(K, start + _CHUNK))
            means, forms = (upload(values, device) for values in marginals(np.arange(part.start, part.stop)))
            joined[part, : self.dim], joined[part, self.dim :] = means, forms.reshape(-1, size)
        self._distinct = DistinctRows(joined)
        del joined
        self.means = self._distinct.rows[:, : self.dim].contiguous()
        self.forms = self._distinct.rows[:, self.dim :].reshape(-1, self.dim, self.dim).contiguous()
        self._distinct.drop_rows()

    @classmethod
    def of_tensors(cls, means: Tensor, forms: Tensor, radius: float, device: str) -> DeviceBounds:
        """Columns whose means and covariances are on the device already; no two of them are equal."""
        out = object.__new__(cls)
        out.device, out.radius, (out.n_columns, out.dim) = device, radius, means.shape
        out._distinct = DistinctRows.all_distinct(out.n_columns)
        out.means, out.forms = means, forms
        return out

    @property
    def distinct(self) -> DistinctRows:
        return self._distinct

    def new_screen(self) -> HalfScreen:
        torch = load_torch()
        least = torch.cat([smallest_widths(part) for part in self.forms.split(_CHUNK)])
        tile = TileShape(128, 64, 4, 3)
        return HalfScreen(torch.cat([self.means, least[:, None]], dim=1), tile, half=False)

    @cached_property
    def anchors(self) -> Tensor:
        """The columns with the smallest variances: their lower bounds are high wherever their means are."""
        torch = load_torch()
        spread = torch.einsum("mdd->m", self.forms)
        return torch.topk(spread, min(ANCHORS, len(spread)), largest=False).indices

    def screened(self, x: Tensor, k: int) -> tuple[ScreenedRows, Tensor]:
        torch = load_torch()
        extended = torch.cat([x, -self.radius * x.norm(dim=1, keepdim=True)], dim=1)
        screened = self.screen.rows(extended)
        least = torch.maximum(self._bound_of_anchors(x, k), self._bound_of_best_block(x, screened, k))
        # Rounding must not prune the pairs that the floor was computed from.
        size = x.norm(dim=1) * self._largest_mean + least.abs()
        return screened, screened.scaled_floor(least - 1e-11 * size)

    @cached_property
    def _largest_mean(self) -> Tensor:
        return self.means.norm(dim=1).max()

    def _bound_of_anchors(self, x: Tensor, k: int) -> Tensor:
        torch = load_torch()
        if k > len(self.anchors):
            return torch.full((len(x),), -torch.inf, dtype=torch.float64, device=x.device)
        out = torch.empty(len(x), dtype=torch.float64, device=x.device)
        means, packed = self._packed_anchors
        i, j = torch.triu_indices(self.dim, self.dim, device=x.device)
        for rows in torch.arange(len(x), device=x.device).split(_CHUNK):
            part = x[rows]
            widths = ((part[:, i] * part[:, j]) @ packed.T).clamp_min_(0.0).sqrt_()
            bound = part @ means.T - self.radius * widths
            out[rows] = bound.amax(dim=1) if k == 1 else bound.topk(k, dim=1).values[:, -1]
        return out

    @cached_property
    def _packed_anchors(self) -> tuple[Tensor, Tensor]:
        torch = load_torch()
        i, j = torch.triu_indices(self.dim, self.dim, device=self.means.device)
        forms = self.forms[self.anchors][:, i, j] * torch.where(i == j, 1.0, 2.0)
        return self.means[self.anchors], forms

    def _bound_of_best_block(self, x: Tensor, screened: ScreenedRows, k: int) -> Tensor:
        torch, width = load_torch(), screened.screen.tile.columns
        if k > width or k > len(self.means):
            return torch.full((len(x),), -torch.inf, dtype=torch.float64, device=x.device)
        columns = screened.best_block()[:, None] * width + torch.arange(width, device=x.device)
        row = torch.arange(len(x), device=x.device)[:, None].expand_as(columns)
        last = len(self.means) - 1
        bound = self.scores(x, row.reshape(-1), columns.clamp_max(last).reshape(-1)).reshape(columns.shape)
        bound = torch.where(columns <= last, bound, -torch.inf)
        return bound.amax(dim=1) if k == 1 else bound.topk(k, dim=1).values[:, -1]

    def scores(self, x: Tensor, row: Tensor, column: Tensor, count: Tensor | None = None) -> Tensor:
        kernels: Any = PlainKernels
        if x.is_cuda:
            from manyarms.gpu import triton_kernels  # noqa: PLC0415

            kernels = triton_kernels
        width = kernels.pair_widths(x, self.forms, row, column, count).clamp_min(0.0).sqrt()
        return (x[row] * self.means[column]).sum(dim=1) - self.radius * width

    def all_scores(self, x: Tensor, columns: slice) -> Tensor:
        torch = load_torch()
        i, j = torch.triu_indices(self.dim, self.dim, device=x.device)
        packed = self.forms[columns][:, i, j] * torch.where(i == j, 1.0, 2.0)
        widths = ((x[:, i] * x[:, j]) @ packed.T).clamp_min_(0.0).sqrt_()
        return x @ self.means[columns].T - self.radius * widths


def smallest_widths(forms: Tensor) -> Tensor:
    """Bounds for the top-k search on a device: at most √λ_min of symmetric matrices C; 0 where C is nearly singular.

    They are tight to a few per cent: with B = C⁻¹ / tr C⁻¹, the largest eigenvalue of B is at most (tr B¹⁶)^(1/16),
    whatever the others are.
    """
    torch, d = load_torch(), forms.shape[1]
    factor, failed = torch.linalg.cholesky_ex(forms)
    eye = torch.eye(d, dtype=forms.dtype, device=forms.device)
    root = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    total = (root * root).sum(dim=(1, 2))
    power = root.mT @ root / total[:, None, None]
    for _ in range(3):
        power = power @ power
    largest = (power * power).sum(dim=(1, 2)) ** (1 / 16)
    # The inverse loses digits in proportion to the condition number.
    uneven = torch.einsum("mdd->m", forms) * total
    width = torch.sqrt(1.0 / (total * largest)) * (1 - 1e-4)
    usable = (failed == 0) & (uneven < 1e9) & torch.isfinite(width)
    return torch.where(usable, width, torch.zeros_like(width))


_CHUNK = 1 << 15
_RECORDING = Lock()
"""A recording has one place for its rows, so that one thread uses it at a time."""
