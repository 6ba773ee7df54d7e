"""Sources report how far they have been read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manyarms as ma
from manyarms.errors import DataFileError, DataTypeError, InputError, NonFiniteError
from manyarms.logs.file_source import FileSource
from manyarms.logs.sources import TableSource, files_behind


def test_progress_counts_the_rows_of_every_pass(shop):
    seen = []
    source = FileSource(shop / "old", lambda done, total: seen.append((done, total)))
    stream = ma.read_logs(source, ["age"], "item", "spend")
    stream.collect()
    assert source.n_rows == 600 and {total for _, total in seen} == {600}
    assert [done for done, _ in seen].count(0) == 3 == [done for done, _ in seen].count(600)
    assert stream.fingerprint == ma.read_logs(shop / "old", ["age"], "item", "spend").fingerprint


def test_files_that_differ_only_in_their_last_bytes_have_different_fingerprints(tmp_path):
    rows = "".join(f"{row % 10},1.0\n" for row in range(30_000))
    for name, last in (("first", "1"), ("copy", "1"), ("other", "2")):
        (tmp_path / f"{name}.csv").write_text(f"item,spend\n{rows}3,{last}.0\n")
    first, copy, other = (FileSource(tmp_path / f"{name}.csv").fingerprints[0] for name in ("first", "copy", "other"))
    assert first.origin == copy.origin
    assert first.origin != other.origin


ROWS = pa.table({"x": [1.0, 2.0, 3.0], "a": [0, 1, 0], "r": [1.0, 0.0, 1.0]})


def read(rows, **options):
    return ma.read_logs(rows, "x", "a", "r", **options)


def test_one_batch_is_a_table_of_its_rows():
    (batch,) = ROWS.to_batches()
    assert read(batch).rewards.tolist() == [1.0, 0.0, 1.0]


def test_a_batch_that_is_not_one_or_lacks_a_column_is_named_by_its_number():
    with pytest.raises(InputError, match="batch 1 has no column 'r'; it has x, a"):
        read([ROWS, ROWS.drop_columns(["r"])]).collect()
    with pytest.raises(DataTypeError, match="batch 1 must be an Arrow batch or table; got dict"):
        read([ROWS, ROWS.to_pydict()]).collect()


def test_tables_are_told_apart_and_have_no_files_to_choose_from():
    first, second = TableSource(ROWS), TableSource(ROWS.slice(0, 2))
    assert first.fingerprints == TableSource(ROWS).fingerprints != second.fingerprints
    with pytest.raises(
        InputError, match=r"logs: these rows do not come from files|do not come from files.*Pass a file"
    ):
        first.only([])


def test_the_files_behind_an_input_are_those_that_exist(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    assert files_behind(tmp_path / "a.csv") == files_behind(str(tmp_path / "*.csv")) == [tmp_path / "a.csv"]
    assert files_behind(tmp_path / "missing.csv") == files_behind([]) == files_behind(ROWS) == []


def test_files_of_several_kinds_or_none_are_refused_by_name(tmp_path):
    for name in ("a.csv", "b.arrow"):
        (tmp_path / name).write_text("x,a,r\n1,0,1\n")
    with pytest.raises(DataFileError, match=r"files must be of one format; there are .*a\.csv and .*b\.arrow"):
        read(tmp_path)
    with pytest.raises(DataFileError, match=r"none\.csv is not a file"):
        read([tmp_path / "a.csv", tmp_path / "none.csv"])
    with pytest.raises(DataFileError, match=r"the path of the logs is empty. Name a file, a folder or a glob"):
        read("")


def test_a_glob_names_its_files_in_order(tmp_path):
    for name, reward in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        (tmp_path / f"{name}.csv").write_text(f"x,a,r\n1,0,{reward}\n1,1,{reward}\n")
    assert read(str(tmp_path / "[ab].csv")).collect().rewards.tolist() == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_pieces_of_csv_files_are_whole_files_that_together_have_every_row_once(tmp_path, count):
    sizes = (4, 1, 7, 2)
    for number, size in enumerate(sizes):
        (tmp_path / f"{number}.csv").write_text("r\n" + "".join(f"{100 * number + i}\n" for i in range(size)))
    pieces = FileSource(tmp_path).pieces(count)
    rows = [[value for batch in piece.batches(["r"], 3) for value in batch["r"].to_pylist()] for piece in pieces]
    assert [value for own in rows for value in own] == [
        100 * number + i for number, size in enumerate(sizes) for i in range(size)
    ]
    assert [piece.first_row for piece in pieces] == np.cumsum([0, *map(len, rows)])[:-1].tolist()
    assert len(pieces) <= count
    for piece, own in zip(pieces, rows, strict=True):
        assert piece.place_of(piece.first_row) == f"row 0 of {tmp_path}/{own[0] // 100}.csv"


def test_a_file_without_rows_has_no_pieces(tmp_path):
    pq.write_table(ROWS.slice(0, 0), tmp_path / "empty.parquet")
    assert sum(piece.n_rows for piece in FileSource(tmp_path / "empty.parquet").pieces(4)) == 0


def test_a_line_far_down_a_csv_file_is_named_by_its_row_alone(tmp_path, monkeypatch):
    (tmp_path / "log.csv").write_text("x,a,r\n" + "1,0,1\n" * 5 + "1,0,\n")
    with pytest.raises(NonFiniteError, match=r"row 5 \(line 7 of .*log\.csv\)"):
        read(tmp_path / "log.csv").collect()
    monkeypatch.setattr("manyarms.logs.file_source.MOST_LINES", 4)
    with pytest.raises(NonFiniteError, match=r"column r is missing in row 5\."):
        read(tmp_path / "log.csv").collect()
