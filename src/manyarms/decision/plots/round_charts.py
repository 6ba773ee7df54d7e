"""The rounds of a log: which categories they fall on, and whether their rewards come out as expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyarms._base.checks import as_instance
from manyarms.decision.calibration import Calibration
from manyarms.decision.plots.chart_style import chart, label, labels, sized
from manyarms.decision.support import Support
from manyarms.errors import InputError

if TYPE_CHECKING:
    import altair as alt


def support(found: Support, policy: str | None = None) -> alt.LayerChart:
    """The share of each category in the log and in the choices of a policy, and how much of these was never logged.

    Args:
        found: What `ma.decide(...).support` holds.
        policy: Whose choices; None for the first.
    """
    import altair as alt  # noqa: PLC0415

    found = as_instance("found", found, Support, "the support of what ma.decide() returned")
    names = list(found.rows[0].chosen) if found.rows else []
    policy = policy if policy is not None else next(iter(names), None)
    if policy not in names:
        raise InputError(f"there is no policy {policy!r} here; there are {', '.join(names)}.")
    called = labels(row.category for row in found.rows)
    parts = ("in the log", f"chosen by {label(policy)}", "of which never logged")
    rows = list[dict[str, Any]]()
    for row in found.rows:
        for part, share in zip(parts, (row.logged, row.chosen[policy], row.unsupported[policy]), strict=True):
            rows.append(
                {
                    "category": called[row.category],
                    "part": part,
                    "share": share,
                    "side": min(parts.index(part), 1),
                    "actions": f"{row.n_logged:,} of {row.n_actions:,} logged",
                }
            )
    drawn = chart(rows).encode(
        y=alt.Y("category:N", sort=list(called.values()), title=None),
        yOffset=alt.YOffset("side:O", scale=alt.Scale(paddingInner=0.1)),
        x=alt.X("share:Q", title="share of rounds", axis=alt.Axis(format="%"), stack=None),
        color=alt.Color("part:N", sort=list(parts), scale=alt.Scale(domain=list(parts), range="category")),
        tooltip=["category:N", "part:N", alt.Tooltip("share:Q", format=".1%"), "actions:N"],
    )
    words = "; ".join(
        f"{called[row.category]}: {row.logged:.1%} of the log, {row.chosen[policy]:.1%} of the choices"
        for row in found.rows
    )
    return sized([drawn.mark_bar()], max(60, 26 * len(found.rows)), f"Shares by category. {words}.")


def calibration(found: Calibration) -> alt.LayerChart:
    """What the model expects of rounds, and what they brought with two standard errors; right on the diagonal.

    Args:
        found: What `ma.decide(...).calibration` holds.
    """
    import altair as alt  # noqa: PLC0415

    found = as_instance("found", found, Calibration, "the calibration of what ma.decide() returned")
    if not found.bins:
        raise InputError("there is nothing to calibrate on: the model has seen all of these rounds.")
    rows = [
        {
            "expected": one.expected, "observed": one.observed, "low": one.observed - 2 * (one.error or 0.0),
            "high": one.observed + 2 * (one.error or 0.0), "rounds": one.n_rounds,
        }
        for one in found.bins
    ]  # fmt: skip
    ends = [min(row["expected"] for row in rows), max(row["expected"] for row in rows)]
    line = chart([{"at": end} for end in ends]).mark_line(strokeDash=[4, 3], strokeWidth=1)
    scale = alt.Scale(zero=False)
    base = chart(rows).encode(
        x=alt.X("expected:Q", title="expected reward", scale=scale),
        tooltip=[
            alt.Tooltip("rounds:Q", format=",.0f"),
            alt.Tooltip("expected:Q", format=".4g"),
            alt.Tooltip("observed:Q", format=".4g"),
        ],
    )
    words = "; ".join(f"expected {row['expected']:.3g}, observed {row['observed']:.3g}" for row in rows)
    parts = [
        line.encode(x="at:Q", y="at:Q"),
        base.mark_rule(strokeWidth=2).encode(
            y=alt.Y("low:Q", title="true mean reward" if found.against_truth else "observed reward", scale=scale),
            y2="high:Q",
        ),
        base.mark_point().encode(y=alt.Y("observed:Q", scale=scale)),
    ]
    return sized(parts, 300, f"Calibration in {len(rows)} groups of rounds: {words}.")
