"""The policy that ships to some: it follows one policy in some segments of the traffic, and another one elsewhere."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance, as_rows
from manyarms.core import Choices, Fingerprint, Policy, RowError, as_column
from manyarms.core.feature_map import levels_of
from manyarms.core.labels import check_hashable, other_type, plain_values
from manyarms.errors import DataTypeError, InputError, ShapeError
from manyarms.model_file.part_checks import instance_of, is_text, tuple_of


class SegmentPolicy(Policy):
    """Follows one policy in some segments, such as countries, and another policy in all others.

    Args:
        policy: The policy to follow in the segments of `follow`.
        otherwise: The policy for all other rows: the one that runs now, as a function of the context.
        segments: The name of a categorical context column of `policy`: it then applies to any context. Or (n,) labels:
            it is then tied to these n rows.
        follow: The labels of the segments in which `policy` is followed.
        chosen_on: The fingerprints of the rounds that these segments were chosen on; see `core.fingerprint`.

    Raises:
        InputError: If the two policies have other actions or features, or there is no such column.
    """

    saved_as = "segments"
    saved_fields = ("policy", "otherwise", "segments", "follow", "chosen_on")
    saved_checks: ClassVar = {
        "policy": instance_of(Policy),
        "otherwise": instance_of(Policy),
        "segments": is_text,
        "follow": tuple_of(lambda part: isinstance(part, str | int | float)),
        "chosen_on": tuple_of(instance_of(Fingerprint)),
    }

    def __init__(
        self, policy: Policy, otherwise: Policy, segments: Any, follow: Any, *, chosen_on: tuple[Fingerprint, ...] = ()
    ):
        self.policy = as_instance("policy", policy, Policy, "a policy")
        self.otherwise = as_instance("otherwise", otherwise, Policy, "a policy")
        for name, side in (("policy", policy), ("otherwise", otherwise)):
            if side.repeats_log:
                raise InputError(
                    "repeats the rows of a log. Importance weights would take its actions for choices.",
                    "Pass the policy that made the log, such as logs.logging_policy.",
                    argument=name,
                )
        if policy.n_actions != otherwise.n_actions:
            problem = f"has {otherwise.n_actions} actions; policy has {policy.n_actions}."
            raise ShapeError(problem, argument="otherwise")
        maps = [side.features for side in (policy, otherwise) if side.features is not None]
        if len(maps) == 2 and maps[0] != maps[1]:
            raise InputError("was learned with another feature map than policy.", argument="otherwise")
        self.follow: tuple[Hashable, ...] = tuple(
            plain_values(check_hashable("follow", as_column("follow", follow, minimum=0)))
        )
        self.features, self.chosen_on = (maps[0] if maps else None), chosen_on
        self.segments: Any = segments if isinstance(segments, str) else None
        self._follows = None if self.segments is not None else self._chosen(as_column("segments", segments))
        if self.segments is not None and (self.features is None or segments not in self.features.categories):
            raise InputError(
                f"names the column {segments!r}, which is not a categorical context column of policy.",
                "Pass a label for each row, and the policy is tied to these rows.",
                argument="segments",
            )
        sizes = [size for size in (policy.n_rows, otherwise.n_rows, self._n_labels) if size is not None]
        if len(set(sizes)) > 1:
            raise ShapeError(f"must have as many rows as the policies are tied to; got {sizes}.", argument="segments")
        self._describe(sizes[0] if sizes else None)

    @property
    def _n_labels(self) -> int | None:
        return None if self._follows is None else len(self._follows)

    def _describe(self, n_rows: int | None) -> None:
        """Set the attributes that every policy has."""
        sides = (self.policy, self.otherwise)
        self.n_actions, self.n_rows = self.policy.n_actions, n_rows
        self.dim = next((side.dim for side in sides if side.dim is not None), None)
        self.catalog = next((side.catalog for side in sides if side.catalog is not None), None)
        self.learned_from = (*self.policy.learned_from, *self.otherwise.learned_from, *self.chosen_on)

    @cached_property
    def rows_per_block(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of rows per call of `choices`: few, where the probabilities of all actions are written out."""
        sides = (self.policy, self.otherwise)
        rows = min(side.rows_per_block for side in sides)
        return min(rows, max(1, (1 << 21) // self.n_actions)) if any(map(_spreads_out, sides)) else rows

    def saved(self) -> dict[str, Any]:
        if self.segments is None:
            raise DataTypeError(
                "a SegmentPolicy that is tied to the labels of some rows cannot be saved.",
                "Pass the name of a categorical context column as segments.",
            )
        return super().saved()

    def consistent(self) -> bool:
        """True if the policies that follow one another are few: each calls the next."""
        depth, waiting = 0, [self.policy, self.otherwise]
        while waiting and depth <= _DEEPEST:
            side = waiting.pop()
            depth += 1
            parts = (getattr(side, name, None) for name in ("policy", "otherwise"))
            waiting += [part for part in parts if isinstance(part, Policy)]
        return depth <= _DEEPEST

    def take(self, rows: slice | Int[Array, " m"]) -> SegmentPolicy:
        if self.n_rows is None:
            return self
        rows = as_rows(rows, self.n_rows)
        part = object.__new__(SegmentPolicy)
        part.policy, part.otherwise = self.policy.take(rows), self.otherwise.take(rows)
        part.follow, part.features, part.chosen_on = self.follow, self.features, self.chosen_on
        part.segments, part._follows = self.segments, None if self._follows is None else self._follows[rows]
        part.n_actions, part.dim, part.catalog = self.n_actions, self.dim, self.catalog
        part.learned_from = self.learned_from
        part.n_rows = len(np.arange(self.n_rows)[rows])
        return part

    def on(self, rounds: Any) -> SegmentPolicy:
        if self.segments is None:
            return self
        sides = self.policy.on(rounds), self.otherwise.on(rounds)
        return SegmentPolicy(*sides, self.segments, self.follow, chosen_on=self.chosen_on)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        follows = self._follows if self._follows is not None else self._chosen(self._labels_of(contexts))
        parts = list[tuple[Array, Choices]]()
        for side, chosen in ((self.policy, follows), (self.otherwise, ~follows)):
            rows = np.flatnonzero(chosen)
            if len(rows):
                allowed = None if eligible is None else eligible[rows]
                try:
                    parts.append((rows, side.take(rows).choices(contexts[rows], allowed)))
                except RowError as cause:
                    raise RowError(int(rows[cause.row]), cause.problem) from None
        return _joined(parts, len(contexts), self.n_actions)

    def _labels_of(self, contexts: Float[Array, "n d"]) -> Any:
        return levels_of(self.features, contexts, self.segments)

    def _chosen(self, labels: Array) -> Bool[Array, " n"]:
        """A mask of the rows whose label is among those to follow; integers and texts match if written alike."""
        check_hashable("segments", labels)
        wanted = {*self.follow, *(other_type(label) for label in self.follow)} - {None}
        distinct, places = dict[Any, int](), np.empty(len(labels), dtype=np.int64)
        places[:] = [distinct.setdefault(label, len(distinct)) for label in plain_values(labels)]
        return np.array([label in wanted for label in distinct], dtype=bool)[places]


def _spreads_out(policy: Policy) -> bool:
    """True if a policy gives every action of a row some probability."""
    if policy.n_rows == 0 or policy.tied_to is not None:
        return False
    choices = policy.take(slice(0, 1)).choices(np.zeros((1, policy.dim or 1)), None)
    return choices.everywhere is not None or choices.dense is not None


def _joined(parts: list[tuple[Array, Choices]], n_rows: int, n_actions: int) -> Choices:
    """Choices of disjoint rows as those of all rows."""
    if all(part.everywhere is None and part.dense is None for _, part in parts) and parts:
        stacked = sparse.vstack([part.named for _, part in parts], format="csr")
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        return Choices(n_rows, n_actions, named=sparse.csr_array(stacked)[order])
    dense = np.zeros((n_rows, n_actions))
    for rows, part in parts:
        dense[rows] = part.probabilities()
    return Choices(n_rows, n_actions, dense=dense)


_DEEPEST = 64
