"""What every learner does: logs in, a policy out.

The direct method as a learner: believe first, choose after.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool

from manyarms._base.checks import Array, as_instance
from manyarms.core.eligibility import Eligibility, as_eligibility
from manyarms.core.fingerprint import Fingerprint
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
from manyarms.policies.linear_softmax import LinearSoftmax
from manyarms.posterior import RewardPosterior, fit


class Learner(ABC):
    """Makes a policy of logged rounds. A new learner implements `learn`; `name` is what a table calls it."""

    name: str

    @abstractmethod
    def learn(self, logs: LoggedData, *, eligible: Any = None) -> Policy:
        """A policy for contexts like the logged ones; it remembers which rounds it was learned from.

        Args:
            logs: Logged rounds.
            eligible: Which actions could be chosen in each round; None for all.
        """


class SoftmaxLearner(Learner):
    """argmax over β of an estimate of the value of π(a | x) ∝ exp(xᵀ β_a), plus penalties (see `Training`).

    A new learner of this kind says what its importance weights divide by (`problem`), and what becomes of the weights
    (`criterion`). The search begins at the uniform policy.

    Args:
        criterion: F.
        model: A reward model, or None.
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
    def problem(self, logs: LoggedData, eligible: Eligibility | None) -> TrainingRounds:
        """The rounds with what their weights divide by; arguments are checked already."""

    def learn(self, logs: LoggedData, *, eligible: Any = None) -> LinearSoftmax:
        """The policy found, as a `LinearSoftmax`.

        Args:
            logs: Logged rounds. Propensities that they lack come from their logging policy, or are estimated.
            eligible: Which actions could be chosen in each round; None for all. Sets that differ by round are held
                for all rounds at once, as one sparse matrix.
        """
        problem = self._checked_problem(logs, eligible)
        units = None if logs.groups is None else logs.groups[counted_rows(logs)]
        weights = self.training.weights_for(problem, self.criterion, units)
        return LinearSoftmax(weights, learned_from=self._sources(logs), features=logs.features, catalog=logs.catalog)

    def objective(self, policy: LinearSoftmax, logs: LoggedData, *, eligible: Any = None) -> float:
        """The estimate that is maximised, without penalties, for any policy of the family.

        Args:
            policy: What to judge.
            logs: Logged rounds.
            eligible: Which actions could be chosen in each round; None for all.
        """
        if (policy.n_actions, policy.dim) != (logs.n_actions, logs.dim):
            raise ShapeError(
                f"policy has {policy.n_actions} actions in {policy.dim} dimensions; "
                f"the logs have {logs.n_actions} in {logs.dim}."
            )
        return Objective(self._checked_problem(logs, eligible), self.criterion).value(policy.weights)

    def _checked_problem(self, logs: LoggedData, eligible: Any) -> TrainingRounds:
        if len(logs) == 0:
            raise InputError("nothing can be learned from an empty log.")
        problem = self.problem(logs, as_eligibility(eligible, len(logs), logs.n_actions))
        if problem.eligible is not None:
            allowed = problem.eligible.members[problem.eligible.which, problem.actions]
            self._check_logged(np.asarray(allowed).reshape(-1) > 0, problem, logs)
        return problem

    def _check_logged(self, fine: Bool[Array, " m"], problem: TrainingRounds, logs: LoggedData) -> None:
        """Refuse eligible sets that leave the objective flat, or without a bound below.

        Args:
            fine: (m,) whether the logged action may be chosen in its own round, for the rounds that count.
            problem: These rounds.
            logs: All rounds.
        """
        if not fine.any() and problem.sets is None and problem.predicted is None:
            raise EligibilityError("all weights are zero: no logged action is eligible in its own round.")
        if self.training.imitation > 0 and not fine.all():
            row = counted_rows(logs)[np.argmin(fine)]
            raise EligibilityError(
                f"the action logged in row {row} is not eligible there, so it cannot be imitated. "
                "Leave such rows out, or set imitation to 0."
            )

    def _sources(self, logs: LoggedData) -> tuple[Fingerprint, ...]:
        return (logs.fingerprint, *(() if self.model is None else self.model.learned_from))


class DMLearner(Learner):
    """The policy that a posterior recommends: sDM, DM (Bayes) or DM (Freq), according to the prior.

    Args:
        prior: Structured (sDM), `prior.marginal()` (DM Bayes) or `priors.ridge` (DM Freq).
        likelihood: How rewards arise; by default `Gaussian(noise_std=1.0)`.
        policy: From posterior to policy; by default the action with the highest expected reward. For caution, pass
            `Pessimistic`.
        name: What to call it in a table.
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
        """Fit, and choose by the posterior.

        Args:
            logs: Logged rounds.
            eligible: Not needed: what could be chosen says nothing of rewards. Pass it to the policy when it chooses.
        """
        return self.policy(fit(logs, self.prior, self.likelihood))
