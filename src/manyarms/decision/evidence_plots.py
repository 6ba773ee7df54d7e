"""Plots of the evidence behind a decision: traffic, single actions, calibration."""

from __future__ import annotations

from typing import Any

import altair as alt

from manyarms._base.checks import as_instance
from manyarms.core.result_tables import share as as_share
from manyarms.decision.chart_parts import chart_of, distinct_labels, layered, reference_line, short_label, tooltips
from manyarms.decision.decision_evidence import Calibration, CategorySupport, Shrinkage, Support, TrafficChanges
from manyarms.errors import InputError
from manyarms.jobs.evaluate import CURRENT

SIGNED = "datum.value === 0 ? '0\N{NO-BREAK SPACE}%' : datum.label"
"""A label of an axis with signs, where zero has none."""


def support(evidence: Support, policy: str | None = None) -> alt.LayerChart:
    """A plot of the share of each category in the evaluated log and under a policy, and how much was never logged.

    Args:
        evidence: The `support` of a `Decision`.
        policy: The name of the policy; None for the first.
    """
    evidence = as_instance("evidence", evidence, Support, "the support of what ma.decide() returned")
    names = list(evidence.rows[0].chosen)
    policy = names[0] if policy is None else policy
    if policy not in names:
        raise InputError(f"must be one of {', '.join(names)}; got {policy!r}.", argument="policy")
    listed = by_shown_share(evidence, policy)
    shown = distinct_labels(row.category for row in listed)
    parts = ["in the evaluated log", f"under {short_label(policy)}"]
    if any(row.unsupported[policy] > 0 for row in listed):
        parts.append(f"{parts[1]}, never logged")
    rows = [
        {
            "category": shown[row.category], "part": part, "share": share, "side": min(side, 1),
            "actions": f"{row.n_logged:,} of {row.n_actions:,}",
        }
        for row in listed
        for side, (part, share) in enumerate(
            zip(parts, (row.logged, row.chosen[policy], row.unsupported[policy]), strict=False)
        )
    ]  # fmt: skip
    tips = {"category:N": "category", "part:N": "where", "share:Q": "share", "actions:N": "actions logged"}
    drawn = chart_of(rows).encode(
        y=alt.Y("category:N", sort=list(shown.values()), title=None),
        yOffset=alt.YOffset("side:O", scale=alt.Scale(paddingInner=0.1)),
        x=alt.X("share:Q", title="share of rounds", axis=alt.Axis(format="%"), stack=None),
        color=alt.Color("part:N", sort=list(parts), scale=alt.Scale(domain=list(parts), range="category")),
        tooltip=tooltips(tips, ".1%"),
    )
    words = "; ".join(
        f"{shown[row.category]}: {as_share(row.logged)} of the evaluated log, "
        f"{as_share(row.chosen[policy])} of the choices"
        for row in listed
    )
    return layered([drawn.mark_bar()], max(60, 26 * len(listed)), f"Share of rounds by category: {words}.")


def by_shown_share(evidence: Support, policy: str) -> list[CategorySupport]:
    """The categories in the order of the larger of their two shares, in the log and under a policy; others last."""
    last = len(evidence.rows) - bool(evidence.n_summed)
    single = sorted(evidence.rows[:last], key=lambda row: -max(row.logged, row.chosen[policy]))
    return [*single, *evidence.rows[last:]]


def traffic_changes(evidence: TrafficChanges) -> alt.LayerChart:
    """A plot of the actions whose share of choices changes most when a policy replaces the current one.

    Args:
        evidence: The `traffic_changes` of a `Decision`.
    """
    source = "the traffic_changes of what ma.decide() returned"
    evidence = as_instance("evidence", evidence, TrafficChanges, source)
    if not evidence.rows:
        raise InputError(f"{evidence.policy} makes the same choices as the {CURRENT}, so no traffic changes.")
    labels = {row.action: row.label for row in evidence.rows}
    short = distinct_labels(labels.values()) if len(set(labels.values())) == len(labels) else distinct_labels(labels)
    shown = {action: short.get(label) or short[action] for action, label in labels.items()}
    rows = [
        {
            "action": shown[row.action], "category": short_label(row.category), "change": row.change,
            "logged": row.logged, "chosen": row.chosen, "rounds": row.n_rounds,
            "side": "gains" if row.change > 0 else "loses",
        }
        for row in evidence.rows
    ]  # fmt: skip
    base = chart_of(rows).encode(
        y=alt.Y("action:N", sort=list(shown.values()), title=None),
        x=alt.X("change:Q", title="change in share of choices", axis=alt.Axis(format="+%", labelExpr=SIGNED)),
        color=alt.Color("side:N", scale=alt.Scale(domain=["gains", "loses"], range="category"), legend=None),
        tooltip=[
            *tooltips({"action:N": "action", "category:N": "category", "rounds:Q": "evaluated rounds"}, ",.6~g"),
            *tooltips(
                {"logged:Q": "share in the evaluated log", "chosen:Q": f"share under {short_label(evidence.policy)}"},
                ".2%",
            ),
        ],
    )
    zero = reference_line(0.0, "no change")
    words = "; ".join(f"{row['action']} {100 * row['change']:+.1f} points" for row in rows)
    return layered(
        [base.mark_bar(), zero], max(60, 22 * len(rows)), f"Change in share of choices, in percentage points: {words}."
    )


def shrinkage(evidence: Shrinkage) -> alt.LayerChart:
    """A plot of the mean and expected reward of each action; the fewer its rounds, the further apart they lie.

    Args:
        evidence: The `shrinkage` of a `Decision`.
    """
    evidence = as_instance("evidence", evidence, Shrinkage, "the shrinkage of what ma.decide() returned")
    rows = [
        {**vars(row), "action": short_label(row.label), "category": short_label(row.category)} for row in evidence.rows
    ]
    fields = {
        "own": "mean logged reward",
        "posterior": "expected reward (model)",
        "category_only": "expected from its category",
    }
    tips = tooltips({"action:N": "action", "category:N": "category", "n_rounds:Q": "evaluated rounds"}, ",.6~g")
    tips += tooltips({f"{field}:Q": title for field, title in fields.items()}, ".4g")
    counts = [row.n_rounds for row in evidence.rows]
    within = alt.Scale(type="log", nice=False, domain=[min(counts) / 1.2, max(counts) * 1.2])
    x = alt.X("n_rounds:Q", title="evaluated rounds of the action", scale=within)
    base = chart_of(rows).encode(x=x, tooltip=tips)
    scale, kinds = alt.Scale(zero=False), [fields["own"], fields["posterior"]]
    look: dict[str, Any] = {
        "color": alt.Color("kind:N", scale=alt.Scale(domain=kinds, range="category")),
        "shape": alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "diamond"])),
    }

    def points(field: str) -> Any:
        return base.transform_calculate(kind=f"'{fields[field]}'").mark_point(size=34).encode(
            y=alt.Y(f"{field}:Q", title="reward", scale=scale), **look
        )  # fmt: skip

    moves = base.mark_rule(opacity=0.35, strokeWidth=1).encode(y=alt.Y("own:Q", scale=scale), y2="posterior:Q")
    layers = [moves, points("own"), points("posterior")]
    some = f"{len(rows):,} of {evidence.n_actions:,} actions with an evaluated round"
    return layered(layers, 340, f"Mean logged reward and expected reward of {some}, by number of evaluated rounds.")


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
    diagonal = chart_of(ends).mark_line(strokeDash=[4, 3], strokeWidth=1)
    scale = alt.Scale(zero=False)
    word = "true" if evidence.against_truth else "observed"
    observed = f"{word} mean reward"
    base = chart_of(rows).encode(
        x=alt.X("expected:Q", title="expected reward", scale=scale),
        tooltip=[
            *tooltips({"rounds:Q": "rounds"}, ",.0f"),
            *tooltips({"expected:Q": "expected reward", "observed:Q": observed}, ".4g"),
        ],
    )
    layers = [
        diagonal.encode(x="at:Q", y="at:Q"),
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=observed, scale=scale), y2="high:Q"),
        base.mark_point().encode(y=alt.Y("observed:Q", scale=scale)),
    ]
    words = "; ".join(f"expected {row['expected']:.3g}, {word} {row['observed']:.3g}" for row in rows)
    return layered(layers, 300, f"Expected and {word} rewards in {len(rows)} groups of rounds: {words}.")
