"""Numbers, percentages and labels as text."""

from __future__ import annotations


def number(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:,.3g}" if abs(value) < 1e4 else f"{value:,.0f}"


def signed_number(value: float) -> str:
    """Format a number with its sign, for gains and losses."""
    return f"{value:+.3g}"


def signed_percent(value: float) -> str:
    """Format a relative change in percent, with its sign."""
    return f"{100 * value:+.3g} %"


def percent(probability: float) -> str:
    """Format a probability in percent. It is never printed as 0 or 100 %: a posterior is not that certain."""
    if probability > 0.999:
        return "> 99.9 %"
    return "< 0.1 %" if probability < 0.001 else f"{100 * probability:.1f} %"


def share(value: float) -> str:
    """Format a share in percent. Unlike a probability, it may be exactly 0 or 100 %."""
    return f"{100 * value:.0f} %" if value in (0.0, 1.0) else percent(value)


def printable(text: str) -> str:
    """Format a label beside numbers in a chart: without the characters that XML does not allow."""
    return "".join(character if character.isprintable() else " " for character in text)
