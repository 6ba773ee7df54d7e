"""The checks of the campaign, in the order of the page."""

from __future__ import annotations

from trust.check import Check
from trust.mutations import CHECKS as MUTATIONS

CHECKS: tuple[Check, ...] = (*MUTATIONS,)
