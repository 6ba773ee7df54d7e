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


@dataclass(frozen=True)
class Proposal:
    """Policies, and everything that is needed to evaluate them.

    Attributes:
        policies: The proposed policies by name.
        posterior: The model that they come from.
        held_out: The rounds that neither has seen.
        learned: The prior that was learned, and those that it was compared with.
    """

    policies: dict[str, Policy]
    posterior: RewardPosterior
    held_out: LoggedData
    learned: LearnedPrior


def propose(logs: LoggedData, categories: Any = None, likelihood: Likelihood | None = None) -> Proposal:
    """Split a log, learn a prior and a model from one half, and propose policies.

    Rounds of one group stay together. The split is the same every time. The prior is chosen
    by its score on held-out rounds from those that the catalog allows, and all its standard deviations are learned.

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
    by = "row" if logs.groups is None else "group"
    learning, held_out = logs.split(SHARE, by, rng=np.random.default_rng(0))
    prior = "auto" if categories is None else from_categories(categories, dim=logs.dim, shared_std=1.0)
    learned = learn_prior(learning, prior, likelihood)
    posterior = learned.posterior
    policies: dict[str, Policy] = {
        "greedy": Greedy(posterior),
        "pessimistic": Pessimistic(posterior),
        "softmax": Softmax(posterior, _temperature(posterior, learning)),
    }
    return Proposal(policies, posterior, held_out, learned)


def _temperature(posterior: RewardPosterior, logs: LoggedData) -> float:
    """A temperature at which choices vary: the spread of the expected rewards of logged actions."""
    spread = float(np.std(posterior.expected_reward(logs.contexts, logs.actions)))
    return max(spread, 1e-6)
