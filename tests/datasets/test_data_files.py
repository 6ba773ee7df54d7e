"""Files of data sets are found wherever users have them; damaged ones are named with a remedy."""

import os
import zipfile
from pathlib import Path

import pytest
from data_set_files import pack, unpack

from manyarms.datasets import (
    KUAIREC,
    MOVIELENS_1M,
    cache_folder,
    load_jester,
    load_kuairec,
    load_movielens,
    load_open_bandit,
)
from manyarms.datasets.data_files import Archive
from manyarms.errors import (
    DataFileError,
    InputError,
)


def test_the_cache_folder_is_the_users_choice_or_the_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("MANYARMS_CACHE", "~/somewhere")
    assert cache_folder() == Path.home() / "somewhere"
    monkeypatch.setenv("MANYARMS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "manyarms"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "manyarms"


LAYOUTS = {
    "a folder": lambda root: unpack(root, {"a.txt": "A", "deep/b.txt": "B"}),
    "a folder with the owners' folder": lambda root: unpack(root, {"ml-1m/a.txt": "A", "ml-1m/deep/b.txt": "B"}),
    "a zip": lambda root: pack(root / "other-name.zip", {"ml-1m/a.txt": "A", "ml-1m/deep/b.txt": "B"}),
    "a zip without folders": lambda root: pack(root / "x.zip", {"a.txt": "A", "deep/b.txt": "B"}),
    "a folder with the zip": lambda root: (
        pack(
            root / "ml-1m.zip", {"any/where/a.txt": "A", "any/where/deep/b.txt": "B", "any/where/more/a.txt": "other"}
        ).parent
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_is_found_wherever_users_have_it(tmp_path, layout):
    archive = Archive(MOVIELENS_1M, LAYOUTS[layout](tmp_path / "data"))
    assert archive.read("a.txt") == b"A"
    assert archive.read("deep/b.txt") == b"B"
    assert archive.has("a.txt")
    # Whole names only, from the end.
    assert not archive.has("txt")
    assert not archive.has("c.txt")
    with pytest.raises(DataFileError, match=r"c\.txt.*GroupLens.*download=True: 6 MB from https://files\.grouplens"):
        archive.read("c.txt")


def test_a_large_member_is_read_piece_by_piece_out_of_the_zip(tmp_path):
    path = pack(tmp_path / "x.zip", {"big.csv": "0123456789" * 10_000})
    with Archive(KUAIREC, path).open("big.csv") as file:
        assert file.read(12) == b"012345678901"
        assert file.read(5) == b"23456"
    assert os.listdir(tmp_path) == ["x.zip"]


def cut(path):
    path.write_bytes(path.read_bytes()[:200])


def flip(path):
    path.write_bytes(path.read_bytes().replace(b"hello", b"jello"))


def encrypt(path):
    """Set the bit that says so, in the local header and in the directory at the end."""
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    path.write_bytes(content)


def cut_member(path):
    """The directory is whole, but promises more than the member has: what a bad repair leaves."""
    content = bytearray(path.read_bytes())
    start = content.index(b"PK\x01\x02") + 20
    sizes = int.from_bytes(content[start : start + 4], "little") + 10**6
    content[start : start + 8] = sizes.to_bytes(4, "little") * 2
    path.write_bytes(content)


DAMAGES = {"cut off": (cut, "not a zip"), "changed": (flip, "CRC"), "encrypted": (encrypt, "encrypted"),
           "a member cut off": (cut_member, "")}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_zip_is_named_with_a_way_out(tmp_path, damage):
    path = pack(tmp_path / "ml-1m.zip", {"ml-1m/ratings.dat": "hello " * 500}, zipfile.ZIP_STORED)
    spoil, what = DAMAGES[damage]
    spoil(path)
    for where in (path, tmp_path):
        with pytest.raises(DataFileError, match=rf"ratings\.dat cannot be read from .*ml-1m\.zip: .*{what}.*GroupLens"):
            load_movielens(where)


def test_a_folder_out_of_reach_is_a_typed_error(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(DataFileError, match=r"cannot be read from .*Permission denied"):
        load_movielens(tmp_path)


def test_without_a_path_the_cache_folder_is_read(cache):
    with pytest.raises(DataFileError, match=rf"{cache} does not exist; ratings\.dat was expected"):
        load_movielens()
    for load, what in ((load_kuairec, "small_matrix"), (load_open_bandit, "random/all/item"), (load_jester, "jester")):
        with pytest.raises(DataFileError, match=rf"{cache}.*{what}|{what}.*{cache}"):
            load()
    pack(cache / "ml-1m.zip", {"ml-1m/ratings.dat": "5::30::4::0\n", "ml-1m/movies.dat": "30::Film::War\n"})
    assert load_movielens().titles == ["Film"]


def test_a_path_and_a_download_exclude_one_another(tmp_path):
    for load in (load_movielens, load_kuairec, load_open_bandit):
        with pytest.raises(InputError, match="Leave path out"):
            load(tmp_path, download=True)
