"""A posterior from a stream of logs, of which no more than a batch is in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from manyarms._base.progress import Progress
from manyarms.core.fingerprint import Fingerprint
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData, Logs
from manyarms.engines import LOCAL, Engine, as_engine
from manyarms.errors import InputError
from manyarms.likelihoods import Likelihood
from manyarms.logs.log_stream import LogStream, joined
from manyarms.logs.row_reader import AgeRule, seconds_between
from manyarms.posterior import RewardPosterior, fit
from manyarms.prior_learning import LearnedPrior, learn_prior


def fit_stream(
    stream: LogStream,
    prior: HierarchicalGaussian,
    likelihood: Likelihood,
    *,
    learn: bool = True,
    progress: Progress = False,
    engine: Engine | str | None = None,
) -> tuple[RewardPosterior, LearnedPrior | None]:
    """The posterior of a stream, and what was learned of the prior where that was asked for.

    Rewards that are Gaussian, or whose logarithms are, take one pass over the stream. Others take one for every step of
    the fit, about ten; to learn the prior too takes about a hundred, up to three hundred (see `learn_prior`), so those
    that fit into half a gigabyte are read once and held. The posterior remembers the files it has seen, so that none is
    counted twice or judged on without notice.

    Where rounds count less with age, the prior is learned from the same rounds at full weight: a round of weight 1/3 is
    no noisier than others, and would pass for it, so that actions seem to differ by noise alone.

    Args:
        stream: What `read_logs` gave for files.
        prior: Its structure and scales; where learning starts.
        likelihood: How rewards arise.
        learn: Whether to learn scales, means and noise, as `learn_prior` does.
        progress: True shows how far the search is; a function is called as progress(step, steps at most).
        engine: Where the passes run, as in `fit`.
    """
    options: dict[str, Any] = {"progress": progress, "engine": engine}
    ageless = stream.ageless()
    if learn:
        learned = learn_prior(_held_if_small(ageless, likelihood, engine), prior, likelihood, **options)
        if ageless is stream:
            return remember(learned.posterior, stream), learned
        prior, likelihood = learned.prior, learned.likelihood
    else:
        learned = None
    return remember(fit(_held_if_small(stream, likelihood, engine), prior, likelihood, **options), stream), learned


def update_stream(
    posterior: RewardPosterior, stream: LogStream, *, engine: Engine | str | None = None
) -> RewardPosterior:
    """The posterior given more logs; see `RewardPosterior.update`.

    One pass over the stream where rewards, or their logarithms, are Gaussian; about ten where they are not.

    Args:
        posterior: Whose feature map and catalog the stream was read with.
        stream: What `read_logs` gave for files.
        engine: Where the passes run, as in `fit`.
    """
    logs = _held_if_small(stream, posterior.likelihood, engine)
    return remember(posterior.update(logs, allow_repeats=True, engine=engine), stream)


def aged(posterior: RewardPosterior, age: AgeRule | None) -> RewardPosterior:
    """The posterior with all that it has seen as old as it is at `age.now`, by the half-life there.

    A fit over all rounds at that time would weigh them alike.
    """
    if age is None or age.half_life is None or posterior.as_of is None:
        return posterior
    passed = seconds_between(datetime.fromisoformat(posterior.as_of), age.now)
    if passed < 0:
        raise InputError(
            f"the ages in the model are counted from {posterior.as_of}, which is after {age.now.isoformat()}: now must "
            "not go back. Pass a later one, or start from the model before."
        )
    if passed == 0:
        return posterior
    share = max(2.0 ** (-passed / age.half_life.total_seconds()), FORGOTTEN)
    return replace(posterior.discounted(share), as_of=age.now.isoformat())


FORGOTTEN = 1e-200
"""The weight of rounds so old that nothing is left of them."""


def _held_if_small(stream: LogStream, likelihood: Likelihood, engine: Engine | str | None) -> Logs:
    """Rounds that will be needed again and again, in memory if there is room for them."""
    n_rows = stream.source.n_rows
    if likelihood.treatment == "exact" or as_engine(engine) is not LOCAL or n_rows is None:
        return stream
    return _collected(stream, likelihood) if n_rows * (stream.dim + 4) <= HELD else stream


def _collected(stream: LogStream, likelihood: Likelihood) -> LoggedData:
    """All rounds in memory, their rewards looked at while it is known which row of which file they come from."""
    parts = list[LoggedData]()
    for batch in stream.batches():
        likelihood.check(batch.rewards, batch.weights)
        parts.append(batch)
    return joined(parts, stream)


HELD = 1 << 26
"""How many numbers of rounds are held at most (half a gigabyte)."""


def remember(posterior: RewardPosterior, stream: LogStream) -> RewardPosterior:
    """The posterior with the files of a stream among what it was learned from, and the time of it."""
    age = stream.reader.age
    left = None if age is None or not stream.dropped.immature else age.until
    until = None if left is None else left.isoformat()
    known = {key: one for one in posterior.learned_from for key in (one.origin, one.path) if key is not None}
    files = dict[str, Fingerprint]()
    for one in stream.source.fingerprints:
        old = known.get(one.origin) or known.get(one.path or "")
        reached = until
        if until is not None and old is not None and old.until is not None:
            # A cut-off that moves back does not take rounds out of the model.
            reached = max(until, old.until, key=datetime.fromisoformat)
        files[one.origin] = replace(one, until=reached, path=None if reached is None else one.path)
    # What is known now of a file takes the place of what was known.
    paths = {one.path for one in stream.source.fingerprints} - {None}
    before = [one for one in posterior.learned_from if one.origin not in files and one.path not in paths]
    as_of = posterior.as_of if age is None or age.half_life is None else age.now.isoformat()
    return replace(posterior, learned_from=(*before, *files.values()), as_of=as_of)


def rewards_are_binary(posterior: RewardPosterior) -> bool:
    """Whether all rewards of a Gaussian fit were 0 or 1: then Σ r = Σ r², and hardly ever else.

    Told from the statistics, where the feature map begins with a column of ones.
    """
    rows, sums = posterior.statistics.rows, posterior.statistics.sums
    if posterior.features is None or not posterior.features.intercept:
        return False
    total = float(rows.features[:, 0] @ rows.rewards + sums.moment[:, 0].sum())
    squares = float(rows.rewards @ rows.rewards + sums.reward_sq.sum())
    return squares > 0 and bool(np.isclose(total, squares, rtol=1e-9, atol=0.0))
