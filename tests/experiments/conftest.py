"""Data and files that several tests of experiments use."""

import numpy as np
import pytest
import small_data


@pytest.fixture(scope="session")
def made_up(tmp_path_factory):
    return small_data.write_all(tmp_path_factory.mktemp("data"), np.random.default_rng(0))
