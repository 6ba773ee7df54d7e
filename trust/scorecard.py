"""The checks of the campaign, in the order of the page."""

from __future__ import annotations

from itertools import chain

from trust import (
    calibration,
    coverage_levels,
    exactness,
    faults,
    hostile_commands,
    hostile_inputs,
    invariance,
    load,
    mutations,
    outside_software,
)
from trust.check import Check

_FILES = (
    exactness, calibration, coverage_levels, outside_software, invariance, mutations, hostile_inputs, hostile_commands,
    faults, load,
)  # fmt: skip

CHECKS: tuple[Check, ...] = tuple(chain.from_iterable(file.CHECKS for file in _FILES))
