"""The objective of a softmax learner on its training rounds, with its exact gradient, a block of rounds at a time.

A criterion F, a function of means over rounds, says how importance weights and rewards make an estimate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.core import Eligibility, LoggedData, SharedSet, eligible_blocks
from manyarms.errors import DataTypeError, InputError, NumericalError
from manyarms.estimators.reward_model import CrossFit, FittedModel, RewardModel, check_model_size
from manyarms.estimators.set_weighted import ActionSets
from manyarms.linalg.indexing import chunks
from manyarms.linalg.sparse_matrices import pair_rows
from manyarms.linalg.threads import for_each
from manyarms.posterior.action_scores import LinearScores
from manyarms.posterior.posterior import Posterior


@dataclass(frozen=True)
class TrainingRounds:
    """Rounds of an objective, with weights w_i = π(A_i | x_i) / p_i, A_i being the logged action or its set.

    Attributes:
        contexts: (n, d) Contexts.
        actions: (n,) Logged actions.
        rewards: (n,) Rewards that the weights multiply: r_i, or r_i - r̂(x_i, a_i) with a model.
        propensities: (n,) p_i, the logging policy's probability of A_i, or a floor on it.
        row_weights: (n,) Row weights, all above zero: weight 2 is the round twice.
        n_actions: K.
        sets: A_i of each round; None when it is the logged action alone.
        eligible: The actions that may be chosen in each round; None for all.
        predicted: r̂ of all actions, averaged under the policy; None for no such term.
    """

    contexts: Float[Array, "n d"]
    actions: Int[Array, " n"]
    rewards: Float[Array, " n"]
    propensities: Float[Array, " n"]
    row_weights: Float[Array, " n"]
    n_actions: int
    sets: ActionSets | None = None
    eligible: ActionSets | None = None
    predicted: PredictedRewards | None = None

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, rows: slice | Int[Array, " m"]) -> TrainingRounds:
        """These rounds only."""
        by_round = {name: value for name, value in vars(self).items() if name != "n_actions" and value is not None}
        return replace(self, **{name: value[rows] for name, value in by_round.items()})

    def chosen(self, probabilities: Float[Array, "n K"]) -> sparse.csr_array:
        """(n, K) π(a | x_i) where a is in A_i, given π(· | x_i) of every round."""
        n = len(self)
        if self.sets is None:
            data, columns, starts = probabilities[np.arange(n), self.actions], self.actions, np.arange(n + 1)
        else:
            inside = self.sets.by_row
            data, columns, starts = probabilities[pair_rows(inside), inside.indices], inside.indices, inside.indptr
        return sparse.csr_array((data, columns, starts), shape=(n, self.n_actions))


def counted_rows(logs: LoggedData) -> Int[Array, " m"]:
    """Rows that enter the objective of a learner: those with a weight above zero. There must be at least one."""
    kept = np.arange(len(logs)) if logs.weights is None else np.flatnonzero(logs.weights)
    if len(kept) == 0:
        raise InputError(f"nothing can be learned: none of the {len(logs)} rounds has a weight above zero.")
    return kept


def eligible_sets(eligible: Eligibility) -> ActionSets:
    """Eligible sets of all rounds of an objective, held together, as training takes rounds in any order."""
    if isinstance(eligible, SharedSet):
        return ActionSets(eligible.block(slice(0, 1)), np.zeros(eligible.n_rows, dtype=np.int64))
    blocks = [block for _, block in eligible_blocks(eligible, eligible.n_rows, 1 << 12)]
    return ActionSets(sparse.csr_array(sparse.vstack(blocks, format="csr")), np.arange(eligible.n_rows))


@dataclass(frozen=True)
class PredictedRewards:
    """Predictions in the objective of a learner: r̂(x_i, a) = x_iᵀ θ̂_a, with a θ̂ of its own for each fold of rounds.

    Attributes:
        means: (F, K, d) θ̂ of each fold.
        folds: (n,) The fold of each round.
    """

    means: Float[Array, "F K d"]
    folds: Int[Array, " n"]

    @classmethod
    def by(cls, model: RewardModel, logs: LoggedData) -> PredictedRewards:
        """Predictions of a model for these rounds. A `CrossFit` is fitted here, once, and not at every step."""
        if isinstance(model, FittedModel):
            check_model_size(model.posterior, logs)
            return cls(_linear_means(model.posterior)[None], np.zeros(len(logs), dtype=np.int64))
        if isinstance(model, CrossFit):
            check_model_size(model.prior, logs)
            folds = model.folds(logs)
            fitted = [_linear_means(model.without(logs, folds == fold)) for fold in range(model.n_folds)]
            return cls(np.stack(fitted), folds)
        raise DataTypeError(
            f"must predict rewards of all actions; got {type(model).__name__}.",
            "Pass a fitted posterior, or a CrossFit.",
            argument="model",
        )

    def __getitem__(self, rows: slice | Int[Array, " m"]) -> PredictedRewards:
        return PredictedRewards(self.means, self.folds[rows])

    def of_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """r̂(x_i, a) for all actions, with one context per round."""
        if len(self.means) == 1:
            return contexts @ self.means[0].T
        rewards = np.empty((len(contexts), self.means.shape[1]))
        for fold in np.unique(self.folds):
            rows = self.folds == fold
            rewards[rows] = contexts[rows] @ self.means[fold].T
        return rewards

    def of_logged(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """r̂(x_i, a_i)."""
        return np.einsum("nd,nd->n", contexts, self.means[self.folds, actions])


def _linear_means(posterior: Posterior) -> Float[Array, "K d"]:
    """θ̂ of a model whose expected rewards are xᵀ θ_a."""
    rewards = posterior.expected_rewards
    if not isinstance(rewards, LinearScores):
        raise DataTypeError(
            "must have r̂(x, a) = xᵀ θ̂_a.", "Fit it with Gaussian or StudentT rewards.", argument="model"
        )
    return rewards.means


Parts = tuple[Float[Array, "p n"], Float[Array, "p n"]]


class Criterion(ABC):
    """The criterion in an objective, F(w_1, ..., w_n) = G(mean f_1(w_i, r_i), ..., mean f_p(w_i, r_i)).

    In this form one pass over the rounds is enough for F and its gradient, even for a ratio. p is `n_parts`.
    """

    n_parts: int = 1

    @abstractmethod
    def parts(self, weights: Float[Array, " n"], rewards: Float[Array, " n"]) -> Parts:
        """f_j(w_i, r_i), and its derivative in w_i."""

    def combined(self, means: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
        """G and its derivatives. By default G is the first mean itself."""
        return float(means[0]), np.ones(1)


class Mean(Criterion):
    """Objective: mean of w r, for IPS, DR (with r - r̂ for r), MIPS and policy convolution."""

    def parts(self, weights: Float[Array, " n"], rewards: Float[Array, " n"]) -> Parts:
        return (weights * rewards)[None], rewards[None]


class Ratio(Criterion):
    """Objective: mean of w r / mean of w, for snIPS. In a minibatch it is the ratio of the batch."""

    n_parts = 2

    def parts(self, weights: Float[Array, " n"], rewards: Float[Array, " n"]) -> Parts:
        return np.stack([weights * rewards, weights]), np.stack([rewards, np.ones(len(weights))])

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

    def parts(self, weights: Float[Array, " n"], rewards: Float[Array, " n"]) -> Parts:
        product = weights * rewards
        if self.parameter == 0:
            return product[None], rewards[None]
        scaled = self.parameter * product
        return (np.log1p(scaled) / self.parameter)[None], (rewards / (1.0 + scaled))[None]


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

    def value(self, weights: Float[Array, "K d"]) -> float:
        """J(β)."""
        return self._finish(self._summed(weights, gradient=False), weights)[0]

    def value_and_gradient(self, weights: Float[Array, "K d"]) -> tuple[float, Float[Array, "K d"]]:
        """J(β) and its gradient."""
        sums = self._summed(weights, gradient=True)
        value, slopes = self._finish(sums, weights)
        shares = np.append(slopes, 1.0)[: len(sums.gradient)] / self.rounds.row_weights.sum()
        return value, np.tensordot(shares, sums.gradient, axes=1) - self.ridge * weights

    def _finish(self, sums: _ObjectiveSums, weights: Float[Array, "K d"]) -> tuple[float, Float[Array, " p"]]:
        """J(β), and the slopes of F in its means."""
        total = self.rounds.row_weights.sum()
        criterion, slopes = self.criterion.combined(sums.parts / total)
        value = float(criterion + sums.rest / total - self.ridge / 2 * np.sum(weights**2))
        if not np.isfinite(value):
            raise NumericalError(
                f"the objective became {value}: rewards or weights are too large.", "Rescale the rewards."
            )
        return value, slopes

    def _summed(self, weights: Float[Array, "K d"], *, gradient: bool) -> _ObjectiveSums:
        n_actions, _ = self.shape
        size = max(MIN_ROWS, self.block_numbers // n_actions)
        blocks = list(chunks(len(self), size))
        lanes = [_ObjectiveSums(self, weights, gradient) for _ in range(min(LANES, len(blocks)))]

        def work(lane: int) -> None:
            space = np.empty((min(size, len(self)), n_actions))
            for rows in blocks[lane :: len(lanes)]:
                lanes[lane].add(self.rounds.take(rows), space)

        for_each(work, range(len(lanes)))
        for lane in lanes[1:]:
            lanes[0].merge(lane)
        return lanes[0]


class _ObjectiveSums:
    """Weighted sums over rounds of the parts of F, of the rest of J, and of their gradients."""

    def __init__(self, objective: Objective, weights: Float[Array, "K d"], gradient: bool):
        self._criterion, self._imitation, self._weights = objective.criterion, objective.imitation, weights
        self._has_rest = objective.rounds.predicted is not None or objective.imitation > 0
        self.parts: Float[Array, " p"] = np.zeros(objective.criterion.n_parts)
        self.rest = 0.0
        # One gradient for each part of F and one for the rest: how they add up is known only after the last round.
        n_gradients = (objective.criterion.n_parts + self._has_rest) if gradient else 0
        self.gradient: Float[Array, "g K d"] = np.zeros((n_gradients, *weights.shape))

    def merge(self, other: _ObjectiveSums) -> None:
        self.parts += other.parts
        self.rest += other.rest
        self.gradient += other.gradient

    @np.errstate(over="ignore", invalid="ignore")  # an overflow is reported once, when the sums are used
    def add(self, block: TrainingRounds, space: Float[Array, "b K"]) -> None:
        """Add a block of rounds. `space` is overwritten with its probabilities."""
        x, omega = block.contexts, block.row_weights
        p, log_logged = _probabilities(block, self._weights, space[: len(block)])
        chosen = block.chosen(p)
        s = np.asarray(chosen.sum(axis=1)).reshape(-1)
        values, slopes = self._criterion.parts(s / block.propensities, block.rewards)
        self.parts += values @ omega
        pull = self._imitation * omega
        if self._imitation > 0:
            self.rest += float(pull @ log_logged)
        weighted = None if block.predicted is None else np.multiply(p, block.predicted.of_all(x))
        average = np.zeros(len(block)) if weighted is None else weighted.sum(axis=1)
        self.rest += float(omega @ average)
        if len(self.gradient) == 0:
            return
        u = slopes * (omega / block.propensities)
        rows = np.concatenate([-u * s, -(pull + omega * average)[None]])[: len(self.gradient)]
        self.gradient += _outer_sums(p, rows, x)
        self.gradient[: len(u)] += _outer_sums(chosen, u, x)
        if weighted is not None:
            self.gradient[-1] += weighted.T @ (omega[:, None] * x)
        if self._imitation > 0:
            logged = sparse.csr_array((pull, block.actions, np.arange(len(block) + 1)), shape=p.shape)
            self.gradient[-1] += logged.T @ x


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
