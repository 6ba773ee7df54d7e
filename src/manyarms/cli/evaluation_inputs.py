"""What policies are judged with: rounds of the logs, the model, the candidates and the estimators, all by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import manyarms as ma
from manyarms import jobs
from manyarms._base.rng import split
from manyarms.cli.open_inputs import Report, check_catalog, open_catalog, open_logs, open_model, open_policy
from manyarms.cli.spec import Spec
from manyarms.cli.terminal import row_bar, warn
from manyarms.core.fingerprint import Fingerprint
from manyarms.errors import InputError
from manyarms.estimators.estimator import Estimator

DRAWS = 100
"""Of thompson, where nothing is said: on up to 100,000 rounds, each draw costs as much as a greedy policy."""


@dataclass(frozen=True)
class Bench:
    """Everything that is needed to judge.

    Attributes:
        posterior: The model, if there is one.
        stream: The logs.
        drawn: The rounds to judge on.
        chosen: Policies by name, or by file.
        files: Those by file.
        judges: Estimators by name.
        rng: For policies that draw.
    """

    posterior: ma.Posterior | None
    stream: ma.LogStream
    drawn: jobs.RoundSample
    chosen: tuple[str, ...]
    files: dict[str, ma.Policy]
    judges: tuple[str, ...]
    rng: np.random.Generator

    def policies(self) -> dict[str, ma.Policy]:
        """The candidates, on these rounds."""
        options: dict[str, Any] = {"n_actions": self.stream.n_actions, "n_draws": DRAWS, "rng": self.rng}
        found = {
            text: self.files.get(text) or jobs.policy_named(text, self.posterior, **options) for text in self.chosen
        }
        return {name: self.drawn.bound(policy) for name, policy in found.items()}

    def estimators(self) -> list[Estimator]:
        """Those that were named."""
        return [jobs.estimator_named(one, self.posterior) for one in self.judges]

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """The files that the rounds are from."""
        return self.stream.source.fingerprints


def open_bench(
    spec: Spec, model: Path | None, chosen: tuple[str, ...], judges: tuple[str, ...], sample: int, seed: int
) -> Bench:
    """Read all of it.

    Args:
        spec: Where logs are and what columns mean.
        model: The file of the model, if there is one.
        chosen: Policies by name or file.
        judges: Estimators by name.
        sample: Rounds to judge on at most.
        seed: Of what is drawn at random.
    """
    posterior = None if model is None else open_model(model)
    if judges and spec.logs.propensity is None and set(judges) != {"replay"}:
        raise InputError("--estimators need the logging policy's probabilities: pass --propensity.")
    sample_rng, policy_rng = split(np.random.default_rng(seed), "sample", "policies")
    files = {text: open_policy(Path(text)) for text in chosen if _is_file(text)}
    with row_bar("Reading") as report:
        stream = _open(spec, report, [one for one in (posterior, *files.values()) if one is not None])
        drawn = jobs.sample_rounds(stream, sample, rng=sample_rng)
    return Bench(posterior, stream, drawn, chosen, files, judges, policy_rng)


def _is_file(text: str) -> bool:
    """Whether a policy is named by its file: our names for policies have no slash and no ending of letters."""
    return "/" in text or Path(text).suffix[1:].isalpha() or Path(text).is_file()


def _open(spec: Spec, report: Report, owners: list[Any]) -> ma.LogStream:
    """The logs, read through the feature maps of the model and of all policy files."""
    maps = [one.features for one in owners if one.features is not None]
    if owners and not maps:
        raise InputError("neither the model nor a policy has a feature map, so columns cannot be read: use Python.")
    told = tuple(spec.logs.context)
    if maps and told and all(one.columns != told for one in maps):
        own = ", ".join(maps[0].columns)
        warn(f"the context is what the model reads, {own}: --context {','.join(told)} is not used")
    features = None if not maps else maps[0] if all(one == maps[0] for one in maps) else jobs.StackedMap(maps)
    return open_logs(
        spec,
        report,
        features=features,
        catalog=_catalog(spec, owners),
        n_actions=owners[0].n_actions if owners else None,
    )


def _catalog(spec: Spec, owners: list[Any]) -> ma.Catalog | None:
    """That of the model or the policies, or else the one that the spec names."""
    known: list[ma.Catalog] = [one.catalog for one in owners if one.catalog is not None]
    if known:
        return known[0]
    if owners and spec.catalog.path is not None:
        # The ids in the file have other numbers there than in the model.
        raise InputError(
            "the model numbers actions without a catalog, so one cannot be used with it: leave --catalog out, or fit "
            "with --catalog."
        )
    check_catalog(spec)
    return open_catalog(spec)
