"""A model file gives back what was saved to the last bit, or says in one line why it cannot."""

import datetime
import errno
import io
import json
import os
import pickle
import resource
import subprocess
import sys
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from problems import make_problem
from scipy import sparse

import manyarms as ma
from manyarms import errors
from manyarms._base import files as _files
from manyarms.core.action_covariance import ActionCovariance
from manyarms.core.feature_map import Categorical, FeatureMap, Numeric
from manyarms.core.latent_covariance import EliminatedFactor
from manyarms.model_file import arrow_file
from manyarms.model_file.load import KINDS
from manyarms.model_file.save import describe

K, D, N = 24, 3, 90


# Bit for bit.


def bits(value):
    """Anything public as something that is equal only when every bit is."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist() if value.dtype.hasobject else value.tobytes()
    if sparse.issparse(value):
        return [bits(part) for part in (value.data, value.indices, value.indptr)], value.shape
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, ma.Estimate):
        value = vars(value) | {"interval": value.interval(), "shape": None, "posterior_shape": None}
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [bits(one) for one in value]
    return value


def of_weights(weights):
    everyone = np.arange(weights.n_actions)
    return dict(
        repr=repr(weights), effects=weights.effects, seen=weights.observed.actions, evidence=weights.log_evidence,
        latent_mean=weights.latent_mean, latent_cov=weights.latent_cov, mean=weights.action_mean(),
        cov=weights.action_cov(everyone), cross=weights.cross_cov(everyone, everyone[::-1]),
        draws=weights.sample(np.random.default_rng(3), 2), marginal=weights.marginal().action_cov(everyone),
        base=weights.base.action_mean(),
    )  # fmt: skip


def of_judge(posterior, x):
    greedy, uniform = ma.Greedy(posterior), ma.Uniform(posterior.n_actions)
    actions = np.arange(len(x)) % posterior.n_actions
    return dict(
        repr=repr(posterior), evidence=posterior.log_evidence, learned_from=posterior.learned_from,
        warnings=posterior.all_warnings, converged=posterior.converged, rewards=posterior.expected_reward(x),
        stds=posterior.reward_std(x, actions), value=posterior.value(greedy, x), uniform=posterior.value(uniform, x),
        difference=posterior.difference(greedy, uniform, x), top=greedy.top_k(x, 3),
        drawn=posterior.value_draws(greedy, x, n_draws=4, rng=np.random.default_rng(5)),
    )  # fmt: skip


def of_reward(posterior, x):
    statistics = posterior.statistics
    return of_judge(posterior, x) | dict(
        trace=posterior.trace, likelihood=posterior.likelihood, statistics=repr(statistics),
        rows=[statistics.rows.actions, statistics.rows.features, statistics.rows.rewards],
        sums=[statistics.sums.actions, statistics.sums.gram, statistics.sums.moment],
        weights=of_weights(posterior.weights), prior=of_weights(posterior.prior), check=repr(posterior.check),
        features=posterior.features,
    )  # fmt: skip


def grown(posterior):
    """With two more actions, of the kinds that these have."""
    prior = posterior.prior
    mixing = prior.mixing
    extra = mixing.matrices[:2] if hasattr(mixing, "matrices") else ma.MixedEffects(mixing.weights[[0, 1]], prior.dim)
    cov = None if prior.action_covariance.each is None else prior.action_covariance.each[:2]
    offset = prior.offset[:2] if prior.offset is not None and prior.offset.ndim == 2 else None
    return posterior.with_actions(extra, cov, offset)


def results(posterior, logs):
    """All that users can ask of it, now and after more logs and more actions."""
    x = logs.contexts[:7]
    if isinstance(posterior, ma.HurdlePosterior):
        parts = {name: of_reward(getattr(posterior, name), x) for name in ("occurs", "amount")}
        later = [summary(posterior.update(logs), x), summary(posterior.refit(logs), x)]
        return bits(dict(now=of_judge(posterior, x), later=later, **parts))
    later = [posterior.update(logs.take(np.arange(30))), posterior.refit(logs), grown(posterior)]
    return bits(dict(now=of_reward(posterior, x), later=[summary(one, x) for one in later]))


def summary(posterior, x):
    """What cannot be the same unless all that it is made of is."""
    return posterior.log_evidence, posterior.value(ma.Greedy(posterior), x), posterior.warnings


def again(posterior, tmp_path):
    posterior.save(tmp_path / "model.arrow")
    return ma.load(tmp_path / "model.arrow")


def rounds(rng, rewards=None, **more):
    actions = np.minimum(rng.integers(0, K, N), rng.integers(0, K, N))
    return ma.LoggedData(
        rng.normal(size=(N, D)), actions, rng.normal(size=N) if rewards is None else rewards, n_actions=K, **more
    )


def cube(rng, k, spread=0.2):
    roots = spread * rng.normal(size=(k, D, D))
    return roots @ roots.swapaxes(1, 2)


CATEGORIES = np.array([["tea", "mug", "pot", None][k % 4] for k in range(K)], dtype=object)
PATHS = [("home", f"room {k % 4}", f"shelf {k}") for k in range(K)]


def full_catalog():
    return ma.Catalog(
        [f"item {k}" for k in range(K)],
        categories=CATEGORIES,
        tags=[["new"] if k % 2 else {"old": 0.5, "red": 2} for k in range(K)],
        paths=PATHS,
        embeddings=np.vander(np.linspace(-1, 1, K), 4)[:, :3],
    )


def with_features(rng):
    phi = FeatureMap([Numeric("age", 30.0, 1 / 3), Categorical("city", ("Oslo", "Riga", 3))], intercept=False)
    logs = ma.LoggedData(
        rng.normal(size=(N, phi.dim)), rng.integers(0, K, N), rng.normal(size=N), n_actions=K, features=phi,
        catalog=full_catalog(), weights=rng.uniform(size=N),
    )  # fmt: skip
    return ma.fit(logs, ma.priors.from_categories(CATEGORIES, dim=phi.dim)), logs


def posterior_as_prior(rng):
    first, second = rounds(rng), rounds(rng)
    early = ma.fit(first, ma.priors.from_categories(CATEGORIES, dim=D))
    return ma.fit(second, early.weights, ma.Gaussian(0.7)), second


def learned(rng):
    logs = rounds(rng)
    return ma.learn_prior(logs, ma.priors.from_categories(CATEGORIES, dim=D)).posterior, logs


def updated(rng):
    logs, more = rounds(rng), rounds(rng)
    return grown(ma.fit(logs, ma.priors.from_tags([["a", "b"][k % 2 :] for k in range(K)], dim=D)).update(more)), more


def under(prior, likelihood=None, rewards=None):
    def make(rng):
        logs = rounds(rng, None if rewards is None else rewards(rng))
        return ma.fit(logs, prior(rng), likelihood), logs

    return make


def categories(rng):
    return ma.priors.from_categories(CATEGORIES, dim=D, effect_std=0.5, action_std=0.3)


def clicks(rng):
    return rng.integers(0, 2, N).astype(float)


def amounts(rng):
    return np.exp(rng.normal(size=N))


FORMS = {
    "one category each": under(categories),
    "tags": under(lambda rng: ma.priors.from_tags([["a", "b", "c"][k % 3 :] for k in range(K)], dim=D)),
    "taxonomy": under(lambda rng: ma.priors.from_taxonomy(PATHS, dim=D, shared_std=1.0)),
    "tree with a dense core": under(
        lambda rng: (
            ma.priors.from_taxonomy([path[2:] for path in PATHS], dim=D)
            + ma.priors.from_tags([list(range(12)) if k == 0 else [k % 12] for k in range(K)], dim=D)
        )
    ),
    "clusters": under(lambda rng: ma.priors.from_embeddings(rng.normal(size=(K, D)), 3, rng=rng)),
    "linear in embeddings": under(lambda rng: ma.priors.linear_in_embeddings(rng.normal(size=(K, 4)), dim=D)),
    "low rank": under(lambda rng: ma.priors.low_rank(rng.normal(size=(K, D, 2)))),
    "sum": under(lambda rng: categories(rng) + ma.priors.low_rank(rng.normal(size=(K, D, 2)))),
    "joint": under(lambda rng: ma.priors.from_joint(np.zeros(K * D), np.eye(K * D) + 0.5, K)),
    "independent": under(lambda rng: ma.priors.independent(K, mean=rng.normal(size=(K, D)), cov=cube(rng, K))),
    "a root of its own": under(
        lambda rng: ma.HierarchicalGaussian(
            np.zeros(4), np.eye(4), rng.normal(size=(K, D, 4)), ActionCovariance.from_root(rng.normal(size=(D, D)))
        )
    ),
    "no rounds": lambda rng: (ma.fit(rounds(rng).take(np.arange(0)), categories(rng)), rounds(rng)),
    "statistics": lambda rng: (ma.fit(ma.fit(rounds(rng), categories(rng)).statistics, categories(rng)), rounds(rng)),
    "posterior as prior": posterior_as_prior,
    "learned": learned,
    "updated and grown": updated,
    "features, catalog, weights": with_features,
    "LogNormal": under(categories, ma.LogNormal(0.5), amounts),
    "Bernoulli": under(categories, ma.Bernoulli(), clicks),
    "Bernoulli, Laplace": under(categories, ma.Bernoulli("laplace", expected="probit"), clicks),
    "Bernoulli, paper": under(categories, ma.Bernoulli("paper"), clicks),
    "Poisson": under(categories, ma.Poisson(), lambda rng: rng.poisson(2.0, N).astype(float)),
    "StudentT": under(categories, ma.StudentT(0.5, 2.5)),
    "Hurdle": under(categories, ma.Hurdle(), lambda rng: clicks(rng) * amounts(rng)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_result_of_a_loaded_posterior_is_the_same_to_the_last_bit(form, tmp_path):
    posterior, logs = FORMS[form](np.random.default_rng(0))
    assert results(again(posterior, tmp_path), logs) == results(posterior, logs)


PROBLEMS = [
    (mixing, cov, latent, offset)
    for number, (mixing, cov) in enumerate(
        (mixing, cov)
        for mixing in ("dense", "none", "one_hot", "sparse_effects", "dense_effects")
        for cov in ("scalar", "diagonal", "shared", "each", "singular")
    )
    for latent in [("scalar", "diagonal", "full", "blocks")[number % 4]]
    for offset in [("none", "shared", "each")[number % 3]]
]


@pytest.mark.parametrize("forms", PROBLEMS, ids=" ".join)
def test_every_form_of_a_prior_comes_back(forms, tmp_path):
    mixing, cov, latent, offset = forms
    problem = make_problem(1, 6, 3, 30, mixing, cov, latent, offset, 6, 1e-2, 1.0)
    posterior, x = problem.fit(), problem.logs.contexts[:5]
    got = again(posterior, tmp_path)
    for one, other in ((got, posterior), (grown(got), grown(posterior))):
        assert bits([of_weights(one.weights), summary(one, x)]) == bits([of_weights(other.weights), summary(other, x)])


@pytest.mark.parametrize(("form", "core"), [("taxonomy", 0), ("tree with a dense core", 12)])
def test_a_tree_comes_back_eliminated_and_not_solved_again(form, core, tmp_path, monkeypatch):
    posterior, _ = FORMS[form](np.random.default_rng(0))
    assert isinstance(posterior.weights.latent_factor, EliminatedFactor)
    assert len(posterior.weights.latent_factor.cholesky.plan.core) == core
    posterior.save(tmp_path / "model")
    monkeypatch.setattr("manyarms.linalg.block_cholesky._layers", None)
    assert isinstance(ma.load(tmp_path / "model").weights.latent_factor, EliminatedFactor)


def test_what_prior_and_posterior_share_is_written_once_and_shared_again(tmp_path):
    rng = np.random.default_rng(0)
    prior = ma.HierarchicalGaussian(np.zeros(8), 1.0, rng.normal(size=(500, D, 8)), cube(rng, 500))
    logs = rounds(rng)
    posterior = ma.fit(logs, prior)
    got = again(posterior, tmp_path)
    assert got.weights.base is got.prior
    assert got.weights.mixing is got.prior.mixing
    assert got.weights.action_covariance is got.prior.action_covariance
    numbers = prior.mixing.matrices.nbytes + prior.action_covariance.each.nbytes
    assert numbers < (tmp_path / "model.arrow").stat().st_size < 1.5 * numbers


def test_saving_what_was_loaded_writes_the_same_file(tmp_path):
    posterior, _ = with_features(np.random.default_rng(0))
    policy = ma.Thompson(posterior, 20, rng=np.random.default_rng(1))
    policy.save(tmp_path / "first")
    ma.load(tmp_path / "first").save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def policies(posterior):
    rng = np.random.default_rng(1)
    return {
        "greedy": ma.Greedy(posterior),
        "pessimistic": ma.Pessimistic(posterior, delta=0.1),
        "softmax": ma.Softmax(posterior, temperature=0.3),
        "thompson": ma.Thompson(posterior, 40, rng=rng),
        "epsilon greedy": ma.EpsilonGreedy(ma.EpsilonGreedy(ma.Pessimistic(posterior), 0.1), 0.2),
        "uniform": ma.Uniform(K),
        "table": ma.TablePolicy(rng.dirichlet(np.ones(K))),
        "linear softmax": ma.LinearSoftmax(rng.normal(size=(K, D)), learned_from=posterior.learned_from),
    }


@pytest.mark.parametrize("name", policies(FORMS["one category each"](np.random.default_rng(0))[0]))
def test_a_loaded_policy_does_what_the_saved_one_does(name, tmp_path):
    posterior, logs = FORMS["one category each"](np.random.default_rng(0))
    policy, x = policies(posterior)[name], logs.contexts[:9]
    got = again(policy, tmp_path)
    asked = [
        (
            p.actions(x), p.probabilities(x), p.top_k(x, 4), p.sample(x, np.random.default_rng(2)), p.learned_from,
            p.probabilities(x, eligible=[[1, 2, 5]] * 9), posterior.value(p, x), repr(p), p.dim, p.n_rows,
        )
        for p in (policy, got)
    ]  # fmt: skip
    assert type(got) is type(policy)
    assert bits(asked[0]) == bits(asked[1])
    inside = getattr(got, "posterior", None)
    if inside is not None:
        assert bits(of_reward(inside, x)) == bits(of_reward(posterior, x))


# Catalogs.


IDS = {
    "words": [f"é{k}" for k in range(K)],
    "integers": [7 * k - 30 for k in range(K)],
    "typed integers": np.arange(K, dtype=np.int32)[::-1],
    "typed words": np.array([f"w{k}" for k in range(K)]),
    "days": np.arange(K).astype("datetime64[D]"),
    "large integers": [2**70 + k for k in range(K)],
    "mixed": ["a", 1, 2.5, b"a\xff", ("a", 1, ("b",)), np.datetime64("2020-01-01"), "\ud800", "", True and "x"]
    + [datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), -0.5, 2**70]
    + [np.str_(f"n{k}") for k in range(K - 13)],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_any_plain_type_are_numbered_as_before(kind, tmp_path):
    catalog = ma.Catalog(IDS[kind], categories=CATEGORIES)
    logs = rounds(np.random.default_rng(0), catalog=catalog)
    got = again(ma.fit(logs, categories(None)), tmp_path).catalog
    assert repr(got) == repr(catalog)
    assert len(got) == len(catalog)
    assert got.numbers(IDS[kind]).tolist() == list(range(K))
    assert got.find(["nobody", list(IDS[kind])[3]]).tolist()[0] == -1
    assert got.ids.dtype == catalog.ids.dtype
    assert got.ids.tolist() == catalog.ids.tolist()
    assert [type(one) for one in got.ids.tolist()] == [
        str if isinstance(one, np.str_) else type(one) for one in catalog.ids.tolist()
    ]
    assert got.categories.tolist() == CATEGORIES.tolist()


def test_all_that_is_known_of_actions_comes_back(tmp_path):
    posterior, _ = with_features(np.random.default_rng(0))
    got, catalog = again(posterior, tmp_path).catalog, full_catalog()
    assert (got.tags, got.paths) == (catalog.tags, catalog.paths)
    assert bits(got.embeddings) == bits(catalog.embeddings)
    assert repr(ma.priors.from_taxonomy(got, dim=2)) == repr(ma.priors.from_taxonomy(catalog, dim=2))
    for array in (got.ids, got.categories, got.embeddings):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


@pytest.mark.parametrize(
    "known",
    [
        dict(tags=sparse.csr_array(np.eye(K)[:, :5])),
        dict(tags=sparse.csr_array((np.ones(K), np.arange(K)[::-1], [0, *[K] * K]), shape=(K, K))),
        dict(paths=np.array(PATHS)),
        dict(paths=np.array([(*path[:2], None) for path in PATHS], dtype=object)),
        dict(categories=np.where(np.arange(K) % 2, np.nan, 1.0)),
    ],
    ids=["sparse tags", "unsorted tags", "typed paths", "paths with missing ends", "numbers"],
)
def test_metadata_keeps_its_form(known, tmp_path):
    catalog = ma.Catalog(range(K), **known)
    got = again(ma.fit(rounds(np.random.default_rng(0), catalog=catalog), categories(None)), tmp_path).catalog
    for name in known:
        assert bits(getattr(got, name)) == bits(getattr(catalog, name))


def test_labels_that_no_file_holds_are_named():
    catalog = ma.Catalog([*range(K - 1), frozenset("ab")])
    posterior = ma.fit(rounds(np.random.default_rng(0), catalog=catalog), categories(None))
    with pytest.raises(errors.DataTypeError, match=r"ids cannot be saved: row 23 has a frozenset\..*str\(\)"):
        describe(posterior)


def test_a_large_catalog_is_opened_without_looking_at_it(tmp_path):
    """Neither words nor their numbering are made, and arrays stay where they are: in the file."""
    n_actions = 100_000
    catalog = ma.Catalog([f"item {k}" for k in range(n_actions)])
    prior = ma.priors.from_categories(np.arange(n_actions) % 50, dim=D)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, n_actions, 20_000)
    logs = ma.LoggedData(rng.normal(size=(20_000, D)), actions, np.ones(20_000), n_actions=n_actions, catalog=catalog)
    ma.fit(logs, prior).save(tmp_path / "model")
    ma.load(tmp_path / "model")
    tracemalloc.start()
    got = ma.load(tmp_path / "model")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "model").stat().st_size > 5_000_000
    assert held < 200_000
    assert peak < 1_000_000
    assert "ids" not in vars(got.catalog)
    assert got.catalog.numbers(["item 99999"]).tolist() == [n_actions - 1]


# What a file is.


@pytest.fixture(scope="module")
def model():
    posterior, _ = with_features(np.random.default_rng(0))
    return ma.EpsilonGreedy(ma.Greedy(replace(posterior, catalog=None)), 0.1)


@pytest.fixture(scope="module")
def content(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("content") / "model"
    model.save(path)
    return path.read_bytes()


def brief(policy):
    """Some of every array and number of `model`, cheap enough for thousands of files."""
    posterior = policy.policy.posterior
    weights = posterior.weights
    return bits(
        [
            policy.epsilon, weights.action_mean(), weights.latent_mean, weights.action_cov([0, 5]), weights.effects,
            weights.log_evidence, weights.misfit, weights.log_det, posterior.statistics.sums.gram,
            posterior.statistics.sums.reward_sq, posterior.statistics.rows.features, posterior.warnings,
            posterior.learned_from, posterior.likelihood, posterior.trace, posterior.evidence_offset,
            posterior.features, posterior.prior.action_mean(),
        ]
    )  # fmt: skip


def refused(path, content):
    """Whether a file with such content is refused, by a line that names it; if not, what it holds."""
    path.write_bytes(content)
    try:
        return brief(ma.load(path))
    except errors.ModelFileError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
        return None


def test_an_arrow_reader_finds_the_description_and_the_arrays_aligned(tmp_path, content):
    (tmp_path / "model").write_bytes(content)
    with pa.memory_map(str(tmp_path / "model")) as file:
        reader = pa.ipc.open_file(file)
        said = reader.schema.metadata
        assert (said[b"format"], said[b"format_version"]) == (b"manyarms model", b"1")
        assert said[b"written_by"].decode() == f"manyarms {ma.__version__}"
        description = json.loads(said[b"description"])
        assert description["model"]["objects"][-1]["kind"] == "epsilon-greedy"
        for entry in description["arrays"]:
            if entry["batch"] is not None:
                assert reader.get_batch(entry["batch"]).column(0).buffers()[1].address % 64 == 0


def test_arrays_lie_in_the_file_as_they_did_in_memory(tmp_path):
    numbers = np.arange(24.0).reshape(2, 3, 4)
    arrays = [
        numbers, np.asfortranarray(numbers), numbers.transpose(1, 0, 2), numbers[:, ::2, 1:3], numbers[:, ::-1],
        np.broadcast_to(np.float64(3.0), (5, 1, 1)), np.broadcast_to(numbers[:, None], (2, 7, 3, 4)),
        np.array(2.5), np.empty((3, 0, 2)), np.array([True, False]), np.array(["a", "bcd"]), np.array(["", ""])[:0],
        np.array(["2020-01-01", "NaT"], "datetime64[s]"), np.arange(3, dtype=np.uint64), np.array([np.nan, -0.0]),
        np.zeros(arrow_file.PIECE // 4), np.array([b"ab"]),
    ]  # fmt: skip
    arrow_file.write(tmp_path / "file", {"any": 1}, arrays)
    said, found = arrow_file.read(tmp_path / "file")
    assert said == {"any": 1}
    for array, got in zip(arrays, found, strict=True):
        assert bits(got) == bits(array)
        assert not got.flags.writeable
        # The same axis is the slowest, and one value that stood for all still does.
        steps = [[abs(step) for step, n in zip(a.strides, a.shape, strict=True) if n > 1] for a in (got, array)]
        if array.size:
            assert np.argsort(steps[0]).tolist() == np.argsort(steps[1]).tolist()
            assert [step == 0 for step in steps[0]] == [step == 0 for step in steps[1]]


def test_arrays_are_views_of_the_file_and_cannot_be_written_to(tmp_path, model):
    weights = again(model, tmp_path).policy.posterior.weights
    arrays = weights.latent_mean, weights.gains[0], weights.mixing.weights.data, weights.observed.groups[0].root
    for array in arrays:
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0


def test_a_changed_byte_is_noticed_or_does_not_matter(tmp_path, content, model):
    rng, expected = np.random.default_rng(0), brief(model)
    edges = [*range(0, 300, 3), *range(len(content) - 400, len(content), 2)]
    unnoticed = 0
    for i, place in enumerate([*edges, *rng.integers(0, len(content), 1000).tolist()]):
        damaged = bytearray(content)
        damaged[place] ^= (1, 128, 255, 32)[i % 4]
        found = refused(tmp_path / str(i), bytes(damaged))
        assert found in (None, expected)
        unnoticed += found is not None
    assert unnoticed < 400  # the padding of arrays, and what Arrow says of batches twice


def test_no_byte_of_the_numbers_or_the_description_can_change_unnoticed(tmp_path, content, model):
    (tmp_path / "model").write_bytes(content)
    with pa.memory_map(str(tmp_path / "model")) as file:
        start = file.read_buffer(1).address
        reader = pa.ipc.open_file(file)
        text = reader.schema.metadata[b"description"]
        entries = [entry for entry in json.loads(text)["arrays"] if entry["batch"] is not None]
        buffers = [reader.get_batch(entry["batch"]).column(0).buffers()[1] for entry in entries]
        places = [(buffer.address - start, buffer.size) for buffer in buffers]
    first, second = content.index(text), content.rindex(text)
    places += [(first, len(text)), (second, len(text))]
    rng = np.random.default_rng(1)
    for i in range(400):
        start, size = places[i % len(places)]
        damaged = bytearray(content)
        damaged[start + int(rng.integers(size))] ^= 1 << int(rng.integers(8))
        assert refused(tmp_path / str(i), bytes(damaged)) is None
    # In both copies alike, a digit is another digit.
    for i, place in enumerate(place for place in range(len(text)) if text[place : place + 1].isdigit()):
        damaged = bytearray(content)
        for copy in (first, second):
            damaged[copy + place] ^= 1
        assert refused(tmp_path / f"both {i}", bytes(damaged)) is None


def test_a_file_cut_short_anywhere_is_refused(tmp_path, content):
    lengths = {*range(0, len(content), len(content) // 300), *range(20), *range(len(content) - 50, len(content))}
    for length in lengths:
        assert refused(tmp_path / str(length), content[:length]) is None
    # Filled up with zeros, as a file system may leave it after a power cut.
    for length in range(100, len(content), len(content) // 40):
        assert refused(tmp_path / f"zeros {length}", content[:length].ljust(len(content), b"\0")) is None


def test_what_is_no_model_file_is_refused_in_one_line(tmp_path, content):
    table = pa.table({"a": [1, 2]})
    with pa.ipc.new_file(tmp_path / "table", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "pickle").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "longer").write_bytes(content + b"ARROW1")
    os.mkfifo(tmp_path / "pipe")
    said = {
        "nowhere": "does not exist",
        "": "is a folder",
        "empty": "is empty",
        "text": "is no model file",
        "pickle": "is no model file",
        "table": "is an Arrow file, but no model file",
        "longer": "is damaged",
        "pipe": "is no regular file",
    }
    for name, words in said.items():
        with pytest.raises(errors.ModelFileError, match=words) as caught:
            ma.load(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert issubclass(errors.ModelFileError, errors.DataFileError)
    with pytest.raises(errors.DataTypeError, match="path must be a string or a Path; got int"):
        ma.load(3)
    for nothing in ("", "/", "a\0b"):
        with pytest.raises(errors.ModelFileError, match="path must name a file"):
            ma.load(nothing)


def test_a_file_of_a_newer_version_says_so(tmp_path, model, monkeypatch):
    monkeypatch.setattr(_container, "FORMAT_VERSION", 3)
    model.save(tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(
        errors.ModelFileError, match=r"written by a newer manyarms \(format 3; this one reads up to 1\): upgrade\."
    ):
        ma.load(tmp_path / "model")


def test_a_kind_that_is_not_known_is_not_made(tmp_path):
    objects = [{"kind": "os.system", "parts": {"command": "true"}}]
    arrow_file.write(tmp_path / "model", {"objects": objects}, [])
    with pytest.raises(errors.ModelFileError, match=r"holds a 'os\.system', which this manyarms does not know"):
        ma.load(tmp_path / "model")
    assert all(kind.__module__.startswith("manyarms.") for kind in KINDS.values())


@pytest.mark.parametrize("kind", ["epsilon-greedy", "reward posterior", "action covariance", "mixed effects"])
def test_a_part_that_only_a_newer_manyarms_writes_is_told_and_not_called_damage(kind, tmp_path, model):
    described, arrays = describe(model)
    entry = next(entry for entry in described["objects"] if entry["kind"] == kind)
    # What a newer one refers to may be of a form that is not known here.
    entry["parts"]["added"] = {"table": 3}
    arrow_file.write(tmp_path / "model", described, arrays)
    with pytest.raises(
        errors.ModelFileError,
        match=rf"newer manyarms: it holds a '{kind}' with 'added', which this one does not know. Update manyarms: pip",
    ) as caught:
        ma.load(tmp_path / "model")
    assert str(tmp_path / "model") in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data["features"][0].update(clip=3.0), "a 'numeric' feature with 'clip'"),
        (lambda data: data["features"][0].update(kind="spline"), "a 'spline' feature"),
        (lambda data: data.update(interactions=[]), "a feature map with 'interactions'"),
    ],
)
def test_so_are_features_of_a_newer_manyarms(change, words, tmp_path, model):
    described, arrays = describe(model)
    entry = next(entry for entry in described["objects"] if entry["kind"] == "feature map")
    data = json.loads(entry["parts"]["json"])
    change(data)
    entry["parts"]["json"] = json.dumps(data)
    arrow_file.write(tmp_path / "model", described, arrays)
    with pytest.raises(errors.ModelFileError, match=f"newer manyarms: it holds {words}, which this one does not know"):
        ma.load(tmp_path / "model")


def test_a_file_from_before_a_part_was_added_opens_with_its_default(tmp_path, model):
    described, arrays = describe(model)
    later = {"reward posterior": ("as_of", "converged"), "fingerprint": ("until",), "statistics": ("counted",)}
    for entry in described["objects"]:
        for name in later.get(entry["kind"], ()):
            del entry["parts"][name]
    arrow_file.write(tmp_path / "model", described, arrays)
    got = ma.load(tmp_path / "model")
    assert brief(got) == brief(model)
    posterior = got.policy.posterior
    assert (posterior.as_of, posterior.converged, posterior.learned_from[0].until) == (None, True, None)
    assert posterior.statistics.counted


def test_a_kind_knows_the_parts_that_it_writes_and_no_others():
    for form in ("features, catalog, weights", "taxonomy", "Hurdle"):
        posterior, _ = FORMS[form](np.random.default_rng(0))
        described, _ = describe(posterior)
        for entry in described["objects"]:
            assert entry["parts"].keys() == set(KINDS[entry["kind"]].part_names())


def test_a_description_without_sense_is_refused_though_its_checksum_is_right(tmp_path, model):
    """Whoever writes a checksum can write anything above it."""
    rng = np.random.default_rng(0)
    strange = [None, -1, 10**6, "x", [], {}, 1.5, {"array": 0}, {"object": 0}, {"array": -1}, {"object": 10**9}]
    for i in range(150):
        described, arrays = describe(model)
        parts = [entry for entry in described["objects"] for _ in entry["parts"]]
        entry = parts[rng.integers(len(parts))]
        name = list(entry["parts"])[rng.integers(len(entry["parts"]))]
        if i % 5 == 0:
            del entry["parts"][name]
        else:
            entry["parts"][name] = strange[i % len(strange)]
        arrow_file.write(tmp_path / str(i), described, arrays)
        try:
            ma.load(tmp_path / str(i))
        except errors.ModelFileError as error:
            assert str(tmp_path / str(i)) in str(error)


def test_objects_are_never_made_from_bytes(tmp_path, monkeypatch):
    address = {"dtype": "|O", "shape": [1], "batch": 2, "repeated": [], "order": [0], "crc32": [zlib.crc32(b"8" * 8)]}
    monkeypatch.setattr(_container, "_entries", lambda arrays: [address])
    arrow_file.write(tmp_path / "model", {"objects": []}, [np.frombuffer(b"8" * 8, np.uint8)])
    with pytest.raises(errors.ModelFileError, match="is damaged"):
        ma.load(tmp_path / "model")


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def forbidden(*args, **options):
        raise AssertionError("pickled")

    posterior, _ = with_features(np.random.default_rng(0))
    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    got = again(ma.Thompson(posterior, 10, rng=np.random.default_rng(0)), tmp_path)
    assert got.posterior.catalog.ids[0] == "item 0"


# What cannot be saved.


@dataclass(frozen=True)
class Mine(ma.Gaussian):
    """A likelihood that no file can bring back."""


def test_what_cannot_be_saved_says_so_and_leaves_the_file_alone(tmp_path):
    logs = rounds(np.random.default_rng(0))
    posterior = ma.fit(logs, categories(None))
    hierarchy = ma.NonlinearHierarchy(np.zeros(D), 1.0, lambda psi, items: np.tile(psi, (len(items), 1)), 0.1, K, D)
    found = ma.learn_prior(logs, categories(None))
    refusals = {
        "NonlinearPosterior cannot be saved. Its functions are code": ma.fit_nonlinear(logs, hierarchy),
        "Logged cannot be saved. It repeats the rows of a log": ma.Logged(logs),
        "Logged cannot be saved": ma.EpsilonGreedy(ma.Logged(logs), 0.1),
        "a TablePolicy of 2 rows cannot be saved": ma.TablePolicy(np.full((2, K), 1 / K)),
        "Mine cannot be saved. Model files hold manyarms' own kinds": ma.Greedy(ma.fit(logs, categories(None), Mine())),
        "LearnedPrior cannot be saved. Save its .posterior": found,
        "AveragedPosterior cannot be saved. Save its .posterior": found.averaged(4, rng=np.random.default_rng(0)),
    }
    posterior.save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    for words, model in refusals.items():
        with pytest.raises(errors.DataTypeError, match=words):
            model.save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


# Writing.


class Full(io.FileIO):
    """A disk with little room left."""

    room = 0

    def write(self, data):
        if Full.room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        Full.room -= len(data)
        return super().write(data)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_full_disk_is_told_and_the_old_file_is_as_it_was(share, tmp_path, model, content, monkeypatch):
    path = tmp_path / "model"
    ma.Uniform(5).save(path)
    before = path.read_bytes()
    Full.room = int(share * len(content))
    monkeypatch.setattr(_files, "open", lambda where, mode: io.BufferedWriter(Full(where, mode)), raising=False)
    with pytest.raises(errors.ModelFileError, match=r"model could not be written: No space left on device\.") as caught:
        model.save(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_limit_of_the_system_is_told_too(tmp_path, model):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(errors.ModelFileError, match="could not be written: File too large"):
            model.save(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_at_the_last_moment_leaves_the_old_file(call, tmp_path, model, monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(errors.ModelFileError, match="Input/output error"):
        model.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written_to_are_named(tmp_path, model):
    (tmp_path / "folder").mkdir()
    for name, words in {"folder": "Is a directory", "nowhere/model": "No such file or directory"}.items():
        with pytest.raises(errors.ModelFileError, match=words):
            model.save(tmp_path / name)
    assert os.listdir(tmp_path) == ["folder"]


def test_threads_that_save_to_one_path_at_once_leave_a_whole_file(tmp_path):
    models = [ma.LinearSoftmax(np.full((size, 3), float(size))) for size in (300, 500, 700, 900)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            list(pool.map(lambda model: model.save(tmp_path / "model"), models))
            weights = ma.load(tmp_path / "model").weights
            assert (weights == len(weights)).all()
    assert os.listdir(tmp_path) == ["model"]


def test_a_loaded_model_outlives_its_file(tmp_path, model):
    got = again(model, tmp_path)
    ma.Uniform(5).save(tmp_path / "model.arrow")
    assert brief(got) == brief(model)
    (tmp_path / "model.arrow").unlink()
    assert brief(got) == brief(model)


KILLED = """
import io, os, random, signal, sys, time
import numpy as np
import manyarms as ma
from manyarms._base import files as _files

path, steps = sys.argv[1], 0
rng = np.random.default_rng(0)
old, new = (ma.LinearSoftmax(rng.normal(size=(size, 3))) for size in (40, 60))
contents = {}
for name, policy in (("old", old), ("new", new)):
    policy.save(path)
    contents[open(path, "rb").read()] = name, policy.weights.tobytes()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def killing_at(last):
    def step(before=lambda: None):
        global steps
        steps += 1
        if steps == last:
            before()
            die()

    class Raw(io.FileIO):
        def write(self, data):
            step()
            step(lambda: super(Raw, self).write(bytes(data)[: len(data) // 2]))
            return super().write(data)

    def watched(call):
        def run(*args):
            step()
            out = call(*args)
            step()
            return out
        return run

    _files.open = lambda where, mode: io.BufferedWriter(Raw(where, mode), 256)
    os.fsync, os.replace = watched(os.fsync), watched(os.replace)

def child(prepare):
    number = os.fork()
    if number:
        return number
    prepare()
    while True:
        new.save(path)
        if prepare is not nothing:
            os._exit(0)
        old.save(path)

def nothing():
    pass

def found():
    assert ma.load(path).weights.tobytes() == contents[open(path, "rb").read()][1]
    return contents[open(path, "rb").read()][0]

seen, last = [], 0
while True:
    last += 1
    old.save(path)
    _, status = os.waitpid(child(lambda: killing_at(last)), 0)
    seen.append(found())
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
print(len(seen), *seen)
chance = random.Random(0)
for _ in range(25):
    number = child(nothing)
    time.sleep(chance.uniform(0.001, 0.05))
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    print(found())
"""


def test_a_process_killed_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    by_step, *by_chance = done.stdout.splitlines()
    count, *seen = by_step.split()
    # Before the rename the old one, after it the new one.
    assert int(count) > 20
    assert seen == ["old"] * seen.count("old") + ["new"] * seen.count("new")
    assert seen.count("new") >= 2
    assert len(by_chance) == 25
    assert set(by_chance) == {"old", "new"}
