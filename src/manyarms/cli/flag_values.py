"""What a shell offers when Tab is pressed: names of figures, policies, estimators, kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from manyarms._base.option_values import ESTIMATORS, POLICIES, PriorKind
from manyarms.cli.spec import LikelihoodKind

Completer = Callable[[str], list[tuple[str, str]]]
"""From what is typed so far to what it may become, each with a word on it."""


def one_of(names: Iterable[str]) -> Completer:
    """One name."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(name, "") for name in names if name.startswith(incomplete)]

    return complete


def some_of(names: Mapping[str, str]) -> Completer:
    """Names with commas between them: those that are there are kept, and offered once.

    Args:
        names: Each with what its number is, or nothing where it takes none.
    """

    def complete(incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",")
        taken = {one.partition(":")[0] for one in before.split(",")}
        return [
            (f"{before}{comma}{name}", f":{number}" if number else "")
            for name, number in names.items()
            if name.startswith(last) and name not in taken
        ]

    return complete


def figure_names(incomplete: str) -> list[tuple[str, str]]:
    """Figures of `manyarms reproduce`, with their titles."""
    from manyarms.experiments.reproduction import figures  # noqa: PLC0415  slow to import

    return [(name, figure.title) for name, figure in figures().items() if name.startswith(incomplete)]


policy_names, estimator_names = some_of(POLICIES), some_of(ESTIMATORS)
prior_kinds, likelihood_kinds = one_of(get_args(PriorKind)), one_of(get_args(LikelihoodKind))
engine_names = one_of(("local", "dask", "spark"))
