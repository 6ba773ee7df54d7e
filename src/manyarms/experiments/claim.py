"""Claims of the paper, and the verdict of the rows: "holds", "does not hold", "undecided" or "not run".

A claim is a list of requirements (`experiments.claim_requirements`). Each makes comparisons that should all come out in
favour of the claim.

- It *holds* when every comparison is decided in its favour at 5 %, ties aside. The claim is the intersection of its
  comparisons, so each can be tested at the full 5 %.
- It *does not hold* when some comparison is decided against it, at 5 % shared among all of them (Bonferroni).
- It is *undecided* otherwise, and *not run* when rows are missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.stats import t as student

from manyarms.experiments.cell import Table

TEST_LEVEL = 0.05

Verdict = Literal["holds", "does not hold", "undecided", "not run"]
Decision = Literal["for", "against", "tie", "open"]


@dataclass(frozen=True)
class MethodComparison:
    """A method compared with a rival, a reference or a nominal value.

    Attributes:
        title: What is compared: the head of a table row.
        column: The head of its table column.
        rounds: The numbers of rounds that have to be run for it.
        count: Instances; with fewer than 2 nothing can be decided.
        p_for: The p-value of the test that decides in favour; 1 when nothing can be decided.
        p_against: The p-value of the test that decides against.
        tie: Whether the difference is too small to matter.
        numbers: The numbers, for a table.
    """

    title: str
    column: str
    rounds: tuple[int, ...]
    count: int
    p_for: float = 1.0
    p_against: float = 1.0
    tie: bool = False
    numbers: str = ""

    def decision(self, n_tests: int = 1) -> Decision:
        """The decision at 5 %; a decision against shares its level among `n_tests` comparisons."""
        if self.p_for < TEST_LEVEL:
            return "for"
        if self.tie:
            return "tie"
        return "against" if self.p_against < TEST_LEVEL / n_tests else "open"

    def t_test(self, mean: float, error: float, freedom: int | float, margin: float = 0.0) -> MethodComparison:
        """This comparison with the p-values of a t-test.

        Args:
            mean: Above zero in favour.
            error: Its standard error.
            freedom: Degrees of freedom.
            margin: Means within it are tied, when both one-sided t-tests at 5 % say so.
        """
        if error == 0:
            p_for, p_against = float(not mean > 0), float(not mean < 0)
        else:
            p_for, p_against = (float(student.sf(sign * mean / error, freedom)) for sign in (1, -1))
        tie = abs(mean) + float(student.ppf(0.95, freedom)) * error < margin
        return replace(self, p_for=p_for, p_against=p_against, tie=tie, numbers=f"{mean:+.3g} ± {error:.2g}")


def above_zero(
    title: str, n: int, differences: Iterable[float], *, column: str = "", margin: float = 0.0
) -> MethodComparison:
    """Test by one-sided t-tests that the mean of paired differences is above zero.

    Args:
        title: The head of a table row.
        n: Rounds.
        differences: One for each instance.
        column: The head of a table column; by default the rounds.
        margin: Means within it are tied, when both t-tests at 5 % say so.
    """
    values = np.array(list(differences))
    comparison = MethodComparison(title, column or f"n = {n:,}", (n,), len(values))
    if len(values) < 2:
        return comparison
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return comparison.t_test(float(values.mean()), error, len(values) - 1, margin)


class Requirement(ABC):
    """A part of a claim that can be checked on rows."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The labels of the problems it is about."""

    @abstractmethod
    def comparisons(self, table: Table) -> list[MethodComparison]:
        """The comparisons that should all come out in its favour."""


@dataclass(frozen=True)
class ClaimResult:
    """The result of testing a claim on rows.

    Attributes:
        comparisons: The comparisons it rests on.
    """

    comparisons: tuple[MethodComparison, ...]

    def decision(self, comparison: MethodComparison) -> Decision:
        """The decision of one of its comparisons."""
        return comparison.decision(len(self.comparisons))

    @property
    def verdict(self) -> Verdict:
        """The verdict, by the rules at the top of the module."""
        if not self.comparisons or any(comparison.count < 2 for comparison in self.comparisons):
            return "not run"
        decisions = {self.decision(comparison) for comparison in self.comparisons}
        if "for" in decisions and decisions <= {"for", "tie"}:
            return "holds"
        return "does not hold" if "against" in decisions else "undecided"

    def __str__(self) -> str:
        run = [comparison for comparison in self.comparisons if comparison.count >= 2]
        if len(run) < len(self.comparisons) or not run:
            return f"{len(run)} of {len(self.comparisons)} comparisons could be made"
        decisions = [self.decision(comparison) for comparison in run]
        counts = [f"{decisions.count('for')} for", f"{decisions.count('against')} against"]
        counts += [f"{decisions.count('tie')} tied"] * ("tie" in decisions) + [f"{decisions.count('open')} open"]
        noun = "comparison" if len(run) == 1 else "comparisons"
        return f"{len(run)} {noun}: {', '.join(counts)}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and its meaning in rows.

    Attributes:
        text: The claim, in our words.
        requirements: What must all come out in its favour.
        remark: A comment on the paper-size run; empty where there is nothing to add.
    """

    text: str
    requirements: Sequence[Requirement]
    remark: str = ""

    def test(self, table: Table, rounds: Mapping[str, set[int]]) -> ClaimResult:
        """Test the claim on rows.

        Args:
            table: Results.
            rounds: The numbers of rounds that were to be run, by the label of a problem: no others count.
        """
        kept = [
            comparison
            for requirement in self.requirements
            for comparison in requirement.comparisons(table)
            if all(rounds.get(label, set()).issuperset(comparison.rounds) for label in requirement.labels)
        ]
        return ClaimResult(tuple(kept))
