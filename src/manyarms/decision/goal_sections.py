"""The section of the report on goals: guardrails, the best of all policies, and what choosing another one costs."""

from __future__ import annotations

from typing import Any

from manyarms.core.result_tables import number, percent, signed_number
from manyarms.decision.guardrail import GuardrailResult, limit_words
from manyarms.decision.report_parts import Charts, TableCell, estimate_cell, number_cell, table
from manyarms.jobs.evaluate import CURRENT


def goals_section(decision: Any, _: Charts) -> str:
    """Guardrails and choices as tables; empty if there is neither."""
    choices = decision.evaluation.choices
    html = ""
    if decision.guardrails:
        columns = {
            "Goal": lambda row: TableCell(row.name),
            "Policy": lambda row: TableCell(row.policy),
            "Guardrail": lambda row: TableCell("holds" if row.holds else "blocks", css=f"light {_colour(row)}"),
            "Probability": lambda row: number_cell(row.probability, percent),
            "Needed": lambda row: number_cell(row.sure, percent),
            "Change per round [95 % interval]": lambda row: estimate_cell(row.change, signed_number),
            "Limit": lambda row: TableCell(limit_words(row)),
        }
        html += "<p>A policy is shipped only if every guardrail holds with the needed probability.</p>"
        html += table("Guardrails", decision.guardrails, columns)
    if len(choices) > 1:
        columns = {
            "Policy": lambda name: TableCell(CURRENT if name == decision.evaluation.baseline.name else name),
            "Probability of being the best": lambda name: number_cell(choices[name].probability_best, percent),
            "Expected loss per round": lambda name: number_cell(choices[name].expected_loss, number),
        }
        heading = "<h3>The best of all policies</h3>" if html else ""
        html += heading + table("The best of all policies", list(choices), columns)
        html += (
            "<p><strong>Expected loss</strong>: the reward per round that is given up on average by choosing this "
            "policy and not the best one.</p>"
        )
    return html


def _colour(row: GuardrailResult) -> str:
    return "green" if row.holds else "red" if row.is_broken else "amber"
