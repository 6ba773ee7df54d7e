"""`ma.mlflow.log_model` and `save_model`: MLflow loads our model file and ranks actions as the model does."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, MissingLibraryError

# MLflow warns about its own code when it is imported.
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.usefixtures("mlflow"),
]


def context_table(n=30, seed=1):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"age": rng.integers(18, 70, n), "city": rng.choice(["Oslo", "Riga"], n)})


@pytest.fixture(scope="module")
def posterior():
    rng = np.random.default_rng(0)
    catalog = ma.Catalog([f"item-{a}" for a in range(20)], categories=rng.integers(0, 3, 20))
    table = context_table(500, seed=2)
    table["item"] = [f"item-{a}" for a in rng.integers(0, 15, 500)]
    table["reward"] = rng.normal(size=500) + table["age"] / 50
    logs = ma.read_logs(table, ["age", "city"], "item", "reward", catalog=catalog)
    return ma.fit(logs, ma.priors.from_catalog(catalog, dim=logs.dim))


def best_items(posterior, contexts, k):
    """Ids, expected rewards and deviations of the k best items, by sorting all of them."""
    rewards = posterior.expected_reward(contexts)
    order = np.argsort(-rewards, axis=1, kind="stable")[:, :k]
    x = posterior.features(pa.Table.from_pandas(contexts))
    stds = [posterior.reward_std(np.repeat(x[[row]], k, axis=0), order[row]) for row in range(len(order))]
    return posterior.catalog.ids[order].tolist(), np.take_along_axis(rewards, order, axis=1), np.array(stds)


def test_a_registered_model_predicts_what_sorting_all_items_gives(mlflow, posterior):
    uri = ma.mlflow.log_model(posterior, "shop", top_k=3, registered_model_name="shop-items")
    contexts = context_table()
    items, rewards, stds = best_items(posterior, contexts, 4)
    for place in (uri, "models:/shop-items/1"):
        loaded = mlflow.pyfunc.load_model(place)
        default, four = loaded.predict(contexts), loaded.predict(contexts, params={"top_k": 4})
        assert default["actions"].tolist() == [row[:3] for row in items]
        assert four["actions"].tolist() == items
        assert_allclose(np.array(four["expected_rewards"].tolist()), rewards)
        assert_allclose(np.array(four["reward_stds"].tolist()), stds)
    again = ma.mlflow.load_model("models:/shop-items/1")
    assert again.log_evidence == posterior.log_evidence


def test_the_folder_holds_our_file_and_no_pickle(mlflow, posterior, tmp_path):
    ma.mlflow.save_model(ma.Softmax(posterior, 0.1), tmp_path / "model", top_k=2)
    files = {path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert files == {
        "MLmodel", "conda.yaml", "model.arrow", "input_example.json", "python_env.yaml", "requirements.txt",
        "serving_input_example.json",
    }  # fmt: skip
    assert isinstance(ma.load(tmp_path / "model" / "data" / "model.arrow"), ma.Softmax)
    requirements = (tmp_path / "model" / "requirements.txt").read_text().split()
    assert f"manyarms[mlflow]=={ma.__version__}" in requirements
    example = json.loads((tmp_path / "model" / "input_example.json").read_text())
    assert example["columns"] == ["age", "city"]
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    expected = posterior.catalog.ids[ma.Softmax(posterior, 0.1).top_k(context_table(), 2)].tolist()
    assert loaded.predict(context_table())["actions"].tolist() == expected


def test_arrays_and_policies_without_a_posterior_have_numbers_alone(mlflow, tmp_path):
    ma.mlflow.save_model(ma.TablePolicy([0.2, 0.5, 0.3]), tmp_path / "table", top_k=2, pip_requirements=["manyarms"])
    prediction = mlflow.pyfunc.load_model(str(tmp_path / "table")).predict(np.zeros((2, 1)))
    assert prediction.to_dict("list") == {"actions": [[1, 2], [1, 2]]}
    logs = ma.LoggedData(np.eye(2)[[0, 1, 0, 1]], [0, 0, 1, 1], [1.0, 0.0, 0.0, 3.0], n_actions=3)
    ma.mlflow.save_model(ma.fit(logs, ma.priors.independent(3, dim=2)), tmp_path / "arrays")
    prediction = mlflow.pyfunc.load_model(str(tmp_path / "arrays")).predict(np.eye(2))
    assert prediction["actions"].tolist() == [[0], [1]]
    assert_allclose(prediction["expected_rewards"].tolist(), [[0.5], [1.5]])


@pytest.mark.slow
def test_the_command_of_mlflow_predicts_in_another_process(posterior, tmp_path):
    ma.mlflow.save_model(posterior, tmp_path / "model", top_k=2)
    contexts = context_table(5)
    contexts.to_csv(tmp_path / "contexts.csv", index=False)
    command = [sys.executable, "-m", "mlflow", "models", "predict", "--env-manager", "local", "-m", tmp_path / "model"]
    files = ["-i", tmp_path / "contexts.csv", "-o", tmp_path / "best.json", "-t", "csv"]
    subprocess.run([*command, *files], check=True, capture_output=True, timeout=300)
    rows = json.loads(Path(tmp_path / "best.json").read_text())["predictions"]
    assert [row["actions"] for row in rows] == best_items(posterior, contexts, 2)[0]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_spark_udf_predicts_the_same(mlflow, posterior, tmp_path):
    from engines.engine_logs import need_java

    need_java()
    from manyarms.engines.spark import Spark

    uri, contexts = ma.mlflow.log_model(posterior, top_k=2), context_table()
    spark = Spark().session
    try:
        best = mlflow.pyfunc.spark_udf(spark, uri, env_manager="local")
        rows = spark.createDataFrame(contexts).select("age", "city", best("age", "city").alias("best")).collect()
    finally:
        spark.stop()
    items, rewards, _ = best_items(posterior, contexts, 2)
    assert [list(row.best.actions) for row in rows] == items
    assert_allclose([list(row.best.expected_rewards) for row in rows], rewards)


def test_what_mlflow_cannot_hold_is_refused_before_anything_is_written(posterior, tmp_path, own_errors, monkeypatch):
    logs = ma.LoggedData(np.ones((2, 1)), [0, 1], [0.0, 1.0], n_actions=2)
    with pytest.raises(InputError, match="has no choices for other rows"):
        ma.mlflow.save_model(ma.Logged(logs), tmp_path / "model")
    with pytest.raises(InputError, match="top_k must be at most the 20 actions there are; got 21"):
        ma.mlflow.save_model(posterior, tmp_path / "model", top_k=21)
    with pytest.raises(DataTypeError, match="model must be a posterior or a policy; got str"):
        ma.mlflow.log_model("model.arrow")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(InputError, match="path must name a new or empty folder"):
        ma.mlflow.save_model(posterior, tmp_path / "mine")
    assert not (tmp_path / "model").exists()
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.types", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "manyarms\[mlflow\]"'):
        ma.mlflow.save_model(posterior, tmp_path / "model")
