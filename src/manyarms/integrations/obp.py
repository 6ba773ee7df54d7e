"""To and from the Open Bandit Pipeline (OBP): its dictionaries of feedback, its (n, K, L) arrays; `ma.obp`.

There a round is shown at one of L positions of a list, and chances and rewards of actions differ by position. Here
nothing knows of positions, so where L > 1 the caller says which is meant. OBP itself is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_floats, as_instance, as_matrix, as_vector, check_rows
from manyarms.core.catalog import Catalog
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.errors import DataTypeError, InputError, PropensityError, RangeError, ShapeError
from manyarms.estimators.reward_model import TableModel
from manyarms.policies import TablePolicy
from manyarms.posterior.posterior import Posterior

__all__ = ["Feedback", "action_dist", "estimated_rewards", "feedback", "logs", "policy", "reward_model"]


class Feedback(TypedDict):
    """What OBP's `obtain_batch_bandit_feedback` returns, None where something is not known."""

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
    """Logged rounds from a dictionary of bandit feedback.

    `pscore` becomes the propensities, `pi_b` the logging policy, `action_context` the embeddings of a catalog whose ids
    are the action numbers. `expected_reward` is the truth, which no log has, and is left out; `n_rounds` is not read.

    Args:
        feedback: With `context`, `action`, `reward` and `n_actions` at least.
        position: Which rounds, where they were shown at several positions: those shown at one, or "all" of them as if
            positions made no difference to rewards; chances are then those of each round's own position.

    Raises:
        InputError: Naming the key that is missing or wrong, and where rounds have several positions and none is chosen.
        PropensityError: Naming the first round whose `pscore` is not what `pi_b` gives its action.
    """
    if not isinstance(feedback, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(f"feedback must be {_RETURNED}; got {type(feedback).__name__}.")
    missing = [key for key in ("context", "action", "reward", "n_actions") if feedback.get(key) is None]
    if missing:
        raise InputError(f"feedback has no {missing[0]!r}; it must be {_RETURNED}.")
    n_actions = as_count("n_actions", feedback["n_actions"])
    contexts = as_matrix("context", feedback["context"])
    places = _places(feedback.get("position"), len(contexts))
    chances, embeddings = feedback.get("pi_b"), feedback.get("action_context")
    found = LoggedData(
        contexts,
        as_actions("action", feedback["action"], n_actions=n_actions, length=len(contexts)),
        feedback["reward"],
        feedback.get("pscore"),
        n_actions=n_actions,
        logging_policy=None if chances is None else policy(chances, position=places),
        catalog=None if embeddings is None else Catalog(np.arange(n_actions), embeddings=embeddings),
    )
    rows = _rows_at(places, position)
    _check_agreement(found)
    return found if rows is None else found.take(rows)


def feedback(logs: LoggedData, *, expected_reward: Any = None) -> Feedback:
    """A dictionary of bandit feedback from logged rounds, all at one position.

    Args:
        logs: With propensities or a logging policy, if OBP is to weight by them. Groups have no place there.
        expected_reward: (n, K) the truth, where it is known: OBP's ground-truth values are computed from it.

    Raises:
        InputError: When rounds have weights, for which OBP has no place.
    """
    logs = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    if logs.weights is not None and not np.all(logs.weights == 1.0):
        raise InputError("logs have weights, and OBP knows none. Repeat or drop rows: logs.take(np.repeat(...)).")
    truth = None if expected_reward is None else as_matrix("expected_reward", expected_reward, rows=len(logs))
    if truth is not None and truth.shape[1] != logs.n_actions:
        raise ShapeError(
            f"expected_reward must have a column for each of {logs.n_actions} actions; got {truth.shape[1]}."
        )
    chances, score = None, None if logs.propensities is None else np.array(logs.propensities)
    if logs.logging_policy is not None:
        chances = action_dist(logs.logging_policy, logs.contexts)
        score = chances[np.arange(len(logs)), logs.actions, 0] if score is None else score
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
        pi_b=chances,
        pscore=score,
    )


def action_dist(policy: Policy, contexts: Any, *, eligible: Any = None, len_list: int = 1) -> Float[Array, "n K L"]:
    """π(a | x_i) as OBP's estimators take it: every action, at every position.

    Args:
        policy: Any policy.
        contexts: (n, d), or a table.
        eligible: Which actions may be chosen where; None for all.
        len_list: L; the same chances at each position, as a policy here knows of none.
    """
    policy = as_instance("policy", policy, Policy, "a policy")
    return _repeated(policy.probabilities(contexts, eligible=eligible), len_list)


def policy(action_dist: Any, *, position: Any = None) -> TablePolicy:
    """The policy that an array of action probabilities writes down, tied to its n rows.

    Args:
        action_dist: (n, K, L), summing to one over actions as closely as OBP asks (1e-5).
        position: Where L > 1: one position, or (n,) that of each round.
    """
    table = _at("action_dist", action_dist, position)
    totals = table.sum(axis=1, keepdims=True)
    off = np.abs(totals - 1.0)
    # Rounding errors of single precision are mended; what is right stays as it is, to the last digit.
    return TablePolicy(np.divide(table, totals, out=table.copy(), where=(1e-7 < off) & (off <= 1e-5)))


def estimated_rewards(posterior: Posterior, contexts: Any, *, len_list: int = 1) -> Float[Array, "n K L"]:
    """r̂(x_i, a) as OBP's `estimated_rewards_by_reg_model`: this posterior as the reward model of its DM and DR.

    Args:
        posterior: What `fit` returned.
        contexts: (n, d), or a table.
        len_list: L; the same rewards at each position.
    """
    if not isinstance(posterior, Posterior):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"posterior must be what ma.fit returned; got {type(posterior).__name__}.")
    return _repeated(posterior.expected_reward(contexts), len_list)


def reward_model(estimated_rewards: Any, *, position: Any = None) -> TableModel:
    """OBP's `estimated_rewards_by_reg_model` as the reward model of `ma.DR` and its kin, for these rounds.

    Args:
        estimated_rewards: (n, K, L).
        position: Where L > 1: one position, or (n,) that of each round.
    """
    return TableModel(_at("estimated_rewards", estimated_rewards, position))


_RETURNED = "the dictionary that OBP's obtain_batch_bandit_feedback returns"


def _places(position: Any, n_rounds: int) -> Int[Array, " n"]:
    """Where each round was shown; OBP says nothing, or None, where there is one place only."""
    if position is None:
        return np.zeros(n_rounds, dtype=np.int64)
    places = as_vector("position", position, length=n_rounds)
    check_rows(
        "position", places, lambda p: (p >= 0) & (p % 1 == 0), RangeError,
        "must be a whole number, not negative", "OBP counts the places of a list from 0.",
    )  # fmt: skip
    return places.astype(np.int64)


def _rows_at(places: Int[Array, " n"], position: int | Literal["all"] | None) -> Int[Array, " m"] | None:
    """The rounds that the caller means; None for all."""
    there = np.unique(places)
    if position == "all" or (position is None and len(there) <= 1):
        return None
    if position is None:
        raise InputError(
            f"position has rounds at {len(there)} places of a list. Pass position=0 for those of the "
            'first, or position="all" to take them as one.'
        )
    rows = np.flatnonzero(places == as_count("position", position, minimum=0))
    if not len(rows):
        raise InputError(f"no round was shown at position {position}; there are {', '.join(map(str, there))}.")
    return rows


def _check_agreement(logs: LoggedData) -> None:
    """One chance of an action said twice must be one number: some estimators read the one, some the other."""
    if logs.propensities is None or logs.logging_policy is None:
        return
    chances = logs.logging_policy.probability_of(logs.contexts, logs.actions)
    # As far apart as rounding in a file may bring them, and no further.
    wrong = ~np.isclose(logs.propensities, chances, rtol=1e-3, atol=0.0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise PropensityError(
            f"pscore must be what pi_b gives the action; row {row} has {logs.propensities[row]:.6g}, and pi_b "
            f"{chances[row]:.6g}. Set the one that is wrong to None."
        )


def _at(name: str, array: Any, position: Any) -> Float[Array, "n K"]:
    """One position of each row."""
    cube = as_floats(name, array, ndim=3)
    n, _, length = cube.shape
    if length == 0:
        raise ShapeError(f"{name} must have a position at least; got shape {cube.shape}.")
    if length == 1:
        return cube[:, :, 0]
    if position is None:
        raise InputError(f"{name} has {length} positions: pass position=, one of them or that of each round.")
    one = np.ndim(position) == 0
    places = np.full(n, as_count("position", position, minimum=0)) if one else _places(position, n)
    if n and places.max() >= length:
        row = int(np.argmax(places >= length))
        raise RangeError(f"position must be below {length}, the positions of {name}; row {row} has {places[row]}.")
    return cube[np.arange(n), :, places]


def _repeated(table: Float[Array, "n K"], len_list: int) -> Float[Array, "n K L"]:
    return np.repeat(table[:, :, None], as_count("len_list", len_list), axis=2)
