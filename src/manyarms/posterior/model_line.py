"""A model in one line of plain text, for the footers of pages."""

from __future__ import annotations

import numpy as np

from manyarms.posterior.hurdle_posterior import HurdlePosterior
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_posterior import RewardPosterior


def model_line(posterior: Posterior) -> str:
    """The sizes of a model and, where it has one, its log evidence."""
    seen = np.unique(np.concatenate(posterior.seen_actions))
    actions = f"{posterior.n_actions:,} actions, {len(seen):,} of them logged"
    if not isinstance(posterior, RewardPosterior | HurdlePosterior):
        return f"{actions}; {posterior.dim} features"
    # The first part of a hurdle is fitted on all rounds, the second only on those with a reward.
    fitted = posterior.occurs if isinstance(posterior, HurdlePosterior) else posterior
    rounds = f"{fitted.statistics.n_rounds:,} rounds; {posterior.dim} features"
    return f"{actions}; {rounds}; log evidence {posterior.log_evidence:.6g}"
