"""The demo's evaluation of its policies, on a terminal and as JSON."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from scipy import sparse

import manyarms as ma
from manyarms._base.arrow import parquet_table
from manyarms.cli.demo_files import commands
from manyarms.cli.terminal import visible
from manyarms.core.result_tables import percent, percent_in_words, share
from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.shop import CUSTOMER_COLUMNS, read_tables
from manyarms.jobs.evaluate import BASELINE, CURRENT, PolicyResult


@dataclass(frozen=True)
class DemoResult:
    """The demo's result: the decision between the current policy and the candidates.

    Attributes:
        n_rounds: Rounds in both halves of the log.
        n_items: Items in the catalog.
        n_categories: Categories of the items.
        n_never_shown: Items without a row in the first half of the log.
        learned: The learned parameters of the prior by name: standard deviations, and means coordinate by coordinate.
        true_values: The true value of each policy by name. Only a made-up shop has them.
        decision: The recommendation with its evidence.
    """

    n_rounds: int
    n_items: int
    n_categories: int
    n_never_shown: int
    learned: Mapping[str, float]
    true_values: Mapping[str, float]
    decision: ma.Decision

    @property
    def rows(self) -> tuple[PolicyResult, ...]:
        """The current policy, then the candidates."""
        return self.decision.evaluation.rows

    @property
    def ships(self) -> bool:
        """True when the recommendation is to ship a candidate."""
        return self.decision.verdict == "ship"


def evaluate_shop(folder: Path, truth: LinearEnvironment) -> DemoResult:
    """The demo's result: read its files as a user would, learn from the first half of the log, evaluate on the second.

    Args:
        folder: The folder with logs.parquet, new-logs.parquet and catalog.parquet.
        truth: The shop itself. It is used for the true values only.
    """
    catalog = parquet_table(folder / "catalog.parquet")
    old, logs = (read_tables(parquet_table(folder / name), catalog) for name in ("logs.parquet", "new-logs.parquet"))
    categories = catalog["category"].to_pylist()
    learned = ma.learn_prior(old, ma.priors.from_categories(categories, dim=logs.dim, shared_std=1.0))
    posterior = learned.posterior
    policies: dict[str, ma.Policy] = {
        "greedy": _as_table(ma.Greedy(posterior), logs.contexts),
        "pessimistic": _as_table(ma.Pessimistic(posterior), logs.contexts),
        "uniform": ma.Uniform(logs.n_actions),
    }
    everyone = {BASELINE: ma.Logged(logs), **policies}
    true_values = {name: truth.value(policy, logs.contexts) for name, policy in everyone.items()}
    decision = ma.decide(
        policies,
        logs,
        posterior,
        estimators=[ma.SNIPS(), ma.DR(posterior)],
        categories=categories,
        truth=true_values,
        true_rewards=truth.expected_reward(logs.contexts, logs.actions),
        notes={
            "command": f"manyarms {shlex.join(sys.argv[1:])}",
            "data": "a made-up shop, so the truth is known",
        },
        unit="euros",
    )
    decision = replace(decision, hidden_cause=_with_names(decision.hidden_cause))
    return DemoResult(
        n_rounds=len(old) + len(logs),
        n_items=logs.n_actions,
        n_categories=len(set(categories)),
        n_never_shown=old.n_actions - len(np.unique(old.actions)),
        learned={parameter.name: parameter.value for parameter in learned.parameters},
        true_values=true_values,
        decision=decision,
    )


def _with_names(cause: ma.HiddenCause | None) -> ma.HiddenCause | None:
    """The hidden cause with the names of the customers' columns; the first column of the contexts is the intercept."""
    if cause is None:
        return None
    names = {f"column {place}": name for place, name in enumerate(CUSTOMER_COLUMNS, start=1)}
    columns = tuple(replace(column, column=names.get(column.column, column.column)) for column in cause.columns)
    return replace(cause, columns=columns)


def _as_table(policy: ma.Policy, contexts: Any) -> ma.TablePolicy:
    """A deterministic policy as a table of its choices, so that the best items are searched for only once."""
    chosen = policy.actions(contexts)
    n = len(chosen)
    table = ma.TablePolicy(sparse.csr_array((np.ones(n), chosen, np.arange(n + 1)), shape=(n, policy.n_actions)))
    table.learned_from = policy.learned_from
    return table


MIN_WIDTH = 80

CAPTION = (
    "Never logged: the share of a policy's choices that fall on items which do not occur in the first half of the log "
    "(for the current policy: items first shown in the second half). The model learned from the first half, and "
    "estimates the rewards of these items from their categories. The true values are known because the shop is made "
    "up. The policies were learned from the same half, and the values are averages over the customers of the second "
    "half. Gains, unlike values, are corrected with the rewards logged in the second half, so a gain need not equal "
    "the difference between two values."
)


def print_result(result: DemoResult, folder: Path) -> None:
    """Print the demo's results: the shop, the table of policies, the decision, and commands for one's own data."""
    console = Console(highlight=False)
    # Below this the table would drop digits; a narrow terminal wraps whole lines instead.
    console.width = max(console.width, MIN_WIDTH)
    console.print(_opening(result, folder), soft_wrap=True)
    console.print(Text("Margin in euros per round\n", style="bold"))
    console.print(_table(result))
    console.print(f"\n{CAPTION}\n", style="dim")
    console.print(Text(_sentence(result), style="bold"))
    console.print(Text(visible(f"\nThe evidence on one page: {folder / 'report.html'}\n")), soft_wrap=True)
    console.rule("On your own data", characters="-", align="left")
    console.print()
    fit, report = commands(folder)
    script = f"{shlex.quote(_this_python())} {shlex.quote(str(folder / 'decide.py'))}"
    for text, *lines in (
        (
            f"Put the names of your files and columns into {folder / 'shop.toml'}, replace "
            f"{folder / 'new-logs.parquet'} in the second command with your newer log, then run the commands below. "
            "(On the demo's own files, these commands give somewhat different figures, because they standardise the "
            "context columns.)",
            fit,
            report,
        ),
        ("Or in Python: edit the names at the top of this script, then run it:", script),
    ):
        console.print(Text(visible(text)))
        console.print(Text(visible("\n".join(f"  {line}" for line in lines)), style="bold"), soft_wrap=True)


def figures(result: DemoResult, folder: Path) -> dict[str, Any]:
    """The demo's results as plain values, in full precision."""
    return {
        "shop": {
            "rounds": result.n_rounds,
            "items": result.n_items,
            "categories": result.n_categories,
            "items_never_shown": result.n_never_shown,
        },
        "learned": dict(result.learned),
        "policies": [_record(row, result.true_values[row.name]) for row in result.rows],
        "decision": {
            "ship": result.decision.policy if result.ships else None,
            "sentence": _sentence(result).replace("\n", " "),
        },
        "report": str(folder / "report.html"),
        "commands": list(commands(folder)),
        "folder": str(folder),
    }


def _record(row: PolicyResult, true_value: float) -> dict[str, Any]:
    value, gain = row.value, row.gain
    assert value is not None
    return {
        "name": CURRENT if gain is None else row.name,
        "value": value.value,
        "std": value.std,
        "interval_95": list(value.interval()),
        "true_value": true_value,
        "difference": None if gain is None else gain.value,
        "difference_interval_95": None if gain is None else list(gain.interval()),
        "probability_beats_now": None if gain is None else gain.probability_positive,
        "share_never_shown": value.diagnostics["unsupported_mass"],
    }


def _opening(result: DemoResult, folder: Path) -> Text:
    learned = result.learned
    return Text(
        f"A made-up shop: {result.n_rounds:,} rounds, {result.n_items:,} items in {result.n_categories:,} categories.\n"
        f"{result.n_never_shown:,} items ({share(result.n_never_shown / result.n_items)}) do not occur in the "
        "first half of the log.\n"
        f"The log was saved to {visible(folder)}, and a model was fitted to its first half.\n"
        f"Standard deviations learned from the first half of the log, in euros:\nnoise {learned['noise std']:.2g}, "
        f"categories {learned['category std']:.2g}, items within a category {learned['actions std']:.2g}.\n"
    )


def _table(result: DemoResult) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("\npolicy", no_wrap=True)
    for name in (
        "\nvalue",
        "\n95 % interval",
        "gain over\ncurrent",
        "P(beats\ncurrent)",
        "true\nvalue",
        "never\nlogged",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.rows:
        value, gain = row.value, row.gain
        assert value is not None
        low, high = value.interval()
        table.add_row(
            CURRENT if gain is None else row.name,
            f"{value.value:.3f}",
            f"{low:.3f} to {high:.3f}",
            "-" if gain is None else f"{gain.value:+.3f}",
            "-" if gain is None else percent(gain.probability_positive),
            f"{result.true_values[row.name]:.3f}",
            share(value.diagnostics["unsupported_mass"]),
            style="bold green" if result.ships and row.name == result.decision.policy else "",
        )
    return table


def _sentence(result: DemoResult) -> str:
    decision = result.decision
    if not result.ships:
        reason = decision.reason if decision.next_step in decision.reason else f"{decision.reason} {decision.next_step}"
        return f"{decision.sentence}\n{reason.strip()}"
    gain = decision.gains[decision.policy]
    low, high = gain.interval()
    sure = percent_in_words(gain.probability_positive)
    return (
        f"Ship {decision.policy}: it beats the current policy with probability {sure}.\n"
        f"Its gain is {gain.value:+.3f} euros per round, 95 % interval {low:+.3f} to {high:+.3f}."
    )


def _this_python() -> str:
    """The interpreter that has the library, as the shortest path from here."""
    here = Path.cwd()
    running = Path(sys.executable)
    return str(running.relative_to(here)) if running.is_relative_to(here) else str(running)
