"""Guardrails: other goals that a policy must not harm by more than a stated amount, with a stated probability.

A guardrail has its own reward in every logged round, such as returns. Its change is estimated as the gain is: by a
model of that reward, corrected with the rewards of these rounds (`Checked`). Known costs per action need no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr

from manyarms._base.checks import Array, as_flag, as_instance, as_scalar, as_text, as_vector, check_choice, row_weights
from manyarms.core import Estimate, LoggedData, Policy
from manyarms.core.estimate import NormalMixture
from manyarms.core.result_tables import number, percent_in_words, required_percent, signed_number, signed_percent
from manyarms.errors import InputError
from manyarms.estimators.checked_value import Checked, pooled_difference
from manyarms.jobs.evaluate import SwappedHalf
from manyarms.likelihoods import Likelihood
from manyarms.policies import Logged
from manyarms.posterior import RewardPosterior
from manyarms.posterior.policy_profile import mean_variance
from manyarms.posterior.posterior import Posterior
from manyarms.prior_learning.learn_prior import learn_prior
from manyarms.priors import independent

Better = Literal["higher", "lower"]
"""Which values of a goal are better."""


@dataclass(frozen=True, eq=False)
class Guardrail:
    """A goal that a policy must not harm: "returns at most 1 % worse, with 95 % probability".

    Attributes:
        name: The name of the goal, in sentences and tables.
        rewards: (n,) The reward of this goal in each round of the logs. None if `costs` are given.
        at_most_worse: How much worse a policy may be than the current one, as a share of the current mean: 0.01 is 1 %.
        sure: The probability with which that must hold.
        better: "higher" if high rewards are good, as for a margin; "lower" if they are bad, as for returns.
        absolute: True if `at_most_worse` is in the unit of the rewards, and not a share.
        costs: (K,) A known cost, or another known number, of each action, instead of logged rewards.
        likelihood: The likelihood of the rewards; by default Gaussian noise of learned size, also for rewards of 0 and
            1: the rewards of the log correct the model.
        posterior: A model of this reward, ideally of other rounds. None to learn one.
    """

    name: str
    rewards: Any = None
    at_most_worse: float = 0.0
    sure: float = 0.95
    better: Better = "higher"
    absolute: bool = False
    costs: Any = None
    likelihood: Likelihood | None = None
    posterior: Posterior | None = None

    def __post_init__(self) -> None:
        as_text("name", self.name)
        as_scalar("at_most_worse", self.at_most_worse, at_least=0.0)
        as_scalar("sure", self.sure, above=0.0, below=1.0)
        check_choice("better", self.better, ("higher", "lower"))
        as_flag("absolute", self.absolute)
        if (self.rewards is None) == (self.costs is None):
            raise InputError(f"{self.name} needs either rewards per round or costs per action, and not both.")
        for name in ("rewards", "costs"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_vector(f"{name} of {self.name}", getattr(self, name)))
        kinds = (("likelihood", Likelihood, "a likelihood"), ("posterior", Posterior, "a fitted posterior"))
        for name, kind, words in kinds:
            if getattr(self, name) is not None:
                as_instance(name, getattr(self, name), kind, words)

    @property
    def sign(self) -> float:
        """1 if higher is better, else -1."""
        return 1.0 if self.better == "higher" else -1.0


@dataclass(frozen=True)
class GuardrailResult:
    """One policy against one guardrail.

    Attributes:
        name: The goal.
        policy: The policy.
        current: The mean reward of the goal under the current policy.
        change: The value of the goal under the policy minus that under the current one.
        limit: The largest change for the worse that is allowed, in the unit of the reward.
        probability: The probability that the change keeps to the limit.
        sure: The probability that is needed.
        better: Which values of the goal are better.
        variance: The variance of single rewards of the goal; None where costs are known.
    """

    name: str
    policy: str
    current: float
    change: Estimate
    limit: float
    probability: float
    sure: float
    better: Better
    variance: float | None = None

    @property
    def distance(self) -> float:
        """The distance of the estimated change from the limit, negative where it exceeds it."""
        return (1.0 if self.better == "higher" else -1.0) * self.change.value + self.limit

    @property
    def holds(self) -> bool:
        """True if the change keeps to the limit with the needed probability."""
        return self.probability >= self.sure

    @property
    def is_broken(self) -> bool:
        """True if the change exceeds the limit with the needed probability."""
        return self.probability <= 1.0 - self.sure

    @property
    def sentence(self) -> str:
        """The change, its interval, and whether it keeps to the limit."""
        low, high = self.change.interval()
        scale = abs(self.current)
        write = signed_number if scale == 0 else lambda value: signed_percent(value / scale)
        worst = write(-self.limit if self.better == "higher" else self.limit)
        return (
            f"the change in {self.name} is {write(self.change.value)} (95 % interval {write(low)} to {write(high)}). "
            f"It stays within the limit of {worst} with probability {percent_in_words(self.probability)}; "
            f"{required_percent(self.sure)} is needed"
        )


@dataclass(frozen=True)
class HeldOutPart:
    """Rounds to evaluate on, and those that a guardrail's model may be learned from.

    Attributes:
        policies: The policies to evaluate on them.
        logs: The rounds to evaluate on.
        rows: Their places among the rounds that the guardrails were given for.
        training: Rounds to learn from, without any of `logs`; None if there are none.
        training_rows: The places of those.
    """

    policies: Mapping[str, Policy]
    logs: LoggedData
    rows: Array
    training: LoggedData | None = None
    training_rows: Array | None = None


def held_out_parts(
    policies: Mapping[str, Policy], logs: LoggedData, whole: LoggedData, swapped: SwappedHalf | None
) -> list[HeldOutPart]:
    """The rounds to evaluate guardrails on: all of them, or those of a log that the policies were not learned from."""
    if logs is whole:
        return [HeldOutPart(policies, logs, np.arange(len(logs)))]
    order = np.argsort(whole.rows, kind="stable")
    rows = order[np.searchsorted(whole.rows[order], logs.rows)]
    others = np.setdiff1d(np.arange(len(whole)), rows)
    parts = [HeldOutPart(policies, logs, rows, whole.take(others), others)]
    if swapped is not None:
        theirs = order[np.searchsorted(whole.rows[order], swapped.logs.rows)]
        parts.append(HeldOutPart(swapped.policies, swapped.logs, theirs, logs, rows))
    return parts


def check_guardrails(
    guardrails: Sequence[Guardrail], parts: Sequence[HeldOutPart], n_rounds: int, posterior: Posterior | None
) -> tuple[GuardrailResult, ...]:
    """Every policy against every guardrail.

    Args:
        guardrails: The guardrails.
        parts: The rounds to evaluate on; two parts if halves of a log were swapped.
        n_rounds: The number of rounds that the guardrails were given for.
        posterior: The model of the main reward; that of a guardrail has the same structure, where it can.
    """
    results = list[GuardrailResult]()
    for guardrail in as_instance("guardrails", guardrails, Sequence, "a list of guardrails"):
        as_instance("guardrails", guardrail, Guardrail, "ma.Guardrail(...)")
        change = _known_change if guardrail.costs is not None else _learned_change
        results += change(guardrail, parts, n_rounds, posterior)
    names = [guardrail.name for guardrail in guardrails]
    if len(set(names)) < len(names):
        raise InputError("must have different names.", argument="guardrails")
    return tuple(results)


def _learned_change(
    guardrail: Guardrail, parts: Sequence[HeldOutPart], n_rounds: int, posterior: Posterior | None
) -> list[GuardrailResult]:
    """The change of a goal whose rewards were logged."""
    rewards = as_vector(f"rewards of {guardrail.name}", guardrail.rewards, length=n_rounds)
    rounds = [part.logs.with_rewards(rewards[part.rows]) for part in parts]
    checks = [
        Checked(_model(guardrail, part, own, rewards, posterior)) for part, own in zip(parts, rounds, strict=True)
    ]
    weights = np.concatenate([row_weights(own.weights, len(own)) for own in rounds])
    observed = np.concatenate([own.rewards for own in rounds])
    current = float(np.average(observed, weights=weights))
    variance = float(np.average((observed - current) ** 2, weights=weights))
    results = list[GuardrailResult]()
    for name in parts[0].policies:
        sides = [
            (check, part.policies[name], Logged(own), own)
            for check, part, own in zip(checks, parts, rounds, strict=True)
        ]
        check, policy, baseline, own = sides[0]
        change = check.difference(policy, baseline, own) if len(sides) == 1 else pooled_difference(sides)
        results.append(replace(_judged(guardrail, name, current, change), variance=variance))
    return results


def _model(
    guardrail: Guardrail, part: HeldOutPart, own: LoggedData, rewards: Array, posterior: Posterior | None
) -> Posterior:
    """The model of a goal. Without other rounds to learn from, `Checked` fits it again without those it predicts."""
    if guardrail.posterior is not None:
        return guardrail.posterior
    learning = own
    if part.training is not None and part.training_rows is not None:
        learning = part.training.with_rewards(rewards[part.training_rows])
    start = independent(own.n_actions, dim=own.dim)
    if isinstance(posterior, RewardPosterior) and not posterior.prior.observed.groups:
        start = posterior.prior
    return learn_prior(learning, start, guardrail.likelihood).posterior


def _known_change(
    guardrail: Guardrail, parts: Sequence[HeldOutPart], n_rounds: int, posterior: Posterior | None
) -> list[GuardrailResult]:
    """The change of a cost that is known for every action: only the contexts are a sample."""
    costs = as_vector(f"costs of {guardrail.name}", guardrail.costs, length=parts[0].logs.n_actions)
    logged = np.concatenate([costs[part.logs.actions] for part in parts])
    weights = np.concatenate([row_weights(part.logs.weights, len(part.logs)) for part in parts])
    groups = [part.logs.groups for part in parts if part.logs.groups is not None]
    current = float(np.average(logged, weights=weights))
    results = list[GuardrailResult]()
    for name in parts[0].policies:
        spent = np.concatenate([_expected_costs(part.policies[name], part.logs, costs) for part in parts])
        variance = mean_variance(spent - logged, weights, np.concatenate(groups) if len(groups) == len(parts) else None)
        change = Estimate(float(np.average(spent - logged, weights=weights)), float(np.sqrt(variance or 0.0)))
        results.append(_judged(guardrail, name, current, change))
    return results


def _expected_costs(policy: Policy, logs: LoggedData, costs: Array) -> Array:
    """Σ_a π(a | x_i) c_a in each round."""
    parts = [
        choices.expected(np.ones((choices.n_rows, 1)), costs[:, None])
        for _, _, choices in policy.blocks(logs.contexts, None)
    ]
    return np.concatenate(parts)


def _judged(guardrail: Guardrail, policy: str, current: float, change: Estimate) -> GuardrailResult:
    limit = guardrail.at_most_worse * (1.0 if guardrail.absolute else abs(current))
    probability = _probability_kept(change, guardrail.sign, limit)
    return GuardrailResult(
        guardrail.name, policy, current, change, limit, probability, guardrail.sure, guardrail.better
    )


def _probability_kept(change: Estimate, sign: float, limit: float) -> float:
    """P(sign * change >= -limit)."""
    if change.std == 0.0:
        return float(sign * change.value >= -limit)
    if isinstance(change.shape, NormalMixture):
        kept = replace(change.shape, means=sign * change.shape.means + limit)
        return kept.probability_positive
    return float(ndtr((sign * change.value + limit) / change.std))


def limit_words(result: GuardrailResult) -> str:
    """The limit of a guardrail in words, as in "at most +0.01"."""
    side = "at least" if result.better == "higher" else "at most"
    sign = -1.0 if result.better == "higher" else 1.0
    if result.current == 0:
        return f"{side} {signed_number(sign * result.limit)}"
    return f"{side} {signed_percent(sign * result.limit / abs(result.current))} ({number(result.limit)} per round)"
