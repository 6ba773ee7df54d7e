"""Plots of results, for notebooks and for the report. Each function turns a result into an Altair chart.

    ma.plots.values(ma.evaluate(policies, logs, posterior))

Nothing is computed here: a chart shows what `ma.evaluate` and `ma.decide` computed. Colours come from `plots.theme`, so
that a page can be light or dark. They are those of Okabe and Ito, which most colour-blind readers can tell apart, and
lighter ones on dark pages. Altair is slow to import, so nothing else in the package imports this module early.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from manyarms._base.checks import as_instance
from manyarms.core.estimate import Estimate
from manyarms.core.result_tables import percent, printable
from manyarms.decision.decision_evidence import Calibration, Shrinkage, Support, TrafficChanges
from manyarms.errors import InputError
from manyarms.jobs.evaluate import CURRENT, Evaluation, free_name

__all__ = [
    "agreement",
    "calibration",
    "gains",
    "probability_better",
    "shrinkage",
    "support",
    "theme",
    "traffic_changes",
    "values",
]

_LIGHT = {
    "ground": "#ffffff", "ink": "#1f2328", "faint": "#6b7280", "line": "#d8dee4",
    "series": ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#56B4E9", "#555555"],
    "ramp": ["#D55E00", "#f6f6f6", "#0072B2"],
}  # fmt: skip
_DARK = {
    "ground": "#161b22", "ink": "#e6edf3", "faint": "#9aa4b2", "line": "#30363d",
    "series": ["#56B4E9", "#F08A4B", "#2FC79A", "#E29CC4", "#E6C229", "#8FB8FF", "#B0B8C4"],
    "ramp": ["#F08A4B", "#2a313c", "#56B4E9"],
}  # fmt: skip
_WIDTH = 620
"""Width of a single chart in pixels; a page may stretch it."""
_ROW = 34
"""Height of one row in a chart that lists policies."""


def theme(*, dark: bool = False) -> dict[str, Any]:
    """The theme of plots on a light or a dark page, as the `config` of Vega-Lite.

    Args:
        dark: True for a dark page.
    """
    look: dict[str, Any] = _DARK if dark else _LIGHT
    first = look["series"][0]
    words = {"labelColor": look["ink"], "titleColor": look["faint"], "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": "transparent" if dark else look["ground"],
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
        "view": {"stroke": None},
        "axis": {
            **words, "gridColor": look["line"], "domainColor": look["line"], "tickColor": look["line"],
            "titleFontWeight": "normal", "labelLimit": 170,
        },
        "axisX": {"titleAnchor": "start", "tickCount": 5},
        "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
        "legend": {**words, "orient": "top", "title": None, "labelLimit": 220, "symbolStrokeWidth": 2},
        "title": {"color": look["ink"], "anchor": "start"},
        "range": {"category": look["series"], "diverging": look["ramp"]},
        "mark": {"color": first},
        "bar": {"color": first, "cornerRadiusEnd": 2},
        "point": {"color": first, "filled": True, "size": 60, "opacity": 1.0},
        "rule": {"color": first},
        "line": {"color": look["faint"]},
        "text": {"color": look["ink"], "fontSize": 12},
        # Reference lines: zero, or the current policy.
        "style": {"reference": {"color": look["faint"], "strokeDash": [4, 3], "strokeWidth": 1}},
    }  # fmt: skip


def values(evaluation: Evaluation, *, truth: Mapping[str, float] | None = None) -> alt.LayerChart:
    """A plot of the value of each policy with 50 % and 95 % intervals. A dashed line marks the mean logged reward.

    Args:
        evaluation: The result of `evaluate`.
        truth: The true value of each policy by name, shown as a diamond.
    """
    shown = _labels(evaluation)
    rows = [_interval_row(shown[row.name], row.value) for row in evaluation.rows if row.value is not None]
    if not rows:
        raise InputError("There are no values by a model to draw.", "Draw the estimators with plots.agreement.")
    diamonds: list[Any] = []
    true = [{"name": shown[name], "value": value} for name, value in (truth or {}).items() if name in shown]
    if true:
        tips = _tooltips({"name:N": "policy", "value:Q": "true value"}, ".4g")
        marks = _chart(true).mark_point(shape="diamond", size=110, filled=False, strokeWidth=2)
        axis = alt.Y("name:N", sort=[row["name"] for row in rows], title=None)
        diamonds = [marks.encode(x="value:Q", y=axis, color=alt.value("#D55E00"), tooltip=tips)]
    line = _reference_line(evaluation.mean_reward, "mean logged reward")
    return _intervals(rows, "value per round", {"shown:N": "value [95 %]"}, line, diamonds)


def gains(evaluation: Evaluation) -> alt.LayerChart:
    """A plot of the gain of each policy over the current one with 50 % and 95 % intervals. A dashed line marks zero.

    Args:
        evaluation: The result of `evaluate`.
    """
    shown = _labels(evaluation)
    rows = [_interval_row(shown[row.name], row.gain) for row in evaluation.policies if row.gain is not None]
    if not rows:
        raise InputError("There are no gains to draw.", "Evaluate the policies with a posterior.")
    tips = {"shown:N": "gain [95 %]", "probability:N": "probability of a gain"}
    return _intervals(rows, f"gain per round over the {CURRENT}", tips, _reference_line(0.0, "no gain"))


def probability_better(evaluation: Evaluation) -> alt.LayerChart:
    """A plot, as a heat map, of the probability that the policy in each row is better than that in each column.

    Args:
        evaluation: The result of `evaluate(..., pairs=True)`.
    """
    shown = _labels(evaluation)
    pairs = {(a, b): evaluation.probability_better(a, b) for a in shown for b in shown if a != b}
    rows = [
        {"row": shown[a], "column": shown[b], "probability": probability, "shown": percent(probability)}
        for (a, b), probability in pairs.items()
        if probability is not None
    ]
    if not rows:
        remedy = "Evaluate the policies with a posterior and pairs=True."
        raise InputError("There are no probabilities to draw.", remedy)
    names = list(shown.values())
    base = _chart(rows).encode(
        x=alt.X(
            "column:N",
            sort=names,
            title="... than the policy of this column",
            axis=alt.Axis(orient="top", labelAngle=-45),
        ),
        y=alt.Y("row:N", sort=names, title="The policy of this row is better ..."),
        tooltip=_tooltips({"row:N": "policy", "column:N": "compared with", "shown:N": "probability of being better"}),
    )
    ramp = alt.Scale(domain=[0, 0.5, 1], range="diverging", interpolate="rgb")
    cells = base.mark_rect(opacity=0.55).encode(color=alt.Color("probability:Q", scale=ramp, legend=None))
    text = base.mark_text().encode(text="shown:N")
    words = "; ".join(f"{row['row']} better than {row['column']}: {row['shown']}" for row in rows)
    return _layered([cells, text], _ROW * (len(names) + 1), f"Probability that one policy beats another: {words}.")


def agreement(evaluation: Evaluation) -> alt.LayerChart:
    """A plot of the value of each policy by the model and by every estimator, with 95 % intervals.

    Args:
        evaluation: The result of `evaluate` with estimators.
    """
    shown = _labels(evaluation)
    rows = [
        {**_interval_row(shown[row.name], estimate), "estimator": estimator}
        for row in evaluation.rows
        for estimator, estimate in {"model": row.value, **row.estimates}.items()
        if estimate is not None
    ]
    if not rows:
        raise InputError("There are no estimates to draw.", "Evaluate the policies with a posterior or estimators.")
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    names = list(dict.fromkeys(row["name"] for row in rows))
    base = _chart(rows).encode(
        y=alt.Y("name:N", sort=names, title=None),
        yOffset=alt.YOffset("estimator:N", sort=estimators),
        color=alt.Color("estimator:N", sort=estimators, scale=alt.Scale(range="category")),
        tooltip=_tooltips({"name:N": "policy", "estimator:N": "estimator", "shown:N": "value [95 %]"}),
    )
    # Clipped: one very uncertain estimator would otherwise squeeze all others into a dot.
    scale = alt.Scale(domain=_domain(rows), clamp=False, nice=True)
    x = alt.X("low:Q", title="value per round", scale=scale)
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q")
    points = base.mark_point(clip=True).encode(x=alt.X("value:Q", scale=scale))
    height = round(_ROW * len(names) * max(1.0, 0.5 * len(estimators)))
    words = "; ".join(f"{row['name']} by {row['estimator']} {row['shown']}" for row in rows)
    return _layered([bars, points], height, f"Value per round by estimator with 95 % intervals: {words}.")


def _labels(evaluation: Evaluation) -> dict[str, str]:
    """A distinct label for each policy, the current one included; refuses what is not an evaluation."""
    evaluation = as_instance("evaluation", evaluation, Evaluation, "what ma.evaluate() returned")
    names = [row.name for row in evaluation.policies]
    candidates = _distinct_labels([CURRENT, *names])
    return {evaluation.baseline.name: CURRENT, **{name: candidates[name] for name in names}}


def _label(text: str) -> str:
    """Printable text, cut to 40 characters so that it leaves room for the chart."""
    text = printable(text)
    return text if len(text) <= 40 else text[:39] + "…"


def _distinct_labels(texts: Iterable[str]) -> dict[str, str]:
    shown = dict[str, str]()
    for text in texts:
        shown[text] = free_name(_label(text), shown.values())
    return shown


def _interval_row(name: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate with the ends of its 95 % and 50 % intervals, as a row of chart data."""
    low, high = estimate.interval()
    inner_low, inner_high = estimate.interval(0.5)
    return {
        "name": name, "value": estimate.value, "low": low, "high": high, "inner_low": inner_low,
        "inner_high": inner_high, "shown": f"{estimate.value:.4g} [{low:.4g}, {high:.4g}]",
        "probability": percent(estimate.probability_positive),
    }  # fmt: skip


def _domain(rows: list[dict[str, Any]]) -> list[float]:
    """The range of all values and of the model's intervals, with some room for the intervals of estimators."""
    points = [row["value"] for row in rows]
    central = [row for row in rows if row["estimator"] == "model"] or rows
    low = min([*points, *(row["low"] for row in central)])
    high = max([*points, *(row["high"] for row in central)])
    room = 0.35 * (high - low) or abs(high) or 1.0
    return [max(low - room, min(row["low"] for row in rows)), min(high + room, max(row["high"] for row in rows))]


def _intervals(
    rows: list[dict[str, Any]], axis: str, tips: Mapping[str, str], line: Any, others: Sequence[Any] = ()
) -> alt.LayerChart:
    """A thin line for each 95 % interval, a thick one for the 50 % interval, a point for the value."""
    y = alt.Y("name:N", sort=[row["name"] for row in rows], title=None)
    base = _chart(rows).encode(y=y, tooltip=_tooltips({"name:N": "policy", **tips}))
    scale = alt.Scale(zero=False)
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=axis, scale=scale), x2="high:Q"),
        base.mark_rule(strokeWidth=7, opacity=0.45).encode(x=alt.X("inner_low:Q", scale=scale), x2="inner_high:Q"),
        base.mark_point(size=90).encode(x=alt.X("value:Q", scale=scale)),
    ]
    words = "; ".join(f"{row['name']} {row['shown']}" for row in rows)
    return _layered([line, *layers, *others], _ROW * len(rows), f"{axis.capitalize()} with 95 % intervals: {words}.")


def support(evidence: Support, policy: str | None = None) -> alt.LayerChart:
    """A plot of the share of each category in the log and under a policy, and the part of it that was never logged.

    Args:
        evidence: The `support` of a `Decision`.
        policy: The name of the policy; None for the first.
    """
    evidence = as_instance("evidence", evidence, Support, "the support of what ma.decide() returned")
    names = list(evidence.rows[0].chosen)
    policy = names[0] if policy is None else policy
    if policy not in names:
        raise InputError(f"must be one of {', '.join(names)}; got {policy!r}.", argument="policy")
    shown = _distinct_labels(row.category for row in evidence.rows)
    parts = ("in the log", f"under {_label(policy)}", f"under {_label(policy)}, never logged")
    rows = [
        {
            "category": shown[row.category], "part": part, "share": share, "side": min(side, 1),
            "actions": f"{row.n_logged:,} of {row.n_actions:,}",
        }
        for row in evidence.rows
        for side, (part, share) in enumerate(
            zip(parts, (row.logged, row.chosen[policy], row.unsupported[policy]), strict=True)
        )
    ]  # fmt: skip
    tips = {"category:N": "category", "part:N": "bar", "share:Q": "share", "actions:N": "actions ever logged"}
    drawn = _chart(rows).encode(
        y=alt.Y("category:N", sort=list(shown.values()), title=None),
        yOffset=alt.YOffset("side:O", scale=alt.Scale(paddingInner=0.1)),
        x=alt.X("share:Q", title="share of rounds", axis=alt.Axis(format="%"), stack=None),
        color=alt.Color("part:N", sort=list(parts), scale=alt.Scale(domain=list(parts), range="category")),
        tooltip=_tooltips(tips, ".1%"),
    )
    words = "; ".join(
        f"{shown[row.category]}: {row.logged:.1%} of the log, {row.chosen[policy]:.1%} of the choices"
        for row in evidence.rows
    )
    return _layered([drawn.mark_bar()], max(60, 26 * len(evidence.rows)), f"Share of rounds by category: {words}.")


def traffic_changes(evidence: TrafficChanges) -> alt.LayerChart:
    """A plot of the actions whose share of choices changes most when a policy replaces the current one.

    Args:
        evidence: The `traffic_changes` of a `Decision`.
    """
    source = "the traffic_changes of what ma.decide() returned"
    evidence = as_instance("evidence", evidence, TrafficChanges, source)
    if not evidence.rows:
        raise InputError(f"{evidence.policy} makes the same choices as the {CURRENT}, so no traffic changes.")
    shown = _distinct_labels(row.action for row in evidence.rows)
    rows = [
        {
            "action": shown[row.action], "category": _label(row.category), "change": row.change, "logged": row.logged,
            "chosen": row.chosen, "rounds": row.n_rounds, "side": "gains" if row.change > 0 else "loses",
        }
        for row in evidence.rows
    ]  # fmt: skip
    base = _chart(rows).encode(
        y=alt.Y("action:N", sort=list(shown.values()), title=None),
        x=alt.X("change:Q", title="change in share of choices, percentage points", axis=alt.Axis(format="+%")),
        color=alt.Color("side:N", scale=alt.Scale(domain=["gains", "loses"], range="category"), legend=None),
        tooltip=[
            *_tooltips({"action:N": "action", "category:N": "category", "rounds:Q": "logged rounds"}, ",.6~g"),
            *_tooltips({"logged:Q": "share in the log", "chosen:Q": f"share under {_label(evidence.policy)}"}, ".2%"),
        ],
    )
    zero = _reference_line(0.0, "no change")
    words = "; ".join(f"{row['action']} {row['change']:+.1%}" for row in rows)
    return _layered([base.mark_bar(), zero], max(60, 22 * len(rows)), f"Change in share of choices: {words}.")


def shrinkage(evidence: Shrinkage) -> alt.LayerChart:
    """A plot of the mean and expected reward of each action; the fewer its rounds, the further apart they lie.

    Args:
        evidence: The `shrinkage` of a `Decision`.
    """
    evidence = as_instance("evidence", evidence, Shrinkage, "the shrinkage of what ma.decide() returned")
    rows = [{**vars(row), "action": _label(row.action), "category": _label(row.category)} for row in evidence.rows]
    fields = {
        "own": "mean logged reward", "posterior": "expected by the model", "category_only": "expected from its category"
    }  # fmt: skip
    tips = _tooltips({"action:N": "action", "category:N": "category", "n_rounds:Q": "logged rounds"}, ",.6~g")
    tips += _tooltips({f"{field}:Q": title for field, title in fields.items()}, ".4g")
    x = alt.X("n_rounds:Q", title="logged rounds of the action", scale=alt.Scale(type="log"))
    base = _chart(rows).encode(x=x, tooltip=tips)
    scale = alt.Scale(zero=False)
    colours = alt.Scale(domain=[fields["own"], fields["posterior"]], range="category")

    def points(field: str, **look: Any) -> Any:
        return base.transform_calculate(kind=f"'{fields[field]}'").mark_point(size=28, **look).encode(
            y=alt.Y(f"{field}:Q", title="reward", scale=scale), color=alt.Color("kind:N", scale=colours)
        )  # fmt: skip

    moves = base.mark_rule(opacity=0.35, strokeWidth=1).encode(y=alt.Y("own:Q", scale=scale), y2="posterior:Q")
    layers = [moves, points("own", filled=False, strokeWidth=1.2), points("posterior")]
    some = f"{len(rows):,} of {evidence.n_actions:,} logged actions"
    return _layered(layers, 340, f"Mean logged reward and expected reward of {some}, by number of logged rounds.")


def calibration(evidence: Calibration) -> alt.LayerChart:
    """A plot of expected against observed rewards, with two standard errors. A calibrated model lies on the diagonal.

    Args:
        evidence: The `calibration` of a `Decision`.
    """
    evidence = as_instance("evidence", evidence, Calibration, "the calibration of what ma.decide() returned")
    if not evidence.bins:
        problem = "There is nothing to draw: the model was trained on all of these rounds."
        raise InputError(problem, "Evaluate it on held-out rounds.")
    rows = [
        {
            "expected": group.expected, "observed": group.observed, "low": group.observed - 2 * (group.error or 0.0),
            "high": group.observed + 2 * (group.error or 0.0), "rounds": group.n_rounds,
        }
        for group in evidence.bins
    ]  # fmt: skip
    ends = [{"at": row["expected"]} for row in (rows[0], rows[-1])]
    diagonal = _chart(ends).mark_line(strokeDash=[4, 3], strokeWidth=1)
    scale = alt.Scale(zero=False)
    observed = "true mean reward" if evidence.against_truth else "observed mean reward"
    base = _chart(rows).encode(
        x=alt.X("expected:Q", title="expected reward", scale=scale),
        tooltip=[
            *_tooltips({"rounds:Q": "rounds"}, ",.0f"),
            *_tooltips({"expected:Q": "expected reward", "observed:Q": observed}, ".4g"),
        ],
    )
    layers = [
        diagonal.encode(x="at:Q", y="at:Q"),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=observed, scale=scale), y2="high:Q"),
        base.mark_point().encode(y=alt.Y("observed:Q", scale=scale)),
    ]
    words = "; ".join(f"expected {row['expected']:.3g}, observed {row['observed']:.3g}" for row in rows)
    return _layered(layers, 300, f"Expected and observed rewards in {len(rows)} groups of rounds: {words}.")


def _chart(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    """A chart with these rows as its data, still without marks."""
    return alt.Chart(alt.Data(values=list(rows)))


def _tooltips(shown: Mapping[str, str], format: str = "") -> list[Any]:
    """Tooltips with a title for each field; numbers (:Q) in this format."""
    return [
        alt.Tooltip(field, title=title, format=format) if field.endswith(":Q") else alt.Tooltip(field, title=title)
        for field, title in shown.items()
    ]


def _reference_line(value: float, meaning: str) -> alt.Chart:
    """A dashed vertical line, explained by its tooltip."""
    line = _chart([{"value": value, "meaning": meaning}]).mark_rule(style="reference")
    return line.encode(x="value:Q", tooltip=_tooltips({"meaning:N": " ", "value:Q": "value"}, ".4g"))


def _layered(layers: Sequence[Any], height: int, description: str) -> alt.LayerChart:
    """Marks drawn over each other, with a size and a description for readers who cannot see the chart."""
    drawn: Any = alt.layer(*layers)
    return drawn.properties(width=_WIDTH, height=height, description=description)
