"""A policy made from a model by its name: what `manyarms learn` does."""

from __future__ import annotations

import numpy as np

from manyarms._base.checks import as_count
from manyarms._base.files import PathLike
from manyarms.core.policy import Policy
from manyarms.jobs.parse_names import policy_named
from manyarms.logs.sources import refuse_overwriting
from manyarms.posterior.posterior import Posterior, as_posterior


def learn_policy(
    model: PathLike | Posterior, policy: str = "greedy", *, seed: int = 0, out: PathLike | None = None
) -> Policy:
    """Make a policy from a model by its name, such as "softmax:0.1", as `manyarms learn` does; nothing is trained.

    Args:
        model: The model, or its file.
        policy: The policy by name, as in `policy_named`.
        seed: Seed for everything random.
        out: The policy file to write, other than the model's; None for none.
    """
    refuse_overwriting(out, model)
    made = policy_named(policy, as_posterior(model), rng=np.random.default_rng(as_count("seed", seed, minimum=0)))
    if out is not None:
        made.save(out)
    return made
