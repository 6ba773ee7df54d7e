"""How what the commands found looks: on a terminal, and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from manyarms.cli.error_words import in_flags
from manyarms.core.estimate import Estimate
from manyarms.core.fingerprint import any_shared
from manyarms.decision.verdict import percent
from manyarms.jobs.evaluate import BASELINE, Evaluation, PolicyResult
from manyarms.logs.row_reader import DroppedRows

if TYPE_CHECKING:
    import manyarms as ma
    from manyarms.jobs import RoundSample

SAME_ROWS = (
    "the model was fitted on these logs, or on some of them: policies made from it look better here than they are. "
    "Judge on later logs"
)


def evaluation_figures(
    evaluation: Evaluation,
    drawn: RoundSample,
    stream: ma.LogStream,
    posterior: ma.RewardPosterior | ma.HurdlePosterior | None,
) -> dict[str, Any]:
    """An evaluation as plain values, in full precision."""
    warnings = list[str]()
    if posterior is not None and any_shared(posterior.learned_from, stream.source.fingerprints):
        warnings.append(SAME_ROWS)
    warnings += _each_once(evaluation)
    return {
        "rounds": evaluation.n_rounds,
        "rounds_in_logs": drawn.total,
        "sampled": evaluation.n_rounds < drawn.total,
        **dropped_rows(stream.dropped),
        "mean_reward": evaluation.mean_reward,
        "policies": [_record(row) for row in evaluation.rows],
        "warnings": [in_flags(one) for one in warnings],
    }


def dropped_rows(dropped: DroppedRows) -> dict[str, Any]:
    """What was left out and why, and what counts as something else."""
    reasons = ("missing", "unknown", "immature", "counted")
    return {"dropped": {name: getattr(dropped, name) for name in reasons}, "counted_as_other": dropped.mapped}


def _each_once(evaluation: Evaluation) -> list[str]:
    """What is to be said of policies, with those that it is said of; of all of them, without."""
    of = dict[str, list[str]]()
    for row in evaluation.rows:
        for one in row.all_warnings:
            of.setdefault(one, []).append(row.name)
    candidates = {row.name for row in evaluation.policies}
    # The baseline is judged by no estimator.
    general = {one for one, names in of.items() if len(names) > 1 and candidates <= set(names)}
    return [one if one in general else f"{', '.join(names)}: {one}" for one, names in of.items()]


def print_evaluation(figures: Mapping[str, Any], evaluation: Evaluation) -> None:
    """The table of policies, that of estimators, and how to read them."""
    console = _console()
    of = f" drawn from {figures['rounds_in_logs']:,}" if figures["sampled"] else ""
    console.print(Text(f"{figures['rounds']:,} rounds{of}; mean reward {figures['mean_reward']:.4g}."), soft_wrap=True)
    _print_dropped(console, figures)
    console.print()
    if evaluation.baseline.value is not None:
        _print_table(console, _by_model(evaluation))
        console.print()
        console.print(Text(_CAPTION, style="dim"))
        console.print()
    if any(row.estimates for row in evaluation.rows):
        _print_table(console, _by_estimators(evaluation))
        console.print()


def print_fit(figures: Mapping[str, Any]) -> None:
    """What was read, what was learned, and where the model is."""
    console = _console()
    console.print(
        Text(
            f"{figures['rounds']:,} rounds; {figures['actions']:,} actions, {figures['actions_seen']:,} of them seen; "
            f"{len(figures['features'])} features; {figures['likelihood']} rewards."
        ),
        soft_wrap=True,
    )
    _print_dropped(console, figures)
    console.print(
        Text(f"Prior: {'; '.join(figures['prior'])}. Log evidence {figures['log_evidence']:.6g}."), soft_wrap=True
    )
    if figures["learned"] is not None:
        spreads = {name: value for name, value in figures["learned"].items() if " mean " not in name}
        shown = ", ".join(f"{name} {value:.3g}" for name, value in spreads.items())
        if shown:
            console.print(Text(f"Learned: {shown}."), soft_wrap=True)
    console.print(Text(f"Model: {figures['model']}", style="bold"), soft_wrap=True)


def print_update(figures: Mapping[str, Any]) -> None:
    """What was added, and where the model is."""
    console = _console()
    console.print(
        Text(
            f"{_counted(figures['new_rounds'], 'new round')}, {_counted(figures['new_actions'], 'new action')}; now "
            f"{_counted(figures['rounds'], 'round')}, {_counted(figures['actions'], 'action')}, "
            f"{figures['actions_seen']:,} of them seen."
        ),
        soft_wrap=True,
    )
    _print_dropped(console, figures)
    console.print(Text(f"Model: {figures['model']}", style="bold"), soft_wrap=True)


def _print_dropped(console: Console, figures: Mapping[str, Any]) -> None:
    reasons = {
        "missing": "lacked a value",
        "unknown": "had an unknown action",
        "immature": "too young",
        "counted": "in the model already",
    }
    for reason, count in figures["dropped"].items():
        if count:
            console.print(Text(f"{_counted(count, 'row')} {reasons[reason]}: left out."), soft_wrap=True)
    if figures["counted_as_other"]:
        console.print(
            Text(f"{_counted(figures['counted_as_other'], 'row')} had an unknown action: counted as (other).")
        )


def _by_model(evaluation: Evaluation) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("\nby the model", no_wrap=True)
    for name in (
        "\nvalue",
        "\n95 % interval",
        f"vs\n{BASELINE}",
        f"P(beats\n{BASELINE})",
        "never\nlogged",
        "prior\nshare",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in evaluation.rows:
        if row.value is None:
            continue
        gain = row.difference
        table.add_row(
            row.name,
            _number(row.value.value),
            _interval(row.value),
            "-" if gain is None else f"{gain.value:+.3g}",
            "-" if gain is None else percent(gain.probability_positive),
            _share(row.value.diagnostics["unsupported_mass"]),
            _share(row.value.diagnostics["prior_share"]),
        )
    return table


def _by_estimators(evaluation: Evaluation) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("by the rewards", no_wrap=True)
    table.add_column("estimator", no_wrap=True)
    for name in ("value", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in evaluation.rows:
        for name, estimate in row.estimates.items():
            table.add_row(row.name, name, _number(estimate.value), _interval(estimate))
    return table


def _record(row: PolicyResult) -> dict[str, Any]:
    return {
        "policy": row.name,
        "model": None if row.value is None else _estimate(row.value),
        "difference": None if row.difference is None else _estimate(row.difference),
        "probability_beats_logged": None if row.difference is None else row.difference.probability_positive,
        "estimators": {name: _estimate(one) for name, one in row.estimates.items()},
        "left_out": {name: in_flags(reason) for name, reason in row.left_out.items()},
        "warnings": [in_flags(one) for one in row.all_warnings],
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": estimate.value,
        "std": estimate.std,
        "interval_95": list(estimate.interval()),
        "diagnostics": dict(estimate.diagnostics),
    }


def _console() -> Console:
    return Console(highlight=False)


def _print_table(console: Console, table: Table) -> None:
    """Whole, with every digit: a narrow terminal wraps lines instead."""
    wide = Console(highlight=False, width=1000)
    before = console.width
    console.width = max(before, wide.measure(table).maximum)
    console.print(table)
    console.width = before


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _interval(estimate: Estimate) -> str:
    low, high = estimate.interval()
    return f"{low:.3g} to {high:.3g}"


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"


_CAPTION = (
    "Never logged: the share of choices on actions without a row. Prior share: how much of the prior's variance the "
    "logs left; at 100 % the answer is the prior's."
)
