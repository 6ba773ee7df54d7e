"""The door for logs that are tables or files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args

from manyarms._base.checks import as_count, as_instance, rows_from
from manyarms._base.option_values import Missing, Unknown
from manyarms.core.arrow_columns import codes_of, column_of, whole_numbers_of
from manyarms.core.catalog import Catalog
from manyarms.core.feature_map import OTHER, FeatureMap
from manyarms.core.logged_data import LoggedData
from manyarms.errors import ActionError, DataTypeError, InputError
from manyarms.logs.learn_features import learn_features
from manyarms.logs.log_stream import BATCH, LogStream
from manyarms.logs.row_reader import AgeRule, ColumnRoles, RowReader, complete
from manyarms.logs.sources import Source, TableSource, as_source

if TYPE_CHECKING:
    import pyarrow as pa


def read_logs(
    logs: Any,
    context: str | Sequence[str],
    action: str,
    reward: str,
    propensity: str | None = None,
    catalog: Catalog | None = None,
    *,
    weight: str | None = None,
    group: str | None = None,
    time: str | None = None,
    features: FeatureMap | None = None,
    categorical: str | Sequence[str] = (),
    max_levels: int = 100,
    n_actions: int | None = None,
    missing: Missing = "refuse",
    unknown: Unknown = "refuse",
    half_life: timedelta | None = None,
    maturity: timedelta | None = None,
    now: datetime | None = None,
    after: datetime | None = None,
) -> LoggedData | LogStream:
    """Rounds from a table (`LoggedData`), or from files and batches, which are read as they are needed (`LogStream`).

    Columns are mapped by name. Context columns become features: numbers are standardised, texts one-hot with an
    "(other)", lists of numbers taken as they are, and a column of ones comes first; what is learned for that from these
    rows, in one pass, is the `FeatureMap` that the posterior keeps.

    Args:
        logs: A table of pandas, Polars or Arrow; a Parquet, CSV or Arrow file, a folder or a glob; or Arrow batches.
            CSV files may be separated by semicolons or tabs: the header of the first one tells.
        context: The name of a context column, or several.
        action: The column of action ids.
        reward: The column of rewards.
        propensity: The column of the logging policy's probabilities, if there is one.
        catalog: All actions by id. Without one, ids are action numbers, or texts that are numbered in their order.
        weight: A column that says how often a row counts.
        group: A column of users or sessions.
        time: A column of times; needed for `half_life`, `maturity` and `after`.
        features: A map learned before, to be used again; None to learn one here.
        categorical: Context columns of whole numbers that are categories.
        max_levels: Levels of a category with a feature of their own at most.
        n_actions: K, when ids are action numbers; by default one more than the largest.
        missing: "refuse" a row that lacks a value, or "drop" it; what is dropped is counted.
        unknown: "refuse" an action that is not in the catalog, "drop" its rows, or count it as the action "(other)",
            which the catalog must then list.
        half_life: A round this old counts half.
        maturity: Rounds younger than this are left out, since their rewards may still come in.
        now: What ages are counted from; by default the time of this call.
        after: Rounds at this time or before are left out, for instance since a model has them.

    Raises:
        InputError: Naming the column, the row and a way out.
    """
    source = as_source(logs)
    # A text is a sequence of its letters, which nobody means.
    context, categorical = ((names,) if isinstance(names, str) else names for names in (context, categorical))
    roles = ColumnRoles(tuple(context), action, reward, propensity, weight, group, time)
    source.need(roles.columns)
    for name, value, allowed in (("missing", missing, Missing), ("unknown", unknown, Unknown)):
        if value not in get_args(allowed):
            choice = " or ".join(f'"{one}"' for one in get_args(allowed))
            raise InputError(f"{name} must be {choice}; got {value!r}.")
    age = _age(roles, half_life, maturity, now, after)
    if features is None:
        rows = _complete_rows(source, roles, missing)
        features = learn_features(rows, roles.context, categorical=categorical, max_levels=max_levels)
    elif as_instance("features", features, FeatureMap, "a FeatureMap").columns != roles.context:
        raise InputError(f"features reads the columns {features.columns}; context names {roles.context}.")
    if catalog is None:
        catalog, n_actions = _numbered(source, roles, missing, n_actions)
    else:
        catalog = as_instance("catalog", catalog, Catalog, "a Catalog")
        n_actions = catalog.n_actions
    if unknown == "other" and (catalog is None or catalog.find([OTHER])[0] < 0):
        raise InputError(
            f'unknown="other" needs an action {OTHER!r} to count unknown ones as. Pass a catalog that lists it, as in '
            "ma.read_catalog(..., other=True)."
        )
    stream = LogStream(source, RowReader(roles, features, n_actions, catalog, missing, unknown, age))
    return stream.collect() if isinstance(source, TableSource) else stream


def _complete_rows(source: Source, roles: ColumnRoles, missing: Missing) -> Iterator[pa.Table]:
    first = 0
    for batch in source.batches(roles.columns, BATCH):
        with rows_from(first, source.place_of):
            yield complete(batch, roles.columns, missing)[0]
        first += batch.num_rows


def _numbered(
    source: Source, roles: ColumnRoles, missing: Missing, n_actions: int | None
) -> tuple[Catalog | None, int]:
    """Ids that are action numbers count themselves; texts are numbered in their order."""
    import pyarrow as pa  # noqa: PLC0415

    if n_actions is not None:
        return None, as_count("n_actions", n_actions)
    largest, n_rows, texts = -1, 0, set[Any]()
    for table in _complete_rows(source, roles, missing):
        n_rows += table.num_rows
        column = column_of(table, roles.action)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            largest = max(largest, int(whole_numbers_of(roles.action, column).max(initial=-1)))
        else:
            texts.update(codes_of(column)[1])
    if texts:
        catalog = Catalog(sorted(texts, key=str))
        return catalog, catalog.n_actions
    if largest < 0:
        raise InputError("there are no rows, so it is not known how many actions there are; pass catalog=.")
    if largest >= max(MOST_NUMBERED, MOST_NUMBERED_A_ROW * n_rows):
        raise ActionError(
            f"column {roles.action} holds the id {largest}, and without a catalog ids are action numbers 0, 1, 2, ..., "
            "so there would be as many actions. Pass catalog= with all ids, those never logged too."
        )
    return None, largest + 1


MOST_NUMBERED, MOST_NUMBERED_A_ROW = 10_000_000, 100
"""Beyond both of these, the largest number is somebody's id and does not count actions."""


def _age(
    roles: ColumnRoles,
    half_life: timedelta | None,
    maturity: timedelta | None,
    now: datetime | None,
    after: datetime | None,
) -> AgeRule | None:
    if half_life is None and maturity is None and after is None:
        return None
    if roles.time is None:
        raise InputError("half_life and maturity need to know when a round was (as after does): pass time=.")
    for name, moment in (("now", now), ("after", after)):
        if moment is not None and not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataTypeError(f"{name} must be a datetime, as in datetime(2024, 5, 1); got {moment!r}.")
    for name, span in (("half_life", half_life), ("maturity", maturity)):
        if span is not None and not isinstance(span, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataTypeError(f"{name} must be a timedelta, as in timedelta(days=14); got {span!r}.")
        if span is not None and span.total_seconds() <= 0:
            raise InputError(f"{name} must be a positive timedelta; got {span!r}.")
    return AgeRule(now or datetime.now().astimezone(), half_life, maturity, after, by_clock=now is None)
