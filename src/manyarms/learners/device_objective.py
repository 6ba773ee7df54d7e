"""The objective of a softmax learner on a GPU: the same value and the same gradient, a tile of rounds at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.estimators.set_weighted import ActionSets
from manyarms.gpu.cuda_kernels import add_by_key
from manyarms.gpu.device import Tensor, free_memory, load_torch, require_memory, upload
from manyarms.learners.objective import MIN_ROWS, BlockOfProbabilities, Objective, ObjectiveSums
from manyarms.learners.training_rounds import TrainingRounds
from manyarms.linalg.indexing import chunks

TILE_NUMBERS = 1 << 25
"""The number of probabilities in a tile: 0.3 GB, of which there are a few copies at once."""

_COPIES, _SET_COPIES = 6, 4
"""The number of arrays of the size of a tile that are needed at once, and more of them for every kind of sets."""


@dataclass(frozen=True)
class DeviceObjective(Objective):
    """J(β) of `Objective` on a GPU, for weights there or on the processor; a gradient lies where the weights do.

    Probabilities stay on the GPU. Criteria are computed on the processor, from one number per round.
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
            block = self.rounds.take(rows)
            sums.add(block, _DeviceProbabilities(block, there.take(rows), weights, self.imitation > 0))
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
        sets, eligible: The sets of the rounds; None for the logged actions alone, and for all actions.
        means: (F, K, d) The predictions of each fold; None for none.
    """

    device: str
    tile_rows: int
    contexts: Tensor
    actions: Tensor
    sets: _DeviceSets | None
    eligible: _DeviceSets | None
    means: Tensor | None

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
        fixed = 8 * (n * (d + 1) + 12 * K * d + means + held)
        per_round = 8 * (_COPIES + _SET_COPIES * len(sets)) * K
        require_memory(
            device, fixed + per_round, f"training on {n:,} rounds of {K:,} actions",
            'Learn from fewer rounds, or use device="cpu".',
        )  # fmt: skip
        fitting = max(1, (free_memory(device) - fixed) // per_round)
        return cls(
            device,
            min(max(MIN_ROWS, TILE_NUMBERS // K), fitting),
            upload(rounds.contexts, device),
            load_torch().from_numpy(np.array(rounds.actions)).to(device),
            sets=None if rounds.sets is None else _DeviceSets.copy(rounds.sets, device),
            eligible=None if rounds.eligible is None else _DeviceSets.copy(rounds.eligible, device),
            means=None if predicted is None else upload(predicted.means, device),
        )

    def take(self, rows: Any) -> RoundsOnDevice:
        """These rounds only."""
        rows = rows if isinstance(rows, slice) else load_torch().from_numpy(rows).to(self.device)
        sets, eligible = (None if given is None else given.take(rows) for given in (self.sets, self.eligible))
        return replace(self, contexts=self.contexts[rows], actions=self.actions[rows], sets=sets, eligible=eligible)


class _DeviceProbabilities(BlockOfProbabilities):
    """Probabilities in a tile of rounds on a GPU."""

    def __init__(self, block: TrainingRounds, there: RoundsOnDevice, weights: Tensor, with_logged: bool):
        torch, logged = load_torch(), there.actions[:, None]
        self._block, self._there = block, there
        z = there.contexts @ weights.T
        if there.eligible is not None:
            z.masked_fill_(~there.eligible.table(len(weights)), -torch.inf)
        p = torch.softmax(z, dim=1)
        log_logged = p.new_zeros(len(p))
        if with_logged:
            # From the best action, whose probability does not underflow.
            top, best = z.max(dim=1, keepdim=True)
            log_logged = (z.gather(1, logged) - top + torch.log(p.gather(1, best)))[:, 0]
        del z
        self._p, self._weighted, self._inside = p, self._predicted_times(p), None
        if there.sets is None:
            chosen = p.gather(1, logged)[:, 0]
        else:
            self._inside = p * there.sets.table(len(weights))
            chosen = self._inside.sum(dim=1)
        average = p.new_zeros(len(p)) if self._weighted is None else self._weighted.sum(dim=1)
        self.chosen, self.log_logged, self.average = torch.stack([chosen, log_logged, average]).cpu().numpy()

    def _predicted_times(self, p: Tensor) -> Tensor | None:
        """π(a | x_i) r̂(x_i, a)."""
        x, means, predicted = self._there.contexts, self._there.means, self._block.predicted
        if means is None or predicted is None:
            return None
        if len(means) == 1:
            return (x @ means[0].T).mul_(p)
        rewards = load_torch().empty_like(p)
        for fold in np.unique(predicted.folds).tolist():
            rows = load_torch().from_numpy(np.flatnonzero(predicted.folds == fold)).to(p.device)
            rewards[rows] = x[rows] @ means[fold].T
        return rewards.mul_(p)

    def add_gradient(
        self, total: Any, own: Float[Array, "g b"], chosen: Float[Array, "p b"], pull: Float[Array, " b"]
    ) -> None:
        by_action, n_parts = total.permute(1, 0, 2), len(chosen)
        by_action.flatten(1).addmm_(self._p.T, self._columns(own).flatten(1))
        at_logged = np.zeros_like(own)
        if self._inside is None:
            at_logged[:n_parts] = chosen * self.chosen
        else:
            inside = self._inside.T @ self._columns(chosen).flatten(1)
            by_action[:, :n_parts] += inside.unflatten(1, (n_parts, -1))
        at_logged[-1] += pull
        if at_logged.any():
            add_by_key(by_action, self._there.actions, self._columns(at_logged))
        if self._weighted is not None:
            by_action[:, -1] += self._weighted.T @ self._columns(self._block.row_weights[None])[:, 0]

    def _columns(self, rows: Float[Array, "g b"]) -> Tensor:
        """(b, g, d) rows_gi x_i."""
        return upload(rows.T, self._there.device)[:, :, None] * self._there.contexts[:, None, :]
