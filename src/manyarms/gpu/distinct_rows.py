"""Distinct rows of a matrix on a GPU: which rows are equal to the last bit, and who stands for them."""

from __future__ import annotations

from manyarms.gpu.device import Tensor, load_torch


class DistinctRows:
    """The distinct rows of a matrix; the first of several equal ones stands for all.

    Args:
        rows: (K, d) in double precision.

    Attributes:
        first: The number of the first row of each group of equal rows, ascending.
    """

    def __init__(self, rows: Tensor):
        torch, n = load_torch(), len(rows)
        order = torch.argsort(_hashes(rows), stable=True)
        # Equal rows have equal hashes, so they are neighbours here, in ascending order.
        fresh = torch.ones(n, dtype=torch.bool, device=rows.device)
        for part in torch.arange(1, n, device=rows.device).split(_CHUNK):
            fresh[part] = (rows[order[part]] != rows[order[part - 1]]).any(dim=1)
        group = torch.cumsum(fresh, 0) - 1
        first, rank = torch.sort(order[fresh])
        self.first, self._count = first, len(first)
        place = torch.empty_like(rank)
        place[rank] = torch.arange(len(rank), device=rows.device)
        # Members by group, in the order of the groups' first rows.
        group = place[group]
        by_group = torch.argsort(group, stable=True)
        self._members = order[by_group]
        self._sizes = torch.bincount(group, minlength=len(first))
        self._starts = torch.cumsum(self._sizes, 0) - self._sizes
        self._rows: Tensor | None = rows if len(first) == n else rows[first]

    @classmethod
    def all_distinct(cls, n: int) -> DistinctRows:
        """The rows of a matrix of which no two are equal, or are taken to be."""
        out = object.__new__(cls)
        out.first, out._rows, out._count = None, None, n
        return out

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Tensor:
        """The distinct rows."""
        assert self._rows is not None
        return self._rows

    def drop_rows(self) -> None:
        """Forget the rows themselves, and only remember which were equal."""
        self._rows = None

    def expanded(self, row: Tensor, group: Tensor, value: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of a row of X and a group, with every group replaced by its first k members."""
        if self.first is None or len(self.first) == len(self._members):
            return row, group, value
        if k == 1:
            return row, self.first[group], value
        torch = load_torch()
        count = self._sizes[group].clamp_max(k)
        which = torch.repeat_interleave(torch.arange(len(group), device=group.device), count)
        place = torch.arange(len(which), device=group.device) - (torch.cumsum(count, 0) - count)[which]
        return row[which], self._members[self._starts[group[which]] + place], value[which]


def _hashes(rows: Tensor) -> Tensor:
    """A 64-bit number per row, equal for equal rows; zero and minus zero count as one number."""
    torch = load_torch()
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(1 << 62), 1 << 62, (rows.shape[1],), generator=generator).to(rows.device) | 1
    out = list[Tensor]()
    for part in rows.split(_CHUNK):
        bits = (part + 0.0).view(torch.int64)
        # Small whole numbers differ in their highest bits only, which a product would lose.
        out.append(((bits ^ (bits >> 32)) * factors).sum(dim=1))
    return torch.cat(out)


_CHUNK = 1 << 15
