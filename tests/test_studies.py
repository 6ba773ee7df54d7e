"""The short form of the studies: the long ones are make targets of their own."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "studies"))


def test_intervals_cover_as_often_as_they_say():
    """200 problems: at a coverage of 95 %, a share below 90 % has a chance of two in a thousand."""
    from coverage import run

    for name, (on_contexts, in_population) in run(200, seed=1).items():
        assert 0.90 < on_contexts <= 0.995, name
        assert in_population > 0.90, name


def test_setting_one_agrees_with_its_reference_figures():
    """Few instances of the smaller catalog: means within four joint standard errors."""
    import numpy as np
    from setting_one import REFERENCE, instance

    from manyarms.datasets import SyntheticProblem

    problem = SyntheticProblem(n_actions=100)
    runs = [instance(problem, rng) for rng in np.random.default_rng(5).spawn(12)]
    for name, (mean, error) in REFERENCE[100, 1000].items():
        values = [run[1000, name] for run in runs]
        joint = np.hypot(error, np.std(values, ddof=1) / np.sqrt(len(values)))
        assert np.mean(values) == pytest.approx(mean, abs=4 * joint), name
