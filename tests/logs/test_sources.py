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
