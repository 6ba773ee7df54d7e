"""Logs read from tables or files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack, get_args

import numpy as np
from jaxtyping import Shaped

from manyarms._base.arrow import compute, pa
from manyarms._base.checks import Array, as_count, as_instance, as_names, as_text
from manyarms._base.job_options import LogOptions, Missing, Unknown, takes, with_defaults
from manyarms._base.row_numbers import rows_from
from manyarms.core import OTHER, Catalog, FeatureMap, LoggedData, codes_of, column_of, whole_numbers_of
from manyarms.core.feature_map import Categorical
from manyarms.core.labels import labels_from_texts
from manyarms.errors import ActionError, InputError, RangeError
from manyarms.logs.age_rule import AgeRule, local_time
from manyarms.logs.column_profile import odd_number
from manyarms.logs.learn_features import learn_features
from manyarms.logs.log_stream import BATCH, LogStream
from manyarms.logs.row_reader import ColumnRoles, RowReader, complete_rows
from manyarms.logs.sources import Source, TableSource, as_source
from manyarms.logs.warehouse_table import WarehouseTable

MOST_NUMBERED, MOST_NUMBERED_PER_ROW = 10_000_000, 100
"""Beyond both of these, the largest number is somebody's id and does not count actions."""
CODES_FROM, NUMBERS_PER_CODE = 1_000, 10
"""Ids from the first of these on that leave out most numbers are codes: up to 90210, at most 9,021 of them."""


@takes(LogOptions)
def read_logs(
    logs: Any,
    context: str | Iterable[str],
    action: str,
    reward: str,
    propensity: str | None = None,
    catalog: Catalog | None = None,
    *,
    features: FeatureMap | None = None,
    n_actions: int | None = None,
    after: datetime | None = None,
    keep: str | Iterable[str] = (),
    **options: Unpack[LogOptions],
) -> LoggedData | LogStream:
    """Rounds from a table (`LoggedData`), or from files and batches, which are read as they are needed (`LogStream`).

    Columns are mapped by name. Context columns become features: numbers are standardised, texts one-hot with an
    "(other)", lists of numbers taken as they are, and a column of ones comes first. What is learned for that from these
    rows, in one pass, is the `FeatureMap` that the posterior keeps.

    Args:
        logs: A table of pandas, Polars or Arrow; a Parquet, CSV or Arrow file, a folder or a glob; Arrow batches; or a
            table of a database: an Ibis table, or its address, as in "duckdb://shop.db?table=logs".
            CSV files may be separated by semicolons or tabs: the header of the first one tells. Ids and categories of
            a CSV file are read as they are written: 007 is not 7, and NA is a label; only an empty cell is missing.
        context: The name of a context column, or several.
        action: The column of action ids.
        reward: The column of rewards.
        propensity: The column of the logging policy's probabilities, if there is one.
        catalog: All actions by id. Without one, ids are action numbers; or texts, or codes such as 90210, that are
            numbered in their order: then only logged actions are known.
        features: A feature map learned before, to be used again; None to learn one here.
        n_actions: K, when ids are action numbers; by default one more than the largest.
        after: Rounds at this time or before are left out, for instance because a model has them already.
        keep: Further columns of files to keep beside the rounds, such as those that your own policies read (see
            `ColumnPolicy`). All columns of a table are kept.
        options: How rows become rounds; see `LogOptions`. The columns `weight` (how often a row counts), `group` (the
            user or session) and `time` (timestamps, dates, texts such as 2024-05-01 09:30, or numbers that increase
            with time), which is kept as `LoggedData.times`; `segment` (a label of a part of the traffic, such as a
            country, which no model sees), kept as `LoggedData.segments`; `eligible` (lists of the actions that could be
            chosen), kept as `LoggedData.eligible`; the context columns of whole numbers that are
            `categorical`, and the `max_levels` of a category (100) with a feature of their own. `expand`: further
            features of the numbers, "splines", "products", "fourier" or "nystroem", fitted to the first 10,000 rows.
            `missing`: "refuse" a row that lacks a value, or "drop" it. `unknown`: "refuse" an action that is not in the
            catalog, "drop" its rows, or count it as the action "(other)", which the catalog must then list. Rows that
            are dropped are counted. `half_life`: a round this old counts half. `maturity`: younger rounds are left out,
            since their rewards may still come in. `now`: the time from which ages are counted, by default that of this
            call.

    Raises:
        InputError: Naming the column, the row and a way out.
    """
    given = with_defaults("read_logs", options, LogOptions)
    source = as_source(logs)
    context, categorical = as_names("context", context), as_names("categorical", given.categorical)
    named = {"action": action, "reward": reward, "propensity": propensity, "weight": given.weight}
    named |= {
        "group": given.group,
        "time": given.time,
        "segment": given.segment,
        "eligible": given.eligible,
        **{f"context {place}": name for place, name in enumerate(context)},
    }
    for argument, name in named.items():
        if name is not None or argument in ("action", "reward"):
            as_text(argument, name)
    kept = as_names("keep", keep)
    if isinstance(source, TableSource):
        kept = [name for name in source.columns if source.columns.count(name) == 1]
    roles = ColumnRoles(
        tuple(context), action, reward, propensity, given.weight, given.group, given.time, given.segment, given.eligible
    )
    source.need([*roles.columns, *as_names("keep", keep)])
    for name, value, allowed in (("missing", given.missing, Missing), ("unknown", given.unknown, Unknown)):
        if value not in get_args(allowed):
            choice = " or ".join(f'"{word}"' for word in get_args(allowed))
            raise InputError(f"must be {choice}; got {value!r}.", argument=name)
    age = _age_rule(given, after)
    categories = features.categories if isinstance(features, FeatureMap) else categorical
    single = [name for name in (action, given.group, given.segment) if name is not None]
    source = source.with_labels([*single, *(name for name in categories if name in roles.context)], roles.context)
    if features is None:
        features = _learned_features(source, roles, categorical, given)
    elif as_instance("features", features, FeatureMap, "a FeatureMap").columns != roles.context:
        problem = f"reads the columns {features.columns}; context names {roles.context}."
        raise InputError(problem, argument="features")
    for text in context_warnings(features, reward):
        warnings.warn(text, stacklevel=2)
    if catalog is None:
        catalog, n_actions = _numbered(source, roles, given.missing, n_actions)
    else:
        catalog = as_instance("catalog", catalog, Catalog, "a Catalog")
        n_actions = catalog.n_actions
    if given.unknown == "other" and (catalog is None or catalog.find([OTHER])[0] < 0):
        raise InputError(
            f"needs an action {OTHER!r} to count unknown ones as.",
            "Pass a catalog that lists it, as in ma.read_catalog(..., other=True).",
            argument='unknown="other"',
            flag_remedy="Fit with --catalog and --unknown other, which adds it.",
        )
    reader = RowReader(
        roles, features, n_actions, catalog, given.missing, given.unknown, age, source.written, tuple(kept)
    )
    stream = LogStream(source, reader)
    return stream.collect() if isinstance(source, TableSource) else stream


def context_warnings(features: FeatureMap, reward: str) -> list[str]:
    """Warnings about the context columns that logs were read with: the reward among them, or numbers read as texts."""
    warnings = list[str]()
    if reward in features.columns:
        warnings.append(
            f"the reward column {reward!r} is also a context column, so the model sees the rewards that it is to "
            "predict, and its estimates mean nothing: leave it out of the context"
        )
    for feature in features.features:
        levels = feature.levels if isinstance(feature, Categorical) else ()
        odd = odd_number([level for level in levels if isinstance(level, str)])
        if odd is not None:
            warnings.append(
                f"column {feature.column!r} looks like numbers but is read as texts because of values such as {odd!r}, "
                f"so each value is a feature of its own ({len(levels):,} of them): write plain numbers, such as "
                "1250.00, and leave unknown ones empty"
            )
    return warnings


def _learned_features(source: Source, roles: ColumnRoles, categorical: list[str], given: Any) -> FeatureMap:
    """The feature map learned from the rows that lack no value: in a database where they are, else in one pass."""
    how: dict[str, Any] = {"categorical": categorical, "max_levels": given.max_levels, "expand": given.expand}
    if isinstance(source, WarehouseTable):
        from manyarms.logs.warehouse_features import learn_warehouse_features  # noqa: PLC0415  an extra

        return learn_warehouse_features(source.complete(roles.needed, given.missing)[0], roles.context, **how)
    rows = _complete_rows(source, roles, given.missing)
    return learn_features(rows, roles.context, written=source.written, **how)


def _complete_rows(source: Source, roles: ColumnRoles, missing: Missing) -> Iterator[pa.Table]:
    if isinstance(source, WarehouseTable):
        # Every id once is enough.
        kept = source.complete(roles.needed, missing)[0]
        yield kept.ask(kept.table.select(roles.action).distinct())
        return
    first = 0
    for batch in source.batches(roles.columns, BATCH):
        with rows_from(first, source.place_of):
            yield complete_rows(batch, roles.needed, missing, roles.columns)[0]
        first += batch.num_rows


def _numbered(
    source: Source, roles: ColumnRoles, missing: Missing, n_actions: int | None
) -> tuple[Catalog | None, int]:
    """Actions without a catalog: numbers count themselves, texts and codes are numbered in their order."""
    if n_actions is not None:
        return None, as_count("n_actions", n_actions)
    n_rows, largest, codes, texts = 0, -1, _Codes(), set[Any]()
    for table in _complete_rows(source, roles, missing):
        n_rows += table.num_rows
        column, offered = column_of(table, roles.action), list[Any]()
        if roles.eligible is not None:
            candidates = compute.call_function("list_flatten", [column_of(table, roles.eligible)])
            offered = compute.call_function("unique", [candidates]).drop_null().to_pylist()
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            numbers = whole_numbers_of(roles.action, column)
            largest = max(largest, int(numbers.max(initial=-1)))
            codes.add(numbers, offered)
        else:
            texts.update(codes_of(column)[1], offered)
    written = labels_from_texts(list(texts)) if roles.action in source.written else []
    if written and isinstance(written[0], int):
        largest, texts = max(written), set[Any]()
        codes.add(np.array(written), [])
    if texts or codes.ids(largest):
        catalog = Catalog(sorted(texts, key=str) if texts else codes.ids(largest))
        return catalog, catalog.n_actions
    if largest < 0:
        raise InputError("there are no rows, so the number of actions is not known.", "Pass a catalog.")
    if largest >= max(MOST_NUMBERED, MOST_NUMBERED_PER_ROW * n_rows):
        raise ActionError(
            f"column {roles.action} holds the id {largest}, and without a catalog ids are action numbers 0, 1, 2, ..., "
            "so there would be as many actions.",
            "Pass a catalog with all ids, including those never logged.",
        )
    return None, largest + 1


class _Codes:
    """The distinct ids of a log that are whole numbers, as long as they may be codes, which do not count actions."""

    def __init__(self):
        self._ids: set[int] | None = set()

    def add(self, numbers: Shaped[Array, " n"], offered: Iterable[Any]) -> None:
        """Add the ids of some rows, and those of their candidates."""
        if self._ids is not None and numbers.min(initial=CODES_FROM) >= CODES_FROM:
            self._ids |= {int(number) for number in (*np.unique(numbers), *offered)}
        else:
            self._ids = None

    def ids(self, largest: int) -> list[int]:
        """The ids in order, or none where the largest may well be the number of an action."""
        ids = self._ids or set[int]()
        return sorted(ids) if largest >= NUMBERS_PER_CODE * max(len(ids), 1) else []


def _age_rule(given: Any, after: datetime | None) -> AgeRule | None:
    if given.half_life is None and given.maturity is None and after is None:
        return None
    if given.time is None:
        raise InputError(
            "need the time of each round." if after is None else "need the time of each round, and so does after.",
            'Name the column of times, as in time="at".',
            argument="half_life and maturity",
            flag_remedy="Name the column of times with --time.",
        )
    for name, moment in (("now", given.now), ("after", after)):
        if moment is not None:
            as_instance(name, moment, datetime, "a datetime, as in datetime(2024, 5, 1)")
    for name, span in (("half_life", given.half_life), ("maturity", given.maturity)):
        if span is None:
            continue
        if as_instance(name, span, timedelta, "a timedelta, as in timedelta(days=14)") <= timedelta(0):
            raise InputError(f"must be a positive timedelta; got {span!r}.", argument=name)
    now = given.now or datetime.now().astimezone()
    rule = AgeRule(now, given.half_life, given.maturity, after, by_clock=given.now is None)
    try:
        _ = rule.until, local_time(now), now if now.tzinfo is None else now.astimezone(UTC)
    except OverflowError:
        argument = "now" if given.maturity is None else "now and maturity"
        raise RangeError(
            f"lead to a time outside the years 1 to 9999; now is {now.isoformat()}."
            if given.maturity is not None
            else f"is a time outside the years 1 to 9999 in another time zone; it is {now.isoformat()}.",
            "Count ages from a later time." if now.year < 5000 else "Count ages from an earlier time.",
            argument=argument,
        ) from None
    return rule
