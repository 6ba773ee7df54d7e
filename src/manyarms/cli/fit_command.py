"""`manyarms fit`: logs and a catalog in, a model file out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyarms.cli import options as o
from manyarms.cli.engine import check_engine, open_engine
from manyarms.cli.error_words import in_flags
from manyarms.cli.flag_values import likelihood_kinds, prior_kinds
from manyarms.cli.spec import Spec, read_spec
from manyarms.cli.terminal import check_output, one_line_errors, row_bar, warn

if TYPE_CHECKING:
    import manyarms as ma

_MODEL = "Model"


def fit(
    out: Annotated[Path, typer.Option("--out", help="The model file to write; one that is there is replaced.")],
    logs: o.Logs = None,
    context: o.Context = None,
    action: o.Action = None,
    reward: o.Reward = None,
    propensity: o.Propensity = None,
    weight: o.Weight = None,
    group: o.Group = None,
    time: o.Time = None,
    categorical: o.Categorical = None,
    max_levels: o.MaxLevels = None,
    missing: o.Missing = None,
    unknown: o.Unknown = None,
    half_life: o.HalfLife = None,
    maturity: o.Maturity = None,
    now: o.Now = None,
    catalog: o.CatalogFile = None,
    id: o.Id = None,
    category: o.Category = None,
    tags: o.Tags = None,
    taxonomy: o.Taxonomy = None,
    embedding: o.Embedding = None,
    prior: Annotated[
        str | None,
        typer.Option(
            "--prior",
            metavar="KIND",
            autocompletion=prior_kinds,
            help="What actions share: categories, taxonomy, tags, embeddings (clusters of them), linear-embeddings or "
            "independent (nothing). By default the first of these that the catalog has.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    learn_prior: Annotated[
        bool | None,
        typer.Option(
            "--learn-prior/--no-learn-prior",
            help="Learn scales, means and noise from the logs, or take the --*-std as they are (learn).",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    prior_std: Annotated[
        float | None, typer.Option("--prior-std", help="Of what actions of one kind share (1).", rich_help_panel=_MODEL)
    ] = None,
    action_std: Annotated[
        float | None, typer.Option("--action-std", help="Of an action around it (1).", rich_help_panel=_MODEL)
    ] = None,
    shared_std: Annotated[
        float | None, typer.Option("--shared-std", help="Of what all actions share (1).", rich_help_panel=_MODEL)
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(
            "--components", min=1, help="Clusters of embeddings; by default BIC chooses.", rich_help_panel=_MODEL
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            "--likelihood",
            metavar="KIND",
            autocompletion=likelihood_kinds,
            help="How rewards arise: gaussian (the default; one pass, whatever the size of the logs), bernoulli for "
            "clicks, poisson, student-t or log-normal.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    noise_std: Annotated[
        float | None, typer.Option("--noise-std", help="Of a single reward (1).", rich_help_panel=_MODEL)
    ] = None,
    seed: o.Seed = 0,
    spec: o.SpecFile = None,
    engine: o.Engine = "local",
    as_json: o.Json = False,
) -> None:
    """Fit a model: the posterior of every action's rewards, seen or not.

    The model file holds the posterior, the feature map of the context columns
    and the catalog; `evaluate`, `learn`, `score` and `update` start from it.
    """
    flags = dict(locals())
    with one_line_errors():
        told = read_spec(spec, flags)
        check_output(out)
        check_engine(engine)
        posterior, figures = _run(told, seed, engine)
        posterior.save(out)
        figures["model"] = str(out)
        for one in figures["warnings"]:
            warn(one)
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
            return
        from manyarms.cli.print_results import print_fit  # noqa: PLC0415

        print_fit(figures)


def _run(spec: Spec, seed: int, engine: str) -> tuple[ma.RewardPosterior, dict[str, Any]]:
    import numpy as np  # noqa: PLC0415

    from manyarms import jobs, priors  # noqa: PLC0415
    from manyarms.cli.open_inputs import (  # noqa: PLC0415
        check_catalog,
        copy_warnings,
        named_likelihood,
        open_catalog,
        open_logs,
        reading_warnings,
    )
    from manyarms.cli.print_results import dropped_rows  # noqa: PLC0415

    likelihood = named_likelihood(spec)
    check_catalog(spec)
    with row_bar("Reading") as report:
        stream = open_logs(spec, report, catalog=open_catalog(spec))
        told = spec.prior
        scales: dict[str, Any] = {
            "effect_std": told.effect_std,
            "action_std": told.action_std,
            "shared_std": told.shared_std,
        }
        prior = priors.from_catalog(
            stream.catalog if stream.catalog is not None else stream.n_actions,
            told.kind, dim=stream.dim, n_components=told.components, rng=np.random.default_rng(seed), **scales,
        )  # fmt: skip
        posterior, learned = jobs.fit_stream(
            stream, prior, likelihood, learn=told.learn, progress=report.step, engine=open_engine(engine)
        )
    warnings = [*posterior.warnings, *reading_warnings(stream.dropped), *copy_warnings(stream.source)]
    if spec.likelihood.kind == "gaussian" and jobs.rewards_are_binary(posterior):
        warnings.append("all rewards are 0 or 1, and were taken as Gaussian: for clicks pass --likelihood bernoulli")
    if not posterior.statistics.n_rounds:
        warnings.append(
            "no rounds are left, so the model is its prior: see what --maturity, --missing and --unknown drop"
        )
    return posterior, {
        "rounds": posterior.statistics.n_rounds,
        **dropped_rows(stream.dropped),
        "actions": posterior.n_actions,
        "actions_seen": len(posterior.weights.observed.actions),
        "features": list(stream.features.names),
        "prior": [str(group) for group in posterior.prior.effects] or ["independent"],
        "likelihood": spec.likelihood.kind,
        "learned": None if learned is None else {one.name: one.value for one in learned.parameters},
        "notes": [] if learned is None else [in_flags(one) for one in learned.notes],
        "log_evidence": posterior.log_evidence,
        "warnings": [in_flags(one) for one in warnings],
    }
