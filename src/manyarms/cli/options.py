"""Flags that several commands share, each in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyarms.cli.flag_values import engine_names, estimator_names, policy_names

_LOGS, _CATALOG = "Logs", "Catalog"

SpecFile = Annotated[
    Path | None, typer.Option("--spec", help="TOML with the tables logs, catalog, prior and likelihood; flags win.")
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where the logs are gone through: local, dask or spark (extras); dask:tcp://HOST:8786 or spark:MASTER "
        "for a cluster that is there.",
        autocompletion=engine_names,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of what is drawn at random.")]
Model = Annotated[Path, typer.Option("--model", help="What `manyarms fit` wrote.")]

Judge = Annotated[Path | None, typer.Option("--model", help="The judge; without it, only --estimators speak.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policies",
        metavar="NAME,FILE,...",
        autocompletion=policy_names,
        help="greedy, pessimistic[:delta], softmax:temperature, thompson[:draws] (100; its time grows with them), "
        "epsilon-greedy:epsilon, uniform, made from the model; or policy files (greedy,pessimistic,uniform).",
    ),
]
Estimators = Annotated[
    list[str] | None,
    typer.Option(
        "--estimators",
        metavar="NAME,...",
        autocompletion=estimator_names,
        help="Model-free estimates beside the model's: ips[:clip], snips[:clip], dr[:clip], sndr[:clip], "
        "switch-dr:threshold, dros:shrinkage, replay, ... They need --propensity. A clip is a floor on the "
        "propensity: 0.01 makes no weight larger than 100.",
    ),
]
Sample = Annotated[int, typer.Option("--sample", min=2, help="Judge on so many rounds at most, drawn evenly.")]

Logs = Annotated[
    str | None,
    typer.Option("--logs", help="Parquet, CSV or Arrow: a file, a folder or a glob.", rich_help_panel=_LOGS),
]
Context = Annotated[
    list[str] | None,
    typer.Option("--context", help="Context columns, with commas between them.", rich_help_panel=_LOGS),
]
Action = Annotated[str | None, typer.Option("--action", help="Column of action ids.", rich_help_panel=_LOGS)]
Reward = Annotated[str | None, typer.Option("--reward", help="Column of rewards.", rich_help_panel=_LOGS)]
Propensity = Annotated[
    str | None,
    typer.Option(
        "--propensity", help="Column of the logging policy's probability of the action.", rich_help_panel=_LOGS
    ),
]
Weight = Annotated[str | None, typer.Option("--weight", help="How often a row counts.", rich_help_panel=_LOGS)]
Group = Annotated[str | None, typer.Option("--group", help="Column of users or sessions.", rich_help_panel=_LOGS)]
Time = Annotated[
    str | None, typer.Option("--time", help="Column of times, for --half-life and --maturity.", rich_help_panel=_LOGS)
]
Categorical = Annotated[
    list[str] | None,
    typer.Option("--categorical", help="Context columns of whole numbers that are categories.", rich_help_panel=_LOGS),
]
MaxLevels = Annotated[
    int | None,
    typer.Option(
        "--max-levels", min=1, help="Levels of a category with a feature of their own (100).", rich_help_panel=_LOGS
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(
        "--missing", metavar="refuse|drop", help="What to do with a row that lacks a value.", rich_help_panel=_LOGS
    ),
]
Unknown = Annotated[
    str | None,
    typer.Option(
        "--unknown",
        metavar="refuse|drop|other",
        help='What to do with an action that the catalog does not list; "other" counts it as the action "(other)".',
        rich_help_panel=_LOGS,
    ),
]
HalfLife = Annotated[
    str | None,
    typer.Option("--half-life", metavar="14d", help="A round this old counts half.", rich_help_panel=_LOGS),
]
Maturity = Annotated[
    str | None,
    typer.Option("--maturity", metavar="2d", help="Younger rounds are left out.", rich_help_panel=_LOGS),
]
Now = Annotated[
    str | None,
    typer.Option("--now", metavar="TIME", help="What ages are counted from (now), in ISO 8601.", rich_help_panel=_LOGS),
]

CatalogFile = Annotated[
    str | None,
    typer.Option("--catalog", help="All actions, those never logged too: Parquet or CSV.", rich_help_panel=_CATALOG),
]
Id = Annotated[str | None, typer.Option("--id", help="Column of action ids (as --action).", rich_help_panel=_CATALOG)]
Category = Annotated[str | None, typer.Option("--category", help="Column of categories.", rich_help_panel=_CATALOG)]
Tags = Annotated[
    str | None, typer.Option("--tags", help="Column of lists, or of texts such as a|b.", rich_help_panel=_CATALOG)
]
Taxonomy = Annotated[
    list[str] | None,
    typer.Option(
        "--taxonomy",
        "--path",
        help="Columns of levels from the top down, or one with the whole path.",
        rich_help_panel=_CATALOG,
    ),
]
Embedding = Annotated[
    list[str] | None,
    typer.Option("--embedding", help="Column of lists of numbers, or several of numbers.", rich_help_panel=_CATALOG),
]
