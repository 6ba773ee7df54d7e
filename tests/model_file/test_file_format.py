"""A model file is an Arrow file of aligned arrays and a description; it holds no code."""

import json
import os
import pickle
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from saved_models import FORMS, D, K, again, bits, categories, rounds, with_features

import manyarms as ma
from manyarms import errors
from manyarms.model_file import arrow_file
from manyarms.model_file.save import describe


def test_an_arrow_reader_finds_the_description_and_the_arrays_aligned(tmp_path, content):
    (tmp_path / "model").write_bytes(content)
    with pa.memory_map(str(tmp_path / "model")) as file:
        reader = pa.ipc.open_file(file)
        said = reader.schema.metadata
        assert (said[b"format"], said[b"format_version"]) == (b"manyarms model", b"1")
        assert said[b"written_by"].decode() == f"manyarms {ma.__version__}"
        description = json.loads(said[b"description"])
        assert description["model"]["objects"][-1]["kind"] == "epsilon-greedy"
        for entry in description["arrays"]:
            if entry["batch"] is not None:
                assert reader.get_batch(entry["batch"]).column(0).buffers()[1].address % 64 == 0


def test_arrays_keep_their_memory_layout_in_the_file(tmp_path):
    numbers = np.arange(24.0).reshape(2, 3, 4)
    arrays = [
        numbers, np.asfortranarray(numbers), numbers.transpose(1, 0, 2), numbers[:, ::2, 1:3], numbers[:, ::-1],
        np.broadcast_to(np.float64(3.0), (5, 1, 1)), np.broadcast_to(numbers[:, None], (2, 7, 3, 4)),
        np.array(2.5), np.empty((3, 0, 2)), np.array([True, False]), np.array(["a", "bcd"]), np.array(["", ""])[:0],
        np.array(["2020-01-01", "NaT"], "datetime64[s]"), np.arange(3, dtype=np.uint64), np.array([np.nan, -0.0]),
        np.zeros(arrow_file.PIECE // 4), np.array([b"ab"]),
    ]  # fmt: skip
    arrow_file.write(tmp_path / "file", {"any": 1}, arrays)
    said, found = arrow_file.read(tmp_path / "file")
    assert said == {"any": 1}
    for array, got in zip(arrays, found, strict=True):
        assert bits(got) == bits(array)
        assert not got.flags.writeable
        # The same axis is the slowest, and one value that stood for all still does.
        steps = [[abs(step) for step, n in zip(a.strides, a.shape, strict=True) if n > 1] for a in (got, array)]
        if array.size:
            assert np.argsort(steps[0]).tolist() == np.argsort(steps[1]).tolist()
            assert [step == 0 for step in steps[0]] == [step == 0 for step in steps[1]]


def test_arrays_are_views_of_the_file_and_cannot_be_written_to(tmp_path, model):
    weights = again(model, tmp_path).policy.posterior.weights
    arrays = weights.latent_mean, weights.gains[0], weights.mixing.weights.data, weights.observed.groups[0].root
    for array in arrays:
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0


def test_objects_are_never_made_from_bytes(tmp_path, monkeypatch):
    address = {"dtype": "|O", "shape": [1], "batch": 2, "repeated": [], "order": [0], "crc32": [zlib.crc32(b"8" * 8)]}
    monkeypatch.setattr(arrow_file, "_entries", lambda arrays: [address])
    arrow_file.write(tmp_path / "model", {"objects": []}, [np.frombuffer(b"8" * 8, np.uint8)])
    with pytest.raises(errors.ModelFileError, match="is damaged"):
        ma.load(tmp_path / "model")


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def forbidden(*args, **options):
        raise AssertionError("pickled")

    posterior, _ = with_features(np.random.default_rng(0))
    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    got = again(ma.Thompson(posterior, 10, rng=np.random.default_rng(0)), tmp_path)
    assert got.posterior.catalog.ids[0] == "item 0"


@dataclass(frozen=True)
class Mine(ma.Gaussian):
    """A likelihood that no file can bring back."""


def test_a_model_that_cannot_be_saved_is_refused_and_the_file_is_unchanged(tmp_path):
    logs = rounds(np.random.default_rng(0))
    posterior = ma.fit(logs, categories(None))
    hierarchy = ma.NonlinearHierarchy(np.zeros(D), 1.0, lambda psi, items: np.tile(psi, (len(items), 1)), 0.1, K, D)
    found = ma.learn_prior(logs, categories(None))
    refusals = {
        "NonlinearPosterior cannot be saved. Its functions are code": ma.fit_nonlinear(logs, hierarchy),
        "Logged cannot be saved. It repeats the rows of a log": ma.Logged(logs),
        "Logged cannot be saved": ma.EpsilonGreedy(ma.Logged(logs), 0.1),
        "a TablePolicy of 2 rows cannot be saved": ma.TablePolicy(np.full((2, K), 1 / K)),
        "Mine cannot be saved. Model files hold manyarms' own kinds": ma.Greedy(ma.fit(logs, categories(None), Mine())),
        "LearnedPrior cannot be saved. Save its .posterior": found,
        "AveragedPosterior cannot be saved. Save its .posterior": found.averaged(4, rng=np.random.default_rng(0)),
    }
    posterior.save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    for words, model in refusals.items():
        with pytest.raises(errors.DataTypeError, match=words):
            model.save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]


def test_numbers_of_numpy_and_infinity_are_saved_as_what_they_are(tmp_path, own_errors):
    posterior = FORMS["independent"](np.random.default_rng(0))[0]
    for given, kept in ((np.float32(1.5), 1.5), (-np.inf, -np.inf)):
        replace(posterior, evidence_offset=given).save(tmp_path / "model")
        again = ma.load(tmp_path / "model").evidence_offset
        assert again == kept and type(again) is float


def test_a_part_that_cannot_be_saved_is_named_and_the_file_left_as_it_is(tmp_path, own_errors):
    posterior = FORMS["independent"](np.random.default_rng(0))[0]
    (tmp_path / "model").write_text("mine")
    with pytest.raises(errors.DataTypeError, match="evidence_offset cannot be saved: it is a Fraction"):
        replace(posterior, evidence_offset=Fraction(1, 2)).save(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_a_file_that_the_system_cannot_open_is_reported_with_its_reason(tmp_path):
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(errors.ModelFileError, match="loop could not be read: Too many levels of symbolic links"):
        ma.load(tmp_path / "loop")


def test_a_model_goes_to_another_process_as_bytes_and_comes_back_the_same(own_errors):
    description, arrays = describe(FORMS["taxonomy"](np.random.default_rng(0))[0])
    again, copies = arrow_file.from_bytes(arrow_file.to_bytes(description, arrays))
    assert again == json.loads(json.dumps(description))
    assert bits(list(copies)) == bits(list(arrays))
    data = bytearray(arrow_file.to_bytes(description, arrays))
    data[len(data) // 2] ^= 1
    with pytest.raises(errors.ModelFileError, match="the data from another process is damaged"):
        arrow_file.from_bytes(bytes(data))
