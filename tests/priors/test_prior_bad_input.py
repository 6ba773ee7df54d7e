"""Builders of priors refuse bad input, naming the argument and the row."""

import numpy as np
import pytest
from scipy import sparse

from manyarms import errors, priors
from manyarms.core.catalog import Catalog

E = np.random.default_rng(17).normal(size=(12, 2))
RNG = np.random.default_rng(18)
PART_NAN = np.vstack([E[:5], [[1.0, np.nan]]])
SKEW, INDEFINITE = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
ZERO_VARIANCE = np.array([[0.0, 1e-5], [1e-5, 1.0]])
NEGATIVE = sparse.csr_array(np.array([[1.0, 0.0], [1.0, -2.0]]))


def embed(*args, **options):
    return priors.from_embeddings(*args, **(dict(rng=RNG, dim=2) | options))


BAD = {
    "no dim": (lambda: priors.from_categories(["a"], dim=0), errors.RangeError, "dim must be at least 1"),
    "negative scale": (
        lambda: priors.from_categories(["a"], dim=1, effect_std=-1.0), errors.RangeError, "effect_std must be at least",
    ),
    "NaN scale": (
        lambda: priors.from_tags([["a"]], dim=1, action_std=np.nan), errors.NonFiniteError, "action_std must be finite",
    ),
    "scale beyond arithmetic": (
        lambda: priors.from_categories(["a"], dim=1, shared_std=1e200), errors.RangeError, "shared_std must be",
    ),
    "no actions": (lambda: priors.from_categories([], dim=1), errors.ShapeError, "categories must have at least 1 row"),
    "a catalog that lacks the column": (
        lambda: priors.from_categories(Catalog([1, 2]), dim=1), errors.InputError,
        r"the catalog has no categories.*Catalog\(ids, categories=\.\.\.\)",
    ),
    "categories with two axes": (
        lambda: priors.from_categories(np.ones((3, 2)), dim=1), errors.ShapeError, r"got shape \(3, 2\)",
    ),
    "a category that cannot be hashed": (
        lambda: priors.from_categories(["a", ["b"]], dim=1), errors.DataTypeError, r"categories.*row 1 has \['b'\]",
    ),
    "a tag that cannot be hashed": (
        lambda: priors.from_tags([["a"], ["b", {}]], dim=1), errors.DataTypeError, r"tags.*row 1 has \{\}",
    ),
    "negative tag": (
        lambda: priors.from_tags([{"a": 1.0}, {"b": -1.0}], dim=1), errors.RangeError, "row 1 has -1.0 for 'b'",
    ),
    "NaN tag": (
        lambda: priors.from_tags([{"a": 1.0}, {"b": np.nan}], dim=1), errors.NonFiniteError, "row 1 has nan for 'b'",
    ),
    "a word as weight": (
        lambda: priors.from_tags([["a"], {"b": "1"}], dim=1), errors.DataTypeError, "row 1 has '1' for 'b'",
    ),
    "negative tag in a matrix": (lambda: priors.from_tags(NEGATIVE, dim=1), errors.RangeError, "row 1 has -2.0 for 1"),
    "a gap in a path": (
        lambda: priors.from_taxonomy([["a"], ["a", None, "c"]], dim=1), errors.InputError,
        "row 1 has 'c' at level 3 below a missing label",
    ),
    "a gap in an array of paths": (
        lambda: priors.from_taxonomy(np.array([[1.0, 2.0], [np.nan, 2.0]]), dim=1), errors.InputError, "row 1 has 2.0",
    ),
    "too few scales": (
        lambda: priors.from_taxonomy([["a", "b"]], dim=1, effect_std=[1.0]), errors.ShapeError, "of 2 levels; got 1",
    ),
    "a negative scale of a level": (
        lambda: priors.from_taxonomy([["a", "b"]], dim=1, effect_std=[1.0, -1.0]), errors.RangeError, "row 1 has -1.0",
    ),
    "an unknown node": (
        lambda: priors.from_taxonomy(["a", "b", "c"], {"a": None, "b": "a"}, dim=1), errors.InputError, "row 2 has 'c'",
    ),
    "an unknown parent": (
        lambda: priors.from_taxonomy(["a"], {"a": None, "b": "z"}, dim=1), errors.InputError, "'b' has the parent 'z'",
    ),
    "a cycle": (
        lambda: priors.from_taxonomy(["a"], {"a": "b", "b": "c", "c": "a", "d": "a"}, dim=1), errors.InputError,
        "no cycle; got ('a' -> 'b' -> 'c' -> 'a'|'b' -> 'c' -> 'a' -> 'b'|'c' -> 'a' -> 'b' -> 'c')",
    ),
    "its own parent": (
        lambda: priors.from_taxonomy(["a"], {"a": "a"}, dim=1), errors.InputError, "'a' -> 'a'. Give the root",
    ),
    "a long cycle": (
        lambda: priors.from_taxonomy([0], {i: (i + 1) % 99 for i in range(99)}, dim=1), errors.InputError, r"\.\.\. ->",
    ),
    "parents that are no mapping": (
        lambda: priors.from_taxonomy(["a"], ["a"], dim=1), errors.DataTypeError, "parents must be a mapping.*list",
    ),
    "a tree without nodes": (lambda: priors.from_taxonomy(["a"], {}, dim=1), errors.InputError, "row 0 has 'a'"),
    "NaN in part of an embedding": (lambda: embed(PART_NAN), errors.NonFiniteError, "row 5 holds nan"),
    "NaN in part of an embedding, linear": (
        lambda: priors.linear_in_embeddings(PART_NAN, dim=1), errors.NonFiniteError, "row 5 holds nan",
    ),
    "no embeddings at all": (lambda: embed(np.full((3, 2), np.nan)), errors.NonFiniteError, "all are missing"),
    "no embeddings at all, linear": (
        lambda: priors.linear_in_embeddings(np.full((3, 2), np.nan), dim=1), errors.NonFiniteError, "all are missing",
    ),
    "fewer items than components": (
        lambda: embed(E, 13), errors.RangeError, "n_components must be at most 12, the number of distinct",
    ),
    "fewer distinct items than components": (
        lambda: embed(np.repeat(E[:3], 5, axis=0), 4, method="kmeans"), errors.RangeError, "at most 3.*15 rows.*got 4",
    ),
    "fewer rows drawn than components": (
        lambda: embed(E, 6, max_rows=5), errors.RangeError, "at most 5.*larger max_rows",
    ),
    "embeddings that say nothing of theta": (
        lambda: embed(np.ones((5, 2)), dim=None), errors.RangeError, "all 5 rows used are the same.*dim=",
    ),
    "scales without dim": (lambda: embed(E, dim=None, effect_std=1.0), errors.InputError, "come from the embeddings"),
    "own variances with dim": (lambda: embed(E, action_variance="own"), errors.InputError, "Leave dim out"),
    "an unknown method": (
        lambda: embed(E, method="dbscan"), errors.InputError, "method must be one of 'gmm', 'kmeans'; got 'dbscan'",
    ),
    "a seed as rng": (lambda: embed(E, rng=0), errors.DataTypeError, "default_rng"),
    "no floor": (lambda: embed(E, variance_floor=0.0), errors.RangeError, "variance_floor must be above 0"),
    "embeddings of zeros": (
        lambda: priors.linear_in_embeddings(np.zeros((3, 2)), dim=1), errors.RangeError, "not all be zero",
    ),
    "constant embeddings, centred": (
        lambda: priors.linear_in_embeddings(np.ones((3, 2)), dim=1, shared_std=1.0), errors.RangeError, "must differ",
    ),
    "a basis for nobody": (lambda: priors.low_rank(np.ones((3, 2))), errors.ShapeError, "Pass n_actions="),
    "a basis of other actions": (lambda: priors.low_rank(np.ones((4, 3, 2)), 5), errors.ShapeError, "4 actions"),
    "a basis without columns": (lambda: priors.low_rank(np.ones((3, 0)), 2), errors.ShapeError, "independent"),
    "a latent mean of another length": (
        lambda: priors.low_rank(np.ones((3, 2)), 2, latent_mean=[1.0]), errors.ShapeError, "must have 2 rows; got 1",
    ),
    "a joint that is no square": (lambda: priors.from_joint([0.0], np.ones((2, 3)), 1), errors.ShapeError, "cov must"),
    "a joint of other actions": (lambda: priors.from_joint(np.zeros(4), np.eye(4), 3), errors.ShapeError, "K = 3"),
    "a mean of another length": (
        lambda: priors.from_joint(np.zeros(3), np.eye(4), 2), errors.ShapeError, r"mean must be \(4,\) or \(2, 2\)",
    ),
    "a skew joint": (lambda: priors.from_joint([0, 0], SKEW, 2), errors.CovarianceError, "cov must be symmetric"),
    "an indefinite joint": (lambda: priors.from_joint([0, 0], INDEFINITE, 2), errors.CovarianceError, "positive semi"),
    "a negative variance": (
        lambda: priors.from_joint([0, 0], np.diag([1.0, -1e-3]), 2), errors.CovarianceError, "positive semi",
    ),
    "covariance without variance": (
        lambda: priors.from_joint([0, 0], ZERO_VARIANCE, 2), errors.CovarianceError, "positive semi",
    ),
    "a negative rank": (lambda: priors.from_joint([0.0], [[1.0]], 1, rank=-1), errors.RangeError, "rank must be"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_at_the_door(name, own_errors):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, errors.InputError)
