"""Profiles of the columns of a table, collected in one pass over Arrow batches, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.arrow import compute, pa
from manyarms._base.checks import Array

MOST_DISTINCT = 200_000
"""Distinct values of a column that are counted exactly; a column with more counts as having many."""


@dataclass
class ColumnProfile:
    """One column, as far as one pass shows it.

    Attributes:
        name: Its name.
        type: Its Arrow type.
        n_rows: The number of rows.
        n_missing: The rows that lack a value; NaN counts as missing.
        low, high: The smallest and the largest number or time; None for other types.
        counts: How often each value comes, up to `MOST_DISTINCT` values.
        is_open: False once there were more values than that.
        filled_rewarded, filled_unrewarded: How often it has a value where the reward is not zero, and where it is.
        products: Sums of x, x², x·r, r and r² over rows that have a number, for the correlation with the reward.
    """

    name: str
    type: pa.DataType
    n_rows: int = 0
    n_missing: int = 0
    low: Any = None
    high: Any = None
    counts: dict[Any, int] = field(default_factory=dict[Any, int])
    is_open: bool = True
    filled_rewarded: int = 0
    filled_unrewarded: int = 0
    products: Float[Array, " 6"] = field(default_factory=lambda: np.zeros(6))

    @property
    def n_distinct(self) -> int:
        """The number of distinct values; a lower bound where there are many."""
        return len(self.counts)

    @property
    def is_number(self) -> bool:
        """True for numbers; not for booleans."""
        return pa.types.is_integer(self.type) or pa.types.is_floating(self.type) or pa.types.is_decimal(self.type)

    @property
    def is_time(self) -> bool:
        """True for timestamps and dates."""
        return pa.types.is_timestamp(self.type) or pa.types.is_date(self.type)

    @property
    def is_label(self) -> bool:
        """True for texts, and for integers, which may be ids."""
        return self.is_text or pa.types.is_integer(self.type)

    @property
    def is_text(self) -> bool:
        """True for texts, also where they are stored as a dictionary."""
        kind = self.type
        return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)

    @property
    def is_constant(self) -> bool:
        """True if all values are the same; lists are not compared."""
        return self.is_open and self.n_distinct <= 1 and not pa.types.is_nested(self.type)

    @property
    def odd_number(self) -> str | None:
        """The value because of which a column of numbers is read as texts, such as 1,250.00; None if it is not."""
        return odd_number([value for value in self.counts if isinstance(value, str)])

    @property
    def is_id_list(self) -> bool:
        """True for lists of texts or integers, such as candidates."""
        if not (pa.types.is_list(self.type) or pa.types.is_large_list(self.type)):
            return False
        inside = self.type.value_type
        return pa.types.is_string(inside) or pa.types.is_large_string(inside) or pa.types.is_integer(inside)

    @property
    def correlation(self) -> float:
        """The correlation with the reward; 0 where it is not defined."""
        n, x, xx, xr, r, rr = self.products.tolist()
        if n < 3:
            return 0.0
        spread = max(xx - x * x / n, 0.0) * max(rr - r * r / n, 0.0)
        return float((xr - x * r / n) / np.sqrt(spread)) if spread > 0 else 0.0

    def add(self, column: pa.Array, rewards: Float[Array, " n"] | None) -> None:
        """Count a batch of the column; `rewards` are those of its rows, NaN where they are missing."""
        call: Any = compute
        numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) if self.is_number else None
        there = column.is_valid().to_numpy(zero_copy_only=False)
        if numbers is not None:
            there = there & ~np.isnan(numbers)
        self.n_rows += len(column)
        self.n_missing += int((~there).sum())
        if (numbers is not None or self.is_time) and there.any():
            if numbers is not None:
                low, high = float(numbers[there].min()), float(numbers[there].max())
            else:
                low, high = call.min_max(column).as_py().values()
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        if self.is_open and not pa.types.is_nested(self.type):
            for entry in call.value_counts(column.filter(pa.array(there))).to_pylist():
                self.counts[entry["values"]] = self.counts.get(entry["values"], 0) + entry["counts"]
            self.is_open = len(self.counts) <= MOST_DISTINCT
        if rewards is not None:
            self._add_rewards(there, numbers, rewards)

    def _add_rewards(self, there: Array, numbers: Float[Array, " n"] | None, rewards: Float[Array, " n"]) -> None:
        known = ~np.isnan(rewards)
        self.filled_rewarded += int((there & known & (rewards != 0)).sum())
        self.filled_unrewarded += int((there & known & (rewards == 0)).sum())
        if numbers is not None:
            both = there & known & np.isfinite(numbers)
            x, r = numbers[both], rewards[both]
            self.products += np.array([len(x), x.sum(), (x * x).sum(), (x * r).sum(), r.sum(), (r * r).sum()])


def odd_number(texts: Sequence[str]) -> str | None:
    """The value that makes a column of numbers be read as texts, found in its profile, such as 1,250.00 or unknown.

    None if few of the texts are numbers, or if all are plain: 007 and 90210 may be codes.
    """
    odd = [text for text in texts if re.fullmatch(_PLAIN, text.strip()) is None]
    words = [text for text in odd if not _styled_number(text)]
    looks_numeric = len(texts) - len(words) >= 10 and len(words) <= min(3, 0.2 * len(texts))
    return odd[0] if odd and looks_numeric else None


def _styled_number(text: str) -> bool:
    """True for numbers with separators of thousands, a decimal comma, a currency or a per cent sign."""
    bare = re.sub(r"^(EUR|USD|GBP|CHF|[€$£¥])|(EUR|USD|GBP|CHF|[€$£¥%])$", "", re.sub(r"\s", "", text))
    grouped = r"[+-]?\d{1,3}([,.'’]\d{3})*([.,]\d+)?|[+-]?\d+[.,]\d+"
    return re.fullmatch(rf"{_PLAIN}|{grouped}", bare) is not None


_PLAIN = r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?"
