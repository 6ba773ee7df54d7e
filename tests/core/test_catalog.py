"""A catalog maps ids to action numbers, keeps the metadata of actions, and refuses bad input."""

import doctest

import jaxtyping
import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from manyarms import errors
from manyarms.core import catalog as module
from manyarms.core.catalog import Catalog
from manyarms.core.labels import MISSING, encode, pack_labels, unpack_labels

WORDS = ["tea", "mug", "pot", "rice"]
LOG = [3, 0, 0, 2]


@pytest.fixture
def as_users_run_it():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_docstring_example_runs():
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


COLUMNS = {
    "list": list,
    "tuple": tuple,
    "NumPy strings": np.array,
    "NumPy objects": lambda values: np.array(values, dtype=object),
    "list of NumPy scalars": lambda values: list(np.array(values)),
    "Arrow": pa.array,
    "Arrow chunks": lambda values: pa.chunked_array([values[:1], values[1:]]),
    "Arrow dictionary": lambda values: pa.array(values).dictionary_encode(),
    "masked, nothing masked": np.ma.array,
    "generator": iter,
}


@pytest.mark.parametrize("ids", [WORDS, [10, 7, 9, 2**60 + 1]], ids=["words", "integers"])
@pytest.mark.parametrize("logged", COLUMNS)
@pytest.mark.parametrize("listed", COLUMNS)
def test_ids_map_to_rows_however_either_column_is_held(ids, logged, listed):
    catalog = Catalog(COLUMNS[listed](ids))
    got = catalog.numbers(COLUMNS[logged]([ids[row] for row in LOG]))
    assert got.dtype == np.int64
    assert got.tolist() == LOG
    assert catalog.ids[got].tolist() == [ids[row] for row in LOG]


def test_ids_may_be_of_any_hashable_type():
    ids = [("a", 1), "a", 1, 2.5, b"a", np.datetime64("2020-01-01")]
    assert Catalog(ids).numbers(ids[::-1]).tolist() == [5, 4, 3, 2, 1, 0]
    days = np.arange("2020-01-01", "2020-01-05", dtype="datetime64[D]")
    assert Catalog(days).numbers(days[[2, 0]]).tolist() == [2, 0]


def test_integers_that_became_floats_beside_missing_values_still_map():
    assert Catalog([5, 6]).numbers(np.array([6.0, 5.0])).tolist() == [1, 0]


def test_no_ids_are_no_numbers():
    assert Catalog(WORDS).numbers([]).shape == (0,)


def test_metadata_are_kept_and_shown():
    catalog = Catalog(
        WORDS,
        categories=np.array(["x", "y", "x", "x"]),
        tags=[["a"], {"b": 2.0}, None, ("a", "c")],
        paths=[["x"], ["y", "z"], None, []],
        embeddings=np.eye(4, dtype=np.float32),
    )
    assert len(catalog) == catalog.n_actions == 4
    assert repr(catalog) == "Catalog(4 actions, with categories, tags, paths, embeddings)"
    assert repr(Catalog(range(1000))) == "Catalog(1,000 actions)"
    assert catalog.tags == (("a",), {"b": 2.0}, (), ("a", "c"))
    assert catalog.paths == (("x",), ("y", "z"), (), ())
    assert catalog.embeddings.dtype == np.float64
    for array in (catalog.ids, catalog.categories, catalog.embeddings):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


MARKS = {
    "None": ["b", None, "a", "b"],
    "NaN": np.array(["b", np.nan, "a", "b"], dtype=object),
    "NaT": np.array(["b", np.datetime64("NaT", "D"), "a", "b"], dtype=object),
    "masked": np.ma.array(["b", "?", "a", "b"], mask=[False, True, False, False]),
    "Arrow null": pa.array(["b", None, "a", "b"]),
    "said": ["b", MISSING, "a", "b"],
}


@pytest.mark.parametrize("mark", MARKS)
def test_missing_labels_are_known_by_any_mark(mark):
    found = encode("categories", Catalog(range(4), categories=MARKS[mark]).categories)
    assert found.codes.tolist() == [1, -1, 0, 1]
    assert found.labels == ("a", "b")


def test_missing_numbers_and_dates_are_no_labels():
    numbers = encode("categories", np.array([2.0, np.nan, 1.0, np.nan]))
    assert (numbers.codes.tolist(), numbers.labels) == ([1, -1, 0, -1], (1.0, 2.0))
    dates = encode("categories", np.array(["2020-01-02", "NaT", "2020-01-01"], dtype="datetime64[D]"))
    assert dates.codes.tolist() == [1, -1, 0]
    nullable = encode("categories", Catalog(range(3), categories=pa.array([2**60 + 1, None, 2**60])).categories)
    assert (nullable.codes.tolist(), nullable.labels) == ([1, -1, 0], (2**60, 2**60 + 1))


def test_a_missing_value_without_truth_counts_as_missing():
    class NotAvailable:
        """Compares as pandas' NA does."""

        def __ne__(self, other):
            return self

        def __eq__(self, other):
            return self

        def __hash__(self):
            return 1

        def __bool__(self):
            raise TypeError("boolean value of NA is ambiguous")

    assert encode("categories", np.array(["a", NotAvailable()], dtype=object)).codes.tolist() == [0, -1]


def test_labels_that_have_no_order_are_numbered_as_they_come():
    found = encode("categories", np.array(["a", 3, ("b",), 3], dtype=object))
    assert (found.codes.tolist(), found.labels) == ([0, 1, 2, 1], ("a", 3, ("b",)))


SPARSE_NAN = sparse.csr_array(np.array([[1.0, 0.0], [0.0, np.nan]]))
BAD = {
    "no ids": (dict(ids=[]), errors.ShapeError, "ids must have at least 1 row"),
    "one string as ids": (dict(ids="tea"), errors.DataTypeError, "ids must be a column.*got str"),
    "a set as ids": (dict(ids={1, 2}), errors.DataTypeError, "got set"),
    "a number as ids": (dict(ids=3), errors.DataTypeError, "got int"),
    "ids with two axes": (dict(ids=np.ones((2, 2))), errors.ShapeError, r"1 axis; got shape \(2, 2\)"),
    "the same id twice": (dict(ids=["a", "b", "c", "b"]), errors.InputError, "'b' is in row 1 and in row 3"),
    "a missing id": (dict(ids=["a", None]), errors.InputError, "ids must not be missing; row 1 has None"),
    "a NaN id": (dict(ids=np.array([1.0, np.nan])), errors.InputError, "row 1 has nan"),
    "an id that cannot be hashed": (dict(ids=["a", ["b"]]), errors.DataTypeError, r"row 1 holds \['b'\]"),
    "categories of another length": (dict(categories=["x"]), errors.ShapeError, "categories must have 2 rows.*got 1"),
    "tags of another length": (dict(tags=[["x"]] * 3), errors.ShapeError, "tags must have 2 rows.*got 3"),
    "a matrix of other actions": (dict(tags=sparse.eye_array(3)), errors.ShapeError, "tags must have 2 rows.*got 3"),
    "a single tag": (dict(tags=[["x"], "xyz"]), errors.DataTypeError, r"tags.*row 1 has 'xyz'. Wrap.*\[label\]"),
    "a number as tags": (dict(tags=[["x"], 7]), errors.DataTypeError, "row 1 has 7"),
    "a dense matrix of tags": (dict(tags=np.eye(2)), errors.DataTypeError, "csr_array"),
    "NaN in a matrix of tags": (dict(tags=SPARSE_NAN), errors.NonFiniteError, "row 1 has nan for tag 1"),
    "a joined path": (dict(paths=[["x"], "x/y"]), errors.DataTypeError, r"row 1 has 'x/y'.*split"),
    "paths of another length": (dict(paths=np.ones((3, 2))), errors.ShapeError, "paths must have 2 rows.*got 3"),
    "embeddings with one axis": (dict(embeddings=[1.0, 2.0]), errors.ShapeError, "2 axes"),
    "embeddings without columns": (dict(embeddings=np.ones((2, 0))), errors.ShapeError, "a column"),
    "NaN in part of a row": (
        dict(embeddings=[[1.0, 2.0], [np.nan, 1.0]]), errors.NonFiniteError, "row 1 holds nan.*whole row NaN",
    ),
    "an infinite embedding": (dict(embeddings=[[np.inf], [1.0]]), errors.NonFiniteError, "row 0 holds inf"),
    "an embedding beyond arithmetic": (dict(embeddings=[[1.0], [1e200]]), errors.RangeError, "row 1 holds 1e\\+200"),
    "words as embeddings": (dict(embeddings=[["a"], ["b"]]), errors.DataTypeError, "embeddings must hold numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_catalog_is_refused(name, as_users_run_it):
    change, error, message = BAD[name]
    with pytest.raises(error, match=message) as caught:
        Catalog(**(dict(ids=["a", "b"]) | change))
    assert isinstance(caught.value, errors.InputError)


@pytest.mark.parametrize("unknown", ["coffee", None, np.nan, ["tea"]])
def test_an_unknown_id_is_refused_by_name_and_row(unknown):
    with pytest.raises(errors.ActionError, match=r"among the 4 of the catalog; row 2 has"):
        Catalog(WORDS).numbers(["tea", "mug", unknown, "coffee"])


def test_a_masked_id_is_unknown():
    with pytest.raises(errors.ActionError, match="row 1 has None"):
        Catalog(WORDS).numbers(np.ma.array(["tea", "mug"], mask=[False, True]))


def test_a_row_of_nan_or_a_masked_row_is_a_missing_embedding():
    given = np.array([[1.0, 2.0], [3.0, 4.0]])
    masked = np.ma.array(given, mask=[[False, False], [True, True]])
    expected = np.array([[1.0, 2.0], [np.nan, np.nan]])
    for embeddings in (masked, expected):
        np.testing.assert_array_equal(Catalog(["a", "b"], embeddings=embeddings).embeddings, expected)


def test_paths_may_be_a_data_frame_or_masked():
    levels = np.array([["a", "b"], ["c", None]], dtype=object)

    class Frame:
        def to_numpy(self):
            return levels

    assert Catalog([1, 2], paths=Frame()).paths.tolist() == levels.tolist()
    masked = np.ma.array([["a", "b"], ["c", "?"]], mask=[[False, False], [False, True]])
    assert Catalog([1, 2], paths=masked).paths == (("a", "b"), ("c", None))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 20])
def test_packed_words_take_one_bit_per_label_to_say_which_are_missing(n):
    values = [None if i % 3 == 0 else f"label {i}" for i in range(n)]
    packed = pack_labels("labels", values)
    assert len(packed.present) == (n + 7) // 8
    assert unpack_labels(packed).tolist() == values


def test_embeddings_may_be_an_arrow_column_of_lists():
    rows = [[1.0, 2.0], None, [3.0, 4.0]]
    for column in (pa.array(rows), pa.chunked_array([rows[:2], rows[2:]])):
        expected = [[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]]
        np.testing.assert_array_equal(Catalog(list("abc"), embeddings=column).embeddings, expected)


def test_a_matrix_of_tags_holds_numbers():
    with pytest.raises(errors.DataTypeError, match="tags must be a matrix of numbers; got 2 axes of complex128"):
        Catalog(list("ab"), tags=sparse.csr_array(np.eye(2) * 1j))


def test_tags_as_a_matrix_cannot_be_matched_with_those_of_another_catalog():
    matrix, labels = Catalog(list("ab"), tags=sparse.eye_array(2)), Catalog(list("abc"), tags=[["x"], ["y"], ["z"]])
    for first, second in ((matrix, labels), (labels, Catalog(list("abcd"), tags=sparse.eye_array(4)))):
        with pytest.raises(
            errors.DataTypeError, match=r"tags as a matrix have no labels to match. Pass labels to both"
        ):
            first.grown_with(second)
    assert Catalog(list("ab"), tags=[["x"], ["y"]]).grown_with(labels).tags == (("x",), ("y",), ("z",))
