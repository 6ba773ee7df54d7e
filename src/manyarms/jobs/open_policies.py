"""Policies opened from what users name: built-in names, policy files, columns of the log, tables, and functions.

A text is one of

    greedy, softmax:0.1, uniform, ...     a built-in policy, made from a model (`parse_names`)
    policy.arrow                          a policy file
    column:recommended                    a column of the log that holds the picks
    table:picks.csv[:key[+key]]           a table of picks or probabilities by the columns that it shares with the log
    shares:shares.csv                     a table with the share of each action

and each may have a name of its own, as in new=column:recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyarms._base.checks import as_instance, as_text
from manyarms.core import Policy
from manyarms.core.action_numbering import ActionNumbering, as_numbering
from manyarms.errors import DataTypeError, InputError
from manyarms.jobs.parse_names import policy_named
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import ROW
from manyarms.logs.sources import as_source
from manyarms.model_file.load import load
from manyarms.policies import TablePolicy
from manyarms.policies.callable_policy import CallablePolicy
from manyarms.policies.column_policy import ColumnPolicy
from manyarms.policies.lookup_policy import LookupPolicy
from manyarms.policies.picks import column_of_picks
from manyarms.posterior.posterior import Posterior

THOMPSON_DRAWS = 100
"""Draws of thompson without a number: on 100,000 rounds, each draw costs as much as a greedy policy."""

GIVEN = ("column:", "table:", "shares:")
"""The beginnings of texts that name a policy made elsewhere."""

PolicySource = Policy | str | Callable[[Any], Any]
"""Anything that a policy can be opened from."""


@dataclass(frozen=True)
class _LogColumns:
    """The logs as policies that were made elsewhere need to know them.

    Attributes:
        numbering: The ids of the actions.
        columns: The columns of the logs.
        position_weights: How much each position of a list of picks counts; empty for none.
    """

    numbering: ActionNumbering
    columns: Sequence[str] = ()
    position_weights: Sequence[Any] = ()


def policies_to_open(policies: Any) -> dict[str, PolicySource]:
    """The policies to open, by name: those of a mapping, or texts, whose names stand before an equals sign."""
    if isinstance(policies, Mapping):
        return {as_text("policies", name): value for name, value in policies.items()}
    texts = [policies] if isinstance(policies, str) else as_instance("policies", policies, Sequence, "a list of names")
    sources = dict[str, PolicySource]()
    for text in texts:
        name, equals, source = as_text("policies", text).partition("=")
        # A folder may be called day=3.
        named = equals and not Path(text).is_file() and "/" not in name and ":" not in name
        name, source = (name.strip(), source.strip()) if named else (text.strip(), text.strip())
        if not name or not source:
            raise InputError(f"{text!r} names no policy.", "Write NAME=POLICY, as in new=column:recommended.")
        if name in sources:
            raise InputError(f"two policies are called {name!r}.", f"Give one another name, as in {name}-2={source}.")
        sources[name] = source
    return sources


def is_given(source: PolicySource) -> bool:
    """True for a policy to open that was made elsewhere, and so needs to know the actions of the logs."""
    return source.startswith(GIVEN) if isinstance(source, str) else not isinstance(source, Policy)


def is_policy_file(source: PolicySource) -> bool:
    """True for a policy to open that is given by its file: names of policies have no slash and no ending of letters."""
    if not isinstance(source, str) or is_given(source):
        return False
    return "/" in source or Path(source).suffix[1:].isalpha() or Path(source).is_file()


def open_policy_file(path: str) -> Policy:
    """Open the policy that a file holds."""
    if Path(path).suffix.lower() in (".csv", ".parquet", ".pq") or path.lower().endswith(".csv.gz"):
        raise InputError(
            f"{path} is a table, and tables can be read in two ways.",
            f"Pass table:{path} for picks by a column of the logs, or shares:{path} for the share of each action.",
        )
    policy = load(path)
    if not isinstance(policy, Policy):
        raise InputError(
            f"{path} holds a model, and a policy is needed.",
            "Make a policy of it with learn_policy().",
            flag_remedy="Make a policy of it with `manyarms learn`.",
        )
    return policy


def _open_given(source: PolicySource, logs: _LogColumns) -> Policy:
    """A policy that was made elsewhere, from a text or a function; see the module."""
    if not isinstance(source, str):
        if not callable(source):
            kind = type(source).__name__
            raise DataTypeError(f"must be policies, names or functions; got a {kind}.", argument="policies")
        return CallablePolicy(source, logs.numbering)
    kind, _, rest = source.partition(":")
    weights = _numbers(logs.position_weights)
    if kind == "column":
        return ColumnPolicy(_named(source, rest, "column:recommended"), logs.numbering, position_weights=weights)
    if kind == "shares":
        file = _named(source, rest, "shares:shares.csv")
        share = _first(("share", "probability"), as_source(file).columns)
        return TablePolicy.from_shares(file, logs.numbering, share=share or "share")
    file, key = _file_and_key(_named(source, rest, "table:picks.csv"))
    columns = as_source(file).columns
    probability, rank = _first(("probability",), columns), _first(("rank",), columns)
    numbers = [name for name in (probability, rank) if name is not None]
    action = column_of_picks(file, None, [*(key or (ROW,)), *numbers], logs.numbering)
    given = {action, *numbers}
    key = key or _shared_key(file, [name for name in columns if name not in given], logs)
    return LookupPolicy(
        file, None if key == (ROW,) and ROW not in logs.columns else key, logs.numbering, action=action,
        probability=probability, rank=None if probability else rank, position_weights=weights,
    )  # fmt: skip


def open_on_stream(
    sources: Mapping[str, PolicySource], stream: LogStream, position_weights: Sequence[Any]
) -> tuple[LogStream, dict[str, Policy]]:
    """Open all policies that are not made from a model, and read the rounds with the columns that these need."""
    columns = stream.source.columns
    known = _LogColumns(as_numbering(stream), columns, position_weights)
    opened = dict[str, Policy]()
    for name, source in sources.items():
        if isinstance(source, Policy):
            opened[name] = source
        elif is_given(source):
            opened[name] = _open_given(source, known)
        elif is_policy_file(source):
            opened[name] = open_policy_file(str(source))
        elif source in columns:
            raise InputError(f"{source!r} is not a policy, but a column of the logs.", f"Write {name}=column:{source}.")
    maps = [policy.features for policy in opened.values() if policy.features is not None]
    maps = [features for features in maps if features != stream.features]
    for features in maps:
        if features.reads_frames and not features.columns:
            raise InputError(
                "a function gets only the columns of a file that it names.",
                "Pass ma.CallablePolicy(function, actions, columns=[...]).",
            )
    return (stream.also_through(maps) if maps else stream), opened


def open_in_memory(policies: Any, logs: Any, posterior: Posterior | None = None) -> dict[str, Policy]:
    """Open the policies to evaluate on logs in memory, by name: policies, texts and functions of a table.

    Args:
        policies: A mapping from names to these.
        logs: The `LoggedData`.
        posterior: The model that built-in policies are made from.
    """
    columns = () if logs.table is None else logs.table.column_names
    known = _LogColumns(as_numbering(logs), columns)
    opened = dict[str, Policy]()
    for name, source in as_instance("policies", policies, Mapping, "a mapping from names to policies").items():
        if isinstance(source, Policy):
            opened[name] = source
        elif is_given(source):
            opened[name] = _open_given(source, known)
        elif is_policy_file(source):
            opened[name] = open_policy_file(source)
        else:
            rng = np.random.default_rng(0)
            opened[name] = policy_named(source, posterior, n_actions=logs.n_actions, n_draws=THOMPSON_DRAWS, rng=rng)
    return opened


def _named(source: str, rest: str, example: str) -> str:
    if not rest.strip():
        raise InputError(f"{source!r} names nothing after its colon.", f"Write it as in {example}.")
    return rest.strip()


def _file_and_key(rest: str) -> tuple[str, tuple[str, ...]]:
    """The file of a table, and the key columns after its colon."""
    file, colon, key = rest.rpartition(":")
    if not colon or Path(rest).exists():
        return rest, ()
    return file, tuple(name.strip() for name in key.split("+") if name.strip())


def _first(names: Sequence[str], columns: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def _shared_key(file: str, columns: Sequence[str], logs: _LogColumns) -> tuple[str, ...]:
    """The column that says which row of the table applies to a row of the logs, if there can be only one."""
    shared = [name for name in columns if name in logs.columns]
    if not shared and ROW in columns:
        return (ROW,)
    if len(shared) != 1:
        problem = (
            f"{file} shares the columns {', '.join(shared)} with the logs, and any of them may be the key."
            if shared
            else f"{file} shares no column with the logs but the actions; it has {', '.join(columns) or 'no other'}."
        )
        example = f"table:{file}:{'+'.join(shared[:2]) or 'user'}"
        raise InputError(problem, f"Name the key, or several joined by a plus, as in {example}.")
    return (shared[0],)


def _numbers(weights: Sequence[Any]) -> list[float] | None:
    """Position weights as numbers; None where there are none."""
    try:
        return [float(weight) for weight in ([weights] if isinstance(weights, str) else weights)] or None
    except (TypeError, ValueError):
        raise InputError(f"must be numbers, as in 1,0.5,0.25; got {weights!r}.", argument="position_weights") from None
