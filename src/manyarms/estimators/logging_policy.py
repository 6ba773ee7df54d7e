"""Propensities of a log: as logged, from its logging policy, or estimated from the logged actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_actions, as_instance, as_scalar, row_weights
from manyarms.core import Choices, LoggedData, Policy
from manyarms.core.labels import as_labels
from manyarms.errors import InputError, PropensityError
from manyarms.linalg.indexing import chunks

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

MAX_MULTINOMIAL = 300
"""The largest number of actions with a logistic regression over all of them; above it, one over categories."""


class EstimatedLogging(Policy):
    """An estimated logging policy: a logistic regression of a label on the context, times the shares of actions in it.

    With few actions, every action is its own label. With many, labels are categories, and the shares within a category
    are smoothed counts that do not depend on the context. Without categories, only the counts remain.

    Args:
        logs: Rounds whose logged actions are modelled.
        categories: (K,) Integer categories, used above `MAX_MULTINOMIAL` actions.
        smoothing: Number added to the count of every action within its category.
        penalty: Strength of the ridge penalty on the logistic weights.
    """

    def __init__(self, logs: LoggedData, categories: Any = None, *, smoothing: float = 0.5, penalty: float = 1.0):
        as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
        if len(logs) == 0:
            raise InputError("a logging policy cannot be estimated from an empty log.", "Pass propensities.")
        smoothing = as_scalar("smoothing", smoothing, above=0.0)
        penalty = as_scalar("penalty", penalty, above=0.0)
        self.n_actions, self.dim = logs.n_actions, logs.dim
        row_weights(logs.weights, len(logs))
        self._labels = np.zeros(self.n_actions, dtype=np.int64)
        if categories is not None:
            self._labels = as_labels("categories", categories, self.n_actions)
        if self.n_actions <= MAX_MULTINOMIAL:
            self._labels = np.arange(self.n_actions)
        counts = np.bincount(logs.actions, weights=logs.weights, minlength=self.n_actions) + smoothing
        self._within: Float[Array, " K"] = counts / np.bincount(self._labels, weights=counts)[self._labels]
        self._model, self._kept = _label_model(logs, self._labels, smoothing, penalty)
        self.rows_per_block = max(1, (1 << 21) // self.n_actions)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        p = self._label_probabilities(contexts)[:, self._labels] * self._within
        if eligible is not None:
            p *= eligible.toarray() > 0
            p /= p.sum(axis=1, keepdims=True)
        return Choices(len(contexts), self.n_actions, dense=p)

    def probability_of(self, contexts: Any, actions: Any, *, eligible: Any = None) -> Float[Array, " n"]:
        """π̂_0(a_i | x_i); without `eligible` no row over all actions is formed."""
        if eligible is not None:
            return super().probability_of(contexts, actions, eligible=eligible)
        x = self._check_contexts(contexts)
        actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(x))
        label, out = self._labels[actions], np.empty(len(x))
        for rows in chunks(len(x), max(1, (1 << 21) // (int(self._labels.max()) + 1))):
            by_label = self._label_probabilities(x[rows])
            out[rows] = by_label[np.arange(len(by_label)), label[rows]]
        return out * self._within[actions]

    def _label_probabilities(self, contexts: Float[Array, "n d"]) -> Float[Array, "n L"]:
        n_labels = int(self._labels.max()) + 1
        if self._model is None:
            return np.broadcast_to(self._kept, (len(contexts), n_labels))
        # Labels that were never logged share the probability in `kept`.
        out = np.tile(self._kept, (len(contexts), 1))
        out[:, self._model.classes_] += self._model.predict_proba(contexts) * (1.0 - self._kept.sum())
        return out


def _label_model(
    logs: LoggedData, labels: Int[Array, " K"], smoothing: float, penalty: float
) -> tuple[Pipeline | None, Float[Array, " L"]]:
    """The logistic model of labels, and the little probability kept for every label."""
    counts, n_labels = row_weights(logs.weights, len(logs)), int(labels.max()) + 1
    # A round of weight zero is not there: a label that only such rounds have was never logged.
    there = counts > 0
    logged, counts = labels[logs.actions[there]], counts[there]
    n_seen = len(np.unique(logged))
    if n_seen < 2:
        shares = np.bincount(logged, weights=counts, minlength=n_labels) + smoothing
        return None, shares / shares.sum()
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    # Scaled, so that the ridge treats all columns alike whatever their units.
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0 / penalty, max_iter=1000))
    weights = None if logs.weights is None else counts
    steps = {"standardscaler__sample_weight": weights, "logisticregression__sample_weight": weights}
    model.fit(np.asarray(logs.contexts)[there], logged, **steps)
    kept = np.full(n_labels, smoothing / (counts.sum() + smoothing * n_labels) if n_seen < n_labels else 0.0)
    return model, kept


_ESTIMATED: WeakKeyDictionary[LoggedData, tuple[EstimatedLogging, Float[Array, " n"]]] = WeakKeyDictionary()
"""The logging policy of each log that had to be estimated, and its propensities: all estimates on a log share them."""


def _estimated(logs: LoggedData) -> tuple[EstimatedLogging, Float[Array, " n"]]:
    """The estimated logging policy of a log, and its probabilities of the logged actions."""
    known = _ESTIMATED.get(logs)
    if known is None:
        policy = EstimatedLogging(logs)
        known = _ESTIMATED[logs] = policy, policy.probability_of(logs.contexts, logs.actions)
    return known


def logging_policy_of(logs: LoggedData, categories: Any = None) -> tuple[Policy, dict[str, float]]:
    """The logging policy of a log, and the diagnostic that says whether it had to be estimated."""
    policy = logs.logging_policy
    if policy is None:
        policy = _estimated(logs)[0] if categories is None else EstimatedLogging(logs, categories)
    return policy, {"estimated_propensities": float(isinstance(policy, EstimatedLogging))}


def propensities_of(logs: LoggedData) -> tuple[Float[Array, " n"], dict[str, float]]:
    """π_0(a_i | x_i) as logged, else from the logging policy, else estimated; and the diagnostic that says so.

    π_0 is not restricted to the actions that are eligible for the target: those may differ from the ones eligible when
    the log was written.
    """
    if logs.propensities is not None:
        return logs.propensities, {"estimated_propensities": 0.0}
    policy, estimated = logging_policy_of(logs)
    known = logs.logging_policy is not None
    propensities = policy.probability_of(logs.contexts, logs.actions) if known else _estimated(logs)[1]
    # A round of weight zero does not count.
    propensities = np.where(row_weights(logs.weights, len(logs)) > 0, propensities, 1.0)
    if propensities.min(initial=1.0) <= 0:
        raise PropensityError(
            f"the logging policy gives probability zero to the action logged in row {int(np.argmin(propensities))}.",
            "Check logging_policy, or pass propensities.",
        )
    return propensities, estimated


def as_clip(clip: float | None) -> float:
    """The floor on the propensities of a logging policy, from a user's `clip`; 0 for None."""
    return 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)
