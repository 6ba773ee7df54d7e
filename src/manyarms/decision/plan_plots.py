"""Plots of a plan: the probability of a decision against the number of rounds."""

from __future__ import annotations

import altair as alt
import numpy as np

from manyarms._base.checks import as_instance
from manyarms.decision.chart_parts import chart_of, layered, tooltips
from manyarms.decision.plan import Plan
from manyarms.errors import InputError


def plan_chances(plan: Plan) -> alt.LayerChart:
    """A plot of the probability of a decision after more rounds, for every way of logging them.

    A dashed line marks the desired probability, and a point the planned rounds of each way.

    Args:
        plan: The result of `plan`.
    """
    plan = as_instance("plan", plan, Plan, "what ma.plan() returned")
    if plan.rounds == 0:
        raise InputError("There is nothing to draw: the question is settled.")
    names = [way.name for way in plan.traffic]
    colour = alt.Color("traffic:N", sort=names, scale=alt.Scale(domain=names, range="category"))
    axis = alt.Axis(format="~s", labelOverlap="greedy", labelSeparation=8)
    x = alt.X("rounds:Q", title="more rounds", scale=alt.Scale(type="log", nice=False), axis=axis)
    y = alt.Y("chance:Q", title="probability of a decision", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    tips = [
        *tooltips({"traffic:N": "traffic", "rounds:Q": "rounds"}, ",.0f"),
        *tooltips({"chance:Q": "probability of a decision"}, ".0%"),
    ]
    planned = [
        {"traffic": way.name, "rounds": way.rounds, "chance": plan.chance}
        for way in plan.traffic
        if np.isfinite(way.rounds)
    ]
    desired = chart_of([{"chance": plan.chance}]).mark_rule(style="reference").encode(y="chance:Q")
    layers = [
        desired,
        chart_of(plan.curve())
        .mark_line(strokeWidth=2.5, interpolate="monotone")
        .encode(x=x, y=y, color=colour, tooltip=tips),
        chart_of(planned).mark_point().encode(x=x, y=y, color=colour, tooltip=tips),
    ]
    return layered(layers, 280, f"Probability of a decision against more rounds. {plan}")
