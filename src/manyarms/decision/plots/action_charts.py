"""Single actions: how far they are drawn towards their category, and which gain and lose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyarms._base.checks import as_instance
from manyarms.decision.action_changes import Movers, Shrinkage
from manyarms.decision.plots.chart_style import chart, label, labels, sized
from manyarms.errors import InputError

if TYPE_CHECKING:
    import altair as alt


def shrinkage(found: Shrinkage) -> alt.LayerChart:
    """From the mean of an action's own rewards to what the model expects of it: the fewer its rounds, the further.

    Args:
        found: What `ma.decide(...).shrinkage` holds.
    """
    import altair as alt  # noqa: PLC0415

    found = as_instance("found", found, Shrinkage, "the shrinkage of what ma.decide() returned")
    rows = [
        {
            "action": label(row.action), "category": label(row.category), "rounds": row.n_rounds, "own": row.own,
            "posterior": row.posterior, "category_only": row.category_only,
        }
        for row in found.rows
        if row.n_rounds > 0
    ]  # fmt: skip
    if not rows:
        raise InputError("no action was logged, so there is nothing to shrink.")
    marks = ("own mean reward", "expected by the model", "expected of its category")
    tips: list[Any] = ["action:N", "category:N", alt.Tooltip("rounds:Q", format=",.6~g")]
    tips += [
        alt.Tooltip(f"{field}:Q", title=title, format=".4g")
        for field, title in zip(("own", "posterior", "category_only"), marks, strict=True)
    ]
    base = chart(rows).encode(
        x=alt.X("rounds:Q", title="rounds of the action", scale=alt.Scale(type="log")), tooltip=tips
    )
    scale = alt.Scale(zero=False)
    colours = alt.Scale(domain=list(marks[:2]), range="category")

    def points(field: str, name: str, **look: Any) -> Any:
        return base.transform_calculate(what=f"'{name}'").mark_point(**look).encode(
            y=alt.Y(f"{field}:Q", title="mean reward", scale=scale), color=alt.Color("what:N", scale=colours)
        )  # fmt: skip

    moves = base.mark_rule(opacity=0.35, strokeWidth=1).encode(y=alt.Y("own:Q", scale=scale), y2="posterior:Q")
    own = points("own", marks[0], filled=False, size=28, strokeWidth=1.2)
    fitted = points("posterior", marks[1], size=28)
    words = (
        f"{len(rows):,} of {found.n_actions:,} logged actions by rounds: own mean reward, and what the model expects."
    )
    return sized([moves, own, fitted], 340, words)


def movers(found: Movers) -> alt.LayerChart:
    """The actions that gain and lose most choices when a policy replaces what runs now.

    Args:
        found: What `ma.decide(...).movers` holds.
    """
    import altair as alt  # noqa: PLC0415

    found = as_instance("found", found, Movers, "the movers of what ma.decide() returned")
    if not found.rows:
        raise InputError(f"{found.policy} chooses what runs now: no action gains or loses.")
    called = labels(row.action for row in found.rows)
    rows = [
        {
            "action": called[row.action], "category": label(row.category), "change": row.change, "logged": row.logged,
            "chosen": row.chosen, "rounds": row.n_rounds, "side": "gains" if row.change > 0 else "loses",
        }
        for row in found.rows
    ]  # fmt: skip
    base = chart(rows).encode(
        y=alt.Y("action:N", sort=list(called.values()), title=None),
        x=alt.X("change:Q", title="change of its share of choices", axis=alt.Axis(format="+%")),
        color=alt.Color("side:N", scale=alt.Scale(domain=["gains", "loses"], range="category"), legend=None),
        tooltip=[
            "action:N", "category:N", alt.Tooltip("logged:Q", title="share now", format=".2%"),
            alt.Tooltip("chosen:Q", title=f"share under {label(found.policy)}", format=".2%"),
            alt.Tooltip("rounds:Q", title="logged rounds", format=",.6~g"),
        ],
    )  # fmt: skip
    zero = chart([{"value": 0.0}]).mark_rule(style="reference").encode(x="value:Q")
    words = "; ".join(f"{row['action']} {row['change']:+.1%}" for row in rows)
    return sized([base.mark_bar(), zero], max(60, 22 * len(rows)), f"Changes of shares of choices: {words}.")
