"""A fit on a Spark cluster of two executors, one of which is killed on the way: how many died, rounds, largest gap."""

import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

import manyarms as ma
from manyarms.engines.spark import LOCAL_SETTINGS, Spark

SETTINGS = {
    **LOCAL_SETTINGS,
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "1g",
    "spark.log.level": "OFF",
}


def executors(app: str) -> list[int]:
    """The processes of this application's executors, and of no other."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if "CoarseGrainedExecutorBackend" in line and app in line:
            pids.append(int(entry.name))
    return pids


def main() -> None:
    """Fit, kill, compare."""
    folder, n_actions = sys.argv[1], int(sys.argv[2])
    session = SparkSession.builder.config(map=SETTINGS).getOrCreate()
    stream = ma.read_logs(folder, ["x0", "x1", "x2"], "item", "click", n_actions=n_actions)
    prior = ma.priors.from_categories(np.arange(n_actions) % 5, dim=stream.dim)
    options = {"max_iterations": 3}
    expected = ma.fit(stream, prior, ma.Bernoulli(), **options)
    killed = []

    def kill() -> None:
        victim = executors(session.sparkContext.applicationId)[0]
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    def during_the_fit(step: int, _: int) -> None:
        if step == 1:
            threading.Timer(0.3, kill).start()

    engine = Spark(session, pieces=6, shards=2)
    posterior = ma.fit(stream, prior, ma.Bernoulli(), engine=engine, progress=during_the_fit, **options)
    gap = np.abs(posterior.weights.action_mean() - expected.weights.action_mean()).max()
    print(len(killed), posterior.statistics.n_rounds, gap)
    session.stop()


if __name__ == "__main__":
    main()
