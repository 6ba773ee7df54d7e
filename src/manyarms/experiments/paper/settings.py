"""What several figures share: problems, names, the words for their settings."""

from __future__ import annotations

from manyarms.experiments.figures import ROUNDS
from manyarms.experiments.methods import DR_, IPS_, MIPS_, PAPER, PC, SNIPS_, Method
from manyarms.experiments.synthetic import Synthetic

SETTING_ONE = Synthetic()
"""K = 1000, d = d' = 10, uniform logging."""

SETTING = (
    "Contexts uniform on [-1, 1]^d, d = 10; W_a and μ uniform on [-1, 1]; Σ = 3 I, Σ_a = I, σ = 1. Truth and relative "
    "reward on 2,000 fresh contexts of the instance; estimators average over the logged contexts. The target picks the "
    "truly best action half the time and a random one otherwise."
)

BASELINES = (
    "MIPS: 10 k-means clusters, PC: 10 nearest neighbours, both of W_a μ. DR: cross-fitted in 5 folds with DM "
    "(Freq), a ridge with λ = 0.001. IPS, snIPS, DR, MIPS and PC learn a linear softmax policy by L-BFGS, stopped "
    "by a held-out fifth of the log."
)


def names(*methods: Method) -> tuple[str, ...]:
    """Of these methods."""
    return tuple(method.name for method in methods)


RIVALS = names(*PAPER[1:])
"""The baselines of the paper."""

IPS_FAMILY = names(IPS_, SNIPS_, DR_)
CLUSTERED = names(MIPS_, PC)

__all__ = ["BASELINES", "CLUSTERED", "IPS_FAMILY", "RIVALS", "ROUNDS", "SETTING", "SETTING_ONE", "names"]
