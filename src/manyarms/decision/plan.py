"""`ma.plan`: how many more rounds, logged how, would settle whether a policy beats a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from manyarms._base.checks import as_instance, as_scalar, row_weights
from manyarms._base.rng import as_generator
from manyarms.core import Estimate, LoggedData, Policy, Records, Statistics, any_shared
from manyarms.core.bound_policy import with_own_features
from manyarms.core.feature_map import as_contexts
from manyarms.core.result_tables import Tabular, number, signed_number
from manyarms.decision.guardrail import GuardrailResult
from manyarms.decision.recommendation import SURE, Recommendation, keep_sentence
from manyarms.errors import InputError
from manyarms.jobs.evaluate import CURRENT
from manyarms.policies import Logged
from manyarms.policies.most_informative import most_informative_traffic
from manyarms.posterior import RewardPosterior
from manyarms.posterior.future_gain import MOST_ROUNDS, FutureGain, future_information
from manyarms.posterior.policy_profile import POLICY_AND_BASELINE, collect_profiles
from manyarms.posterior.posterior import Posterior

CHANCE = 0.8
"""The probability with which a plan should reach a decision."""
EXPLORED = 0.2
"""The share of the traffic that may be moved to learn faster."""
ITEMS_SHOWN = 20
MOST_CONTEXTS = 5000
"""A plan for a decision uses no more contexts than this."""
CURVE_POINTS = 13
"""Numbers of rounds at which a curve shows the chance of a decision."""


@dataclass(frozen=True)
class Traffic:
    """A way of logging the rounds of a plan, and what it would teach about the gain.

    Attributes:
        name: A few words, such as "as now".
        rounds: The rounds after which a decision is reached with the desired probability; inf if no number is enough.
        chance_in_the_end: The probability of a decision after infinitely many such rounds.
        cost: The expected reward that is given up per round, compared with logging as now.
        reason: Where no number of rounds is enough, the reason in plain words; else empty.
    """

    name: str
    rounds: float
    chance_in_the_end: float
    cost: float
    reason: str
    _future: FutureGain = field(repr=False)

    def std_at(self, n: float | int) -> float:
        """The posterior standard deviation of the gain after n more rounds."""
        return float(np.sqrt(self._future.variance_at(as_scalar("n", n, at_least=0.0))))

    def chance_at(self, n: float | int) -> float:
        """The probability that a decision is reached after n more rounds."""
        return self._future.chance_at(as_scalar("n", n, at_least=0.0))

    def record(self) -> dict[str, Any]:
        """The way of logging as plain values, for JSON: no number of rounds is None."""
        rounds = self.rounds if np.isfinite(self.rounds) else None
        facts = {"chance_in_the_end": self.chance_in_the_end, "cost_per_round": self.cost, "reason": self.reason}
        return {"traffic": self.name, "rounds": rounds, **facts}

    def __str__(self) -> str:
        if not np.isfinite(self.rounds):
            return f"{self.name}: no number of rounds is enough. {self.reason}"
        cost = f", at a cost of {number(self.cost)} per round" if self.cost > 0 else ""
        return f"{self.name}: about {rounded_count(self.rounds)} rounds{cost}"


@dataclass(frozen=True, repr=False)
class Plan(Tabular):
    """The result of `plan`: how many more rounds would decide a question, for three ways of logging them.

    Attributes:
        rounds: The rounds, logged by `logging`, after which a decision is reached with probability `chance`; 0 if the
            question is settled, inf if no number of such rounds would settle it.
        gain: The expected gain today.
        probability: The probability today that the policy is better.
        traffic: Ways of logging: as now, a share to the candidate, and a share to the exploration policy.
        policy: The exploration policy, for its share of the traffic.
        items: The actions that the exploration policy shows most: number, id and name if there are any, and share.
        share: The share of the traffic for the exploration policy.
        sure: The probability that a decision needs.
        chance: The desired probability of a decision.
    """

    rounds: float
    gain: float
    probability: float
    traffic: tuple[Traffic, ...]
    policy: Policy
    items: tuple[dict[str, Any], ...]
    share: float
    sure: float
    chance: float

    def std_at(self, n: float | int) -> float:
        """The posterior standard deviation of the gain after n more rounds, logged by `logging`."""
        return self.traffic[0].std_at(n)

    def chance_at(self, n: float | int) -> float:
        """The probability that a decision is reached after n more rounds, logged by `logging`."""
        return self.traffic[0].chance_at(n)

    @property
    def reason(self) -> str:
        """The reason why no number of rounds, logged by `logging`, would settle the question; else empty."""
        return self.traffic[0].reason

    def curve(self) -> Records:
        """The probability of a decision against the number of rounds, for every way of logging."""
        finite = [way.rounds for way in self.traffic if 0 < way.rounds < np.inf]
        low, high = min(finite, default=1e3) / 10, max(finite, default=1e5) * 4
        rounds = np.unique(np.round(np.geomspace(max(low, 1.0), max(high, 10.0), CURVE_POINTS)))
        return Records(
            {"traffic": way.name, "rounds": n, "chance": way.chance_at(n)}
            for way in self.traffic
            for n in rounds.tolist()
        )

    def records(self) -> list[dict[str, Any]]:
        """One row per way of logging."""
        return [way.record() for way in self.traffic]

    def record(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        figures = {name: getattr(self, name) for name in ("gain", "probability", "sure", "chance", "share")}
        return {"sentence": self.sentence, **figures, "traffic": self.records(), "items": list(self.items)}

    @property
    def side(self) -> str:
        """The side of zero on which the model sees the gain today."""
        return "gain" if self.probability >= 0.5 else "loss"

    @property
    def sentence(self) -> str:
        """The plan in one or two sentences: what to do next."""
        now, _, best = self.traffic
        if self.rounds == 0:
            return (
                f"The model alone is already sure of a {self.side}, so it needs no more rounds. The verdict of decide "
                "also uses the logged rewards, and may still be undecided: if so, test the policy on a share of the "
                "traffic."
            )
        aim = f"decide with a probability of {_percent(self.chance)}"
        if not any(np.isfinite(way.rounds) for way in self.traffic):
            return f"No number of rounds would settle this. {now.reason}"
        fastest = min(self.traffic, key=lambda way: way.rounds)
        sentence = f"To {aim}, log about {rounded_count(fastest.rounds)} more rounds"
        if fastest is now or rounded_count(fastest.rounds) == rounded_count(now.rounds):
            return f"{sentence} as now."
        receiver = "exploration policy" if fastest is best else "candidate"
        share = fastest.name.partition(" to the ")[0]
        sentence += f", and give {share} of them to the {receiver}."
        if np.isfinite(now.rounds):
            return f"{sentence} With the current logging, about {rounded_count(now.rounds)} are needed."
        return f"{sentence} With the current logging, no number of rounds would be enough. {now.reason}"

    def __str__(self) -> str:
        if self.rounds == 0:
            return self.sentence
        return "\n".join(
            [f"To decide with a probability of {_percent(self.chance)}:", *(f"  {way}" for way in self.traffic)]
        )

    def __repr__(self) -> str:
        return f"Plan({self.rounds:,.0f} rounds)" if np.isfinite(self.rounds) else "Plan(no number of rounds is enough)"


def plan(
    posterior: Posterior,
    policy: Policy,
    baseline: Policy,
    contexts: Any,
    *,
    logging: Policy | None = None,
    sure: float = SURE,
    chance: float = CHANCE,
    share: float = EXPLORED,
    max_cost: float | None = None,
    eligible: Any = None,
    weights: Any = None,
    groups: Any = None,
    rng: np.random.Generator | None = None,
) -> Plan:
    """Plan how many more rounds are needed to decide whether a policy beats a baseline, and how to log them.

    A decision is reached when the posterior probability of a positive gain is at least `sure`, or at most 1 - `sure`.
    The future rounds have contexts like those given and actions by `logging`. For Gaussian rewards the answer is exact
    but for the rounding of random rounds to their mean; for clicks and other rewards, future rounds count with the
    curvature that today's posterior expects of them.

    The exploration policy gets a share of the rounds. It prefers the pairs of context and action whose reward says most
    about the gain: those with the largest covariance between the reward of the pair and the gain. The candidate and the
    baseline take part in it where they help.

    Args:
        posterior: Today's model.
        policy: The candidate.
        baseline: The policy that it is compared with, such as `Logged(logs)`.
        contexts: (n, d), or a table: contexts like those to come.
        logging: The policy that logs the coming rounds; by default the baseline.
        sure: The probability of a gain, or of a loss, that a decision needs.
        chance: The desired probability of a decision.
        share: The share of the traffic that may go to the candidate or to the exploration policy.
        max_cost: The expected reward that may be given up per round; None for no limit.
        eligible: The actions that may be chosen in each row; None for all.
        weights: (n,) how often each context counts; None for once.
        groups: (n,) users or sessions, when contexts come in clusters.
        rng: Draws future choices where there are too many pairs to enumerate.

    Raises:
        InputError: If the posterior has no single set of Gaussian weights.
    """
    if not isinstance(posterior, RewardPosterior):
        raise InputError(
            f"must be a model with a single set of weights; got {type(posterior).__name__}.",
            "Fit one with ma.fit or ma.learn_prior.",
            argument="posterior",
        )
    sure = as_scalar("sure", sure, above=0.5, below=1.0)
    chance = as_scalar("chance", chance, above=0.0, below=1.0)
    share = as_scalar("share", share, above=0.0, at_most=1.0)
    limit = np.inf if max_cost is None else as_scalar("max_cost", max_cost, at_least=0.0)
    logging = baseline if logging is None else as_instance("logging", logging, Policy, "a policy")
    rng = np.random.default_rng(0) if rng is None else as_generator(rng)
    both = {"policy": policy, "baseline": baseline}
    profiles = collect_profiles(posterior, both, POLICY_AND_BASELINE, contexts, eligible, weights, groups, None)
    estimate = posterior.estimate(profiles)
    x = as_contexts(contexts, posterior.features, columns=posterior.dim)

    def information(item: Policy) -> Statistics:
        return future_information(
            posterior, with_own_features(item, contexts, posterior.features), x, weights, eligible, rng
        )

    def cost(item: Policy) -> float:
        return max(0.0, -posterior.difference(item, logging, contexts, eligible=eligible, weights=weights).value)

    now = FutureGain(
        posterior, profiles, estimate.value, (estimate.context_std or 0.0) ** 2, profiles.rows.weight,
        information(logging), sure,
    )  # fmt: skip
    return _compare_traffic(
        now, estimate, policy, baseline, information, cost, share, limit, chance, contexts, eligible
    )


def _compare_traffic(
    now: FutureGain, estimate: Estimate, policy: Policy, baseline: Policy, information: Any, cost: Any, share: float,
    limit: float, chance: float, contexts: Any, eligible: Any,
) -> Plan:  # fmt: skip
    """The plan with all ways of logging, from checked arguments."""
    others = [item for item in (policy, baseline) if not item.repeats_log]
    best, best_future = most_informative_traffic(now, others, share, chance, information)
    ways = [_way("as now", now, 0.0, chance)]
    own = share
    for item, name, known in (
        (policy, "{} to the candidate", None),
        (best, "{} to the exploration policy", best_future),
    ):
        per_round = cost(item)
        own = share if share * per_round <= limit else limit / per_round
        future = known
        if future is None or own < share:
            future = now.logged_by((1.0 - own, now.per_round), (own, information(item)))
        ways.append(_way(name.format(_percent(own)), future, own * per_round, chance))
    return Plan(
        rounds=ways[0].rounds,
        gain=estimate.value,
        probability=estimate.probability_positive,
        traffic=tuple(ways),
        policy=best,
        items=tuple(_items(best, contexts, eligible, now.posterior)),
        share=own,
        sure=now.sure,
        chance=chance,
    )


def _way(name: str, future: FutureGain, cost: float, chance: float) -> Traffic:
    rounds = future.rounds_for(chance)
    reason = "" if np.isfinite(rounds) else _reason(future)
    return Traffic(name, rounds, future.chance_at(MOST_ROUNDS), cost, reason, future)


def _reason(future: FutureGain) -> str:
    """The reason why no number of rounds of some traffic settles the question."""
    mass, known = future.profiles.masses_of((1.0, 0.0))[0], future.per_round
    differs = mass.vectors.any(axis=1)
    if not differs.any():
        return "Both policies make the same choices in these contexts, so there is nothing to decide."
    shown = np.isin(mass.actions, np.concatenate([known.sums.actions, known.rows.actions]))
    hidden, size = differs & ~shown, np.abs(mass.probability)
    left = future.variance_at(MOST_ROUNDS) / max(future.variance_at(0.0), np.finfo(float).tiny)
    remains = f"so {_percent(left)} of the variance of the gain would remain"
    if not hidden.any():
        return f"In such rounds, some of the features that the gain depends on never vary, {remains}."
    part = size[hidden].sum() / max(size[differs].sum(), np.finfo(float).tiny)
    return (
        f"Such rounds never show {hidden.sum():,} of the {differs.sum():,} actions in which the policies differ. These "
        f"make up {_percent(part)} of the difference, {remains}."
    )


def _items(policy: Policy, contexts: Any, eligible: Any, posterior: RewardPosterior) -> Iterator[dict[str, Any]]:
    """The actions that a policy shows most, with their shares."""
    mass = posterior.profile(policy, contexts, eligible, None).masses[0]
    for place in np.argsort(-mass.probability, kind="stable")[:ITEMS_SHOWN]:
        action = int(mass.actions[place])
        catalog = posterior.catalog
        known = {} if catalog is None else {"id": catalog.ids[action]}
        name = "" if catalog is None else catalog.name_of(action)
        yield {"action": action, **known, **({"name": name} if name else {}), "share": float(mass.probability[place])}


def plan_open_question(posterior: RewardPosterior, policy: Policy, logs: LoggedData, sure: float) -> Plan | None:
    """The plan for a question that a decision left open, given the rounds that it was evaluated on; None if impossible.

    The model learns from these rounds too, if that is a single solve, so that the plan starts from all that is known.
    """
    if not any_shared(posterior.learned_from, (logs.fingerprint,)) and posterior.likelihood.treatment == "exact":
        posterior = posterior.update(logs)
    if len(logs) > MOST_CONTEXTS:
        rows = np.linspace(0, len(logs) - 1, MOST_CONTEXTS).astype(int)
        policy, logs = policy.take(rows), logs.take(rows)
    try:
        return plan(
            posterior, policy, Logged(logs), logs.contexts, sure=max(sure, 0.5 + 1e-9), weights=logs.weights,
            groups=logs.groups,
        )  # fmt: skip
    except InputError:
        return None


def plan_next_step(
    advice: Recommendation, model: RewardPosterior | None, policy: Policy | None, logs: LoggedData, sure: float,
    gain: Estimate | None, unit: str, goals: Sequence[GuardrailResult], planned_sure: float | None = None,
) -> tuple[Recommendation, Plan | None]:  # fmt: skip
    """Plan the next step of a recommendation: where it is undecided, the rounds or the test that would settle it.

    The verdict needs a gain with probability `sure`, and the plan asks the model for `planned_sure`, or for the same.
    """
    if model is None or policy is None or advice.verdict != "undecided":
        return advice, None
    open_goals = [goal for goal in goals if not goal.holds]
    if any(goal.is_broken for goal in open_goals):
        # More rounds would settle nothing.
        return advice, None
    if open_goals and (gain is None or gain.probability_positive >= sure):
        test = _guardrail_test(open_goals, logs)
        reason = advice.reason.replace(f" {advice.next_step}", "")
        return (replace(advice, next_step=test, reason=reason) if test else advice), None
    planned_sure = planned_sure or sure
    plan = plan_open_question(model, policy, logs, planned_sure)
    if plan is None:
        return advice, None
    step = plan.sentence
    if not plan.rounds:
        test = f"Test {advice.policy} on a share of the traffic{_size_of_a_test(gain, logs, planned_sure, unit)}."
        if gain is not None and gain.probability_positive < 0.5:
            test = keep_sentence(advice.policy)
        step = f"The model alone is sure of a {plan.side}, but the logged rewards do not confirm it yet. {test}"
    if open_goals:
        names = " and ".join(goal.name for goal in open_goals)
        step += f" The guardrail{'s' if len(open_goals) > 1 else ''} on {names} must hold, too."
    return replace(advice, next_step=step), plan


def _guardrail_test(goals: Sequence[GuardrailResult], logs: LoggedData) -> str:
    """The test that would show that open guardrails hold; empty where none would, or where its size is not known."""
    distances = [goal.distance for goal in goals]
    if logs.groups is not None or min(distances) <= 0 or any(goal.variance is None for goal in goals):
        return ""
    rounds = max(
        rounds_of_a_test(distance, goal.variance or 0.0, goal.sure)
        for goal, distance in zip(goals, distances, strict=True)
    )
    names = " and ".join(goal.name for goal in goals)
    return (
        f"Test {goals[0].policy} on a share of the traffic: if the change in {names} is as estimated, about "
        f"{rounded_count(rounds)} rounds with it, and as many with the {CURRENT}, show that the limit holds with a "
        f"probability of {_percent(CHANCE)}. Or limit how often the items that may harm it are shown (CappedPolicy)."
    )


def rounds_of_a_test(gain: float, variance: float, sure: float, chance: float = CHANCE) -> float:
    """The rounds that each of two policies needs in a test, so that their means show a gain with probability `chance`.

    The means of n rounds each differ by the gain, with a variance of 2 σ² / n. The difference exceeds z(sure) standard
    deviations with probability `chance` if n = 2 σ² (z(sure) + z(chance))² / gain².

    Args:
        gain: The expected gain per round.
        variance: σ², the variance of single rewards.
        sure: The probability of a gain that a decision needs.
        chance: The desired probability of a decision.
    """
    return float(np.ceil(2.0 * variance * ((ndtri(sure) + ndtri(chance)) / gain) ** 2))


def _size_of_a_test(gain: Estimate | None, logs: LoggedData, sure: float, unit: str) -> str:
    """The size of a test that would show the expected gain, in words; empty where rounds are not independent."""
    if gain is None or gain.value <= 0 or sure <= 0.5 or logs.groups is not None:
        return ""
    counts = row_weights(logs.weights, len(logs))
    mean = np.average(logs.rewards, weights=counts)
    rounds = rounds_of_a_test(gain.value, float(np.average((logs.rewards - mean) ** 2, weights=counts)), sure)
    shown = f"{signed_number(gain.value)} {unit}".strip()
    return (
        f": about {rounded_count(rounds)} rounds with it, and as many with the {CURRENT}, would show a gain of {shown} "
        f"with a probability of {_percent(CHANCE)}"
    )


def item_label(item: dict[str, Any]) -> str:
    """An item of a plan as people know it: by its name, else by its id, else by its number."""
    return str(item.get("name") or item.get("id", item["action"]))


def _percent(part: float) -> str:
    """A share or a desired probability in per cent, with no more digits than it was given with."""
    return f"{100 * part:.3g} %"


def rounded_count(rounds: float) -> str:
    """A number of rounds with two digits: no plan is more exact than that."""
    return f"{float(f'{rounds:.2g}'):,.0f}"
