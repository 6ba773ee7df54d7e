"""A small shop for tests of the commands: logs, a catalog, and ways to run a command."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

import manyarms as ma
from manyarms.cli import app

ITEMS = [f"i{k:02d}" for k in range(20)]
KINDS = ["tea", "mug", "pot"]
ROLES = ["--action", "item", "--reward", "spend", "--propensity", "p"]
CONTEXT = ["--context", "age,city"]
CATALOG = ["--id", "sku", "--category", "kind"]


def log_table(n, seed, items=ITEMS[:15]):
    rng = np.random.default_rng(seed)
    item = rng.integers(len(items), size=n)
    age = rng.normal(40, 12, n)
    return pa.table(
        {
            "user": [f"u{seed}-{i}" for i in range(n)],
            "age": age,
            "city": rng.choice(["Oslo", "Riga", "Turin"], n),
            "item": [items[i] for i in item],
            "spend": (item % 3) * (age - 40) / 12 + rng.normal(size=n),
            "click": (rng.random(n) < 0.3).astype(np.int64),
            "p": np.full(n, 1 / len(items)),
            "at": [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=int(h)) for h in rng.integers(0, 240, n)],
        }
    )


def catalog_table(n=20):
    return pa.table({"sku": ITEMS[:n], "kind": [KINDS[k % 3] for k in range(n)], "size": np.arange(float(n))})


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "100"})


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def figures(*arguments):
    return json.loads(done(*arguments, "--json").stdout)


def refused(*arguments, words=(), code=2):
    result = run(*arguments)
    assert result.exit_code == code, (result.output, result.exception)
    assert result.stdout == "" and result.stderr.startswith("manyarms: error: ") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr, result.stderr
    return result.stderr


def fit_command(folder):
    return ["fit", "--logs", folder / "old", *CONTEXT, *ROLES, "--catalog", folder / "items.parquet", *CATALOG]


def in_python(folder, learn=True):
    catalog = ma.read_catalog(folder / "items.parquet", "sku", category="kind")
    stream = ma.read_logs(folder / "old", ["age", "city"], "item", "spend", "p", catalog)
    prior = ma.priors.from_categories(catalog, dim=stream.dim, shared_std=1.0)
    return ma.learn_prior(stream, prior).posterior if learn else ma.fit(stream, prior)


def write_bad_files(folder):
    """Files as they should not be."""
    for name in ("empty", "truncated", "mixed"):
        (folder / name).mkdir()
    rows = log_table(50, 0)
    pq.write_table(rows, folder / "truncated" / "part.parquet")
    whole = (folder / "truncated" / "part.parquet").read_bytes()
    (folder / "truncated" / "part.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(rows, folder / "mixed" / "a.parquet")
    texts = pa.array([f"{age:.1f} years" for age in rows["age"].to_pylist()])
    pq.write_table(rows.set_column(1, "age", texts), folder / "mixed" / "b.parquet")
    items = rows["item"].to_pylist()
    items[3] = "i99"
    pq.write_table(rows.set_column(3, "item", pa.array(items)), folder / "strangers.parquet")
    ages = rows["age"].to_pylist()
    ages[2] = None
    pq.write_table(rows.set_column(1, "age", pa.array(ages)), folder / "holes.parquet")
    pq.write_table(pa.concat_tables([catalog_table(), catalog_table(2)]), folder / "twice.parquet")
    (folder / "wrong.toml").write_text('[prior]\ncolour = "blue"\n')
    (folder / "file").write_text("not a folder")
