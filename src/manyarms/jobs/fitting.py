"""A posterior from a stream of logs, of which no more than a batch is in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.engines import Engine
from manyarms.likelihoods import Likelihood
from manyarms.logs.stream import LogStream
from manyarms.posterior import RewardPosterior, fit
from manyarms.prior_choice import LearnedPrior, learn_prior


def fit_stream(
    stream: LogStream,
    prior: HierarchicalGaussian,
    likelihood: Likelihood,
    *,
    learn: bool = True,
    engine: Engine | str | None = None,
) -> tuple[RewardPosterior, LearnedPrior | None]:
    """The posterior of a stream, and what was learned of the prior where that was asked for.

    Rewards that are Gaussian, or whose logarithms are, take one pass over the stream. Others take one for every step of
    the fit, about ten; to learn the prior too takes about a hundred, up to three hundred (see `learn_prior`). The
    posterior remembers the files it has seen, so that none is counted twice or judged on without notice.

    Args:
        stream: What `read_logs` gave for files.
        prior: Its structure and scales; where learning starts.
        likelihood: How rewards arise.
        learn: Whether to learn scales, means and noise, as `learn_prior` does.
        engine: Where the passes run, as in `fit`.
    """
    learned = learn_prior(stream, prior, likelihood, engine=engine) if learn else None
    posterior = fit(stream, prior, likelihood, engine=engine) if learned is None else learned.posterior
    return remember(posterior, stream), learned


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
    return remember(posterior.update(stream, engine=engine), stream)


def remember(posterior: RewardPosterior, stream: LogStream) -> RewardPosterior:
    """The posterior with the files of a stream among what it was learned from."""
    known = (*posterior.learned_from, *stream.source.fingerprints)
    return replace(posterior, learned_from=tuple(dict.fromkeys(known)))


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
