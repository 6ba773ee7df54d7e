"""Finding and fetching data files, and the readers of KuaiRec and the Open Bandit Dataset.

Files are small ones written here in the owners' formats, and servers run on this machine. Real files are read where the
environment variable MANYARMS_DATA names a folder with kuairec/ and obd/.
"""

import contextlib
import hashlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from manyarms.datasets import (
    KUAIREC,
    MOVIELENS_1M,
    OPEN_BANDIT,
    cache_folder,
    data_files,
    download,
    load_jester,
    load_kuairec,
    load_movielens,
    load_open_bandit,
    merge_levels,
    read_columns,
)
from manyarms.datasets.data_files import Archive
from manyarms.errors import (
    ActionError,
    DataFileError,
    DataTypeError,
    InputError,
    NonFiniteError,
    PropensityError,
    RangeError,
    ShapeError,
)

REAL = Path(os.environ["MANYARMS_DATA"]) if os.environ.get("MANYARMS_DATA") else None

needs_real_data = pytest.mark.skipif(REAL is None, reason="MANYARMS_DATA is not set")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test reads or writes the user's own cache folder, nor goes through a proxy."""
    monkeypatch.setenv("MANYARMS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


def pack(path, contents, compression=zipfile.ZIP_DEFLATED):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as packed:
        for name, text in contents.items():
            packed.writestr(name, text)
    return path


def unpack(folder, contents):
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


# --- The cache folder


def test_the_cache_folder_is_the_users_choice_or_the_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("MANYARMS_CACHE", "~/somewhere")
    assert cache_folder() == Path.home() / "somewhere"
    monkeypatch.setenv("MANYARMS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "manyarms"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "manyarms"


# --- Finding files

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


# --- Fetching files

CONTENT = np.random.default_rng(0).bytes(3_000_000)


class Answer(http.server.BaseHTTPRequestHandler):
    """The server's answer is chosen by the path."""

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path == "/missing":
            return self.send_error(404)
        self.send_response(200)
        if self.path != "/unsized":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        # The far end may have gone, which is the point of some tests.
        with contextlib.suppress(OSError):
            if self.path in ("/cut", "/stalls"):
                self.wfile.write(CONTENT[: len(CONTENT) // 2])
            if self.path == "/stalls":
                self.server.over.wait(30)
            elif self.path != "/cut":
                self.wfile.write(CONTENT)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        running.asked, running.over = [], threading.Event()
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


def source_at(server, path="/file", algorithm="sha256"):
    url = f"http://127.0.0.1:{server.server_port}{path}"
    checksum = f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
    return replace(MOVIELENS_1M, url=url, checksum=checksum)


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
@pytest.mark.parametrize("path", ["/file", "/unsized"])
def test_a_download_arrives_whole_and_once(server, cache, algorithm, path):
    source, told = source_at(server, path, algorithm), []
    target = download(source, progress=lambda done, total: told.append((done, total)))
    assert target == cache / "ml-1m.zip"
    assert target.read_bytes() == CONTENT
    assert os.listdir(cache) == ["ml-1m.zip"]
    assert told[-1] == (len(CONTENT), len(CONTENT) if path == "/file" else 0)
    assert told == sorted(told)
    assert len(told) >= 3
    assert download(source) == target
    assert server.asked == [path]


def test_a_download_goes_to_the_folder_given_and_replaces_what_is_not_the_owners_file(server, tmp_path):
    folder = unpack(tmp_path / "mine", {"ml-1m.zip": "something else", "note.txt": "stays"})
    target = download(source_at(server), folder)
    assert target.read_bytes() == CONTENT
    assert sorted(os.listdir(folder)) == ["ml-1m.zip", "note.txt"]


def refused_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def at(path):
    return lambda source: replace(source, url=source.url.replace("/file", path))


FAILURES = {
    "not there": (at("/missing"), "answered 404 Not Found"),
    "cut off": (at("/cut"), "after 1,500,000 of 3,000,000"),
    "silence": (at("/stalls"), "sent nothing for"),
    "refused": (lambda source: replace(source, url=f"http://127.0.0.1:{refused_port()}/x"), "refused"),
    "another file": (lambda source: replace(source, checksum="md5:" + "0" * 32), rf"{'0' * 32}.*removed"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("before", [None, "an old file"])
def test_a_failed_download_says_what_happened_and_leaves_nothing(server, cache, monkeypatch, failure, before):
    monkeypatch.setattr(data_files, "TIMEOUT_S", 0.5)
    if before:
        unpack(cache, {"ml-1m.zip": before})
    change, message = FAILURES[failure]
    source = change(source_at(server))
    with pytest.raises(DataFileError, match=message) as caught:
        download(source)
    assert source.url in str(caught.value)
    assert f"at {cache / 'ml-1m.zip'}" in str(caught.value)
    assert [path.read_text() for path in cache.iterdir()] == ([before] if before else [])


def test_a_wrong_checksum_is_shown_beside_the_right_one(server):
    source = replace(source_at(server), checksum="md5:" + "a" * 32)
    with pytest.raises(DataFileError) as caught:
        download(source)
    assert f"md5:{hashlib.md5(CONTENT).hexdigest()}, not md5:{'a' * 32}" in str(caught.value)


def test_without_a_network_the_error_says_so(cache, monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for load in (load_movielens, load_kuairec, load_open_bandit):
        with pytest.raises(DataFileError, match=rf"no network.*put it at {cache}"):
            load(download=True)
    assert os.listdir(cache) == []


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_download_leaves_nothing(server, cache, interruption):
    def interrupt(done, total):
        assert len(os.listdir(cache)) == 1
        raise interruption

    with pytest.raises(interruption):
        download(source_at(server), progress=interrupt)
    assert os.listdir(cache) == []


def test_a_full_disk_is_a_typed_error_and_leaves_nothing(server, cache, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match=r"cannot be written: .*No space.*MANYARMS_CACHE"):
        download(source_at(server))
    assert os.listdir(cache) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_download_is_never_taken_for_a_file_and_is_swept_up_later(server, cache):
    source = source_at(server, "/stalls")
    code = f"from manyarms.datasets import DataSource, download; download({source!r})"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        until = time.monotonic() + 60
        while not (drafts := list(cache.glob(".*"))) and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    (draft,) = drafts
    assert os.listdir(cache) == [draft.name]
    with pytest.raises(DataFileError, match="is not in"):
        load_movielens()
    elsewhere = cache / ".ml-1m.zip.elsewhere-1-1.tmp"
    elsewhere.touch()
    download(source_at(server))
    # Its process is gone; one of another machine may be at work as long as its draft is young.
    assert not draft.exists() and elsewhere.exists()
    (cache / "ml-1m.zip").unlink()
    os.utime(elsewhere, (0, 0))
    download(source_at(server))
    assert os.listdir(cache) == ["ml-1m.zip"]


def test_a_loader_fetches_only_what_is_not_in_the_cache(server, cache, monkeypatch, tmp_path):
    packed = pack(tmp_path / "x.zip", {"ml-1m/ratings.dat": "5::30::4::0\n", "ml-1m/movies.dat": "30::Film::War\n"})
    monkeypatch.setitem(globals(), "CONTENT", packed.read_bytes())
    monkeypatch.setattr("manyarms.datasets.movielens.MOVIELENS_1M", source_at(server))
    assert load_movielens(download=True).titles == ["Film"]
    assert load_movielens(download=True).titles == ["Film"]
    assert load_movielens().titles == ["Film"]
    assert server.asked == ["/file"]
    # A user's own file is taken as it is, whatever its checksum.
    pack(cache / "ml-1m.zip", {"ratings.dat": "5::30::4::0\n", "movies.dat": "30::Mine::War\n"})
    assert load_movielens(download=True).titles == ["Mine"]
    assert server.asked == ["/file"]


def test_a_bar_is_drawn_on_a_terminal_only(server, monkeypatch, capsys, tmp_path):
    download(source_at(server), tmp_path / "silent")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    download(source_at(server), tmp_path / "off", progress=False)
    assert capsys.readouterr() == ("", "")
    download(source_at(server), tmp_path / "drawn")
    out, err = capsys.readouterr()
    assert out == ""
    assert "ml-1m.zip" in err
    assert "3.0/3.0 MB" in err


def test_sources_are_stated_as_their_owners_do():
    assert MOVIELENS_1M.checksum == "md5:c4d9eecfca2ab87c1945afe126590906"
    assert KUAIREC.checksum == "md5:261550d472c48eff4990fb13c0e5bcf7"
    assert OPEN_BANDIT.checksum == "sha256:e8ec18196582a5937381a1776382ca940689b90a18d2dcd1fb635be6df614d78"
    for source in (MOVIELENS_1M, KUAIREC, OPEN_BANDIT):
        assert source.url.startswith("https://")
        assert source.url.endswith(source.archive)


# --- KuaiRec

NAMES = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio\n"


def watched(*rows):
    """The owners' lines; times are missing in some of theirs too."""
    return NAMES + "".join(
        f"{user},{video},100,100,{'2020-07-05 00:08:23.438' if k % 2 else ''},20200705.0,1593878903.438,{ratio}\n"
        for k, (user, video, ratio) in enumerate(rows)
    )


SMALL_ROWS = [(14, 9, 0.5), (14, 3, 20.0), (7, 9, 0.0), (14, 9, 1.5), (14, 9, 4.0)]
BIG_ROWS = [(7, 3, 0.25), (2, 30, 5.0), (2, 3, 1.0), (7, 3, 0.75)]
KUAIREC_FILES = {
    "small_matrix.csv": watched(*SMALL_ROWS),
    "big_matrix.csv": watched(*BIG_ROWS),
    "item_categories.csv": 'video_id,feat\n3,"[27, 9]"\n9,[8]\n4,"[1,2,3]"\n30,[]\n',
}


def kuairec_at(root, layout, contents=KUAIREC_FILES):
    kind, _, folder = layout.partition(" in ")
    placed = {f"{folder}/{name}" if folder else name: text for name, text in contents.items()}
    return unpack(root / "data files", placed) if kind == "folder" else pack(root / "KuaiRec.zip", placed)


KUAIREC_LAYOUTS = [f"{kind}{folder}" for kind in ("folder", "zip")
                   for folder in ("", " in KuaiRec 2.0/data", " in KuaiRec/data", " in data")]  # fmt: skip


@pytest.mark.parametrize("layout", KUAIREC_LAYOUTS)
def test_kuairec_is_read_in_every_layout_with_the_mean_of_repeated_cells(tmp_path, layout):
    data = load_kuairec(kuairec_at(tmp_path, layout))
    assert data.users.tolist() == [2, 7, 14]
    assert data.videos.tolist() == [3, 9, 30]
    assert not data.partial
    assert data.categories == [(27, 9), (8,), ()]
    for cells, rows in ((data.small, SMALL_ROWS), (data.big, BIG_ROWS)):
        of_pair = {}
        for user, video, ratio in rows:
            of_pair.setdefault((user, video), []).append(ratio)
        pairs = zip(data.users[cells.user_rows].tolist(), data.videos[cells.video_rows].tolist(), strict=True)
        found = dict(zip(pairs, cells.watch_ratio.tolist(), strict=True))
        assert found == {pair: sum(ratios) / len(ratios) for pair, ratios in of_pair.items()}
        assert len(cells) == len(of_pair)
    with pytest.raises(ValueError, match="read-only"):
        data.small.watch_ratio[0] = 1


def test_scores_are_clipped_ratios_over_the_users_largest(tmp_path):
    data = load_kuairec(kuairec_at(tmp_path, "folder"))
    small = data.matrix(data.small)
    # User 14: 20 counts as 10, and the mean of 0.5, 1.5 and 4 is 2. User 7 watched nothing of video 9.
    assert_allclose(small.toarray(), [[0, 0, 0], [0, 0, 0], [1, 0.2, 0]], rtol=1e-15)
    assert small.nnz == 3  # the zero of user 7 is known to be one
    assert_allclose(data.matrix(data.big).toarray(), [[0.2, 0, 1], [1, 0, 0], [0, 0, 0]], rtol=1e-15)
    assert_allclose(data.matrix(data.small, clip=4.0).toarray()[2], [1, 0.5, 0], rtol=1e-15)
    with pytest.raises(RangeError, match="clip"):
        data.matrix(data.small, clip=0.0)


def test_blocks_of_a_file_come_together(tmp_path, monkeypatch):
    rows = [(k % 40, k % 77, k / 8) for k in range(5000)]
    path = kuairec_at(tmp_path, "zip", KUAIREC_FILES | {"big_matrix.csv": watched(*rows)})
    whole = load_kuairec(path)
    monkeypatch.setattr(read_columns, "BLOCK", 1000)
    in_blocks = load_kuairec(path)
    assert_array_equal(in_blocks.big.watch_ratio, whole.big.watch_ratio)
    total = sum(ratio for *_, ratio in rows)
    assert_allclose(whole.big.watch_ratio.sum() / len(whole.big) * len(rows), total, rtol=0.05)
    assert len(whole.big) == len({row[:2] for row in rows})


def test_kuairec_without_its_big_matrix_has_none(tmp_path):
    contents = {name: text for name, text in KUAIREC_FILES.items() if name != "big_matrix.csv"}
    data = load_kuairec(kuairec_at(tmp_path, "zip in data", contents))
    assert data.big is None
    assert not data.partial
    assert data.videos.tolist() == [3, 9]


BAD_WATCHED = {
    "a column missing": (
        NAMES.replace("watch_ratio", "ratio"),
        ShapeError,
        "watch_ratio too; it has user_id, .*, ratio",
    ),
    "a file without lines": ("", ShapeError, "must have columns user_id, video_id, watch_ratio"),
    "no rows": (NAMES, ShapeError, "has no rows"),
    "a word": (watched(*SMALL_ROWS, (7, 3, "much")), DataTypeError, "watch_ratio of .* number; line 7 has 'much'"),
    "an id that is a word": (watched((7, 9, 1), ("x", 3, 1)), DataTypeError, "user_id of .* integer; line 3 has 'x'"),
    "no ratio": (watched((7, 9, 1), (7, 3, "")), NonFiniteError, "line 3 has no value"),
    "NaN": (watched((7, 9, 1), (7, 3, 1), (7, 4, "nan")), NonFiniteError, "line 4 has no value"),
    "infinity": (watched((7, 9, "inf")), NonFiniteError, "must be finite; line 2 has inf"),
    "a negative ratio": (watched((7, 9, 1), (7, 3, -0.5)), RangeError, r"not be negative; line 3 has -0\.5"),
    "a short line": (watched(*SMALL_ROWS) + "7,3\n", ShapeError, "must have 8 columns; line 7 has 2"),
    "an empty line": (
        watched(*SMALL_ROWS) + "\n" + "7,3,1,1,,1,1,1\n",
        InputError,
        "user_id of .* line 7 has no value",
    ),
}


@pytest.mark.parametrize("name", BAD_WATCHED)
@pytest.mark.parametrize("file", ["small_matrix.csv", "big_matrix.csv"])
def test_a_wrong_matrix_is_refused_by_file_and_line(tmp_path, name, file):
    text, error, message = BAD_WATCHED[name]
    path = kuairec_at(tmp_path, "zip in data", KUAIREC_FILES | {file: text})
    with pytest.raises(error, match=message) as caught:
        load_kuairec(path)
    assert file in str(caught.value)
    assert "Zenodo" in str(caught.value)
    assert isinstance(caught.value, InputError)


BAD_CATEGORIES = {
    "code": ('video_id,feat\n3,"[8]"\n9,"__import__(\'os\').getcwd()"\n', DataTypeError, "line 3 has __import__"),
    "words": ('video_id,feat\n3,"[a, b]"\n', DataTypeError, r"such as \[27, 9\]; line 2"),
    "a list not closed": ('video_id,feat\n3,"[1, 2"\n', DataTypeError, "line 2"),
    "an empty list item": ('video_id,feat\n3,"[1,,2]"\n', DataTypeError, "line 2"),
    "a video twice": ("video_id,feat\n3,[1]\n9,[2]\n3,[2]\n", InputError, "each video once; line 4 has 3"),
    "no column": ("video_id,tags\n3,[1]\n", ShapeError, "feat too; it has video_id, tags"),
}


@pytest.mark.parametrize("name", BAD_CATEGORIES)
def test_wrong_categories_are_refused_by_line(tmp_path, name):
    text, error, message = BAD_CATEGORIES[name]
    with pytest.raises(error, match=message):
        load_kuairec(kuairec_at(tmp_path, "folder", KUAIREC_FILES | {"item_categories.csv": text}))


def test_a_missing_or_damaged_kuairec_file_is_named(tmp_path):
    contents = {name: text for name, text in KUAIREC_FILES.items() if name != "item_categories.csv"}
    with pytest.raises(DataFileError, match=r"KuaiRec\.zip does not hold item_categories\.csv\. .*Zenodo.*432 MB"):
        load_kuairec(kuairec_at(tmp_path, "zip", contents))
    with pytest.raises(DataFileError, match=r"small_matrix\.csv is not in .*KuaiRec 2\.0/data/.*KuaiRec\.zip"):
        load_kuairec(unpack(tmp_path / "empty", {"note.txt": ""}))
    large = {"big_matrix.csv": watched(*((k, 3, 0.5) for k in range(2000)))}
    path = pack(tmp_path / "spoilt" / "KuaiRec.zip", KUAIREC_FILES | large, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"1999,3,", b"1998,3,"))
    with pytest.raises(DataFileError, match=r"big_matrix\.csv cannot be read from .*CRC"):
        load_kuairec(path)


def write_part(folder, watched_columns, category_columns):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(watched_columns), folder / "small_matrix_subsample_watch_ratio.parquet")
    pq.write_table(pa.table(category_columns), folder / "kuairec_caption_category.parquet")
    return folder


PART = dict(
    user_id=pa.array([5, 5, 1], pa.int16()), video_id=pa.array([9, 4, 9], pa.int16()), watch_ratio=[1.0, 0.5, 2.0]
)
PATHS = dict(
    video_id=[4, 9, 11],
    first_level_category_id=[8, -124, 1],
    second_level_category_id=[673, -124, 2],
    third_level_category_id=[-124, -124, 3],
)


def test_the_part_of_the_small_matrix_is_read_where_the_whole_is_not_there(tmp_path):
    data = load_kuairec(write_part(tmp_path, PART, PATHS))
    assert data.partial
    assert data.big is None
    assert data.users.tolist() == [1, 5]
    assert data.videos.tolist() == [4, 9]
    assert_array_equal(data.matrix(data.small).toarray(), [[0, 1], [0.5, 1]])
    assert data.categories == [(8, 673), ()]
    unpack(tmp_path, KUAIREC_FILES)
    assert not load_kuairec(tmp_path).partial


def test_a_wrong_part_is_refused_by_file_and_row(tmp_path):
    bad = {
        "row 1 has -0.5": (PART | dict(watch_ratio=[1.0, -0.5, 2.0]), RangeError),
        "row 2 has no value": (PART | dict(watch_ratio=[1.0, 0.5, None]), NonFiniteError),
        "row 0 has nan": (PART | dict(watch_ratio=[np.nan, 0.5, 1.0]), NonFiniteError),
        "column user_id of .* must be integer; it is string": (PART | dict(user_id=list("abc")), DataTypeError),
        "must have columns watch_ratio too; it has user_id, video_id": (
            {name: PART[name] for name in ("user_id", "video_id")},
            ShapeError,
        ),
    }
    for message, (columns, error) in bad.items():
        with pytest.raises(error, match=message):
            load_kuairec(write_part(tmp_path, columns, PATHS))
    (tmp_path / "small_matrix_subsample_watch_ratio.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataFileError, match=r"subsample.*cannot be read as Parquet"):
        load_kuairec(tmp_path)


@needs_real_data
def test_the_real_part_of_kuairec_has_the_published_counts():
    data = load_kuairec(REAL / "kuairec")
    assert data.partial
    assert (len(data.users), len(data.videos), len(data.small)) == (1411, 2519, 117_113)
    assert_array_equal(np.bincount(data.small.user_rows), 83)
    scores = data.matrix(data.small)
    assert_allclose(scores.max(axis=1).toarray(), 1.0)
    assert scores.min() == 0.0
    raw = pq.read_table(REAL / "kuairec" / "small_matrix_subsample_watch_ratio.parquet").to_pylist()
    table = {(row["user_id"], row["video_id"]): row["watch_ratio"] for row in raw}
    for k in range(0, len(data.small), 997):
        pair = data.users[data.small.user_rows[k]], data.videos[data.small.video_rows[k]]
        assert data.small.watch_ratio[k] == table[pair]
    assert {len(path) for path in data.categories} <= {0, 1, 2, 3}
    assert sum(len(path) > 0 for path in data.categories) > 2400


# --- Open Bandit Dataset

LOG_NAMES = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,"
LOG_NAMES += "user_feature_3,user-item_affinity_0,user-item_affinity_1,user-item_affinity_2\n"

ROUNDS = [
    ("2019-11-24 00:00:20.004101+00:00", 2, 3, 0, 0.25, "b", "x", "p", "q"),
    ("2019-11-24 00:00:10+00:00", 0, 1, 1, 0.5, "a", "x", "p", "r"),
    ("2019-11-24 00:00:30.5+00:00", 1, 2, 0, 1.0, "b", "y", "p", ""),
    ("2019-11-24 00:00:20.004101+00:00", 1, 1, 0, 1e-6, "b", "x", "p", "q"),
]

ITEMS = (
    ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3\n0,2,0.5,k,l,m\n1,0,-0.5,k,l,n\n2,1,0,i,j,m\n"
)


def log_text(*rounds):
    lines = (",".join(map(str, (k, *fields, 0.0, 0.0, 1.0))) for k, fields in enumerate(rounds))
    return LOG_NAMES + "".join(f"{line}\n" for line in lines)


def open_bandit_at(root, layout="folder", log=None, items=ITEMS, key="random/all"):
    campaign = key.partition("/")[2]
    log = log_text(*ROUNDS) if log is None else log
    contents = {f"{key}/{campaign}.csv": log, f"{key}/item_context.csv": items}
    kind, _, folder = layout.partition(" in ")
    placed = {f"{folder}/{name}" if folder else name: text for name, text in contents.items() if text is not None}
    return unpack(root / "x", placed) if kind == "folder" else pack(root / "open_bandit_dataset.zip", placed)


def flat_at(root, policy="random", campaign="all", **changes):
    """The same rounds as Parquet, with times as text."""
    names = LOG_NAMES.strip().split(",")[1:10]
    columns = dict(zip(names, map(list, zip(*ROUNDS, strict=True)), strict=True)) | changes
    large = {name: pa.array(c, pa.large_string()) if isinstance(c[0], str) else c for name, c in columns.items()}
    pq.write_table(pa.table(large), root / f"{policy}_{campaign}.parquet")
    items = dict(item_id=[2, 0, 1], item_feature_0=[0.5, -0.5, 0.0])
    items |= {f"item_feature_{k}": list(texts) for k, texts in ((1, "kki"), (2, "llj"), (3, "mnm"))}
    pq.write_table(pa.table(items), root / f"{policy}_{campaign}_item_context.parquet")
    return root


OPEN_BANDIT_LAYOUTS = [f"{kind}{folder}" for kind in ("folder", "zip")
                       for folder in ("", " in open_bandit_dataset", " in obd")]  # fmt: skip


@pytest.mark.parametrize("layout", [*OPEN_BANDIT_LAYOUTS, "parquet"])
def test_open_bandit_is_read_in_every_layout_in_order_of_time(tmp_path, layout):
    path = flat_at(tmp_path) if layout == "parquet" else open_bandit_at(tmp_path, layout)
    log = load_open_bandit(path)
    assert log.items.tolist() == [0, 1, 2]
    assert log.item_features["item_feature_0"].tolist() == [-0.5, 0.0, 0.5]
    assert log.item_features["item_feature_1"].tolist() == ["k", "i", "k"]
    assert log.item_features["item_feature_3"].tolist() == ["n", "m", "m"]
    # Rounds at the same time stay in the order of the file.
    assert log.actions.tolist() == [0, 2, 1, 1]
    assert log.positions.tolist() == [0, 2, 0, 1]
    assert log.clicks.tolist() == [1, 0, 0, 0]
    assert log.propensities.tolist() == [0.5, 0.25, 1e-6, 1.0]
    assert log.user_features.tolist() == [[*"axpr"], [*"bxpq"], [*"bxpq"], ["b", "y", "p", ""]]
    assert log.timestamps[1] == np.datetime64("2019-11-24T00:00:20.004101")
    assert len(log) == 4
    with pytest.raises(ValueError, match="read-only"):
        log.clicks[0] = 1


def test_texts_that_first_occur_in_a_later_block_are_levels_too(tmp_path, monkeypatch):
    rounds = [(*ROUNDS[1][:5], f"{k % 7}", f"{k // 20}", "p", f"{99 - k}") for k in range(100)]
    monkeypatch.setattr(read_columns, "BLOCK", 1000)
    log = load_open_bandit(open_bandit_at(tmp_path, log=log_text(*rounds)))
    assert log.user_features.tolist() == [list(fields[5:]) for fields in rounds]
    assert log.user_levels[1] == ("0", "1", "2", "3", "4")
    assert log.user_levels[3] == tuple(sorted(map(str, range(100))))


def test_campaigns_and_policies_have_files_of_their_own(tmp_path):
    for key, item in (("random/all", 0), ("bts/all", 1), ("bts/men", 2)):
        open_bandit_at(tmp_path, log=log_text((ROUNDS[0][0], item, *ROUNDS[0][2:])), key=key)
    for policy, campaign, item in (("random", "all", 0), ("bts", "all", 1), ("bts", "men", 2)):
        assert load_open_bandit(tmp_path / "x", policy=policy, campaign=campaign).actions.tolist() == [item]
    with pytest.raises(DataFileError, match=r"random/women/item_context\.csv is not in .*ZOZO.*413 MB"):
        load_open_bandit(tmp_path / "x", campaign="women")
    for wrong in (dict(campaign="kids"), dict(policy="uniform")):
        with pytest.raises(InputError, match="one of"):
            load_open_bandit(tmp_path / "x", **wrong)


def test_contexts_are_one_hot(tmp_path):
    log = load_open_bandit(open_bandit_at(tmp_path))
    data = log.logged_data()
    assert_array_equal(data.contexts, np.eye(3)[log.positions])
    assert data.n_actions == 3
    assert_array_equal(data.rewards, log.clicks)
    assert_array_equal(data.propensities, log.propensities)
    assert_array_equal(data.actions, log.actions)
    both = log.logged_data("position+user")
    #                           position  a  b   x  y   p  ""  q  r
    assert_array_equal(both.contexts, [[1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1],
                                       [0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0],
                                       [1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0],
                                       [0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0]])  # fmt: skip
    with pytest.raises(InputError, match="features must be"):
        log.logged_data("user")


def test_two_logs_share_columns_when_levels_are_merged(tmp_path):
    one = load_open_bandit(open_bandit_at(tmp_path))
    texts = (*"czpq",)
    other = load_open_bandit(open_bandit_at(tmp_path / "other", log=log_text((*ROUNDS[0][:5], *texts), ROUNDS[1])))
    levels = merge_levels(one, other)
    assert levels == (("a", "b", "c"), ("x", "y", "z"), ("p",), ("", "q", "r"))
    columns = [(k, text) for k in range(4) for text in levels[k]]
    for log in (one, other):
        contexts = log.logged_data("position+user", levels=levels).contexts
        assert_array_equal(contexts[:, 3:], [[row[k] == text for k, text in columns] for row in log.user_features])
    with pytest.raises(InputError, match=r"user_feature_0 must have 'c' too.*merge_levels"):
        other.logged_data("position+user", levels=one.user_levels)
    with pytest.raises(ShapeError, match="4 lists"):
        one.logged_data("position+user", levels=levels[:2])


def changed(place, value):
    return log_text(ROUNDS[0], tuple(value if k == place else old for k, old in enumerate(ROUNDS[1])))


BAD_LOGS = {
    "a click of 2": (changed(3, 2), RangeError, "click of .*must be 0 or 1; line 3 has 2"),
    "a click that is a word": (changed(3, "yes"), DataTypeError, "click of .*line 3 has 'yes'"),
    "a propensity of 0": (changed(4, 0.0), PropensityError, r"\(0, 1\]; line 3 has 0"),
    "a propensity above 1": (changed(4, 1.5), PropensityError, r"line 3 has 1\.5"),
    "a propensity that is NaN": (changed(4, "nan"), NonFiniteError, "line 3"),
    "no propensity": (changed(4, ""), NonFiniteError, "line 3 has no value"),
    "an unknown item": (changed(1, 7), ActionError, "item_id of .* must be in item_context; line 3 has 7"),
    "a position 0": (changed(2, 0), RangeError, "must be 1 to 3; line 3 has 0"),
    "a position 4": (changed(2, 4), RangeError, "line 3 has 4"),
    "a time that is none": (changed(0, "yesterday"), DataTypeError, "time; line 3 has 'yesterday'"),
    "a column missing": (LOG_NAMES.replace("click,", "clicks,"), ShapeError, "columns click too; it has , timestamp"),
    "no rows": (LOG_NAMES, ShapeError, "has no rows"),
}


@pytest.mark.parametrize("name", BAD_LOGS)
def test_a_wrong_log_is_refused_by_file_and_line(tmp_path, name):
    text, error, message = BAD_LOGS[name]
    with pytest.raises(error, match=message) as caught:
        load_open_bandit(open_bandit_at(tmp_path, "zip in obd", log=text))
    assert "random/all/all.csv" in str(caught.value)
    assert "ZOZO" in str(caught.value)


def test_wrong_item_contexts_are_refused(tmp_path):
    for items, error, message in (
        (ITEMS + "3,2,0,a,b,c\n", InputError, r"item_context\.csv must have each item once; line 5 has 2"),
        (ITEMS.replace("item_feature_2", "feature"), ShapeError, "item_feature_2 too"),
        (ITEMS.replace("-0.5", "low"), DataTypeError, "item_feature_0 .*line 3 has 'low'"),
        (None, DataFileError, "item_context"),
    ):
        for path in (tmp_path / "x").rglob("*.csv"):
            path.unlink()
        with pytest.raises(error, match=message):
            load_open_bandit(open_bandit_at(tmp_path, items=items))


def test_a_wrong_flat_log_is_refused_by_row(tmp_path):
    for changes, error, message in (
        (dict(click=[0, 1, 2, 0]), RangeError, rf"click of {tmp_path}/random_all\.parquet must be 0 or 1; row 2 has 2"),
        (dict(click=[0.0, 1.0, 1.0, 0.0]), DataTypeError, "click of .* must be integer; it is double"),
        (dict(timestamp=["2019-11-24 00:00:20+00:00", "x", "y", "z"]), DataTypeError, "timestamp of .* must be time"),
        (dict(propensity_score=[0.5, None, 1.0, 1.0]), NonFiniteError, "row 1 has no value"),
        (dict(user_feature_1=["a", "b", None, "c"]), InputError, "row 2 has no value"),
    ):
        with pytest.raises(error, match=message):
            load_open_bandit(flat_at(tmp_path, **changes))


@needs_real_data
@pytest.mark.parametrize("campaign, n_items", [("all", 80), ("men", 34), ("women", 46)])
def test_real_logs_have_the_published_counts(campaign, n_items):
    logs = {policy: load_open_bandit(REAL / "obd", campaign=campaign, policy=policy) for policy in ("random", "bts")}
    for log in logs.values():
        assert (len(log), len(log.items)) == (10_000, n_items)
        assert (np.diff(log.timestamps) >= np.timedelta64(0)).all()
        assert_allclose(log.logged_data("position+user").contexts.sum(axis=1), 5.0)
    assert_allclose(logs["random"].propensities, 1 / n_items, rtol=1e-12)
    if campaign == "all":
        assert_allclose([logs["random"].clicks.mean(), logs["bts"].clicks.mean()], [0.0038, 0.0042], rtol=1e-12)
    # The texts of item features differ between the two logs, but group items in the same way.
    random, bts = (logs[policy].item_features for policy in ("random", "bts"))
    assert_array_equal(random["item_feature_0"], bts["item_feature_0"])
    for name in ("item_feature_1", "item_feature_2", "item_feature_3"):
        assert not set(random[name]) & set(bts[name])
        assert len(set(random[name])) == len(set(bts[name])) == len(set(zip(random[name], bts[name], strict=True)))
    shared = merge_levels(*logs.values())
    sizes = {log.logged_data("position+user", levels=shared).dim for log in logs.values()}
    assert len(sizes) == 1


def test_the_owners_csv_gives_what_the_flat_file_gives(tmp_path):
    flat, owners = load_open_bandit(flat_at(tmp_path)), load_open_bandit(open_bandit_at(tmp_path / "csv"))
    for name in ("actions", "positions", "clicks", "propensities", "user_rows", "timestamps"):
        assert_array_equal(getattr(flat, name), getattr(owners, name))
    assert flat.user_levels == owners.user_levels


def test_a_file_that_cannot_be_taken_apart_is_a_typed_error(tmp_path):
    long = "\n".join(f"{i},{i},1,1,t,d,0.0,1.0" for i in range(20_000))
    for damage in (f'{NAMES}{long}\n"1,2,3\n{long}', f"{NAMES}{long}\n1,x".replace("\n", "\r")):
        folder = kuairec_at(tmp_path / str(len(damage)), "folder", {**KUAIREC_FILES, "small_matrix.csv": damage})
        with pytest.raises(InputError, match=r"small_matrix\.csv"):
            load_kuairec(folder)
