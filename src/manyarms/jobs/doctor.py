"""A check-up of logs and catalog before fitting: roles of columns, findings with remedies, commands to run next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from manyarms._base.arrow import pa
from manyarms._base.checks import as_text
from manyarms.core import Tabular
from manyarms.core.labels import integer_of
from manyarms.errors import InputError
from manyarms.jobs.guess_roles import RoleGuess, guess_roles
from manyarms.jobs.log_findings import Level, LogFinding, LogPass, log_findings
from manyarms.logs.column_profile import ColumnProfile
from manyarms.logs.sources import Source, as_source
from manyarms.logs.warehouse_table import shown_name

SAMPLE = 20_000
"""Rows from which the roles of columns are guessed."""
BATCH = 1 << 16
"""Rows that are read at a time."""
ROLES = ("action", "reward", "propensity", "weight", "group", "time", "eligible", "id", "category")


@dataclass(frozen=True)
class CheckUp(Tabular):
    """The result of `doctor`.

    Attributes:
        n_rounds: The number of rows of the logs.
        n_actions: The number of actions in the catalog; None without one.
        roles: The likely role of each column.
        columns: A record of each column of the logs: type, role, missing and distinct values.
        findings: Everything noticed, problems first.
        commands: The commands to run next, with the names of these columns filled in.
    """

    n_rounds: int
    n_actions: int | None
    roles: RoleGuess
    columns: tuple[Mapping[str, Any], ...]
    findings: tuple[LogFinding, ...]
    commands: tuple[str, ...] = field(default=())

    @property
    def worst(self) -> Level:
        """The highest level among the findings: "note" where there is nothing to fix."""
        levels = {finding.level for finding in self.findings}
        return "problem" if "problem" in levels else "warning" if "warning" in levels else "note"

    def records(self) -> list[dict[str, Any]]:
        """A plain record of each finding."""
        return [asdict(finding) for finding in self.findings]

    def record(self) -> dict[str, Any]:
        """The whole result as plain values, for JSON."""
        roles = asdict(self.roles)
        return {
            "rounds": self.n_rounds,
            "actions": self.n_actions,
            "worst": self.worst,
            "roles": roles,
            "columns": [dict(column) for column in self.columns],
            "findings": self.records(),
            "commands": list(self.commands),
        }

    def __repr__(self) -> str:
        counts = {level: sum(finding.level == level for finding in self.findings) for level in ("problem", "warning")}
        parts = ", ".join(f"{count} {level}{'' if count == 1 else 's'}" for level, count in counts.items())
        return f"CheckUp({self.n_rounds:,} rounds: {parts})"


def doctor(
    logs: Any,
    catalog: Any = None,
    *,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
    group: str | None = None,
    time: str | None = None,
    id: str | None = None,
    category: str | None = None,
) -> CheckUp:
    """Check logs and a catalog before fitting: roles of columns, ids, gaps, leakage, support, propensities, repeats.

    The roles of columns are guessed from their names and values; name those that were guessed wrongly. Files are read
    in one pass by batches, after a look at their first rows.

    Args:
        logs: A table, files, or batches, as in `read_logs`.
        catalog: The table of all actions, or its file; None for none.
        action: The column of action ids.
        reward: The column of rewards.
        propensity: The column of propensities.
        group: The column of users or sessions.
        time: The column of times.
        id: The column of action ids in the catalog.
        category: The column of categories in the catalog.
    """
    given = dict(action=action, reward=reward, propensity=propensity, group=group, time=time, id=id, category=category)
    named = {role: as_text(role, name) for role, name in given.items() if name is not None}
    source = as_source(logs)
    items = None if catalog is None else as_source(catalog)
    source.need([name for role, name in named.items() if role not in ("id", "category")])
    if items is not None:
        items.need([name for role, name in named.items() if role in ("id", "category")], "the catalog")
    sample = _with_codes(source, SAMPLE)
    actions = [] if items is None else _with_codes(items, None)
    if not sample or sample[0].n_rows == 0:
        raise InputError("has no rows.", "Pass logs with at least one round.", argument="logs")
    roles = guess_roles(sample, actions, named)
    if items is not None and roles.id:
        # Ids are compared as they are written, once it is known which column holds them.
        actions = _profiles(items.with_labels([roles.id], [roles.category]), None)
    result = LogPass(roles, source.columns)
    texts = [name for name in source.columns if name != roles.time]
    labelled = source.with_labels([name for name in (roles.action, *roles.picks) if name], texts)
    for batch in labelled.batches(source.columns, BATCH):
        result.add(batch)
    categories = {} if items is None or not roles.category else _categories(items, roles)
    unordered = [LogFinding(*parts) for parts in log_findings(result, actions, roles, categories)]
    order = ("problem", "warning", "note")
    findings = tuple(sorted(unordered, key=lambda finding: order.index(finding.level)))
    n_actions = actions[0].n_rows if actions else None
    columns = tuple(_column_record(column, roles) for column in result.columns.values())
    commands = _commands(logs, catalog, roles, result) if roles.action and roles.reward else ()
    return CheckUp(result.n_rows, n_actions, roles, columns, findings, commands)


def _profiles(source: Source, most: int | None) -> list[ColumnProfile]:
    """The profiles of all columns, from the first rows or from all."""
    profiles: dict[str, ColumnProfile] = {}
    n_rows = 0
    for batch in source.batches(source.columns, min(BATCH, most or BATCH)):
        for name in batch.schema.names:
            column = batch.column(name)
            profiles.setdefault(name, ColumnProfile(name, column.type)).add(column, None)
        n_rows += batch.num_rows
        if most is not None and n_rows >= most:
            break
    return list(profiles.values())


def _with_codes(source: Source, most: int | None) -> list[ColumnProfile]:
    """The profiles of all columns, where integers that a CSV file writes as in 007 are codes, and so texts.

    In columns of texts NA is a label, as for `read_logs`: it is a country, too.
    """
    sample = _profiles(source.with_labels((), source.columns), most)
    names = [column.name for column in sample if pa.types.is_integer(column.type)]
    labelled = source.with_labels(names)
    if not names or not labelled.written:
        return sample
    texts = {column.name: column for column in _profiles(labelled, most) if column.name in labelled.written}
    codes = {name for name, column in texts.items() if any(integer_of(label) is None for label in column.counts)}
    return [texts[column.name] if column.name in codes else column for column in sample]


def _categories(items: Source, roles: RoleGuess) -> dict[Any, Any]:
    """The category of each id of the catalog."""
    categories = dict[Any, Any]()
    for batch in items.with_labels([roles.id], [roles.category]).batches([roles.id, roles.category], BATCH):
        categories.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    return categories


def _column_record(column: ColumnProfile, roles: RoleGuess) -> dict[str, Any]:
    role = next((role for role in ROLES[:7] if getattr(roles, role) == column.name), "")
    role = role or ("context" if column.name in roles.context else "picks" if column.name in roles.picks else "")
    distinct = f"{column.n_distinct:,}" if column.is_open else f"over {column.n_distinct:,}"
    return {
        "column": column.name,
        "type": str(column.type),
        "role": role or f"none: {roles.left_out.get(column.name, 'not used')}",
        "missing": column.n_missing,
        "distinct": distinct,
    }


def _commands(logs: Any, catalog: Any, roles: RoleGuess, result: LogPass) -> tuple[str, ...]:
    """The commands to run next on these files; none for tables in memory."""
    if not isinstance(logs, str) and not hasattr(logs, "__fspath__"):
        return ()
    flags = ["--logs", shown_name(logs), "--context", ",".join(roles.context) or "none", "--action", roles.action]
    flags += ["--reward", roles.reward]
    for role in ("propensity", "weight", "group", "time", "eligible"):
        flags += [f"--{role}", getattr(roles, role)] if getattr(roles, role) else []
    if catalog is not None:
        flags += ["--catalog", shown_name(catalog)]
        flags += ["--id", roles.id] if roles.id and roles.id != roles.action else []
        flags += ["--category", roles.category] if roles.category else []
    if result.is_binary:
        flags += ["--likelihood", "bernoulli"]
    gaps = {name for name, column in result.columns.items() if column.n_missing}
    decide = ["manyarms", "decide", *flags]
    drop = ["--missing", "drop"] if gaps & {*roles.context, roles.reward} else []
    commands = [shlex.join([*decide, *drop, "--out", "report.html"])]
    if roles.picks:
        own = [f"{name}=column:{name}" for name in roles.picks]
        drop = drop or (["--missing", "drop"] if gaps & {*roles.picks} else [])
        commands.insert(0, shlex.join([*decide, *drop, "--policies", ",".join(own), "--out", "report.html"]))
    return tuple(commands)
