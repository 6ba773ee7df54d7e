"""The base classes of learners, which turn logged rounds into a policy; and the direct method as a learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool

from manyarms._base.checks import Array, as_instance
from manyarms.core.eligibility import Eligibility, as_eligibility
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.errors import EligibilityError, InputError, ShapeError
from manyarms.estimators.reward_model import RewardModel
from manyarms.learners.objective import Criterion, Mean, Objective
from manyarms.learners.training import Training
from manyarms.learners.training_rounds import TrainingRounds, counted_rows
from manyarms.likelihoods import Gaussian
from manyarms.policies import Greedy
from manyarms.policies.scored_policy import LinearSoftmax
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
        criterion: F, the function of the weights that is maximised.
        model: A reward model; None for no model.
        training: Optimiser, penalties, early stopping.
    """

    def __init__(
        self,
        *,
        criterion: Criterion | None = None,
        model: RewardModel | None = None,
        training: Training | None = None,
    ):
        self.criterion = Mean() if criterion is None else criterion
        self.model = model
        self.training = as_instance("training", training or Training(), Training, "a Training")

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
        """The estimate that is maximised, without penalties, for any policy of the family.

        Args:
            policy: The policy to evaluate.
            logs: Logged rounds.
            eligible: The actions that could be chosen in each round; None for all.
        """
        if (policy.n_actions, policy.dim) != (logs.n_actions, logs.dim):
            raise ShapeError(
                f"has {policy.n_actions} actions in {policy.dim} dimensions; "
                f"the logs have {logs.n_actions} in {logs.dim}.",
                argument="policy",
            )
        return Objective(self._checked_rounds(logs, eligible), self.criterion).value(policy.weights)

    def _checked_rounds(self, logs: LoggedData, eligible: Any) -> TrainingRounds:
        if len(logs) == 0:
            raise InputError("nothing can be learned from an empty log.")
        rounds = self.training_rounds(logs, as_eligibility(eligible, len(logs), logs.n_actions))
        if rounds.eligible is not None:
            allowed = rounds.eligible.members[rounds.eligible.which, rounds.actions]
            self._check_eligible(np.asarray(allowed).reshape(-1) > 0, rounds, logs)
        return rounds

    def _check_eligible(self, allowed: Bool[Array, " m"], rounds: TrainingRounds, logs: LoggedData) -> None:
        """Refuse eligible sets that leave the objective flat, or unbounded below.

        Args:
            allowed: (m,) True where the logged action is eligible in its own round.
            rounds: The m rounds with a weight above zero.
            logs: All rounds.
        """
        if not allowed.any() and rounds.sets is None and rounds.predicted is None:
            raise EligibilityError("all weights are zero: no logged action is eligible in its own round.")
        if self.training.imitation > 0 and not allowed.all():
            row = counted_rows(logs)[np.argmin(allowed)]
            raise EligibilityError(
                f"the action logged in row {row} is not eligible there, so it cannot be imitated.",
                "Leave such rows out, or set imitation to 0.",
            )


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
        self.policy, self.name = policy, name

    def learn(self, logs: LoggedData, *, eligible: Any = None) -> Policy:
        """Fit a posterior, and choose by it.

        Args:
            logs: Logged rounds.
            eligible: Not used: which actions could be chosen has no bearing on rewards. Pass it to the learned policy.
        """
        return self.policy(fit(logs, self.prior, self.likelihood))
