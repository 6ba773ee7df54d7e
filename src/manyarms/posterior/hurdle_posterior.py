"""Rewards that are mostly zero: whether there is one, and how much it is, each with a posterior of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_actions, as_instance, check_overflow
from manyarms.core.catalog import Catalog
from manyarms.core.estimate import Method
from manyarms.core.feature_map import FeatureMap, as_contexts
from manyarms.core.fingerprint import Fingerprint
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy, with_own_features
from manyarms.core.result_tables import html_facts
from manyarms.errors import ShapeError
from manyarms.likelihoods import Likelihood
from manyarms.posterior.policy_profile import Masses
from manyarms.posterior.posterior import Part, Posterior
from manyarms.posterior.reward_posterior import RewardPosterior
from manyarms.posterior.reward_predictor import ProductPredictor


@dataclass(frozen=True, eq=False)
class HurdlePosterior(Posterior):
    """r(x, a) = P(r > 0 | x, a) E[r | r > 0, x, a]: what `fit` returns with a `Hurdle`.

    The two parts have weights of their own, independent in the prior and so in the posterior: rounds without a reward
    say nothing of its size.

    Attributes:
        occurs: The posterior of whether there is a reward, from all rounds.
        amount: The posterior of how much it is, from the rounds that have one.
    """

    saved_as = "hurdle posterior"
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
        return html_facts("HurdlePosterior", facts, self.all_warnings)

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
        """Which rounds it has seen."""
        return self.occurs.learned_from

    @property
    def features(self) -> FeatureMap | None:
        """From context columns to φ(x), when the logs came with a map: then contexts may be tables."""
        return self.occurs.features

    @property
    def catalog(self) -> Catalog | None:
        """What actions are called, when the logs came with a catalog."""
        return self.occurs.catalog

    @property
    def log_evidence(self) -> float:
        """That of both parts."""
        return self.occurs.log_evidence + self.amount.log_evidence

    @property
    def is_linear(self) -> bool:
        """A product never is."""
        return False

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*self.occurs.parts, *self.amount.parts)

    @property
    def factors(self) -> tuple[tuple[HierarchicalGaussian, Likelihood], ...]:
        return (*self.occurs.factors, *self.amount.factors)

    @property
    def method(self) -> Method:
        return "delta"

    @property
    def converged(self) -> bool:
        """Whether the steps of both parts came to an end."""
        return self.occurs.converged and self.amount.converged

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with either part, in plain words."""
        return tuple(dict.fromkeys((*self.occurs.warnings, *self.amount.warnings, *self._unknown)))

    @property
    def all_warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.occurs.all_warnings, *self.amount.all_warnings, *self._unknown)))

    @property
    def _unknown(self) -> tuple[str, ...]:
        said = {"whether there is a reward": self.occurs, "how much a reward is": self.amount}
        empty = [what for what, part in said.items() if len(part.weights.observed.actions) == 0]
        return tuple(f"no round says {what}: there the prior alone decides" for what in empty)

    @cached_property
    def predictor(self) -> ProductPredictor:
        """Expected rewards of pairs and tiles."""
        return ProductPredictor(self.occurs.predictor, self.amount.predictor)

    def expected_reward(self, contexts: Any, actions: Any = None) -> Float[Array, "n K"] | Float[Array, " n"]:
        """E r(x, a): for one action a row, or the n x K array for all when `actions` is None."""
        return self.occurs.expected_reward(contexts, actions) * self.amount.expected_reward(contexts, actions)

    def reward_std(self, contexts: Any, actions: Any) -> Float[Array, " n"]:
        """Posterior standard deviation of r(x_i, a_i), one action a row.

        Var pq = q² Var p + p² Var q + Var p Var q, the parts being independent; each of theirs by the delta method.
        """
        x = as_contexts(contexts, self.features, columns=self.dim)
        actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(x))
        first, second = (part.expected_reward(x, actions) for part in (self.occurs, self.amount))
        spread = [part.reward_std(x, actions) for part in (self.occurs, self.amount)]
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.hypot(np.hypot(spread[0] * second, spread[1] * first), spread[0] * spread[1])
        return check_overflow("reward_std", std)

    def profile_parts(
        self, policy: Policy, contexts: Any, eligible: Any, weights: Any, name: str = "policy"
    ) -> tuple[Masses, Float[Array, " n"]]:
        policy = with_own_features(as_instance(name, policy, Policy, "a policy"), contexts, self.features, name)
        if policy.n_actions != self.n_actions:
            raise ShapeError(f"{name} has {policy.n_actions} actions; the posterior has {self.n_actions}.")
        x = as_contexts(contexts, self.features, columns=self.dim)
        return self.predictor.profile(policy, x, eligible, weights)

    def update(self, logs: LoggedData) -> HurdlePosterior:
        """The posterior given more logs, part by part."""
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
