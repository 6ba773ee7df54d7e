"""Files on this machine are read as files, whatever their names look like."""

import pyarrow as pa
import pyarrow.parquet as pq

from manyarms._base.arrow import parquet_table


def test_a_relative_path_with_a_colon_is_a_file_and_not_an_address(tmp_path, monkeypatch):
    table = pa.table({"item": ["a", "b"]})
    (tmp_path / "ips:x").mkdir()
    pq.write_table(table, tmp_path / "ips:x" / "logs.parquet")
    monkeypatch.chdir(tmp_path)
    relative = (tmp_path / "ips:x" / "logs.parquet").relative_to(tmp_path)
    assert parquet_table(relative).equals(table)
