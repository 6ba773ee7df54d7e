"""What charts have in common: rows as data, labels that any format can hold, and a size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from manyarms.briefing.words import percent
from manyarms.core.estimate import Estimate

if TYPE_CHECKING:
    import altair as alt

WIDTH = 620
"""Of a chart by itself, in pixels; a page may stretch it."""
ROW = 34
"""Height of a row of a chart that lists things."""
LONG = 40
"""Letters of a label that are shown."""


def plain(text: str) -> str:
    """Without what XML has no place for."""
    return "".join(character if character.isprintable() else " " for character in text)


def label(text: str) -> str:
    """The same, and not so long that it leaves no room for the chart."""
    text = plain(text)
    return text if len(text) <= LONG else text[: LONG - 1] + "…"


def labels(texts: Iterable[str]) -> dict[str, str]:
    """A label for each, all of them different."""
    found = dict[str, str]()
    for text in texts:
        short, count = label(text), 1
        while short in found.values():
            count += 1
            short = f"{label(text)} ({count})"
        found[text] = short
    return found


def chart(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    """A chart of these rows, to be given marks."""
    import altair as alt  # noqa: PLC0415  slow to import

    return alt.Chart(alt.Data(values=list(rows)))


def interval_row(name: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate with the ends of its 95 % and 50 % intervals, as data of a chart."""
    low, high = estimate.interval()
    inner_low, inner_high = estimate.interval(0.5)
    return {
        "name": name, "value": estimate.value, "low": low, "high": high, "inner_low": inner_low,
        "inner_high": inner_high, "shown": f"{estimate.value:.4g} [{low:.4g}, {high:.4g}]",
        "probability": percent(estimate.probability_positive),
    }  # fmt: skip


def listed(rows: Sequence[dict[str, Any]]) -> str:
    """Names and figures in words: what a chart of intervals says to those who cannot see it."""
    return "; ".join(f"{row['name']} {row['shown']}" for row in rows)


def sized(parts: Sequence[Any], height: int, words: str) -> alt.LayerChart:
    """Marks over one another, with a size, and words in the place of the picture."""
    import altair as alt  # noqa: PLC0415

    drawn: Any = alt.layer(*parts)
    return drawn.properties(width=WIDTH, height=height, description=words)
