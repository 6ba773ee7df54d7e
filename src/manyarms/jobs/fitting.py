"""A posterior from a stream of logs, with as little in memory as its likelihood allows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from manyarms._progress import Progress
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.likelihoods import Gaussian, Likelihood
from manyarms.logs.stream import LogStream
from manyarms.posterior import RewardPosterior, fit
from manyarms.prior_choice import LearnedPrior, learn_prior


def fit_stream(
    stream: LogStream,
    prior: HierarchicalGaussian,
    likelihood: Likelihood,
    *,
    learn: bool = True,
    progress: Progress = False,
) -> tuple[RewardPosterior, LearnedPrior | None]:
    """The posterior of a stream, and what was learned of the prior where that was asked for.

    Gaussian rewards are read once and only their statistics are kept; for others all rounds are held in memory. The
    posterior remembers the files it has seen, so that none is counted twice or judged on without notice.

    Args:
        stream: What `read_logs` gave for files.
        prior: Its structure and scales; where learning starts.
        likelihood: How rewards arise.
        learn: Whether to learn scales, means and noise, as `learn_prior` does.
        progress: True shows how far the search is; a function is called as progress(step, steps at most).
    """
    logs = stream if isinstance(likelihood, Gaussian) else stream.collect()
    learned = learn_prior(logs, prior, likelihood, progress=progress) if learn else None
    posterior = fit(logs, prior, likelihood, progress=progress) if learned is None else learned.posterior
    return remember(posterior, stream), learned


def update_stream(posterior: RewardPosterior, stream: LogStream) -> RewardPosterior:
    """The posterior given more logs, with as little of them in memory; see `RewardPosterior.update`.

    Args:
        posterior: Whose feature map and catalog the stream was read with.
        stream: What `read_logs` gave for files.
    """
    logs = stream if isinstance(posterior.likelihood, Gaussian) else stream.collect()
    return remember(posterior.update(logs), stream)


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
