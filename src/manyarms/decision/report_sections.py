"""The sections of the report page. Each is a function from a decision and its charts to HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any

from manyarms.core.estimate import Estimate
from manyarms.core.result_tables import number, percent, share, signed_number
from manyarms.decision import plots
from manyarms.decision.decide import Decision
from manyarms.decision.diagnostic_lights import Diagnostic
from manyarms.errors import InputError
from manyarms.jobs.evaluate import CURRENT
from manyarms.posterior.misfit import PriorCheck

Charts = Mapping[str, Any]

STATUS = {"red": "● Problem", "amber": "● Caution", "green": "● OK"}
"""Traffic lights in words too, for readers who do not see colours."""
DIAGNOSTICS = {
    "unsupported_mass": "choices never logged",
    "max_weight_share": "share of the largest weight",
    "evaluated_on_training_rounds": "training rounds recognised",
}
"""Diagnostics that the report calls by a plainer name."""
LONG_TABLE = 25
"""Rows beyond which a table is folded."""


def draw_charts(decision: Decision) -> dict[str, dict[str, Any]]:
    """The charts of a report's sections that the decision has the data for, as Vega-Lite without a theme, by name."""
    evaluation, calibrated = decision.evaluation, decision.calibration
    charts = dict[str, Any]()

    def draw(name: str, part: Any, **options: Any) -> None:
        # A chart refuses when there is nothing to draw: the section says so in words, or is left out.
        with suppress(InputError):
            if part is not None:
                spec = getattr(plots, name)(part, **options).to_dict(validate=False)
                charts[name] = {key: value for key, value in spec.items() if key not in ("config", "$schema")}

    draw("values", evaluation, truth=None if calibrated is None else calibrated.truth)
    draw("gains", evaluation)
    if len(evaluation.rows) >= 3:
        # With a single candidate, the chart of gains says it all.
        draw("probability_better", evaluation)
    if any(row.estimates for row in evaluation.rows):
        draw("agreement", evaluation)
    draw("traffic_changes", decision.traffic_changes)
    draw("support", decision.support, policy=decision.policy)
    draw("shrinkage", decision.shrinkage)
    draw("calibration", calibrated)
    return charts


@dataclass(frozen=True)
class _TableCell:
    """One cell of an HTML table. A column of numbers is sorted by `key`, which is empty where a figure is missing."""

    text: str
    css: str = ""
    key: str | None = None

    def html(self) -> str:
        """The cell as HTML."""
        attributes = f' class="{self.css}"' if self.css else ""
        attributes += "" if self.key is None else f' data-value="{self.key}"'
        return f"<td{attributes}>{escape(self.text)}</td>"


def _number_cell(value: float | None, written: Callable[[float], str] = number) -> _TableCell:
    """A cell with one number, or a dash where there is none."""
    if value is None:
        return _TableCell("–", "number", "")
    return _TableCell(written(value), "number", repr(float(value)))


def _count_cell(value: float | int) -> _TableCell:
    """A cell with a count of rounds or actions."""
    return _number_cell(float(value), lambda count: f"{count:,.6g}")


def _estimate_cell(estimate: Estimate | None, written: Callable[[float], str] = number) -> _TableCell:
    """A cell with an estimate and its 95 % interval, or a dash where there is none."""
    if estimate is None:
        return _number_cell(None)
    low, high = estimate.interval()
    return _number_cell(estimate.value, lambda value: f"{written(value)} [{written(low)}, {written(high)}]")


def table(caption: str, rows: Sequence[Any], columns: Mapping[str, Callable[[Any], _TableCell]]) -> str:
    """A table of the report as HTML: it sorts by a column when its header is clicked; `columns` makes the cells."""
    cells = [[make(row) for make in columns.values()] for row in rows]
    kinds = ["word" if cell.key is None else "number" for cell in cells[0]] if cells else ["word"] * len(columns)
    head = "".join(
        f'<th scope="col" class="{kind}"><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(f"<tr>{''.join(cell.html() for cell in row)}</tr>" for row in cells)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption, quote=True)}">'
        f'<table class="sorts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


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


def _policy_cell(decision: Decision, name: str) -> _TableCell:
    return _TableCell(CURRENT if name == decision.evaluation.baseline.name else name)


def _policies(decision: Decision, charts: Charts) -> str:
    evaluation = decision.evaluation
    if evaluation.baseline.value is None:
        return ""
    truth = decision.calibration is not None and decision.calibration.truth
    lines = "Thick lines are 50 % intervals and thin lines 95 % intervals."
    marks = f"The dashed line marks the mean logged reward.{' Diamonds mark the true values.' if truth else ''}"
    columns = {
        "Policy": lambda row: _policy_cell(decision, row.name),
        "Value per round [95 % interval]": lambda row: _estimate_cell(row.value),
        "Gain per round [95 % interval]": lambda row: _estimate_cell(row.gain, signed_number),
        "Relative gain in % [95 % interval]": lambda row: _estimate_cell(
            row.lift, lambda lift: signed_number(100 * lift)
        ),
        "Probability of a gain": lambda row: _number_cell(row.gain and row.gain.probability_positive, percent),
        "Never logged": lambda row: _number_cell(row.value.diagnostics.get("unsupported_mass"), share),
        "Prior share": lambda row: _number_cell(row.value.diagnostics.get("prior_share"), share),
    }
    return (
        _figure("gains", charts, f"{lines} To the right of zero, a policy is better than the current one.")
        + _figure("values", charts, f"Value per round according to the model. {marks}")
        + table("Policies", [row for row in evaluation.rows if row.value is not None], columns)
        + _about_gains(decision)
        + "<p>Values come from the model. Gains are corrected with the rewards of these rounds, so a gain is not "
        "exactly the difference of two values.</p>"
        "<p><strong>Never logged</strong>: the share of the policy's choices on actions without a round in the log "
        "that the model was fitted on.</p>"
        "<p><strong>Prior share</strong>: the share of the prior variance that remains after the logs. Near 100 %, the "
        "value rests on the prior and not on the data.</p>"
    )


def _about_gains(decision: Decision) -> str:
    """A paragraph on which rounds are behind which figure, where halves of the log were swapped."""
    evaluation = decision.evaluation
    if evaluation.pooled_rounds is None:
        return ""
    if all(row.given for row in evaluation.policies):
        return (
            f"<p><strong>Gains use all {evaluation.pooled_rounds:,} rounds</strong>: no policy was learned from this "
            "log, and each half checks the model of the other. Values and everything else on this page are by the "
            f"model of the first half, on the {evaluation.n_rounds:,} rounds of the second half.</p>"
        )
    return (
        f"<p><strong>Gains use all {evaluation.pooled_rounds:,} rounds</strong>: each half of the log evaluates the "
        "policy that the other half has learned, and the gain is the mean of both. The policy to use was made in the "
        "same way from all rounds. Values and everything else on this page belong to the policies of the first half, "
        f"on the {evaluation.n_rounds:,} rounds of the second half, which they have not seen.</p>"
    )


def _pairs(_: Decision, charts: Charts) -> str:
    caption = "Each cell is the probability that the policy in the row is better than the policy in the column."
    return _figure("probability_better", charts, caption)


def _estimators(decision: Decision, charts: Charts) -> str:
    results = decision.evaluation.rows
    if not any(row.estimates or row.left_out for row in results):
        return ""
    estimates = [(row.name, *entry) for row in results for entry in row.estimates.items()]
    failures = [f"{name} could not evaluate {row.name}: {why}" for row in results for name, why in row.left_out.items()]
    columns = {
        "Policy": lambda entry: _TableCell(entry[0]),
        "Estimator": lambda entry: _TableCell(entry[1]),
        "Value per round [95 % interval]": lambda entry: _estimate_cell(entry[2]),
        "Effective sample size": lambda entry: _number_cell(entry[2].diagnostics.get("effective_sample_size")),
    }
    return (
        "<p>These estimators use logged rewards and propensities. snIPS uses no model; DR corrects the model with "
        "logged rewards. If the diagnostics of an estimator show no problem, but its interval excludes the model's "
        "value, find out why before you trust either.</p>"
        + _figure("agreement", charts, "Value per round with 95 % intervals, by the model and by each estimator.")
        + table("Estimates", estimates, columns)
        + "<p><strong>Effective sample size</strong>: the number of equally weighted rounds that would say as much as "
        "the weighted ones. When it is small, the estimate is unreliable.</p>" + _notes(failures)
    )


def _trust(decision: Decision, charts: Charts) -> str:
    columns = {
        "Status": lambda entry: _TableCell(STATUS[entry.colour], css=f"light {entry.colour}"),
        "Policy": lambda entry: _TableCell(entry.policy),
        "Estimator": lambda entry: _TableCell(entry.estimator),
        "Diagnostic": lambda entry: _TableCell(DIAGNOSTICS.get(entry.figure) or entry.figure.replace("_", " ")),
        "Value": _diagnostic_cell,
        "Meaning": lambda entry: _TableCell(entry.meaning, css="prose"),
    }
    flagged = [entry for colour in ("red", "amber") for entry in decision.diagnostics if entry.colour == colour]
    passed = [entry for entry in decision.diagnostics if entry.colour == "green"]
    parts = [table("Checks behind the answer", decision.checks, _CHECK_COLUMNS)] if decision.checks else []
    parts += [table("Diagnostics with problems", flagged, columns)] if flagged else []
    if passed:
        fine = table("Diagnostics without problems", passed, columns)
        parts.append(f"<details><summary>{len(passed):,} diagnostics are OK</summary>{fine}</details>")
    if decision.prior_check is not None:
        parts.append(_prior_check(decision.prior_check))
    parts.append(_category_checks(decision))
    if decision.warnings:
        warnings = _notes(decision.warnings)
        parts.append("<h3>Warnings</h3>" + _folded(len(decision.warnings), warnings, "warnings"))
    return "".join(parts)


def _prior_check(check: PriorCheck) -> str:
    unchecked = check.unchecked and check.mean is None
    passed = "This was not checked." if unchecked else "Yes. The rewards are consistent with both."
    return (
        "<h3>Do the rewards fit the prior and the noise of the model?</h3>"
        + (_notes(check.warnings) or f"<p>{passed}</p>")
        + f'<details><summary>Figures behind this check</summary><p class="lines">{escape(str(check))}</p></details>'
    )


def _diagnostic_cell(entry: Diagnostic) -> _TableCell:
    if entry.limit == 0.0:
        return _number_cell(entry.value, lambda value: "yes" if value else "no")
    return _number_cell(entry.value, share if entry.figure.endswith(("_mass", "_share")) else number)


def _category_checks(decision: Decision) -> str:
    checks = decision.category_checks
    if checks is None:
        return ""
    flagged = checks.flagged[:200]
    heading = f"<h3>Categories that contradict the model: {len(checks.flagged):,} of {len(checks):,}</h3>"
    if not flagged:
        return heading
    columns = {
        "Category": lambda row: _TableCell(str(row.category)),
        "Rounds": lambda row: _count_cell(row.n_rounds),
        "Mean reward": lambda row: _number_cell(row.observed),
        "Expected by the prior": lambda row: _number_cell(row.prior_mean),
        "Expected by the model": lambda row: _number_cell(row.posterior_mean),
        "Failed checks": lambda row: _TableCell(", ".join(row.flags)),
    }
    html = table("Categories that contradict the model", flagged, columns)
    return heading + _folded(len(flagged), html, "categories")


def _traffic(decision: Decision, charts: Charts) -> str:
    changes, support = decision.traffic_changes, decision.support
    html = ""
    if changes is not None:
        columns = {
            "Action": lambda row: _TableCell(row.action),
            "Category": lambda row: _TableCell(row.category),
            "Logged rounds": lambda row: _count_cell(row.n_rounds),
            "Share in the log": lambda row: _number_cell(row.logged, share),
            f"Share under {changes.policy}": lambda row: _number_cell(row.chosen, share),
            "Mean logged reward": lambda row: _number_cell(row.mean_reward),
            "Expected reward": lambda row: _number_cell(row.expected),
        }
        moved = f"{changes.policy} differs from the {CURRENT} in at least {share(changes.moved)} of rounds."
        html += f"<p>{escape(moved)}</p>"
        html += _figure("traffic_changes", charts, "The actions whose share of choices would grow or shrink the most.")
        html += table("Actions whose traffic changes most", changes.rows, columns)
    if support is None:
        return html
    order = "Categories are ordered by their largest share of rounds, in the log or under any policy."
    rest = f" The last row combines {support.n_summed:,} other categories." if support.n_summed else ""
    columns = {
        "Category": lambda row: _TableCell(row.category),
        "Actions": lambda row: _count_cell(row.n_actions),
        "Ever logged": lambda row: _count_cell(row.n_logged),
        "Share in the log": lambda row: _number_cell(row.logged, share),
        f"Share under {decision.policy}": lambda row: _number_cell(row.chosen.get(decision.policy), share),
        "Share on actions never logged": lambda row: _number_cell(row.unsupported.get(decision.policy), share),
    }
    return (
        f"{html}<h3>By category</h3>"
        + _figure("support", charts, f"Share of each category in the log and under the policy. {order}{rest}")
        + _folded(len(support.rows), table("Traffic by category", support.rows, columns), "categories")
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
    truth = evidence.truth
    rows = [row for row in decision.evaluation.rows if row.value is not None and row.name in truth]
    intervals = {row.name: row.value.interval() for row in rows if row.value is not None}
    inside = {name for name, (low, high) in intervals.items() if low <= truth[name] <= high}
    columns = {
        "Policy": lambda row: _policy_cell(decision, row.name),
        "Value per round [95 % interval]": lambda row: _estimate_cell(row.value),
        "True value": lambda row: _number_cell(truth[row.name]),
        "Inside the interval": lambda row: _TableCell("yes" if row.name in inside else "no"),
    }
    observed = "the true mean reward" if evidence.against_truth else "the mean reward of held-out rounds"
    caption = (
        f"Expected reward against {observed}, in groups of rounds. If the model is calibrated, the points lie on the "
        "diagonal."
    )
    values = table("Estimated and true values", rows, columns) if truth else ""
    return values + _figure("calibration", charts, caption)


def _cannot_see(decision: Decision, _: Charts) -> str:
    return (
        "<p>The checks on this page use the log. They cannot show these mistakes, whatever their result:</p>"
        + _notes(decision.cannot_see)
    )


_CHECK_COLUMNS: dict[str, Callable[[Any], _TableCell]] = {
    "Outcome": lambda check: _TableCell(check.outcome, css=f"light {check.colour}"),
    "Check": lambda check: _TableCell(check.question, css="prose"),
    "Finding": lambda check: _TableCell(check.finding, css="prose"),
}


SECTIONS: tuple[tuple[str, str, Callable[[Decision, Charts], str]], ...] = (
    ("policies", "Value and gain of each policy", _policies),
    ("pairs", "Probability that one policy beats another", _pairs),
    ("estimators", "Do the estimators agree with the model?", _estimators),
    ("trust", "Can the estimates be trusted?", _trust),
    ("traffic", "Where the traffic would go", _traffic),
    ("actions", "Estimates for individual actions", _actions),
    ("calibration", "Is the model calibrated?", _calibration),
    ("blind", "What no log can show", _cannot_see),
    ("omitted", "Not in this report", lambda decision, _: _notes(decision.omitted)),
)
"""The anchor, heading and function of each section, in the order of the page."""
