"""All commands without a file of their own: each gets its flags, calls one function of Python and prints the result."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyarms._base import job_options as o
from manyarms._base.files import check_output, check_output_folder
from manyarms.cli import flags_and_spec as f
from manyarms.cli import terminal
from manyarms.errors import InputError

if TYPE_CHECKING:
    from manyarms.engines import Engine

# What the commands call is imported in them, so that `--help` loads no numerical library.
# ruff: noqa: PLC0415


@f.with_options(
    o.LogColumns, o.LogOptions, o.CatalogFile, o.CatalogOptions, o.PriorOptions, o.LikelihoodOptions,
    without=("segment",),
)  # fmt: skip
def fit_command(
    out: f.NewModel, seed: f.Seed = 0, engine: f.Engine = "local", as_json: f.Json = False, **options: Any
) -> None:
    """Fit a model of the rewards of every action, including those never shown.

    Name the context columns with --context, or pass --context none. The model
    file holds the posterior, the catalog, and how context columns are turned
    into features. backtest, evaluate, learn, plan, report, score and update
    read it.
    """
    check_output(out)
    where = _open_engine(engine)
    from manyarms.cli.print_results import print_fit
    from manyarms.jobs import fit_files

    options["context"] = _context(options)
    with terminal.row_bar("Reading") as bar:
        result = fit_files(**options, out=out, seed=seed, engine=where, progress=bar.step, on_rows=bar)
    _show(result, as_json, print_fit)


@f.with_options(o.LogColumns, o.LogOptions, o.CatalogFile, o.CatalogOptions, o.LikelihoodOptions, without=("segment",))
def priors_command(seed: f.Seed = 0, as_json: f.Json = False, **options: Any) -> None:
    """Compare priors by how well they predict held-out rounds (cross-validation).

    The priors are those that the catalog allows: one with independent actions,
    one for each kind of metadata, and one with all metadata combined. Each prior
    is learned again in every fold. `manyarms fit --prior auto` runs the same
    comparison and uses the simplest prior within one standard error of the best.
    """
    from manyarms.cli.print_results import print_json
    from manyarms.jobs import fit_files

    options["context"] = _context(options)
    with terminal.row_bar("Reading") as bar:
        result = fit_files(**options, prior="auto", seed=seed, progress=bar.step, on_rows=bar)
    comparison = None if result.learned is None else result.learned.comparison
    note = "" if result.learned is None or not result.learned.notes else result.learned.notes[0].removeprefix("auto: ")
    if comparison is None:
        remedy = "Name metadata columns of the catalog: --category, --tags, --taxonomy or --embedding."
        raise InputError(f"there is nothing to compare: {note}.", remedy)
    for warning in result.warnings:
        terminal.warn(warning)
    if as_json:
        print_json({"priors": comparison.records(), "rounds": comparison.n_rounds, "folds": comparison.n_folds,
                    "chosen": note})  # fmt: skip
        return
    terminal.say(repr(comparison))
    terminal.say(f"\n{note}.")


@f.with_options(
    o.LogColumns,
    o.LogOptions,
    o.CatalogFile,
    o.CatalogOptions,
    without=("context", "categorical", "max_levels", "expand", "segment"),
)
def update_command(
    model: f.Model,
    out: f.NewModel,
    allow_repeats: Annotated[
        bool,
        typer.Option("--allow-repeats", help="Accept files that the model has already seen, and count them again."),
    ] = False,
    engine: f.Engine = "local",
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Update a model with new logs and new actions; old logs are not needed.

    An update does not relearn the prior or the noise. With Gaussian rewards, it
    gives the same result as a fit on all the logs with that prior and noise. A
    file that the model has seen in full is refused, so a job can safely run
    twice. If --maturity left out the youngest rounds of a file, pass the file
    again later: only rounds that are new to the model are added. With --half-life, the
    rounds that are already in the model lose weight as they age. With --catalog,
    new actions are added if the prior knows their category (or tags, or place in
    the taxonomy). An action with a new category needs a new fit. To update a
    model in place, pass the same file as --model and --out.
    """
    check_output(out)
    where = _open_engine(engine)
    from manyarms.cli.print_results import print_update
    from manyarms.jobs import update_files

    with terminal.row_bar("Reading") as bar:
        result = update_files(model, **options, allow_repeats=allow_repeats, out=out, engine=where, on_rows=bar)
    _show(result, as_json, print_update)


@f.with_options(o.EvaluationOptions, o.LogColumns, o.LogOptions, o.CatalogFile)
def evaluate_command(model: f.EvaluatedModel = None, seed: f.Seed = 0, as_json: f.Json = False, **options: Any) -> None:
    """Compare policies with the current one: gains, intervals, probabilities.

    Estimates each policy's value per round with the model, and its gain over
    the current policy, the one that produced the logs. Gains are corrected with
    the logged rewards. Use logs that the model was not fitted on. With --model,
    you need not name the context columns or the catalog: the model has them.
    JSON output calls the current policy `logged`.
    """
    from manyarms.cli.print_results import print_evaluation
    from manyarms.jobs import evaluate_files

    with terminal.row_bar("Reading") as bar:
        progress = partial(bar.step, activity="Evaluating, policy")
        result = evaluate_files(**options, model=model, seed=seed, progress=progress, on_rows=bar)
    _show(result, as_json, partial(print_evaluation, evaluation=result.evaluation))


def learn_command(
    model: f.Model,
    out: Annotated[Path, typer.Option("--out", help="Policy file to write; an existing file is replaced.")],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME[:NUMBER]",
            autocompletion=f.policy_names,
            help=f"Policy to make.\n\n{o.RULES.replace('100;', '1000 here, 100 elsewhere;').strip()}",
        ),
    ] = "greedy",
    seed: f.Seed = 0,
    as_json: f.Json = False,
) -> None:
    """Make a policy from a model, and save it.

    A policy file contains its model, so `score` does not need a model file.
    `evaluate` still needs --model or --estimators.
    """
    with terminal.one_line_errors():
        check_output(out)
        from manyarms.cli.print_results import print_json
        from manyarms.jobs import learn_policy

        with terminal.spinner("Learning"):
            made = learn_policy(model, policy, seed=seed, out=out)
        if as_json:
            print_json({"policy": policy, "actions": made.n_actions, "model": str(model), "out": str(out)})
        else:
            terminal.say(f"{policy} on {made.n_actions:,} actions: {out}")


@f.with_options(o.LogOptions, without=[name for name in o.options_of(o.LogOptions) if name != "missing"])
def score_command(
    model: Annotated[Path, typer.Option("--model", "--policy", help="Model file or policy file.")],
    contexts: Annotated[
        str, typer.Option("--contexts", help="Contexts in Parquet, CSV or Arrow: a file, a folder or a glob.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Parquet or CSV file to write; an existing file is replaced. With --engine dask or spark, a folder of "
            "Parquet files.",
        ),
    ],
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Number of actions for each context.")] = 1,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="NAME,...",
            help="Columns to copy to the output, separated by commas, such as user,country.",
        ),
    ] = None,
    eligible: Annotated[
        str | None, typer.Option("--eligible", help="Column with lists of the actions that may be chosen.")
    ] = None,
    engine: f.Engine = "local",
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Write the best actions for every context, with expected rewards.

    The contexts are read in batches, so memory use does not grow with their
    number. The output has one row for each context and rank. Its columns are
    those named by --keep, then `row`, `rank`, `action`, `expected_reward` and
    its standard deviation `reward_std`.
    """
    where = _open_engine(engine)
    if engine == "local":
        check_output(out)
    else:
        check_output_folder(out, "several processes write, each a file", "leave --engine out to write one file")
    from manyarms.cli.print_results import print_json
    from manyarms.jobs import score as score_files

    names = f.split_names("--keep", keep or [])
    with terminal.row_bar("Scoring") as bar:
        result = score_files(
            model, contexts, out, top_k=top_k, keep=names, eligible=eligible, progress=bar, engine=where, **options
        )
    if as_json:
        print_json(result.record())
        return
    left_out = f"; {result.n_dropped:,} with a missing value were left out" if result.n_dropped else ""
    terminal.say(f"{result.n_contexts:,} contexts, {result.n_rows:,} rows{left_out}: {result.path}")


Sure = Annotated[
    float | None,
    typer.Option(
        "--sure",
        help="Recommend a policy only if it beats the current one with at least this probability, which must be 0.5 or "
        "more, and below 1 (default: 0.9; 0.975 if propensities are estimated or a gain is not checked).",
    ),
]
ReportFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(o.REPORT_FORMATS),
        help="File format (default: the extension of --out).",
    ),
]
Unit = Annotated[str, typer.Option("--unit", help="Unit of the reward, such as euros, for the report.")]
EXIT_CODES = {"ship": 0, "undecided": 3, "keep": 4}
"""The exit code of `manyarms decide` for each verdict."""


@f.with_options(
    o.ProposalOptions, o.LogColumns, o.LogOptions, o.CatalogFile, o.CatalogOptions, o.LikelihoodOptions, o.GoalOptions,
    o.SplitOptions,
)  # fmt: skip
def decide_command(
    out: Annotated[Path | None, typer.Option("--out", help="Report page to write (HTML or JSON).")] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="Policy file to write; written only if the verdict is to ship a policy."),
    ] = None,
    sure: Sure = None,
    unit: Unit = "",
    swap: Annotated[
        bool,
        typer.Option(
            "--swap/--no-swap",
            help="Also swap the two random halves: learn from the second and evaluate on the first. The policy to save "
            "is then learned from all rounds. With --time, the halves are never swapped.",
        ),
    ] = True,
    averaged: Annotated[
        bool,
        typer.Option(
            "--averaged", help="Average over many plausible priors: intervals include the uncertainty about the prior."
        ),
    ] = False,
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Find a better policy from logs and a catalog, and say whether to ship it.

    The model and the policies are learned from one half of the rounds and
    evaluated on the other half: the earlier and the later half if --time names
    a column, otherwise two random halves. Random halves then swap roles, so
    that every round is used for evaluation. No model file is needed. Name the
    context columns with --context, or pass --context none. The exit code is the
    verdict: 0 for ship, 3 for undecided, 4 for keeping the current policy.
    """
    outputs = {name: path for name, path in (("out", out), ("policy", policy)) if path is not None}
    for name, path in outputs.items():
        check_output(path, name)
    from manyarms.cli.print_results import print_decision, print_json
    from manyarms.decision.decide_files import decide_from_logs
    from manyarms.decision.write_report import write_report
    from manyarms.logs.sources import refuse_overwriting

    options["context"] = _context(options)
    for name, path in outputs.items():
        refuse_overwriting(path, options["logs"], options.get("catalog"), argument=name)
    if len({os.path.realpath(path) for path in outputs.values()}) < len(outputs):
        raise InputError("and --policy name the same file.", "Name two files.", argument="out")
    with terminal.row_bar("Reading") as bar:
        progress = partial(bar.step, activity="Evaluating, policy")
        notes = {"command": f"manyarms {shlex.join(sys.argv[1:])}"}
        decision = decide_from_logs(
            **options, sure=sure, unit=unit, swap=swap, averaged=averaged, notes=notes, progress=progress, on_rows=bar
        )
    if out is not None:
        write_report(decision, out)
    saved = policy if decision.verdict == "ship" else None
    if saved is not None:
        decision.candidates[decision.policy].save(saved)
    for reason in (*decision.omitted, *decision.warnings):
        terminal.warn(reason)
    if as_json:
        print_json(decision.as_json())
    else:
        print_decision(decision)
        for name, path in (("Report", out), ("Policy", saved)):
            if path is not None:
                terminal.say(f"{name}: {path}")
    raise typer.Exit(EXIT_CODES.get(decision.verdict, 1))


@f.with_options(
    o.EvaluationOptions, o.LogColumns, o.LogOptions, o.CatalogFile, o.CatalogOptions, o.GoalOptions,
    without=("tags", "taxonomy", "embedding", "separator", "name"),
    defaults={"estimators": "snips,dr if the logs have propensities, otherwise none"},
)  # fmt: skip
def report_command(
    out: Annotated[
        Path, typer.Option("--out", help="Page to write (HTML or JSON), or a folder for the charts (SVG or PNG).")
    ] = Path("report.html"),
    model: f.EvaluatedModel = None,
    sure: Sure = None,
    unit: Unit = "",
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "Policy report",
    format: ReportFormat = None,
    seed: f.Seed = 0,
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Recommend which policy to ship, on one page with the evidence.

    The page is one HTML file with interactive charts and needs no network. It
    shows the recommendation in one sentence, values with intervals, the
    probability that one policy beats another, other estimators, diagnostics,
    changes in traffic, and checks of the model. All options of `manyarms
    evaluate` work here too.
    """
    from manyarms.cli.print_results import print_json
    from manyarms.decision.decide_files import decide_files
    from manyarms.decision.write_report import write_report

    policy_files = [name for name in options.get("policies", ()) if Path(name).is_file()]
    kind = f.report_format(out, format, [options["logs"], options.get("catalog"), model, *policy_files])
    with terminal.row_bar("Reading") as bar:
        decision = decide_files(
            **options, model=model, sure=sure, unit=unit, seed=seed,
            notes={"command": f"manyarms {shlex.join(sys.argv[1:])}"},
            progress=partial(bar.step, activity="Evaluating, policy"), on_rows=bar,
        )  # fmt: skip
    with terminal.spinner("Writing"):
        written = [str(path) for path in write_report(decision, out, format=kind, title=title)]
    for reason in decision.omitted:
        terminal.warn(reason)
    if as_json:
        figures = {name: getattr(decision, name) for name in ("verdict", "policy", "sentence", "reason", "probability")}
        print_json(figures | {"written": written, "warnings": list(decision.warnings)})
        return
    terminal.say(str(decision))
    for sentence in decision.segment_sentences:
        terminal.say(sentence)
    terminal.say(f"Report: {out}" if len(written) == 1 else f"Charts: {len(written)} in {out}")


def sample_data_command(
    out: Annotated[Path, typer.Option("--out", help="Folder for the files. It is created if needed.")] = Path(),
) -> None:
    """Write small CSV files to practise on: a log, a catalog, and the truth.

    The shop is made up. last-week.csv and this-week.csv are its log, items.csv
    is its catalog, and truth.csv says how likely each item really is to be bought
    and what it then earns, which nobody knows for a real shop. An existing file
    with different contents is never overwritten.
    """
    with terminal.one_line_errors():
        from manyarms.datasets.sample_data import write_sample_data

        written = write_sample_data(out)
        typer.echo(f"Wrote {', '.join(map(str, written))}.")
        log, items = (out / name for name in ("last-week.csv", "items.csv"))
        typer.echo(f"Next: manyarms doctor {log} {items}")


def explain_command(
    term: Annotated[
        list[str] | None, typer.Argument(help="A term, such as propensity or gains chart. Without one, all are listed.")
    ] = None,
) -> None:
    """Explain a glossary term, or how to read a chart in the report."""
    with terminal.one_line_errors():
        from manyarms._base.glossary import explain

        terminal.say(explain(" ".join(term) if term else None))


def _open_engine(name: str) -> Engine:
    """Open the engine with a given name. Spark is started at once, and its greetings stay off the terminal."""
    from manyarms.engines import as_engine

    engine = as_engine(name)
    if name.partition(":")[0] != "spark":
        return engine
    from manyarms.engines.spark import Spark  # an extra

    assert isinstance(engine, Spark)
    with terminal.quiet_children():
        _ = engine.session
    return engine


def _context(options: dict[str, Any]) -> tuple[str, ...]:
    """The context columns that were named; the word none says that there are none."""
    if "context" not in options:
        raise InputError(
            "--context is needed: without context columns, all rounds look alike.",
            "Name them, as in --context age,city, or pass --context none. `manyarms doctor` suggests some.",
        )
    return () if tuple(options["context"]) == ("none",) else tuple(options["context"])


def _show(result: Any, as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print the warnings of a job, and its result as JSON or as a table."""
    from manyarms.cli.print_results import print_json

    for warning in result.warnings:
        terminal.warn(warning)
    if as_json:
        print_json(result.record())
    else:
        show(result.record())
