"""Plots of goals: the trade-off between two of them."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from manyarms._base.checks import as_instance, as_text
from manyarms.decision.chart_parts import chart_of, layered, tooltips
from manyarms.decision.trade_off import TradeOff
from manyarms.errors import ShapeError


def trade_off(result: TradeOff, *, names: tuple[str, str] = ("main goal", "other goal")) -> alt.LayerChart:
    """A plot of the main goal against the other, one point per policy, with 95 % intervals of both.

    Args:
        result: The result of `ma.trade_off`.
        names: The names of the two goals.
    """
    result = as_instance("result", result, TradeOff, "what ma.trade_off() returned")
    main, other = _two_names(names)
    rows = result.records()
    what = "change" if result.is_gain else "value"
    scale = alt.Scale(zero=False)
    tips = tooltips({"weight:Q": "weight of the other goal", "value:Q": main, "other:Q": other}, ".4g")
    base = chart_of(rows).encode(tooltip=tips)
    x = alt.X("other:Q", title=f"{other}, {what} per round", scale=scale)
    y = alt.Y("value:Q", title=f"{main}, {what} per round", scale=scale)
    layers = [
        base.mark_line(strokeWidth=1.5).encode(x=x, y=y, order="weight:Q"),
        base.mark_rule(opacity=0.4).encode(x=x, y=alt.Y("value_low:Q", scale=scale), y2="value_high:Q"),
        base.mark_rule(opacity=0.4).encode(x=alt.X("other_low:Q", scale=scale), x2="other_high:Q", y=y),
        base.mark_point(size=60).encode(x=x, y=y),
    ]
    words = "; ".join(f"{row['value']:.3g} and {row['other']:.3g}" for row in rows)
    return layered(layers, 300, f"{main} and {other} of {len(rows)} policies: {words}.")


def _two_names(names: Sequence[str]) -> tuple[str, str]:
    """Check the names of the two goals; a text is not a list of its characters."""
    words = "the names of both goals"
    listed = [names] if isinstance(names, str) else as_instance("names", names, Sequence, words)
    if len(listed) != 2:
        example = 'Name the main goal first, as in names=("margin", "returns").'
        raise ShapeError(f"must be {words}; got {len(listed)}.", example, argument="names")
    return as_text("names", listed[0]), as_text("names", listed[1])
