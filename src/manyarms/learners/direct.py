"""The direct method as a learner: believe first, choose after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manyarms._arrays import as_instance
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.policy import Policy
from manyarms.learners.base import Learner
from manyarms.likelihoods import Gaussian
from manyarms.policies import Greedy
from manyarms.posterior import RewardPosterior, fit


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
