"""The checks of the campaign, in the order of the page."""

from __future__ import annotations

from trust import exactness
from trust.check import Check

CHECKS: tuple[Check, ...] = (*exactness.CHECKS,)
