"""What the demo finds out: the policies side by side, and which of them to ship.

How the demo's findings look: on a terminal, and as JSON.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from scipy import sparse

import manyarms as ma
from manyarms.cli.demo.script import commands
from manyarms.core.estimate import Estimate
from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.shop import read_tables
from manyarms.decision.verdict import SURE, percent
from manyarms.jobs.evaluate import PolicyResult


@dataclass(frozen=True)
class Candidate:
    """A policy, as judged by the posterior and, since the shop is made up, by the truth.

    Attributes:
        name: What to call it.
        value: Margin a round.
        gain: The same, less that of what runs now.
        true_value: What the posterior does not know, on the same customers.
        never_shown: Share of its choices that fall on items with no row in the log.
    """

    name: str
    value: ma.Estimate
    gain: ma.Estimate
    true_value: float
    never_shown: float


@dataclass(frozen=True)
class Comparison:
    """What runs now and what could run instead.

    Attributes:
        n_rounds: Rounds in the log.
        n_items: Items in the catalog.
        n_categories: Their categories.
        n_never_shown: Items with no row in the log.
        learned: What was learned of the prior, by name: standard deviations, and means coordinate by coordinate.
        now: What runs now; its gain is zero.
        candidates: What could run instead.
        briefing: All of it, for the report.
    """

    n_rounds: int
    n_items: int
    n_categories: int
    n_never_shown: int
    learned: Mapping[str, float]
    now: Candidate
    candidates: tuple[Candidate, ...]
    briefing: ma.Decision

    @property
    def best(self) -> Candidate:
        """The candidate that the answer is about."""
        return next(one for one in self.candidates if one.name == self.briefing.answer.policy)

    @property
    def ships(self) -> bool:
        """Whether the answer is to ship it."""
        return self.briefing.answer.verdict == "ship"


def compare(folder: Path, truth: LinearEnvironment) -> Comparison:
    """Read the files as a user would, learn a prior and fit, and judge the policies on the logged customers.

    Args:
        folder: Holds logs.parquet and catalog.parquet.
        truth: For the true values; nothing else sees it.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415  slow to import: `manyarms --help` must not wait for it

    catalog = pq.read_table(folder / "catalog.parquet")
    logs = read_tables(pq.read_table(folder / "logs.parquet"), catalog)
    categories = catalog["category"].to_pylist()
    learned = ma.learn_prior(logs, ma.priors.from_categories(categories, dim=logs.dim, shared_std=1.0))
    posterior = learned.posterior
    unseen = np.bincount(logs.actions, minlength=logs.n_actions) == 0
    policies, now = _policies(posterior, logs.contexts), ma.Logged(logs)
    true_values = {name: truth.value(policy, logs.contexts) for name, policy in {"logged": now, **policies}.items()}
    briefing = ma.decide(
        policies,
        logs,
        posterior,
        estimators=[ma.SNIPS(), ma.DR(posterior)],
        categories=categories,
        truth=true_values,
        true_rewards=truth.expected_reward(logs.contexts, logs.actions),
        sure=SURE,
        notes={"command": "manyarms demo", "data": "a made-up shop, so the truth is known"},
    )
    now_row, *others = (_judged(row, true_values[row.name]) for row in briefing.evaluation.rows)
    return Comparison(
        n_rounds=len(logs),
        n_items=logs.n_actions,
        n_categories=len(set(categories)),
        n_never_shown=int(unseen.sum()),
        learned={parameter.name: parameter.value for parameter in learned.parameters},
        now=now_row,
        candidates=tuple(others),
        briefing=briefing,
    )


def _judged(row: PolicyResult, true_value: float) -> Candidate:
    assert row.value is not None
    is_now = row.difference is None
    gain = ma.Estimate(0.0, 0.0) if row.difference is None else row.difference
    name = "what runs now" if is_now else row.name
    return Candidate(name, row.value, gain, true_value, row.value.diagnostics["unsupported_mass"])


def _policies(posterior: ma.RewardPosterior, contexts: Any) -> Mapping[str, ma.Policy]:
    return {
        "greedy": _written_down(ma.Greedy(posterior), contexts),
        "pessimistic": _written_down(ma.Pessimistic(posterior), contexts),
        "uniform": ma.Uniform(posterior.weights.n_actions),
    }


def _written_down(policy: ma.Policy, contexts: Any) -> ma.TablePolicy:
    """A deterministic policy as a table of its choices: the best items are searched for once, not at every question."""
    chosen = policy.actions(contexts)
    n = len(chosen)
    return ma.TablePolicy(sparse.csr_array((np.ones(n), chosen, np.arange(n + 1)), shape=(n, policy.n_actions)))


MIN_WIDTH = 78

CAPTION = (
    "Never shown: the share of choices that fall on items with no row in the log; what is known of those comes from "
    "their categories. True values, on the same customers, are "
    "known because the shop is made up."
)


def print_comparison(comparison: Comparison, folder: Path) -> None:
    """What was made up, the policies side by side, the decision, and the lines to run on one's own data."""
    console = Console(highlight=False)
    # Below this the table would drop digits; a narrow terminal wraps whole lines instead.
    console.width = max(console.width, MIN_WIDTH)
    console.print(_opening(comparison, folder), soft_wrap=True)
    console.print()
    console.print(_table(comparison))
    console.print()
    console.print(CAPTION, style="dim")
    console.print()
    console.print(_decision(comparison))
    console.print()
    console.print(Text(f"The evidence on one page: {folder / 'report.html'}"), soft_wrap=True)
    console.print()
    console.rule("On your own data", characters="-", align="left")
    console.print()
    spec = folder / "shop.toml"
    console.print(Text(f"Put the names of your files and columns into {spec}, then run"), soft_wrap=True)
    for line in commands(folder):
        console.print(Text(f"  {line}", style="bold"), soft_wrap=True)
    console.print(Text("or, in Python, set the names at the top of this script and run it"), soft_wrap=True)
    script = shlex.quote(str(folder / "decide.py"))
    console.print(Text(f"  {shlex.quote(_this_python())} {script}", style="bold"), soft_wrap=True)


def figures(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """The same figures, in full precision, as plain values."""
    best = comparison.best
    return {
        "shop": {
            "rounds": comparison.n_rounds,
            "items": comparison.n_items,
            "categories": comparison.n_categories,
            "items_never_shown": comparison.n_never_shown,
        },
        "learned": dict(comparison.learned),
        "policies": [_row(comparison.now, is_now=True), *(_row(row, is_now=False) for row in comparison.candidates)],
        "decision": {
            "ship": best.name if comparison.ships else None,
            "sentence": _decision(comparison).plain.replace("\n", " "),
        },
        "report": str(folder / "report.html"),
        "commands": list(commands(folder)),
        "folder": str(folder),
    }


def _row(candidate: Candidate, *, is_now: bool) -> dict[str, Any]:
    gain = candidate.gain
    return {
        "name": candidate.name,
        "value": candidate.value.value,
        "std": candidate.value.std,
        "interval_95": list(candidate.value.interval()),
        "true_value": candidate.true_value,
        "difference": None if is_now else gain.value,
        "difference_interval_95": None if is_now else list(gain.interval()),
        "probability_beats_now": None if is_now else gain.probability_positive,
        "share_never_shown": candidate.never_shown,
    }


def _opening(comparison: Comparison, folder: Path) -> Text:
    share = _share(comparison.n_never_shown / comparison.n_items)
    return Text(
        f"A made-up shop: {comparison.n_rounds:,} rounds, {comparison.n_items:,} items in "
        f"{comparison.n_categories:,} categories.\n"
        f"{comparison.n_never_shown:,} items ({share}) were never shown.\n"
        f"Saved as Parquet in {folder}, read back and fitted.\n"
        f"Learned from the log: a reward spreads by {comparison.learned['noise std']:.2g}, the weights of an item by "
        f"{comparison.learned['actions std']:.2g}\naround those of its category, and these by "
        f"{comparison.learned['category std']:.2g}."
    )


def _table(comparison: Comparison) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("margin, euros\nper round", no_wrap=True)
    for name in ("\nvalue", "\n95 % interval", "\nvs now", "P(beats\nnow)", "true\nvalue", "never\nshown"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in (comparison.now, *comparison.candidates):
        is_now = row is comparison.now
        table.add_row(
            row.name,
            f"{row.value.value:.3f}",
            _interval(row.value),
            "-" if is_now else f"{row.gain.value:+.3f}",
            "-" if is_now else percent(row.gain.probability_positive),
            f"{row.true_value:.3f}",
            _share(row.never_shown),
            style="bold green" if row is comparison.best and comparison.ships else "",
        )
    return table


def _decision(comparison: Comparison) -> Text:
    """What the report says too."""
    answer = comparison.briefing.answer
    if answer.verdict != "ship":
        return Text(f"{answer.sentence}\n{answer.reason}", style="bold")
    gain = comparison.best.gain
    low, high = gain.interval()
    size = f"{gain.value:+.3f} euros per round, 95 % interval {low:+.3f} to {high:+.3f}"
    sure = percent(gain.probability_positive)
    return Text(f"Ship {comparison.best.name}: it beats what runs now with probability {sure}.\n{size}.", style="bold")


def _interval(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return f"{low:.3f} to {high:.3f}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _this_python() -> str:
    """The interpreter that has the library, as short as it can be said from here."""
    here = Path.cwd()
    running = Path(sys.executable)
    return str(running.relative_to(here)) if running.is_relative_to(here) else str(running)
