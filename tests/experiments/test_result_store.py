"""Results on disk: nothing finished is lost, nothing is counted twice, damage is reported."""

import os
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from small_experiments import GRID, outcome

from manyarms.errors import BusyError, InputError, OutputFileError, ResultFileError
from manyarms.experiments import (
    Cell,
    Outcome,
    Store,
    run,
)
from manyarms.experiments.result_store import COSTS, ROWS, Journal, stored


def test_a_torn_line_is_forgotten_and_all_whole_ones_are_kept(tmp_path):
    journal = Journal(tmp_path)
    cells = [Cell("p", "ope", "m", 10, i) for i in range(3)]
    for i, cell in enumerate(cells):
        journal.add(cell, outcome(0.1 * i))
    journal.close()
    (path,) = tmp_path.glob("journal-*")
    whole = path.read_bytes()
    for cut in range(whole.rindex(b"\n", 0, -1) + 1, len(whole) - 1, 17):
        path.write_bytes(whole[:cut])
        assert set(Store(tmp_path).read()) == set(cells[:2])
    path.write_bytes(whole[:-1])
    assert set(Store(tmp_path).read()) == set(cells)


def test_what_a_full_disk_tears_costs_one_cell(tmp_path, monkeypatch):
    write, journal = os.write, Journal(tmp_path)
    cells = [Cell("p", "ope", "m", 10, i) for i in range(3)]
    journal.add(cells[0], outcome(0.1))

    def half(file, line):
        write(file, line[: len(line) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        journal.add(cells[1], outcome(0.2))
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:7]))
    journal.add(cells[2], outcome(0.3))
    journal.close()
    assert set(Store(tmp_path).read()) == {cells[0], cells[2]}


def test_rows_of_another_version_are_refused_and_not_mixed(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.write({Cell("p", "ope", "m", 10, 0): outcome(0.5)})
    journal = Journal(tmp_path)
    journal.add(Cell("p", "ope", "m", 10, 1), outcome(0.5))
    journal.close()
    monkeypatch.setattr("manyarms.experiments.result_store.RECIPE", 99)
    with pytest.raises(ResultFileError, match=r"rows\.parquet is of another version"):
        store.read()
    (tmp_path / ROWS).unlink()
    with pytest.raises(ResultFileError, match=r"journal-.* is of another version"):
        store.read()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputFileError, match=r"rows cannot be made: Not a directory\. Name another folder"):
        Store(tmp_path / "file" / "rows")


def test_where_files_cannot_be_locked_a_run_goes_on_without(tmp_path, monkeypatch):
    store = Store(tmp_path)
    with store.lock(), pytest.raises(BusyError, match="another run is writing"), store.lock():
        pass
    monkeypatch.setitem(sys.modules, "fcntl", None)
    entered = 0
    with store.lock(), store.lock():
        entered += 1
    assert entered == 1


def test_what_was_forgotten_does_not_come_back(tmp_path):
    journal = Journal(tmp_path)
    for method in ("kept", "gone"):
        journal.add(Cell("p", "ope", method, 10, 0), outcome(0.5))
    journal.close()
    assert {cell.method for cell in Store(tmp_path).compact(drop=["gone"])} == {"kept"}
    assert {cell.method for cell in Store(tmp_path).read()} == {"kept"}


def test_stored_values_come_back_from_disk_to_the_bit(tmp_path):
    rng, store = np.random.default_rng(0), Store(tmp_path)
    results = {
        Cell("a, b", "ope", "sDM", 7, i): Outcome(
            *map(float, rng.normal(size=4) * 10.0 ** rng.integers(-300, 300)), 5, 2, 0.5, 0.1, None
        )
        for i in range(50)
    } | {Cell("a, b", "opl", "sDM", 7, 0): Outcome(0.5, 1.0, None, None, 5, 2, 0.0, 0.25, 123)}
    store.write(results)
    kept = {cell: stored(outcome) for cell, outcome in results.items()}
    assert Store(tmp_path).read() == kept
    (tmp_path / "journal").mkdir()
    journal = Journal(tmp_path / "journal")
    for cell, result in results.items():
        journal.add(cell, result)
    journal.close()
    assert Store(tmp_path / "journal").read() == kept, "a journal gives the same numbers as the file"


def test_stored_values_are_rounded_by_little_and_only_once():
    rng = np.random.default_rng(1)
    for _ in range(100):
        value, low, high, error, seconds = map(float, rng.normal(size=5) * 10.0 ** rng.integers(-30, 30))
        exact = Outcome(value, 1 / 3, low, high, 5, 2, abs(error), abs(seconds), None)
        kept = stored(exact)
        assert stored(kept) == kept and kept.truth == exact.truth
        assert_allclose([kept.value, kept.truth_error], [value, abs(error)], rtol=2.0**-24)
        assert_allclose([kept.low, kept.high, kept.seconds], [low, high, abs(seconds)], rtol=2.0**-8)
        assert_allclose([kept.low, kept.high], [low, high], rtol=2.0**-16)
    assert np.isnan(stored(outcome(0.5, seconds=float("nan"))).seconds)


def test_a_crash_between_writing_rows_and_dropping_journals_counts_nothing_twice(tmp_path):
    journal = Journal(tmp_path)
    cell = Cell("p", "ope", "m", 10, 0)
    journal.add(cell, outcome(0.5))
    journal.close()
    store = Store(tmp_path)
    store.write(store.read())
    assert len(list(tmp_path.glob("journal-*"))) == 1
    assert store.compact() == {cell: stored(outcome(0.5))}
    assert pq.read_table(tmp_path / ROWS).num_rows == 1


@pytest.mark.parametrize("damage", ["half", "text", "columns"])
def test_a_damaged_results_file_is_refused_by_name_and_left_alone(damage, tmp_path):
    store = Store(tmp_path)
    store.write({Cell("p", "ope", "m", 10, 0): outcome(0.5)})
    path = tmp_path / ROWS
    if damage == "columns":
        pq.write_table(pq.read_table(path).drop_columns(["value"]), path)
    else:
        path.write_bytes(path.read_bytes()[:300] if damage == "half" else b"not parquet")
    before = path.read_bytes()
    with pytest.raises(ResultFileError, match=r"rows\.parquet.*(Move it away)"):
        store.compact()
    assert path.read_bytes() == before


def test_a_flipped_bit_in_the_rows_is_never_read_as_another_number(tmp_path):
    store = Store(tmp_path)
    results = {Cell("p", "ope", "m", 10, i): outcome(0.1 * i) for i in range(12)}
    store.write(results)
    # Files keep fewer digits.
    results = store.read()
    whole = (tmp_path / ROWS).read_bytes()
    refused = 0
    for place in range(4, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        (tmp_path / ROWS).write_bytes(damaged)
        try:
            rows = store.read()
        except ResultFileError:
            refused += 1
        else:
            assert rows.items() <= results.items(), place
    assert refused > 100


def test_two_runs_in_one_folder_are_refused(tmp_path):
    with Store(tmp_path).lock(), pytest.raises(BusyError, match="another run"):
        run([GRID], Store(tmp_path), workers=1)


def test_a_file_is_not_a_folder_for_results(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is a file, not a folder"):
        Store(tmp_path / "file")


def test_all_but_the_cells_to_keep_are_forgotten(tmp_path):
    store, cells = Store(tmp_path), [Cell("p", "ope", "m", 10, i) for i in range(4)]
    store.write({cell: outcome(0.5) for cell in cells})
    assert set(store.keep(cells[:2])) == set(Store(tmp_path).read()) == set(cells[:2])
    assert pq.read_table(tmp_path / COSTS).num_rows == 2
