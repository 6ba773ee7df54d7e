"""Results that are tables, and the one way out of all of them: Arrow, and from there pandas and Polars."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from manyarms._extras import imported
from manyarms.core.notebook import html_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Tabular(ABC):
    """A result that is a table, or can be read as one.

    A class gives its `records`, or its columns as an Arrow table where there are too many rows for records.
    """

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows as plain records, for a file or for a loop."""

    def _repr_html_(self) -> str:
        return html_table(self.records())

    def to_arrow(self, **options: Any) -> pa.Table:
        """The table as a `pyarrow.Table`; a figure that a row does not have is null there.

        Args:
            options: As `records` takes them, such as `level` where there are intervals.
        """
        import pyarrow as pa  # noqa: PLC0415  slow to import, and few need it

        rows = self.records(**options)
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: as_arrow([row.get(name) for row in rows]) for name in names})

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The table as a `pandas.DataFrame`; options as in `to_arrow`."""
        imported("pandas", "to_pandas")
        return self.to_arrow(**options).to_pandas()

    def to_polars(self, **options: Any) -> pl.DataFrame:
        """The table as a `polars.DataFrame`; options as in `to_arrow`."""
        polars: Any = imported("polars", "to_polars")
        return polars.from_arrow(self.to_arrow(**options))


class Records(list[dict[str, Any]], Tabular):
    """Plain records that are a table too."""

    def records(self) -> list[dict[str, Any]]:
        return list(self)


def as_arrow(values: Sequence[Any]) -> pa.Array:
    """A column of plain values; as texts where they are of several types, as labels may be."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])
