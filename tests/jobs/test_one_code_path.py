"""The same model in Python and on the command line, field by field: half-life, learned prior, late rewards."""

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

import manyarms as ma
from manyarms import jobs
from manyarms.cli import app
from manyarms.errors import InputError
from manyarms.model_file.save import describe

START = datetime(2024, 1, 1, tzinfo=UTC)
ITEMS = [f"i{k:02d}" for k in range(12)]
LIKELIHOODS = {"gaussian": ma.Gaussian(), "bernoulli": ma.Bernoulli()}
REWARDS = {"gaussian": "spend", "bernoulli": "click"}


def write_logs(path, first_day, n_days, seed):
    rng = np.random.default_rng(seed)
    n = 150 * n_days
    item = rng.integers(len(ITEMS), size=n)
    hours = np.sort(rng.integers(24 * first_day, 24 * (first_day + n_days), n))
    table = pa.table(
        {
            "age": rng.normal(40, 12, n),
            "city": rng.choice(["Oslo", "Riga"], n),
            "item": [ITEMS[i] for i in item],
            "spend": (item % 3) + rng.normal(size=n),
            "click": (rng.random(n) < 0.2 + 0.2 * (item % 3)).astype(float),
            "at": [START + timedelta(hours=int(hour)) for hour in hours],
        }
    )
    pq.write_table(table, path)


@pytest.fixture
def shop(tmp_path):
    """Six days of logs, of which the last ones have young rounds on the sixth day; two more days; a catalog."""
    (tmp_path / "logs").mkdir()
    write_logs(tmp_path / "logs" / "a.parquet", 0, 3, seed=1)
    write_logs(tmp_path / "logs" / "b.parquet", 3, 3, seed=2)
    pq.write_table(pa.table({"item": ITEMS, "kind": [f"k{k % 3}" for k in range(12)]}), tmp_path / "items.parquet")
    return tmp_path


def copy_logs(source, target, *names):
    target.mkdir()
    for name in names:
        (target / f"{name}.parquet").write_bytes((source / f"{name}.parquet").read_bytes())


def command(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def times(day):
    now = START + timedelta(days=day)
    flags = ["--time", "at", "--half-life", "60h", "--maturity", "30h", "--now", now.isoformat()]
    options = {"time": "at", "half_life": timedelta(hours=60), "maturity": timedelta(hours=30), "now": now}
    return flags, options


def assert_same_model(first, second):
    """Every field of two posteriors, and of all their parts, to the last bit."""
    assert [field.name for field in fields(first)] == [field.name for field in fields(second)]
    for name in ("learned_from", "as_of", "warnings", "trace", "converged", "likelihood", "log_evidence"):
        assert getattr(first, name) == getattr(second, name), name
    assert_array_equal(first.weights.action_mean(), second.weights.action_mean())
    (one, arrays), (other, others) = describe(first), describe(second)
    assert one == other and len(arrays) == len(others)
    for mine, theirs in zip(arrays, others, strict=True):
        assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", ["gaussian", pytest.param("bernoulli", marks=pytest.mark.slow)])
def test_python_and_the_command_line_build_the_same_model_and_refuse_what_it_has_seen(kind, shop):
    reward, likelihood = REWARDS[kind], LIKELIHOODS[kind]
    logs, items, model = shop / "logs", shop / "items.parquet", shop / "model.arrow"
    flags, options = times(6)
    columns = ["--action", "item", "--reward", reward]
    catalog_flags = ["--catalog", items, "--category", "kind"]
    fit = ["fit", "--logs", logs, "--context", "age,city", *columns, *catalog_flags, "--likelihood", kind]
    shown = json.loads(command(*fit, *flags, "--out", model, "--json").stdout)

    catalog = ma.read_catalog(items, "item", category="kind")
    stream = ma.read_logs(logs, ["age", "city"], "item", reward, catalog=catalog, **options)
    prior = ma.priors.from_catalog(catalog, dim=stream.dim, shared_std=1.0)
    learned = ma.learn_prior(stream, prior, likelihood)
    assert 0 < shown["dropped"]["immature"] == stream.dropped.immature
    assert shown["learned"] == {part.name: part.value for part in learned.parameters}
    assert shown["log_evidence"] == learned.posterior.log_evidence
    assert_same_model(learned.posterior, ma.load(model))
    learned.posterior.save(shop / "python.arrow")
    job = jobs.fit_files(
        logs, ["age", "city"], "item", reward, catalog=items, category="kind", likelihood=kind, **options
    )
    assert_same_model(job.posterior, ma.load(model))
    assert {**job.record(), "model": str(model)} == shown

    # Two days later the young rounds have matured, and another file has come.
    write_logs(logs / "c.parquet", 6, 2, seed=3)
    flags, options = times(8)
    copy_logs(logs, shop / "late", "b", "c")
    update = ["update", "--model", model, "--out", model, *columns, "--logs"]
    shown = json.loads(command(*update, shop / "late", *flags, "--json").stdout)
    before = learned.posterior
    known = {"catalog": before.catalog, "features": before.features}
    late = ma.read_logs(shop / "late", ["age", "city"], "item", reward, **known, **options)
    after = before.update(late)
    assert shown["dropped"]["counted"] == late.dropped.counted > 0 and shown["new_rounds"] > 0
    assert_same_model(after, ma.load(model))
    by_file = jobs.update_files(shop / "python.arrow", shop / "late", "item", reward, **options)
    assert_same_model(by_file.posterior, ma.load(model))
    assert {**by_file.record(), "model": str(model)} == shown

    # When all rounds have matured, the model has seen the files, whoever fitted it.
    flags, options = times(20)
    copy_logs(logs, shop / "rest", "a", "c")
    whole = after.update(ma.read_logs(shop / "rest", ["age", "city"], "item", reward, **known, **options))
    command(*update, shop / "rest", *flags)
    assert_same_model(whole, ma.load(model))
    whole.save(shop / "python.arrow")
    for path in (model, shop / "python.arrow"):
        refused = command("update", "--model", path, "--out", path, *columns, "--logs", logs / "a.parquet", code=2)
        assert "has seen" in refused.stderr and "a.parquet" in refused.stderr and "--allow-repeats" in refused.stderr
    again = ma.read_logs(logs / "a.parquet", ["age", "city"], "item", reward, **known)
    with pytest.raises(InputError, match=r"has seen .*a\.parquet already.*allow_repeats=True"):
        whole.update(again)
    twice = whole.update(again, allow_repeats=True)
    assert twice.statistics.n_rounds == whole.statistics.n_rounds + 450 == 1200 + 450


def test_a_model_learned_in_python_is_not_counted_twice_on_the_command_line(shop):
    """It was: the rounds of a file counted again, and the command ended with success."""
    logs, model = shop / "logs" / "a.parquet", shop / "model.arrow"
    stream = ma.read_logs(logs, ["age"], "item", "spend")
    learned = ma.learn_prior(stream, ma.priors.from_catalog(stream.catalog, dim=stream.dim, shared_std=1.0))
    learned.posterior.save(model)
    update = ["update", "--model", model, "--out", model, "--action", "item", "--reward", "spend", "--logs", logs]
    assert "has seen" in command(*update, code=2).stderr
    assert ma.load(model).statistics.n_rounds == 450


def test_with_a_half_life_python_learns_the_spread_of_rounds_at_full_weight(shop):
    _, options = times(8)
    options.pop("maturity")
    aged = ma.read_logs(shop / "logs", ["age"], "item", "spend", **options)
    plain = ma.read_logs(shop / "logs", ["age"], "item", "spend")
    prior = ma.priors.from_catalog(plain.catalog, dim=plain.dim, shared_std=1.0)
    first, second = ma.learn_prior(aged, prior), ma.learn_prior(plain, prior)
    assert_array_equal(first.eta, second.eta)
    assert first.posterior.statistics.total_weight < 0.6 * second.posterior.statistics.total_weight
    # Averaged over priors, the posterior is that of the rounds as they count: it knows less.
    averages = [learned.averaged(16, rng=np.random.default_rng(0)) for learned in (first, second)]
    contexts = plain.collect().contexts
    stds = [average.value(ma.Uniform(len(ITEMS)), contexts).posterior_std for average in averages]
    assert stds[0] > 1.2 * stds[1]


def test_a_refit_remembers_its_files_and_no_others(shop):
    stream = ma.read_logs(shop / "logs" / "a.parquet", ["age"], "item", "spend")
    posterior = ma.fit(stream, ma.priors.from_catalog(stream.catalog, dim=stream.dim))
    known = {"catalog": stream.catalog, "features": stream.features}
    other = ma.read_logs(shop / "logs" / "b.parquet", ["age"], "item", "spend", **known)
    refitted = posterior.update(other).refit(other)
    with pytest.raises(InputError, match=r"b\.parquet already"):
        refitted.update(other)
    assert refitted.update(stream).statistics.n_rounds == 900


def test_an_option_that_there_is_not_is_refused_with_the_one_that_was_meant(shop):
    with pytest.raises(InputError, match=r"read_logs\(\) has no argument 'max_level'\. Did you mean max_levels\?"):
        ma.read_logs(shop / "logs", ["age"], "item", "spend", max_level=3)
    with pytest.raises(InputError, match=r"fit_files\(\) has no argument 'half_live'\. Did you mean half_life\?"):
        jobs.fit_files(shop / "logs", ["age"], "item", "spend", half_live=timedelta(days=1))
