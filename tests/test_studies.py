"""The short form of the studies: the long ones are make targets of their own."""

import pytest


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say():
    """200 problems: at a coverage of 95 %, a share below 90 % has a chance of two in a thousand."""
    from interval_coverage import run

    for name, (on_contexts, in_population) in run(200, seed=1).items():
        assert 0.90 < on_contexts <= 0.995, name
        assert in_population > 0.90, name
