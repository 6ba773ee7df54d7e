"""Downloads, against a server on this machine: whole or not at all."""

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
from dataclasses import replace

import numpy as np
import pytest
from data_set_files import (
    pack,
    unpack,
)

from manyarms.datasets import (
    KUAIREC,
    MOVIELENS_1M,
    OPEN_BANDIT,
    data_files,
    download,
    load_kuairec,
    load_movielens,
    load_open_bandit,
)
from manyarms.errors import (
    DataFileError,
)

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
