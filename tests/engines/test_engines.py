"""Passes over logs on clusters: the same answers, whoever dies on the way."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from operator import attrgetter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pages import DOCS, run

import manyarms as ma
from manyarms.engines import Engine
from manyarms.engines.dask import Dask
from manyarms.errors import EngineError, InputError, NonFiniteError, RangeError
from manyarms.likelihoods.collect_statistics import CollectStatistics

# One process of the test run, so that every cluster is started once.
pytestmark = [pytest.mark.xdist_group("engines"), pytest.mark.filterwarnings("ignore:PySpark does not yet")]

K, D, N = 60, 3, 6000
COLUMNS = [f"x{i}" for i in range(D)]


def write_clicks(folder, n=N, seed=0):
    """Clicks in three files of small row groups; of some actions hardly any."""
    rng = np.random.default_rng(seed)
    x, actions = rng.normal(size=(n, D)), np.minimum(rng.geometric(0.12, n) - 1, K - 3)
    clicks = (rng.random(n) < 1 / (1 + np.exp(1 - x[:, 0] - 0.02 * actions))).astype(float)
    table = pa.table({**{f"x{i}": x[:, i] for i in range(D)}, "item": actions, "click": clicks})
    folder.mkdir(exist_ok=True)
    for i in range(3):
        part = table.slice(i * n // 3, n // 3)
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=n // 30)
    return folder


def read(folder):
    return ma.read_logs(folder, COLUMNS, "item", "click", n_actions=K)


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    return read(write_clicks(tmp_path_factory.mktemp("logs")))


@pytest.fixture(scope="module")
def prior(stream):
    return ma.priors.from_categories(np.arange(K) % 5, dim=stream.dim)


@pytest.fixture(scope="module")
def dask_client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def java():
    """Skip without Java, unless an environment variable says that nothing may be left out."""
    if shutil.which("java") is None:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail("there is no Java, and MANYARMS_ALL_TESTS is set")
        pytest.skip("NOT RUN: Spark needs Java 17, and there is none")


@pytest.fixture(scope="module")
def spark_session():
    java()
    from manyarms.engines.spark import Spark

    session = Spark().session
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["local", "dask", "spark"])
def engine(request) -> Engine | str:
    if request.param == "dask":
        return Dask(request.getfixturevalue("dask_client"), pieces=7)
    if request.param == "spark":
        from manyarms.engines.spark import Spark

        return Spark(request.getfixturevalue("spark_session"), pieces=5, shards=3)
    return "local"


def assert_same_posterior(found, expected, tolerance):
    everyone = np.arange(K)
    assert_allclose(found.weights.action_mean(), expected.weights.action_mean(), rtol=tolerance, atol=tolerance)
    covariances = (posterior.weights.action_cov(everyone) for posterior in (found, expected))
    assert_allclose(*covariances, rtol=tolerance, atol=tolerance)
    assert_allclose(found.weights.latent_cov, expected.weights.latent_cov, rtol=tolerance, atol=tolerance)
    assert_allclose(found.log_evidence, expected.log_evidence, rtol=tolerance)
    assert found.statistics.n_rounds == expected.statistics.n_rounds


@pytest.mark.parametrize("likelihood", [ma.Gaussian(0.5), ma.Bernoulli()], ids=str)
def test_every_engine_finds_what_rounds_in_memory_give(engine, stream, prior, likelihood):
    tolerance = 1e-10 if likelihood.treatment == "exact" else 1e-8
    expected = ma.fit(stream.collect(), prior, likelihood)
    found = ma.fit(stream, prior, likelihood, engine=engine)
    assert len(found.trace) == len(expected.trace)
    assert_same_posterior(found, expected, tolerance)


def test_an_update_on_an_engine_is_one_fit_over_all_days(engine, stream, prior, tmp_path):
    more = ma.read_logs(write_clicks(tmp_path, seed=1), COLUMNS, "item", "click", n_actions=K, features=stream.features)
    both = Path(tmp_path) / "both"
    both.mkdir()
    for i, file in enumerate([*stream.source.files, *more.source.files]):
        shutil.copy(file, both / f"{i}.parquet")
    everything = ma.read_logs(both, COLUMNS, "item", "click", n_actions=K, features=stream.features)
    expected = ma.fit(everything.collect(), prior, ma.Gaussian(0.5))
    found = ma.fit(stream, prior, ma.Gaussian(0.5), engine=engine).update(more, engine=engine)
    assert_same_posterior(found, expected, 1e-10)


def test_the_actions_of_a_spread_fit_are_those_of_a_fit(engine, stream, prior, tmp_path):
    expected = ma.fit(stream.collect(), prior, ma.Gaussian(0.5))
    found = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "actions", engine=engine)
    table = pq.read_table(found.folder).sort_by("action")
    actions = table["action"].to_numpy()
    assert_array_equal(actions, np.sort(expected.weights.observed.actions))
    assert found.n_seen == len(actions) < K
    means = np.array(table["mean"].to_pylist())
    covariances = np.array(table["covariance"].to_pylist()).reshape(len(actions), prior.dim, prior.dim)
    assert_allclose(means, expected.weights.action_mean(actions), rtol=1e-10, atol=1e-10)
    assert_allclose(covariances, expected.weights.action_cov(actions), rtol=1e-10, atol=1e-10)
    assert_allclose(found.latent_mean, expected.weights.latent_mean, rtol=1e-10, atol=1e-10)
    assert_allclose(found.latent_cov, expected.weights.latent_cov, rtol=1e-10, atol=1e-10)
    assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-10)
    with pytest.raises(InputError, match="not empty"):
        ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "actions")


def test_a_spread_posterior_is_shown_in_a_line(stream, prior, tmp_path):
    found = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "spread")
    assert repr(found).startswith(f"ShardedPosterior({found.n_seen} actions seen, d'={5 * stream.dim}, log evidence -")


def test_a_spread_fit_of_independent_actions_is_a_fit(engine, stream, tmp_path):
    alone = ma.priors.independent(K, dim=stream.dim)
    expected = ma.fit(stream, alone, ma.Gaussian(0.5))
    found = ma.fit_sharded(stream, alone, ma.Gaussian(0.5), out=tmp_path / "actions", engine=engine)
    table = pq.read_table(found.folder).sort_by("action")
    means = np.array(table["mean"].to_pylist())
    assert_allclose(means, expected.weights.action_mean(table["action"].to_numpy()), rtol=1e-10, atol=1e-10)
    assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-10)


def test_threads_are_back_after_work_beside_others():
    from manyarms.linalg import threads

    gate, done = threading.Barrier(2), []

    def work(first):
        with threads.on_one_core():
            gate.wait()
            if first:
                done.append(True)
        gate.wait()

    pair = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    [one.start() for one in pair]
    [one.join() for one in pair]
    assert threads._users.beside_others == 0 and not threads._users.alone and done


def test_values_learned_priors_and_scores_do_not_depend_on_the_engine(engine, stream, prior, tmp_path):
    logs = stream.collect()
    expected = ma.learn_prior(logs, prior, ma.Gaussian(0.5))
    learned = ma.learn_prior(stream, prior, ma.Gaussian(0.5), engine=engine)
    assert_allclose(learned.eta, expected.eta, rtol=1e-8, atol=1e-8)
    posterior = ma.fit(logs, prior, ma.Gaussian(0.5))
    policy = ma.EpsilonGreedy(ma.Greedy(posterior), 0.1)
    here = posterior.difference(policy, ma.Logged(logs), logs.contexts)
    there = posterior.difference(policy, ma.Logged(stream), stream, engine=engine)
    numbers = ("value", "std", "posterior_std", "context_std", "probability_positive")
    assert_allclose(*([getattr(one, name) for name in numbers] for one in (there, here)), rtol=1e-10)
    found = ma.score(posterior, stream.source, tmp_path / "scores", top_k=2, engine=engine)
    scores = pq.read_table(tmp_path / "scores")
    assert found.n_contexts == N and scores["row"].to_pylist() == sorted([*range(N), *range(N)])
    top = ma.Greedy(posterior).top_k(logs.contexts, 2)
    assert_array_equal(scores["action"].to_numpy().reshape(N, 2), top)
    expected_rewards = posterior.expected_reward(np.repeat(logs.contexts, 2, axis=0), top.reshape(-1))
    assert_allclose(scores["expected_reward"].to_numpy(), expected_rewards, rtol=1e-10, atol=1e-12)


def test_a_row_that_cannot_be_is_named_by_its_number_and_its_file_wherever_it_was_read(engine, prior, tmp_path):
    folder = write_clicks(tmp_path / "bad")
    table = pq.read_table(folder / "part-1.parquet")
    clicks = table["click"].to_numpy().copy()
    clicks[777] = 2.0
    pq.write_table(table.set_column(4, "click", pa.array(clicks)), folder / "part-1.parquet", row_group_size=100)
    with pytest.raises(RangeError, match=rf"row {N // 3 + 777} \(row 777 of .*part-1\.parquet\) has 2\.0"):
        ma.fit(read(folder), prior, ma.Bernoulli(), engine=engine)


def test_scores_that_are_refused_name_the_row_and_leave_no_folder(engine, stream, prior, tmp_path):
    if engine == "local":
        pytest.skip("one process writes a file")
    posterior, folder = ma.fit(stream, prior, ma.Gaussian(0.5)), write_clicks(tmp_path / "bad")
    for file in folder.iterdir():
        holes = pa.nulls(N // 3, pa.float64())
        pq.write_table(pq.read_table(file).set_column(0, "x0", holes), file, row_group_size=N // 30)
    with pytest.raises(NonFiniteError, match=r"column x0 is missing in row 0 \(row 0 of .*part-0\.parquet\)"):
        ma.score(posterior, folder, tmp_path / "new" / "scores", engine=engine)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file is a file.*Pass another path, or remove it"):
        ma.score(posterior, folder, tmp_path / "file", engine=engine)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bad", "file"]


def test_dropped_rows_are_counted_over_all_pieces(engine, stream, prior):
    reading = {"context": COLUMNS, "action": "item", "reward": "click", "features": stream.features}
    few = ma.read_logs(stream.source, **reading, n_actions=K // 2, unknown="drop")
    expected = few.collect()
    counted = few.dropped
    again = ma.read_logs(stream.source, **reading, n_actions=K // 2, unknown="drop")
    smaller = ma.priors.independent(K // 2, dim=stream.dim)
    found = ma.fit(again, smaller, ma.Gaussian(0.5), engine=engine)
    assert again.dropped == counted and counted.unknown > 0
    assert found.statistics.n_rounds == len(expected)


def test_the_sums_are_those_of_a_database(engine, stream):
    # DuckDB reads the same files and adds up the same products, and shares no code with us.
    task = CollectStatistics(ma.Gaussian(), K, stream.dim)
    from manyarms.engines import as_engine

    statistics = as_engine(engine).total(stream, task).statistics
    phi = [f"(x{f.column[1:]} - {f.mean!r}) / {f.std!r}" for f in stream.features.features]
    terms = ["1.0::double", *phi, "click"]
    products = [f"sum(({a}) * ({b}))" for a in terms for b in terms]
    query = f"select item, count(*), {', '.join(products)} from logs group by item order by item"
    logs = duckdb.read_parquet([str(file) for file in stream.source.files])  # noqa: F841  named in the query
    rows = np.array(duckdb.sql(query).fetchall(), dtype=float)
    summed = np.isin(rows[:, 0], statistics.sums.actions)
    assert_array_equal(rows[summed, 0], statistics.sums.actions)
    e = stream.dim + 1
    assert_allclose(statistics.sums.squares, rows[summed, 2:].reshape(-1, e, e), rtol=1e-10, atol=1e-9)
    # Actions with fewer than d rounds are kept as rows, and say the same.
    kept = statistics.rows
    for action, *numbers in rows[~summed]:
        mine = kept.rounds[kept.actions == action]
        assert len(mine) == numbers[0] < stream.dim
        assert_allclose(mine.T @ mine, np.reshape(numbers[1:], (e, e)), rtol=1e-10, atol=1e-9)
    assert summed.any() and not summed.all()


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

    found = ma.fit(stream, prior, ma.Bernoulli(), engine=Dask(dask_client, pieces=12), progress=during_the_fit)
    assert len(killed) == 1
    assert_same_posterior(found, expected, 1e-8)


def dying_while_sent_to(client, how):
    """The client's `scatter`, with a worker killed in its first call; distributed then fails, or never answers."""
    from distributed.comm import CommClosedError

    scatter, victims = client.scatter, [next(iter(client.run(os.getpid).values()))]

    def fails_at_first(data, **options):
        if not victims:
            return scatter(data, **options)
        os.kill(victims.pop(), signal.SIGKILL)
        if how == "silent":
            return asyncio.sleep(3600)
        raise CommClosedError("in <TCP>: Stream is closed")

    return fails_at_first


@pytest.mark.parametrize("how", ["closed", "silent"])
def test_a_dask_worker_that_dies_while_it_is_sent_the_work_changes_nothing(
    how, dask_client, stream, prior, tmp_path, monkeypatch
):
    monkeypatch.setattr("manyarms.engines.dask.SENDING", 5)
    expected = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "local")
    monkeypatch.setattr(dask_client, "scatter", dying_while_sent_to(dask_client, how))
    found = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "dask", engine=Dask(dask_client, pieces=7))
    assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-8)


def test_what_a_dead_dask_worker_held_of_a_spread_is_found_again(dask_client, stream):
    task, rounds = CollectStatistics(ma.Gaussian(), K, stream.dim), attrgetter("statistics.n_rounds")
    with Dask(dask_client, pieces=7).spread(stream, task) as spread:
        assert sum(spread.map(rounds)) == N
        for pid in dask_client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        assert sum(spread.map(rounds)) == N


def test_a_dask_cluster_that_cannot_be_sent_the_work_is_told_of(dask_client, stream, prior, monkeypatch):
    def lost(data, **_):
        raise OSError("Timed out trying to connect")

    monkeypatch.setattr(dask_client, "scatter", lost)
    with pytest.raises(EngineError, match="lost workers 3 times while they were sent the work: Timed out"):
        ma.fit(stream, prior, ma.Gaussian(0.5), engine=Dask(dask_client))


def test_a_killed_spark_executor_changes_nothing(tmp_path):
    java()
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


def test_a_spark_session_with_another_python_is_told_how_to_name_the_right_one(tmp_path):
    java()
    folder, other, script = write_clicks(tmp_path / "logs", n=300), tmp_path / "python", tmp_path / "script.py"
    # -S leaves out what is installed; Spark itself brings PySpark along.
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    other.chmod(0o755)
    script.write_text(
        "import manyarms as ma\nfrom pyspark.sql import SparkSession\n"
        "from manyarms.engines.spark import LOCAL_SETTINGS, Spark\n"
        "session = SparkSession.builder.config(map=LOCAL_SETTINGS | {'spark.log.level': 'OFF'}).getOrCreate()\n"
        f"logs = ma.read_logs({str(folder)!r}, ['x0'], 'item', 'click', n_actions={K})\n"
        f"ma.fit(logs, ma.priors.independent({K}, dim=2), engine=Spark(session, pieces=2))\n"
    )
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(other)}
    done = subprocess.run(
        [sys.executable, script], check=False, capture_output=True, text=True, timeout=300, env=environment
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "EngineError: the executors of this Spark session run a Python without" in last, done.stderr[-3000:]
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in last


def test_a_script_without_a_guard_is_told_so(tmp_path):
    folder = write_clicks(tmp_path / "logs", n=300)
    script = tmp_path / "script.py"
    script.write_text(
        f"import manyarms as ma\nlogs = ma.read_logs({str(folder)!r}, ['x0'], 'item', 'click', n_actions={K})\n"
        f"ma.fit(logs, ma.priors.independent({K}, dim=2), engine='dask')\n"
    )
    found = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True, timeout=120)
    last = found.stderr.strip().splitlines()[-1]
    assert found.returncode == 1 and last.startswith("manyarms.errors.EngineError: Dask could not start processes")
    assert 'if __name__ == "__main__":' in last


def test_a_command_on_spark_is_as_quiet_as_one_without(tmp_path):
    java()
    folder = write_clicks(tmp_path / "logs", n=300)
    roles = ["--context", "x0", "--action", "item", "--reward", "click", "--no-learn-prior"]
    said = list[str]()
    for engine in ("local", "spark"):
        command = ["fit", "--logs", folder, *roles, "--engine", engine, "--out", tmp_path / f"{engine}.arrow", "--json"]
        code = "from manyarms.cli import app; app()"
        found = subprocess.run(
            [sys.executable, "-c", code, *command], check=False, capture_output=True, text=True, timeout=300
        )
        assert found.returncode == 0, found.stderr
        said.append(found.stderr)
    assert said[0] == said[1]


def test_an_engine_that_is_none_is_refused(stream, prior):
    with pytest.raises(InputError, match='"local", "dask", "spark"'):
        ma.fit(stream, prior, engine="ray")
    with pytest.raises(InputError, match="cannot be spread"):
        batches = pa.table({**{c: [0.0] * 4 for c in COLUMNS}, "item": [0, 1, 2, 3], "click": [0.0] * 4}).to_batches()
        logs = ma.read_logs(batches, COLUMNS, "item", "click", n_actions=K)
        ma.fit(logs, ma.priors.independent(K, dim=logs.dim), engine=Dask(pieces=2))


def test_python_blocks_on_scale_run_on_clusters(dask_client, spark_session, tmp_path, monkeypatch):
    """With the client and the session in use, as a reader who has both would type them."""
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 300
    names = np.array(["oats", "rye", "pears", "plums"])
    items = pa.table({"item": names, "department": ["grain", "grain", "fruit", "fruit"]})
    pq.write_table(items, "items.parquet")
    bought = rng.integers(0, 2, n).astype(float)
    rounds = {"age": rng.normal(40, 9, n), "city": rng.choice(["Ulm", "Bonn"], n), "item": rng.choice(names, n)}
    Path("logs").mkdir()
    pq.write_table(pa.table({**rounds, "bought": bought}), "logs/day.parquet", row_group_size=50)
    shown = run(DOCS / "scale.md", names={"session": spark_session})
    assert shown["found"].n_seen == len(names)


def test_the_page_on_dask_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(DOCS / "how-to" / "dask.md")
    assert len(list(Path("scores").glob("*.parquet"))) > 1


def test_the_page_on_spark_runs(spark_session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(DOCS / "how-to" / "spark.md")


def test_a_cluster_is_named_by_its_address(dask_client, stream, prior, monkeypatch):
    found = ma.fit(stream, prior, ma.Gaussian(0.5), engine=f"dask:{dask_client.scheduler.address}")
    assert_same_posterior(found, ma.fit(stream.collect(), prior, ma.Gaussian(0.5)), 1e-10)
    monkeypatch.setattr("manyarms.engines.dask.TIMEOUT", 0.2)
    with pytest.raises(ma.errors.EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        ma.fit(stream, prior, engine="dask:tcp://127.0.0.1:9")
