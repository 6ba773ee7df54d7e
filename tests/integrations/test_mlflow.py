"""`ma.mlflow`: what MLflow gives back is what was found."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from fast_first import fast_first
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.core.result_tables import Records
from manyarms.errors import InputError, MissingLibraryError, TooLargeError


@pytest.fixture(scope="module")
def evaluated():
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(
        rng.normal(size=(200, 2)), rng.integers(4, size=200), rng.normal(size=200), np.full(200, 0.25), n_actions=4
    )
    posterior = ma.fit(logs, ma.priors.from_categories([0, 0, 1, 1], dim=2))
    policies = {"greedy": ma.Greedy(posterior), "softmax:0.1": ma.Softmax(posterior, 0.1)}
    return ma.evaluate(policies, logs, posterior, estimators=[ma.IPS(), ma.SNIPS()]), posterior, policies


def test_a_run_holds_the_figures_the_settings_and_the_model(mlflow, evaluated):
    evaluation, posterior, policies = evaluated
    with mlflow.start_run() as run:
        mlflow.log_param("mine", 1)
        assert ma.mlflow.log(evaluation, posterior=posterior, models=policies) == run.info.run_id
        assert mlflow.active_run() is not None
    found = mlflow.get_run(run.info.run_id)
    greedy = evaluation.policies[0]
    assert_allclose(found.data.metrics["greedy/posterior/value"], greedy.value.value)
    assert_allclose(found.data.metrics["greedy/posterior/probability_better"], greedy.gain.probability_positive)
    assert_allclose(
        found.data.metrics["softmax_0.1/snIPS/high"], evaluation.policies[1].estimates["snIPS"].interval()[1]
    )
    assert_allclose(found.data.metrics["log_evidence"], posterior.log_evidence)
    assert found.data.params["n_rounds"] == "200"
    assert found.data.params["likelihood"] == "Gaussian(noise_std=1.0)"
    assert found.data.tags["manyarms.version"] == ma.__version__
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id))
    assert json.loads((folder / "Evaluation.json").read_text())["records"] == evaluation.records()
    contexts = np.eye(2)
    assert_allclose(ma.load(folder / "model.arrow").expected_reward(contexts), posterior.expected_reward(contexts))
    again = ma.load(folder / "softmax_0.1.arrow")
    assert_allclose(again.probabilities(contexts), policies["softmax:0.1"].probabilities(contexts))


def numbers_of(result):
    """All finite numbers of a table, which are no labels."""
    return sorted(
        value
        for record in result.records()
        for name, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in ("action", "category")
        if np.isfinite(value)
    )


def test_no_figure_of_a_summary_is_lost(mlflow, evaluated):
    posterior = evaluated[1]
    summary = posterior.summary()
    found = mlflow.get_run(ma.mlflow.log(summary)).data.metrics
    assert len(found) == 4 * 2 * 2
    for record in summary.records():
        for name in ("mean", "std"):
            assert found[f"{record['action']}/{_as_mlflow_has_it(record['feature'])}/{name}"] == record[name]


def _as_mlflow_has_it(name):
    return name.translate(str.maketrans("[]()=", "_____"))


@pytest.mark.parametrize(
    "names", fast_first([("a:b", "a;b"), ("a:b", "a;b", "a_b-2"), ("a/b", "a_b"), ("", "..", "_")], 2)
)
def test_policies_whose_names_mlflow_cannot_tell_apart_are_numbered(names, mlflow, evaluated):
    _, posterior, _ = evaluated
    contexts, actions, rewards = np.eye(2)[[0, 1, 0, 1]], [0, 1, 2, 3], [1.0, 0.0, 2.0, 1.0]
    logs = ma.LoggedData(contexts, actions, rewards, np.full(4, 0.25))
    policies = {name: ma.Softmax(posterior, 0.1 + number) for number, name in enumerate(names)}
    evaluation = ma.evaluate(policies, logs, posterior, estimators=[ma.IPS()])
    found = mlflow.get_run(ma.mlflow.log(evaluation)).data.metrics
    assert sorted(found.values()) == numbers_of(evaluation)
    values = [row.estimates["IPS"].value for row in evaluation.policies]
    if names == ("a:b", "a;b"):
        assert [found["a_b/IPS/value"], found["a_b-2/IPS/value"]] == values


def test_rows_that_say_the_same_of_themselves_are_numbered(mlflow):
    rows = [
        {"name": "a", "value": 1.0},
        {"name": "a", "value": 2.0},
        {"name": "a-2", "value": np.float32(3)},
        {"value": 4},
    ]
    found = mlflow.get_run(ma.mlflow.log(Records([*rows, {"value": 5.0}]))).data.metrics
    assert found == {"a/value": 1.0, "a-2/value": 2.0, "a-2-2/value": 3.0, "value": 4.0, "2/value": 5.0}


def test_without_a_run_one_begins_and_ends(mlflow, evaluated):
    run = mlflow.get_run(ma.mlflow.log(evaluated[0]))
    assert run.info.status == "FINISHED"
    assert mlflow.active_run() is None


def test_both_parts_of_a_hurdle_are_named(mlflow):
    logs = ma.LoggedData(np.ones((4, 1)), [0, 1, 0, 1], [0.0, 2.0, 3.0, 0.0])
    posterior = ma.fit(logs, ma.priors.independent(2, dim=1), ma.Hurdle())
    found = mlflow.get_run(ma.mlflow.log(posterior=posterior)).data
    assert found.params["likelihood"] == ", ".join(repr(factor.likelihood) for factor in posterior.factors)
    assert found.params["n_rounds"] == "4"
    assert_allclose(found.metrics["log_evidence"], posterior.log_evidence)


def test_training_is_told_step_by_step(mlflow, evaluated):
    rng = np.random.default_rng(1)
    logs = ma.LoggedData(rng.normal(size=(80, 2)), rng.integers(3, size=80), rng.normal(size=80), np.full(80, 1 / 3))
    seen = []

    def both(progress):
        seen.append(progress)
        ma.mlflow.log_step(progress)

    with mlflow.start_run() as run:
        ma.IPSLearner(training=ma.Training(holdout=0.25, rng=rng, progress=both)).learn(logs)
    for name in ("objective", "held_out"):
        steps = mlflow.MlflowClient().get_metric_history(run.info.run_id, name)
        told = {step.step: step.value for step in steps}
        assert told == {one.step: getattr(one, name) for one in seen}
    assert len(seen) > 1


def test_what_cannot_be_logged_is_refused_in_one_line_and_leaves_no_run(mlflow, evaluated, own_errors, monkeypatch):
    with pytest.raises(TooLargeError, match=r"result has 1,001 numbers, too many for metrics. Log its file"):
        ma.mlflow.log(Records({"name": i, "value": 1.0} for i in range(1001)))
    _, posterior, policies = evaluated
    greedy = policies["greedy"]
    learned = type("Learned", (), {"posterior": posterior})()
    refusals = {
        r"posterior must be what ma.fit returned; got str\.": dict(posterior="x"),
        r"posterior must be what ma.fit returned; got Learned. Pass its .posterior\.": dict(posterior=learned),
        r"models must be a dictionary of models by name; got list\.": dict(models=[greedy]),
        r"models\['g'\] must be a policy or a posterior, which has save\(\); got int\.": dict(models={"g": 3}),
        r"models 'a;b' would be the file a_b.arrow, which is that of 'a:b'. Rename one\.": dict(
            models={"a:b": greedy, "a;b": greedy}
        ),
        r"models 'Model' would be the file Model.arrow, which is that of the posterior. Rename one\.": dict(
            posterior=posterior, models={"Model": greedy}
        ),
        r"result and posterior both have a log_evidence": dict(
            result=Records([{"log_evidence": 1.0}]), posterior=posterior
        ),
        r"TablePolicy of 2 rows cannot be saved": dict(models={"t": ma.TablePolicy(np.full((2, 4), 0.25))}),
    }
    for words, given in refusals.items():
        with pytest.raises(InputError, match=words):
            ma.mlflow.log(**given)
    assert mlflow.search_runs().empty
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(
        MissingLibraryError, match=r'ma.mlflow needs mlflow\. Install it: pip install "manyarms\[mlflow\]"'
    ):
        ma.mlflow.log(evaluated[0])
