"""The objective of a softmax learner on its training rounds, with its exact gradient, a block of rounds at a time.

A criterion F, a function of means over rounds, says how importance weights and rewards make an estimate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.errors import NumericalError
from manyarms.learners.training_rounds import TrainingRounds
from manyarms.linalg.indexing import chunks
from manyarms.linalg.threads import for_each

Parts = tuple[Float[Any, "p n"], Float[Any, "p n"]]


class Criterion(ABC):
    """The criterion in an objective, F(w_1, ..., w_n) = G(mean f_1(w_i, r_i), ..., mean f_p(w_i, r_i)).

    In this form one pass over the rounds is enough for F and its gradient, even for a ratio. p is `n_parts`.
    """

    n_parts: int = 1

    @abstractmethod
    def parts(self, weights: Float[Any, " n"], rewards: Float[Any, " n"], xp: Any) -> Parts:
        """f_j(w_i, r_i), and its derivative in w_i; `xp` is the module of the arrays, NumPy or PyTorch."""

    def combined(self, means: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        """G and its derivatives. By default G is the first mean itself."""
        return float(means[0]), np.ones(1)


class Mean(Criterion):
    """Objective: mean of w r, for IPS, DR (with r - r̂ for r), MIPS and policy convolution."""

    def parts(self, weights: Float[Any, " n"], rewards: Float[Any, " n"], xp: Any) -> Parts:
        return (weights * rewards)[None], rewards[None]


class Ratio(Criterion):
    """Objective: mean of w r / mean of w, for snIPS. In a minibatch it is the ratio of the batch."""

    n_parts = 2

    def parts(self, weights: Float[Any, " n"], rewards: Float[Any, " n"], xp: Any) -> Parts:
        return xp.stack([weights * rewards, weights]), xp.stack([rewards, xp.ones_like(rewards)])

    def combined(self, means: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        above, below = means
        # A batch in which the policy chooses no logged action contributes nothing.
        if below <= np.finfo(float).tiny:
            return 0.0, np.zeros(2)
        ratio = above / below
        return float(ratio), np.array([1.0, -ratio]) / below


@dataclass(frozen=True)
class Logarithm(Criterion):
    """Objective: mean of log(1 + λ w r) / λ, for rewards that are not negative; λ = 0 is the mean of w r."""

    parameter: float

    def parts(self, weights: Float[Any, " n"], rewards: Float[Any, " n"], xp: Any) -> Parts:
        product = weights * rewards
        if self.parameter == 0:
            return product[None], rewards[None]
        scaled = self.parameter * product
        return (xp.log1p(scaled) / self.parameter)[None], (rewards / (1.0 + scaled))[None]


BLOCK_NUMBERS = 1 << 18
"""The number of probabilities in a block: 2 MB, so that they are still in the cache at the next step."""

MIN_ROWS = 32
"""The smallest number of rounds in a block: with fewer, adding up (K, d) gradients costs more than the rest."""

LOWEST_SCORE = -300.0
"""Floor on scores relative to the best of their round: a probability of 1e-130."""

LANES = 4
"""The number of partial sums, added in order at the end: the result is the same for any number of threads."""


@dataclass(frozen=True)
class Objective:
    """J(β) = F(w_1, ..., w_n) + mean Σ_a π(a | x_i) r̂(x_i, a) + ρ mean log π(a_i | x_i) - λ/2 ‖β‖².

    π is the linear softmax with weights β, w_i = s_i / p_i with s_i = Σ_{a ∈ A_i} π(a | x_i), and means use the row
    weights. With respect to the scores z_a = xᵀ β_a of one round, ds = π_a (1[a ∈ A] - s), and d Σ_b π_b r̂_b =
    π_a (r̂_a - Σ_b π_b r̂_b): the parts with π_a alone are one product with the probabilities, the others are sparse.

    Args:
        rounds: The rounds to maximise on.
        criterion: F.
        imitation: ρ, which pulls towards the logged actions, and so towards the logging policy, without knowing it.
        ridge: λ.
        block_numbers: The number of probabilities that are computed at a time.
    """

    rounds: TrainingRounds
    criterion: Criterion
    imitation: float = 0.0
    ridge: float = 0.0
    block_numbers: int = BLOCK_NUMBERS

    def __len__(self) -> int:
        return len(self.rounds)

    @property
    def shape(self) -> tuple[int, int]:
        """(K, d), the shape of the weights."""
        return self.rounds.n_actions, self.rounds.contexts.shape[1]

    def take(self, rows: Int[Array, " m"]) -> Objective:
        """The objective on these rounds only."""
        return replace(self, rounds=self.rounds.take(rows))

    def value(self, weights: Float[Any, "K d"]) -> float:
        """J(β)."""
        return self._finish(self._summed(weights, gradient=False), weights)[0]

    def value_and_gradient(self, weights: Float[Any, "K d"]) -> tuple[float, Float[Any, "K d"]]:
        """J(β) and its gradient."""
        sums = self._summed(weights, gradient=True)
        value, slopes = self._finish(sums, weights)
        shares = np.append(slopes, 1.0)[: len(sums.gradient)] / self.rounds.row_weights.sum()
        gradient = -self.ridge * weights
        for share, part in zip(shares.tolist(), sums.gradient, strict=True):
            gradient += share * part
        return value, gradient

    def place_weights(self, weights: Float[Array, "K d"]) -> Float[Any, "K d"]:
        """A copy of some weights where the objective is computed."""
        return weights.copy()

    def as_array(self, weights: Float[Any, "K d"]) -> Float[Array, "K d"]:
        """A copy of some weights for the caller to keep."""
        return weights.copy()

    def _finish(self, sums: ObjectiveSums, weights: Any) -> tuple[float, Float[Array, " p"]]:
        """J(β), and the slopes of F in its means."""
        total = self.rounds.row_weights.sum()
        criterion, slopes = self.criterion.combined(sums.parts / total)
        value = float(criterion + sums.rest / total - self.ridge / 2 * float((weights**2).sum()))
        if not np.isfinite(value):
            raise NumericalError(
                f"the objective became {value}: rewards or weights are too large.", "Rescale the rewards."
            )
        return value, slopes

    def _summed(self, weights: Any, *, gradient: bool) -> ObjectiveSums:
        n_actions, _ = self.shape
        size = max(MIN_ROWS, self.block_numbers // n_actions)
        blocks = list(chunks(len(self), size))
        shape = self.gradient_shape if gradient else (0, *self.shape)
        lanes = [ObjectiveSums(self, np.zeros(shape)) for _ in range(min(LANES, len(blocks)))]

        def work(lane: int) -> None:
            space = np.empty((min(size, len(self)), n_actions))
            for rows in blocks[lane :: len(lanes)]:
                block = self.rounds.take(rows)
                lanes[lane].add(_Probabilities(block, weights, space[: len(block)], self.imitation > 0))

        for_each(work, range(len(lanes)))
        for lane in lanes[1:]:
            lanes[0].merge(lane)
        return lanes[0]

    @property
    def gradient_shape(self) -> tuple[int, int, int]:
        """(g, K, d): a gradient for each part of F and one for the rest; only at the end is it known how they add."""
        has_rest = self.rounds.predicted is not None or self.imitation > 0
        return self.criterion.n_parts + has_rest, *self.shape


class BlockOfProbabilities(ABC):
    """The probabilities π(a | x_i) of all actions in a block of rounds, wherever they lie.

    Attributes:
        xp: The module of its arrays, NumPy or PyTorch.
        rounds: Rewards, propensities and row weights of the rounds, as such arrays.
        chosen: s_i = Σ_{a ∈ A_i} π(a | x_i).
        log_logged: log π(a_i | x_i); None if nothing pulls towards logged actions.
        average: Σ_a π(a | x_i) r̂(x_i, a); None without predictions.
    """

    xp: Any
    rounds: Any
    chosen: Float[Any, " b"]
    log_logged: Float[Any, " b"] | None
    average: Float[Any, " b"] | None

    @abstractmethod
    def add_gradient(self, total: Any, slopes: Float[Any, "p b"], pull: Float[Any, " b"] | None) -> None:
        """Add Σ_i x_i times the slopes of J in the scores z_ia, for each part of F and the rest.

        These are slopes_i (1[a ∈ A_i] - s_i) π_ia for each part, where the slopes are those in s_i. The rest has
        pull_i (1[a = a_i] - π_ia), and with predictions π_ia (r̂_ia - Σ_b π_ib r̂_ib) times the row weight.
        """


class ObjectiveSums:
    """Weighted sums over rounds of the parts of F, of the rest of J, and of their gradients, from zeros of any kind."""

    def __init__(self, objective: Objective, gradient: Any):
        self._criterion, self._imitation = objective.criterion, objective.imitation
        self.parts: Any = 0.0
        self.rest: Any = 0.0
        self.gradient = gradient

    def merge(self, other: ObjectiveSums) -> None:
        self.parts = self.parts + other.parts
        self.rest = self.rest + other.rest
        self.gradient += other.gradient

    @np.errstate(over="ignore", invalid="ignore")  # an overflow is reported once, when the sums are used
    def add(self, block: BlockOfProbabilities) -> None:
        """Add a block of rounds."""
        rounds, omega, pull = block.rounds, block.rounds.row_weights, None
        values, slopes = self._criterion.parts(block.chosen / rounds.propensities, rounds.rewards, block.xp)
        self.parts = self.parts + values @ omega
        if block.log_logged is not None:
            pull = self._imitation * omega
            self.rest = self.rest + pull @ block.log_logged
        if block.average is not None:
            self.rest = self.rest + omega @ block.average
        if len(self.gradient):
            block.add_gradient(self.gradient, slopes * (omega / rounds.propensities), pull)


class _Probabilities(BlockOfProbabilities):
    """Probabilities in a block of rounds on the processor, written into `space`."""

    xp = np

    @np.errstate(over="ignore", invalid="ignore")
    def __init__(
        self, rounds: TrainingRounds, weights: Float[Array, "K d"], space: Float[Array, "b K"], with_logged: bool
    ):
        self.rounds = rounds
        self._p, log_logged = _probabilities(rounds, weights, space)
        self.log_logged = log_logged if with_logged else None
        self._inside = rounds.chosen(self._p)
        self.chosen = np.asarray(self._inside.sum(axis=1)).reshape(-1)
        self._weighted = None if rounds.predicted is None else self._p * rounds.predicted.of_all(rounds.contexts)
        self.average = None if self._weighted is None else self._weighted.sum(axis=1)

    def add_gradient(self, total: Any, slopes: Float[Any, "p b"], pull: Float[Any, " b"] | None) -> None:
        rounds, x = self.rounds, self.rounds.contexts
        own = [-slopes * self.chosen]
        if len(total) > len(slopes):
            # The rest: what all its terms take from the probabilities.
            rest = np.zeros(len(x)) if pull is None else -pull
            own.append((rest if self.average is None else rest - rounds.row_weights * self.average)[None])
        total += _outer_sums(self._p, np.concatenate(own), x)
        total[: len(slopes)] += _outer_sums(self._inside, slopes, x)
        if self._weighted is not None:
            total[-1] += self._weighted.T @ (rounds.row_weights[:, None] * x)
        if pull is not None:
            logged = sparse.csr_array((pull, rounds.actions, np.arange(len(x) + 1)), shape=self._p.shape)
            total[-1] += logged.T @ x


def _probabilities(
    block: TrainingRounds, weights: Float[Array, "K d"], space: Float[Array, "b K"]
) -> tuple[Float[Array, "b K"], Float[Array, " b"]]:
    """π(· | x_i), written into `space`, and log π(a_i | x_i), which does not underflow where π does."""
    z = np.matmul(block.contexts, weights.T, out=space)
    barred = None if block.eligible is None else block.eligible.by_row.toarray() == 0
    if barred is not None:
        z[barred] = -np.inf
    z -= z.max(axis=1, keepdims=True)
    logged = z[np.arange(len(z)), block.actions]
    # Numbers below the normal range make every product several times slower, and these are nothing beside 1.
    np.maximum(z, LOWEST_SCORE, out=z)
    np.exp(z, out=z)
    if barred is not None:
        z[barred] = 0.0
    total = z.sum(axis=1)
    z *= (1.0 / total)[:, None]
    return z, logged - np.log(total)


def _outer_sums(
    left: Float[Array, "b K"] | sparse.csr_array, rows: Float[Array, "g b"], x: Float[Array, "b d"]
) -> Float[Array, "g K d"]:
    """Σ_i left_ia rows_gi x_i, for every g and a in one product."""
    columns = (rows.T[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    sums = left.T @ columns
    return sums.reshape(len(sums), len(rows), -1).swapaxes(0, 1)
