"""The prior "auto": all priors that a catalog allows, compared on held-out rounds, and the best of them learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np

from manyarms._base.checks import Array, check_choice
from manyarms._base.job_options import PriorChoice, PriorKind
from manyarms.core import Catalog, HierarchicalGaussian, LoggedData, Logs, Statistics
from manyarms.errors import DataTypeError, ManyarmsError
from manyarms.likelihoods import Likelihood
from manyarms.logs.log_stream import LogStream, joined
from manyarms.posterior.reward_posterior import as_logs
from manyarms.prior_learning.compare_priors import PriorComparison, compare_priors
from manyarms.prior_learning.learn_prior import learn_prior, one_likelihood
from manyarms.prior_learning.learned_prior import LearnedPrior
from manyarms.priors.from_catalog import from_catalog, is_solvable, metadata_kinds

EXACT_ROUNDS, EXACT_FOLDS = 5000, 3
"""The most rounds that priors are compared on, and the folds, where a fit is one solve."""
OTHER_ROUNDS, OTHER_FOLDS = 2000, 2
"""The most rounds and the folds where a fit is a loop, as for clicks and counts."""

Build = Callable[[PriorKind], HierarchicalGaussian]


def learn_named_prior(
    logs: Logs | Statistics,
    name: PriorChoice,
    likelihood: Likelihood | None = None,
    *,
    build: Build | None = None,
    **options: Any,
) -> LearnedPrior:
    """Learn a prior that is given by its kind, or the one of all kinds that predicts best ("auto").

    Priors are compared on a random sample of the rounds (5,000, or 2,000 where rewards are not Gaussian), each learned
    anew in every fold. Of the priors whose held-out score is within one standard error of the best, the simplest is
    taken: independent, then each kind of metadata, then their combination. On real data with few rounds, the policies
    of richer priors that scored best by less than that were worse. If no comparison is possible, all metadata are
    combined.

    Args:
        logs: Logged rounds with a catalog; without one, actions are independent.
        name: "auto", or a kind of `priors.from_catalog`.
        likelihood: As in `learn_prior`.
        build: Builds the prior of a kind; by default `from_catalog` with an effect that all actions share.
        options: Further options of `learn_prior`.
    """
    check_choice("prior", name, get_args(PriorChoice))
    if isinstance(logs, Statistics):
        raise DataTypeError(
            f"is {name!r}, and Statistics hold neither rounds nor a catalog.",
            "Pass the logs, or a prior from ma.priors.",
            argument="prior",
        )
    likelihood = one_likelihood(likelihood)
    catalog = logs.n_actions if logs.catalog is None else logs.catalog
    build = build or partial(from_catalog, catalog, dim=logs.dim, shared_std=1.0)
    if name != "auto":
        return learn_prior(logs, build(name), likelihood, **options)
    candidates = _candidates(catalog, build)
    as_logs(logs, next(iter(candidates.values())))
    best, comparison, note = _compared(logs, candidates, likelihood)
    learned = learn_prior(logs, candidates[best], likelihood, **options)
    return replace(learned, comparison=comparison, notes=(f"auto: {note}", *learned.notes))


def _candidates(catalog: Catalog | int, build: Build) -> dict[str, HierarchicalGaussian]:
    """The priors of all kinds that a catalog has metadata for, from the simplest to the combination of all."""
    kinds: list[PriorKind] = ["independent"]
    if isinstance(catalog, Catalog):
        known = metadata_kinds(catalog)
        kinds.extend(known)
        if "embeddings" in known:
            kinds.append("linear-embeddings")
        if len(known) > 1:
            kinds.append("combined")
    priors = dict[str, HierarchicalGaussian]()
    for kind in kinds:
        try:
            prior = build(kind)
        except ManyarmsError:
            # Such as embeddings that are all alike: metadata without information are no candidate.
            continue
        if is_solvable(prior):
            priors[kind] = prior
    return priors


def _compared(
    logs: Logs, candidates: dict[str, HierarchicalGaussian], likelihood: Likelihood
) -> tuple[str, PriorComparison | None, str]:
    """The name of the best candidate, the comparison if there was one, and a note on it."""
    names = list(candidates)
    if len(names) == 1:
        return names[0], None, "one effect shared by all actions; no metadata of a catalog relate them further"
    exact = likelihood.treatment == "exact"
    rounds, folds = (EXACT_ROUNDS, EXACT_FOLDS) if exact else (OTHER_ROUNDS, OTHER_FOLDS)
    try:
        comparison = compare_priors(_sample(logs, rounds), candidates, likelihood, learn=True, n_folds=folds)
    except ManyarmsError as cause:
        return names[-1], None, f"priors could not be compared ({cause.problem.rstrip('.')}), so {names[-1]} was taken"
    near = {row.name for row in comparison if row.difference + (row.error or 0.0) >= 0}
    chosen = next(name for name in names if name in near)
    ranking = ", ".join(f"{row.name} {row.held_out:.4g}" for row in comparison)
    return (
        chosen,
        comparison,
        (
            f"{chosen} is the simplest prior within one standard error of the best held-out score ({ranking}; "
            f"{comparison.n_rounds:,.10g} rounds, {folds} folds)"
        ),
    )


def _sample(logs: Logs, n: int) -> LoggedData:
    """At most n rounds, drawn at random in one pass; the same at every call."""
    rng = np.random.default_rng(0)
    if isinstance(logs, LoggedData):
        return logs if len(logs) <= n else logs.take(np.sort(rng.choice(len(logs), n, replace=False)))
    assert isinstance(logs, LogStream)
    parts, keys, bound = list[LoggedData](), np.empty(0), np.inf
    for batch in logs.ageless().batches():
        key = rng.random(len(batch))
        likely = np.flatnonzero(key < bound)
        parts, keys = [*parts, batch.take(likely)], np.concatenate([keys, key[likely]])
        if len(keys) > 2 * n:
            rounds, keys = _smallest(joined(parts, logs), keys, n)
            parts, bound = [rounds], float(keys.max())
    return _smallest(joined(parts, logs), keys, n)[0]


def _smallest(rounds: LoggedData, keys: Array, n: int) -> tuple[LoggedData, Array]:
    """The rounds with the n smallest keys, in their order."""
    if len(keys) <= n:
        return rounds, keys
    kept = np.sort(np.argpartition(keys, n - 1)[:n])
    return rounds.take(kept), keys[kept]
