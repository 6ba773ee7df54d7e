"""A table in a database, reached through Ibis: summed up where its rows are, or read in batches."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from manyarms._base.arrow import pa
from manyarms._base.checks import import_optional
from manyarms.errors import EngineError, InputError, ManyarmsError, NonFiniteError
from manyarms.logs.sources import Source

Expression = Any
"""An expression of Ibis, which has no type stubs."""

EXTRA = "manyarms[ibis]"


class WarehouseTable(Source):
    """The rows of an Ibis table. They stay in the database, except where a pass needs every one of them.

    A database keeps no order of rows, so nothing here depends on it.

    Args:
        table: An Ibis table: a table or view of a database, or a query on one.
    """

    def __init__(self, table: Expression):
        self.table, self.columns = table, list(table.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return self.table.schema().to_pyarrow()

    @property
    def identity(self) -> str:
        ibis: Any = import_optional("ibis", "a database table", EXTRA)
        backend = self.table.get_backend()
        return f"{backend.name} {getattr(backend, 'current_database', '')} {ibis.to_sql(self.table)}"

    @property
    def n_rows(self) -> int:
        return self._n_rows

    @cached_property
    def _n_rows(self) -> int:
        return self.ask(self.table.aggregate(n=self.table.count()))["n"][0].as_py()

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys(columns))
        with _database_errors():
            yield from self.table.select(*names).to_pyarrow_batches(chunk_size=size)

    def ask(self, query: Expression) -> pa.Table:
        """The answer of the database to a query, as a table."""
        with _database_errors():
            return query.to_pyarrow()

    def complete(self, columns: Iterable[str], missing: str) -> tuple[WarehouseTable, int]:
        """The rows that lack no value in some columns, and the number of the others; NaN counts as missing.

        Args:
            columns: The names of the columns.
            missing: "refuse" to raise an error where a value is missing, or "drop".
        """
        names = list(dict.fromkeys(columns))
        gaps = {name: self._is_missing(name) for name in names}
        anywhere = _any(list(gaps.values()))
        query = {f"gap{place}": gap.ifelse(1, 0).sum() for place, gap in enumerate(gaps.values())}
        row = self.ask(self.table.aggregate(anywhere=anywhere.ifelse(1, 0).sum(), **query)).to_pylist()[0]
        if not row["anywhere"]:
            return self, 0
        if missing == "refuse":
            name, count = next((n, row[f"gap{i}"]) for i, n in enumerate(names) if row[f"gap{i}"])
            raise NonFiniteError(
                f"column {name} is missing in {count:,} rows.",
                'Fill it in, or pass missing="drop".',
                flag_remedy="Fill it in, or pass --missing drop.",
            )
        return WarehouseTable(self.table.filter(~anywhere)), int(row["anywhere"])

    def _is_missing(self, name: str) -> Expression:
        column = self.table[name]
        gap = column.isnull()
        return gap | column.isnan() if pa.types.is_floating(self.schema.field(name).type) else gap

    def counts(self, column: str, limit: int | None = None) -> dict[Any, int]:
        """The number of rows with each value of a column; at most `limit` values."""
        query = self.table.group_by(value=self.table[column]).aggregate(n=lambda table: table.count())
        answer = self.ask(query if limit is None else query.limit(limit))
        return dict(zip(answer["value"].to_pylist(), answer["n"].to_pylist(), strict=True))

    def thinned(self, n: int) -> WarehouseTable:
        """About n rows or somewhat more, drawn where they are; all rows where there are not many more.

        The database draws them anew for every query, so this can be read only once.
        """
        ibis: Any = import_optional("ibis", "a database table", EXTRA)
        wanted = n + 6 * n**0.5 + 20
        if wanted >= self.n_rows:
            return self
        return WarehouseTable(self.table.filter(ibis.random() < wanted / self.n_rows))

    @contextmanager
    def without_compiler(self) -> Generator[None]:
        """PostgreSQL as it is without its compiler, which takes far longer for hundreds of sums than the sums do."""
        backend = self.table.get_backend()
        if backend.name != "postgres":
            yield
            return
        with _database_errors(), closing(backend.raw_sql("SHOW jit")) as cursor:
            before = cursor.fetchone()[0]
            cursor.execute("SET jit = off")
        yield
        # After an error the connection may be gone, and with it the setting.
        with _database_errors():
            backend.raw_sql(f"SET jit = {before}").close()


def is_ibis_table(value: Any) -> bool:
    """True for a table of Ibis, which can become a `WarehouseTable`; Ibis is not imported."""
    return any(kind.__module__.startswith("ibis.") and kind.__name__ == "Table" for kind in type(value).__mro__)


def is_address(value: Any) -> bool:
    """True for the address of a table in a database, as in duckdb://shop.db?table=logs."""
    return isinstance(value, str) and "://" in value


def shown_name(logs: Any) -> str:
    """The name of a warehouse table in reports, or its address without the password; paths of files as they are."""
    if is_ibis_table(logs):
        return str(logs.get_name()) if hasattr(logs.op(), "name") else "a query"
    return _without_password(logs) if is_address(logs) else str(logs)


def open_warehouse(address: str) -> WarehouseTable:
    """The table at an address, as in duckdb://shop.db?table=logs, opened for reading only.

    Args:
        address: The address of a database as `ibis.connect` takes it, with the name of a table or view as `table`.
    """
    ibis: Any = import_optional("ibis", "a database table", EXTRA)
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    name = options.pop("table", None)
    if not name:
        raise InputError(
            f"must name a table; {_without_password(address)} names none.",
            "Add one, as in duckdb://shop.db?table=logs.",
            argument="logs",
        )
    for file in database_files(address):
        # DuckDB would make a new, empty database.
        if not file.is_file():
            raise InputError(f"names the database {file}, which does not exist.", "Check the path.", argument="logs")
        options["read_only"] = "True"
    with _database_errors(_without_password(address)):
        backend = ibis.connect(_joined(parts, options))
        if parts.scheme in ("postgres", "postgresql"):
            backend.raw_sql("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY").close()
            weakref.finalize(backend, backend.con.close)
        if name not in backend.list_tables():
            tables = ", ".join(sorted(backend.list_tables())[:20]) or "none"
            problem = f"names the table {name!r}, which does not exist; the tables are: {tables}."
            raise InputError(problem, argument="logs")
        return WarehouseTable(backend.table(name))


def database_files(address: str) -> list[Path]:
    """The file that holds the database at an address; none where a server holds it."""
    parts = urlsplit(address)
    return [Path(f"{parts.netloc}{parts.path}")] if parts.scheme in ("duckdb", "sqlite") else []


def _joined(parts: Any, options: dict[str, str]) -> str:
    # urlunsplit would drop the slashes of an address without a host, as in duckdb:///data/shop.db.
    query = f"?{urlencode(options)}" if options else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"


def _without_password(address: str) -> str:
    parts = urlsplit(address)
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    options = {name: value for name, value in parse_qsl(parts.query) if name != "password"}
    return _joined(parts._replace(netloc=f"{name}@{host}" if user else host), options)


def _any(conditions: list[Expression]) -> Expression:
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result


@contextmanager
def _database_errors(where: str = "the database") -> Generator[None]:
    """Turn the errors of any driver into one of ours: they have no common base class."""
    try:
        yield
    except ManyarmsError:
        raise
    except Exception as failure:
        # The first line says what is wrong; a driver may go on with the whole query.
        reason = (str(failure).strip() or type(failure).__name__).splitlines()[0].rstrip(".")
        raise EngineError(
            f"{where} did not answer: {reason}.", "Check the address, the login and the connection, and try again."
        ) from failure
