"""The checks of the campaign, in the order of the page."""

from __future__ import annotations

from trust import calibration, coverage_levels, exactness, invariance, outside_software
from trust.check import Check

CHECKS: tuple[Check, ...] = (
    *(*exactness.CHECKS, *calibration.CHECKS, *coverage_levels.CHECKS, *outside_software.CHECKS, *invariance.CHECKS),
)
