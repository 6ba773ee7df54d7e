"""The posterior of rewards that are mostly zero: how likely a reward is, and how much it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_instance
from manyarms.core import Catalog, FeatureMap, Fingerprint, LoggedData, Method, Policy, html_facts
from manyarms.likelihoods import Likelihood
from manyarms.posterior.gaussian_posterior import GaussianPosterior, RewardFactor
from manyarms.posterior.policy_profile import PolicyProfile
from manyarms.posterior.reward_function import ProductPredictor
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
    n_factors = 2
    occurs: RewardPosterior
    amount: RewardPosterior

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

    def __repr__(self) -> str:
        return f"HurdlePosterior(occurs={self.occurs!r}, amount={self.amount!r})"

    @property
    def n_actions(self) -> int:
        """K."""
        return self.occurs.n_actions

    @property
    def dim(self) -> int:
        """d."""
        return self.occurs.dim

    @property
    def learned_from(self) -> tuple[Fingerprint, ...]:
        """The fingerprints of the rounds it has seen."""
        return self.occurs.learned_from

    @property
    def features(self) -> FeatureMap | None:
        """The map from context columns to φ(x), if the logs came with one: then contexts may be tables."""
        return self.occurs.features

    @property
    def catalog(self) -> Catalog | None:
        """The ids of the actions, if the logs came with a catalog."""
        return self.occurs.catalog

    @property
    def log_evidence(self) -> float:
        """The log evidence of both parts together."""
        return self.occurs.log_evidence + self.amount.log_evidence

    @property
    def method(self) -> Method:
        return "delta"

    @property
    def n_rounds(self) -> int:
        """How many rounds it has seen."""
        return self.occurs.n_rounds

    @property
    def converged(self) -> bool:
        """Whether the steps of both parts reached the tolerance."""
        return self.occurs.converged and self.amount.converged

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is wrong with either part, in plain words."""
        parts = {"whether there is a reward": self.occurs, "how much a reward is": self.amount}
        unknown = [question for question, part in parts.items() if len(part.seen_actions[0]) == 0]
        no_rounds = (f"no round says {question}: there the prior alone decides" for question in unknown)
        return tuple(dict.fromkeys((*self.occurs.warnings, *self.amount.warnings, *no_rounds)))

    @property
    def predictor_weights(self) -> None:
        return None

    @property
    def seen_actions(self) -> tuple[Int[Array, " m"], ...]:
        return (*self.occurs.seen_actions, *self.amount.seen_actions)

    @property
    def factors(self) -> tuple[RewardFactor, ...]:
        """The two factors of the reward: how likely, and how much."""
        return (*self.occurs.factors, *self.amount.factors)

    def factors_for(self, actions: Int[Array, " m"]) -> tuple[RewardFactor, ...]:
        return self.factors

    @property
    def expected_rewards(self) -> ProductPredictor:
        return ProductPredictor(self.occurs.predictor, self.amount.predictor)

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
        check_amounts(logs, self.amount.likelihood)
        occurs, amount = split_rounds(logs)
        return replace(self, occurs=self.occurs.update(occurs), amount=self.amount.update(amount))

    def refit(self, logs: LoggedData) -> HurdlePosterior:
        """The posterior of all these logs and no others, part by part, started from this one.

        Args:
            logs: All rounds, old and new.
        """
        check_amounts(logs, self.amount.likelihood)
        occurs, amount = split_rounds(logs)
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


def check_amounts(logs: LoggedData, amount: Likelihood) -> None:
    """Refuse rewards that are neither zero nor an amount, by the rows of the log as it was given."""
    logs = as_instance("logs", logs, LoggedData, "a LoggedData")
    # Every likelihood allows a reward of one.
    amount.check(
        np.where(logs.rewards == 0, 1.0, logs.rewards),
        logs.weights,
        "A hurdle's rewards are zero or an amount: choose another amount, as in Hurdle(Bernoulli(), Gaussian(1.0)).",
    )


def split_rounds(logs: LoggedData) -> tuple[LoggedData, LoggedData]:
    """All rounds with 1 for a reward that is not zero, and the rounds that have one."""
    return logs.with_rewards((logs.rewards != 0).astype(float)), logs.take(np.flatnonzero(logs.rewards))
