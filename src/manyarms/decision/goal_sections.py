"""The sections of the report on other goals, and on which policy is probably the best."""

from __future__ import annotations

from typing import Any

from manyarms.core.result_tables import number, percent, signed_number
from manyarms.decision.guardrail import GuardrailResult, limit_words
from manyarms.decision.report_parts import Charts, TableCell, estimate_cell, number_cell, table
from manyarms.jobs.evaluate import CURRENT


def goals_section(decision: Any, _: Charts) -> str:
    """The guardrails as a table; empty if there are none."""
    if not decision.guardrails:
        return ""
    columns = {
        "Goal": lambda row: TableCell(row.name),
        "Policy": lambda row: TableCell(row.policy),
        "Guardrail": lambda row: TableCell("holds" if row.holds else "blocks", css=f"light {_colour(row)}"),
        "Probability": lambda row: number_cell(row.probability, percent),
        "Needed": lambda row: number_cell(row.sure, percent),
        "Change per round [95 % interval]": lambda row: estimate_cell(row.change, signed_number),
        "Limit": lambda row: TableCell(limit_words(row)),
    }
    return "<p>A policy is shipped only if every guardrail holds with the needed probability.</p>" + table(
        "Guardrails", decision.guardrails, columns
    )


def best_section(decision: Any, _: Charts) -> str:
    """Every policy as a choice among all; empty if there is none to choose from."""
    choices = decision.evaluation.choices
    if len(choices) <= 1:
        return ""
    columns = {
        "Policy": lambda name: TableCell(CURRENT if name == decision.evaluation.baseline.name else name),
        "Probability of being the best": lambda name: number_cell(choices[name].probability_best, percent),
        "Expected loss per round": lambda name: number_cell(choices[name].expected_loss, number),
    }
    return table("Probability of being the best policy", list(choices), columns) + (
        "<p><strong>Expected loss</strong>: the reward per round lost on average by choosing this policy instead of "
        "the best one.</p>"
    )


def _colour(row: GuardrailResult) -> str:
    return "green" if row.holds else "red" if row.is_broken else "amber"
