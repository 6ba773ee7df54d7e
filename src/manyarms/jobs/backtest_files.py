"""Backtests of log files: what `manyarms backtest` does.

The options are the flags of the command, with the same defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, cast

from manyarms._base.checks import as_instance, as_text
from manyarms._base.files import PathLike
from manyarms._base.job_options import BacktestOptions, CatalogOptions, LogOptions, only, takes, with_defaults
from manyarms._base.progress import Progress
from manyarms.errors import InputError
from manyarms.jobs.backtest import backtest
from manyarms.jobs.backtest_result import Backtest
from manyarms.jobs.fit_files import OnRows
from manyarms.jobs.parse_names import likelihood_named
from manyarms.logs.read_catalog import open_catalog
from manyarms.logs.read_logs import read_logs
from manyarms.logs.sources import open_logs
from manyarms.logs.warehouse_table import shown_name
from manyarms.posterior import RewardPosterior
from manyarms.posterior.posterior import as_posterior


@takes(BacktestOptions)
def backtest_files(
    logs: PathLike,
    context: str | Sequence[str],
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    model: PathLike | RewardPosterior | None = None,
    level: float = 0.95,
    false_alarm: float = 0.05,
    unit: str = "",
    notes: Mapping[str, str] | None = None,
    progress: Progress = False,
    on_rows: OnRows | None = None,
    **options: Unpack[BacktestOptions],
) -> Backtest:
    """Forecast the rounds of log files day by day, and compare with what happened; see `backtest`.

    The rounds are read into memory. With a `model` of earlier rounds, context columns and catalog come from it, and all
    days are forecast; else a model is learned from the first days. `logged_by` names a column with the policy that
    logged each round. `half_life` counts ages from the day that is forecast. `unit` is that of the reward, for the
    page. `notes` are extra lines for `Backtest.made_with`. All other arguments are those of `fit_files`.
    """
    given = with_defaults("backtest_files", options, BacktestOptions)
    if given.time is None:
        raise InputError(
            "is needed: it says which rounds came first.", 'Name the column of times, as in time="at".',
            argument="time", flag_remedy="Name the column of times with --time.",
        )  # fmt: skip
    posterior = None if model is None else as_posterior(model)
    read: dict[str, Any] = {**only(options, LogOptions)}
    # Ages count from the day of each forecast, so the rounds are read at full weight.
    half_life = read.pop("half_life", None)
    if posterior is None:
        actions = open_catalog(given, action, only(options, CatalogOptions))
    else:
        if posterior.features is None:
            raise InputError("has no feature map, so columns cannot be read.", argument="model")
        context, actions = posterior.features.columns, posterior.catalog
        read |= {"features": posterior.features}
        if actions is None:
            read["n_actions"] = posterior.n_actions
    keep = [] if given.logged_by is None else [as_text("logged_by", given.logged_by)]
    source = open_logs(logs, on_rows)
    rounds = read_logs(source, context, action, reward, propensity, actions, keep=keep, **read).collect()
    labels = None if rounds.table is None else rounds.table.column(given.logged_by).to_pylist()
    result = backtest(
        rounds, cast(RewardPosterior | None, posterior),
        likelihood=None if model is not None else likelihood_named(given.likelihood, given.noise_std),
        period=given.period, training=given.training, logged_by=labels, half_life=half_life, level=level,
        false_alarm=false_alarm, progress=progress,
    )  # fmt: skip
    unit = as_instance("unit", unit, str, "a text")
    return replace(result, unit=unit, made_with={**(notes or {}), "logs": shown_name(logs), **result.made_with})
