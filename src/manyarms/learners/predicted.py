"""Rewards of all actions as a model predicts them, for learners that average them under the policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array
from manyarms.core.data import LoggedData
from manyarms.errors import DataTypeError
from manyarms.estimators.models import CrossFit, FittedModel, RewardModel, check_model_size
from manyarms.posterior import HurdlePosterior, RewardPosterior


@dataclass(frozen=True)
class Predicted:
    """r̂(x_i, a) = x_iᵀ θ̂_a, with a θ̂ of its own for each fold of rounds.

    Attributes:
        means: (F, K, d): θ̂ by fold.
        folds: (n,): the fold of each round.
    """

    means: Float[Array, "F K d"]
    folds: Int[Array, " n"]

    @classmethod
    def by(cls, model: RewardModel, logs: LoggedData) -> Predicted:
        """What a model predicts for these rounds; a `CrossFit` is fitted here, once, and not at every step."""
        if isinstance(model, FittedModel):
            check_model_size(model.posterior, logs)
            return cls(_linear_means(model.posterior)[None], np.zeros(len(logs), dtype=np.int64))
        if isinstance(model, CrossFit):
            check_model_size(model.prior, logs)
            folds = model.folds(logs)
            fitted = [_linear_means(model.without(logs, folds == fold)) for fold in range(model.n_folds)]
            return cls(np.stack(fitted), folds)
        raise DataTypeError(
            f"a learner needs r̂ for every action: pass what ma.fit returned or a CrossFit; got {type(model).__name__}."
        )

    def take(self, rows: slice | Int[Array, " m"]) -> Predicted:
        """For these rounds only."""
        return Predicted(self.means, self.folds[rows])

    def of_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """r̂(x_i, a) for all actions; one context a round."""
        if len(self.means) == 1:
            return contexts @ self.means[0].T
        out = np.empty((len(contexts), self.means.shape[1]))
        for fold in np.unique(self.folds):
            rows = self.folds == fold
            out[rows] = contexts[rows] @ self.means[fold].T
        return out

    def of_logged(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """r̂(x_i, a_i)."""
        return np.einsum("nd,nd->n", contexts, self.means[self.folds, actions])


def _linear_means(posterior: RewardPosterior | HurdlePosterior) -> Float[Array, "K d"]:
    """θ̂ of a model whose rewards are xᵀ θ_a."""
    if isinstance(posterior, HurdlePosterior) or not posterior.is_linear:
        raise DataTypeError("a learner needs a model with r̂(x, a) = xᵀ θ̂_a: fit it with Gaussian or StudentT rewards.")
    return posterior.weights.action_mean()
