"""The options of jobs, defined once: arguments in Python, flags of the command line and keys of a spec file.

A key of a class below is a keyword argument. Its flag is the same word with dashes, and its key in a TOML file is the
same word in the table of the class, unless its `Option` says otherwise. Only plain types are used here, so that the
command line knows all options without loading what they configure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypedDict, TypeVar, get_args, get_type_hints

from manyarms.errors import InputError

Missing = Literal["refuse", "drop"]
"""Treatment of a row with a missing value."""
Unknown = Literal["refuse", "drop", "other"]
"""Treatment of an action that the catalog does not list."""
Expand = Literal["splines", "products", "fourier", "nystroem"]
"""Further features made of the context columns."""
PriorKind = Literal["categories", "taxonomy", "tags", "embeddings", "linear-embeddings", "combined", "independent"]
"""The metadata through which actions share information."""
PriorChoice = Literal["auto", PriorKind]
"""A kind of prior, or "auto" to choose one by its score on held-out rounds."""
LikelihoodKind = Literal["gaussian", "bernoulli", "poisson", "student-t", "log-normal"]
"""The distribution of rewards given their mean."""

FLOOR = "clip, a floor on the propensity, none by default"
POLICIES = {
    "greedy": "",
    "pessimistic": "delta, 0.05 by default",
    "softmax": "temperature",
    "thompson": "number of draws, 1000 by default in learn and 100 elsewhere",
    "epsilon-greedy": "epsilon",
    "uniform": "",
}
"""Names of policies, and the meaning of the number after the name."""

ESTIMATORS = {
    **dict.fromkeys(("ips", "snips", "dr", "sndr"), FLOOR),
    "switch-dr": "threshold",
    "dros": "shrinkage",
    "sub-gaussian-ips": "parameter",
    "sub-gaussian-dr": "parameter",
    "exponential-smoothing": "alpha",
    "logarithmic-smoothing": "parameter",
    "replay": "",
}
"""Names of estimators, and the meaning of the number after the name."""

REPORT_FORMATS = ("html", "json", "svg", "png")
"""File formats of a report."""

Names = str | Sequence[str]
"""One name, or several."""
NEEDED = object()
"""The default of a required option."""


@dataclass(frozen=True)
class Option:
    """One job option.

    Attributes:
        default: The default value; NEEDED if the option is required.
        help: A sentence that describes it.
        key: Its key in a spec file, where that differs from its name.
        metavar: An example or the form of its value, for `--help`.
        minimum: The smallest value allowed, for a number.
        alias: A second flag.
    """

    default: Any
    help: str
    key: str = ""
    metavar: str | None = None
    minimum: int | None = None
    alias: str = ""


LOGS = (
    "Logs with one row per round: a Parquet, CSV or Arrow file, a folder or glob of such files, or a database table, "
    "as in duckdb://shop.db?table=logs."
)
START = "If the prior is learned, this is only a starting value."
CHOOSING = " Policies choose only among these."


class LogColumns(TypedDict, total=False):
    """Job options that name the path of the logs, and the columns that every job needs."""

    logs: Annotated[str, Option(NEEDED, LOGS, "path")]
    context: Annotated[Names, Option((), "Context columns, known before the choice, such as age,city.")]
    action: Annotated[str, Option(NEEDED, "Column with the id of the action that was chosen.")]
    reward: Annotated[str, Option(NEEDED, "Column with the reward that followed. Larger is better.")]
    propensity: Annotated[
        str | None, Option(None, "Column of propensities: the probabilities with which the logged actions were chosen.")
    ]


class LogOptions(TypedDict, total=False):
    """Job options that turn the rows of logs into rounds: one definition for arguments, flags and specs."""

    weight: Annotated[str | None, Option(None, "Column of row weights (default: every row counts once).")]
    group: Annotated[
        str | None,
        Option(None, "Column of user or session ids, whose rounds are related. Standard errors are clustered by it."),
    ]
    time: Annotated[str | None, Option(None, "Column of times. Required with --half-life or --maturity.")]
    segment: Annotated[
        str | None,
        Option(None, "Column of segments, such as countries, to show gains for each. It may be a context column."),
    ]
    eligible: Annotated[
        str | None, Option(None, f"Column with the list of actions that may be chosen in each round.{CHOOSING}")
    ]
    categorical: Annotated[Names, Option((), "Integer context columns to treat as categories.")]
    max_levels: Annotated[
        int, Option(100, "Maximum number of levels per categorical column; rarer levels are merged.", minimum=1)
    ]
    expand: Annotated[
        Expand | None,
        Option(
            None,
            "Add nonlinear features of the numeric context columns.\n\nsplines: six cubic splines per column.\n\n"
            "products: the product of every pair of columns.\n\nfourier: 100 random Fourier features of all columns."
            "\n\nnystroem: 50 Nyström features of all columns.",
        ),
    ]
    missing: Annotated[
        Missing,
        Option("refuse", "How to treat rows with a missing value. refuse: stop with an error. drop: leave them out."),
    ]
    unknown: Annotated[
        Unknown,
        Option(
            "refuse",
            "How to treat rows whose action is not in the catalog. refuse: stop with an error. drop: leave them out. "
            "other: treat all such actions as one, named (other).",
        ),
    ]
    half_life: Annotated[
        timedelta | None,
        Option(None, "Age at which a round counts half as much as a new one, such as 14d.", metavar="DURATION"),
    ]
    maturity: Annotated[
        timedelta | None,
        Option(None, "Leave out rounds younger than this (such as 2d): rewards may be incomplete.", metavar="DURATION"),
    ]
    now: Annotated[
        datetime | None,
        Option(None, "Compute ages as of this time, in ISO 8601 (default: the current time).", metavar="TIME"),
    ]


class CatalogFile(TypedDict, total=False):
    """Job options that name the path of the catalog, and the column that identifies an action."""

    catalog: Annotated[
        Any, Option(None, "Table of all actions, including those never shown: Parquet, CSV, Arrow or database.", "path")
    ]
    id: Annotated[str | None, Option(None, "Column of action ids in the catalog (default: as in the logs).")]


class CatalogOptions(TypedDict, total=False):
    """Job options that name the metadata columns of a catalog."""

    category: Annotated[str | None, Option(None, "Column with the category of each action.")]
    name: Annotated[str | None, Option(None, "Column with the name of each action. Reports show it instead of the id.")]
    tags: Annotated[str | None, Option(None, "Column with the tags of each action: lists, or strings such as a|b.")]
    taxonomy: Annotated[
        Names,
        Option((), "Columns of taxonomy levels, top first, or one column of paths such as food|tea.", alias="--path"),
    ]
    embedding: Annotated[Names, Option((), "Embedding of each action: one column of vectors, or several columns.")]
    separator: Annotated[str, Option("|", "Character between the tags in a string, and between the levels of a path.")]


class PriorOptions(TypedDict, total=False):
    """Job options of the prior: the metadata that actions share, and how much actions differ."""

    prior: Annotated[
        PriorChoice | None,
        Option(
            None,
            "How actions share information: categories, taxonomy, tags, embeddings (actions are clustered), "
            "linear-embeddings (effects are linear in the embedding), combined (all metadata in the catalog, the "
            "default), or independent (no sharing). auto compares these on held-out rounds and picks the simplest one "
            "within one standard error of the best.",
            "kind",
            metavar="KIND",
        ),
    ]
    learn_prior: Annotated[
        bool,
        Option(True, "Learn the prior and the noise from the logs (default), or use the given values.", "learn"),
    ]
    effect_std: Annotated[float, Option(1.0, f"Standard deviation of category effects. {START}", alias="--prior-std")]
    action_std: Annotated[float, Option(1.0, f"Standard deviation of an action around its category. {START}")]
    shared_std: Annotated[float, Option(1.0, f"Standard deviation of the effect that all actions share. {START}")]
    n_components: Annotated[
        int | None,
        Option(None, "Number of embedding clusters (default: chosen by BIC).", minimum=1, alias="--components"),
    ]


class LikelihoodOptions(TypedDict, total=False):
    """Job options of the likelihood of rewards."""

    likelihood: Annotated[
        LikelihoodKind,
        Option(
            "gaussian",
            "Distribution of rewards: gaussian for amounts (the fastest), bernoulli for clicks (0 or 1), poisson for "
            "counts, student-t for heavy tails, log-normal for positive amounts.",
            "kind",
            metavar="KIND",
        ),
    ]
    noise_std: Annotated[float, Option(1.0, f"Standard deviation of a single reward around its mean. {START}")]


RULES = (
    "greedy: the action with the highest expected reward.\n\n"
    "pessimistic[:delta]: the action with the highest lower bound on its expected reward. If the model is right, the "
    "bound holds with a probability of at least 1 - delta (default 0.05), so a smaller delta is more cautious.\n\n"
    "softmax:temperature: better actions more often. A lower temperature is closer to greedy.\n\n"
    "thompson[:draws]: each action with the probability that it is the best, estimated from posterior draws (default "
    "100; more are slower).\n\n"
    "epsilon-greedy:epsilon: greedy, except for a random action in a fraction epsilon of the rounds.\n\n"
    "uniform: every action equally often.\n\n"
)
OWN = (
    "FILE: a policy file.\n\ncolumn:NAME: your own picks, in a column of the logs.\n\n"
    "table:FILE[:KEY]: a table of your own picks, or of their probabilities, for each value of the column KEY.\n\n"
    "shares:FILE: your own policy, as a table with a share of the traffic for each item.\n\n"
    "To name a policy, write NAME= before it, as in new=column:recommended."
)
SOFTMAX_DEFAULT = "to greedy (default: the standard deviation of the expected rewards of the logged actions)."
POSITIONS = "If your own policy gives ranked lists: the weight of each position, top first, such as 1,0.5,0.25."


class EvaluationOptions(TypedDict, total=False):
    """Job options of an evaluation: policies, estimators, and the number of rounds."""

    policies: Annotated[
        Names,
        Option(
            ("greedy", "pessimistic", "uniform"),
            f"Policies to evaluate, separated by commas.\n\n{RULES}{OWN}",
            metavar="NAME,FILE,...",
        ),
    ]
    position_weights: Annotated[Names, Option((), POSITIONS, metavar="NUMBER,...")]
    estimators: Annotated[
        Names,
        Option(
            (),
            "Other estimators to run, separated by commas: ips[:clip], snips[:clip], dr[:clip], sndr[:clip], "
            "switch-dr:threshold, dros:shrinkage, sub-gaussian-ips:parameter, sub-gaussian-dr:parameter, "
            "exponential-smoothing:alpha, logarithmic-smoothing:parameter, replay. If you name some and the logs "
            "have no propensities, these are estimated. clip is a floor on the propensity: with 0.01, no weight "
            "exceeds 100. For the other numbers, see docs/estimators.md.",
            metavar="NAME,...",
        ),
    ]
    sample: Annotated[int, Option(100_000, "Evaluate on at most this many rounds, drawn at random.", minimum=2)]


class GoalOptions(TypedDict, total=False):
    """Job options of a decision with more than one goal: guardrails by the names of their columns."""

    guardrail: Annotated[
        Names,
        Option(
            (),
            "Limits on how far a policy may worsen the mean of other columns: "
            "'returns<=1%' (may rise by at most 1 percent), 'margin>=-2%' (may fall by at most 2 percent), "
            "'calls<=0.01' (may rise by at most 0.01 per round, in the unit of the column).",
            metavar="COLUMN<=LIMIT,...",
        ),
    ]
    guardrail_sure: Annotated[float, Option(0.95, "Ship only if each guardrail holds with at least this probability.")]


class UpdateOptions(LogOptions, CatalogFile, CatalogOptions, total=False):
    """Job options of `update_files`: one definition for arguments, flags and specs."""


class FitOptions(UpdateOptions, PriorOptions, LikelihoodOptions, total=False):
    """Job options of `fit_files`: one definition for arguments, flags and specs."""


class ProposalOptions(TypedDict, total=False):
    """Job options that name the policies for `decide` to evaluate."""

    policies: Annotated[
        Names,
        Option(
            ("greedy", "pessimistic", "softmax"),
            "Policies to evaluate, separated by commas. The first five are learned from the logs.\n\n"
            + RULES.replace("softmax:temperature", "softmax[:temperature]").replace("to greedy.", SOFTMAX_DEFAULT)
            + OWN,
            metavar="NAME,FILE,...",
        ),
    ]
    position_weights: Annotated[Names, Option((), POSITIONS, metavar="NUMBER,...")]


class SplitOptions(TypedDict, total=False):
    """Job options of the split into a half to learn from and a half to evaluate on."""

    time: Annotated[
        str | None,
        Option(
            None,
            "Column of times. With it, policies are learned from the earlier half of the rounds and evaluated on the "
            "later half. Required with --half-life or --maturity.",
        ),
    ]


class DecideOptions(UpdateOptions, LikelihoodOptions, ProposalOptions, GoalOptions, SplitOptions, total=False):
    """Job options of `decide_from_logs`: one definition for arguments, flags and specs."""


class BacktestPeriods(TypedDict, total=False):
    """Job options of a backtest: the length of a period, those only for fitting, and the policies that logged."""

    time: Annotated[str | None, Option(None, "Column of times, by which rounds are grouped into periods. Required.")]
    period: Annotated[
        timedelta | None, Option(None, "Length of a period, such as 1d, 1w or 6h (default 1d).", metavar="DURATION")
    ]
    training: Annotated[
        int | None,
        Option(
            None,
            "Number of periods at the start of the logs that are only used to fit the model, and are not forecast "
            "(default: a fifth of all periods).",
            minimum=1,
        ),
    ]
    logged_by: Annotated[
        str | None,
        Option(
            None,
            "Column with the name of the policy that chose the action, if several policies were running. Each policy's "
            "rounds are then also forecast separately.",
        ),
    ]


class BacktestOptions(UpdateOptions, LikelihoodOptions, BacktestPeriods, total=False):
    """Job options of `backtest_files`: one definition for arguments, flags and specs."""


class EvaluateOptions(LogOptions, CatalogFile, EvaluationOptions, total=False):
    """Job options of `evaluate_files`: one definition for arguments, flags and specs."""

    context: Annotated[Names, Option((), "Context columns, unless the model or a saved policy names them.")]


class PlanOptions(LogOptions, CatalogFile, total=False):
    """Job options of `plan_files`: one definition for arguments, flags and specs."""

    candidate: Annotated[
        str,
        Option("greedy", f"Policy that you consider shipping.\n\n{RULES}FILE: a policy file.", metavar="NAME|FILE"),
    ]
    chance: Annotated[float, Option(0.8, "Desired probability that the planned rounds lead to a decision.")]
    share: Annotated[float, Option(0.2, "Share of traffic that may go to the candidate or the exploration policy.")]
    max_cost: Annotated[
        float | None,
        Option(
            None,
            "Maximum reward to give up per round, averaged over all traffic (default: no limit). If the share would "
            "cost more, it is lowered.",
        ),
    ]
    sample: Annotated[int, Option(20_000, "Plan from at most this many logged rounds, drawn at random.", minimum=2)]


TABLES: Mapping[str, tuple[type, ...]] = {
    "logs": (LogColumns, LogOptions),
    "catalog": (CatalogFile, CatalogOptions),
    "prior": (PriorOptions,),
    "likelihood": (LikelihoodOptions,),
}
"""The tables of a spec file."""


def options_of(*kinds: type) -> dict[str, tuple[Any, Option]]:
    """Type and description of every job option of some classes, by name."""
    hints = {name: hint for kind in kinds for name, hint in get_type_hints(kind, include_extras=True).items()}
    return {name: (get_args(hint)[0], get_args(hint)[1]) for name, hint in hints.items()}


def value_type(hint: Any) -> Any:
    """The type of a job option whose value is not None: `int` for `int | None`, a text for anything."""
    if hint is Any:
        return str
    if hint == Names or not get_args(hint) or not any(part is type(None) for part in get_args(hint)):
        return hint
    return next(part for part in get_args(hint) if part is not type(None))


def only(options: Mapping[str, Any], kind: type) -> Any:
    """The job options that belong to one class."""
    return {name: value for name, value in options.items() if name in kind.__annotations__}


def with_defaults(function: str, given: Mapping[str, Any], *kinds: type) -> Any:
    """The job options given to a function, and the defaults of the others, as attributes.

    Raises:
        InputError: If an option does not exist; the message suggests the closest one.
    """
    known = options_of(*kinds)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            remedy = f"Did you mean {near[0]}?" if near else f"Its options are {', '.join(known)}."
            raise InputError(f"{function}() has no argument {name!r}.", remedy)
    return SimpleNamespace(**{name: given.get(name, option.default) for name, (_, option) in known.items()})


F = TypeVar("F", bound=Callable[..., Any])


def takes(*kinds: type) -> Callable[[F], F]:
    """Show the job options of some classes in the signature and in the help of a function that takes `**options`."""

    def decorate(function: F) -> F:
        signature, known = inspect.signature(function), options_of(*kinds)
        own = [part for part in signature.parameters.values() if part.kind is not inspect.Parameter.VAR_KEYWORD]
        shown = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=hint)
            for name, (hint, option) in known.items()
        ]
        lines = [f"        {name}: {' '.join(option.help.split())}" for name, (_, option) in known.items()]
        function.__signature__ = signature.replace(parameters=[*own, *shown])  # pyright: ignore[reportFunctionMemberAccess]
        function.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", "Options:", *lines])
        return function

    return decorate
