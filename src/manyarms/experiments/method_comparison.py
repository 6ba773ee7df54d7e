"""A comparison of a method with a rival, a reference or a nominal value, and the tests that decide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtr
from scipy.stats import t as student

TEST_LEVEL = 0.05

Decision = Literal["for", "against", "tie", "open"]


@dataclass(frozen=True)
class MethodComparison:
    """A comparison of a method with a rival, a reference or a nominal value.

    `title` and `column` are the heads of its row and column in a table, `numbers` its entry. All its `rounds` have to
    be run. `count` counts instances; with fewer than 2 nothing can be decided. `p_for` and `p_against` are p-values of
    the tests that decide; a `tie` is a difference too small to matter, by the `margin`. `samples` has what is averaged
    over n, by instance: paired differences, or the gains on two problems, of which the second should be larger; they
    may be `relative` to mean errors. The method may have been `chosen_from` several on the same rows; then `samples`
    are those of `chosen`, the best over all n.
    """

    title: str
    column: str
    rounds: tuple[int, ...]
    count: int
    p_for: float = 1.0
    p_against: float = 1.0
    tie: bool = False
    numbers: str = ""
    margin: float = 0.0
    samples: tuple[Mapping[int, float], ...] = ()
    chosen_from: int = 1
    relative: bool = False
    chosen: str = ""

    def decision(self, level_against: float = TEST_LEVEL) -> Decision:
        """The decision at 5 %; a decision against has a level of its own. A tie is a tie, however sure its sign is."""
        if self.tie:
            return "tie"
        if self.p_for < TEST_LEVEL:
            return "for"
        return "against" if self.p_against < level_against else "open"

    def t_test(self, mean: float, error: float, freedom: int | float, margin: float = 0.0) -> MethodComparison:
        """This comparison with p-values of a t-test that the mean is above zero; a tie if surely within the margin."""
        if error == 0:
            p_for, p_against = float(not mean > 0), float(not mean < 0)
        else:
            p_for, p_against = (float(student.sf(sign * mean / error, freedom)) for sign in (1, -1))
        tie = abs(mean) + float(student.ppf(0.95, freedom)) * error < margin
        p_for = min(1.0, p_for * self.chosen_from)
        return replace(self, p_for=p_for, p_against=p_against, tie=tie, numbers=f"{mean:+.3g} ± {error:.2g}")

    def tested(self, *samples: Mapping[int, float]) -> MethodComparison:
        """This comparison, by a t-test of paired differences, or of two samples that share no instances."""
        values = [np.array(list(sample.values())) for sample in samples]
        count = min(map(len, values))
        tested = replace(self, count=count)
        if count < 2:
            return tested
        error = float(np.sqrt(sum(value.var(ddof=1) / len(value) for value in values)))
        mean = float(values[-1].mean() - (values[0].mean() if len(values) > 1 else 0.0))
        return tested.t_test(mean, error, count - 1, self.margin)

    def open_below(self, least: int) -> MethodComparison:
        """This comparison, left open if it rests on fewer than `least` instances."""
        return self if self.count >= least else replace(self, p_for=1.0, p_against=1.0, tie=False)

    def near(self, distance: float, numbers: str, *, enough: bool) -> MethodComparison:
        """This comparison, in favour within two standard errors, against by a two-sided normal test."""
        p_for = float(not (distance <= 2 and enough))
        return replace(self, p_for=p_for, p_against=float(2 * ndtr(-distance)), numbers=numbers)


def above_zero(
    title: str, n: int, differences: Mapping[int, float], *, column: str = "", margin: float = 0.0, chosen_from: int = 1
) -> MethodComparison:
    """A comparison of methods by a test that the mean of their paired differences, by instance, is above zero."""
    column = column or f"n = {n:,}"
    comparison = MethodComparison(title, column, (n,), len(differences), margin=margin, chosen_from=chosen_from)
    return replace(comparison, samples=(differences,)).tested(differences)


def average_over_n(comparisons: Sequence[MethodComparison]) -> MethodComparison:
    """A comparison of methods at several numbers of rounds, by means over them, instance by instance."""
    samples: list[Mapping[int, float]] = []
    for parts in zip(*(comparison.samples for comparison in comparisons), strict=True):
        common = sorted(set.intersection(*(set(part) for part in parts)))
        samples.append({i: float(np.mean([part[i] for part in parts])) for i in common})
    first, rounds = comparisons[0], tuple(n for comparison in comparisons for n in comparison.rounds)
    column = "mean over n, relative" if first.relative else "mean over n"
    average = replace(first, column=column, rounds=rounds, samples=tuple(samples), numbers="").tested(*samples)
    return replace(average, numbers=f"{first.chosen}: {average.numbers}") if first.chosen else average
