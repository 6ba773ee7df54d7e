"""The best of all policies: the probability of each to be it, and the loss that is expected from choosing another.

The gains of all policies over the current one are joint: they share weights. Their correlations are those of the model,
which the variances of gains and of differences between candidates give. Each gain has the distribution on which
decisions rest, checked where possible; a Gaussian copula joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from manyarms._base.checks import Array
from manyarms.core import Estimate
from manyarms.core.shapes import EmpiricalShape, NormalMixture

if TYPE_CHECKING:
    from manyarms.jobs.evaluate import Evaluation

DRAWS = 1 << 15
"""Draws of all gains: a probability has a standard error of at most 0.3 percentage points."""


@dataclass(frozen=True)
class Choice:
    """One policy among all that were evaluated.

    Attributes:
        probability_best: The probability that it is the best of all policies, the current one included.
        expected_loss: The reward per round that is given up on average by choosing it, compared with the best policy.
    """

    probability_best: float
    expected_loss: float


def best_choices(evaluation: Evaluation) -> Mapping[str, Choice]:
    """Every policy of an evaluation as a choice, by name; empty where policies were not compared with each other."""
    rows = [row for row in evaluation.policies if row.gain is not None and row.difference is not None]
    needed = combinations([row.name for row in rows], 2)
    if not rows or any(pair not in evaluation.pairs for pair in needed):
        return {}
    correlations = _correlations(
        np.array([row.difference.std for row in rows if row.difference is not None]),
        {pair: evaluation.pairs[pair].std for pair in combinations([row.name for row in rows], 2)},
        [row.name for row in rows],
    )
    rng = np.random.default_rng(0)
    half = rng.standard_normal((DRAWS // 2, len(rows))) @ _root(correlations).T
    scores = np.concatenate([half, -half])
    gains = [_draws(row.gain, scores[:, place]) for place, row in enumerate(rows) if row.gain is not None]
    values = np.column_stack([np.zeros(DRAWS), *gains])
    best = values.max(axis=1, keepdims=True)
    is_best = values == best
    # Policies that make the same choices share the draws in which both are best.
    probability = (is_best / is_best.sum(axis=1, keepdims=True)).mean(axis=0)
    loss = (best - values).mean(axis=0)
    names = [evaluation.baseline.name, *(row.name for row in rows)]
    return {name: Choice(float(p), float(lost)) for name, p, lost in zip(names, probability, loss, strict=True)}


def _correlations(
    stds: Float[Array, " p"], pairs: Mapping[tuple[str, str], float], names: list[str]
) -> Float[Array, "p p"]:
    """Correlations of gains: Var(D_i - D_j) = Var D_i + Var D_j - 2 Cov(D_i, D_j)."""
    out = np.eye(len(stds))
    for (first, second), std in pairs.items():
        i, j = names.index(first), names.index(second)
        scale = 2.0 * stds[i] * stds[j]
        if scale > 0:
            out[i, j] = out[j, i] = np.clip((stds[i] ** 2 + stds[j] ** 2 - std**2) / scale, -1.0, 1.0)
    return out


def _root(correlations: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """A root R with R Rᵀ = C; rounding may have made an eigenvalue negative."""
    values, vectors = np.linalg.eigh(correlations)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def _draws(gain: Estimate, scores: Float[Array, " s"]) -> Float[Array, " s"]:
    """The quantiles of a gain at normal scores."""
    if gain.shape is None:
        return gain.value + gain.std * scores
    shares = ndtr(scores)
    if isinstance(gain.shape, EmpiricalShape):
        return np.quantile(gain.shape.draws, shares)
    if isinstance(gain.shape, NormalMixture):
        return _mixture_quantiles(gain.shape, shares)
    levels = np.linspace(0.0, 0.999, 200)[1:]
    ends = np.array([gain.shape.interval(float(level)) for level in levels])
    return np.interp(
        shares, np.concatenate([0.5 - levels[::-1] / 2, 0.5 + levels / 2]), np.concatenate([ends[::-1, 0], ends[:, 1]])
    )


def _mixture_quantiles(shape: NormalMixture, shares: Float[Array, " s"]) -> Float[Array, " s"]:
    """Quantiles of a mixture, from its distribution on a grid that is fine where the mixture has its mass."""
    low, high = shape.quantile(1e-6), shape.quantile(1.0 - 1e-6)
    if not high > low:
        return np.full(len(shares), low)
    coarse = np.linspace(low, high, 101)
    shares_below = [shape.below(float(x)) for x in coarse]
    grid = np.union1d(coarse, np.interp(np.linspace(0.0, 1.0, 301), shares_below, coarse))
    below = np.array([shape.below(float(x)) for x in grid])
    kept = np.concatenate([[True], np.diff(below) > 0])
    return np.interp(shares, below[kept], grid[kept])
