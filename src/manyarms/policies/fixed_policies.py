"""Policies made without a posterior: given by probabilities, by the log, or by another policy and exploration."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_floats, as_instance, as_scalar, check_rows
from manyarms.core import Choices, LoggedData, Policy, RowError, as_contexts
from manyarms.errors import DataTypeError, PropensityError, ShapeError
from manyarms.linalg.indexing import shape_of
from manyarms.logs.log_stream import LogStream


class Uniform(Policy):
    """Chooses every eligible action with the same probability.

    Args:
        n_actions: K.
    """

    saved_as = "uniform"
    saved_fields = ("n_actions",)

    def __init__(self, n_actions: int):
        self.n_actions = as_count("n_actions", n_actions)
        self._probabilities = np.full(self.n_actions, 1.0 / self.n_actions)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return Choices.of_shared(self._probabilities, len(contexts), eligible)


class TablePolicy(Policy):
    """A policy given as a table of probabilities, wherever they come from.

    Args:
        probabilities: (n, K), one row per context, dense or SciPy sparse: the policy is then tied to these n rows. Or
            (K,), one distribution for every context.

    Raises:
        PropensityError: When a probability is negative or a row does not sum to 1.
    """

    saved_as = "table"
    saved_fields = ("probabilities",)

    def __init__(self, probabilities: Any):
        if sparse.issparse(probabilities):
            if probabilities.ndim != 2 or probabilities.dtype.kind not in "biuf":
                raise DataTypeError(
                    f"must be real with 2 axes where they are sparse; got {probabilities.dtype}, {probabilities.ndim}.",
                    argument="probabilities",
                )
            table = sparse.csr_array(probabilities, dtype=np.float64, copy=True)
            table.sum_duplicates()
            # A stored zero is not a choice: sampling must not land on it for a rounding error in the sum of its row.
            table.eliminate_zeros()
            # The smallest and the largest of each row stand for its entries, so that an error names the row.
            lowest, highest = (
                np.asarray(part.todense()).reshape(-1) for part in (table.min(axis=1), table.max(axis=1))
            )
            values = as_floats("probabilities", np.column_stack([lowest, highest]), ndim=2)
            totals = np.asarray(table.sum(axis=1)).reshape(-1)
        else:
            table = as_floats("probabilities", probabilities, ndim=(1, 2))
            values, totals = table, np.atleast_1d(table.sum(axis=-1))
        shape = table.shape if isinstance(table, np.ndarray) else shape_of(table)
        if shape[-1] == 0:
            raise ShapeError("must have at least one action.", argument="probabilities")
        negative = "must not be negative", "Clip and renormalise."
        check_rows("probabilities", values, lambda p: p >= 0, PropensityError, *negative)
        uneven = "must be 1", "Divide each row by its sum."
        check_rows("the sum of probabilities", totals, lambda s: np.abs(s - 1.0) <= 1e-6, PropensityError, *uneven)
        self._table = table
        self.n_actions = int(shape[-1])
        self.n_rows = None if len(shape) == 1 else int(shape[0])
        if isinstance(table, np.ndarray) and table.ndim == 2:
            self.rows_per_block = max(1, (1 << 21) // self.n_actions)

    def saved(self) -> dict[str, Any]:
        if self.n_rows is not None:
            raise DataTypeError(
                f"a TablePolicy of {self.n_rows} rows cannot be saved: it is tied to their contexts.",
                "Save the probabilities with these, or a (K,) table, which applies to every context.",
            )
        return {"probabilities": self._table}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> TablePolicy:
        out = object.__new__(cls)
        out._table, out.n_actions, out.n_rows = parts["probabilities"], len(parts["probabilities"]), None
        return out

    def take(self, rows: slice | Int[Array, " m"]) -> TablePolicy:
        if self.n_rows is None:
            return self
        part = object.__new__(TablePolicy)
        part._table, part.n_actions, part.rows_per_block = self._table[rows], self.n_actions, self.rows_per_block
        part.n_rows = len(np.arange(self.n_rows)[rows])
        return part

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        n, table = len(contexts), self._table
        if table.ndim == 1:
            return Choices.of_shared(np.asarray(table), n, eligible)
        if eligible is not None:
            kept = sparse.csr_array(eligible.multiply(table))
            kept.eliminate_zeros()
            totals = np.asarray(kept.sum(axis=1)).reshape(-1)
            if n and totals.min() <= 0:
                raise RowError(int(np.argmin(totals)), "gives probability zero to every eligible action")
            kept.data /= np.repeat(totals, np.diff(kept.indptr))
            return Choices(n, self.n_actions, named=kept)
        if isinstance(table, np.ndarray):
            return Choices(n, self.n_actions, dense=table)
        return Choices(n, self.n_actions, named=table)


class Logged(Policy):
    """Repeats the logged action of every row: the baseline that a candidate must beat.

    It is tied to the rows of its logs: evaluate it on `logs.contexts`, in their order; or on the stream itself.

    Args:
        logs: The logged rounds, in memory or a `LogStream`.
    """

    not_saved = "It repeats the rows of a log: keep the log."

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
        x = as_contexts(contexts, self.features)
        if len(x) != self.n_rows:
            raise ShapeError(
                f"Logged repeats the actions of the {self.n_rows} rows of its log, and there are {len(x)} contexts.",
                "Evaluate on logs.contexts, or on part.contexts with Logged(part) for part = logs.take(rows).",
            )
        return x

    def on(self, rounds: LoggedData) -> Logged:
        return Logged(rounds)

    def take(self, rows: slice | Int[Array, " m"]) -> Logged:
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


class EpsilonGreedy(Policy):
    """With probability ε a uniform choice among the eligible actions, else the choice of another policy.

    Args:
        policy: The policy to follow otherwise; it need not be greedy.
        epsilon: ε in [0, 1].
    """

    saved_as = "epsilon-greedy"
    saved_fields = ("policy", "epsilon")

    def __init__(self, policy: Policy, epsilon: float):
        self.policy = as_instance("policy", policy, Policy, "a policy")
        self.epsilon = as_scalar("epsilon", epsilon, at_least=0.0, at_most=1.0)
        self.n_actions, self.n_rows, self.dim = policy.n_actions, policy.n_rows, policy.dim
        self.rows_per_block, self.learned_from = policy.rows_per_block, policy.learned_from
        self.features, self.catalog, self.tied_to = policy.features, policy.catalog, policy.tied_to

    def take(self, rows: slice | Int[Array, " m"]) -> EpsilonGreedy:
        return EpsilonGreedy(self.policy.take(rows), self.epsilon)

    def on(self, rounds: Any) -> EpsilonGreedy:
        return EpsilonGreedy(self.policy.on(rounds), self.epsilon)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        uniform = np.full(self.n_actions, 1.0 / self.n_actions)
        explored = Choices.of_shared(uniform, len(contexts), eligible)
        return self.policy.choices(contexts, eligible).mixed(self.epsilon, explored)

    def top_k(self, contexts: Any, k: int, *, eligible: Any = None) -> Int[Array, "n k"]:
        """The k best actions of the policy that it follows: exploration has no order."""
        return self.policy.top_k(contexts, k, eligible=eligible)
