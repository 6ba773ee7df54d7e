"""The objective of a softmax learner on a GPU: the same value and the same gradient, a tile of rounds at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.estimators.set_weighted import ActionSets
from manyarms.gpu.device import Tensor, free_memory, load_torch, require_memory, upload
from manyarms.learners.objective import MIN_ROWS, BlockOfProbabilities, Objective, ObjectiveSums
from manyarms.learners.training_rounds import TrainingRounds
from manyarms.linalg.indexing import chunks

TILE_NUMBERS = 1 << 27
"""The number of probabilities in a tile: 1 GB, of which there are a few copies at once.

In smaller ones, launching the kernels takes longer than their work.
"""

_COPIES, _SET_COPIES = 6, 4
"""The number of arrays of the size of a tile that are needed at once, and more of them for every kind of sets."""


@dataclass(frozen=True)
class DeviceObjective(Objective):
    """J(β) of `Objective` on a GPU, for weights there or on the processor; a gradient lies where the weights do.

    Everything stays on the GPU until the sums over all rounds are known.
    """

    on_device: RoundsOnDevice | None = None

    @classmethod
    def place(cls, objective: Objective, device: str) -> DeviceObjective:
        """The objective with its rounds copied to a GPU."""
        return cls(**vars(objective), on_device=RoundsOnDevice.copy(objective.rounds, device))

    @property
    def _there(self) -> RoundsOnDevice:
        assert self.on_device is not None
        return self.on_device

    def take(self, rows: Int[Array, " m"]) -> DeviceObjective:
        return replace(self, rounds=self.rounds.take(rows), on_device=self._there.take(rows))

    def place_weights(self, weights: Float[Array, "K d"]) -> Tensor:
        return upload(weights.copy(), self._there.device)

    def as_array(self, weights: Any) -> Float[Array, "K d"]:
        return weights.copy() if isinstance(weights, np.ndarray) else weights.cpu().numpy().copy()

    def value(self, weights: Any) -> float:
        return super().value(upload(weights, self._there.device))

    def value_and_gradient(self, weights: Any) -> tuple[float, Any]:
        value, gradient = super().value_and_gradient(upload(weights, self._there.device))
        return value, gradient.cpu().numpy() if isinstance(weights, np.ndarray) else gradient

    def _summed(self, weights: Any, *, gradient: bool) -> ObjectiveSums:
        (n_gradients, K, d), there = self.gradient_shape if gradient else (0, *self.shape), self._there
        # The numbers of an action are neighbours, as tiles add to them.
        sums = ObjectiveSums(self, weights.new_zeros(K, n_gradients, d).permute(1, 0, 2))
        for rows in chunks(len(self), there.tile_rows):
            sums.add(_DeviceProbabilities(there.take(rows), weights, self.imitation > 0))
        sums.parts, sums.rest = sums.parts.cpu().numpy(), float(sums.rest)
        return sums


@dataclass(frozen=True, eq=False)
class _DeviceSets:
    """The action sets of rounds on a GPU: all sets one after the other, and the set of each round."""

    actions: Tensor
    first: Tensor
    sizes: Tensor
    which: Tensor

    @classmethod
    def copy(cls, sets: ActionSets, device: str) -> _DeviceSets:
        """Copy of some sets on the device."""
        torch, members = load_torch(), sparse.csr_array(sets.members, copy=True)
        members.eliminate_zeros()
        columns = members.indices, members.indptr[:-1], np.diff(members.indptr), sets.which
        return cls(*(torch.from_numpy(np.array(column, dtype=np.int64)).to(device) for column in columns))

    def take(self, rows: Any) -> _DeviceSets:
        """The sets of these rounds only."""
        return replace(self, which=self.which[rows])

    def table(self, n_actions: int) -> Tensor:
        """(n, K) True where an action is in the set of a round; (1, K) where all rounds have one set."""
        torch, which = load_torch(), self.which if len(self.sizes) > 1 else self.which[:1]
        sizes = self.sizes[which]
        row = torch.repeat_interleave(torch.arange(len(which), device=which.device), sizes)
        place = torch.arange(len(row), device=which.device) - (torch.cumsum(sizes, 0) - sizes)[row]
        out = torch.zeros(len(which), n_actions, dtype=torch.bool, device=which.device)
        out[row, self.actions[self.first[which][row] + place]] = True
        return out


@dataclass(frozen=True, eq=False)
class RoundsOnDevice:
    """The part of training rounds that lies on a GPU.

    Attributes:
        device: The GPU.
        tile_rows: The number of rounds that are worked on at a time.
        contexts: (n, d) Contexts.
        actions: (n,) Logged actions.
        rewards, propensities, row_weights: (n,) As in `TrainingRounds`.
        sets, eligible: The sets of the rounds; None for the logged actions alone, and for all actions.
        means: (F, K, d) The predictions of each fold; None for none.
        folds: (n,) The fold of each round; None for none.
    """

    device: str
    tile_rows: int
    contexts: Tensor
    actions: Tensor
    rewards: Tensor
    propensities: Tensor
    row_weights: Tensor
    sets: _DeviceSets | None
    eligible: _DeviceSets | None
    means: Tensor | None
    folds: Tensor | None

    @classmethod
    def copy(cls, rounds: TrainingRounds, device: str) -> RoundsOnDevice:
        """Copy the rounds to a GPU, once.

        Raises:
            DeviceError: If a tile of a single round would not fit.
        """
        (n, d), K, predicted = rounds.contexts.shape, rounds.n_actions, rounds.predicted
        sets = [given for given in (rounds.sets, rounds.eligible) if given is not None]
        held = sum(given.members.nnz + len(given.which) for given in sets)
        means = 0 if predicted is None else predicted.means.size
        fixed = 8 * (n * (d + 5) + 12 * K * d + means + held)
        per_round = 8 * (_COPIES + _SET_COPIES * len(sets)) * K
        require_memory(
            device, fixed + per_round, f"training on {n:,} rounds of {K:,} actions",
            'Learn from fewer rounds, or use device="cpu".',
        )  # fmt: skip
        fitting = max(1, (free_memory(device) - fixed) // per_round)

        def numbers(part: Array) -> Tensor:
            return load_torch().from_numpy(np.array(part, dtype=np.int64)).to(device)

        return cls(
            device,
            min(max(MIN_ROWS, TILE_NUMBERS // K), fitting),
            upload(rounds.contexts, device),
            numbers(rounds.actions),
            *(upload(part, device) for part in (rounds.rewards, rounds.propensities, rounds.row_weights)),
            sets=None if rounds.sets is None else _DeviceSets.copy(rounds.sets, device),
            eligible=None if rounds.eligible is None else _DeviceSets.copy(rounds.eligible, device),
            means=None if predicted is None else upload(predicted.means, device),
            folds=None if predicted is None else numbers(predicted.folds),
        )

    def take(self, rows: Any) -> RoundsOnDevice:
        """These rounds only."""
        rows = rows if isinstance(rows, slice) else load_torch().from_numpy(rows).to(self.device)
        sets, eligible = (None if given is None else given.take(rows) for given in (self.sets, self.eligible))
        by_round = {name: getattr(self, name) for name in ("contexts", "actions", "rewards", "propensities")}
        by_round |= {"row_weights": self.row_weights} | ({} if self.folds is None else {"folds": self.folds})
        return replace(self, sets=sets, eligible=eligible, **{name: column[rows] for name, column in by_round.items()})


class _DeviceProbabilities(BlockOfProbabilities):
    """Probabilities in a tile of rounds on a GPU; they are used up by the gradient."""

    def __init__(self, rounds: RoundsOnDevice, weights: Tensor, with_logged: bool):
        self.xp = torch = load_torch()
        self.rounds, self._logged = rounds, rounds.actions[:, None]
        z = rounds.contexts @ weights.T
        if rounds.eligible is not None:
            z.masked_fill_(~rounds.eligible.table(len(weights)), -torch.inf)
        p = torch.softmax(z, dim=1)
        self.log_logged = None
        if with_logged:
            # From the best action, whose probability does not underflow.
            top, best = z.max(dim=1, keepdim=True)
            self.log_logged = (z.gather(1, self._logged) - top + torch.log(p.gather(1, best)))[:, 0]
        del z
        self._p, self._weighted, self._inside = p, self._predicted_times(p), None
        if rounds.sets is None:
            self.chosen = p.gather(1, self._logged)[:, 0]
        else:
            self._inside = p * rounds.sets.table(len(weights))
            self.chosen = self._inside.sum(dim=1)
        self.average = None if self._weighted is None else self._weighted.sum(dim=1)

    def _predicted_times(self, p: Tensor) -> Tensor | None:
        """π(a | x_i) r̂(x_i, a)."""
        x, means, folds = self.rounds.contexts, self.rounds.means, self.rounds.folds
        if means is None or folds is None:
            return None
        if len(means) == 1:
            return (x @ means[0].T).mul_(p)
        rewards = load_torch().empty_like(p)
        for fold in range(len(means)):
            rows = folds == fold
            rewards[rows] = x[rows] @ means[fold].T
        return rewards.mul_(p)

    def add_gradient(self, total: Any, slopes: Float[Any, "p b"], pull: Float[Any, " b"] | None) -> None:
        by_action, n_parts, p = total.permute(1, 0, 2), len(slopes), self._p
        if self._weighted is not None and self.average is not None:
            self._weighted.addcmul_(p, self.average[:, None], value=-1.0)
            by_action[:, -1] += self._weighted.T @ self._columns(self.rounds.row_weights[None])
        rows, places = list[Tensor](), list[int]()
        if self._inside is None:
            rows, places = [slopes * self.chosen], list(range(n_parts))
        else:
            self._inside.addcmul_(p, self.chosen[:, None], value=-1.0)
            by_action[:, :n_parts] += (self._inside.T @ self._columns(slopes)).unflatten(1, (n_parts, -1))
        if pull is not None:
            rows, places = [*rows, pull[None]], [*places, by_action.shape[1] - 1]
        if rows:
            # What is multiplied by 1[a = a_i] - π_ia, with the sign turned.
            p.scatter_add_(1, self._logged, p.new_full((len(p), 1), -1.0))
            sums = p.T @ self._columns(self.xp.concatenate(rows))
            by_action[:, places] -= sums.unflatten(1, (len(places), -1))

    def _columns(self, rows: Float[Any, "g b"]) -> Tensor:
        """(b, g d) rows_gi x_i."""
        return (rows.T[:, :, None] * self.rounds.contexts[:, None, :]).flatten(1)
