"""An exact sampler of the click model, to compare approximations with; it shares no code with the library.

ψ ~ N(μ, Σ), θ_a | ψ ~ N(W_a ψ + c_a, Σ_a), r_i ~ Ber(g(η_i)) with η_i = x_iᵀ θ_{a_i} and g(η) = 1 / (1 + e⁻η). Every
round has a Polya-Gamma variable ω_i ~ PG(1, 0) with p(r_i | η_i) = E exp((r_i - ½) η_i - ω_i η_i² / 2) / 2. Given all ω
the posterior of ψ and θ is Gaussian, and ω_i | η_i ~ PG(1, η_i) (Polson, Scott and Windle, 2013). A sweep draws ω | θ,
then ψ | ω with θ integrated out, then θ | ψ, ω: chains whose stationary distribution is the posterior itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from polyagamma import random_polyagamma

Array = np.ndarray


class Model(NamedTuple):
    """The prior, written out.

    Attributes:
        latent_mean: μ, (p,).
        latent_cov: Σ, (p, p), positive definite.
        mixing: W, (K, d, p).
        offset: c, (K, d).
        action_cov: Σ_a, (K, d, d), positive definite.
    """

    latent_mean: Array
    latent_cov: Array
    mixing: Array
    offset: Array
    action_cov: Array


class Draw(NamedTuple):
    """One state of every chain: ψ, (chains, p), and θ, (chains, K, d)."""

    latent: Array
    action_weights: Array


def sweeps(
    model: Model, contexts: Array, actions: Array, rewards: Array, *, n_chains: int, rng: np.random.Generator
) -> Iterator[Draw]:
    """The states of independent chains, without end; each starts at its own draw from the prior.

    Args:
        model: The prior.
        contexts: (n, d).
        actions: (n,) below K.
        rewards: (n,) of 0 and 1.
        n_chains: The number of chains that run side by side.
        rng: A NumPy generator.
    """
    solve = _Conditional(model, contexts, actions, rewards)
    K, d, p = model.mixing.shape
    latent = model.latent_mean + rng.normal(size=(n_chains, p)) @ np.linalg.cholesky(model.latent_cov).T
    noise = np.einsum("kde,cke->ckd", np.linalg.cholesky(model.action_cov), rng.normal(size=(n_chains, K, d)))
    theta = solve.centre(latent) + noise
    while True:
        predictor = np.einsum("nd,cnd->cn", solve.x, theta[:, solve.a])
        # h = 1: Devroye's method is exact and needs no more than one or two proposals.
        omega = random_polyagamma(1.0, predictor, method="devroye", random_state=rng)
        latent, theta = solve.draw(omega, rng)
        yield Draw(latent, theta)


class _Conditional:
    """ψ, θ | ω: a Gaussian, in information form with Q_a = Σ_a⁻¹ + Σ_i ω_i x_i x_iᵀ over the rounds of a."""

    def __init__(self, model: Model, contexts: Array, actions: Array, rewards: Array):
        order = np.argsort(actions, kind="stable")
        self.x, self.a = contexts[order], actions[order]
        self.seen, self._starts = np.unique(self.a, return_index=True)
        self._outer = self.x[:, :, None] * self.x[:, None, :]
        self.model, (K, d, p) = model, model.mixing.shape
        self._linear = np.zeros((K, d))
        np.add.at(self._linear, self.a, (rewards[order] - 0.5)[:, None] * self.x)
        self._prec = np.linalg.inv(model.action_cov)
        self._latent_prec = np.linalg.inv(model.latent_cov)
        self._flat_mixing = model.mixing.reshape(K * d, p)

    def centre(self, latent: Array) -> Array:
        """W_a ψ + c_a, (chains, K, d)."""
        return np.einsum("kdp,cp->ckd", self.model.mixing, latent) + self.model.offset

    def draw(self, omega: Array, rng: np.random.Generator) -> Draw:
        P, c, B = self._prec, self.model.offset, self._linear
        Q = np.broadcast_to(P, (len(omega), *P.shape)).copy()
        Q[:, self.seen] += np.add.reduceat(omega[:, :, None, None] * self._outer, self._starts, axis=1)
        # θ integrated out: ∫ N(θ; m, P⁻¹) exp(Bᵀ θ - θᵀ G θ / 2) dθ ∝ exp(½ (P m + B)ᵀ Q⁻¹ (P m + B) - ½ mᵀ P m).
        share = np.linalg.solve(Q, np.broadcast_to(P, Q.shape))
        kept = P - P @ share
        pull = np.einsum("cked,ke->ckd", share, B) - np.einsum("ckde,ke->ckd", kept, c)
        latent = self._draw_latent(kept, pull, rng)
        linear = np.einsum("kde,cke->ckd", P, self.centre(latent)) + B
        return Draw(latent, _draw_gaussian(Q, linear, rng))

    def _draw_latent(self, kept: Array, pull: Array, rng: np.random.Generator) -> Array:
        """ψ | ω ∝ N(μ, Σ) exp(Σ_a (W_a ψ)ᵀ pull_a - ½ (W_a ψ)ᵀ kept_a (W_a ψ))."""
        W, chains = self._flat_mixing, len(kept)
        precision = self._latent_prec + W.T @ (kept @ self.model.mixing).reshape(chains, *W.shape)
        linear = self._latent_prec @ self.model.latent_mean + pull.reshape(chains, -1) @ W
        return _draw_gaussian(precision, linear, rng)


def _draw_gaussian(precision: Array, linear: Array, rng: np.random.Generator) -> Array:
    """N(Q⁻¹ b, Q⁻¹), batched: with Q = L Lᵀ it is L⁻ᵀ (L⁻¹ b + z)."""
    L = np.linalg.cholesky(precision)
    white = np.linalg.solve(L, linear[..., None])[..., 0] + rng.normal(size=linear.shape)
    return np.linalg.solve(np.swapaxes(L, -1, -2), white[..., None])[..., 0]


def r_hat(draws: Array) -> float:
    """The split R̂ of a scalar, draws (chains, n): near 1 when halves of all chains agree."""
    halves = _halves(draws)
    n = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean()
    between = halves.mean(axis=1).var(ddof=1)
    return float(np.sqrt((n - 1) / n + between / within)) if within > 0 else float("inf")


def effective_size(draws: Array) -> float:
    """The effective sample size of draws (chains, n), by Geyer's initial monotone sequence."""
    halves = _halves(draws)
    m, n = halves.shape
    centred = halves - halves.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    cov = np.fft.irfft(spectrum, axis=1)[:, :n].mean(axis=0) / n
    within = cov[0] * n / (n - 1)
    total = cov[0] + halves.mean(axis=1).var(ddof=1)
    correlation = 1.0 - (within - cov * n / (n - 1)) / total
    correlation[0] = 1.0
    pairs = correlation[: n - n % 2].reshape(-1, 2).sum(axis=1)
    # In theory, sums of two neighbours are positive and decrease; values below zero or rising again are noise.
    stop = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else len(pairs)
    time = 2.0 * np.minimum.accumulate(pairs[:stop]).sum() - 1.0
    return float(m * n / max(time, 1.0 / np.log10(m * n)))


def _halves(draws: Array) -> Array:
    n = draws.shape[1] // 2
    return np.concatenate([draws[:, :n], draws[:, -n:]])
