"""The sections of the report page. Each is a function from a decision and its charts to HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from manyarms.decision import plots
from manyarms.decision.decide import Decision
from manyarms.decision.diagnostics import Diagnostic
from manyarms.decision.format_figures import (
    CURRENT,
    TableCell,
    count_cell,
    estimate_cell,
    number_cell,
    percent,
    share,
    signed_number,
    signed_percent,
    table,
)
from manyarms.errors import InputError

if TYPE_CHECKING:
    import altair as alt

Charts = Mapping[str, Any]
Section = Callable[[Decision, Charts], str]

STATUS = {"red": "● Problem", "amber": "● Caution", "green": "● OK"}
"""Traffic lights in words too, for readers who do not see colours."""
LONG_TABLE = 25
"""Rows beyond which a table is folded."""


def draw_charts(decision: Decision) -> dict[str, alt.LayerChart]:
    """The charts that this decision has the data for, by name."""
    evaluation, calibrated, changes = decision.evaluation, decision.calibration, decision.traffic_changes
    truth = {} if calibrated is None else calibrated.truth
    wanted: dict[str, Callable[[], Any]] = {
        "values": partial(plots.values, evaluation, truth=truth),
        "gains": partial(plots.gains, evaluation),
    }
    if len(evaluation.rows) >= 3:
        # With a single candidate, the chart of gains says it all.
        wanted["probability_better"] = partial(plots.probability_better, evaluation)
    if any(row.estimates for row in evaluation.rows):
        wanted["agreement"] = partial(plots.agreement, evaluation)
    if changes is not None and changes.rows:
        wanted["traffic_changes"] = partial(plots.traffic_changes, changes)
    if decision.support is not None and decision.policy:
        wanted["support"] = partial(plots.support, decision.support, decision.policy)
    if decision.shrinkage is not None:
        wanted["shrinkage"] = partial(plots.shrinkage, decision.shrinkage)
    if calibrated is not None and calibrated.bins:
        wanted["calibration"] = partial(plots.calibration, calibrated)
    charts = dict[str, Any]()
    for name, draw in wanted.items():
        try:
            charts[name] = draw()
        except InputError:
            # There is nothing to draw: the section says so in words, or is left out.
            continue
    return charts


def _figure(name: str, charts: Charts, caption: str) -> str:
    """The place of a chart, with its description for screen readers."""
    if name not in charts:
        return ""
    description = escape(str(charts[name].get("description", "")), quote=True)
    return (
        f'<figure><div class="chart" id="chart-{name}" role="img" aria-label="{description}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _folded(n_rows: int, html: str, noun: str) -> str:
    """A table, folded when it is long."""
    return html if n_rows <= LONG_TABLE else f"<details><summary>{n_rows:,} {escape(noun)}</summary>{html}</details>"


def _notes(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _name_cell(decision: Decision, name: str) -> TableCell:
    return TableCell(CURRENT if name == decision.evaluation.baseline.name else name)


def _policies(decision: Decision, charts: Charts) -> str:
    evaluation = decision.evaluation
    if evaluation.baseline.value is None:
        return ""
    headers = [
        "Policy", "Value per round [95 %]", "Gain per round [95 %]", "Relative gain [95 %]", "Probability of a gain",
        "Never logged", "Prior share",
    ]  # fmt: skip
    rows = list[list[TableCell]]()
    for row in evaluation.rows:
        figures = {} if row.value is None else row.value.diagnostics
        probability = None if row.difference is None else row.difference.probability_positive
        rows.append(
            [
                _name_cell(decision, row.name),
                estimate_cell(row.value),
                estimate_cell(row.difference, signed_number),
                estimate_cell(row.lift, signed_percent),
                number_cell(probability, percent),
                number_cell(figures.get("unsupported_mass"), share),
                number_cell(figures.get("prior_share"), share),
            ]
        )
    truth = decision.calibration is not None and decision.calibration.truth
    diamonds = " Diamonds mark the true values." if truth else ""
    caption = f"Value per round according to the model. The dashed line marks the mean logged reward.{diamonds}"
    return (
        _figure("gains", charts, f"Gain per round over the {CURRENT}. Thick lines: 50 % intervals. Thin: 95 %.")
        + _figure("values", charts, caption)
        + table(headers, rows, caption="Policies")
        + "<p><b>Never logged</b>: the share of the policy's choices on actions without a logged round. <b>Prior share"
        "</b>: the share of the prior variance that remains after the logs. Near 100 %, the value rests on the prior "
        "and not on the data.</p>"
    )


def _pairs(decision: Decision, charts: Charts) -> str:
    caption = "Each cell is the probability that the policy in the row is better than the policy in the column."
    return _figure("probability_better", charts, caption)


def _estimators(decision: Decision, charts: Charts) -> str:
    results = decision.evaluation.rows
    if not any(row.estimates or row.left_out for row in results):
        return ""
    rows = [
        [
            _name_cell(decision, row.name),
            TableCell(name),
            estimate_cell(estimate),
            number_cell(estimate.diagnostics.get("effective_sample_size")),
        ]
        for row in results
        for name, estimate in row.estimates.items()
    ]
    failures = [f"{name} could not evaluate {row.name}: {why}" for row in results for name, why in row.left_out.items()]
    headers = ["Policy", "Estimator", "Value per round [95 %]", "Effective rounds"]
    return (
        "<p>The estimators use logged rewards and propensities. They do not use the prior. If an estimator without "
        "problems in its diagnostics excludes the model's value, find out why before you trust either.</p>"
        + _figure(
            "agreement", charts, "Value per round according to the model and each estimator, with 95 % intervals."
        )
        + table(headers, rows, caption="Estimates")
        + "<p><b>Effective rounds</b>: the effective sample size. This many equally weighted rounds would be as "
        "informative. With few of them, the estimate is unreliable.</p>" + _notes(failures)
    )


def _trust(decision: Decision, charts: Charts) -> str:
    order = list(STATUS)
    rows = [_diagnostic_row(entry) for entry in sorted(decision.diagnostics, key=lambda e: order.index(e.colour))]
    headers = ["Status", "Policy", "Estimator", "Diagnostic", "Value", "Meaning"]
    flagged = sum(entry.colour != "green" for entry in decision.diagnostics)
    parts = [table(headers, rows[:flagged], caption="Diagnostics with problems")] if flagged else []
    if rows[flagged:]:
        passed = table(headers, rows[flagged:], caption="Diagnostics without problems")
        parts.append(f"<details><summary>{len(rows) - flagged:,} diagnostics are OK</summary>{passed}</details>")
    if decision.prior_check is not None:
        text = escape(str(decision.prior_check))
        parts.append(f'<h3>Do the rewards vary as much as the model expects?</h3><p class="lines">{text}</p>')
    parts.append(_category_checks(decision))
    if decision.warnings:
        warnings = _notes(decision.warnings)
        parts.append("<h3>Warnings</h3>" + _folded(len(decision.warnings), warnings, "warnings"))
    return "".join(parts)


def _diagnostic_row(entry: Diagnostic) -> list[TableCell]:
    name = entry.figure.replace("_", " ")
    if entry.limit == 0.0:
        value = TableCell("yes" if entry.value else "no", entry.value, is_number=True)
    else:
        is_share = entry.figure.endswith(("_mass", "_share"))
        value = number_cell(entry.value, share) if is_share else number_cell(entry.value)
    status = TableCell(STATUS[entry.colour], css=f"light {entry.colour}")
    return [status, *map(TableCell, (entry.policy, entry.estimator, name)), value, TableCell(entry.meaning)]


def _category_checks(decision: Decision) -> str:
    checks = decision.category_checks
    if checks is None:
        return ""
    flagged = checks.flagged
    heading = f"<h3>Categories that contradict the model: {len(flagged):,} of {len(checks):,}</h3>"
    if not flagged:
        return heading
    rows = [
        [
            TableCell(str(row.category)),
            count_cell(row.n_rounds),
            number_cell(row.observed),
            number_cell(row.prior_mean),
            number_cell(row.posterior_mean),
            TableCell(", ".join(row.flags)),
        ]
        for row in flagged[:200]
    ]
    headers = ["Category", "Rounds", "Mean reward", "Expected by the prior", "Expected by the model", "Failed checks"]
    checked = table(headers, rows, caption="Categories that contradict the model")
    return heading + _folded(len(rows), checked, "categories")


def _traffic(decision: Decision, charts: Charts) -> str:
    return _action_traffic(decision, charts) + _category_traffic(decision, charts)


def _action_traffic(decision: Decision, charts: Charts) -> str:
    changes = decision.traffic_changes
    if changes is None:
        return ""
    rows = [
        [
            TableCell(row.action), TableCell(row.category), count_cell(row.n_rounds), number_cell(row.logged, share),
            number_cell(row.chosen, share), number_cell(row.mean_reward), number_cell(row.expected),
        ]
        for row in changes.rows
    ]  # fmt: skip
    headers = [
        "Action", "Category", "Logged rounds", "Share in the log", f"Share under {changes.policy}",
        "Mean logged reward", "Expected reward",
    ]  # fmt: skip
    return (
        f"<p>{escape(changes.policy)} differs from the {CURRENT} in at least {share(changes.moved)} of rounds.</p>"
        + _figure("traffic_changes", charts, "The actions whose share of choices would grow and shrink most.")
        + table(headers, rows, caption="Actions whose traffic changes most")
    )


def _category_traffic(decision: Decision, charts: Charts) -> str:
    support, policy = decision.support, decision.policy
    if support is None:
        return ""
    rest = f" The last row adds up {support.n_summed:,} smaller categories." if support.n_summed else ""
    headers = [
        "Category",
        "Actions",
        "Ever logged",
        "Share in the log",
        f"Share under {policy}",
        "Of that never logged",
    ]
    rows = [
        [
            TableCell(row.category), count_cell(row.n_actions), count_cell(row.n_logged),
            number_cell(row.logged, share), number_cell(row.chosen.get(policy), share),
            number_cell(row.unsupported.get(policy), share),
        ]
        for row in support.rows
    ]  # fmt: skip
    return (
        "<h3>By category</h3>"
        + _figure("support", charts, f"Share of each category in the log and under the policy.{rest}")
        + _folded(len(rows), table(headers, rows, caption="Traffic by category"), "categories")
    )


def _actions(decision: Decision, charts: Charts) -> str:
    if decision.shrinkage is None or "shrinkage" not in charts:
        return ""
    shown, logged = len(decision.shrinkage.rows), decision.shrinkage.n_actions
    sample = f" The chart shows {shown:,} of {logged:,} logged actions." if shown < logged else ""
    caption = f"Mean logged reward (rings) and expected reward (dots) by number of logged rounds.{sample}"
    return (
        "<p>The mean reward of an action with few rounds is mostly noise, so the model relies on its category. "
        "The more rounds an action has, the more the model relies on the action's own rewards.</p>"
        + _figure("shrinkage", charts, caption)
    )


def _calibration(decision: Decision, charts: Charts) -> str:
    evidence = decision.calibration
    if evidence is None or not (evidence.bins or evidence.truth):
        return ""
    html = ""
    if evidence.truth:
        values = {row.name: row.value for row in decision.evaluation.rows if row.value is not None}
        rows = list[list[TableCell]]()
        for name, truth in evidence.truth.items():
            if name in values:
                low, high = values[name].interval()
                inside = TableCell("yes" if low <= truth <= high else "no")
                rows.append([_name_cell(decision, name), estimate_cell(values[name]), number_cell(truth), inside])
        headers = ["Policy", "Value per round [95 %]", "True value", "Inside the interval"]
        html += table(headers, rows, caption="Estimated and true values")
    observed = "the true mean reward" if evidence.against_truth else "the mean reward of held-out rounds"
    caption = f"Expected reward against {observed}, in groups of rounds. A calibrated model lies on the diagonal."
    return html + _figure("calibration", charts, caption)


def _omitted(decision: Decision, charts: Charts) -> str:
    return _notes(decision.omitted)


SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("policies", "Value and gain of each policy", _policies),
    ("pairs", "Probability that one policy beats another", _pairs),
    ("estimators", "Do the estimators agree with the model?", _estimators),
    ("trust", "Can the estimates be trusted?", _trust),
    ("traffic", "Where the traffic would go", _traffic),
    ("actions", "Estimates for single actions", _actions),
    ("calibration", "Is the model calibrated?", _calibration),
    ("omitted", "Not in this report", _omitted),
)
"""The anchor, heading and function of each section, in the order of the page."""
