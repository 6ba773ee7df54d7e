"""The rounds that a softmax policy is trained on, with everything that its objective needs of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.core import Eligibility, LoggedData, SharedSet, eligible_blocks
from manyarms.errors import DataTypeError, InputError
from manyarms.estimators.reward_model import CrossFit, FittedModel, RewardModel, check_model_size
from manyarms.estimators.set_weighted import ActionSets
from manyarms.linalg.sparse_matrices import pair_rows
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
