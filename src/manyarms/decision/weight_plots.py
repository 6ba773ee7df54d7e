"""Plots of importance weights: the estimate against the clip, and the balance of the weights."""

from __future__ import annotations

import altair as alt

from manyarms._base.checks import as_instance
from manyarms.core.result_tables import share as share_text
from manyarms.decision.chart_parts import ROW, chart_of, distinct_labels, layered, tooltips
from manyarms.estimators.check_weights import WeightCheck


def clip_curve(check: WeightCheck) -> alt.LayerChart:
    """A plot of the estimate as a function of the clip of the weights, with 95 % intervals. A flat curve needs no clip.

    Args:
        check: The result of `check_weights`.
    """
    check = as_instance("check", check, WeightCheck, "what ma.check_weights() returned")
    rows = [{**row, "label": "none" if row["clip"] == 0 else f"{row['clip']:.2g}"} for row in check.clip_curve]
    scale = alt.Scale(zero=False)
    base = chart_of(rows).encode(
        x=alt.X("label:O", sort=[row["label"] for row in rows], title="clip: floor on the propensity"),
        tooltip=[
            *tooltips({"label:N": "clip"}),
            *tooltips({"value:Q": "estimate", "low:Q": "low", "high:Q": "high"}, ".4g"),
            *tooltips({"size:Q": "effective sample size"}, ",.0f"),
            *tooltips({"clipped:Q": "rounds clipped"}, ".0%"),
        ],
    )
    layers = [
        base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title="estimate by snIPS", scale=scale), y2="high:Q"),
        base.mark_point().encode(y=alt.Y("value:Q", scale=scale)),
    ]
    words = "; ".join(f"clip {row['label']}: {row['value']:.4g}" for row in rows)
    return layered(layers, 240, f"Estimate by snIPS against the clip. {words}.")


def weight_balance(check: WeightCheck) -> alt.LayerChart:
    """A plot of the share of each group that a policy chooses (tick), and its weighted share in the log (point).

    Lines are two standard errors. A tick far from its line says that the propensities of the group are wrong.

    Args:
        check: The result of `check_weights`.
    """
    check = as_instance("check", check, WeightCheck, "what ma.check_weights() returned")
    shown = distinct_labels(str(row["group"]) for row in check.balance)
    rows = [
        {
            **row, "group": shown[str(row["group"])], "low": row["weighted"] - 2 * row["error"],
            "high": row["weighted"] + 2 * row["error"],
        }
        for row in check.balance
    ]  # fmt: skip
    base = chart_of(rows).encode(
        y=alt.Y("group:N", sort=list(shown.values()), title=None),
        tooltip=[
            *tooltips({"group:N": "group"}),
            *tooltips({"chosen:Q": "chosen by the policy", "weighted:Q": "weighted share in the log"}, ".2%"),
            *tooltips({"z:Q": "standard errors apart"}, ".1f"),
        ],
    )
    share = alt.Axis(format="%")
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title="share of rounds", axis=share), x2="high:Q"),
        base.mark_point().encode(x="weighted:Q"),
        base.mark_tick(thickness=3, size=18, color="#D55E00").encode(x="chosen:Q"),
    ]
    words = "; ".join(
        f"{shown[str(row['group'])]} chosen {share_text(row['chosen'])}, weighted {share_text(row['weighted'])}"
        for row in check.balance
    )
    return layered(layers, max(60, ROW * len(rows)), f"Balance of the weights: {words}.")
