"""Saving replaces the file as a whole: whatever goes wrong, it is the old one or the new one."""

import errno
import io
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from saved_models import (
    again,
    brief,
)

import manyarms as ma
from manyarms import errors
from manyarms._base import files as _files


class Full(io.FileIO):
    """A disk with little room left."""

    room = 0

    def write(self, data):
        if Full.room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        Full.room -= len(data)
        return super().write(data)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_full_disk_is_reported_and_the_old_file_is_unchanged(share, tmp_path, model, content, monkeypatch):
    path = tmp_path / "model"
    ma.Uniform(5).save(path)
    before = path.read_bytes()
    Full.room = int(share * len(content))
    monkeypatch.setattr(_files, "open", lambda where, mode: io.BufferedWriter(Full(where, mode)), raising=False)
    with pytest.raises(errors.ModelFileError, match=r"model could not be written: No space left on device\.") as caught:
        model.save(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_a_file_size_limit_is_reported(tmp_path, model):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(errors.ModelFileError, match="could not be written: File too large"):
            model.save(tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_at_the_last_moment_leaves_the_old_file(call, tmp_path, model, monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(errors.ModelFileError, match="Input/output error"):
        model.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written_to_are_named(tmp_path, model):
    (tmp_path / "folder").mkdir()
    for name, words in {"folder": "Is a directory", "nowhere/model": "No such file or directory"}.items():
        with pytest.raises(errors.ModelFileError, match=words):
            model.save(tmp_path / name)
    assert os.listdir(tmp_path) == ["folder"]


def test_threads_that_save_to_one_path_at_once_leave_a_whole_file(tmp_path):
    models = [ma.LinearSoftmax(np.full((size, 3), float(size))) for size in (300, 500, 700, 900)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            list(pool.map(lambda model: model.save(tmp_path / "model"), models))
            weights = ma.load(tmp_path / "model").weights
            assert (weights == len(weights)).all()
    assert os.listdir(tmp_path) == ["model"]


def test_a_loaded_model_outlives_its_file(tmp_path, model):
    got = again(model, tmp_path)
    ma.Uniform(5).save(tmp_path / "model.arrow")
    assert brief(got) == brief(model)
    (tmp_path / "model.arrow").unlink()
    assert brief(got) == brief(model)


KILLED = """
import io, os, random, signal, sys, time
import numpy as np
import manyarms as ma
from manyarms._base import files as _files

path, steps = sys.argv[1], 0
rng = np.random.default_rng(0)
old, new = (ma.LinearSoftmax(rng.normal(size=(size, 3))) for size in (40, 60))
contents = {}
for name, policy in (("old", old), ("new", new)):
    policy.save(path)
    contents[open(path, "rb").read()] = name, policy.weights.tobytes()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def killing_at(last):
    def step(before=lambda: None):
        global steps
        steps += 1
        if steps == last:
            before()
            die()

    class Raw(io.FileIO):
        def write(self, data):
            step()
            step(lambda: super(Raw, self).write(bytes(data)[: len(data) // 2]))
            return super().write(data)

    def watched(call):
        def run(*args):
            step()
            out = call(*args)
            step()
            return out
        return run

    _files.open = lambda where, mode: io.BufferedWriter(Raw(where, mode), 256)
    os.fsync, os.replace = watched(os.fsync), watched(os.replace)

def child(prepare):
    number = os.fork()
    if number:
        return number
    prepare()
    while True:
        new.save(path)
        if prepare is not nothing:
            os._exit(0)
        old.save(path)

def nothing():
    pass

def found():
    assert ma.load(path).weights.tobytes() == contents[open(path, "rb").read()][1]
    return contents[open(path, "rb").read()][0]

seen, last = [], 0
while True:
    last += 1
    old.save(path)
    _, status = os.waitpid(child(lambda: killing_at(last)), 0)
    seen.append(found())
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
print(len(seen), *seen)
chance = random.Random(0)
for _ in range(25):
    number = child(nothing)
    time.sleep(chance.uniform(0.001, 0.05))
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    print(found())
"""


def test_a_process_killed_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    by_step, *by_chance = done.stdout.splitlines()
    count, *seen = by_step.split()
    # Before the rename the old one, after it the new one.
    assert int(count) > 20
    assert seen == ["old"] * seen.count("old") + ["new"] * seen.count("new")
    assert seen.count("new") >= 2
    assert len(by_chance) == 25
    assert set(by_chance) == {"old", "new"}
