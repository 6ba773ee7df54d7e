"""The sections of the report page, and `SECTIONS`, the one list of them. A section is built from `report_parts`."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from manyarms.core.result_tables import number, percent, required_percent, share, signed_number
from manyarms.decision import plots
from manyarms.decision import report_sentences as sentences
from manyarms.decision.backtest_sections import backtest_section
from manyarms.decision.decide import Decision
from manyarms.decision.evidence_plots import by_shown_share
from manyarms.decision.guardrail import GuardrailResult, limit_words
from manyarms.decision.plan import Traffic, item_label
from manyarms.decision.report_parts import (
    Charts,
    Section,
    TableCell,
    count_cell,
    estimate_cell,
    figure,
    fold,
    notes,
    number_cell,
    table,
)
from manyarms.decision.segment_section import SEGMENT_SECTION
from manyarms.decision.trust_section import TRUST_SECTION
from manyarms.jobs.evaluate import CURRENT


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
    rows = [row for row in evaluation.rows if row.value is not None]
    few = {name: make for name, make in columns.items() if name.startswith(("Policy", "Gain", "Probability"))}
    right = (
        f"{lines} A policy is clearly better than the current one if its thin line lies wholly to the right of zero."
    )
    details = (
        table("Values", rows, columns)
        + "<p>Values come from the model, and their intervals hold only if the model is right. Gains, unlike values, "
        "are corrected with the rewards logged in these rounds, so a gain need not equal the difference between two "
        "values.</p>"
        "<p><strong>Never logged</strong>: the share of the policy's choices on actions without a round in the log "
        "that the model was fitted on.</p>"
        "<p><strong>Prior share</strong>: the share of the prior variance of the policy's value that remains once "
        "the logs have been used. Near 100 %, the value rests on the prior and not on the data.</p>"
        "<p><strong>Relative gain</strong>: the gain divided by the mean logged reward of all rounds used for the "
        "gains.</p>"
    )
    return (
        figure("gains", charts, right, sentences.gains_sentence(decision))
        + table("Policies", rows, few)
        + _about_gains(decision)
        + figure(
            "values", charts, f"Value per round according to the model. {marks}", sentences.values_sentence(decision)
        )
        + fold("Values, relative gains and what they rest on", details)
    )


def _about_gains(decision: Decision) -> str:
    """A paragraph on which rounds are behind which figure, where halves of the log were swapped."""
    evaluation = decision.evaluation
    if evaluation.pooled_rounds is None:
        return ""
    if all(row.given for row in evaluation.policies):
        return (
            f"<p><strong>Gains use all {evaluation.pooled_rounds:,} rounds</strong>: no policy was learned from this "
            "log, and the model from each half is corrected with the rewards of the other half. All other figures on "
            f"this page use the model from the first half and the {evaluation.n_rounds:,} rounds of the second.</p>"
        )
    return (
        f"<p><strong>Gains use all {evaluation.pooled_rounds:,} rounds</strong>: a gain is the average over two "
        "policies, each learned from one half of the log and evaluated on the other. The policy to deploy was then "
        "learned in the same way from all rounds. All other figures on this page are for the policies learned from the "
        f"first half, evaluated on the {evaluation.n_rounds:,} rounds of the second.</p>"
    )


def _pairs(decision: Decision, charts: Charts) -> str:
    caption = "Each cell is the probability that the policy in the row is better than the policy in the column."
    return figure("probability_better", charts, caption, sentences.pairs_sentence(decision))


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
    caption = "Value per round with 95 % intervals, according to the model and to each estimator."
    explained = (
        "<p><strong>Effective sample size</strong>: the number of equally weighted rounds that would be as informative "
        "as the weighted ones. When it is small, the estimate is unreliable.</p>"
    )
    return (
        "<p>These estimators use the logged rewards and the propensities: the probabilities with which the logged "
        "actions were chosen. snIPS (self-normalised inverse propensity scoring) uses no model; DR (doubly robust) "
        "adds the weighted errors of the model in these rounds to the model's value. Estimators are compared with the "
        "model's value before correction, not with the gains above. If the diagnostics of an estimator show no "
        "problem, but its interval excludes the model's value, find out why before you trust either.</p>"
        + figure("agreement", charts, caption, sentences.agreement_sentence(decision))
        + fold("All estimates", table("Estimates", estimates, columns) + explained)
        + notes(failures)
    )


def _traffic(decision: Decision, charts: Charts) -> str:
    changes, support = decision.traffic_changes, decision.support
    html = ""
    if changes is not None:
        columns = {
            "Action": lambda row: TableCell(row.label),
            "Category": lambda row: TableCell(row.category),
            "Evaluated rounds": lambda row: count_cell(row.n_rounds),
            "Share in the evaluated log": lambda row: number_cell(row.logged, share),
            f"Share under {changes.policy}": lambda row: number_cell(row.chosen, share),
            "Mean logged reward": lambda row: number_cell(row.mean_reward),
            "Expected reward": lambda row: number_cell(row.expected),
        }
        opening = f"{changes.policy[:1].upper()}{changes.policy[1:]} differs from the {CURRENT} in"
        moved = (
            f"{opening} at least {share(changes.moved)} of rounds. The true share may be higher: only the totals for "
            "each action were compared."
        )
        if share(changes.moved) == "100 %":
            moved = f"{opening} 100 % of rounds."
        html += f"<p>{escape(moved)}</p>"
        caption = "The actions whose share of choices would grow or shrink the most."
        html += figure("traffic_changes", charts, caption, sentences.traffic_sentence(decision))
        details = table("Actions whose traffic changes most", changes.rows, columns)
        html += fold(f"Figures for these {len(changes.rows)} actions", details)
    if support is None:
        return html
    rest = f" The last row combines {support.n_summed:,} other categories." if support.n_summed else ""
    columns = {
        "Category": lambda row: TableCell(row.category),
        "Actions": lambda row: count_cell(row.n_actions),
        "Actions logged": lambda row: count_cell(row.n_logged),
        "Share in the evaluated log": lambda row: number_cell(row.logged, share),
        f"Share under {decision.policy}": lambda row: number_cell(row.chosen.get(decision.policy), share),
        "Share on actions never logged": lambda row: number_cell(row.unsupported.get(decision.policy), share),
    }
    caption = f"Share of each category in the evaluated log and under the policy.{rest}"
    listed = by_shown_share(support, decision.policy) if decision.policy in support.rows[0].chosen else support.rows
    which = "evaluated here" if decision.calibration is None else "that the model was fitted on"
    explained = f"<p>An action counts as logged if it has a round in the log {which}.</p>"
    return (
        f"{html}<h3>By category</h3>"
        + figure("support", charts, caption, sentences.support_sentence(decision))
        + fold("Figures by category", table("Traffic by category", listed, columns) + explained)
    )


def _actions(decision: Decision, charts: Charts) -> str:
    if decision.shrinkage is None or "shrinkage" not in charts:
        return ""
    shown, logged = len(decision.shrinkage.rows), decision.shrinkage.n_actions
    many = f" The chart shows {shown:,} of the {logged:,} actions with an evaluated round."
    sample = many if shown < logged else ""
    caption = f"Mean logged reward (circles) and expected reward (diamonds) by number of evaluated rounds.{sample}"
    return (
        "<p>The mean reward of an action with few rounds is mostly noise, so the model relies on its category. "
        "The more rounds an action had in the log that the model was fitted on, the more the model relies on that "
        "action's own rewards. The chart shows the means and numbers of rounds in the evaluated log.</p>"
        + figure("shrinkage", charts, caption, sentences.shrinkage_sentence(decision))
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
    return values + figure("calibration", charts, caption, sentences.calibration_sentence(decision))


def _settle(decision: Decision, charts: Charts) -> str:
    plan = decision.plan
    if plan is None:
        return ""
    columns = {
        "Traffic": lambda way: TableCell(way.name),
        "More rounds": _rounds_cell,
        "Cost per round": lambda way: number_cell(way.cost),
    }
    items = {
        "Item": lambda item: TableCell(item_label(item)),
        "Share of the explored rounds": lambda item: number_cell(item["share"], share),
    }
    html = f"<p>{escape(decision.next_step)}</p>"
    if plan.rounds == 0:
        return html
    caption = (
        f"The probability of a decision after more rounds. The dashed line marks {100 * plan.chance:.3g} %, and points "
        "mark the planned rounds."
    )
    shown = [item for item in plan.items if item["share"] >= 0.001]
    return (
        html
        + figure("plan_chances", charts, caption, sentences.plan_sentence(plan))
        + table("Ways of logging the next rounds", plan.traffic, columns)
        + f"<details><summary>{len(shown)} items to show</summary>"
        + table("Items that the exploration policy shows", shown, items)
        + "</details>"
        + "<p>This plan is for a decision by the model alone. It may take more rounds until rewards confirm it.</p>"
    )


def _rounds_cell(way: Traffic) -> TableCell:
    """The planned rounds with two digits: no plan is more exact than that."""
    if not np.isfinite(way.rounds):
        return TableCell("none suffice", "number", "")
    return count_cell(float(f"{way.rounds:.2g}"))


def _goals(decision: Any, _: Charts) -> str:
    """The guardrails as a table; empty if there are none."""
    if not decision.guardrails:
        return ""
    columns = {
        "Goal": lambda row: TableCell(row.name),
        "Policy": lambda row: TableCell(row.policy),
        "Guardrail": lambda row: TableCell("holds" if row.holds else "blocks", css=f"light {_guardrail_colour(row)}"),
        "Probability": lambda row: number_cell(row.probability, percent),
        "Needed": lambda row: number_cell(row.sure, required_percent),
        "Change per round [95 % interval]": lambda row: estimate_cell(row.change, signed_number),
        "Limit": lambda row: TableCell(limit_words(row)),
    }
    return "<p>A policy is shipped only if every guardrail holds with the needed probability.</p>" + table(
        "Guardrails", decision.guardrails, columns
    )


def _best(decision: Any, _: Charts) -> str:
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
        "the best one. It is an average over the uncertainty about the gains, so it need not equal the "
        "difference between two gains.</p>"
    )


def _guardrail_colour(row: GuardrailResult) -> str:
    return "green" if row.holds else "red" if row.is_broken else "amber"


def _hidden(decision: Decision, _: Charts) -> str:
    cause = decision.hidden_cause
    if cause is None:
        return ""
    columns = {
        "Context column": lambda column: TableCell(column.column),
        "Bias if this column were hidden": lambda column: number_cell(column.strength),
        "Gain of a model without it": lambda column: number_cell(column.gain_without, signed_number),
        "Multiple needed to overturn the gain": lambda column: number_cell(
            column.times if column.strength > 0 else None
        ),
    }
    measures = table("Context columns for comparison", cause.columns, columns) if cause.columns else ""
    gain = signed_number(cause.gain.value)
    return (
        "<p>A hidden cause is something outside the context columns that influenced both the logged choice and the "
        "reward (an unobserved confounder). This section is about the model's own gain, before correction with the "
        f"logged rewards: {gain}.</p><p>{escape(cause.sentence_about('it'))}</p>{measures}"
    )


def _cannot_see(decision: Decision, _: Charts) -> str:
    return (
        "<p>The checks on this page use the log. Even if all of them pass, these problems remain possible:</p>"
        + notes(decision.cannot_see)
    )


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
    Section("settle", "What would settle it", _settle, {"plan_chances": _if_known(plots.plan_chances, "plan")}),
    SEGMENT_SECTION,
    Section("pairs", "Probability that one policy beats another", _pairs, {"probability_better": _pairs_chart}),
    Section("goals", "Other goals", _goals),
    Section("best", "Which policy is probably the best?", _best),
    Section("estimators", "Do the estimators agree with the model?", _estimators, {"agreement": _agreement_chart}),
    TRUST_SECTION,
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
    Section(
        "backtest",
        "Was the last forecast right?",
        backtest_section,
        {"backtest": _if_known(plots.backtest, "backtest")},
    ),
    Section("hidden", "How strong would a hidden cause have to be to overturn the gain?", _hidden),
    Section("blind", "What the checks cannot rule out", _cannot_see),
    Section("omitted", "Not in this report", lambda decision, _: notes(decision.omitted)),
)
"""The sections in the order of the page: the one place to add a section and its charts."""


def draw_charts(decision: Decision) -> dict[str, dict[str, Any]]:
    """The charts of all sections that the decision has the data for, by name."""
    return {name: chart for section in SECTIONS for name, chart in section.draw(decision).items()}
