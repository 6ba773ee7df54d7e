"""A fit on a Dask cluster of two workers, one of which is killed on the way: how many died, rounds, largest gap.

The counterpart for Spark is tests/engines/kill_spark_executor.py.
"""

import os
import signal
import sys
import threading

import numpy as np
from distributed import Client, LocalCluster

import manyarms as ma
from manyarms.engines.dask import Dask


def main() -> None:
    """Fit, kill, compare."""
    folder, n_actions = sys.argv[1], int(sys.argv[2])
    delay = float(np.random.default_rng([1614, int(os.environ.get("TRUST_CASE", "0"))]).uniform(0.0, 0.3))
    stream = ma.read_logs(folder, ["x0", "x1", "x2"], "item", "click", n_actions=n_actions)
    prior = ma.priors.from_categories(np.arange(n_actions) % 5, dim=stream.dim)
    expected = ma.fit(stream, prior, ma.Bernoulli())
    killed = list[int]()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        worker = next(iter(client.run(os.getpid).values()))

        def kill() -> None:
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

        def during_the_fit(step: int, _: int) -> None:
            if step == 2:
                threading.Timer(delay, kill).start()

        engine = Dask(client, pieces=12)
        posterior = ma.fit(stream, prior, ma.Bernoulli(), engine=engine, progress=during_the_fit)
        gap = np.abs(posterior.weights.action_mean() - expected.weights.action_mean()).max()
    print(len(killed), posterior.statistics.n_rounds, gap)


if __name__ == "__main__":
    main()
