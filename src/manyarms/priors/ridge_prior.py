"""The prior of ridge regression per action, and the choice of its penalty by cross-validation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.checks import Array, as_scalar, row_weights
from manyarms.core import HierarchicalGaussian, LoggedData
from manyarms.errors import InputError, RangeError, ShapeError
from manyarms.linalg.indexing import chunks
from manyarms.priors.from_matrices import independent


def ridge(
    n_actions: int, dim: int, *, penalty: float | None = None, logs: LoggedData | None = None, noise_std: float = 1.0
) -> HierarchicalGaussian:
    """The prior whose posterior mean is ridge regression per action, min Σ (r - φᵀθ)² + penalty ‖θ‖²: DM (Freq).

    With `logs` instead of a penalty, the penalty is chosen by cross-validation on them. A fixed small penalty fails
    where actions have about as many rounds as features: the regression then fits the noise, and a greedy policy takes
    what is overestimated most.

    Args:
        n_actions: K.
        dim: d.
        penalty: λ, above zero.
        logs: Rounds to choose λ on, by the squared error of held-out rounds in 5 folds; see `ridge_penalty`.
        noise_std: σ of the likelihood that the prior will be used with.
    """
    noise_std = as_scalar("noise_std", noise_std, above=1e-150, below=1e150)
    if (penalty is None) == (logs is None):
        problem = "takes either penalty or logs to choose it on."
        raise InputError(problem, "Pass logs=, the rounds that the prior will be fitted to.", argument="penalty")
    if logs is not None:
        if (logs.n_actions, logs.dim) != (n_actions, dim):
            raise ShapeError(
                f"have {logs.n_actions} actions in {logs.dim} dimensions; the prior has {n_actions} in {dim}.",
                argument="logs",
            )
        penalty = ridge_penalty(logs)
    penalty = as_scalar("penalty", penalty, above=0.0)
    variance = noise_std**2 / penalty
    if not np.isfinite(variance):
        raise RangeError(f"is too small for this noise: {penalty}.", "Pass a larger one.", argument="penalty")
    return independent(n_actions, mean=0.0, cov=variance, dim=dim)


PENALTIES = tuple(10.0 ** (half / 2) for half in range(-6, 7))
"""Candidates for the penalty of a ridge, in units of the mean square of a feature."""

N_FOLDS = 5
_BLOCK = 4_000_000
"""Numbers that cross-validation holds at a time."""


def ridge_penalty(logs: LoggedData) -> float:
    """The penalty of a ridge regression per action that has the smallest squared error on held-out rounds, in 5 folds.

    One penalty for all actions, from 0.001 to 1,000 times the mean square of a feature, two per decade. A round of an
    action without any in the other folds is predicted as zero. The rounds of an action go to the folds in turn, and the
    rounds of a group (`logs.groups`) to one fold, so nothing is random. If no penalty is better than another, as when
    every action was logged once, it is the mean square of a feature. Cost: O(n d² + S d³) for S seen actions.
    """
    rounds = logs.counted()
    order = np.argsort(rounds.actions, kind="stable")
    weights = row_weights(rounds.weights, len(rounds))[order]
    joined = np.column_stack([rounds.contexts, rounds.rewards])[order]
    _, first, action, counts = np.unique(
        rounds.actions[order], return_index=True, return_inverse=True, return_counts=True
    )
    if rounds.groups is None:
        folds = (np.arange(len(order)) - first[action] + action) % N_FOLDS
    else:
        folds = np.unique(rounds.groups, return_inverse=True)[1][order] % N_FOLDS
    total = float(weights.sum())
    scale = float(weights @ np.square(joined[:, :-1]).mean(axis=1)) / total if total else 0.0
    if not scale > 0:
        return 1.0
    penalties, errors = scale * np.array(PENALTIES), np.zeros(len(PENALTIES))
    ends = first + counts
    for block in chunks(len(first), max(1, _BLOCK // (N_FOLDS * joined.shape[1] ** 2))):
        rows = slice(int(first[block][0]), int(ends[block][-1]))
        keys = (action[rows] - block.start) * N_FOLDS + folds[rows]
        moments = _moments_by_fold(joined[rows], weights[rows], keys, len(first[block]))
        errors += _held_out_errors(moments, penalties)
    best = int(np.argmin(errors))
    return float(penalties[best]) if np.ptp(errors) > 0 else scale


def _moments_by_fold(
    joined: Float[Array, "n e"], weights: Float[Array, " n"], keys: Array, n_actions: int
) -> Float[Array, "A F e e"]:
    """Σ w z zᵀ for each action and fold, where z is φ followed by the reward: Gram matrix, moment and squares."""
    n, e = joined.shape
    total = np.zeros((n_actions * N_FOLDS, e * e))
    for rows in chunks(n, max(1, _BLOCK // (e * e))):
        part, size = joined[rows], len(joined[rows])
        outer = (part[:, :, None] * part[:, None, :]).reshape(size, e * e)
        members = (weights[rows], (keys[rows], np.arange(size)))
        total += sparse.csr_array(members, shape=(len(total), size)) @ outer
    return total.reshape(n_actions, N_FOLDS, e, e)


def _held_out_errors(moments: Float[Array, "A F e e"], penalties: Float[Array, " L"]) -> Float[Array, " L"]:
    """Squared errors on each fold of a ridge fitted to the others, summed over actions and folds."""
    # Sums over the other folds, not differences: an action without rounds there has exact zeros.
    others = np.einsum("agij,gf->afij", moments, 1.0 - np.eye(N_FOLDS))
    tested = moments[..., -1, -1] + moments[..., :-1, :-1].trace(axis1=-2, axis2=-1) > 0
    train, test = others[tested], moments[tested]
    e, Q = np.linalg.eigh(train[:, :-1, :-1])
    b, B = (np.einsum("pji,pj->pi", Q, part[:, :-1, -1]) for part in (train, test))
    G = Q.swapaxes(-1, -2) @ test[:, :-1, :-1] @ Q
    # In the eigenbasis of the Gram matrix, θ = b / (e + λ) for every λ at once.
    theta = b[:, None, :] / (np.maximum(e, 0.0)[:, None, :] + penalties[:, None])
    quadratic = np.einsum("pli,pij,plj->l", theta, G, theta, optimize=True)
    return test[:, -1, -1].sum() - 2.0 * np.einsum("pli,pi->l", theta, B) + quadratic
