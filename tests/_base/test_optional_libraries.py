"""An optional library that is missing is named with the command that installs it."""

import sys

import pytest

from manyarms._base.checks import import_optional
from manyarms.core.result_tables import Records
from manyarms.errors import MissingLibraryError


def test_a_library_that_is_installed_but_broken_raises_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import what_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'what_it_needs'"):
        import_optional("half_installed", "to_half")


def test_a_library_that_is_not_installed_is_named_with_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingLibraryError, match=r'to_polars needs polars\. Install it: pip install "polars"'):
        Records([{"a": 1}]).to_polars()
