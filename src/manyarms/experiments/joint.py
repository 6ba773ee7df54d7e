"""The posterior without its structure: what sDM saves."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from manyarms.core.estimate import Estimate
from manyarms.core.policy import Policy
from manyarms.experiments.world import Task


def joint_estimate(task: Task, target: Policy) -> Estimate:
    """The posterior of a value from one (K d, K d) system, at O(K³ d³) (paper, Sec. 3): the same answer as that of sDM.

    θ | S has mean (I + C G)⁻¹ (m + C B) and covariance (I + C G)⁻¹ C, where m and C are the prior's.
    """
    known, logs = task.known, task.logs
    K, d = known.n_actions, known.dim
    left, right = np.repeat(np.arange(K), K), np.tile(np.arange(K), K)
    C = known.prior.cross_cov(left, right).reshape(K, K, d, d).swapaxes(1, 2).reshape(K * d, K * d)
    rows = np.zeros((len(logs), K, d))
    rows[np.arange(len(logs)), logs.actions] = logs.contexts / known.noise_std
    phi = rows.reshape(len(logs), K * d)
    factor = lu_factor(np.eye(K * d) + C @ (phi.T @ phi))
    moment = phi.T @ (logs.rewards / known.noise_std)
    weights = lu_solve(factor, known.prior.action_mean().reshape(-1) + C @ moment).reshape(K, d)
    mass, expected = target.profile(logs.contexts, weights, eligible=task.eligible)
    m = np.zeros((K, d))
    m[mass.actions] = mass.vectors
    variance = m.reshape(-1) @ lu_solve(factor, C @ m.reshape(-1))
    of_contexts = expected.std(ddof=1) / np.sqrt(len(logs))
    return Estimate(
        value=float(expected.mean()),
        std=float(np.sqrt(variance + of_contexts**2)),
        posterior_std=float(np.sqrt(variance)),
        context_std=float(of_contexts),
    )
