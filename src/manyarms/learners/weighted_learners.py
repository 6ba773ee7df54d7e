"""Learners that maximise estimates built on importance weights w_i = π(A_i | x_i) / max(π_0(A_i | x_i), clip).

A_i is the logged action, or a set of actions around it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array, as_scalar
from manyarms.core.eligibility import Eligibility
from manyarms.core.logged_data import LoggedData
from manyarms.estimators.importance_weighted import check_log_smoothing
from manyarms.estimators.logging_policy import as_clip, as_labels, propensities_of
from manyarms.estimators.reward_model import RewardModel, as_model
from manyarms.estimators.set_weighted import cluster_members, neighbourhood_members, set_propensities
from manyarms.learners.learner import SoftmaxLearner
from manyarms.learners.objective import Criterion, Logarithm, Ratio
from manyarms.learners.training import Training
from manyarms.learners.training_rounds import ActionSets, PredictedRewards, TrainingRounds, make_training_rounds
from manyarms.linalg.indexing import shape_of


class _ActionWeightedLearner(SoftmaxLearner):
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
        self.clip = as_clip(clip)

    def training_rounds(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        propensities, _ = propensities_of(logs)
        predicted = None if self.model is None else PredictedRewards.by(self.model, logs)
        return make_training_rounds(logs, propensities, clip=self.clip, eligible=eligible, predicted=predicted)


class IPSLearner(_ActionWeightedLearner):
    """argmax mean of w r (paper, App. "Implementation Details of Baselines").

    Args:
        clip: Floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "IPS"

    def __init__(self, clip: float | None = None, *, training: Training | None = None):
        super().__init__(clip, training=training)


class SNIPSLearner(_ActionWeightedLearner):
    """argmax Σ w r / Σ w: adding a constant to all rewards changes nothing, but makes IPS avoid or seek logged actions.

    Args:
        clip: Floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "snIPS"

    def __init__(self, clip: float | None = None, *, training: Training | None = None):
        super().__init__(clip, criterion=Ratio(), training=training)


class DRLearner(_ActionWeightedLearner):
    """argmax mean of w (r - r̂(x, a)) + Σ_a π(a | x) r̂(x, a).

    Args:
        model: A fitted posterior, whether sDM or DM (Freq). Or a `CrossFit`, whose folds are drawn over all rounds,
            held-out ones included.
        clip: Floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "DR"

    def __init__(self, model: Any, clip: float | None = None, *, training: Training | None = None):
        super().__init__(clip, model=as_model(model), training=training)


class LogarithmicSmoothingLearner(_ActionWeightedLearner):
    """argmax mean of log(1 + λ w r) / λ, for rewards that are not negative: caution about large weights (Sakhi et al.).

    Args:
        parameter: λ, at least 0; 0 is IPS.
        training: Optimiser, penalties, early stopping.
    """

    name = "LS"

    def __init__(self, parameter: float, *, training: Training | None = None):
        self.parameter = as_scalar("parameter", parameter, at_least=0.0)
        super().__init__(None, criterion=Logarithm(self.parameter), training=training)

    def training_rounds(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        check_log_smoothing(logs)
        return super().training_rounds(logs, eligible)


class _SetWeightedLearner(SoftmaxLearner):
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
        self.clip = as_clip(clip)

    def training_rounds(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        which, below, _ = set_propensities(self.name, self._members, self._set_of_action, logs)
        sets = ActionSets(self._members, which)
        return make_training_rounds(logs, below, clip=self.clip, sets=sets, eligible=eligible)


class MIPSLearner(_SetWeightedLearner):
    """argmax mean of π(c_i | x_i) / π_0(c_i | x_i) r_i: it treats all actions of a cluster alike.

    π_0 of a cluster needs a logging policy. Where the logs have none, it is estimated.

    Args:
        clusters: (K,) The cluster of each action, a whole number or a text. Or (K, c) categorical embeddings, whose
            combinations are the clusters.
        clip: Floor on π_0 of a cluster.
        training: Optimiser, penalties, early stopping.
    """

    name = "MIPS"

    def __init__(self, clusters: Any, clip: float | None = None, *, training: Training | None = None):
        labels = as_labels("clusters", clusters)
        super().__init__(cluster_members(labels), labels, clip, training)


class PolicyConvolutionLearner(_SetWeightedLearner):
    """argmax mean of π(N(a_i) | x_i) / π_0(N(a_i) | x_i) r_i, N(a) being the k actions nearest to a; k = 1 is IPS.

    π_0 of a neighbourhood needs a logging policy. Where the logs have none, it is estimated.

    Args:
        embeddings: (K, e) Coordinates of the actions; distances are Euclidean.
        k: The number of neighbours, the action itself among them.
        clip: Floor on π_0 of a neighbourhood.
        training: Optimiser, penalties, early stopping.
    """

    name = "PC"

    def __init__(self, embeddings: Any, k: int, clip: float | None = None, *, training: Training | None = None):
        members = neighbourhood_members(embeddings, k)
        super().__init__(members, np.arange(shape_of(members)[0]), clip, training)
