"""The sections of the report page, and `SECTIONS`, the one list of them. A section is built from `report_parts`."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from manyarms.core.result_tables import number, percent, share, signed_number
from manyarms.decision import plots
from manyarms.decision.decide import Decision
from manyarms.decision.diagnostic_lights import Diagnostic
from manyarms.decision.report_parts import (
    Charts,
    Section,
    TableCell,
    count_cell,
    estimate_cell,
    figure,
    folded,
    notes,
    number_cell,
    table,
)
from manyarms.jobs.evaluate import CURRENT
from manyarms.posterior.misfit import PriorCheck

STATUS = {"red": "● Problem", "amber": "● Caution", "green": "● OK"}
"""Traffic lights in words too, for readers who do not see colours."""
DIAGNOSTICS = {
    "unsupported_mass": "choices never logged",
    "max_weight_share": "share of the largest weight",
    "evaluated_on_training_rounds": "training rounds recognised",
}
"""Diagnostics that the report calls by a plainer name."""


def _policy_cell(decision: Decision, name: str) -> TableCell:
    return TableCell(CURRENT if name == decision.evaluation.baseline.name else name)


def _policies(decision: Decision, charts: Charts) -> str:
    evaluation = decision.evaluation
    if evaluation.baseline.value is None:
        return ""
    truth = decision.calibration is not None and decision.calibration.truth
    lines = "Thick lines are 50 % intervals and thin lines 95 % intervals."
    marks = f"The dashed line marks the mean logged reward.{' Diamonds mark the true values.' if truth else ''}"
    columns = {
        "Policy": lambda row: _policy_cell(decision, row.name),
        "Value per round [95 % interval]": lambda row: estimate_cell(row.value),
        "Gain per round [95 % interval]": lambda row: estimate_cell(row.gain, signed_number),
        "Relative gain in % [95 % interval]": lambda row: estimate_cell(
            row.lift, lambda lift: signed_number(100 * lift)
        ),
        "Probability of a gain": lambda row: number_cell(row.gain and row.gain.probability_positive, percent),
        "Never logged": lambda row: number_cell(row.value.diagnostics.get("unsupported_mass"), share),
        "Prior share": lambda row: number_cell(row.value.diagnostics.get("prior_share"), share),
    }
    return (
        figure("gains", charts, f"{lines} To the right of zero, a policy is better than the current one.")
        + figure("values", charts, f"Value per round according to the model. {marks}")
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
    return figure("probability_better", charts, caption)


def _estimators(decision: Decision, charts: Charts) -> str:
    results = decision.evaluation.rows
    if not any(row.estimates or row.left_out for row in results):
        return ""
    estimates = [(row.name, *entry) for row in results for entry in row.estimates.items()]
    failures = [f"{name} could not evaluate {row.name}: {why}" for row in results for name, why in row.left_out.items()]
    columns = {
        "Policy": lambda entry: TableCell(entry[0]),
        "Estimator": lambda entry: TableCell(entry[1]),
        "Value per round [95 % interval]": lambda entry: estimate_cell(entry[2]),
        "Effective sample size": lambda entry: number_cell(entry[2].diagnostics.get("effective_sample_size")),
    }
    return (
        "<p>These estimators use logged rewards and propensities. snIPS uses no model; DR corrects the model with "
        "logged rewards. If the diagnostics of an estimator show no problem, but its interval excludes the model's "
        "value, find out why before you trust either.</p>"
        + figure("agreement", charts, "Value per round with 95 % intervals, by the model and by each estimator.")
        + table("Estimates", estimates, columns)
        + "<p><strong>Effective sample size</strong>: the number of equally weighted rounds that would say as much as "
        "the weighted ones. When it is small, the estimate is unreliable.</p>" + notes(failures)
    )


def _trust(decision: Decision, charts: Charts) -> str:
    columns = {
        "Status": lambda entry: TableCell(STATUS[entry.colour], css=f"light {entry.colour}"),
        "Policy": lambda entry: TableCell(entry.policy),
        "Estimator": lambda entry: TableCell(entry.estimator),
        "Diagnostic": lambda entry: TableCell(DIAGNOSTICS.get(entry.figure) or entry.figure.replace("_", " ")),
        "Value": _diagnostic_cell,
        "Meaning": lambda entry: TableCell(entry.meaning, css="prose"),
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
        warnings = notes(decision.warnings)
        parts.append("<h3>Warnings</h3>" + folded(len(decision.warnings), warnings, "warnings"))
    return "".join(parts)


def _prior_check(check: PriorCheck) -> str:
    unchecked = check.unchecked and check.mean is None
    passed = "This was not checked." if unchecked else "Yes. The rewards are consistent with both."
    return (
        "<h3>Do the rewards fit the prior and the noise of the model?</h3>"
        + (notes(check.warnings) or f"<p>{passed}</p>")
        + f'<details><summary>Figures behind this check</summary><p class="lines">{escape(str(check))}</p></details>'
    )


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
        "Expected by the prior": lambda row: number_cell(row.prior_mean),
        "Expected by the model": lambda row: number_cell(row.posterior_mean),
        "Failed checks": lambda row: TableCell(", ".join(row.flags)),
    }
    html = table("Categories that contradict the model", flagged, columns)
    return heading + folded(len(flagged), html, "categories")


def _traffic(decision: Decision, charts: Charts) -> str:
    changes, support = decision.traffic_changes, decision.support
    html = ""
    if changes is not None:
        columns = {
            "Action": lambda row: TableCell(row.action),
            "Category": lambda row: TableCell(row.category),
            "Logged rounds": lambda row: count_cell(row.n_rounds),
            "Share in the log": lambda row: number_cell(row.logged, share),
            f"Share under {changes.policy}": lambda row: number_cell(row.chosen, share),
            "Mean logged reward": lambda row: number_cell(row.mean_reward),
            "Expected reward": lambda row: number_cell(row.expected),
        }
        moved = f"{changes.policy} differs from the {CURRENT} in at least {share(changes.moved)} of rounds."
        html += f"<p>{escape(moved)}</p>"
        html += figure("traffic_changes", charts, "The actions whose share of choices would grow or shrink the most.")
        html += table("Actions whose traffic changes most", changes.rows, columns)
    if support is None:
        return html
    order = "Categories are ordered by their largest share of rounds, in the log or under any policy."
    rest = f" The last row combines {support.n_summed:,} other categories." if support.n_summed else ""
    columns = {
        "Category": lambda row: TableCell(row.category),
        "Actions": lambda row: count_cell(row.n_actions),
        "Ever logged": lambda row: count_cell(row.n_logged),
        "Share in the log": lambda row: number_cell(row.logged, share),
        f"Share under {decision.policy}": lambda row: number_cell(row.chosen.get(decision.policy), share),
        "Share on actions never logged": lambda row: number_cell(row.unsupported.get(decision.policy), share),
    }
    return (
        f"{html}<h3>By category</h3>"
        + figure("support", charts, f"Share of each category in the log and under the policy. {order}{rest}")
        + folded(len(support.rows), table("Traffic by category", support.rows, columns), "categories")
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
        + figure("shrinkage", charts, caption)
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
        "Value per round [95 % interval]": lambda row: estimate_cell(row.value),
        "True value": lambda row: number_cell(truth[row.name]),
        "Inside the interval": lambda row: TableCell("yes" if row.name in inside else "no"),
    }
    observed = "the true mean reward" if evidence.against_truth else "the mean reward of held-out rounds"
    caption = (
        f"Expected reward against {observed}, in groups of rounds. If the model is calibrated, the points lie on the "
        "diagonal."
    )
    values = table("Estimated and true values", rows, columns) if truth else ""
    return values + figure("calibration", charts, caption)


def _cannot_see(decision: Decision, _: Charts) -> str:
    return (
        "<p>The checks on this page use the log. They cannot show these mistakes, whatever their result:</p>"
        + notes(decision.cannot_see)
    )


_CHECK_COLUMNS: dict[str, Callable[[Any], TableCell]] = {
    "Outcome": lambda check: TableCell(check.outcome, css=f"light {check.colour}"),
    "Check": lambda check: TableCell(check.question, css="prose"),
    "Finding": lambda check: TableCell(check.finding, css="prose"),
}


def _values_chart(decision: Decision) -> Any:
    calibrated = decision.calibration
    return plots.values(decision.evaluation, truth=None if calibrated is None else calibrated.truth)


def _pairs_chart(decision: Decision) -> Any:
    # With a single candidate, the chart of gains says it all.
    return plots.probability_better(decision.evaluation) if len(decision.evaluation.rows) >= 3 else None


def _agreement_chart(decision: Decision) -> Any:
    evaluation = decision.evaluation
    return plots.agreement(evaluation) if any(row.estimates for row in evaluation.rows) else None


def _if_known(draw: Callable[..., Any], part: str, **names: str) -> Callable[[Decision], Any]:
    """A chart of one part of a decision, where it has this part; `names` are attributes to pass on."""

    def chart(decision: Decision) -> Any:
        evidence = getattr(decision, part)
        options = {option: getattr(decision, name) for option, name in names.items()}
        return None if evidence is None else draw(evidence, **options)

    return chart


SECTIONS: tuple[Section, ...] = (
    Section(
        "policies",
        "Value and gain of each policy",
        _policies,
        {"values": _values_chart, "gains": lambda decision: plots.gains(decision.evaluation)},
    ),
    Section("pairs", "Probability that one policy beats another", _pairs, {"probability_better": _pairs_chart}),
    Section("estimators", "Do the estimators agree with the model?", _estimators, {"agreement": _agreement_chart}),
    Section("trust", "Can the estimates be trusted?", _trust),
    Section(
        "traffic",
        "Where the traffic would go",
        _traffic,
        {
            "traffic_changes": _if_known(plots.traffic_changes, "traffic_changes"),
            "support": _if_known(plots.support, "support", policy="policy"),
        },
    ),
    Section(
        "actions", "Estimates for individual actions", _actions, {"shrinkage": _if_known(plots.shrinkage, "shrinkage")}
    ),
    Section(
        "calibration",
        "Is the model calibrated?",
        _calibration,
        {"calibration": _if_known(plots.calibration, "calibration")},
    ),
    Section("blind", "What no log can show", _cannot_see),
    Section("omitted", "Not in this report", lambda decision, _: notes(decision.omitted)),
)
"""The sections in the order of the page: the one place to add a section and its charts."""


def draw_charts(decision: Decision) -> dict[str, dict[str, Any]]:
    """The charts of all sections that the decision has the data for, by name."""
    return {name: chart for section in SECTIONS for name, chart in section.draw(decision).items()}
