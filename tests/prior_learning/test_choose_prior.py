"""The prior "auto": what it compares, what it takes, and what it says about that."""

import importlib

import jaxtyping
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import InputError
from manyarms.prior_learning.choose_prior import _sample

module = importlib.import_module("manyarms.prior_learning.choose_prior")
K = 60


def world(seed=0, n=900, *, by="category", clicks=False, **columns):
    """Rewards that depend on the action through one kind of metadata only; the other kinds are random."""
    rng = np.random.default_rng(seed)
    category, points = rng.integers(6, size=K), rng.normal(size=(K, 2))
    effect = {"category": rng.normal(size=(6, 2))[category], "embedding": points @ rng.normal(size=(2, 2)),
              "nothing": np.zeros((K, 2))}[by] + 0.05 * rng.normal(size=(K, 2))  # fmt: skip
    contexts = np.column_stack([np.ones(n), rng.normal(size=n)])
    actions = rng.integers(K, size=n)
    means = np.einsum("nd,nd->n", contexts, effect[actions])
    rewards = (rng.random(n) < 1 / (1 + np.exp(-means))).astype(float) if clicks else means + rng.normal(size=n)
    catalog = ma.Catalog(range(K), categories=category, embeddings=points, **columns)
    return ma.LoggedData(contexts, actions, rewards, n_actions=K, catalog=catalog)


def simplest(comparison):
    """The first of the candidates, from simple to rich, that is at most one standard error below the best."""
    order = ["independent", "categories", "embeddings", "linear-embeddings", "combined"]
    return next(
        name for name in order for row in comparison if row.name == name and row.difference + (row.error or 0.0) >= 0
    )


@pytest.mark.slow
def test_of_priors_that_predict_alike_the_simplest_is_taken():
    learned = ma.learn_prior(world(by="nothing"), "auto")
    assert [group.name for group in learned.prior.effects] == ["shared"]
    assert learned.notes[0].startswith("auto: independent is the simplest prior")


@pytest.mark.parametrize("by", ["category", "embedding"])
def test_the_metadata_that_matter_are_chosen_and_the_comparison_says_so(by):
    learned = ma.learn_prior(world(by=by), "auto")
    chosen = simplest(learned.comparison)
    assert by in [group.name for group in learned.prior.effects]
    assert {row.name for row in learned.comparison} == {
        "independent", "categories", "embeddings", "linear-embeddings", "combined",
    }  # fmt: skip
    assert learned.notes[0].startswith(f"auto: {chosen} is the simplest prior")
    independent = next(row for row in learned.comparison if row.name == "independent")
    assert independent.verdict == "worse"


@pytest.mark.slow
def test_the_chosen_prior_is_the_one_that_learning_it_by_name_gives():
    logs = world()
    learned = ma.learn_prior(logs, "auto")
    kind = simplest(learned.comparison)
    named = ma.learn_prior(logs, kind)
    given = ma.learn_prior(logs, ma.priors.from_catalog(logs.catalog, kind, dim=2, shared_std=1.0))
    assert named.comparison is None and given.comparison is None
    for other in (named, given):
        assert_allclose(other.eta, learned.eta, rtol=1e-9)


@pytest.mark.slow
def test_the_comparison_is_bounded_by_a_sample(monkeypatch):
    monkeypatch.setattr(module, "EXACT_ROUNDS", 300)
    learned = ma.learn_prior(world(), "auto")
    assert learned.comparison.n_rounds == 300 and learned.comparison.n_folds == 3
    assert learned.posterior.statistics.n_rounds == 900


@pytest.mark.slow
def test_clicks_are_compared_on_fewer_rounds(monkeypatch):
    monkeypatch.setattr(module, "OTHER_ROUNDS", 200)
    learned = ma.learn_prior(world(clicks=True, n=400), "auto", ma.Bernoulli())
    assert learned.comparison.n_rounds == 200 and learned.comparison.n_folds == 2


def test_without_metadata_actions_share_one_effect_and_nothing_is_compared():
    logs = world()
    bare = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=K)
    learned = ma.learn_prior(bare, "auto")
    assert learned.comparison is None and "one effect shared by all actions" in learned.notes[0]
    assert [group.name for group in learned.prior.effects] == ["shared"]


@pytest.mark.slow
def test_metadata_without_information_are_no_candidate():
    logs = world()
    alike = ma.Catalog(range(K), categories=logs.catalog.categories, embeddings=np.ones((K, 2)))
    same = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=K, catalog=alike)
    names = {row.name for row in ma.learn_prior(same, "auto").comparison}
    assert "categories" in names and "linear-embeddings" not in names


def test_too_few_rounds_to_compare_take_the_combination():
    learned = ma.learn_prior(world(n=2), "auto")
    assert learned.comparison is None
    assert "could not be compared" in learned.notes[0] and "combined was taken" in learned.notes[0]


@pytest.mark.slow
def test_a_stream_is_sampled_evenly_and_gives_the_same_kind(tmp_path, monkeypatch):
    logs = world(n=3000)
    table = {"x": logs.contexts[:, 1], "a": logs.actions, "r": logs.rewards, "row": np.arange(3000)}
    pq.write_table(pa.table(table), tmp_path / "logs.parquet", row_group_size=100)
    stream = ma.read_logs(tmp_path / "logs.parquet", ["x"], "a", "r", catalog=logs.catalog)
    learned = ma.learn_prior(stream, "auto")
    assert learned.comparison is not None and learned.posterior.statistics.n_rounds == 3000
    numbered = ma.read_logs(tmp_path / "logs.parquet", ["row"], "a", "r", catalog=logs.catalog)
    # The mean place of 500 rounds drawn from 3,000 has standard deviation 3000 / √12 / √500.
    monkeypatch.setattr("manyarms.logs.log_stream.BATCH", 128)
    drawn = _sample(numbered, 500)
    places = drawn.contexts[:, 1] * np.arange(3000).std() + np.arange(3000).mean()
    assert len(drawn) == 500 == len(np.unique(places.round(6)))
    assert abs(places.mean() - 1499.5) < 4 * 3000 / np.sqrt(12 * 500)


def test_the_sample_of_a_stream_is_spread_evenly_and_the_same_at_every_call(tmp_path, monkeypatch):
    monkeypatch.setattr("manyarms.logs.log_stream.BATCH", 128)
    table = {"row": np.arange(3000.0), "a": np.arange(3000) % K, "r": np.zeros(3000)}
    pq.write_table(pa.table(table), tmp_path / "logs.parquet", row_group_size=100)
    stream = ma.read_logs(tmp_path / "logs.parquet", ["row"], "a", "r", n_actions=K)

    def places(n):
        return (_sample(stream, n).contexts[:, 1] * table["row"].std() + 1499.5).round().astype(int)

    drawn = places(300)
    assert len(drawn) == 300 and (np.diff(drawn) > 0).all()
    assert (_sample(stream, 300).actions == drawn % K).all()
    assert (places(300) == drawn).all()
    # Each tenth of the rows has 30 of them, give or take four standard deviations.
    assert (np.abs(np.histogram(drawn, bins=10, range=(0, 3000))[0] - 30) < 4 * np.sqrt(27)).all()
    assert (places(5000) == np.arange(3000)).all()


def test_embeddings_that_are_all_alike_are_no_candidate():
    alike = ma.Catalog(range(K), categories=np.arange(K) % 5, embeddings=np.ones((K, 2)))
    candidates = module._candidates(alike, lambda kind: ma.priors.from_catalog(alike, kind, dim=2, shared_std=1.0))
    assert list(candidates)[:2] == ["independent", "categories"] and "linear-embeddings" not in candidates


def test_names_that_cannot_be_learned_are_refused():
    logs = world()
    # Our own checks speak, rather than those of the types.
    jaxtyping.config.update("jaxtyping_disable", True)
    with pytest.raises(InputError, match="prior must be one of 'auto', 'categories'"):
        ma.learn_prior(logs, "automatic")
    jaxtyping.config.update("jaxtyping_disable", False)
    with pytest.raises(InputError, match="prior is 'auto', and Statistics hold neither rounds nor a catalog"):
        ma.learn_prior(ma.Gaussian(1.0).statistics(logs, K), "auto")
    with pytest.raises(InputError, match="the catalog has no tags"):
        ma.learn_prior(logs, "tags")


@pytest.mark.slow
def test_the_decision_and_its_page_name_the_prior(tmp_path):
    decision = ma.decide(None, world(n=1200))
    assert decision.made_with["prior"].startswith(simplest(decision.prior_comparison))
    assert decision.as_json()["prior_comparison"]["rows"][0]["name"] == decision.prior_comparison.best
    ma.write_report(decision, tmp_path / "page.html")
    assert "is the simplest prior" in (tmp_path / "page.html").read_text(encoding="utf-8")
