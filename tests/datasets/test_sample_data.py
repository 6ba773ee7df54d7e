"""The sample data: what the package ships is what the script draws, and no file of a user is replaced."""

import csv

import pytest
from sample_data import draw

import manyarms as ma
from manyarms import datasets
from manyarms.errors import InputError


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_package_ships_what_the_script_draws(tmp_path):
    written = datasets.write_sample_data(tmp_path / "new")
    drawn = draw()
    assert sorted(path.name for path in written) == sorted(drawn)
    for path in written:
        expected = [{name: str(value) for name, value in row.items()} for row in drawn[path.name]]
        assert rows_of(path) == expected
    assert sum(path.stat().st_size for path in written) < 200_000


def test_the_files_are_a_log_and_its_catalog(tmp_path):
    datasets.write_sample_data(tmp_path)
    catalog = ma.read_catalog(tmp_path / "items.csv", "item", category="shelf")
    logs = ma.read_logs(tmp_path / "last-week.csv", ["age", "city"], "item", "margin", catalog=catalog).collect()
    assert len(catalog) == 240 and len(logs.rewards) == 5000
    assert 0.5 < len(set(logs.actions.tolist())) / 240 < 0.65
    assert [row["item"] for row in rows_of(tmp_path / "truth.csv")] == catalog.ids.tolist()


def test_a_file_of_your_own_is_kept(tmp_path):
    datasets.write_sample_data(tmp_path)
    datasets.write_sample_data(tmp_path)  # the same files again
    (tmp_path / "items.csv").write_text("mine")
    (tmp_path / "truth.csv").unlink()
    with pytest.raises(InputError, match=r"out has a file items.csv of your own. Name another folder"):
        datasets.write_sample_data(tmp_path)
    assert (tmp_path / "items.csv").read_text() == "mine" and not (tmp_path / "truth.csv").exists()
