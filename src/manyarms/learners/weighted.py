"""Learners built on importance weights w_i = π(a_i | x_i) / max(π_0(a_i | x_i), clip)."""

from __future__ import annotations

from typing import Any

from manyarms._arrays import as_scalar, check_rows
from manyarms.core.data import LoggedData
from manyarms.core.eligibility import Eligibility
from manyarms.errors import InputError
from manyarms.estimators.models import RewardModel, as_model
from manyarms.estimators.propensity import propensities_of
from manyarms.learners.base import SoftmaxLearner
from manyarms.learners.criteria import Criterion, Logarithm, Ratio
from manyarms.learners.predicted import Predicted
from manyarms.learners.problem import Problem, make_problem
from manyarms.learners.training import Training


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

    def problem(self, logs: LoggedData, eligible: Eligibility | None) -> Problem:
        propensities, _ = propensities_of(logs)
        predicted = None if self.model is None else Predicted.by(self.model, logs)
        return make_problem(logs, propensities, clip=self.clip, eligible=eligible, predicted=predicted)


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

    def problem(self, logs: LoggedData, eligible: Eligibility | None) -> Problem:
        check_rows(
            "rewards", logs.rewards, lambda r: r >= 0, InputError, "must not be negative for logarithmic smoothing",
            "Shift the rewards, or use IPSLearner.",
        )  # fmt: skip
        return super().problem(logs, eligible)
