"""A policy by segment chooses as its parts do, row by row, and can be saved where the segment is a context column."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import DataTypeError, EligibilityError, InputError, ShapeError

K = 6


@pytest.fixture(scope="module")
def parts():
    rng, n = np.random.default_rng(0), 200
    table = pa.table({
        "country": rng.choice(["de", "fr", "it"], size=n), "age": rng.normal(size=n),
        "item": rng.integers(K, size=n), "reward": rng.normal(size=n),
    })  # fmt: skip
    logs = ma.read_logs(table, context=["age", "country"], action="item", reward="reward")
    posterior = ma.fit(logs, ma.priors.independent(K, dim=logs.dim))
    return table, logs, posterior


@pytest.mark.parametrize("other", ["pessimistic", "softmax", "uniform", "table"])
def test_every_row_is_chosen_by_the_policy_of_its_segment(parts, other):
    table, logs, posterior = parts
    sides = {
        "pessimistic": ma.Pessimistic(posterior), "softmax": ma.Softmax(posterior, 0.5), "uniform": ma.Uniform(K),
        "table": ma.TablePolicy(np.eye(K)[logs.actions]),
    }  # fmt: skip
    first, second = ma.Greedy(posterior), sides[other]
    countries = np.array(table["country"].to_pylist())
    expected = np.where(
        np.isin(countries, ["de", "it"])[:, None],
        first.probabilities(logs.contexts),
        second.probabilities(logs.contexts),
    )
    eligible = np.ones((len(logs), K), dtype=bool)
    for segments in ("country", countries):
        policy = ma.SegmentPolicy(first, second, segments, ["de", "it"])
        assert_allclose(policy.probabilities(logs.contexts), expected, atol=1e-12)
        assert_allclose(policy.probabilities(logs.contexts, eligible=eligible), expected, atol=1e-12)
        rows = np.array([3, 90, 7])
        assert_allclose(policy.take(rows).probabilities(logs.contexts[rows]), expected[rows], atol=1e-12)
    whole = posterior.value(policy, logs.contexts).value
    assert_allclose(whole, (expected * posterior.expected_reward(logs.contexts)).sum(axis=1).mean(), rtol=1e-10)


def test_a_policy_by_context_column_is_saved_and_reads_tables(parts, tmp_path):
    table, logs, posterior = parts
    policy = ma.SegmentPolicy(ma.Greedy(posterior), ma.Uniform(K), "country", ["fr"], chosen_on=(logs.fingerprint,))
    policy.save(tmp_path / "policy.arrow")
    loaded = ma.load(tmp_path / "policy.arrow")
    assert loaded.follow == ("fr",) and logs.fingerprint in loaded.learned_from
    assert_allclose(loaded.probabilities(table), policy.probabilities(logs.contexts), atol=0)


def test_a_model_file_keeps_the_names_of_actions(parts, tmp_path):
    rounds = parts[1]
    catalog = ma.Catalog(list("abcdef"), names=["Tea", None, "Mug", "Pot", "Cup", "Jug"])
    columns = (rounds.contexts, rounds.actions, rounds.rewards)
    logs = ma.LoggedData(*columns, n_actions=K, features=rounds.features, catalog=catalog)
    ma.fit(logs, ma.priors.independent(K, dim=logs.dim)).save(tmp_path / "model.arrow")
    loaded = ma.load(tmp_path / "model.arrow").catalog
    assert loaded.names.tolist() == catalog.names.tolist()
    grown = loaded.grown_with(ma.Catalog(["g"]))
    assert grown.names.tolist() == [*catalog.names.tolist(), None]


def test_a_policy_by_context_column_is_evaluated_on_a_stream(parts, tmp_path):
    table, logs, posterior = parts
    pq.write_table(table, tmp_path / "log.parquet")
    stream = ma.read_logs(
        tmp_path / "log.parquet", ["age", "country"], "item", "reward", features=logs.features, n_actions=K
    )
    mixed = ma.Mixture([ma.Greedy(posterior), ma.Uniform(K)], [0.5, 0.5])
    policy = ma.SegmentPolicy(mixed, ma.Greedy(posterior), "country", ["de"])
    expected = posterior.expected_reward(logs.contexts)
    by_hand = expected.max(axis=1)
    halved = 0.5 * by_hand + 0.5 * expected.mean(axis=1)
    by_hand = np.where(np.array(table["country"].to_pylist()) == "de", halved, by_hand)
    assert_allclose(posterior.value(policy, stream).value, by_hand.mean(), rtol=1e-10)
    assert_allclose(posterior.value(mixed, stream).value, (expected.max(axis=1) + expected.mean(axis=1)).mean() / 2)


def test_a_policy_for_no_rows_chooses_nothing(parts):
    table, logs, posterior = parts
    rows = ma.TablePolicy(np.eye(K)[logs.actions])
    policy = ma.SegmentPolicy(rows, ma.Greedy(posterior), np.array(table["country"].to_pylist()), ["de"])
    nobody = np.empty(0, dtype=np.int64)
    assert policy.take(nobody).probabilities(logs.contexts[nobody]).shape == (0, K)


def test_wrong_arguments_are_refused(parts, tmp_path):
    table, logs, posterior = parts
    greedy, labels = ma.Greedy(posterior), np.array(table["country"].to_pylist())
    with pytest.raises(DataTypeError, match="cannot be saved"):
        ma.SegmentPolicy(greedy, ma.Uniform(K), labels, ["de"]).save(tmp_path / "x")
    with pytest.raises(InputError, match="otherwise repeats the rows of a log"):
        ma.SegmentPolicy(greedy, ma.Logged(logs), "country", ["de"])
    other = ma.read_logs(table, context=["country"], action="item", reward="reward")
    elsewhere = ma.Greedy(ma.fit(other, ma.priors.independent(K, dim=other.dim)))
    with pytest.raises(InputError, match="otherwise was learned with another feature map than policy"):
        ma.SegmentPolicy(greedy, elsewhere, "country", ["de"])
    table_of_rows = ma.TablePolicy(np.eye(K)[logs.actions])
    with pytest.raises(InputError, match="'age', which is not a categorical context column"):
        ma.SegmentPolicy(greedy, ma.Uniform(K), "age", ["de"])
    with pytest.raises(ShapeError, match="otherwise has 5 actions; policy has 6"):
        ma.SegmentPolicy(greedy, ma.Uniform(5), "country", ["de"])
    with pytest.raises(ShapeError, match="as many rows"):
        ma.SegmentPolicy(greedy, table_of_rows, labels[:9], ["de"])
    none = np.ones((len(logs), K), dtype=bool)
    row = int(np.flatnonzero(labels == "fr")[1])
    none[row, logs.actions[row]] = False
    with pytest.raises(EligibilityError, match=f"in row {row}"):
        ma.SegmentPolicy(greedy, table_of_rows, "country", ["de"]).actions(logs.contexts, eligible=none)
