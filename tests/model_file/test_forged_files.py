"""A file forged by a stranger, its checksums right, is refused in one line or harmless: no crash, NaN or much memory.

A mutator changes values of the description of valid files of every kind, one at a time, to values of other types,
nothing, huge, negative and nested ones, and writes the checksum anew.
"""

import json
import tracemalloc
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from saved_models import FORMS, K, full_catalog, policies

import manyarms as ma
from manyarms import errors
from manyarms.core.feature_expansion import learn_expansion
from manyarms.core.feature_map import Categorical, Embedding, FeatureMap, Numeric
from manyarms.model_file import arrow_file
from manyarms.model_file.registry import MODELS, PARTS
from manyarms.model_file.save import describe
from manyarms.policies.most_informative import MostInformative

STRANGE = [
    None, True, 0, 1, -1, 3, 10**6, 2**31, 2**40, 2**63, 10**30, 1.5, -0.5, 1e300, "", "x", "<f8", [], [0], [2**40], {},
    {"number": "nan"}, {"number": "inf"}, {"number": "1e5"}, {"array": 0}, {"array": 2}, {"array": -1}, {"object": 0},
    {"object": 10**9}, {"bytes": 0}, [[]], [None, None], {"a": {"b": 1}},
]  # fmt: skip
DTYPES = ["<f4", ">f8", "<i8", "<u8", "<f2", "|u1", "|b1", "<U1", "|S8", "<M8[s]", "|O", "<c16", "<U0", "|V8", "f8,i8"]
MEMORY = 30 << 20
"""Memory that loading a file of some kilobytes and asking it for answers may need."""


def file_of(path, description, arrays):
    """Write a file with any description in the place of its own, under a checksum that is right."""
    text = json.dumps(description)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_file, "json", SimpleNamespace(dumps=lambda *_, **__: text, loads=json.loads))
        arrow_file.write(path, {}, arrays)


def described(model):
    """The whole description of a model file, and its arrays."""
    objects, arrays = describe(model)
    return json.loads(json.dumps({"model": objects, "arrays": arrow_file._entries(arrays)})), arrays


def places(value, path=()):
    """The place of every value in a description, those in JSON texts included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(description, path, new):
    """A copy of a description with another value in one place."""
    out = deepcopy(description)
    inside = out
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = new
    return out


def ask(model):
    """Answers of a loaded model; NaN or infinity would be wrong, and so would anything but an error of ours."""
    dim = getattr(model, "dim", None) or 3
    x = np.linspace(-1, 1, 2 * dim).reshape(2, dim)
    policy = model if isinstance(model, ma.Policy) else ma.Greedy(model)
    if policy.n_actions > 10**6:
        return
    p = policy.probabilities(x)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-5)
    policy.sample(x, np.random.default_rng(0))
    if not isinstance(model, ma.Policy):
        assert np.isfinite(model.expected_reward(x)).all()
        value = model.value(ma.Uniform(model.n_actions), x)
        assert np.isfinite([value.value, value.std]).all()
        assert isinstance(repr(model), str)
        assert isinstance(model.warnings, tuple)
    if model.catalog is not None:
        catalog = model.catalog
        assert len(catalog.ids) == len(catalog)
        assert catalog.find(["item 0"]).shape == (1,)
        assert all(column is None or len(catalog) for column in (catalog.categories, catalog.tags, catalog.paths))
    if model.features is not None:
        assert len(model.features.names) == dim


def refused_or_harmless(path, description, arrays):
    """Whether a file is refused; if it is not, its answers are sound. Neither takes much memory."""
    file_of(path, description, arrays)
    tracemalloc.start()
    try:
        ask(ma.load(path))
        return False
    except errors.ModelFileError as error:
        assert "\n" not in str(error)
        return True
    except errors.ManyarmsError:
        # A number that only overflows when it is used.
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY
        path.unlink()


def with_expansion(rng):
    """A model whose features have every form."""
    first = FeatureMap([Numeric("age", 30.0, 3.0), Categorical("city", ("Oslo", 3)), Embedding("e", 2)])
    expansion = learn_expansion("splines", rng.normal(size=(50, first.dim)), columns=[1])
    phi = FeatureMap(first.features, expansion=expansion)
    actions, x = rng.integers(0, K, 40), rng.normal(size=(40, phi.dim))
    logs = ma.LoggedData(x, actions, rng.normal(size=40), n_actions=K, features=phi, catalog=full_catalog())
    return ma.fit(logs, ma.priors.independent(K, dim=phi.dim)), logs


def mixed_catalog(rng):
    """A policy whose catalog has labels of every form."""
    ids = [1, "two", *((k, "x") for k in range(K - 2))]
    tags = [{"a": 0.5} if k % 2 else ["a", "b"] for k in range(K)]
    paths = np.array([["top", f"shelf {k}"] for k in range(K)])
    catalog = ma.Catalog(ids, categories=list(range(K)), tags=tags, paths=paths,
                         embeddings=rng.normal(size=(K, 2)), names=["Tea", None, *map(str, range(K - 2))])  # fmt: skip
    return ma.LinearSoftmax(rng.normal(size=(K, 3)), catalog=catalog)


def every_kind():
    """Valid models that together hold every kind of object that files have."""
    rng = np.random.default_rng(0)
    names = (
        "taxonomy", "tree with a dense core", "low rank", "joint", "independent", "a root of its own", "LogNormal",
        "updated and grown", "features, catalog, weights", "Bernoulli", "Poisson", "StudentT", "Hurdle",
        "posterior as prior",
    )  # fmt: skip
    posteriors = {name: FORMS[name](rng)[0] for name in names}
    hurdle = {"thompson, hurdle": ma.Thompson(posteriors["Hurdle"], 5, rng=rng)}
    more = {"expansion": with_expansion(rng)[0], "mixed catalog": mixed_catalog(rng)}
    by_city = ma.Greedy(posteriors["features, catalog, weights"])
    more["segments"] = ma.SegmentPolicy(by_city, ma.Uniform(by_city.n_actions), "city", ["Oslo", 3])
    first, contexts = posteriors["independent"], rng.normal(size=(20, posteriors["independent"].dim))
    more["mixture"] = ma.Mixture([ma.Greedy(first), ma.Uniform(first.n_actions)], [0.3, 0.7])
    more["capped"] = ma.CappedPolicy(first, contexts, max_share=0.5)
    more["blended"] = ma.BlendedGreedy([first, first], [1.0, 0.5])
    more["most informative"] = MostInformative(rng.normal(size=(3, first.dim)), [0, 2, 3], first.n_actions)
    more["column"] = ma.ColumnPolicy("picked", ma.Catalog(["a", "b", "c"]))
    picks = pa.table({"user": ["u", "v"], "action": ["a", "c"]})
    more["lookup"] = ma.LookupPolicy(picks, "user", ma.Catalog(["a", "b", "c"]))
    return posteriors | policies(posteriors["taxonomy"]) | hurdle | more


MODELS_OF_EVERY_KIND = every_kind()


def test_the_models_hold_every_kind_of_object():
    kinds = {entry["kind"] for model in MODELS_OF_EVERY_KIND.values() for entry in describe(model)[0]["objects"]}
    assert kinds == MODELS.keys() | PARTS.keys()


def mutations(description, rng, count):
    """Descriptions with one value changed."""
    everywhere = list(places(description))
    for number in rng.permutation(len(everywhere))[:count]:
        path = everywhere[number]
        new = DTYPES if path[-1] == "dtype" else STRANGE
        yield path, new[rng.integers(len(new))]


@pytest.mark.parametrize("name", MODELS_OF_EVERY_KIND)
def test_a_forged_value_is_refused_or_harmless(name, tmp_path):
    description, arrays = described(MODELS_OF_EVERY_KIND[name])
    assert not refused_or_harmless(tmp_path / "model", description, arrays)
    rng = np.random.default_rng(sum(map(ord, name)))
    refused = tried = 0
    for path, new in mutations(description, rng, 10):
        tried += 1
        try:
            refused += refused_or_harmless(tmp_path / "model", changed(description, path, new), arrays)
        except Exception as problem:
            raise AssertionError(f"{path} = {new!r}") from problem
    assert refused >= tried / 3


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS_OF_EVERY_KIND)
def test_many_forged_values_are_refused_or_harmless(name, tmp_path):
    description, arrays = described(MODELS_OF_EVERY_KIND[name])
    for path, new in mutations(description, np.random.default_rng(1), 200):
        try:
            refused_or_harmless(tmp_path / "model", changed(description, path, new), arrays)
        except Exception as problem:
            raise AssertionError(f"{path} = {new!r}") from problem


def forged(path, model, place, new):
    description, arrays = described(model)
    file_of(path, changed(description, place, new), arrays)
    return path


def test_a_table_without_bytes_is_refused(tmp_path):
    """It would be memory that nobody wrote, read as probabilities."""
    with pytest.raises(errors.ModelFileError, match="an array without bytes has a shape that is not empty"):
        ma.load(forged(tmp_path / "model", ma.TablePolicy(np.full(K, 1 / K)), ("arrays", 0, "batch"), None))


def test_a_repeated_axis_longer_than_any_catalog_is_refused(tmp_path):
    model = ma.TablePolicy(np.broadcast_to(1 / K, (K,)))
    with pytest.raises(errors.ModelFileError, match="a repeated axis is too long"):
        ma.load(forged(tmp_path / "model", model, ("arrays", 0, "shape"), [2**40]))


def test_a_small_file_that_claims_many_actions_takes_no_memory_to_load(tmp_path):
    place = ("model", "objects", 0, "parts", "n_actions")
    file = forged(tmp_path / "model", ma.Uniform(K), place, 10**8)
    assert file.stat().st_size < 3000
    tracemalloc.start()
    assert ma.load(file).n_actions == 10**8
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    with pytest.raises(errors.ModelFileError, match="'n_actions' of a 'uniform' is not what it should be"):
        ma.load(forged(tmp_path / "model", ma.Uniform(K), place, 2**40))


@pytest.mark.parametrize("dtype", ["<i8", ">f8", "<u8"])
def test_numbers_of_another_type_are_refused(dtype, tmp_path):
    with pytest.raises(errors.ModelFileError, match="'probabilities' of a 'table' is not what it should be"):
        ma.load(forged(tmp_path / "model", ma.TablePolicy(np.full(K, 1 / K)), ("arrays", 0, "dtype"), dtype))


def test_a_compressed_array_is_not_expanded(tmp_path, monkeypatch):
    """Arrow would expand a few bytes to whatever size they claim."""
    schema_of, new_file = pa.ipc.new_file, pa.ipc.IpcWriteOptions(compression="zstd")
    monkeypatch.setattr(pa.ipc, "new_file", lambda sink, schema: schema_of(sink, schema, options=new_file))
    ma.TablePolicy(np.eye(1 << 20, 1)[:, 0]).save(tmp_path / "model")
    monkeypatch.undo()
    assert (tmp_path / "model").stat().st_size < 100_000
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(errors.ModelFileError, match="the size of an array differs from its description"):
        ma.load(tmp_path / "model")
    assert pa.default_memory_pool().max_memory() - before < 1 << 20


def test_arrays_that_are_referred_to_again_and_again_are_not_copied_each_time(tmp_path):
    """A reference takes fifty bytes, and what is made of it as many as the array has."""
    logs = ma.LoggedData(np.ones((80_000, 1)), np.zeros(80_000, dtype=int), np.zeros(80_000), n_actions=K)
    fingerprint = logs.take(np.arange(0, 80_000, 2)).fingerprint
    description, arrays = described(ma.LinearSoftmax(np.ones((K, 1)), learned_from=(fingerprint,)))
    objects = description["model"]["objects"]
    objects[:0] = [objects[0]] * 5000
    for part in objects[-1]["parts"]["learned_from"]:
        part["object"] += 5000
    assert refused_or_harmless(tmp_path / "model", description, arrays)


def test_policies_inside_policies_without_end_are_refused(tmp_path):
    description, arrays = described(ma.EpsilonGreedy(ma.Uniform(K), 0.1))
    objects = description["model"]["objects"]
    for depth in range(2000):
        objects.append({"kind": "epsilon-greedy", "parts": {"policy": {"object": depth + 1}, "epsilon": 0.1}})
    assert refused_or_harmless(tmp_path / "model", description, arrays)


def refused_arrays(path, model, kind, part, change):
    """Load a file in which an array of the first object of a kind is another one, its checksum right."""
    description, arrays = described(model)
    parts = next(entry["parts"] for entry in description["model"]["objects"] if entry["kind"] == kind)
    (number,) = parts[part].values()
    arrays = [*arrays[:number], change(np.array(arrays[number])), *arrays[number + 1 :]]
    file_of(path, {**description, "arrays": arrow_file._entries(arrays)}, arrays)
    return ma.load(path)


def rewritten(**change):
    """A change of a text that is JSON, as bytes or not."""
    return lambda text: json.dumps({**json.loads(text), **change})


MAPS = {
    "an intercept that is a number": ({"intercept": 1}, "a feature map is not what it should be"),
    "more features than any map": (
        {"features": [{"kind": "embedding", "column": "e", "size": 1 << 17}]}, "a feature map is not what it should be"
    ),
    "a feature with a mean of words": (
        {"features": [{"kind": "numeric", "column": "e", "mean": "high"}]}, "a feature map is not what it should be"
    ),
    "a feature without a spread": (
        {"features": [{"kind": "numeric", "column": "e", "std": 0.0}]}, "a feature map is not what it should be"
    ),
}  # fmt: skip
EXPANSIONS = {
    "infinity": {"gamma": np.inf},
    "no columns": {"columns": []},
    "a column that is not there": {"columns": [99]},
    "knots of two columns for one": {"columns": [1, 2]},
}


def with_map(path, change):
    """Load a model whose feature map was changed in its file."""
    model = with_expansion(np.random.default_rng(0))[0]
    description, arrays = described(model)
    parts = next(one["parts"] for one in description["model"]["objects"] if one["kind"] == "feature map")
    parts["json"] = change(parts["json"])
    file_of(path, description, arrays)
    return ma.load(path)


@pytest.mark.parametrize("name", MAPS)
def test_a_forged_feature_map_is_refused(name, tmp_path):
    change, message = MAPS[name]
    with pytest.raises(errors.ModelFileError, match=message):
        with_map(tmp_path / "model", rewritten(**change))


@pytest.mark.parametrize("name", EXPANSIONS)
def test_a_forged_expansion_of_features_is_refused(name, tmp_path, own_errors):
    def change(text):
        return rewritten(expansion={**json.loads(text)["expansion"], **EXPANSIONS[name]})(text)

    with pytest.raises(errors.ModelFileError, match="an expansion of features is not what it should be"):
        with_map(tmp_path / "model", change)
    assert with_map(tmp_path / "model", lambda text: text).features.expansion is not None


def test_forged_columns_of_a_catalog_are_refused_when_they_are_read(tmp_path, own_errors):
    model = mixed_catalog(np.random.default_rng(0))
    again = refused_arrays(
        tmp_path / "a", model, "mixed labels", "json",
        lambda old: np.frombuffer(json.dumps(json.loads(old.tobytes())[:-1]).encode(), np.uint8),
    ).catalog  # fmt: skip
    for read in (lambda: again.ids, lambda: again.find([1])):
        with pytest.raises(errors.ModelFileError, match=r"damaged \(ValueError\)\. Restore the file from a copy"):
            read()
    swapped = refused_arrays(
        tmp_path / "b", model, "ragged labels", "starts", lambda old: old[[0, 2, 1, *range(3, len(old))]]
    )
    with pytest.raises(errors.ModelFileError, match="the catalog in the model file is damaged"):
        _ = swapped.catalog.tags
    assert swapped.catalog.names.tolist() == model.catalog.names.tolist()


def test_embeddings_that_are_not_an_array_are_refused(tmp_path):
    description, _ = described(model := mixed_catalog(np.random.default_rng(0)))
    kinds = [entry["kind"] for entry in description["model"]["objects"]]
    place = ("model", "objects", kinds.index("catalog"), "parts", "embeddings")
    with pytest.raises(errors.ModelFileError, match="'embeddings' of a 'catalog' is not what it should be"):
        ma.load(forged(tmp_path / "model", model, place, 3))


@pytest.mark.parametrize(
    ("name", "part", "new"),
    [
        ("a root of its own", "shared", None),
        ("a root of its own", "shared_root", None),
        ("taxonomy", "variances", None),
    ],
)
def test_a_covariance_without_its_matrix_or_root_is_refused(name, part, new, tmp_path):
    description, _ = described(model := MODELS_OF_EVERY_KIND[name])
    kinds = [entry["kind"] for entry in description["model"]["objects"]]
    place = ("model", "objects", kinds.index("action covariance"), "parts", part)
    with pytest.raises(errors.ModelFileError, match="the parts of a 'action covariance' do not fit together"):
        ma.load(forged(tmp_path / "model", model, place, new))


PLANS = {
    "a node that is listed twice": ("plan", "order", lambda old: np.append(old, old[-1])),
    "entries of another number": ("plan", "_codes", lambda old: np.append(old, old[-1] + 1)),
    "a core in another place": ("plan", "core_place", lambda old: old[::-1].copy()),
    "pairs of unequal length": ("layer", "left", lambda old: np.append(old, 0)),
    "a target that does not exist": ("layer", "target", lambda old: np.append(old[:-1], 10**6)),
    "a node of two layers": ("layer", "nodes", lambda old: np.append(old[:-1], old[0])),
    "blocks of another number": ("block Cholesky factor", "_blocks", lambda old: np.concatenate([old, old[-1:]])),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_forged_plan_of_elimination_is_refused(name, tmp_path, own_errors):
    """Its positions are followed without a look: a wrong one would be a crash, or another model."""
    kind, part, change = PLANS[name]
    with pytest.raises(errors.ModelFileError, match="do not fit together"):
        refused_arrays(tmp_path / "model", MODELS_OF_EVERY_KIND["tree with a dense core"], kind, part, change)


def test_a_posterior_whose_first_prior_is_of_other_actions_is_refused(tmp_path, own_errors):
    rng = np.random.default_rng(0)
    model = ma.Mixture([ma.Greedy(FORMS[name](rng)[0]) for name in ("independent", "posterior as prior")], [0.5, 0.5])
    description, arrays = described(model)
    objects = description["model"]["objects"]
    numbers = [i for i, entry in enumerate(objects) if entry["kind"] == "hierarchical Gaussian"]
    bases = [i for i in numbers if objects[i]["parts"]["base"] is not None]
    smaller = next(i for i in numbers if objects[i]["parts"]["base"] is None)
    objects[bases[-1]]["parts"]["base"] = {"object": smaller}
    file_of(tmp_path / "model", description, arrays)
    with pytest.raises(errors.ModelFileError, match="the parts of a 'hierarchical Gaussian' do not fit together"):
        ma.load(tmp_path / "model")


def test_a_time_that_is_not_a_time_is_refused(tmp_path):
    description, _ = described(model := MODELS_OF_EVERY_KIND["taxonomy"])
    place = ("model", "objects", len(description["model"]["objects"]) - 1, "parts", "as_of")
    with pytest.raises(errors.ModelFileError, match="'as_of' of a 'reward posterior' is not what it should be"):
        ma.load(forged(tmp_path / "model", model, place, "yesterday"))


def test_a_file_with_a_part_of_a_model_only_is_refused(tmp_path):
    file_of(tmp_path / "model", *described(ma.Gaussian(1.0)))
    with pytest.raises(errors.ModelFileError, match="holds a part of a model, not a posterior or a policy"):
        ma.load(tmp_path / "model")
