"""The posterior of rewards that are mostly zero: how likely a reward is, and how much it is."""

# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_instance
from manyarms.core import Catalog, LoggedData, Method, Policy, html_facts
from manyarms.likelihoods import Likelihood
from manyarms.model_file.part_checks import PartCheck, instance_of
from manyarms.posterior.action_scores import Predictor
from manyarms.posterior.gaussian_posterior import GaussianPosterior, RewardFactor
from manyarms.posterior.policy_profile import PolicyProfile
from manyarms.posterior.posterior import same_as
from manyarms.posterior.reward_posterior import RewardPosterior


@dataclass(frozen=True, eq=False)
class HurdlePosterior(GaussianPosterior):
    """r(x, a) = P(r > 0 | x, a) E[r | r > 0, x, a]: the posterior that `fit` returns with a `Hurdle`.

    The two parts have separate weights, independent in the prior and so in the posterior: rounds without a reward say
    nothing of its size.

    Attributes:
        occurs: The posterior of whether there is a reward, from all rounds.
        amount: The posterior of how much it is, from the rounds that have one.
    """

    saved_as = "hurdle posterior"
    saved_checks: ClassVar[Mapping[str, PartCheck]] = {
        "occurs": instance_of(RewardPosterior),
        "amount": instance_of(RewardPosterior),
    }
    n_factors = 2
    occurs: RewardPosterior
    amount: RewardPosterior
    method: ClassVar[Method] = "delta"
    n_actions = same_as("occurs.n_actions")
    dim = same_as("occurs.dim")
    n_rounds = same_as("occurs.n_rounds")
    learned_from = same_as("occurs.learned_from")
    features = same_as("occurs.features")
    catalog = same_as("occurs.catalog")

    def _repr_html_(self) -> str:
        facts = {
            "actions": self.occurs.n_actions,
            "rounds": self.occurs.statistics.n_rounds,
            "of them with a reward": self.amount.statistics.n_rounds,
            "whether there is a reward": str(self.occurs.likelihood),
            "how much it is": str(self.amount.likelihood),
            "log evidence": self.occurs.log_evidence + self.amount.log_evidence,
        }
        return html_facts("HurdlePosterior", facts, self.warnings)

    def consistent(self) -> bool:
        """True if both parts are of the same actions and features."""
        return (self.occurs.n_actions, self.occurs.dim) == (self.amount.n_actions, self.amount.dim)

    def __repr__(self) -> str:
        return f"HurdlePosterior(occurs={self.occurs!r}, amount={self.amount!r})"

    @property
    def log_evidence(self) -> float:
        """The log evidence of both parts together."""
        return self.occurs.log_evidence + self.amount.log_evidence

    @property
    def converged(self) -> bool:
        """True when the steps of both parts reached the tolerance."""
        return self.occurs.converged and self.amount.converged

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is wrong with either part, in plain words."""
        parts = {"whether there is a reward": self.occurs, "how much a reward is": self.amount}
        unknown = [question for question, part in parts.items() if len(part.seen_actions[0]) == 0]
        no_rounds = (f"no round says {question}: there the prior alone decides" for question in unknown)
        return tuple(dict.fromkeys((*self.occurs.warnings, *self.amount.warnings, *no_rounds)))

    @property
    def seen_actions(self) -> tuple[Int[Array, " m"], ...]:
        return (*self.occurs.seen_actions, *self.amount.seen_actions)

    @property
    def factors(self) -> tuple[RewardFactor, ...]:
        """The two factors of the reward: how likely, and how much."""
        return (*self.occurs.factors, *self.amount.factors)

    def factors_for(self, actions: Int[Array, " m"]) -> tuple[RewardFactor, ...]:
        return self.factors

    @cached_property
    def expected_rewards(self) -> Predictor:
        return Predictor(self.occurs.weights, self.occurs.likelihood, times=self.amount.predictor)

    def pair_std(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        # Var pq = q² Var p + p² Var q + Var p Var q, as the parts are independent; each of theirs by the delta method.
        first, second = (part.expected_reward(contexts, actions) for part in (self.occurs, self.amount))
        spread = [part.reward_std(contexts, actions) for part in (self.occurs, self.amount)]
        return np.hypot(np.hypot(spread[0] * second, spread[1] * first), spread[0] * spread[1])

    def collect(self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any) -> PolicyProfile:
        return PolicyProfile(*self.expected_rewards.profile(policy, contexts, eligible, weights))

    def update(self, logs: LoggedData) -> HurdlePosterior:
        """The posterior given more logs, part by part.

        Args:
            logs: New rounds.
        """
        occurs, amount = split_rounds(logs, self.amount.likelihood)
        return replace(self, occurs=self.occurs.update(occurs), amount=self.amount.update(amount))

    def refit(self, logs: LoggedData) -> HurdlePosterior:
        """The posterior of all these logs and no others, part by part, started from this one.

        Args:
            logs: All rounds, old and new.
        """
        occurs, amount = split_rounds(logs, self.amount.likelihood)
        return replace(self, occurs=self.occurs.refit(occurs), amount=self.amount.refit(amount))

    def with_actions(
        self, mixing: Any, action_cov: Any = None, offset: Any = None, *, catalog: Catalog | None = None
    ) -> HurdlePosterior:
        """New actions after the existing ones, the same in both parts; see `RewardPosterior.with_actions`.

        Where the parts differ: `dataclasses.replace(posterior, occurs=..., amount=...)` with new actions in each.
        """
        occurs, amount = (
            part.with_actions(mixing, action_cov, offset, catalog=catalog) for part in (self.occurs, self.amount)
        )
        return replace(self, occurs=occurs, amount=amount)


def split_rounds(logs: LoggedData, amount: Likelihood) -> tuple[LoggedData, LoggedData]:
    """The rounds of each part of a hurdle posterior: all, with 1 where a reward is not zero, and those with an amount.

    Rewards that are neither zero nor an amount are refused here, by the rows of the log as it was given.
    """
    logs = as_instance("logs", logs, LoggedData, "a LoggedData")
    # Every likelihood allows a reward of one.
    amount.check(
        np.where(logs.rewards == 0, 1.0, logs.rewards),
        logs.weights,
        "A hurdle's rewards are zero or an amount: choose another amount, as in Hurdle(Bernoulli(), Gaussian(1.0)).",
    )
    return logs.with_rewards((logs.rewards != 0).astype(float)), logs.take(np.flatnonzero(logs.rewards))
