"""Gains by segment: exact under the posterior, equal to the checked gain in sum, and clear about odd labels."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from pyarrow import csv
from typer.testing import CliRunner

import manyarms as ma
from manyarms.cli import app
from manyarms.errors import InputError, ShapeError
from manyarms.jobs import evaluate_files, fit_files
from manyarms.jobs.segments import SegmentLabels, gains_by_posterior

K, D, N = 12, 2, 900


@pytest.fixture(scope="module")
def shop():
    """A posterior, its policies, and held-out rounds in three segments, of which the last loses."""
    rng = np.random.default_rng(0)
    segments = rng.choice(3, size=N, p=[0.5, 0.3, 0.2])
    x = np.column_stack([np.ones(N), rng.normal(size=N)])
    actions = rng.integers(K, size=N)
    worth = np.where(np.arange(K) < 3, 2.0, 0.0)
    rewards = worth[actions] * np.where(segments == 2, -1.0, 1.0) + 0.3 * rng.normal(size=N)
    logs = ma.LoggedData(x, actions, rewards, np.full(N, 1 / K), K)
    train, test = logs.take(np.arange(N // 3)), logs.take(np.arange(N // 3, N))
    posterior = ma.fit(train, ma.priors.from_categories(np.arange(K) % 3, dim=D))
    labels = np.array(["north", "south", "abroad"])[segments[N // 3 :]]
    return test, posterior, {"greedy": ma.Greedy(posterior)}, labels


def test_gains_by_the_posterior_are_those_of_each_segments_contexts(shop):
    test, posterior, policies, labels = shop
    segments = SegmentLabels(labels)
    model = gains_by_posterior(policies["greedy"], test, posterior, segments)
    blocks = [[posterior.weights.cross_cov([a], [b])[0] for b in range(K)] for a in range(K)]
    full, masses = np.block(blocks), []
    for code, name in enumerate(segments.names):
        rows = np.flatnonzero(labels == name)
        part = test.take(rows)
        exact = posterior.difference(policies["greedy"], ma.Logged(part), part.contexts)
        assert_allclose(model.means[code], exact.value, rtol=1e-12)
        assert_allclose(model.gains[code].std, exact.std, rtol=1e-12)
        mass = np.zeros((K, D))
        np.add.at(mass, policies["greedy"].actions(part.contexts), part.contexts / len(rows))
        np.add.at(mass, part.actions, -part.contexts / len(rows))
        masses.append(mass.ravel())
    assert_allclose(model.covariance, np.array(masses) @ full @ np.array(masses).T, rtol=1e-9, atol=1e-14)


def test_gains_add_up_to_the_checked_gain_and_the_loser_is_named(shop):
    test, posterior, policies, labels = shop
    evaluation = ma.evaluate(policies, test, posterior, segments=labels)
    rows = evaluation.segments.of_policy("greedy")
    sizes = np.array([row.n_rounds for row in rows])
    assert [row.segment for row in rows] == ["north", "south", "abroad"] and sizes.sum() == len(test)
    total = sizes @ np.array([row.gain.value for row in rows]) / sizes.sum()
    assert_allclose(total, evaluation.policies[0].gain.value, atol=1e-9)
    assert evaluation.segments.named("greedy", "loses") == ("abroad",)
    assert evaluation.segments.named("greedy", "wins") == ("north", "south")
    assert "worse in abroad" in evaluation.segments.sentence("greedy")
    record = evaluation.segments.records()[0]
    assert {"segment", "policy", "difference", "low", "high", "probability"} <= record.keys()
    assert evaluation.segments.to_arrow(level=0.5).num_rows == 3


def test_logs_carry_their_segments_through_splits(shop):
    test, posterior, policies, labels = shop
    logs = test.with_segments(labels)
    part = logs.take(np.arange(100, 300))
    assert (part.segments == labels[100:300]).all() and logs.fingerprint == test.fingerprint
    by_logs, given = (
        ma.evaluate(policies, rounds, posterior, segments=own).segments.records()
        for rounds, own in ((logs, None), (test, labels))
    )
    assert by_logs == given


def test_rounds_of_weight_zero_do_not_count(shop):
    test, posterior, policies, labels = shop
    weights = (np.arange(len(test)) % 2 == 0).astype(float)
    weights[labels == "south"] = 0.0
    weighted = ma.LoggedData(test.contexts, test.actions, test.rewards, test.propensities, K, weights=weights)
    kept = np.flatnonzero(weights)
    found = ma.evaluate(policies, weighted, posterior, segments=labels).segments.of_policy("greedy")
    alone = ma.evaluate(policies, weighted.take(kept), posterior, segments=labels[kept]).segments.of_policy("greedy")
    assert [row.segment for row in found] == ["north", "abroad"]
    assert_allclose([row.model.value for row in found], [row.model.value for row in alone])


def test_odd_segments_get_clear_answers(shop, monkeypatch):
    test, posterior, policies, labels = shop
    n = len(test)

    def segments(own):
        return ma.evaluate(policies, test, posterior, segments=own).segments

    few = labels.copy().astype(object)
    few[:3] = "three rounds"
    small = next(row for row in segments(few).rows if row.segment == "three rounds")
    assert small.n_rounds == 3 and small.outcome == "open" and np.isfinite(small.gain.std)
    one = segments(np.full(n, "all"))
    assert "only one segment" in one.sentence("greedy")
    assert_allclose(one.rows[0].gain.value, ma.evaluate(policies, test, posterior).policies[0].gain.value)
    missing = labels.copy().astype(object)
    missing[::2] = None
    assert "(missing)" in {row.segment for row in segments(missing).rows}
    monkeypatch.setattr("manyarms.jobs.segments.MOST_SEGMENTS", 20)
    many = segments(np.arange(n) % 25)
    assert len(many) == 21 and many.n_joined == 5 and "5 segments" in many.rows[0].segment
    with pytest.raises(ShapeError, match="segments must have a label for each of 600 rounds; got 7"):
        segments(np.arange(7))
    with pytest.raises(InputError, match="'country', which is not a categorical context column"):
        segments("country")
    with pytest.raises(InputError, match="hashable"):
        segments(np.array([[] for _ in range(n)] + [[1]], dtype=object)[:n])


def test_segments_are_read_from_a_column_or_from_the_context(tmp_path):
    rng, n = np.random.default_rng(1), 400
    table = pa.table({
        "country": rng.choice(["de", "fr"], size=n), "device": pa.array([None, "phone", "desk", "phone"] * (n // 4)),
        "age": rng.normal(size=n), "item": rng.integers(5, size=n), "reward": rng.normal(size=n), "p": np.full(n, 0.2),
    })  # fmt: skip
    roles = dict(context=["age", "country"], action="item", reward="reward", propensity="p")
    logs = ma.read_logs(table, **roles, segment="device")
    assert logs.segments.tolist() == table["device"].to_pylist()
    posterior = ma.fit(logs, ma.priors.independent(5, dim=logs.dim))
    by_context = ma.evaluate({"uniform": ma.Uniform(5)}, logs, posterior, segments="country").segments
    named = ma.read_logs(table, **roles, segment="country")
    by_column = ma.evaluate({"uniform": ma.Uniform(5)}, named, posterior).segments
    assert by_context.records() == by_column.records() and {row.segment for row in by_column.rows} == {"de", "fr"}


def test_files_are_evaluated_by_segment(tmp_path):
    rng, n = np.random.default_rng(2), 300
    table = pa.table({
        "country": rng.choice(["de", "fr"], size=n), "age": rng.normal(size=n), "item": rng.integers(5, size=n),
        "reward": rng.normal(size=n), "p": np.full(n, 0.2),
    })  # fmt: skip
    csv.write_csv(table.slice(0, 150), tmp_path / "old.csv")
    csv.write_csv(table.slice(150), tmp_path / "new.csv")
    model, roles = tmp_path / "model.arrow", dict(action="item", reward="reward", propensity="p")
    fit_files(tmp_path / "old.csv", context="age", action="item", reward="reward", out=model)
    result = evaluate_files(tmp_path / "new.csv", **roles, model=model, policies=["greedy"], segment="country")
    rows = result.record()["segments"]
    assert {row["segment"] for row in rows} == {"de", "fr"} and sum(row["rounds"] for row in rows) == 150
    command = ["evaluate", "--logs", str(tmp_path / "new.csv"), "--model", str(model), "--policies", "greedy"]
    command += ["--action", "item", "--reward", "reward", "--propensity", "p", "--segment", "country"]
    shown = CliRunner().invoke(app, command).output
    assert "segment" in shown and "fr" in shown and "chance alone" in shown


def test_gains_of_segments_are_independent_under_a_model_of_several_sets_of_weights(shop):
    test, _, _, labels = shop
    rows = np.arange(150)
    rounds = test.take(rows)
    amounts = ma.LoggedData(
        rounds.contexts, rounds.actions, np.where(rounds.rewards > 0.5, rounds.rewards, 0.0), n_actions=K
    )
    posterior = ma.fit(amounts, ma.priors.independent(K, dim=D), ma.Hurdle())
    segments = SegmentLabels(labels[rows])
    model = gains_by_posterior(ma.Uniform(K), amounts, posterior, segments)
    stds = []
    for code in range(len(segments)):
        part = amounts.take(segments.rows(code))
        exact = posterior.difference(ma.Uniform(K), ma.Logged(part), part.contexts)
        assert_allclose(model.gains[code].value, exact.value, rtol=1e-10)
        stds.append(exact.posterior_std)
    assert_allclose(model.covariance, np.diag(np.square(stds)), rtol=1e-6)


def test_segments_are_shown_by_a_sentence_per_policy(shop):
    test, posterior, policies, labels = shop
    segments = ma.evaluate({**policies, "uniform": ma.Uniform(K)}, test, posterior, segments=labels).segments
    assert repr(segments).splitlines() == [segments.sentence(name) for name in ("greedy", "uniform")]
