"""Expansions of features, against scikit-learn's own transforms."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

import manyarms as ma
from manyarms.core.feature_expansion import learn_expansion
from manyarms.core.feature_map import FeatureMap
from manyarms.errors import InputError

RNG = np.random.default_rng(0)
Z, BEYOND = RNG.normal(size=(200, 3)), 4 * RNG.normal(size=(50, 3))


def reference(kind):
    return {
        "splines": SplineTransformer(5, 3, knots="quantile", include_bias=False),
        "fourier": RBFSampler(gamma=1 / 3, n_components=100, random_state=0),
        "nystroem": Nystroem(gamma=1 / 3, n_components=50, random_state=0),
    }[kind].fit(Z)


@pytest.mark.parametrize("kind", ["splines", "fourier", "nystroem"])
@pytest.mark.parametrize("rows", [Z, BEYOND], ids=["inside", "beyond"])
def test_an_expansion_is_the_transform_of_scikit_learn(kind, rows):
    expansion = learn_expansion(kind, Z)
    expected = reference(kind).transform(rows)
    assert_allclose(expansion(rows), expected, rtol=1e-12, atol=1e-12)
    assert len(expansion.suffixes) == expected.shape[1]


def test_products_are_those_of_every_two_columns():
    expansion = learn_expansion("products", Z)
    expected = PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(Z)[:, 3:]
    assert_allclose(expansion(Z), expected, rtol=1e-12)
    assert expansion.suffixes == ("0 x 1", "0 x 2", "1 x 2")


@pytest.mark.parametrize("kind", ["splines", "products", "fourier", "nystroem"])
def test_a_model_keeps_its_expansion_from_table_to_stream_to_file(kind, tmp_path):
    table = pa.table(
        {"x": Z[:, 0], "y": 100 + 5 * Z[:, 1], "c": ["a", "b"] * 100, "a": np.arange(200) % 4, "r": Z[:, 2]}
    )
    pq.write_table(table, tmp_path / "logs.parquet", row_group_size=30)
    rounds = ma.read_logs(table, ["x", "y", "c"], "a", "r", expand=kind)
    stream = ma.read_logs(tmp_path / "logs.parquet", ["x", "y", "c"], "a", "r", expand=kind)
    # Means are merged batch by batch, which rounds differently.
    assert_allclose(stream.collect().contexts, rounds.contexts, rtol=1e-8, atol=1e-8)
    standard = np.column_stack([(v - v.mean()) / v.std() for v in (Z[:, 0], 100 + 5 * Z[:, 1])])
    extra = learn_expansion(kind, standard)(standard)
    assert_allclose(rounds.contexts[:, -extra.shape[1] :], extra, rtol=1e-9, atol=1e-9)
    assert FeatureMap.from_json(rounds.features.as_json()) == rounds.features
    ma.fit(stream, ma.priors.independent(4, dim=stream.dim)).save(tmp_path / "model.arrow")
    again = ma.load(tmp_path / "model.arrow")
    assert again.features == stream.features and len(again.features.names) == rounds.dim
    # The matrix of Nystroem features magnifies rounding.
    assert_allclose(again.features(table), stream.collect().contexts, rtol=1e-8, atol=1e-8)


def test_columns_that_cannot_be_expanded_are_refused():
    for kind, columns, words in (
        ("splines", np.ones((20, 2)), "expand needs numeric columns"),
        ("products", Z[:, :1], "expand needs numeric columns"),
        ("products", RNG.normal(size=(10, 50)), "1,225 features"),
    ):
        with pytest.raises(InputError, match=words):
            learn_expansion(kind, columns)
