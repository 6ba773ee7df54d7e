"""Policies proposed from a log alone: one part learns a model and policies, the other is kept to evaluate them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms._base.checks import as_instance
from manyarms.core import LoggedData, Policy
from manyarms.errors import InputError
from manyarms.likelihoods import Likelihood
from manyarms.policies import Greedy, Pessimistic, Softmax
from manyarms.posterior import RewardPosterior
from manyarms.prior_learning.learn_prior import learn_prior
from manyarms.prior_learning.learned_prior import LearnedPrior
from manyarms.priors import from_categories

MIN_ROUNDS = 20
"""With fewer rounds, neither half says anything."""
SHARE = 0.5
"""The share of the rounds that learns."""
MIN_SIDE = 10
"""A split by time that leaves fewer rounds on one side is not used."""


@dataclass(frozen=True)
class Proposal:
    """Policies, and everything that is needed to evaluate them.

    Attributes:
        policies: The proposed policies by name.
        posterior: The model that they come from.
        held_out: The rounds that neither has seen.
        learned: The prior that was learned, and those that it was compared with.
        split: A sentence on how the rounds were split.
    """

    policies: dict[str, Policy]
    posterior: RewardPosterior
    held_out: LoggedData
    learned: LearnedPrior
    split: str


def propose(logs: LoggedData, categories: Any = None, likelihood: Likelihood | None = None) -> Proposal:
    """Split a log, learn a prior and a model from one half, and propose policies.

    Where the rounds have times, the earlier half learns and the later half is held out: a policy is used after the
    rounds it was learned from, and what has changed since then shows. Without times, or where they are too much alike,
    groups are drawn at random, or rounds where there are no groups. Rounds of one group always stay together. The split
    is the same every time. The prior is chosen by its score on held-out rounds from those that the catalog allows, and
    all its standard deviations are learned.

    Args:
        logs: All rounds.
        categories: (K,) the category labels of the actions; None for the metadata of the catalog, if there are any.
        likelihood: The likelihood of the rewards; None for Gaussian noise of learned size.
    """
    logs = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    if len(logs) < MIN_ROUNDS:
        raise InputError(
            f"has {len(logs)} rounds, too few to learn from one half and to evaluate on the other.",
            f"Pass at least {MIN_ROUNDS}.",
            argument="logs",
        )
    learning, held_out, split = _split(logs)
    prior = "auto" if categories is None else from_categories(categories, dim=logs.dim, shared_std=1.0)
    learned = learn_prior(learning, prior, likelihood)
    posterior = learned.posterior
    policies: dict[str, Policy] = {
        "greedy": Greedy(posterior),
        "pessimistic": Pessimistic(posterior),
        "softmax": Softmax(posterior, _temperature(posterior, learning)),
    }
    return Proposal(policies, posterior, held_out, learned, split)


def _split(logs: LoggedData) -> tuple[LoggedData, LoggedData, str]:
    """The rounds that learn, those that evaluate, and a sentence on how they were split."""
    halves = _split_by_time(logs)
    if halves is not None:
        return *halves, _time_note(*halves)
    by = "row" if logs.groups is None else "group"
    reason = "" if logs.times is None else "; not by time, since too many rounds have the same time"
    note = f"by {by}: one half, drawn at random, learns, and the other half evaluates{reason}"
    return *logs.split(SHARE, by, rng=np.random.default_rng(0)), note


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
    """A sentence on a split by time, with the moment from which rounds evaluate."""
    times, start = np.asarray(learning.times), np.asarray(held_out.times).min()
    moment = np.datetime_as_string(start, unit="s") if times.dtype.kind == "M" else str(start)
    sizes = f"{len(learning):,} and {len(held_out):,} rounds, the later from {moment} on"
    note = f"by time: earlier half learns, later half evaluates ({sizes})"
    late = int((times >= start).sum())
    if late == 0:
        return note
    return f"{note}; groups stay in the half of their first round, so {late:,} rounds that learn are not earlier"


def _temperature(posterior: RewardPosterior, logs: LoggedData) -> float:
    """A temperature at which choices vary: the spread of the expected rewards of logged actions."""
    spread = float(np.std(posterior.expected_reward(logs.contexts, logs.actions)))
    return max(spread, 1e-6)
