"""The section of the report on trust: checks, diagnostics grouped by kind, prior and categories, and warnings."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from manyarms.core.result_tables import number, share
from manyarms.decision.decide import Decision
from manyarms.decision.diagnostic_lights import Diagnostic
from manyarms.decision.report_parts import (
    Charts,
    Section,
    TableCell,
    count_cell,
    fold,
    folded,
    notes,
    number_cell,
    table,
)
from manyarms.posterior.misfit import SURE, PriorCheck

STATUS = {"red": "● Problem", "amber": "● Caution", "green": "● OK"}
"""Traffic lights in words too, for readers who do not see colours."""
DIAGNOSTICS = {
    "unsupported_mass": "choices of never-logged actions",
    "max_weight_share": "share of the largest weight",
    "evaluated_on_training_rounds": "trained on these rounds",
    "pareto_k": "Pareto k",
}
"""Diagnostics that the report calls by a plainer name."""


def _trust(decision: Decision, charts: Charts) -> str:
    columns = {
        "Status": lambda entry: TableCell(STATUS[entry.colour], css=f"light {entry.colour}"),
        "Policy": lambda entry: TableCell(entry.policy),
        "Estimator": lambda entry: TableCell(entry.estimator),
        "Diagnostic": lambda entry: TableCell(_diagnostic_name(entry)),
        "Value": _diagnostic_cell,
    }
    grouped = _grouped_diagnostics(decision)
    parts = list[str]()
    if decision.checks:
        about = f"{decision.policy} and the model" if decision.policy else "the model"
        parts.append(f"<p>These checks are about {escape(about)}.</p>")
        parts.append(table("Checks behind the answer", decision.checks, _CHECK_COLUMNS))
    if decision.diagnostics:
        parts.append(
            "<p>The diagnostics are about every policy and every estimator. Some of their limits are stricter than "
            "those of the checks.</p>"
        )
    if grouped:
        parts.append(table("Diagnostics with problems or cautions", grouped, _GROUPED_COLUMNS))
    if decision.diagnostics:
        meanings = {_diagnostic_name(entry): entry.meaning for entry in decision.diagnostics}
        all_of_them = table("All diagnostics", decision.diagnostics, columns)
        all_of_them += notes(f"{name}: {meaning}." for name, meaning in meanings.items())
        parts.append(fold(f"All {len(decision.diagnostics):,} diagnostics", all_of_them))
    if decision.prior_check is not None:
        parts.append(_prior_check(decision.prior_check))
    parts.append(_category_checks(decision))
    if decision.warnings:
        count = len(decision.warnings)
        parts.append("<h3>Warnings</h3>")
        parts.append(fold(f"{count:,} warning{'s' if count > 1 else ''} in full", notes(decision.warnings)))
    return "".join(parts)


def _grouped_diagnostics(decision: Decision) -> list[tuple[Diagnostic, str]]:
    """The diagnostics with problems: the worst of each kind, and where it occurs, with its values by their status."""
    groups = dict[str, list[Diagnostic]]()
    for entry in decision.diagnostics:
        if entry.colour != "green":
            groups.setdefault(entry.figure, []).append(entry)
    rows = list[tuple[Diagnostic, str]]()
    for entries in groups.values():
        worst = next((entry for entry in entries if entry.colour == "red"), entries[0])
        colours = [colour for colour in ("red", "amber") if any(entry.colour == colour for entry in entries)]
        by_status = [_places([entry for entry in entries if entry.colour == colour]) for colour in colours]
        if len(colours) > 1:
            by_status[1] = f"{STATUS['amber'].removeprefix('● ').lower()}: {by_status[1]}"
        rows.append((worst, "; ".join(by_status)))
    return sorted(rows, key=lambda row: row[0].colour, reverse=True)


def _places(entries: list[Diagnostic]) -> str:
    """Diagnostics of one kind and one colour: "greedy 124 (snIPS, DR), uniform 110 (DR)"."""
    values = dict[str, list[str]]()
    for entry in entries:
        values.setdefault(f"{entry.policy} {_diagnostic_cell(entry).text}", []).append(entry.estimator)
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in values.items())


def _prior_check(check: PriorCheck) -> str:
    unchecked = check.unchecked and check.mean is None
    passed = "This was not checked." if unchecked else "Yes. The rewards are consistent with both."
    if any(part is not None and part.p_value < SURE for part in (check.noise, check.prior)):
        passed = "Closely enough. They deviate by more than chance explains, but too little to matter."
    return (
        "<h3>Do the rewards fit the model's prior and noise?</h3>"
        + (notes(check.warnings) or f"<p>{passed}</p>")
        + f'<details><summary>Figures behind this check</summary><p class="lines">{escape(str(check))}</p></details>'
    )


def _diagnostic_name(entry: Diagnostic) -> str:
    return DIAGNOSTICS.get(entry.figure) or entry.figure.replace("_", " ")


def _diagnostic_cell(entry: Diagnostic) -> TableCell:
    if entry.limit == 0.0:
        return number_cell(entry.value, lambda value: "yes" if value else "no")
    return number_cell(entry.value, share if entry.figure.endswith(("_mass", "_share")) else number)


def _category_checks(decision: Decision) -> str:
    checks = decision.category_checks
    if checks is None:
        return ""
    flagged = checks.flagged[:200]
    heading = f"<h3>Categories that contradict the model: {len(checks.flagged):,} of {len(checks):,}</h3>"
    if not flagged:
        return heading
    columns = {
        "Category": lambda row: TableCell(str(row.category)),
        "Rounds": lambda row: count_cell(row.n_rounds),
        "Mean reward": lambda row: number_cell(row.observed),
        "The prior expects": lambda row: number_cell(row.prior_mean),
        "The model expects": lambda row: number_cell(row.posterior_mean),
        "Failed checks": lambda row: TableCell(", ".join(row.flags)),
    }
    html = table("Categories that contradict the model", flagged, columns)
    return heading + folded(len(flagged), html, "categories")


_GROUPED_COLUMNS: dict[str, Callable[[Any], TableCell]] = {
    "Status": lambda row: TableCell(STATUS[row[0].colour], css=f"light {row[0].colour}"),
    "Diagnostic": lambda row: TableCell(_diagnostic_name(row[0])),
    "Where": lambda row: TableCell(row[1], css="prose"),
    "Meaning": lambda row: TableCell(row[0].meaning, css="prose"),
}
_CHECK_COLUMNS: dict[str, Callable[[Any], TableCell]] = {
    "Outcome": lambda check: TableCell(check.outcome, css=f"light {check.colour}"),
    "Check": lambda check: TableCell(check.question, css="prose"),
    "Finding": lambda check: TableCell(check.finding, css="prose"),
}


TRUST_SECTION = Section("trust", "Can the estimates be trusted?", _trust)
