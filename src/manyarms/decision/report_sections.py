"""The sections of the report of a decision, each from a briefing and the charts that it could draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from manyarms.decision import plots
from manyarms.decision.decide import Decision
from manyarms.decision.report_tables import Cell, count, estimate, figure, relative, share, sureness, table
from manyarms.errors import InputError

if TYPE_CHECKING:
    import altair as alt

Charts = Mapping[str, Any]
Section = Callable[[Decision, Charts], str]

LIGHTS = {"red": "● stop", "amber": "● mind", "green": "● fine"}
"""In words too, for those who do not see colours."""
FEW = 25
"""Rows of a table that are shown at once."""


def charts_of(briefing: Decision) -> dict[str, alt.LayerChart]:
    """The charts that can be drawn, by name."""
    found = dict[str, Any]()
    evaluation, calibrated = briefing.evaluation, briefing.calibration
    truth = {} if calibrated is None else calibrated.truth
    wanted: dict[str, Callable[[], Any]] = {
        "values": lambda: plots.values(evaluation, truth=truth),
        "gains": lambda: plots.gains(evaluation),
        "better": lambda: plots.better(evaluation),
        "agreement": lambda: plots.agreement(evaluation),
    }
    if not any(row.estimates for row in evaluation.rows):
        del wanted["agreement"]
    if len(evaluation.rows) < 3:
        # Of one candidate and what runs now, the chart of gains says it all.
        del wanted["better"]
    if briefing.movers is not None and briefing.movers.rows:
        moved = briefing.movers
        wanted["movers"] = lambda: plots.movers(moved)
    if briefing.support is not None and briefing.answer.policy:
        by_category, policy = briefing.support, briefing.answer.policy
        wanted["support"] = lambda: plots.support(by_category, policy)
    if briefing.shrinkage is not None:
        shrunk = briefing.shrinkage
        wanted["shrinkage"] = lambda: plots.shrinkage(shrunk)
    if calibrated is not None and calibrated.bins:
        wanted["calibration"] = lambda: plots.calibration(calibrated)
    for name, draw in wanted.items():
        try:
            found[name] = draw()
        except InputError:
            # There is nothing to draw: the section says so in words, or is left out.
            continue
    return found


def _figure(name: str, charts: Charts, caption: str) -> str:
    """The place of a chart, with its words for those who do not see it."""
    if name not in charts:
        return ""
    words = escape(str(charts[name].get("description", "")), quote=True)
    return (
        f'<figure><div class="chart" id="chart-{name}" role="img" aria-label="{words}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _folded(rows: int, text: str, what: str) -> str:
    """A long table is folded away."""
    return text if rows <= FEW else f"<details><summary>{rows:,} {escape(what)}</summary>{text}</details>"


def policies(briefing: Decision, charts: Charts) -> str:
    """What they are worth, and by how much they beat what runs now."""
    evaluation = briefing.evaluation
    if evaluation.baseline.value is None:
        return ""
    heads = ["policy", "value [95 %]", "over what runs now", "relative", "P(better)", "never logged", "prior share"]
    rows: list[list[Cell]] = []
    for row in evaluation.rows:
        figures = {} if row.value is None else row.value.diagnostics
        sure = None if row.difference is None else row.difference.probability_positive
        cells = [estimate(row.value), estimate(row.difference, sign=True), relative(row.lift), sureness(sure)]
        cells += [share(figures.get("unsupported_mass")), share(figures.get("prior_share"))]
        rows.append([Cell(row.name), *cells])
    truth = "" if briefing.calibration is None or not briefing.calibration.truth else " Diamonds are the truth."
    return (
        _figure("gains", charts, "What each policy adds a round to what runs now: 50 % and 95 % intervals.")
        + _figure(
            "values",
            charts,
            f"Values by the model: 50 % and 95 % intervals. Dashed: the mean reward in the log.{truth}",
        )
        + table(heads, rows, caption="Policies")
        + "<p>Never logged: the share of a policy's choices on actions without a round. Prior share: how much of the "
        "prior's variance the logs left in its value; near 100 % the figure is the prior's, not the data's.</p>"
    )


def pairs(briefing: Decision, charts: Charts) -> str:
    """Which is better than which."""
    return _figure(
        "better", charts, "How probable it is that the policy of the row is worth more than that of the column."
    )


def judges(briefing: Decision, charts: Charts) -> str:
    """Whether estimators that use the rewards alone agree with the model."""
    evaluation = briefing.evaluation
    if not any(row.estimates or row.left_out for row in evaluation.rows):
        return ""
    rows = [
        [Cell(row.name), Cell(name), estimate(found), figure(found.diagnostics.get("effective_sample_size"))]
        for row in evaluation.rows
        for name, found in row.estimates.items()
    ]
    left = [f"{row.name}: {name} left out: {why}" for row in evaluation.rows for name, why in row.left_out.items()]
    return (
        "<p>Estimators use the logged rewards and propensities, and no prior. Where their intervals exclude the "
        "model's value and their lights are green, trust neither before you know why.</p>"
        + _figure("agreement", charts, "The value of each policy by every judge, with 95 % intervals.")
        + table(["policy", "judge", "value [95 %]", "worth rounds"], rows, caption="Estimates")
        + _notes(left)
    )


def trust(briefing: Decision, charts: Charts) -> str:
    """Diagnostics with traffic lights, the check of the prior, and categories that contradict the model."""
    order = {"red": 0, "amber": 1, "green": 2}
    found = sorted(briefing.lights, key=lambda light: order[light.colour])
    rows = [
        [
            Cell(LIGHTS[light.colour], css=f"light {light.colour}"),
            Cell(light.policy),
            Cell(light.judge),
            Cell(light.figure.replace("_", " ")),
            figure(light.value),
            Cell(light.meaning),
        ]
        for light in found
    ]
    heads = ["light", "policy", "judge", "figure", "value", "what it is"]
    bad = sum(light.colour != "green" for light in found)
    parts = [table(heads, rows[:bad], caption="Diagnostics")] if bad else []
    if rows[bad:]:
        fine = table(heads, rows[bad:], caption="Diagnostics that are fine")
        parts.append(f"<details><summary>{len(rows) - bad:,} more are fine</summary>{fine}</details>")
    if briefing.check is not None:
        said = escape(str(briefing.check))
        parts.append(f'<h3>Do the rewards look as the prior says?</h3><p class="lines">{said}</p>')
    parts.append(_category_checks(briefing))
    if briefing.warnings:
        warnings = _notes(briefing.warnings)
        parts.append("<h3>Warnings</h3>" + _folded(len(briefing.warnings), warnings, "warnings"))
    return "".join(parts)


def _category_checks(briefing: Decision) -> str:
    checks = briefing.categories
    if checks is None:
        return ""
    flagged = checks.flagged
    head = f"<h3>Categories whose rewards contradict the model: {len(flagged):,} of {len(checks):,}</h3>"
    if not flagged:
        return head
    rows = [
        [
            Cell(str(row.category)),
            count(row.n_rounds),
            figure(row.observed),
            figure(row.prior_mean),
            figure(row.posterior_mean),
            Cell(", ".join(row.flags)),
        ]
        for row in flagged[:200]
    ]
    heads = ["category", "rounds", "observed mean", "prior expects", "model expects", "off in"]
    return head + _folded(len(rows), table(heads, rows, caption="Categories that contradict the model"), "categories")


def traffic(briefing: Decision, charts: Charts) -> str:
    """Where choices go."""
    moved, by_category = briefing.movers, briefing.support
    parts = list[str]()
    if moved is not None:
        parts.append(
            f"<p>{escape(moved.policy)} chooses otherwise than now in {moved.moved:.0%} of rounds at least.</p>"
        )
        parts.append(_figure("movers", charts, "The actions that gain and lose most of all choices."))
        rows = [
            [
                Cell(row.action), Cell(row.category), count(row.n_rounds), share(row.logged), share(row.chosen),
                figure(row.mean_reward), figure(row.expected),
            ]
            for row in moved.rows
        ]  # fmt: skip
        heads = [
            "action",
            "category",
            "rounds here",
            "share now",
            f"share under {moved.policy}",
            "mean reward here",
            "model expects",
        ]
        parts.append(table(heads, rows, caption="Actions that gain and lose most"))
    if by_category is not None:
        name = briefing.answer.policy
        summed = f" The last row sums up {by_category.n_summed:,} smaller ones." if by_category.n_summed else ""
        parts.append("<h3>By category</h3>")
        parts.append(_figure("support", charts, f"Shares of the log and of the choices by category.{summed}"))
        heads = ["category", "actions", "of them logged", "share now", f"share under {name}", "of that never logged"]
        rows = [
            [
                Cell(row.category), count(row.n_actions), count(row.n_logged), share(row.logged),
                share(row.chosen.get(name)), share(row.unsupported.get(name)),
            ]
            for row in by_category.rows
        ]  # fmt: skip
        parts.append(_folded(len(rows), table(heads, rows, caption="Support by category"), "categories"))
    return "".join(parts)


def shrinkage(briefing: Decision, charts: Charts) -> str:
    """How single actions are judged."""
    if briefing.shrinkage is None or "shrinkage" not in charts:
        return ""
    shown, everyone = len(briefing.shrinkage.rows), briefing.shrinkage.n_actions
    some = f" {shown:,} of {everyone:,} logged actions are shown." if shown < everyone else ""
    return (
        "<p>An action that was logged once has a mean reward that is mostly noise, so the model expects of it what its "
        "category says; one that was logged often speaks for itself.</p>"
        + _figure("shrinkage", charts, f"Own mean reward (rings) and what the model expects (dots), by rounds.{some}")
    )


def calibration(briefing: Decision, charts: Charts) -> str:
    """Expected and observed rewards."""
    found = briefing.calibration
    if found is None or not (found.bins or found.truth):
        return ""
    text = ""
    if found.truth:
        known = {row.name: row.value for row in briefing.evaluation.rows if row.value is not None}
        rows = [
            [Cell(name), estimate(known[name]), figure(value), Cell("yes" if _holds(known[name], value) else "no")]
            for name, value in found.truth.items()
            if name in known
        ]
        text += table(["policy", "value [95 %]", "truth", "inside"], rows, caption="Values and the truth")
    kind = "their true mean rewards" if found.against_truth else "rounds that the model has not seen"
    return text + _figure(
        "calibration", charts, f"Expected rewards against {kind}, in groups: on the diagonal when the model is right."
    )


def _holds(found: Any, value: float) -> bool:
    low, high = found.interval()
    return low <= value <= high


def missing(briefing: Decision, charts: Charts) -> str:
    """What could not be shown, and why."""
    return _notes(briefing.missing) if briefing.missing else ""


def _notes(lines: Any) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("policies", "What the policies are worth", policies),
    ("pairs", "Which is better than which", pairs),
    ("judges", "Do the judges agree?", judges),
    ("trust", "Can it be trusted?", trust),
    ("traffic", "Where the traffic goes", traffic),
    ("actions", "How single actions are judged", shrinkage),
    ("calibration", "Is the model calibrated?", calibration),
    ("missing", "What is missing", missing),
)
"""In the order of the page: (anchor, head, what makes it)."""
