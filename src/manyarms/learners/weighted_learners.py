"""Learners built on importance weights w_i = π(a_i | x_i) / max(π_0(a_i | x_i), clip).

Learners that weight sets of actions instead of single ones: w_i = π(A_i | x_i) / max(π_0(A_i | x_i), clip).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array, as_scalar, check_rows
from manyarms.core.eligibility import Eligibility
from manyarms.core.logged_data import LoggedData
from manyarms.errors import InputError, ShapeError
from manyarms.estimators.logging_policy import as_labels, logging_of, propensities_of
from manyarms.estimators.reward_model import RewardModel, as_model
from manyarms.estimators.set_weighted import cluster_sets, neighbourhoods
from manyarms.learners.learner import SoftmaxLearner
from manyarms.learners.objective import Criterion, Logarithm, Ratio
from manyarms.learners.training import Training
from manyarms.learners.training_rounds import ActionSets, PredictedRewards, TrainingRounds, make_training_rounds
from manyarms.linalg.indexing import shape_of


class _Weighted(SoftmaxLearner):
    """Maximises a criterion of the weights of logged actions."""

    def __init__(
        self,
        clip: float | None,
        *,
        criterion: Criterion | None = None,
        model: RewardModel | None = None,
        training: Training | None,
    ):
        super().__init__(criterion=criterion, model=model, training=training)
        self.clip = 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)

    def problem(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        propensities, _ = propensities_of(logs)
        predicted = None if self.model is None else PredictedRewards.by(self.model, logs)
        return make_training_rounds(logs, propensities, clip=self.clip, eligible=eligible, predicted=predicted)


class IPSLearner(_Weighted):
    """argmax mean of w r (paper, App. "Implementation Details of Baselines").

    Args:
        clip: A floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "IPS"

    def __init__(self, clip: float | None = None, *, training: Training | None = None):
        super().__init__(clip, training=training)


class SNIPSLearner(_Weighted):
    """argmax Σ w r / Σ w: adding a constant to all rewards changes nothing, while IPS would then avoid or seek the log.

    Args:
        clip: A floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "snIPS"

    def __init__(self, clip: float | None = None, *, training: Training | None = None):
        super().__init__(clip, criterion=Ratio(), training=training)


class DRLearner(_Weighted):
    """argmax mean of w (r - r̂(x, a)) + Σ_a π(a | x) r̂(x, a).

    Args:
        model: What `fit` returned, sDM as well as DM (Freq); or a `CrossFit`, whose folds are those of all the logs,
            rounds held out included.
        clip: A floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "DR"

    def __init__(self, model: Any, clip: float | None = None, *, training: Training | None = None):
        super().__init__(clip, model=as_model(model), training=training)


class LogarithmicSmoothingLearner(_Weighted):
    """argmax mean of log(1 + λ w r) / λ, for rewards that are not negative: caution about large weights (Sakhi et al.).

    Args:
        parameter: λ, at least 0; 0 is IPS.
        training: Optimiser, penalties, early stopping.
    """

    name = "LS"

    def __init__(self, parameter: float, *, training: Training | None = None):
        self.parameter = as_scalar("parameter", parameter, at_least=0.0)
        super().__init__(None, criterion=Logarithm(self.parameter), training=training)

    def problem(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        check_rows(
            "rewards", logs.rewards, lambda r: r >= 0, InputError, "must not be negative for logarithmic smoothing",
            "Shift the rewards, or use IPSLearner.",
        )  # fmt: skip
        return super().problem(logs, eligible)


class _SetWeighted(SoftmaxLearner):
    """argmax mean of w(x, A) r for the set A of the logged action."""

    def __init__(
        self,
        members: sparse.csr_array,
        set_of_action: Int[Array, " K"],
        clip: float | None,
        training: Training | None,
    ):
        super().__init__(training=training)
        self._members, self._set_of_action = members, set_of_action
        self.clip = 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)

    def problem(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        if len(self._set_of_action) != logs.n_actions:
            raise ShapeError(
                f"{self.name} was built for {len(self._set_of_action)} actions; the logs have {logs.n_actions}."
            )
        sets = ActionSets(self._members, self._set_of_action[logs.actions])
        partition = shape_of(self._members)[0] < logs.n_actions
        logging, _ = logging_of(logs, self._set_of_action if partition else None)
        below = logging.probability_of_sets(logs.contexts, self._members, sets.which)
        return make_training_rounds(logs, below, clip=self.clip, sets=sets, eligible=eligible)


class MIPSLearner(_SetWeighted):
    """argmax mean of π(c_i | x_i) / π_0(c_i | x_i) r_i: within a cluster it has no preference, and spreads its choice.

    π_0 of a cluster needs the logging policy as a function; where the logs have none, it is estimated.

    Args:
        clusters: (K,) a cluster each, a whole number or a text, or (K, c) categorical embeddings, whose combinations
            are the clusters.
        clip: A floor on π_0 of a cluster.
        training: Optimiser, penalties, early stopping.
    """

    name = "MIPS"

    def __init__(self, clusters: Any, clip: float | None = None, *, training: Training | None = None):
        labels = as_labels("clusters", clusters)
        super().__init__(cluster_sets(labels), labels, clip, training)


class PolicyConvolutionLearner(_SetWeighted):
    """argmax mean of π(N(a_i) | x_i) / π_0(N(a_i) | x_i) r_i, N(a) being the k actions nearest to a; k = 1 is IPS.

    π_0 of a neighbourhood needs the logging policy as a function; where the logs have none, it is estimated.

    Args:
        embeddings: (K, e) numbers; nearness is Euclidean.
        k: How many neighbours, the action itself among them.
        clip: A floor on π_0 of a neighbourhood.
        training: Optimiser, penalties, early stopping.
    """

    name = "PC"

    def __init__(self, embeddings: Any, k: int, clip: float | None = None, *, training: Training | None = None):
        members = neighbourhoods(embeddings, k)
        super().__init__(members, np.arange(shape_of(members)[0]), clip, training)
