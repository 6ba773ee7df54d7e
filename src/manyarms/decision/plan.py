"""`ma.plan`: how many more rounds, logged how, would settle whether a policy beats a baseline.

The covariance of a Gaussian posterior does not depend on the rewards that are still to come. So the standard deviation
of the gain after n more rounds is known today, and its mean is then N(mean today, variance today - variance then).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.special import ndtr, ndtri

from manyarms._base.checks import Array, as_instance, as_scalar
from manyarms._base.rng import as_generator
from manyarms.core import Choices, Policy, Statistics
from manyarms.core.feature_map import as_contexts
from manyarms.core.result_tables import Tabular
from manyarms.decision.recommendation import SURE
from manyarms.errors import InputError
from manyarms.inference import condition
from manyarms.linalg.indexing import pair_rows
from manyarms.linalg.quadratic_forms import row_norms
from manyarms.policies.softmax import LinearSoftmax
from manyarms.posterior import RewardPosterior
from manyarms.posterior.policy_profile import POLICY_AND_BASELINE, PolicyProfiles, collect_profiles
from manyarms.posterior.posterior import Posterior

CHANCE = 0.8
"""The probability with which a plan should reach a decision."""
EXPLORED = 0.2
"""The share of the traffic that may be moved to learn faster."""
MOST_ROUNDS = 1e12
"""More rounds than this are as good as infinitely many."""
MANY_PAIRS = 4_000_000
"""With more (context, action) pairs than this, future choices are drawn instead of enumerated."""
SHARPNESS = (3.0, 10.0, 30.0)
"""Degrees to which the best traffic may prefer the pairs that tell most: from spread out to nearly one action each."""
ITEMS_SHOWN = 20


@dataclass(frozen=True)
class Traffic:
    """A way of logging the next rounds, and what it would teach about the gain.

    Attributes:
        name: A few words, such as "as now".
        rounds: The rounds after which a decision is reached with the wished probability; inf if no number suffices.
        chance_in_the_end: The probability of a decision after infinitely many such rounds.
        cost: The expected reward that is given up per round, compared with logging as now.
    """

    name: str
    rounds: float
    chance_in_the_end: float
    cost: float


@dataclass(frozen=True)
class _Future:
    """The gain today, and its variance after n more rounds of some traffic.

    Attributes:
        posterior: Today's model.
        profiles: What the gain depends on.
        gain: The mean of the gain today.
        context_variance: The variance of the gain over other contexts.
        n_contexts: The number of contexts today; those of future rounds are added to them.
        per_round: The information of one round.
        noise_std: The noise in whose units `per_round` is given.
        sure: The probability that a decision needs.
    """

    posterior: RewardPosterior
    profiles: PolicyProfiles
    gain: float
    context_variance: float
    n_contexts: float
    per_round: Statistics
    noise_std: float
    sure: float

    def variance_at(self, n: float) -> float:
        """The posterior variance of the gain after n more rounds."""
        weights = self.posterior.weights
        if n > 0:
            weights = condition(weights, self.per_round.scaled(n), self.noise_std)
        mass = self.profiles.masses_of((1.0, 0.0))[0]
        return weights.variance_of(mass.vectors, mass.actions)

    def _total_variance_at(self, n: float) -> float:
        """The variance of the gain in the population: future rounds also bring new contexts."""
        return self.variance_at(n) + self.context_variance * self.n_contexts / (self.n_contexts + n)

    def chance_at(self, n: float) -> float:
        """The probability that after n more rounds the gain is surely positive or surely negative."""
        today, after = self._total_variance_at(0.0), self._total_variance_at(n)
        moved, needed = np.sqrt(max(today - after, 0.0)), ndtri(self.sure) * np.sqrt(after)
        if moved <= 1e-12 * max(abs(self.gain), needed):
            return float(abs(self.gain) >= needed)
        return float(ndtr((self.gain - needed) / moved) + ndtr((-self.gain - needed) / moved))

    def rounds_for(self, chance: float) -> float:
        """The least number of rounds after which a decision has this probability; inf if there is none."""
        if self.chance_at(0.0) >= chance:
            return 0.0
        above = 1.0
        while self.chance_at(above) < chance:
            above *= 4.0
            if above > MOST_ROUNDS:
                return np.inf
        below = above / 4.0
        while above > max(below * 1.01, below + 1.0):
            middle = np.sqrt(below * above)
            below, above = (middle, above) if self.chance_at(middle) < chance else (below, middle)
        return float(np.ceil(above))


@dataclass(frozen=True, repr=False)
class Plan(Tabular):
    """The rounds that would settle a question, as `plan` returns it.

    Attributes:
        rounds: The rounds, logged by `logging`, after which a decision is reached with the wished probability; 0 if the
            question is settled, inf if no number of such rounds would settle it.
        gain: The expected gain today.
        probability: The probability today that the policy is better.
        traffic: Ways of logging: as now, a share to the candidate, and the best traffic.
        policy: The policy of the best traffic, for the explored share of it.
        items: The actions that the best traffic shows most: number, id if there is one, and share.
        share: The explored share of the traffic.
        sure: The probability that a decision needs.
        chance: The wished probability of a decision.
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
    _future: _Future

    def std_at(self, n: float | int) -> float:
        """The posterior standard deviation of the gain after n more rounds, logged by `logging`."""
        return float(np.sqrt(self._future.variance_at(as_scalar("n", n, at_least=0.0))))

    def chance_at(self, n: float | int) -> float:
        """The probability that a decision is reached after n more rounds, logged by `logging`."""
        return self._future.chance_at(as_scalar("n", n, at_least=0.0))

    def records(self) -> list[dict[str, Any]]:
        """One row per way of logging."""
        return [
            {"traffic": way.name, "rounds": way.rounds, "in the end": way.chance_in_the_end, "cost per round": way.cost}
            for way in self.traffic
        ]

    def __str__(self) -> str:
        if self.rounds == 0:
            return "The question is settled: no more rounds are needed."
        lines = [f"To decide with a probability of {self.chance:.0%}:"]
        for way in self.traffic:
            enough = f"{way.rounds:,.0f} rounds" if np.isfinite(way.rounds) else _never(way)
            cost = f", at a cost of {way.cost:.3g} per round" if way.cost > 0 else ""
            lines.append(f"  {way.name}: {enough}{cost}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Plan({self.rounds:,.0f} rounds)" if np.isfinite(self.rounds) else "Plan(no number of rounds suffices)"


def _never(way: Traffic) -> str:
    return f"no number of rounds suffices; the chance of a decision never exceeds {way.chance_in_the_end:.0%}"


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
    rng: np.random.Generator | None = None,
) -> Plan:
    """Plan the rounds that would settle whether a policy beats a baseline: how many, and logged how.

    A decision is reached when the posterior probability of a positive gain is at least `sure`, or at most 1 - `sure`.
    The future rounds have contexts like those given and actions by `logging`. For Gaussian rewards the answer is exact
    but for the rounding of random rounds to their mean; for clicks and other rewards, future rounds count with the
    curvature that today's posterior expects of them.

    The best traffic moves a share of the rounds to the pairs of context and action whose reward says most about the
    gain: those with the largest covariance between the reward of the pair and the gain.

    Args:
        posterior: Today's model.
        policy: The candidate.
        baseline: The policy that it is compared with, such as `Logged(logs)`.
        contexts: (n, d), or a table: contexts like those to come.
        logging: The policy that logs the coming rounds; by default the baseline.
        sure: The probability of a gain, or of a loss, that a decision needs.
        chance: The wished probability of a decision.
        share: The share of the traffic that may be moved, to the candidate or to the best traffic.
        max_cost: The expected reward that may be given up per round; None for no limit.
        eligible: The actions that may be chosen in each row; None for all.
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
    profiles = collect_profiles(posterior, both, POLICY_AND_BASELINE, contexts, eligible, None, None, None)
    estimate = posterior.estimate(profiles)
    x = as_contexts(contexts, posterior.features, columns=posterior.dim)

    def future(*parts: tuple[float, Policy]) -> _Future:
        information = [_information(posterior, item, x, eligible, rng).scaled(part) for part, item in parts if part > 0]
        noise = posterior.likelihood.noise_std if posterior.likelihood.treatment == "exact" else 1.0
        total = sum(information, Statistics.empty(posterior.n_actions, posterior.dim))
        context_variance = (estimate.context_std or 0.0) ** 2
        return _Future(posterior, profiles, estimate.value, context_variance, profiles.rows.weight, total, noise, sure)

    def cost(item: Policy) -> float:
        return max(0.0, -posterior.difference(item, logging, contexts, eligible=eligible).value)

    now = future((1.0, logging))
    best, best_future, best_cost, best_share = _best_traffic(future, now, logging, profiles, cost, share, limit)
    candidate_future, candidate_cost, candidate_share = _shared(future, logging, policy, cost, share, limit)
    ways = [
        ("as now", now, 0.0),
        (f"{candidate_share:.0%} to the candidate", candidate_future, candidate_cost),
        (f"best traffic, {best_share:.0%}", best_future, best_cost),
    ]
    traffic = tuple(
        Traffic(name, way.rounds_for(chance), way.chance_at(MOST_ROUNDS), spent) for name, way, spent in ways
    )
    return Plan(
        rounds=traffic[0].rounds,
        gain=estimate.value,
        probability=estimate.probability_positive,
        traffic=traffic,
        policy=best,
        items=tuple(_items(best, contexts, eligible, posterior)),
        share=best_share,
        sure=sure,
        chance=chance,
        _future=now,
    )


def _shared(
    future: Any, logging: Policy, item: Policy, cost: Any, share: float, limit: float
) -> tuple[_Future, float, float]:
    """The future if a share of the traffic follows another policy, as far as its cost allows; its cost and share."""
    per_round = cost(item)
    share = share if share * per_round <= limit else limit / per_round
    return future((1.0 - share, logging), (share, item)), share * per_round, share


def _best_traffic(
    future: Any, now: _Future, logging: Policy, profiles: PolicyProfiles, cost: Any, share: float, limit: float
) -> tuple[Policy, _Future, float, float]:
    """The policy for the explored share that lowers the variance of the gain most, its future, cost and share.

    A reward at (x, a) lowers the variance by (φᵀ c_a)² / (σ² + φᵀ S_a φ), where c_a is the covariance of θ_a and the
    gain. So the traffic follows the scores ± φᵀ c_a: plus learns about the candidate's actions, minus about the
    baseline's. Which sign, and how sharply, is tried.
    """
    posterior, mass = now.posterior, profiles.masses_of((1.0, 0.0))[0]
    vectors = np.zeros((posterior.n_actions, posterior.dim))
    vectors[mass.actions] = mass.vectors
    covariances = posterior.weights.covariances_with(vectors, np.arange(posterior.n_actions))
    size = np.linalg.norm(covariances, axis=1).max()
    # The rounds at which ways are compared: where logging as now has halved the variance, or would have, were it able.
    horizon = _horizon(now)
    tried = list[tuple[float, Policy, _Future, float, float]]()
    for sign, sharpness in ((s, k) for s in (1.0, -1.0) for k in SHARPNESS):
        item = LinearSoftmax(
            sign * sharpness * covariances / max(size, np.finfo(float).tiny),
            learned_from=posterior.learned_from,
            features=posterior.features,
            catalog=posterior.catalog,
        )
        way, spent, own_share = _shared(future, logging, item, cost, share, limit)
        tried.append((way.variance_at(horizon), item, way, spent, own_share))
    return min(tried, key=lambda row: row[0])[1:]


def _horizon(now: _Future) -> float:
    start, n = now.variance_at(0.0), 100.0
    while now.variance_at(n) > 0.5 * start and n < 1e6:
        n *= 4.0
    return n


def _information(
    posterior: RewardPosterior, policy: Policy, x: Float[Array, "n d"], eligible: Any, rng: np.random.Generator
) -> Statistics:
    """The statistics that one round of a policy adds on average, with rewards as expected: they move no mean."""
    rows, actions, shares = _pairs(policy, x, eligible, rng)
    features, weights = x[rows], shares / len(x)
    likelihood = posterior.likelihood
    means = np.einsum("nd,nd->n", features, posterior.weights.action_mean()[actions])
    if likelihood.treatment != "exact":
        variances = row_norms(features, actions, posterior.weights.action_cov) ** 2
        site = likelihood.site(likelihood.mean_reward(means, variances), means, variances)
        weights = weights * np.maximum(site.weight, 0.0)
    return Statistics.of_rounds(features, actions, means, posterior.n_actions, weights)


def _pairs(
    policy: Policy, x: Float[Array, "n d"], eligible: Any, rng: np.random.Generator
) -> tuple[Int[Array, " p"], Int[Array, " p"], Float[Array, " p"]]:
    """The (context, action) pairs of a policy with their probabilities; draws of them where there are too many."""
    rows, actions, shares = list[Array](), list[Array](), list[Array]()
    for part, _, choices in policy.blocks(x, eligible):
        spreads_out = choices.everywhere is not None or choices.dense is not None
        if sum(map(len, rows)) > MANY_PAIRS or (spreads_out and len(x) * choices.n_actions > MANY_PAIRS):
            return np.arange(len(x)), policy.sample(x, rng, eligible=eligible), np.ones(len(x))
        for row, action, probability in _named_pairs(choices):
            rows.append(part.start + row)
            actions.append(action)
            shares.append(probability)
    return np.concatenate(rows), np.concatenate(actions), np.concatenate(shares)


def _named_pairs(choices: Choices) -> Iterator[tuple[Array, Array, Array]]:
    """The parts of some choices as pairs."""
    if choices.named is not None:
        yield pair_rows(choices.named), choices.named.indices, np.asarray(choices.named.data)
    if choices.everywhere is not None:
        used = np.flatnonzero(choices.everywhere)
        row = np.repeat(np.arange(choices.n_rows), len(used))
        yield row, np.tile(used, choices.n_rows), np.tile(choices.everywhere[used], choices.n_rows)
    if choices.dense is not None:
        pairs = sparse.csr_array(choices.dense)
        yield pair_rows(pairs), pairs.indices, np.asarray(pairs.data)


def _items(policy: Policy, contexts: Any, eligible: Any, posterior: RewardPosterior) -> Iterator[dict[str, Any]]:
    """The actions that a policy shows most, with their shares."""
    mass = posterior.profile(policy, contexts, eligible, None).masses[0]
    for place in np.argsort(-mass.probability, kind="stable")[:ITEMS_SHOWN]:
        action = int(mass.actions[place])
        known = {} if posterior.catalog is None else {"id": posterior.catalog.ids[action]}
        yield {"action": action, **known, "share": float(mass.probability[place])}
