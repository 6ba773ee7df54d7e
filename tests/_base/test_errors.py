"""An error carries its argument, problem and remedy as fields; its message joins them."""

import pickle
import re

import numpy as np
import pytest

import manyarms as ma
from manyarms import errors
from manyarms._base.checks import check_rows
from manyarms._base.row_numbers import keep_rows, numbered_row, row_name, rows_from


def test_every_error_has_a_place_in_the_printed_tree():
    named = set(re.findall(r"\w+Error", errors.__doc__))
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert defined <= named


def test_a_message_is_made_of_argument_problem_and_remedy():
    error = errors.ShapeError("must have 3 columns; got 4.", "Drop one.", argument="contexts", flag_remedy="Pass --x.")
    assert str(error) == "contexts must have 3 columns; got 4. Drop one."
    assert str(errors.NumericalError("scores overflow in row 3.")) == "scores overflow in row 3."


def test_an_error_keeps_its_fields_on_the_way_to_another_process():
    error = errors.ActionError(
        "must not be negative.", "Number ids.", argument="actions", flag_remedy="Pass --catalog."
    )
    got = pickle.loads(pickle.dumps(error))
    assert type(got) is errors.ActionError
    assert vars(got) == vars(error)
    assert str(got) == str(error)


def test_a_check_of_rows_fills_every_field():
    with pytest.raises(errors.RangeError) as caught:
        check_rows(
            "rewards", np.array([1.0, -2.0]), lambda r: r > 0, errors.RangeError, "must be above zero", "Drop it."
        )
    error = caught.value
    assert (error.argument, error.problem) == ("rewards", "must be above zero; row 1 has -2.0.")
    assert (error.remedy, error.flag_remedy) == ("Drop it.", "")


def test_ids_in_place_of_action_numbers_are_refused_with_a_remedy_for_python_and_one_for_the_command_line():
    with pytest.raises(errors.DataTypeError) as caught:
        ma.LoggedData(np.ones((2, 1)), ["a", "b"], [0.0, 1.0])
    assert "ma.Catalog(all_ids)" in caught.value.remedy
    assert "--catalog" in caught.value.flag_remedy


def test_rows_of_a_batch_are_named_by_their_number_in_the_whole_log():
    assert row_name(2) == "row 2"
    with rows_from(100, lambda number: f"row {number - 100} of b.parquet"):
        assert row_name(2) == "row 102 (row 2 of b.parquet)"
        keep_rows(np.array([False, True, False, True]))
        assert row_name(1) == "row 103 (row 3 of b.parquet)"
        with rows_from(200):
            assert row_name(0) == numbered_row(200) == "row 200 (row 100 of b.parquet)"
    assert row_name(2) == "row 2"


def test_a_message_of_another_library_loses_its_full_stop():
    assert errors.without_full_stop(ValueError("No such file. ")) == "No such file"
