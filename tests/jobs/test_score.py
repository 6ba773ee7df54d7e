"""Scores go to a file of a kind that holds them, beside columns that are not their own."""

import numpy as np
import pyarrow as pa
import pytest

import manyarms as ma
from manyarms.errors import InputError

ROWS = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "rank": [1, 2, 3, 4], "a": [0, 1, 0, 1], "r": np.arange(4.0)})


@pytest.fixture
def posterior():
    return ma.fit(ma.read_logs(ROWS, "x", "a", "r"), ma.priors.independent(2, dim=2))


@pytest.mark.parametrize("name", ["scores.csv.gz", "scores.arrow", "scores.feather"])
def test_scores_are_not_written_in_another_format_under_its_name(name, posterior, tmp_path):
    with pytest.raises(InputError, match=r"out must end in \.parquet or \.csv.*got .*scores") as caught:
        ma.score(posterior, ROWS, tmp_path / name)
    assert caught.value.argument == "out" and list(tmp_path.iterdir()) == []


def test_a_kept_column_may_not_have_the_name_of_one_of_the_output(posterior, tmp_path):
    with pytest.raises(
        InputError, match=r"keep names 'rank', which is a column of the output itself\. Rename it first"
    ):
        ma.score(posterior, ROWS, tmp_path / "scores.parquet", keep=["rank"])
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_shows_how_much_was_scored(posterior, tmp_path):
    result = ma.score(posterior, ROWS, tmp_path / "scores.parquet", top_k=2)
    html = result._repr_html_()
    for word in (str(tmp_path / "scores.parquet"), "contexts", "4", "rows", "8", "left out", "0"):
        assert word in html
