"""Values, learned priors and scores from rounds that are not in memory, wherever the passes over them run."""

import pickle
from dataclasses import replace

import jaxtyping
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.core.feature_mass import FeatureMass
from manyarms.engines import LOCAL, Engine
from manyarms.errors import DataTypeError, InputError, NonFiniteError, NumericalError, ShapeError, UndefinedLiftError
from manyarms.jobs import evaluate, score
from manyarms.logs.log_stream import LogStream
from manyarms.model_file.load import rebuild
from manyarms.model_file.save import describe
from manyarms.posterior.policy_profile import POLICY_AND_BASELINE, PolicyProfiles, ProfileTask, RowMoments

N, K = 400, 12
ROLES = {"context": ["age", "city"], "action": "item", "n_actions": K}
CROWD = {"weight": "often", "group": "user"}


class Pieces(Engine):
    """Pieces of the rows apart, there and back by pickle, and put together in an order of its own."""

    def __init__(self, seed=0):
        self.order, self.passes = np.random.default_rng(seed), 0

    def total(self, logs, task):
        self.passes += 1
        sent = [pickle.dumps((task, LogStream(piece, logs.reader))) for piece in logs.source.pieces(3)]
        assert len(sent) > 1
        found = []
        for one in sent:
            there, stream = pickle.loads(one)
            found.append(pickle.dumps(LOCAL.total(stream, there)))
        tally = task.begin()
        for i in self.order.permutation(len(found)):
            tally.merge(pickle.loads(found[i]))
        return tally.answer()

    def sharded(self, logs, task):
        raise AssertionError("nothing in this file fits by shards")

    def each(self, source, work):
        sent = [pickle.dumps((work, piece)) for piece in source.pieces(3)]
        found = [None] * len(sent)
        # A piece that is lost is done again, and the last may be the first to end.
        for i in [0, *self.order.permutation(len(sent))]:
            there, piece = pickle.loads(sent[i])
            found[i] = pickle.loads(pickle.dumps(there(piece)))
        return found


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x, item = rng.normal(40, 12, n), rng.integers(0, K - 2, n)
    spend = np.where(rng.random(n) < 0.6, rng.lognormal(0.3 * (item % 3), 0.5), 0.0)
    return pa.table(
        {
            "age": x,
            "city": rng.choice(["Oslo", "Riga", "Turin"], n, p=[0.2, 0.5, 0.3]),
            "item": item,
            "r": 1.0 + 0.5 * (item % 3) + 0.02 * x + rng.normal(size=n),
            "click": (rng.random(n) < 0.3 + 0.1 * (item % 3)).astype(float),
            "count": rng.poisson(1.0 + 0.5 * (item % 3)).astype(float),
            "spend": spend,
            "amount": rng.lognormal(0.3 * (item % 3), 0.5),
            "often": rng.integers(0, 4, n).astype(float),
            "user": [f"u{i}" for i in rng.integers(0, 60, n)],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files with several row groups each."""
    where, whole = tmp_path_factory.mktemp("logs"), table()
    for i in range(3):
        pq.write_table(whole.slice(i * 150, 150), where / f"part-{i}.parquet", row_group_size=75)
    return where


@pytest.fixture
def own_errors():
    """Our own checks speak, rather than those of the types."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


KINDS = {
    "gaussian": ("r", ma.Gaussian(1.0)),
    "clicks": ("click", ma.Bernoulli()),
    "hurdle": ("spend", ma.Hurdle(ma.Bernoulli(), ma.LogNormal(0.5))),
}
CATEGORIES = [i % 3 for i in range(K)]


def opened(folder, kind="gaussian", **more):
    """A stream, its rounds in memory, and a posterior of them."""
    reward, likelihood = KINDS[kind]
    stream = ma.read_logs(folder, **ROLES, reward=reward, **more)
    logs = stream.collect()
    return stream, logs, ma.fit(logs, ma.priors.from_categories(CATEGORIES, dim=stream.dim), likelihood)


def assert_same_estimate(found, expected, tolerance=1e-10):
    for name in ("value", "std", "posterior_std", "context_std"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None)
        if other is not None:
            assert_allclose(one, other, rtol=tolerance, atol=1e-14, err_msg=name)
    assert (found.method, found.kind, found.warnings) == (expected.method, expected.kind, expected.warnings)
    assert found.diagnostics.keys() == expected.diagnostics.keys()
    for name, value in expected.diagnostics.items():
        assert_allclose(found.diagnostics[name], value, rtol=tolerance, atol=1e-14, err_msg=name)


# ---------------------------------------------------------------- values


@pytest.mark.slow
@pytest.mark.parametrize("crowd", [{}, CROWD], ids=["rows", "weights and groups"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_on_a_stream_are_those_on_its_rounds_wherever_it_is_gone_through(kind, crowd, folder):
    stream, logs, posterior = opened(folder, kind, **crowd)
    # One that names an action a row, one that gives all of them a share, and one that does both.
    greedy = ma.Greedy(posterior)
    candidates = [greedy, ma.Softmax(posterior, temperature=0.1), ma.EpsilonGreedy(greedy, 0.2)]
    options = {"weights": logs.weights, "groups": logs.groups}
    for policy, engine in zip(candidates, (None, Pieces(1), Pieces(2)), strict=True):
        expected = posterior.value(policy, logs.contexts, **options)
        assert_same_estimate(posterior.value(policy, stream, engine=engine), expected)
    for verb, engine in (
        (posterior.difference, "local"),
        (posterior.difference, Pieces(3)),
        (posterior.lift, Pieces(4)),
    ):
        expected = verb(candidates[2], ma.Logged(logs), logs.contexts, **options)
        assert_same_estimate(verb(candidates[2], ma.Logged(stream), stream, engine=engine), expected)


def test_an_averaged_posterior_takes_a_stream_too(folder):
    stream, logs, _ = opened(folder)
    prior = ma.priors.from_categories(CATEGORIES, dim=stream.dim)
    averaged = ma.learn_prior(logs, prior).averaged(8, rng=np.random.default_rng(0))
    policy = ma.Greedy(averaged.posterior)
    for verb in (averaged.difference, averaged.lift):
        expected = verb(policy, ma.Logged(logs), logs.contexts)
        assert_same_estimate(verb(policy, ma.Logged(stream), stream, engine=Pieces()), expected)
    assert_same_estimate(averaged.value(policy, stream), averaged.value(policy, logs.contexts))


def test_what_runs_now_with_some_exploration_is_gone_through_too(folder):
    stream, logs, posterior = opened(folder)
    mask = np.arange(K) < 10
    found = posterior.value(ma.EpsilonGreedy(ma.Logged(stream), 0.3), stream, eligible=mask, engine=Pieces())
    assert_same_estimate(found, posterior.value(ma.EpsilonGreedy(ma.Logged(logs), 0.3), logs.contexts, eligible=mask))


def test_a_policy_differs_from_itself_by_nothing(folder):
    stream, _, posterior = opened(folder, **CROWD)
    found = posterior.difference(ma.Logged(stream), ma.Logged(stream), stream, engine=Pieces())
    assert (found.value, found.std, found.context_std, found.posterior_std) == (0.0, 0.0, 0.0, 0.0)


def test_rows_of_weight_zero_say_nothing(folder):
    """Not of groups either, nor of which actions are chosen: the same as without these rows."""
    _, logs, posterior = opened(folder, **CROWD)
    x, kept, weights = logs.contexts, np.arange(200), np.r_[np.ones(200), np.zeros(N - 200)]
    policy = ma.TablePolicy(np.eye(K)[np.r_[np.arange(200) % 5, np.full(N - 200, 7)]])
    groups = np.r_[np.arange(200) // 4, np.arange(1000, 1000 + N - 200)]
    found = posterior.value(policy, x, weights=weights, groups=groups)
    assert_same_estimate(found, posterior.value(policy.take(kept), x[kept], groups=groups[kept]))


@pytest.mark.parametrize("grouped", [False, True])
def test_moments_of_parts_are_those_of_all_rows_however_far_from_zero(grouped):
    """The oracle has all rows at once, less what is common to them."""
    rng = np.random.default_rng(0)
    n, offset = 500, np.array([1e7, -3e7])
    x, w = rng.normal(size=(2, n)), rng.integers(1, 4, n).astype(float)
    groups = rng.integers(0, 30, n) if grouped else None
    parts = np.split(rng.permutation(n), [3, 50, 51, 300])
    of_parts = [
        RowMoments.of_rows(x[:, p] + offset[:, None], w[p], None if groups is None else groups[p]) for p in parts
    ]
    nested = RowMoments.merged([RowMoments.merged(of_parts[:2]), RowMoments.merged(of_parts[2:])])
    combination = np.array([0.7, -1.3])
    mean = (x * w).sum(axis=1) / w.sum()
    c = combination @ (x - mean[:, None])
    if grouped:
        sums = np.array([np.sum((w * c)[groups == g]) for g in np.unique(groups)])
        expected = np.sum(sums**2) / w.sum() ** 2 * len(sums) / (len(sums) - 1)
    else:
        expected = np.sum(w * c**2) / (w.sum() - 1) / w.sum()
    for found in (RowMoments.merged(of_parts[::-1]), nested):
        assert_allclose(found.mean - offset, mean, atol=1e-8)
        assert_allclose(found.mean_variance(combination), expected, rtol=1e-8)


def test_what_a_pass_has_found_travels_without_pickle_and_holds_no_row(folder):
    stream, logs, posterior = opened(folder, "hurdle", **CROWD)
    both = {"policy": ma.Greedy(posterior), "baseline": ma.Logged(stream)}
    task = ProfileTask(posterior, both, POLICY_AND_BASELINE)
    found = LOCAL.total(stream, task)
    model, arrays = describe(found)
    again = rebuild(model, arrays, {kind.saved_as: kind for kind in (PolicyProfiles, RowMoments, FeatureMass)})
    assert_same_estimate(posterior.estimate(again), posterior.estimate(found), 0.0)
    largest = max(K, len(np.unique(logs.groups)))
    assert len(logs) > 2 * largest and all(len(array) <= largest for array in arrays)
    # The same rounds a hundred times leave the same means, and no more behind.
    tally = task.begin()
    for _ in range(100):
        tally.merge(found)
    assert len(tally._parts) < 100
    many = tally.answer()
    assert_allclose(many.rows.mean, found.rows.mean, rtol=1e-12)
    assert many.size == found.size and many.rows.weight == 100 * found.rows.weight


def test_a_posterior_travels_without_what_it_has_computed_on_the_way(folder):
    _, logs, posterior = opened(folder, "clicks")
    expected = posterior.value(ma.Uniform(K), logs.contexts)
    there = pickle.loads(pickle.dumps(posterior))
    assert "predictor" in posterior.__dict__ and "predictor" not in there.__dict__
    assert_same_estimate(there.value(ma.Uniform(K), logs.contexts), expected, 0.0)


def test_an_overflow_on_a_stream_is_an_error_of_its_own_kind_and_no_warning(folder):
    stream = ma.read_logs(folder, **ROLES, reward="amount")
    wide = ma.fit(stream, ma.priors.independent(K, dim=stream.dim, cov=1e5), ma.LogNormal(1.0))
    with pytest.raises(NumericalError):
        wide.difference(ma.Uniform(K), ma.Logged(stream), stream, engine=Pieces())


def test_what_does_not_go_with_a_stream_is_refused_with_a_way_out(folder, tmp_path, own_errors):
    stream, logs, posterior = opened(folder)
    uniform, rng = ma.Uniform(K), np.random.default_rng(0)
    pq.write_table(table(50, seed=1), tmp_path / "other.parquet")
    other = ma.read_logs(tmp_path, **ROLES, reward="r", features=stream.features)
    elsewhere = ma.read_logs(tmp_path, **ROLES, reward="r")
    refused = [
        (lambda: posterior.value(uniform, stream, weights=np.ones(N)), InputError, r"read_logs\(..., weight="),
        (lambda: posterior.value(uniform, stream, groups=np.arange(N)), InputError, r"read_logs\(..., group="),
        (lambda: posterior.value(uniform, stream, eligible=[[0]] * N), InputError, "one boolean mask.*collect"),
        (lambda: posterior.value_draws(uniform, stream, rng=rng), DataTypeError, "collect.*sample"),
        (lambda: posterior.expected_reward(stream), DataTypeError, "collect"),
        (lambda: posterior.value(uniform, logs), DataTypeError, "Pass its .contexts"),
        (lambda: posterior.difference(uniform, ma.Logged(stream), other), InputError, "baseline.*another stream"),
        (lambda: posterior.difference(uniform, ma.Logged(logs), stream), InputError, "400 rows in memory.*Logged"),
        (lambda: posterior.value(ma.Logged(stream), logs.contexts), InputError, "only be evaluated on that stream"),
        (
            lambda: ma.EpsilonGreedy(ma.Logged(stream), 0.1).actions(logs.contexts),
            InputError,
            "only be evaluated on that stream",
        ),
        (lambda: posterior.value(uniform, elsewhere), InputError, "another feature map"),
        (lambda: posterior.value(ma.Uniform(3), stream), ShapeError, "3 actions"),
        (lambda: posterior.value(uniform, stream, engine="cluster"), InputError, "engine must be"),
        (lambda: ma.Logged([1, 2]), DataTypeError, "LogStream"),
    ]
    for verb, kind, words in refused:
        with pytest.raises(kind, match=words):
            verb()


def test_a_stream_without_weight_and_a_baseline_that_may_be_zero_are_refused(tmp_path):
    whole = table(60).set_column(8, "often", pa.array(np.zeros(60)))
    pq.write_table(whole.append_column("zero", pa.array(np.zeros(60))), tmp_path / "logs.parquet")
    stream = ma.read_logs(tmp_path, **ROLES, reward="zero")
    posterior = ma.fit(stream, ma.priors.from_categories(CATEGORIES, dim=stream.dim))
    with pytest.raises(UndefinedLiftError):
        posterior.lift(ma.Uniform(K), ma.Logged(stream), stream)
    weightless = ma.read_logs(tmp_path, **ROLES, reward="zero", weight="often")
    with pytest.raises(ShapeError, match="no rounds of any weight"):
        posterior.value(ma.Uniform(K), weightless)


def test_policies_side_by_side_have_the_values_and_differences_of_the_posterior(folder):
    _, logs, posterior = opened(folder, "clicks", **CROWD)
    policies = {"greedy": ma.Greedy(posterior), "uniform": ma.Uniform(K)}
    found = evaluate(policies, logs, posterior)
    options = {"weights": logs.weights, "groups": logs.groups}
    assert_same_estimate(found.baseline.value, posterior.value(ma.Logged(logs), logs.contexts, **options))
    for row in found.policies:
        policy = policies[row.name]
        assert_same_estimate(row.value, posterior.value(policy, logs.contexts, **options))
        gap = posterior.difference(policy, ma.Logged(logs), logs.contexts, **options)
        assert_same_estimate(row.difference, gap)


# ---------------------------------------------------------------- learned priors

LEARNED = {
    "gaussian": ("r", ma.Gaussian(1.0)),
    "amounts": ("amount", ma.LogNormal(1.0)),
    "clicks": ("click", ma.Bernoulli()),
}


@pytest.mark.parametrize("kind", LEARNED)
def test_a_prior_learned_from_a_stream_is_that_of_its_rounds(kind, tmp_path):
    """To what the search tells apart: the objective to 1e-5, log standard deviations to 1e-3."""
    reward, likelihood = LEARNED[kind]
    for i in range(2):
        # Few batches, since there are many passes.
        pq.write_table(table().slice(i * 250, 250), tmp_path / f"part-{i}.parquet")
    stream = ma.read_logs(tmp_path, ["age"], "item", reward, n_actions=K, weight="often")
    prior, engine = ma.priors.from_categories(CATEGORIES, dim=stream.dim), Pieces()
    expected, found = (
        ma.learn_prior(stream.collect(), prior, likelihood),
        ma.learn_prior(stream, prior, likelihood, engine=engine),
    )
    assert_allclose(found.trace[-1], expected.trace[-1], atol=1e-5)
    assert_allclose(found.log_evidence, expected.log_evidence, atol=1e-5)
    assert_allclose(found.eta, expected.eta, atol=1e-3)
    assert (found.notes, found.posterior.warnings) == (expected.notes, expected.posterior.warnings)
    assert found.posterior.features == stream.features and found.posterior.learned_from[0] == stream.fingerprint
    mean = expected.posterior.weights.action_mean()
    assert_allclose(found.posterior.weights.action_mean(), mean, rtol=1e-3, atol=1e-3 * np.abs(mean).max())
    assert engine.passes == 1 if likelihood.treatment == "exact" else engine.passes < 150


def test_rewards_that_say_nothing_of_a_prior_are_refused_after_one_pass(tmp_path, own_errors):
    whole = table(60)
    columns = {"none": np.zeros(60), "same": np.full(60, 3.0), "odd": np.r_[np.zeros(59), 2.0]}
    for name, column in columns.items():
        whole = whole.append_column(name, pa.array(column))
    pq.write_table(whole, tmp_path / "logs.parquet", row_group_size=20)
    for reward, likelihood, words in (
        ("none", ma.Bernoulli(), "no click yet in 60 rounds"),
        ("none", ma.Poisson(), "no event yet in 60 rounds"),
        ("same", ma.Gaussian(), r"all rewards are equal \(3\)"),
        ("same", ma.LogNormal(), r"all rewards are equal \(3\)"),
        ("odd", ma.Bernoulli(), "row 59 has 2"),
        ("click", ma.Bernoulli(treatment="paper"), '"paper" has no evidence'),
    ):
        stream, engine = ma.read_logs(tmp_path, **ROLES, reward=reward), Pieces()
        with pytest.raises(InputError, match=words):
            ma.learn_prior(stream, ma.priors.independent(K, dim=stream.dim), likelihood, engine=engine)
        assert engine.passes <= 1
    prior = ma.priors.independent(K, dim=stream.dim)
    for verb in (lambda: ma.compare_priors(stream, [prior]), lambda: ma.fit(stream, prior, ma.Hurdle())):
        with pytest.raises(DataTypeError, match=r"collect\(\)"):
            verb()


# ---------------------------------------------------------------- jobs


def scored_rows(path):
    files = [path] if path.is_file() else sorted(path.iterdir())
    return pa.concat_tables([pq.read_table(file) for file in files])


def test_pieces_scored_apart_have_the_rows_of_one_file_in_their_order(folder, tmp_path):
    _, _, posterior = opened(folder)
    whole = table()
    age = whole["age"].to_numpy().copy()
    # One here and there, and all of the last piece.
    age[[5, 170, *range(300, N)]] = np.nan
    whole = whole.set_column(0, "age", pa.array(age))
    (tmp_path / "in").mkdir()
    for i in range(3):
        pq.write_table(whole.slice(i * 150, 150), tmp_path / "in" / f"{i}.parquet", row_group_size=40)
    options = {"top_k": 3, "keep": ["user"], "missing": "drop"}
    out = tmp_path / "out"
    expected = score(posterior, tmp_path / "in", tmp_path / "one.parquet", **options)
    found = score(posterior, tmp_path / "in", out, engine=Pieces(), **options)
    assert expected.path.is_file() and found.path.is_dir() and len(list(out.iterdir())) > 1
    assert (found.n_contexts, found.n_rows, found.n_dropped) == (298, 3 * 298, 102)
    assert found == replace(expected, path=out)
    one, parts = scored_rows(expected.path), scored_rows(out)
    assert one.schema == parts.schema
    for name in one.column_names:
        if name in ("expected_reward", "reward_std"):
            assert_allclose(parts[name].to_numpy(), one[name].to_numpy(), rtol=1e-12)
        else:
            assert parts[name].to_pylist() == one[name].to_pylist()
    # Again with fewer contexts: what the first run has left behind is gone, and other files stay.
    (out / "notes.txt").touch()
    (tmp_path / "in" / "1.parquet").unlink()
    assert score(posterior, tmp_path / "in", out, engine=Pieces(), **options).n_contexts == 149
    (out / "notes.txt").unlink()
    assert_array_equal(scored_rows(out)["row"].to_numpy(), one["row"].to_numpy()[: 3 * 149])
    (tmp_path / "in" / "0.parquet").unlink()
    with pytest.raises(InputError, match="no rows to score"):
        score(posterior, tmp_path / "in", out, engine=Pieces(), **options)


def test_a_piece_that_fails_leaves_no_half_of_a_file(folder, tmp_path):
    _, _, posterior = opened(folder)
    whole = table()
    age = whole["age"].to_numpy().copy()
    age[170] = np.nan
    pq.write_table(whole.set_column(0, "age", pa.array(age)), tmp_path / "in.parquet", row_group_size=40)
    with pytest.raises(NonFiniteError, match="row 170"):
        score(posterior, tmp_path / "in.parquet", tmp_path / "out", engine=Pieces())
    assert all(file.suffix == ".parquet" and len(pq.read_table(file)) for file in (tmp_path / "out").iterdir())
    for out in (tmp_path, tmp_path / "in.parquet"):
        with pytest.raises(InputError, match="Write elsewhere"):
            score(posterior, tmp_path / "in.parquet", out, engine=Pieces())
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="folder"):
        score(posterior, tmp_path / "in.parquet", tmp_path / "file", engine=Pieces(), missing="drop")


def test_fits_and_updates_on_an_engine_hold_no_rounds_here(folder, monkeypatch):
    stream, logs, posterior = opened(folder, "clicks")
    likelihood, expected = posterior.likelihood, posterior.update(logs)
    monkeypatch.setattr(LogStream, "collect", lambda self: pytest.fail("the rounds were held here"))
    monkeypatch.setattr("manyarms.posterior.training_files.joined", None)
    engine = Pieces()
    found = ma.fit(stream, posterior.prior, likelihood, engine=engine)
    assert 1 < engine.passes < 20
    assert {one.origin for one in stream.source.fingerprints} < {one.origin for one in found.learned_from}
    assert_allclose(found.weights.action_mean(), posterior.weights.action_mean(), rtol=1e-5, atol=1e-6)
    engine.passes = 0
    again = found.update(stream, allow_repeats=True, engine=engine)
    assert 1 < engine.passes < 20
    assert_allclose(again.weights.action_mean(), expected.weights.action_mean(), rtol=1e-5, atol=1e-6)
