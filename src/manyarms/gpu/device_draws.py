"""The best action of each context under many draws of all weights, on a GPU; no draw is ever stored.

In units in which an action is N(q, I) before its rounds, and in which it shares q with all actions of its kind, it is
N(U Uᵀ (q + b), U Uᵀ) after them. A draw is θ = g + U (Uᵀ q + ε), with g = U Uᵀ b and with ε from a counter-based
generator: the numbers of the draw and of the action are all it needs, so θ is made anew wherever it is used.

`cuda/thompson.cu` screens tiles of actions in half precision and computes the best ones in single precision, as it does
the draws. Of the tiles of one split of the actions it computes only one, so that few choices are not the best action of
the same draws in double precision (docs/gpu.md has the share). Other devices compare all actions in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from manyarms._base.checks import Array
from manyarms.gpu.cuda_kernels import compiled, launch
from manyarms.gpu.device import Tensor, load_torch, processors

SIZE, DRAWS, ROWS, TILE = 16, 16, 1024, 64
"""Features of the kernel, draws and contexts that a block works on, and actions per tile."""
SHARED_BYTES = DRAWS * 256 * 16 + 2 * DRAWS * (TILE * SIZE + 4)
REACH = 2.0**-7
"""Tiles whose best score in half precision is within this share of the best one are computed exactly."""
LARGEST = 256.0
"""The largest number that enters a product in half precision."""


@dataclass(frozen=True, eq=False)
class DrawnActions:
    """Actions in order of their kinds, with what they share under every draw; on one device, in double precision.

    Attributes:
        factor: (m, d, d) U.
        constant: (m, d) g.
        kind: (m,) the kind of each action.
        shared: (s, kinds, d) q of every draw.
    """

    factor: Tensor
    constant: Tensor
    kind: Tensor
    shared: Tensor


class DeviceDraws:
    """Draws of all weights on a device, by a seed below 2³¹."""

    def __init__(self, actions: DrawnActions, seed: int):
        self._actions, self._seed = actions, seed
        self.n_draws, self.n_actions = len(actions.shared), len(actions.kind)
        self._plain = not actions.factor.is_cuda
        if not self._plain:
            self._prepare()

    def best(self, contexts: Tensor) -> Int[Array, "n s"]:
        """The best action of each context, (n, d) in the units of the actions, under every draw."""
        if self._plain:
            return self._best_plainly(contexts).cpu().numpy()
        return np.concatenate([self.best_on_device(part)[0].cpu().numpy().T for part in contexts.split(ROWS)])

    def _prepare(self) -> None:
        """Copies in half and single precision, in the order in which a warp reads them."""
        torch, given = load_torch(), self._actions
        largest = max(float(given.shared.abs().max()), float(given.constant.abs().max()), 8.0)
        scale = min(1.0, 2.0 ** -np.ceil(np.log2(largest / LARGEST)))
        self._settings = torch.tensor([scale, REACH], dtype=torch.float32, device=given.factor.device)
        self._upper = _padded(given.factor, 2).to(torch.float32)
        self._upper[:, range(given.factor.shape[1], SIZE), range(given.factor.shape[1], SIZE)] = 1.0
        self._constant = (scale * _padded(given.constant, 1)).to(torch.float32)
        self._kind = given.kind.to(torch.int32)
        groups = -(-self.n_draws // DRAWS)
        shared = (scale * _padded(given.shared, 1)).to(torch.float32)
        more = groups * DRAWS - self.n_draws
        self._shared = torch.cat([shared, shared[:1].expand(more, -1, -1)]) if more else shared
        by_group = self._shared.reshape(groups, DRAWS, -1, SIZE).transpose(1, 2)
        self._half_shared = by_group.to(torch.float16).contiguous()
        self._factors = torch.cat([_fragments(part) for part in self._upper.split(1 << 17)])
        n_tiles = -(-self.n_actions // TILE)
        # Many waves of blocks: few multiprocessors idle in the last one, and two good tiles seldom share a split.
        self._splits = max(1, min(n_tiles, round(_WAVES * processors(given.factor.device) / groups)))
        self._groups = groups

    def best_on_device(self, contexts: Tensor) -> tuple[Tensor, int]:
        """The best action under every draw, (s, n), and how many tiles were computed; at most ROWS contexts."""
        torch, n = load_torch(), len(contexts)
        size = contexts.abs().amax(dim=1, keepdim=True)
        exact = _padded(contexts / torch.where(size > 0, size, torch.ones_like(size)), 1).to(torch.float32)
        low = torch.zeros(ROWS, SIZE, dtype=torch.float16, device=contexts.device)
        low[:n] = exact.to(torch.float16)
        shape = (self._groups * DRAWS, self._splits, ROWS)
        tops, where = (torch.empty(shape, dtype=torch.int16, device=contexts.device) for _ in range(2))
        launch(
            compiled("thompson", "best_tiles", SIZE, SHARED_BYTES), self._groups * self._splits, 256,
            low, self._factors, self._constant, self._half_shared, self._kind, tops, where, self._settings,
            self._seed, self._shared.shape[1], self.n_actions, self._splits,
            shared_bytes=SHARED_BYTES,
        )  # fmt: skip
        tiles, pairs = self._hopeful_tiles(tops, where, n)
        scores, best = torch.empty(len(tiles), dtype=torch.float32, device=contexts.device), torch.empty_like(tiles)
        launch(
            compiled("thompson", "best_actions", SIZE), -(-len(tiles) // 16), 256,
            exact, self._upper, self._constant, self._shared, self._kind, tiles, pairs, scores, best, self._settings,
            self._seed, self._shared.shape[1], self.n_actions, n, len(tiles),
        )  # fmt: skip
        place = pairs.to(torch.int64)
        top = torch.full((self.n_draws * n,), -torch.inf, dtype=torch.float32, device=contexts.device)
        top.scatter_reduce_(0, place, scores, "amax")
        least = torch.full((self.n_draws * n,), self.n_actions, dtype=torch.int32, device=contexts.device)
        won = torch.where(scores == top[place], best, self.n_actions)
        return least.scatter_reduce_(0, place, won, "amin").reshape(self.n_draws, n), len(tiles)

    def _hopeful_tiles(self, tops: Tensor, where: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The tiles to compute exactly, in order, and the number of the draw and context of each."""
        torch, capacity = load_torch(), 2 * self.n_draws * n
        while True:
            count = torch.zeros(1, dtype=torch.int32, device=tops.device)
            tiles, pairs = (torch.empty(capacity, dtype=torch.int32, device=tops.device) for _ in range(2))
            launch(
                compiled("thompson", "hopeful_tiles", SIZE), -(-self.n_draws * n // 256), 256,
                tops, where, self._settings, count, tiles, pairs,
                self._splits, n, self.n_draws, capacity,
            )  # fmt: skip
            needed = int(count)
            if needed <= capacity:
                tiles, order = tiles[:needed].sort()
                return tiles, pairs[order]
            capacity = needed

    def weights(self, draw: int) -> Tensor:
        """θ of all actions under one draw, (m, d), in double precision from the same normal numbers."""
        torch, given = load_torch(), self._actions
        noise = standard_normals(self.n_actions, draw, self._seed, given.factor.device)[:, : given.factor.shape[1]]
        q = given.shared[draw][given.kind.to(torch.int64)]
        own = torch.einsum("mde,md->me", given.factor, q) + noise
        return given.constant + torch.einsum("mde,me->md", given.factor, own)

    def _best_plainly(self, contexts: Tensor) -> Tensor:
        torch = load_torch()
        return torch.stack([(contexts @ self.weights(draw).T).argmax(dim=1) for draw in range(self.n_draws)], dim=1)


def standard_normals(n_actions: int, draw: int, seed: int, device: object) -> Tensor:
    """The standard normal numbers of all actions in one draw, (m, 16): Philox 4x32, and Box and Muller's formula.

    The kernel has the same counters; its logarithms and sines are single precision.
    """
    torch = load_torch()
    action, quarter = torch.meshgrid(
        torch.arange(n_actions, device=device), torch.arange(4, device=device), indexing="ij"
    )
    words = philox(action, quarter, seed, draw)
    unit = [(word.to(torch.float32) + 0.5).to(torch.float64) * 2.0**-32 for word in (words[0], words[2])]
    turn = [torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.float32).to(torch.float64) for word in words]
    radius = [torch.sqrt(-2 * torch.log(part.clamp_max(1.0))) for part in unit]
    angle = [np.pi * 2.0**-31 * turn[1], np.pi * 2.0**-31 * turn[3]]
    out = torch.empty(n_actions, 2, 4, 2, dtype=torch.float64, device=device)
    for half in range(2):
        out[:, half, :, 0] = radius[half] * torch.cos(angle[half])
        out[:, half, :, 1] = radius[half] * torch.sin(angle[half])
    return out.reshape(n_actions, SIZE)


def philox(first: Tensor, second: Tensor, key: int, draw: int) -> tuple[Tensor, ...]:
    """Four random 32-bit words for every counter (first, second, 0, 0), as 64-bit numbers."""
    torch = load_torch()
    c = [first, second, torch.zeros_like(first), torch.zeros_like(first)]
    keys = [key, draw]
    for _ in range(10):
        (high0, low0), (high1, low1) = _wide_product(c[0], 0xD2511F53), _wide_product(c[2], 0xCD9E8D57)
        c = [high1 ^ c[1] ^ keys[0], low1, high0 ^ c[3] ^ keys[1], low0]
        keys = [(keys[0] + 0x9E3779B9) % (1 << 32), (keys[1] + 0xBB67AE85) % (1 << 32)]
    return tuple(c)


def _wide_product(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """High and low word of a product of two 32-bit words, in halves that 64-bit numbers hold with their sign."""
    low = word * (factor & 0xFFFF)
    high = word * (factor >> 16) + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def _fragments(upper: Tensor) -> Tensor:
    """U as the right operand of q U and of z Uᵀ, in half precision: eight words per lane, four of each."""
    torch = load_torch()
    lane = torch.arange(32, device=upper.device)
    g, t, pair = lane // 4, lane % 4, torch.arange(2, device=upper.device)
    blocks = []
    for j in (0, 1):
        for b in (0, 1):
            blocks.append(upper[:, (4 * t + 2 * b)[:, None] + pair, (8 * j + g)[:, None]])
    right = torch.stack(blocks, dim=2)
    blocks = []
    for j in (0, 1):
        for b in (0, 1):
            blocks.append(upper[:, (8 * j + g)[:, None], (2 * t + 8 * b)[:, None] + pair])
    left = torch.stack(blocks, dim=2)
    return torch.stack([right, left], dim=1).to(torch.float16).contiguous()


def _padded(array: Tensor, n_axes: int) -> Tensor:
    """Zeros up to the size of the kernel in the last axes."""
    torch = load_torch()
    missing = [(0, SIZE - array.shape[-1])] * n_axes
    return torch.nn.functional.pad(array, [edge for pair in missing for edge in pair]).contiguous()


_WAVES = 160.0
