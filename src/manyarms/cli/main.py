"""The command `manyarms` with its subcommands and an example for each."""

from __future__ import annotations

import shutil
from typing import Annotated, Any, no_type_check

import typer
from typer.core import TyperCommand, TyperGroup

from manyarms._version import __version__
from manyarms.cli.backtest_command import backtest_command
from manyarms.cli.bench_command import bench_command
from manyarms.cli.commands import (
    decide_command,
    evaluate_command,
    explain_command,
    fit_command,
    learn_command,
    priors_command,
    report_command,
    sample_data_command,
    score_command,
    update_command,
)
from manyarms.cli.demo_command import demo_command
from manyarms.cli.doctor_command import doctor_command
from manyarms.cli.plan_command import plan_command
from manyarms.cli.reproduce_command import reproduce_command
from manyarms.cli.terminal import running_flags

LOGS = "--logs logs/day=8 --action item --reward click"
EXAMPLES = {
    doctor_command: "doctor logs.csv items.csv --json",
    explain_command: "explain effective sample size",
    decide_command: "decide --logs logs/ --context age,city --action item --reward click --propensity p "
    "--likelihood bernoulli --catalog items.parquet --category department --out report.html --policy policy.arrow",
    fit_command: "fit --logs logs/ --context age,city --action item --reward click --catalog items.parquet "
    "--category department --likelihood bernoulli --out model.arrow",
    priors_command: "priors --logs logs/ --context age,city --action item --reward click --catalog items.parquet "
    "--category department --tags tags --likelihood bernoulli",
    evaluate_command: f"evaluate --model model.arrow {LOGS} --policies greedy,softmax:0.1,policy.arrow --propensity p "
    "--estimators snips,dr",
    learn_command: "learn --model model.arrow --policy pessimistic:0.1 --out policy.arrow",
    score_command: "score --model policy.arrow --contexts users.parquet --keep user --top-k 10 --out scores.parquet",
    update_command: "update --model model.arrow --logs logs/day=9 --action item --reward click --catalog items.parquet "
    "--category department --out model.arrow",
    report_command: f"report --model model.arrow {LOGS} --propensity p --policies greedy,policy.arrow "
    "--out report.html",
    backtest_command: "backtest --logs logs/ --context age,city --action item --reward click --time at "
    "--likelihood bernoulli --catalog items.parquet --category department --out backtest.html",
    plan_command: f"plan --model model.arrow {LOGS} --candidate policy.arrow --share 0.1 --max-cost 0.01 "
    "--policy explore.arrow --chart plan.svg",
    sample_data_command: "sample-data --out practice",
    demo_command: "demo --items 500 --categories 20 --rounds 5000 --json",
    bench_command: "bench fit value greedy --rows today.json",
    reproduce_command: "reproduce synthetic-opl movielens --quick --data my-data",
}

ROOMY = 110
"""Columns from which the boxed help has room for its words; a narrower terminal gets plain help, which cuts none."""


class Group(TyperGroup):
    """The command `manyarms`, whose help is in the words of this library."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help in boxes."""
        _tidy(self.get_params(ctx))
        super().format_help(ctx, formatter)


class Command(TyperCommand):
    """A subcommand whose help never cuts a word."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help in boxes where these have room, else in two plain columns."""
        _tidy(self.get_params(ctx))
        if shutil.get_terminal_size().columns < ROOMY:
            self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of plain help, under the headings of the boxes."""
        sections = dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                heading = getattr(parameter, "rich_help_panel", None) or kind
                flags, text = record
                sections.setdefault(heading, []).append((flags, text.replace("\\[", "[")))  # escaped for the boxes
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def _tidy(parameters: list[Any]) -> None:
    """Take the word <bool> from switches, which have no value, and give Typer's own options British spelling."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        if getattr(parameter, "help", None):
            parameter.help = parameter.help.replace("customize", "customise")


app = typer.Typer(
    name="manyarms",
    cls=Group,
    help="Bayesian off-policy evaluation and learning when there are many actions.",
    epilog="Example: manyarms demo --out my-shop --seed 1\n\n"
    "Example: manyarms doctor logs.csv items.csv\n\n"
    "Example: manyarms decide --logs logs/ --context age,city --action item --reward click "
    "--likelihood bernoulli --catalog items.csv --category shelf\n\n"
    "Example: manyarms fit --logs logs/ --context age,city --action item --reward click "
    "--likelihood bernoulli --catalog items.csv --category shelf --out model.arrow\n\n"
    f"Example: manyarms evaluate --model model.arrow {LOGS}\n\n"
    f"Example: manyarms report --model model.arrow {LOGS} --out report.html\n\n"
    "Tab completion: manyarms --install-completion",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for command, example in EXAMPLES.items():
    name = command.__name__.removesuffix("_command").replace("_", "-")
    app.command(name, cls=Command, epilog=f"Example: manyarms {example}")(command)


def _print_version(requested: bool) -> bool:
    if requested:
        typer.echo(f"manyarms {__version__}")
        raise typer.Exit
    return requested


@app.callback()
@no_type_check  # what Typer passes is of the class that its Context derives from
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Bayesian off-policy evaluation and learning when there are many actions."""
    commands: Any = context.command
    command = commands.get_command(context, context.invoked_subcommand or "")
    if command is not None:
        running_flags.set({parameter.name: parameter.opts[0] for parameter in command.params})
