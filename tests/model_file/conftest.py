"""One model and the bytes of its file, shared by the tests of model files."""

from dataclasses import replace

import numpy as np
import pytest
from saved_models import with_features

import manyarms as ma


@pytest.fixture(scope="module")
def model():
    posterior, _ = with_features(np.random.default_rng(0))
    return ma.EpsilonGreedy(ma.Greedy(replace(posterior, catalog=None)), 0.1)


@pytest.fixture(scope="module")
def content(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("content") / "model"
    model.save(path)
    return path.read_bytes()
