"""Streams, and the engines that read them."""

import numpy as np
import pytest
from engine_logs import K, need_java, read, write_clicks

import manyarms as ma
from manyarms.engines import Engine
from manyarms.engines.dask import Dask

IN_SHORT = ("test_every_engine_finds_what_rounds_in_memory_give[spark-Gaussian(noise_std=0.5)]",)
LONG = ("test_values_learned_priors_and_scores_do_not_depend_on_the_engine[dask]",)


def pytest_collection_modifyitems(items):
    """Clusters take their time: of the claims that hold on every engine, the fast tests try one on Spark."""
    for item in items:
        if ("[spark" in item.name and item.name not in IN_SHORT) or item.name in LONG:
            item.add_marker(pytest.mark.slow)


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


@pytest.fixture(scope="module")
def spark_session():
    need_java()
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
