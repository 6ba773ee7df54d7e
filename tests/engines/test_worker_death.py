"""A worker that dies during a pass changes nothing."""

import os
import signal
import subprocess
import sys
import threading
from operator import attrgetter
from pathlib import Path

import pytest
from engine_logs import ON_CLUSTERS, K, N, assert_same_posterior, need_java, read, write_clicks
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.engines.dask import Dask
from manyarms.likelihoods.collect_statistics import CollectStatistics

pytestmark = ON_CLUSTERS


@pytest.mark.slow
def test_a_killed_dask_worker_changes_nothing(dask_client, prior, tmp_path):
    stream = read(write_clicks(tmp_path / "more", n=30_000))
    expected = ma.fit(stream, prior, ma.Bernoulli())
    killed = list[int]()

    def kill():
        pid = next(iter(dask_client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    def during_the_fit(step, _):
        if step == 2:
            threading.Timer(0.02, kill).start()

    result = ma.fit(stream, prior, ma.Bernoulli(), engine=Dask(dask_client, pieces=12), progress=during_the_fit)
    assert len(killed) == 1
    assert_same_posterior(result, expected, 1e-8)


@pytest.mark.slow
def test_a_dask_worker_that_dies_when_the_work_reaches_it_changes_nothing(
    dask_client, stream, prior, tmp_path, monkeypatch
):
    """The work is a task: the scheduler gives it to another worker."""
    expected = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "local")
    submit, to_kill = dask_client.submit, [1]

    def kill_after_the_first(*arguments, **options):
        future = submit(*arguments, **options)
        if to_kill:
            future.result()
            (holder,) = next(iter(dask_client.who_has([future]).values()))
            to_kill.pop()
            os.kill(dask_client.run(os.getpid, workers=[holder])[holder], signal.SIGKILL)
        return future

    monkeypatch.setattr(dask_client, "submit", kill_after_the_first)
    result = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "dask", engine=Dask(dask_client, pieces=7))
    assert not to_kill
    assert_allclose(result.log_evidence, expected.log_evidence, rtol=1e-8)


@pytest.mark.slow
def test_shards_of_a_dead_dask_worker_are_computed_again(dask_client, stream):
    task, rounds = CollectStatistics(ma.Gaussian(), K, stream.dim), attrgetter("statistics.n_rounds")
    with Dask(dask_client, pieces=7).sharded(stream, task) as shards:
        assert sum(shards.map(rounds)) == N
        for pid in dask_client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        assert sum(shards.map(rounds)) == N


@pytest.mark.slow
def test_a_killed_spark_executor_changes_nothing(tmp_path):
    need_java()
    folder = write_clicks(tmp_path / "logs")
    script = Path(__file__).with_name("kill_spark_executor.py")
    done = subprocess.run(
        [sys.executable, script, folder, str(K)], capture_output=True, text=True, timeout=400, check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    killed, rounds, gap = done.stdout.split()[-3:]
    assert int(killed) == 1 and int(rounds) == N
    assert float(gap) < 1e-8
