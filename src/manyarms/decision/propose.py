"""Policies proposed from a log alone: learned from one half, with the other half kept to evaluate them on.

Where the halves were drawn at random, they are also swapped: policies are learned from the second half and evaluated on
the first. Every round is then used for evaluation, but never for a policy that was learned from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Int

from manyarms._base.checks import Array, as_instance
from manyarms.core import LoggedData, Policy
from manyarms.core.bound_policy import on_rounds
from manyarms.errors import InputError
from manyarms.jobs.evaluate import SwappedHalf
from manyarms.jobs.open_policies import THOMPSON_DRAWS, PolicySource, is_given, is_policy_file, open_in_memory
from manyarms.jobs.parse_names import check_policy_name, policy_named
from manyarms.likelihoods import Likelihood
from manyarms.policies import Softmax
from manyarms.posterior import Posterior, RewardPosterior, fit
from manyarms.prior_learning.learn_prior import learn_prior
from manyarms.prior_learning.learned_prior import LearnedPrior
from manyarms.priors import from_categories

MIN_ROUNDS = 20
"""With fewer rounds, neither half says anything."""
SOFTMAX = "softmax"
"""Without a number, its temperature is the spread of the expected rewards of logged actions."""
PROPOSED = ("greedy", "pessimistic", SOFTMAX)
"""The policies that are proposed where none are named."""
SHARE = 0.5
"""The share of the rounds to learn from."""
MIN_SIDE = 10
"""A split by time that leaves fewer rounds on one side is not used, and nothing is learned from so small a half."""


@dataclass(frozen=True)
class Proposal:
    """Proposed policies, and everything that is needed to evaluate them.

    Attributes:
        policies: The proposed policies by name.
        posterior: The model that they come from.
        held_out: The rounds that neither has seen.
        learned: The prior that was learned, and those that it was compared with.
        split: A sentence on how the rounds were split.
        candidates: The policies to use: `policies`; where the halves are swapped, those of the learned prior given all
            rounds.
        swapped: The same from the other half of the rounds; None where the halves are not swapped.
    """

    policies: dict[str, Policy]
    posterior: Posterior
    held_out: LoggedData
    learned: LearnedPrior
    split: str
    candidates: dict[str, Policy]
    swapped: SwappedHalf | None = None


def propose(
    logs: LoggedData,
    categories: Any = None,
    likelihood: Likelihood | None = None,
    *,
    swap: bool = True,
    averaged: bool = False,
    policies: Mapping[str, PolicySource] | None = None,
    contexts: Any = None,
) -> Proposal:
    """Split a log, learn a prior and a model from one half, and propose policies.

    Where the rounds have times, policies are learned from the earlier half, and the later half is held out: a policy is
    used after the rounds it was learned from, and what has changed since then shows. Without times, or where they are
    too much alike, groups are drawn at random, or rounds where there are no groups. Rounds of one group always stay
    together. The split is the same every time. The prior is chosen by its score on held-out rounds from those that the
    catalog allows, and all its standard deviations are learned.

    Random halves are swapped, unless one of them is very small: a prior, a model and policies are learned from each
    half alone, so that they can be evaluated on the other. The policies to use are then learned from all rounds, with
    the prior learned from the first half. Halves by time are not swapped: nothing about the past must be learned from
    the future.

    Args:
        logs: All rounds.
        categories: (K,) the category labels of the actions; None for the metadata of the catalog, if there are any.
        likelihood: The likelihood of the rewards; None for Gaussian noise of learned size.
        swap: False to learn only from the first half, and to evaluate only on the second.
        averaged: True to evaluate by posteriors averaged over learned priors, as `LearnedPrior.averaged` makes them.
        policies: The policies to evaluate by name; None for greedy, pessimistic and softmax. Those that are named by
            their rule, as in `policy_named`, are learned from each half. All others were given: they were learned from
            neither half, so they are evaluated on both. If all were given, halves by time are swapped too.
        contexts: The rows of `logs` as a table, for policies that read other columns than `logs` has kept.
    """
    logs = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    if len(logs) < MIN_ROUNDS:
        raise InputError(
            f"has {len(logs)} rounds, too few to learn from one half and to evaluate on the other.",
            f"Pass at least {MIN_ROUNDS}.",
            argument="logs",
        )
    rules, given = _rules_and_given(logs, policies, contexts)
    learning, held_out, by, note = _split(logs)
    prior = "auto" if categories is None else from_categories(categories, dim=logs.dim, shared_std=1.0)
    learned = learn_prior(learning, prior, likelihood)
    posterior = learned.posterior
    evaluated = {name: _made(rule, posterior, learning) for name, rule in rules.items()}
    evaluated |= {name: policy.take(_places(held_out, logs)) for name, (policy, _) in given.items()}
    originals = {name: policy for name, (_, policy) in given.items()}
    if not swap or (by == "time" and rules) or min(len(learning), len(held_out)) < MIN_SIDE:
        chosen = _in_order(policies, {**evaluated, **originals})
        model = _model(learned, averaged)
        return Proposal(_in_order(policies, evaluated), model, held_out, learned, note, chosen)
    # Nothing learned from the first half may be used here: the second half gets a prior of its own.
    other = learn_prior(held_out, prior, likelihood)
    turned = {name: _made(rule, other.posterior, held_out) for name, rule in rules.items()}
    turned |= {name: policy.take(_places(learning, logs)) for name, (policy, _) in given.items()}
    swapped = SwappedHalf(turned, learning, _model(other, averaged))
    final = fit(logs, posterior.prior, posterior.likelihood) if rules else posterior
    chosen = {**{name: _made(rule, final, logs) for name, rule in rules.items()}, **originals}
    note = f"{note}; {_swap_note(learning, held_out, bool(rules), bool(given))}"
    evaluated, chosen = _in_order(policies, evaluated), _in_order(policies, chosen)
    return Proposal(evaluated, _model(learned, averaged), held_out, learned, note, chosen, swapped)


def _model(learned: LearnedPrior, averaged: bool) -> Posterior:
    """The model that evaluates: the posterior under the best prior, or averaged over learned ones, always alike."""
    return learned.averaged(rng=np.random.default_rng(0)) if averaged else learned.posterior


def _rules_and_given(
    logs: LoggedData, policies: Mapping[str, PolicySource] | None, contexts: Any
) -> tuple[dict[str, str], dict[str, tuple[Policy, Policy]]]:
    """The rules by which policies are made from each half, and those given: bound to all rounds, and as they are."""
    if policies is None:
        return {name: name for name in PROPOSED}, {}
    named = as_instance("policies", policies, Mapping, "a mapping from names to policies")
    rules = {
        name: source
        for name, source in named.items()
        if isinstance(source, str) and not is_given(source) and not is_policy_file(source)
    }
    for rule in rules.values():
        check_policy_name(rule, (SOFTMAX,))
    given = open_in_memory({name: source for name, source in named.items() if name not in rules}, logs)
    return rules, {name: (on_rounds(policy, logs, contexts, name), policy) for name, policy in given.items()}


def _in_order(policies: Mapping[str, Any] | None, made: dict[str, Policy]) -> dict[str, Policy]:
    return made if policies is None else {name: made[name] for name in policies}


def _places(part: LoggedData, logs: LoggedData) -> Int[Array, " n"]:
    """The places of the rounds of a part among those of the log that it was taken from."""
    order = np.argsort(logs.rows, kind="stable")
    return order[np.searchsorted(logs.rows[order], part.rows)]


def _made(rule: str, posterior: RewardPosterior, logs: LoggedData) -> Policy:
    """The policy that a rule makes of a model that was learned from these rounds."""
    if rule.strip() == SOFTMAX:
        return Softmax(posterior, _temperature(posterior, logs))
    return policy_named(rule, posterior, n_draws=THOMPSON_DRAWS)


def _split(logs: LoggedData) -> tuple[LoggedData, LoggedData, Literal["time", "group", "row"], str]:
    """The rounds to learn from, those to evaluate on, what they were split by, and a sentence on it."""
    halves = _split_by_time(logs)
    if halves is not None:
        return *halves, "time", _time_note(*halves)
    by = "row" if logs.groups is None else "group"
    reason = "" if logs.times is None else "; not by time, since too many rounds have the same time"
    note = f"by {by}: learned from one random half, evaluated on the other half{reason}"
    return *logs.split(SHARE, by, rng=np.random.default_rng(0)), by, note


def _swap_note(learning: LoggedData, held_out: LoggedData, has_rules: bool, has_given: bool) -> str:
    """A sentence on what the swapped halves are used for."""
    n, later = len(learning) + len(held_out), len(held_out)
    given = f"your own policies were learned from neither half, so their gains use all {n:,} rounds"
    if not has_rules:
        figures = f"all other figures use the model learned from the first half, on the {later:,} rounds of the second"
        return f"then the halves swap, and {given}; {figures}"
    note = (
        f"then the halves swap, so each gain is the average over two policies, over all {n:,} rounds; all other "
        f"figures are for the policies learned from the first half, evaluated on the {later:,} rounds of the second; "
        "the policies to deploy were learned in the same way from all rounds, with the prior of the first half"
    )
    return f"{note}; {given}" if has_given else note


def _split_by_time(logs: LoggedData) -> tuple[LoggedData, LoggedData] | None:
    """The earlier and the later half; None without times, or where they leave almost no rounds on one side."""
    if logs.times is None:
        return None
    try:
        halves = logs.split(SHARE, "time")
    except InputError:
        return None
    return halves if min(map(len, halves)) >= MIN_SIDE else None


def _time_note(learning: LoggedData, held_out: LoggedData) -> str:
    """A sentence on a split by time, with the moment at which the rounds to evaluate on begin."""
    times, start = np.asarray(learning.times), np.asarray(held_out.times).min()
    moment = np.datetime_as_string(start, unit="s") if times.dtype.kind == "M" else str(start)
    sizes = f"{len(learning):,} and {len(held_out):,} rounds; the later half starts at {moment}"
    note = f"by time: learned from the earlier half, evaluated on the later half ({sizes})"
    late = int((times >= start).sum())
    if late == 0:
        return note
    return f"{note}; groups stay in the half of their first round, so {late:,} rounds to learn from are not earlier"


def _temperature(posterior: RewardPosterior, logs: LoggedData) -> float:
    """A temperature at which choices vary: the spread of the expected rewards of logged actions."""
    spread = float(np.std(posterior.expected_reward(logs.contexts, logs.actions)))
    return max(spread, 1e-6)
