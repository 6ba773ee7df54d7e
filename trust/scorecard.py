"""The checks of the campaign, in the order of the page."""

from __future__ import annotations

from trust import faults, load
from trust.check import Check

CHECKS: tuple[Check, ...] = (*faults.CHECKS, *load.CHECKS)
