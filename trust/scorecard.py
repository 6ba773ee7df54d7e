"""The checks of the campaign, in the order of the page."""

from __future__ import annotations

from trust import hostile_commands, hostile_inputs
from trust.check import Check

CHECKS: tuple[Check, ...] = (*hostile_inputs.CHECKS, *hostile_commands.CHECKS)
