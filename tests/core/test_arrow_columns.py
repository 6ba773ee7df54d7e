"""Arrow columns become arrays, and an error names the column and the row of the first bad value."""

import numpy as np
import pyarrow as pa
import pytest

from manyarms.core.arrow_columns import lists_of, numbers_of
from manyarms.errors import DataTypeError, NonFiniteError, ShapeError

KINDS = {
    "lists": pa.array,
    "large lists": lambda rows: pa.array(rows, type=pa.large_list(pa.float64())),
    "chunks": lambda rows: pa.chunked_array([rows[:1], rows[1:]], type=pa.list_(pa.float64())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_lists_become_the_rows_of_a_matrix(kind):
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    column = pa.table({"e": KINDS[kind](rows)}).column("e")
    assert lists_of("e", column, 2).tolist() == rows


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([1.0, 2.0], DataTypeError, "must hold lists of numbers; its type is double"),
        ([[1.0, 2.0], [3.0, 4.0], [5.0]], ShapeError, "must hold 2 numbers per row; row 2 has 1"),
        ([[1.0, 2.0], [3.0, None]], NonFiniteError, "has a missing number in row 1.*leave such rows out"),
        ([[1.0, 2.0], [3.0, 4.0], [np.inf, 6.0]], NonFiniteError, "has a number that is not finite in row 2"),
        ([["a", "b"]], DataTypeError, "must hold numbers; row 0 has 'a'"),
    ],
)
def test_lists_that_are_not_of_so_many_numbers_are_refused_by_row(rows, error, message):
    with pytest.raises(error, match=message) as caught:
        lists_of("e", pa.table({"e": rows}).column("e"), 2)
    assert caught.value.argument == "column e"


def test_a_column_that_cannot_hold_numbers_is_refused_by_its_type():
    column = pa.table({"x": [{"deep": 1}, {"deep": 2}]}).column("x")
    with pytest.raises(DataTypeError, match=r"must hold numbers; its type is struct<deep: int64>\.$"):
        numbers_of("x", column)
