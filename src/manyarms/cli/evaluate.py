"""`manyarms evaluate`: policies side by side, on logged contexts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyarms.cli import options as o
from manyarms.cli.completion import estimator_names, policy_names
from manyarms.cli.spec import Spec, names, read_spec
from manyarms.cli.terminal import one_line_errors, row_bar, spinner, warn
from manyarms.errors import InputError

if TYPE_CHECKING:
    import manyarms as ma
    from manyarms.cli.reading import Report


DRAWS = 100
"""Of thompson, where nothing is said: on up to 100,000 rounds, each draw costs as much as a greedy policy."""


def evaluate(
    model: Annotated[
        Path | None, typer.Option("--model", help="The judge; without it, only --estimators speak.")
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policies",
            metavar="NAME,FILE,...",
            autocompletion=policy_names,
            help="greedy, pessimistic[:delta], softmax:temperature, thompson[:draws] (100; its time grows with them), "
            "epsilon-greedy:epsilon, uniform, made from the model; or policy files (greedy,pessimistic,uniform).",
        ),
    ] = None,
    estimators: Annotated[
        list[str] | None,
        typer.Option(
            "--estimators",
            metavar="NAME,...",
            autocompletion=estimator_names,
            help="Model-free estimates beside the model's: ips[:clip], snips[:clip], dr[:clip], sndr[:clip], "
            "switch-dr:threshold, dros:shrinkage, replay, ... They need --propensity. A clip is a floor on the "
            "propensity: 0.01 makes no weight larger than 100.",
        ),
    ] = None,
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
    sample: Annotated[int, typer.Option("--sample", min=2, help="Judge on so many rounds at most, drawn evenly.")] = (
        100_000
    ),
    seed: o.Seed = 0,
    spec: o.SpecFile = None,
    as_json: o.Json = False,
) -> None:
    """Compare policies with what runs now: by how much, how sure.

    Each policy is judged by the model's posterior on the contexts of the logs,
    and against `logged`, the policy that wrote them. Context columns and
    catalog come from the model. Judge on logs that it was not fitted on.
    """
    flags = dict(locals())
    with one_line_errors():
        told = read_spec(spec, flags)
        chosen = names("--policies", policies or ["greedy", "pessimistic", "uniform"])
        figures, evaluation = _run(told, model, chosen, names("--estimators", estimators or []), sample, seed)
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
            return
        from manyarms.cli.shown import print_evaluation  # noqa: PLC0415

        print_evaluation(figures, evaluation)


def _run(
    spec: Spec, model: Path | None, chosen: tuple[str, ...], judges: tuple[str, ...], sample: int, seed: int
) -> tuple[dict[str, Any], ma.Evaluation]:
    import numpy as np  # noqa: PLC0415

    from manyarms import jobs  # noqa: PLC0415
    from manyarms._random import split  # noqa: PLC0415
    from manyarms.cli.reading import open_model, open_policy, reading_warnings  # noqa: PLC0415
    from manyarms.cli.shown import evaluation_figures  # noqa: PLC0415

    posterior = None if model is None else open_model(model)
    if judges and spec.logs.propensity is None and set(judges) != {"replay"}:
        raise InputError("--estimators need the logging policy's probabilities: pass --propensity.")
    sample_rng, policy_rng = split(np.random.default_rng(seed), "sample", "policies")
    files = {text: open_policy(Path(text)) for text in chosen if _is_file(text)}
    with row_bar("Reading") as report:
        stream = _open(spec, report, [one for one in (posterior, *files.values()) if one is not None])
        drawn = jobs.sample_rounds(stream, sample, rng=sample_rng)
    with spinner("Judging"):
        options: dict[str, Any] = {"n_actions": stream.n_actions, "n_draws": DRAWS, "rng": policy_rng}
        policies = {text: files.get(text) or jobs.policy_named(text, posterior, **options) for text in chosen}
        evaluation = jobs.evaluate(
            {name: drawn.bound(policy) for name, policy in policies.items()},
            drawn.logs,
            posterior,
            estimators=[jobs.estimator_named(one, posterior) for one in judges],
            fingerprints=stream.source.fingerprints,
        )
    figures = evaluation_figures(evaluation, drawn, stream, posterior)
    figures["warnings"] += reading_warnings(stream.dropped)
    for one in figures["warnings"]:
        warn(one)
    return figures, evaluation


def _is_file(text: str) -> bool:
    """Whether a policy is named by its file: our names for policies have no slash and no ending of letters."""
    return "/" in text or Path(text).suffix[1:].isalpha() or Path(text).is_file()


def _open(spec: Spec, report: Report, owners: list[Any]) -> ma.LogStream:
    """The logs, read through the feature maps of the model and of all policy files."""
    from manyarms.cli.reading import open_logs  # noqa: PLC0415
    from manyarms.jobs import StackedMap  # noqa: PLC0415

    maps = [one.features for one in owners if one.features is not None]
    if owners and not maps:
        raise InputError("neither the model nor a policy has a feature map, so columns cannot be read: use Python.")
    catalogs = [one.catalog for one in owners if one.catalog is not None]
    features = None if not maps else maps[0] if all(one == maps[0] for one in maps) else StackedMap(maps)
    return open_logs(
        spec,
        report,
        features=features,
        catalog=_catalog(spec, catalogs),
        n_actions=owners[0].n_actions if owners else None,
    )


def _catalog(spec: Spec, known: list[ma.Catalog]) -> ma.Catalog | None:
    """That of the model or the policies, or else the one that the spec names."""
    from manyarms.cli.reading import check_catalog, open_catalog  # noqa: PLC0415

    if known:
        return known[0]
    check_catalog(spec)
    return open_catalog(spec)
