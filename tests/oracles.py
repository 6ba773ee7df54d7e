"""What the library must agree with, written the long way: dense joint Gaussians. Imports nothing of src."""

from __future__ import annotations

from dataclasses import dataclass

import mpmath
import numpy as np


@dataclass(frozen=True)
class DenseProblem:
    """A prior written out in full, and rounds."""

    latent_mean: np.ndarray  # (p,)
    latent_cov: np.ndarray  # (p, p)
    mixing: np.ndarray  # (K, d, p)
    action_cov: np.ndarray  # (K, d, d)
    offset: np.ndarray  # (K, d)
    contexts: np.ndarray  # (n, d)
    actions: np.ndarray  # (n,)
    rewards: np.ndarray  # (n,)
    noise_std: float

    @property
    def n_actions(self):
        return self.mixing.shape[0]

    @property
    def dim(self):
        return self.mixing.shape[1]

    @property
    def latent_dim(self):
        return self.mixing.shape[2]


class DenseJoint:
    """The joint Gaussian of (ψ, θ_1, ..., θ_K) given the rewards, by the textbook formula for conditioning.

    Computed with `digits` decimal digits by mpmath (NumPy arrays of its numbers) and rounded at the end, so that the
    cancellation in cov - gain design cov does no harm. Tiny problems only.
    """

    def __init__(self, problem: DenseProblem, digits: int = 60):
        with mpmath.workdps(digits):
            self._solve(_exact(problem))

    def _solve(self, problem: DenseProblem):
        p, d, K = problem.latent_dim, problem.dim, problem.n_actions
        size = p + K * d
        stacked = problem.mixing.reshape(K * d, p)
        loading = np.vstack([_lift(np.eye(p)), stacked])
        mean = loading @ problem.latent_mean + np.concatenate([_lift(np.zeros(p)), problem.offset.reshape(-1)])
        cov = loading @ problem.latent_cov @ loading.T + _lift(np.zeros((size, size)))
        for a in range(K):
            block = slice(p + a * d, p + (a + 1) * d)
            cov[block, block] += problem.action_cov[a]
        n = len(problem.actions)
        design = _lift(np.zeros((n, size)))
        for i in range(n):
            a = problem.actions[i]
            design[i, p + a * d : p + (a + 1) * d] = problem.contexts[i]
        marginal = design @ cov @ design.T + _lift(np.eye(n)) * problem.noise_std**2
        miss = problem.rewards - design @ mean
        lower = _cholesky(marginal)
        white_design, white_miss = _forward(lower, design @ cov), _forward(lower, miss[:, None])[:, 0]
        self.mean = (mean + white_design.T @ white_miss).astype(float)
        self.cov = (cov - white_design.T @ white_design).astype(float)
        log_det = 2 * sum((mpmath.log(lower[i, i]) for i in range(n)), mpmath.mpf(0))
        quadratic = sum((z * z for z in white_miss), mpmath.mpf(0))
        self.log_evidence = float(-(n * mpmath.log(2 * mpmath.pi) + log_det + quadratic) / 2)
        self.p, self.d, self.K = p, d, K

    @property
    def latent_mean(self):
        return self.mean[: self.p]

    @property
    def latent_cov(self):
        return self.cov[: self.p, : self.p]

    @property
    def action_mean(self):
        return self.mean[self.p :].reshape(self.K, self.d)

    @property
    def blocks(self):
        """Cov(θ_a, θ_b) for all pairs, (K, K, d, d)."""
        full = self.cov[self.p :, self.p :].reshape(self.K, self.d, self.K, self.d)
        return full.transpose(0, 2, 1, 3)

    def value(self, probabilities, contexts):
        """Mean and variance of (1/n) Σ_i Σ_a π(a | x_i) x_iᵀ θ_a, and Σ_a π(a | x_i) x_iᵀ E θ_a by row."""
        rows = np.einsum("ia,id->iad", probabilities, contexts).reshape(len(contexts), -1)
        direction = rows.mean(axis=0)
        theta_mean, theta_cov = self.mean[self.p :], self.cov[self.p :, self.p :]
        return direction @ theta_mean, direction @ theta_cov @ direction, rows @ theta_mean


def _exact(problem: DenseProblem) -> DenseProblem:
    lifted = {
        name: _lift(getattr(problem, name))
        for name in ("latent_mean", "latent_cov", "mixing", "action_cov", "offset", "contexts", "rewards")
    }
    return DenseProblem(**lifted, actions=problem.actions, noise_std=mpmath.mpf(float(problem.noise_std)))


def _lift(array: np.ndarray) -> np.ndarray:
    out = np.empty(array.shape, dtype=object)
    out[...] = (
        [mpmath.mpf(0)] if array.size == 0 else np.vectorize(lambda v: mpmath.mpf(float(v)), otypes=[object])(array)
    )
    return out


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    n = len(matrix)
    lower, rest = _lift(np.zeros((n, n))), matrix.copy()
    for j in range(n):
        lower[j, j] = mpmath.sqrt(rest[j, j])
        lower[j + 1 :, j] = rest[j + 1 :, j] / lower[j, j]
        rest[j + 1 :, j + 1 :] -= np.outer(lower[j + 1 :, j], lower[j + 1 :, j])
    return lower


def _forward(lower: np.ndarray, right: np.ndarray) -> np.ndarray:
    out = right.copy()
    for j in range(len(lower)):
        out[j] = out[j] / lower[j, j]
        out[j + 1 :] -= np.outer(lower[j + 1 :, j], out[j])
    return out
