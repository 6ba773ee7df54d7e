"""A stream of rounds answers for its rows without reading them before that is needed."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manyarms as ma
from manyarms.errors import InputError

ROWS = pa.table({"x": [1.0, 2.0, None, 4.0], "a": [0, 1, 0, 1], "r": [1.0, 0.0, 1.0, 1.0]})


@pytest.fixture
def stream(tmp_path):
    pq.write_table(ROWS, tmp_path / "log.parquet")
    return ma.read_logs(tmp_path / "log.parquet", "x", "a", "r", missing="drop")


def test_rows_left_out_are_counted_by_reading_and_not_before(stream):
    with pytest.raises(InputError, match=r"counted while reading. Read batches.. to the end first"):
        _ = stream.dropped
    assert len(list(stream.batches(10))) == 1 and stream.dropped.missing == 1


def test_a_stream_is_true_and_shown_without_being_read(stream, monkeypatch):
    monkeypatch.setattr(type(stream.source), "batches", lambda self, columns, size: pytest.fail("rows were read"))
    assert stream
    assert repr(stream) == "LogStream(2 actions, d=2, context x)"


def test_a_stream_of_which_no_round_is_left_is_an_empty_log(tmp_path):
    at = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    pq.write_table(ROWS.append_column("at", pa.array(at)), tmp_path / "log.parquet")
    aged = dict(time="at", maturity=timedelta(days=100), now=at[-1], missing="drop", n_actions=5)
    logs = (stream := ma.read_logs(tmp_path / "log.parquet", "x", "a", "r", **aged)).collect()
    assert (len(logs), logs.n_actions, logs.contexts.shape) == (0, 5, (0, 2))
    assert stream.dropped.immature == 3 and stream.features == logs.features
    posterior = ma.fit(stream, ma.priors.independent(5, dim=2, mean=np.full((5, 2), 3.0)))
    np.testing.assert_array_equal(posterior.weights.action_mean(), np.full((5, 2), 3.0))


def test_only_times_tell_which_rounds_of_a_grown_file_are_new(tmp_path):
    at = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    file = tmp_path / "log.parquet"
    pq.write_table(ROWS.append_column("at", pa.array(at)), file)
    options = dict(missing="drop", n_actions=2)
    stream = ma.read_logs(file, "x", "a", "r", time="at", maturity=timedelta(days=1), now=at[-1], **options)
    posterior = ma.fit(stream, ma.priors.independent(2, dim=2))
    assert posterior.statistics.n_rounds == 2
    again = ma.read_logs(file, "x", "a", "r", features=stream.features, **options)
    with pytest.raises(InputError, match=r"has the rounds of .*log\.parquet up to 2024-01-03.*only times tell.*time="):
        posterior.update(again)
    timed = ma.read_logs(file, "x", "a", "r", features=stream.features, time="at", **options)
    assert posterior.update(timed).statistics.n_rounds == 3
