"""Results of the commands, printed on a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyarms.cli.terminal import visible
from manyarms.core.estimate import Estimate
from manyarms.core.result_tables import SHOWN, number, percent, share, signed_number
from manyarms.decision.decide import Decision
from manyarms.decision.decide_files import LEFT_OUT
from manyarms.jobs.doctor import CheckUp
from manyarms.jobs.evaluate import CURRENT, Evaluation
from manyarms.jobs.segments import Segments
from manyarms.logs.row_reader import REASONS

CAPTION = (
    "Gain: the model's estimate, corrected with the rewards logged in these rounds, so it need not equal the "
    "difference between two values. Never logged: the share of a policy's choices that fall on actions without a row "
    "in the logs that the model was fitted on. Prior share: the share of the prior "
    "variance of the policy's value that remains once the logs have been used. At 100 %, the value rests on the prior "
    "alone."
)


def print_evaluation(figures: Mapping[str, Any], evaluation: Evaluation) -> None:
    """Print the results of an evaluation: the model's table, how to read it, and the estimators' table."""
    console = Console(highlight=False)
    source = f" drawn from {figures['rounds_in_logs']:,}" if figures["sampled"] else ""
    _print_line(console, f"{figures['rounds']:,} rounds{source}; mean reward {number(figures['mean_reward'])}.")
    _print_dropped(console, figures)
    console.print()
    if evaluation.baseline.value is not None:
        _print_table(console, _model_table(evaluation))
        console.print()
        console.print(Text(CAPTION, style="dim"))
        console.print()
    if any(row.estimates for row in evaluation.rows):
        _print_table(console, _estimator_table(evaluation))
        console.print()
    if evaluation.segments is not None:
        _print_table(console, _segment_table(evaluation.segments))
        console.print()
        for policy in evaluation.segments.summaries:
            _print_line(console, evaluation.segments.sentence(policy))
        console.print()


def print_decision(decision: Decision) -> None:
    """Print a decision from logs alone: the rounds, the model's table, the verdict and what the checks found."""
    console, evaluation = Console(highlight=False), decision.evaluation
    mean = number(evaluation.mean_reward)
    pooled = (
        f". Gains use all of them; values use the {evaluation.n_rounds:,} of the second half, with mean reward {mean}."
    )
    more = f"; mean reward {mean}." if evaluation.pooled_rounds is None else pooled
    _print_line(console, f"{evaluation.gain_rounds:,} rounds{more}")
    if LEFT_OUT in decision.made_with:
        _print_line(console, f"Left out: {decision.made_with[LEFT_OUT]}.")
    _print_line(console, f"Prior: {decision.made_with['prior']}.")
    console.print()
    _print_table(console, _model_table(evaluation))
    console.print()
    console.print(Text(CAPTION, style="dim"))
    sentences = [str(decision), decision.next_step, *decision.segment_sentences]
    for place, sentence in enumerate(sentences):
        if sentence not in sentences[0] or place == 0:
            console.print()
            _print_line(console, sentence)
    console.print()
    _print_line(console, f"{decision.checks_summary}. No check can rule out self-selection, hidden causes or change.")
    for check in decision.checks:
        if check.outcome == "failed":
            _print_line(console, f"Failed: {check.finding}")


def print_check_up(result: CheckUp) -> None:
    """Print a check-up of logs: the columns, each finding with its remedy, and the commands to run next."""
    console = Console(highlight=False)
    actions = "" if result.n_actions is None else f"; {result.n_actions:,} items in the catalog"
    _print_line(console, f"{result.n_rounds:,} rows{actions}.")
    console.print()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("column", "type", "role", "missing", "distinct"):
        table.add_column(name, justify="right" if name in ("missing", "distinct") else "left")
    for column in result.columns:
        cells = (f"{value:,}" if isinstance(value, int) else str(value) for value in column.values())
        table.add_row(*map(visible, cells))
    _print_table(console, table)
    console.print()
    for finding in result.findings:
        _print_line(console, f"{finding.level}: {finding.problem}")
        _print_line(console, f"    {finding.remedy}")
    if not result.findings:
        _print_line(console, "Nothing to fix.")
    if result.commands:
        console.print()
        _print_line(console, "Run next:")
        for command in result.commands:
            # In one line, to be copied.
            typer.echo(f"    {command}")


def print_fit(figures: Mapping[str, Any]) -> None:
    """Print the results of a fit: the size of the data, the learned prior, and the path of the model."""
    console = Console(highlight=False)
    _print_line(
        console,
        f"{figures['rounds']:,} rounds; {figures['actions']:,} actions, {figures['actions_seen']:,} of them logged; "
        f"{_count(len(figures['features']), 'feature')}; {figures['likelihood']} rewards.",
    )
    _print_dropped(console, figures)
    effects = ", ".join(_effects(text) for text in figures["prior"])
    _print_line(console, f"Prior: {effects}. Log evidence {figures['log_evidence']:.6g}.")
    for note in figures["notes"]:
        if note.startswith("auto: "):
            _print_line(console, f"Chosen: {note.removeprefix('auto: ')}.")
    learned = {name: value for name, value in (figures["learned"] or {}).items() if " mean " not in name}
    if learned:
        _print_line(console, f"Learned: {', '.join(f'{name} {number(value)}' for name, value in learned.items())}.")
    _print_line(console, f"Model: {figures['model']}", style="bold")


def _effects(text: str) -> str:
    """A group of effects in plain words: "6 category effects" for "category: 6"."""
    name, _, number_of = text.rpartition(": ")
    if not number_of.isdigit():
        return text
    if name == "shared":
        return f"{_count(int(number_of), 'effect')} shared by all actions"
    return _count(int(number_of), f"{name} effect")


def print_update(figures: Mapping[str, Any]) -> None:
    """Print the results of an update: what was added, and the path of the model."""
    console = Console(highlight=False)
    _print_line(
        console,
        f"{_count(figures['new_rounds'], 'new round')}, {_count(figures['new_actions'], 'new action')}; now "
        f"{_count(figures['rounds'], 'round')}, {_count(figures['actions'], 'action')}, "
        f"{figures['actions_seen']:,} of them logged.",
    )
    _print_dropped(console, figures)
    _print_line(console, f"Model: {figures['model']}", style="bold")


def _print_dropped(console: Console, figures: Mapping[str, Any]) -> None:
    for reason, count in figures["dropped"].items():
        if count:
            _print_line(console, f"Left out: {_count(count, 'row')} ({REASONS[reason]}).")
    if figures["counted_as_other"]:
        _print_line(console, f"Counted as (other): {_count(figures['counted_as_other'], 'row')} (unknown action).")


def _print_line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(visible(text), style=style), soft_wrap=True)


def _print_table(console: Console, table: Table) -> None:
    """Print a table with every digit: a narrow terminal wraps its lines."""
    width = console.width
    console.width = max(width, Console(width=1000).measure(table).maximum)
    console.print(table)
    console.width = width


def _model_table(evaluation: Evaluation) -> Table:
    gains = ("gain over\ncurrent", "P(beats\ncurrent)")
    table = _table(["\npolicy"], ["\nvalue", "\n95 % interval", *gains, "never\nlogged", "prior\nshare"])
    # Two spaces between columns: most tables then fit into 80 characters.
    table.padding = (0, 1, 0, 0)
    for row in evaluation.rows:
        if row.value is None:
            continue
        gain = row.gain
        table.add_row(
            _name(CURRENT if row is evaluation.baseline else row.name),
            number(row.value.value),
            _interval(row.value),
            "-" if gain is None else signed_number(gain.value),
            "-" if gain is None else percent(gain.probability_positive),
            share(row.value.diagnostics["unsupported_mass"]),
            share(row.value.diagnostics["prior_share"]),
        )
    return table


def _estimator_table(evaluation: Evaluation) -> Table:
    table = _table(["policy", "estimator"], ["value", "95 % interval"])
    for row in evaluation.rows:
        for name, estimate in row.estimates.items():
            table.add_row(_name(row.name), _name(name), number(estimate.value), _interval(estimate))
    return table


def _segment_table(segments: Segments) -> Table:
    table = _table(["segment", "policy"], ["rounds", "gain", "95 % interval", "P(beats\ncurrent)", "outcome"])
    for row in segments.rows[:SHOWN]:
        ends = " to ".join(signed_number(end) for end in row.gain.interval())
        table.add_row(
            _name(row.segment), _name(row.policy), f"{row.n_rounds:,.6g}", signed_number(row.gain.value), ends,
            percent(row.gain.probability_positive), row.outcome,
        )  # fmt: skip
    if len(segments) > SHOWN:
        table.add_row(f"and {len(segments) - SHOWN:,} more rows: see --json")
    return table


def _table(labels: Sequence[str], figures: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in labels:
        table.add_column(name, no_wrap=True)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _name(name: str) -> Text:
    """A name in a table: letters only, of which none is read as markup."""
    return Text(visible(name).replace("\n", "\\n"))


def _interval(estimate: Estimate) -> str:
    return " to ".join(number(end) for end in estimate.interval())


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def print_json(record: Mapping[str, Any]) -> None:
    """Print the result of a command as one JSON object."""
    typer.echo(json.dumps(record, indent=2))
