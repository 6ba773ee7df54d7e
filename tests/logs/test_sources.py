"""Sources report how far they have been read."""

import manyarms as ma
from manyarms.logs.file_source import FileSource


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
