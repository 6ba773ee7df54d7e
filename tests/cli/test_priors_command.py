"""priors: the comparison of the library, in words and as JSON."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_shop import done, figures, refused

from manyarms.jobs import fit_files


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """A small log and catalog."""
    folder = tmp_path_factory.mktemp("priors")
    rows = range(60)
    log = {
        "x": [float(i % 7) for i in rows],
        "a": [f"i{i % 6}" for i in rows],
        "r": [i % 3 + 0.1 * (i % 5) for i in rows],
    }
    pq.write_table(pa.table(log), folder / "log.parquet")
    items = pa.table({"sku": [f"i{k}" for k in range(6)], "kind": ["tea", "mug", "pot"] * 2})
    pq.write_table(items, folder / "items.parquet")
    roles = ["--context", "x", "--action", "a", "--reward", "r"]
    return folder, ["priors", "--logs", folder / "log.parquet", *roles, "--catalog", folder / "items.parquet"]


def test_priors_are_compared_as_a_fit_compares_them(command):
    folder, arguments = command
    result = fit_files(
        folder / "log.parquet", ("x",), "a", "r", catalog=folder / "items.parquet", id="sku", category="kind",
        prior="auto",
    )  # fmt: skip
    comparison = result.learned.comparison
    shown = figures(*arguments, "--id", "sku", "--category", "kind")
    assert shown["priors"] == [row | {} for row in comparison.records()]
    assert (shown["rounds"], shown["folds"]) == (comparison.n_rounds, comparison.n_folds)
    assert f"auto: {shown['chosen']}" == result.learned.notes[0]
    printed = done(*arguments, "--id", "sku", "--category", "kind").stdout
    assert repr(comparison) in printed and printed.rstrip().endswith(f"{shown['chosen']}.")


def test_one_prior_alone_is_not_compared(command):
    _, arguments = command
    refused(*arguments, "--id", "sku", words=["there is nothing to compare", "--category, --tags, --taxonomy or"])
