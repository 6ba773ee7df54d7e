"""The cache folder of the tests of data sets."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test reads or writes the user's own cache folder, nor goes through a proxy."""
    monkeypatch.setenv("MANYARMS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"
