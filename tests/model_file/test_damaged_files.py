"""A damaged file, or one that is not a model file, is refused in one line that names it."""

import json
import os
import pickle

import numpy as np
import pyarrow as pa
import pytest
from saved_models import brief, refused

import manyarms as ma
from manyarms import errors
from manyarms.model_file import arrow_file
from manyarms.model_file.save import describe


def test_a_changed_byte_is_noticed_or_does_not_matter(tmp_path, content, model):
    rng, expected = np.random.default_rng(0), brief(model)
    edges = [*range(0, 300, 3), *range(len(content) - 400, len(content), 2)]
    unnoticed = 0
    for i, place in enumerate([*edges, *rng.integers(0, len(content), 1000).tolist()]):
        damaged = bytearray(content)
        damaged[place] ^= (1, 128, 255, 32)[i % 4]
        found = refused(tmp_path / str(i), bytes(damaged))
        assert found in (None, expected)
        unnoticed += found is not None
    assert unnoticed < 400  # the padding of arrays, and what Arrow says of batches twice


def test_no_byte_of_the_numbers_or_the_description_can_change_unnoticed(tmp_path, content, model):
    (tmp_path / "model").write_bytes(content)
    with pa.memory_map(str(tmp_path / "model")) as file:
        start = file.read_buffer(1).address
        reader = pa.ipc.open_file(file)
        text = reader.schema.metadata[b"description"]
        entries = [entry for entry in json.loads(text)["arrays"] if entry["batch"] is not None]
        buffers = [reader.get_batch(entry["batch"]).column(0).buffers()[1] for entry in entries]
        places = [(buffer.address - start, buffer.size) for buffer in buffers]
    first, second = content.index(text), content.rindex(text)
    places += [(first, len(text)), (second, len(text))]
    rng = np.random.default_rng(1)
    for i in range(400):
        start, size = places[i % len(places)]
        damaged = bytearray(content)
        damaged[start + int(rng.integers(size))] ^= 1 << int(rng.integers(8))
        assert refused(tmp_path / str(i), bytes(damaged)) is None
    # In both copies alike, a digit is another digit.
    for i, place in enumerate(place for place in range(len(text)) if text[place : place + 1].isdigit()):
        damaged = bytearray(content)
        for copy in (first, second):
            damaged[copy + place] ^= 1
        assert refused(tmp_path / f"both {i}", bytes(damaged)) is None


def test_a_file_cut_short_anywhere_is_refused(tmp_path, content):
    lengths = {*range(0, len(content), len(content) // 300), *range(20), *range(len(content) - 50, len(content))}
    for length in lengths:
        assert refused(tmp_path / str(length), content[:length]) is None
    # Filled up with zeros, as a file system may leave it after a power cut.
    for length in range(100, len(content), len(content) // 40):
        assert refused(tmp_path / f"zeros {length}", content[:length].ljust(len(content), b"\0")) is None


def test_a_file_that_is_not_a_model_file_is_refused_in_one_line(tmp_path, content):
    table = pa.table({"a": [1, 2]})
    with pa.ipc.new_file(tmp_path / "table", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "pickle").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "longer").write_bytes(content + b"ARROW1")
    os.mkfifo(tmp_path / "pipe")
    problems = {
        "nowhere": "does not exist",
        "": "is a folder",
        "empty": "is empty",
        "text": r"is not a model file\. Pass a file written by save\(\)",
        "pickle": r"is not a model file\. Pass a file written by save\(\)",
        "table": "is an Arrow file, but not a model file",
        "longer": "is damaged",
        "pipe": "is not a regular file",
    }
    for name, words in problems.items():
        with pytest.raises(errors.ModelFileError, match=words) as caught:
            ma.load(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert issubclass(errors.ModelFileError, errors.DataFileError)
    with pytest.raises(errors.DataTypeError, match="path must be a string or a Path; got int"):
        ma.load(3)
    for nothing in ("", "/", "a\0b"):
        with pytest.raises(errors.ModelFileError, match="path must name a file"):
            ma.load(nothing)


def test_a_description_without_sense_is_refused_though_its_checksum_is_right(tmp_path, model):
    """Whoever writes a checksum can write anything above it."""
    rng = np.random.default_rng(0)
    strange = [None, -1, 10**6, "x", [], {}, 1.5, {"array": 0}, {"object": 0}, {"array": -1}, {"object": 10**9}]
    for i in range(150):
        described, arrays = describe(model)
        parts = [entry for entry in described["objects"] for _ in entry["parts"]]
        entry = parts[rng.integers(len(parts))]
        name = list(entry["parts"])[rng.integers(len(entry["parts"]))]
        if i % 5 == 0:
            del entry["parts"][name]
        else:
            entry["parts"][name] = strange[i % len(strange)]
        arrow_file.write(tmp_path / str(i), described, arrays)
        try:
            ma.load(tmp_path / str(i))
        except errors.ModelFileError as error:
            assert str(tmp_path / str(i)) in str(error)
