"""Passes over logs on clusters give the same answers as in memory, and errors name the same rows."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_logs import COLUMNS, ON_CLUSTERS, K, N, assert_same_posterior, need_java, read, write_clicks
from numpy.testing import assert_allclose, assert_array_equal
from pages import DOCS, run

import manyarms as ma
from manyarms.engines import as_engine
from manyarms.engines.dask import Dask
from manyarms.errors import InputError, NonFiniteError, RangeError
from manyarms.likelihoods.collect_statistics import CollectStatistics

# Sockets that Spark's client before 4.2 leaves open are not ours to close.
LEFT_OPEN = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
pytestmark = [*ON_CLUSTERS, LEFT_OPEN]


@pytest.mark.parametrize("likelihood", [ma.Gaussian(0.5), ma.Bernoulli()], ids=str)
def test_every_engine_finds_what_rounds_in_memory_give(engine, stream, prior, likelihood):
    tolerance = 1e-10 if likelihood.treatment == "exact" else 1e-8
    expected = ma.fit(stream.collect(), prior, likelihood)
    result = ma.fit(stream, prior, likelihood, engine=engine)
    assert len(result.trace) == len(expected.trace)
    assert_same_posterior(result, expected, tolerance)


def test_an_update_on_an_engine_is_one_fit_over_all_days(engine, stream, prior, tmp_path):
    more = ma.read_logs(write_clicks(tmp_path, seed=1), COLUMNS, "item", "click", n_actions=K, features=stream.features)
    both = Path(tmp_path) / "both"
    both.mkdir()
    for i, file in enumerate([*stream.source.files, *more.source.files]):
        shutil.copy(file, both / f"{i}.parquet")
    everything = ma.read_logs(both, COLUMNS, "item", "click", n_actions=K, features=stream.features)
    expected = ma.fit(everything.collect(), prior, ma.Gaussian(0.5))
    result = ma.fit(stream, prior, ma.Gaussian(0.5), engine=engine).update(more, engine=engine)
    assert_same_posterior(result, expected, 1e-10)


def test_the_actions_of_a_sharded_fit_are_those_of_a_fit(engine, stream, prior, tmp_path):
    expected = ma.fit(stream.collect(), prior, ma.Gaussian(0.5))
    result = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "actions", engine=engine)
    table = pq.read_table(result.folder).sort_by("action")
    actions = table["action"].to_numpy()
    assert_array_equal(actions, np.sort(expected.weights.observed.actions))
    assert result.n_seen == len(actions) < K
    means = np.array(table["mean"].to_pylist())
    covariances = np.array(table["covariance"].to_pylist()).reshape(len(actions), prior.dim, prior.dim)
    assert_allclose(means, expected.weights.action_mean(actions), rtol=1e-10, atol=1e-10)
    assert_allclose(covariances, expected.weights.action_cov(actions), rtol=1e-10, atol=1e-10)
    assert_allclose(result.latent_mean, expected.weights.latent_mean, rtol=1e-10, atol=1e-10)
    assert_allclose(result.latent_cov, expected.weights.latent_cov, rtol=1e-10, atol=1e-10)
    assert_allclose(result.log_evidence, expected.log_evidence, rtol=1e-10)
    with pytest.raises(InputError, match="not empty"):
        ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "actions")


@pytest.mark.slow
def test_a_sharded_posterior_is_shown_in_a_line(stream, prior, tmp_path):
    result = ma.fit_sharded(stream, prior, ma.Gaussian(0.5), out=tmp_path / "spread")
    assert repr(result).startswith(
        f"ShardedPosterior({result.n_seen} actions seen, d'={5 * stream.dim}, log evidence -"
    )


@pytest.mark.slow
def test_a_sharded_fit_of_independent_actions_is_a_fit(engine, stream, tmp_path):
    alone = ma.priors.independent(K, dim=stream.dim)
    expected = ma.fit(stream, alone, ma.Gaussian(0.5))
    result = ma.fit_sharded(stream, alone, ma.Gaussian(0.5), out=tmp_path / "actions", engine=engine)
    table = pq.read_table(result.folder).sort_by("action")
    means = np.array(table["mean"].to_pylist())
    assert_allclose(means, expected.weights.action_mean(table["action"].to_numpy()), rtol=1e-10, atol=1e-10)
    assert_allclose(result.log_evidence, expected.log_evidence, rtol=1e-10)


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
    assert_allclose(*([getattr(estimate, name) for name in numbers] for estimate in (there, here)), rtol=1e-10)
    result = ma.score(posterior, stream.source, tmp_path / "scores", top_k=2, engine=engine)
    scores = pq.read_table(tmp_path / "scores")
    assert result.n_contexts == N and scores["row"].to_pylist() == sorted([*range(N), *range(N)])
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "file"]


def test_dropped_rows_are_counted_over_all_pieces(engine, stream, prior):
    reading = {"context": COLUMNS, "action": "item", "reward": "click", "features": stream.features}
    few = ma.read_logs(stream.source, **reading, n_actions=K // 2, unknown="drop")
    expected = few.collect()
    counted = few.dropped
    again = ma.read_logs(stream.source, **reading, n_actions=K // 2, unknown="drop")
    smaller = ma.priors.independent(K // 2, dim=stream.dim)
    result = ma.fit(again, smaller, ma.Gaussian(0.5), engine=engine)
    assert again.dropped == counted and counted.unknown > 0
    assert result.statistics.n_rounds == len(expected)


def test_the_sums_are_those_of_a_database(engine, stream):
    # DuckDB reads the same files and adds up the same products, and shares no code with us.
    task = CollectStatistics(ma.Gaussian(), K, stream.dim)
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


@pytest.mark.slow
def test_a_spark_session_with_another_python_says_how_to_name_the_right_one(tmp_path):
    need_java()
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


@pytest.mark.slow
def test_a_script_without_a_guard_says_so(tmp_path):
    folder = write_clicks(tmp_path / "logs", n=300)
    script = tmp_path / "script.py"
    script.write_text(
        f"import manyarms as ma\nlogs = ma.read_logs({str(folder)!r}, ['x0'], 'item', 'click', n_actions={K})\n"
        f"ma.fit(logs, ma.priors.independent({K}, dim=2), engine='dask')\n"
    )
    result = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True, timeout=120)
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1 and last.startswith("manyarms.errors.EngineError: Dask could not start processes")
    assert 'if __name__ == "__main__":' in last


@pytest.mark.slow
def test_a_command_on_spark_is_as_quiet_as_one_without(tmp_path):
    need_java()
    folder = write_clicks(tmp_path / "logs", n=300)
    roles = ["--context", "x0", "--action", "item", "--reward", "click", "--no-learn-prior"]
    stderr = list[str]()
    for engine in ("local", "spark"):
        command = ["fit", "--logs", folder, *roles, "--engine", engine, "--out", tmp_path / f"{engine}.arrow", "--json"]
        code = "from manyarms.cli import app; app()"
        result = subprocess.run(
            [sys.executable, "-c", code, *command], check=False, capture_output=True, text=True, timeout=300
        )
        assert result.returncode == 0, result.stderr
        stderr.append(result.stderr)
    assert stderr[0] == stderr[1]


def test_an_unknown_engine_is_refused(stream, prior):
    with pytest.raises(InputError, match="engine must be local, dask, spark or ibis; got 'ray'"):
        ma.fit(stream, prior, engine="ray")
    with pytest.raises(InputError, match="cannot be spread"):
        batches = pa.table({**{c: [0.0] * 4 for c in COLUMNS}, "item": [0, 1, 2, 3], "click": [0.0] * 4}).to_batches()
        logs = ma.read_logs(batches, COLUMNS, "item", "click", n_actions=K)
        ma.fit(logs, ma.priors.independent(K, dim=logs.dim), engine=Dask(pieces=2))


@pytest.mark.slow
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
    assert shown["sharded"].n_seen == len(names)


@pytest.mark.slow
def test_the_page_on_dask_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(DOCS / "how-to" / "dask.md")
    assert len(list(Path("scores").glob("*.parquet"))) > 1


@pytest.mark.slow
def test_the_page_on_spark_runs(spark_session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(DOCS / "how-to" / "spark.md")


@pytest.mark.slow
def test_a_cluster_is_named_by_its_address(dask_client, stream, prior, monkeypatch):
    result = ma.fit(stream, prior, ma.Gaussian(0.5), engine=f"dask:{dask_client.scheduler.address}")
    assert_same_posterior(result, ma.fit(stream.collect(), prior, ma.Gaussian(0.5)), 1e-10)
    monkeypatch.setattr("manyarms.engines.dask.TIMEOUT", 0.2)
    with pytest.raises(ma.errors.EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        ma.fit(stream, prior, engine="dask:tcp://127.0.0.1:9")
