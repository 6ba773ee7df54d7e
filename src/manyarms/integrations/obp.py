"""Conversion to and from the Open Bandit Pipeline (OBP), its dictionaries of feedback and (n, K, L) arrays: `ma.obp`.

In OBP a round is shown at one of L positions of a list, and probabilities and rewards of actions differ by position.
This library has no positions, so where L > 1 the caller chooses one. OBP itself is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_floats, as_instance, as_matrix, as_vector, check_rows
from manyarms.core import Catalog, LoggedData, Policy
from manyarms.errors import InputError, PropensityError, RangeError, ShapeError
from manyarms.estimators.reward_model import TableModel
from manyarms.policies import TablePolicy
from manyarms.posterior.posterior import Posterior

__all__ = ["Feedback", "action_dist", "estimated_rewards", "feedback", "logs", "policy", "reward_model"]


class Feedback(TypedDict):
    """The dictionary that OBP's `obtain_batch_bandit_feedback` returns, with None for what is not known."""

    n_rounds: int
    n_actions: int
    context: Array
    action_context: Array | None
    action: Array
    position: Array | None
    reward: Array
    expected_reward: Array | None
    pi_b: Array | None
    pscore: Array | None


def logs(feedback: Mapping[str, Any], *, position: int | Literal["all"] | None = None) -> LoggedData:
    """Logged rounds from OBP's dictionary of bandit feedback.

    `pscore` becomes the propensities, `pi_b` the logging policy, `action_context` the embeddings of a catalog whose ids
    are the action numbers. `expected_reward` is the truth, which no log has, and is left out; `n_rounds` is not read.

    Args:
        feedback: A dictionary with at least `context`, `action`, `reward` and `n_actions`.
        position: The position whose rounds to take; or "all", to take all rounds as if positions made no difference to
            rewards. Propensities are then those of each round's own position. None when there is one position.

    Raises:
        InputError: Naming the missing or wrong key; or when rounds have several positions and none is chosen.
        PropensityError: Naming the first round whose `pscore` differs from the probability in `pi_b`.
    """
    feedback = as_instance("feedback", feedback, Mapping, _RETURNED)
    missing = [key for key in ("context", "action", "reward", "n_actions") if feedback.get(key) is None]
    if missing:
        raise InputError(f"has no {missing[0]!r}; it must be {_RETURNED}.", argument="feedback")
    n_actions = as_count("n_actions", feedback["n_actions"])
    contexts = as_matrix("context", feedback["context"])
    places = _places(feedback.get("position"), len(contexts))
    probabilities, embeddings = feedback.get("pi_b"), feedback.get("action_context")
    rounds = LoggedData(
        contexts,
        as_actions("action", feedback["action"], n_actions=n_actions, length=len(contexts)),
        feedback["reward"],
        feedback.get("pscore"),
        n_actions=n_actions,
        logging_policy=None if probabilities is None else policy(probabilities, position=places),
        catalog=None if embeddings is None else Catalog(np.arange(n_actions), embeddings=embeddings),
    )
    rows = _rows_at(places, position)
    if rounds.propensities is not None and rounds.logging_policy is not None:
        # Some estimators read the propensities, some the logging policy. The tolerance allows for rounding in a file.
        chances = rounds.logging_policy.probability_of(rounds.contexts, rounds.actions)
        wrong = ~np.isclose(rounds.propensities, chances, rtol=1e-3, atol=0.0)
        if wrong.any():
            row = int(np.argmax(wrong))
            both = f"{rounds.propensities[row]:.6g}, and pi_b {chances[row]:.6g}"
            problem = f"must be the probability in pi_b; row {row} has {both}."
            raise PropensityError(problem, "Set the wrong one to None.", argument="pscore")
    return rounds if rows is None else rounds.take(rows)


def feedback(logs: LoggedData, *, expected_reward: Any = None) -> Feedback:
    """OBP's dictionary of bandit feedback from logged rounds, all at one position.

    Args:
        logs: Logged rounds, with propensities or a logging policy if OBP is to weight by them. Groups are dropped.
        expected_reward: (n, K) True expected rewards, where they are known. OBP computes true values from them.

    Raises:
        InputError: When rounds have weights, which OBP does not support.
    """
    logs = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    if logs.weights is not None and not np.all(logs.weights == 1.0):
        remedy = "Repeat or drop rows: logs.take(np.repeat(...))."
        raise InputError("have weights, which OBP does not support.", remedy, argument="logs")
    truth = None if expected_reward is None else as_matrix("expected_reward", expected_reward, rows=len(logs))
    if truth is not None and truth.shape[1] != logs.n_actions:
        problem = f"must have a column for each of {logs.n_actions} actions; got {truth.shape[1]}."
        raise ShapeError(problem, argument="expected_reward")
    probabilities, score = None, None if logs.propensities is None else np.array(logs.propensities)
    if logs.logging_policy is not None:
        probabilities = action_dist(logs.logging_policy, logs.contexts)
        score = probabilities[np.arange(len(logs)), logs.actions, 0] if score is None else score
    embeddings = None if logs.catalog is None else logs.catalog.embeddings
    return Feedback(
        n_rounds=len(logs),
        n_actions=logs.n_actions,
        context=np.array(logs.contexts),
        action_context=None if embeddings is None else np.array(embeddings),
        action=np.array(logs.actions),
        position=None,
        reward=np.array(logs.rewards),
        expected_reward=None if truth is None else np.array(truth),
        pi_b=probabilities,
        pscore=score,
    )


def action_dist(policy: Policy, contexts: Any, *, eligible: Any = None, len_list: int = 1) -> Float[Array, "n K L"]:
    """π(a | x_i) of every action at every position, in the form that OBP's estimators take.

    Args:
        policy: Any policy.
        contexts: (n, d) Contexts, or a table.
        eligible: The actions that may be chosen in each context; None for all.
        len_list: L. Probabilities are the same at every position.
    """
    policy = as_instance("policy", policy, Policy, "a policy")
    table = policy.probabilities(contexts, eligible=eligible)
    return np.repeat(table[:, :, None], as_count("len_list", len_list), axis=2)


def policy(action_dist: Any, *, position: Any = None) -> TablePolicy:
    """The policy with OBP's action probabilities, tied to their n rows.

    Args:
        action_dist: (n, K, L) Probabilities that sum to one over actions, within OBP's tolerance (1e-5).
        position: One position, or (n,) the position of each round; needed when L > 1.
    """
    table = _at("action_dist", action_dist, position)
    totals = table.sum(axis=1, keepdims=True)
    off = np.abs(totals - 1.0)
    # Rounding errors of single precision are corrected; exact rows stay as they are, to the last digit.
    return TablePolicy(np.divide(table, totals, out=table.copy(), where=(1e-7 < off) & (off <= 1e-5)))


def estimated_rewards(posterior: Posterior, contexts: Any, *, len_list: int = 1) -> Float[Array, "n K L"]:
    """r̂(x_i, a) as OBP's `estimated_rewards_by_reg_model`: this posterior as the reward model of its DM and DR.

    Args:
        posterior: Any posterior.
        contexts: (n, d) Contexts, or a table.
        len_list: L. Rewards are the same at every position.
    """
    posterior = as_instance("posterior", posterior, Posterior, "what ma.fit returned")
    table = posterior.expected_reward(contexts)
    return np.repeat(table[:, :, None], as_count("len_list", len_list), axis=2)


def reward_model(estimated_rewards: Any, *, position: Any = None) -> TableModel:
    """OBP's `estimated_rewards_by_reg_model` as the reward model of `ma.DR` and similar estimators, for these rounds.

    Args:
        estimated_rewards: (n, K, L) Expected rewards.
        position: One position, or (n,) the position of each round; needed when L > 1.
    """
    return TableModel(_at("estimated_rewards", estimated_rewards, position))


_RETURNED = "the dictionary that OBP's obtain_batch_bandit_feedback returns"


def _places(position: Any, n_rounds: int) -> Int[Array, " n"]:
    """The position of each round. OBP gives none where there is only one."""
    if position is None:
        return np.zeros(n_rounds, dtype=np.int64)
    places = as_vector("position", position, length=n_rounds)
    check_rows(
        "position", places, lambda p: (p >= 0) & (p % 1 == 0), RangeError,
        "must be a whole number, not negative", "OBP counts positions from 0.",
    )  # fmt: skip
    return places.astype(np.int64)


def _rows_at(places: Int[Array, " n"], position: int | Literal["all"] | None) -> Int[Array, " m"] | None:
    """The rows of the rounds at this position; None for all rounds."""
    there = np.unique(places)
    if position == "all" or (position is None and len(there) <= 1):
        return None
    if position is None:
        remedy = 'Pass position=0 for those at the first, or position="all" to take them as one.'
        raise InputError(f"has rounds at {len(there)} positions of a list.", remedy, argument="position")
    rows = np.flatnonzero(places == as_count("position", position, minimum=0))
    if not len(rows):
        raise InputError(f"no round was shown at position {position}; positions are {', '.join(map(str, there))}.")
    return rows


def _at(name: str, array: Any, position: Any) -> Float[Array, "n K"]:
    """The (n, K) slice of an (n, K, L) array at one position per row."""
    cube = as_floats(name, array, ndim=3)
    n, _, length = cube.shape
    if length == 0:
        raise ShapeError(f"must have at least one position; got shape {cube.shape}.", argument=name)
    if length == 1:
        return cube[:, :, 0]
    if position is None:
        remedy = "Pass position=, one of them or that of each round."
        raise InputError(f"has {length} positions.", remedy, argument=name)
    shared = np.ndim(position) == 0
    places = np.full(n, as_count("position", position, minimum=0)) if shared else _places(position, n)
    must = f"must be below {length}, the number of positions of {name}"
    check_rows("position", places, lambda p: p < length, RangeError, must, "")
    return cube[np.arange(n), :, places]
