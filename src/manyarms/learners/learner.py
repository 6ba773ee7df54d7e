"""Learners, which turn logged rounds into a policy: the direct method, and those that maximise a weighted estimate.

Weights are w_i = π(A_i | x_i) / max(π_0(A_i | x_i), clip). A_i is the logged action, or a set of actions around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from manyarms._base.checks import as_instance, as_scalar, as_text, check_callable, row_weights
from manyarms.core import Eligibility, HierarchicalGaussian, LoggedData, Policy, as_eligibility
from manyarms.errors import EligibilityError, InputError, ShapeError
from manyarms.estimators.importance_weighted import check_log_smoothing
from manyarms.estimators.logging_policy import as_clip, propensities_of
from manyarms.estimators.reward_model import RewardModel, as_model
from manyarms.estimators.set_weighted import ActionSets, cluster_sets, neighbourhood_sets, set_propensities
from manyarms.learners.objective import Criterion, Logarithm, Mean, Ratio
from manyarms.learners.training import Training
from manyarms.learners.training_rounds import PredictedRewards, TrainingRounds, counted_rows, eligible_sets
from manyarms.likelihoods import Gaussian
from manyarms.policies import Greedy
from manyarms.policies.softmax import LinearSoftmax
from manyarms.posterior import RewardPosterior, fit


class Learner(ABC):
    """Learns a policy from logged rounds. A new learner implements `learn` and sets `name`, which tables use."""

    name: str

    @abstractmethod
    def learn(self, logs: LoggedData, *, eligible: Any = None) -> Policy:
        """A policy for contexts like the logged ones. It remembers which rounds it was learned from.

        Args:
            logs: Logged rounds.
            eligible: The actions that could be chosen in each round; None for all.
        """


class SoftmaxLearner(Learner):
    """argmax over β of an estimate of the value of π(a | x) ∝ exp(xᵀ β_a), plus penalties (see `Training`).

    A new learner of this kind defines the denominators of its importance weights (`training_rounds`), and the function
    of the weights to maximise (`criterion`). The search begins at the uniform policy.

    Args:
        training: Optimiser, penalties, early stopping.

    Attributes:
        criterion: F, the function of the weights that is maximised.
        model: A reward model; None for no model.
    """

    criterion: Criterion = Mean()
    model: RewardModel | None = None

    def __init__(self, training: Training | None = None):
        self.training = as_instance("training", Training() if training is None else training, Training, "a Training")

    @abstractmethod
    def training_rounds(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        """The rounds with the denominators of their weights. The arguments are already checked."""

    def learn(self, logs: LoggedData, *, eligible: Any = None) -> LinearSoftmax:
        """The best policy found.

        Args:
            logs: Logged rounds. Missing propensities come from the logging policy, or are estimated.
            eligible: The actions that could be chosen in each round; None for all. Sets that differ by round are held
                for all rounds at once, as one sparse matrix.
        """
        rounds = self._checked_rounds(logs, eligible)
        units = None if logs.groups is None else logs.groups[counted_rows(logs)]
        weights = self.training.weights_for(rounds, self.criterion, units)
        sources = (logs.fingerprint, *(() if self.model is None else self.model.learned_from))
        return LinearSoftmax(weights, learned_from=sources, features=logs.features, catalog=logs.catalog)

    def objective(self, policy: LinearSoftmax, logs: LoggedData, *, eligible: Any = None) -> float:
        """The estimate that `learn` maximises, without penalties, for any policy of the family."""
        as_instance("policy", policy, LinearSoftmax, "a LinearSoftmax")
        as_instance("logs", logs, LoggedData, "a LoggedData")
        if (policy.n_actions, policy.dim) != (logs.n_actions, logs.dim):
            raise ShapeError(
                f"has {policy.n_actions} actions in {policy.dim} dimensions; "
                f"the logs have {logs.n_actions} in {logs.dim}.",
                argument="policy",
            )
        return self.training.estimate(self._checked_rounds(logs, eligible), self.criterion).value(policy.weights)

    def _checked_rounds(self, logs: LoggedData, eligible: Any) -> TrainingRounds:
        """The rounds, refused when eligible sets leave the objective flat, or unbounded below."""
        as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
        if len(logs) == 0:
            raise InputError("nothing can be learned from an empty log.")
        rounds = self.training_rounds(logs, as_eligibility(eligible, len(logs), logs.n_actions))
        if rounds.eligible is None:
            return rounds
        allowed = np.asarray(rounds.eligible.members[rounds.eligible.which, rounds.actions]).reshape(-1) > 0
        if not allowed.any() and rounds.sets is None and rounds.predicted is None:
            raise EligibilityError("all weights are zero: no logged action is eligible in its own round.")
        if self.training.imitation > 0 and not allowed.all():
            row = counted_rows(logs)[np.argmin(allowed)]
            raise EligibilityError(
                f"the action logged in row {row} is not eligible there, so it cannot be imitated.",
                "Leave such rows out, or set imitation to 0.",
            )
        return rounds


class WeightedLearner(SoftmaxLearner):
    """Maximises a criterion of the weights of logged actions, or of their sets."""

    sets: ActionSets | None = None
    """(K,) The set of each action; None when weights are those of single actions."""

    def __init__(self, clip: float | None = None, *, training: Training | None = None):
        super().__init__(training)
        self.clip = as_clip(clip)

    def training_rounds(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        if self.sets is None:
            propensities, sets = propensities_of(logs)[0], None
        else:
            sets, propensities, _ = set_propensities(self.name, self.sets, logs)
        predicted = None if self.model is None else PredictedRewards.by(self.model, logs)
        below = np.maximum(propensities, self.clip)
        kept = counted_rows(logs)
        if below[kept].min() <= 0:
            row = int(kept[np.argmin(below[kept])])
            raise InputError(
                f"the logging policy gives probability zero to what it logged in row {row}.",
                "Check logging_policy and eligible, or pass clip.",
            )
        rounds = TrainingRounds(
            logs.contexts,
            logs.actions,
            logs.rewards if predicted is None else logs.rewards - predicted.of_logged(logs.contexts, logs.actions),
            below,
            row_weights(logs.weights, len(logs)),
            logs.n_actions,
            sets,
            None if eligible is None else eligible_sets(eligible),
            predicted,
        )
        return rounds if len(kept) == len(logs) else rounds.take(kept)


class IPSLearner(WeightedLearner):
    """argmax mean of w r (paper, App. "Implementation Details of Baselines").

    Args:
        clip: Floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "IPS"


class SNIPSLearner(IPSLearner):
    """argmax Σ w r / Σ w: a constant on all rewards changes nothing, but makes IPS avoid or seek logged actions."""

    name = "snIPS"
    criterion = Ratio()


class DRLearner(WeightedLearner):
    """argmax mean of w (r - r̂(x, a)) + Σ_a π(a | x) r̂(x, a).

    Args:
        model: A fitted posterior, whether sDM or DM (Freq). Or a `CrossFit`, whose folds are drawn over all rounds,
            held-out ones included.
        clip: Floor on the propensity.
        training: Optimiser, penalties, early stopping.
    """

    name = "DR"

    def __init__(self, model: Any, clip: float | None = None, *, training: Training | None = None):
        super().__init__(clip, training=training)
        self.model = as_model(model)


class LogarithmicSmoothingLearner(WeightedLearner):
    """argmax mean of log(1 + λ w r) / λ, for rewards that are not negative: caution about large weights (Sakhi et al.).

    Args:
        parameter: λ, at least 0; 0 is IPS.
        training: Optimiser, penalties, early stopping.
    """

    name = "LS"

    def __init__(self, parameter: float, *, training: Training | None = None):
        super().__init__(training=training)
        self.parameter = as_scalar("parameter", parameter, at_least=0.0)
        self.criterion = Logarithm(self.parameter)

    def training_rounds(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        check_log_smoothing(logs)
        return super().training_rounds(logs, eligible)


class MIPSLearner(WeightedLearner):
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
        super().__init__(clip, training=training)
        self.sets = cluster_sets(clusters)


class PolicyConvolutionLearner(WeightedLearner):
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
        super().__init__(clip, training=training)
        self.sets = neighbourhood_sets(embeddings, k)


class DMLearner(Learner):
    """The policy that a posterior recommends: sDM, DM (Bayes) or DM (Freq), according to the prior.

    Args:
        prior: Structured (sDM), `prior.marginal()` (DM Bayes) or `priors.ridge` (DM Freq).
        likelihood: The likelihood of the rewards; by default `Gaussian(noise_std=1.0)`.
        policy: Function from posterior to policy; by default `Greedy`, the action with the highest expected reward.
            For caution, pass `Pessimistic`.
        name: The name that tables use.
    """

    def __init__(
        self,
        prior: HierarchicalGaussian,
        likelihood: Gaussian | None = None,
        *,
        policy: Callable[[RewardPosterior], Policy] = Greedy,
        name: str = "DM",
    ):
        self.prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
        self.likelihood = likelihood
        check_callable("policy", policy)
        self.policy, self.name = policy, as_text("name", name)

    def learn(self, logs: LoggedData, *, eligible: Any = None) -> Policy:
        """Fit a posterior, and choose by it.

        Args:
            logs: Logged rounds.
            eligible: Not used: which actions could be chosen has no bearing on rewards. Pass it to the learned policy.
        """
        return self.policy(fit(logs, self.prior, self.likelihood))
