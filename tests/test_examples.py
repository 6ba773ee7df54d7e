"""The programs in examples/ do what their docstrings say."""

import importlib.util
import json
import os
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pyarrow as pa
import pytest
from pages import DOCS, run

import manyarms as ma
from examples.serve_items import make_server


@pytest.fixture(scope="module", params=["gaussian", "bernoulli"])
def posterior(request):
    rng = np.random.default_rng(0)
    catalog = ma.Catalog([f"item-{a}" for a in range(60)], categories=rng.integers(0, 4, 60))
    actions = np.arange(900) % 60
    table = pa.table(
        {
            "age": rng.integers(18, 70, 900),
            "city": rng.choice(["Oslo", "Riga"], 900),
            "item": [f"item-{a}" for a in actions],
            "reward": (rng.random(900) < 0.1 + 0.8 * (actions % 5 == 0)).astype(float),
        }
    )
    logs = ma.read_logs(table, ["age", "city"], "item", "reward", catalog=catalog)
    likelihood = ma.Gaussian(0.3) if request.param == "gaussian" else ma.Bernoulli()
    return ma.fit(logs, ma.priors.from_catalog(catalog, dim=logs.dim), likelihood)


@pytest.fixture(scope="module")
def address(posterior):
    with make_server(posterior, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def post(url, body):
    """Status and answer of a request; no proxy stands between a test and its own machine."""
    try:
        with urlopen(Request(url, json.dumps(body).encode(), method="POST"), timeout=20) as response:
            return response.status, json.load(response)
    except HTTPError as refusal:
        return refusal.code, json.load(refusal)


def test_the_server_answers_with_the_best_items(posterior, address):
    contexts = [{"age": 31, "city": "Oslo"}, {"age": 62, "city": "Riga"}]
    for context in contexts:
        rewards = posterior.expected_reward(pa.Table.from_pylist([context]))[0]
        expected = [f"item-{a}" for a in np.argsort(-rewards, kind="stable")[:5]]
        assert post(f"{address}/top?k=5", context) == (200, {"items": expected})


def test_a_bad_request_is_answered_with_its_problem(address):
    status, answer = post(f"{address}/top?k=5", {"age": 31})
    assert status == 400 and "city" in answer["error"]
    assert post(f"{address}/top?k=61", {"age": 31, "city": "Oslo"})[0] == 400
    assert post(f"{address}/top?k=5", [1, 2])[0] == 400
    assert post(f"{address}/elsewhere", {})[0] == 404


# MLflow warns about its own code.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_page_about_serving_runs(tmp_path, monkeypatch):
    if importlib.util.find_spec("faiss") is None and not os.environ.get("MANYARMS_ALL_TESTS"):
        pytest.skip("faiss is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    run(DOCS / "how-to" / "serving.md")
