"""Ids become action numbers, and a list of candidates with an id that is not an action is refused by row."""

import pyarrow as pa
import pytest

import manyarms as ma
from manyarms.core.action_numbering import ActionNumbering, as_numbering
from manyarms.errors import ActionError, DataTypeError, EligibilityError

CATALOG = ma.Catalog(["tea", "mug", "pot"])


def sets_of(rows, **options):
    return as_numbering(CATALOG).sets_of("offered", pa.chunked_array([pa.array(rows)]), **options)


def test_lists_of_ids_become_sets_of_actions():
    assert sets_of([["pot", "tea"], ["mug"]]).toarray().tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    kept = sets_of([["pot", "cup"], ["mug"]], skip_unknown=True)
    assert kept.toarray().tolist() == [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (["tea", "mug"], DataTypeError, "column offered must hold lists of actions; its type is string"),
        ([["tea"], []], EligibilityError, "column offered leaves nothing to choose from in row 1.*Leave such rows out"),
        ([["tea"], ["mug", "pot"], None], EligibilityError, "nothing to choose from in row 2"),
        ([["tea", "mug"], ["pot", None]], ActionError, "column offered has a missing action in row 1"),
        ([["tea", "mug"], ["pot", "cup"]], ActionError, "has 'cup' in row 1, which is not among the 3 actions"),
    ],
)
def test_candidates_that_are_not_actions_are_refused_by_row(rows, error, message):
    with pytest.raises(error, match=message):
        sets_of(rows)


def test_what_numbers_actions_is_a_catalog_or_their_number(own_errors):
    assert as_numbering(3) == ActionNumbering(3)
    for wrong in ("tea", True, None):
        with pytest.raises(
            DataTypeError, match=f"a Catalog, logs.*or the number of actions; got {type(wrong).__name__}"
        ):
            as_numbering(wrong)
