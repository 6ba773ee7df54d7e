"""The current policy: it repeats the logged actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance, as_rows
from manyarms.core import Choices, LoggedData, Policy, RowError, as_contexts
from manyarms.errors import ShapeError
from manyarms.logs.log_stream import LogStream


class Logged(Policy):
    """Repeats the logged action of every row: the baseline that a candidate must beat.

    It is tied to the rows of its logs: evaluate it on `logs.contexts`, in their order; or on the stream itself.

    Args:
        logs: The logged rounds, in memory or a `LogStream`.
    """

    not_saved = "It repeats the rows of a log: keep the log."
    repeats_log = True

    def __init__(self, logs: LoggedData | LogStream):
        if isinstance(logs, LogStream):
            self.tied_to = logs.fingerprint
        else:
            logs = as_instance("logs", logs, LoggedData, "a LoggedData or a LogStream")
            self._logged, self.n_rows = logs.actions, len(logs)
        self.n_actions = logs.n_actions

    def _check_contexts(self, contexts: Any) -> Float[Array, "n d"]:
        if self.tied_to is not None:
            return super()._check_contexts(contexts)
        x = as_contexts(self._as_rows(contexts), self.features)
        if len(x) != self.n_rows:
            raise ShapeError(
                f"Logged repeats the actions of the {self.n_rows} rows of its log, and there are {len(x)} contexts.",
                "Evaluate on logs.contexts, or on part.contexts with Logged(part) for part = logs.take(rows).",
            )
        return x

    def on(self, rounds: LoggedData) -> Logged:
        return Logged(rounds)

    def take(self, rows: slice | Int[Array, " m"]) -> Logged:
        rows = as_rows(rows, len(self._logged))
        part = object.__new__(Logged)
        part._logged, part.n_actions = self._logged[rows], self.n_actions
        part.n_rows = len(part._logged)
        return part

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        if eligible is not None:
            allowed = np.asarray(eligible[np.arange(len(contexts)), self._logged]).reshape(-1)
            if not allowed.all():
                raise RowError(int(np.argmin(allowed)), "repeats an action that is not eligible")
        return Choices.of_actions(self._logged, self.n_actions)
