"""The best of all policies: the probability of each to be it, and the loss that is expected from choosing another.

Each gain over the current policy has the distribution on which decisions rest, checked where possible; a Gaussian
copula joins them. Gains share two kinds of error. The model's errors are correlated as the variances of gains and of
differences between candidates tell. What the check adds to them comes from the rounds, and from errors of the model
that its posterior does not know; two policies share it as far as they choose the same actions.
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
from manyarms.core.estimate import EmpiricalShape, NormalMixture

if TYPE_CHECKING:
    from manyarms.jobs.evaluate import Evaluation, PolicyResult

DRAWS = 1 << 15
"""Draws of all gains: a probability has a standard error of at most 0.3 percentage points."""


@dataclass(frozen=True)
class Choice:
    """One policy among all that were evaluated, as a candidate for the best.

    Attributes:
        probability_best: The probability that it is the best of all policies, the current one included.
        expected_loss: The reward per round that is given up on average by choosing it, compared with the best policy.
        probability_better: The probability that it is better than each of the others, by name.
    """

    probability_best: float
    expected_loss: float
    probability_better: Mapping[str, float]


def best_choices(evaluation: Evaluation) -> Mapping[str, Choice]:
    """Every policy as a candidate for the best, by name; empty where policies were not compared with each other."""
    rows = [row for row in evaluation.policies if row.difference is not None]
    needed = combinations([row.name for row in rows], 2)
    if not rows or any(pair not in evaluation.pairs for pair in needed):
        return {}
    model = _correlations(
        np.array([row.difference.std for row in rows if row.difference is not None]),
        {pair: evaluation.pairs[pair].std for pair in combinations([row.name for row in rows], 2)},
        [row.name for row in rows],
    )
    rng = np.random.default_rng(0)
    half = rng.standard_normal((DRAWS // 2, len(rows))) @ _root(_with_check(model, rows)).T
    scores = np.concatenate([half, -half])
    gains = [_draws(row.gain, scores[:, place]) for place, row in enumerate(rows) if row.gain is not None]
    values = np.column_stack([np.zeros(DRAWS), *gains])
    best = values.max(axis=1, keepdims=True)
    # Policies that make the same choices share the draws in which both are best; rounding does not part them.
    equal = 1e-9 * float(values.std())
    is_best = values >= best - equal
    probability = (is_best / is_best.sum(axis=1, keepdims=True)).mean(axis=0)
    loss = (best - values).mean(axis=0)
    names = [evaluation.baseline.name, *(row.name for row in rows)]
    return {
        name: Choice(float(probability[place]), float(loss[place]), _better(values, place, names, equal))
        for place, name in enumerate(names)
    }


def _better(values: Float[Array, "s p"], place: int, names: list[str], equal: float) -> dict[str, float]:
    """The probability that one policy is better than each of the others; draws in which they are equal count half."""
    lead = values[:, [place]] - values
    above = np.where(np.abs(lead) <= equal, 0.5, lead > 0).mean(axis=0)
    return {name: float(share) for name, share in zip(names, above, strict=True) if name != names[place]}


def _with_check(model: Float[Array, "p p"], rows: list[PolicyResult]) -> Float[Array, "p p"]:
    """Correlations of gains, given those of the model alone.

    A share of each variance is the model's. The rest is shared as far as two policies choose the same actions: the sum
    over all actions of the lower of their two shares, which is positive semi-definite.
    """
    part = np.array([_share_of_model(row) for row in rows])
    own = np.sqrt(1.0 - part**2)
    return model * np.outer(part, part) + _common_choices(rows) * np.outer(own, own)


def _share_of_model(row: PolicyResult) -> float:
    """The standard deviation of a gain by the model alone, as a share of the one on which decisions rest."""
    if row.difference is None or row.gain is None or row.gain.std <= row.difference.std:
        return 1.0
    return float(row.difference.std / row.gain.std)


def _common_choices(rows: list[PolicyResult]) -> Float[Array, "p p"]:
    """The share of choices that fall on the same actions, for every pair of policies."""
    out = np.eye(len(rows))
    for i, j in combinations(range(len(rows)), 2):
        mine, others = rows[i].choices, rows[j].choices
        if mine is None or others is None:
            continue
        _, left, right = np.intersect1d(mine.actions, others.actions, assume_unique=True, return_indices=True)
        out[i, j] = out[j, i] = np.minimum(mine.shares[left], others.shares[right]).sum()
    return out


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
