"""Figures in words."""

from __future__ import annotations


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.3g}" if abs(value) < 1e4 else f"{value:,.0f}"


def percent(share: float) -> str:
    """A probability or a share. Never 0 or 100 %: a posterior is not that sure."""
    if share > 0.999:
        return "> 99.9 %"
    return "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"
