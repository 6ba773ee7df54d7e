"""Random problems, each in two forms: the library's prior and logs, and the same written out densely for the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from oracles import DenseProblem
from scipy import sparse

import manyarms as ma


@dataclass(frozen=True)
class Problem:
    prior: ma.HierarchicalGaussian
    logs: ma.LoggedData
    noise_std: float
    dense: DenseProblem

    @property
    def everyone(self):
        return np.arange(self.prior.n_actions)

    def fit(self):
        return ma.fit(self.logs, self.prior, ma.Gaussian(self.noise_std))

    def largest_eigenvalue(self):
        """The largest eigenvalue of Σ_a G_a over actions: how far data outweigh the prior."""
        eigenvalues = [0.0]
        for a in range(self.prior.n_actions):
            x = self.dense.contexts[self.dense.actions == a] / self.noise_std
            eigenvalues.append(np.abs(np.linalg.eigvals(self.dense.action_cov[a] @ x.T @ x)).max())
        return max(eigenvalues)


def recipes(action_scales=(0.0, 1e-6, 1e-2, 1.0, 10.0), noise_stds=(0.1, 1.0, 3.0)):
    """Arguments of `make_problem`: unseen actions, n_a < d, d' above and below d, sparse effects, offsets, Σ_a = 0.

    A strategy may not build the problem itself: the run-time checks of shapes draw on the `random` module.
    """
    return st.fixed_dictionaries(
        dict(
            seed=st.integers(0, 2**32 - 1),
            n_actions=st.integers(1, 6),
            dim=st.integers(1, 4),
            n_rounds=st.integers(0, 30),
            mixing_form=st.sampled_from(["dense", "none", "one_hot", "sparse_effects", "dense_effects"]),
            cov_form=st.sampled_from(["scalar", "diagonal", "shared", "each", "singular"]),
            latent_form=st.sampled_from(["scalar", "diagonal", "full", "blocks"]),
            offset_form=st.sampled_from(["none", "shared", "each"]),
            latent_dim=st.integers(1, 6),
            action_scale=st.sampled_from(action_scales),
            noise_std=st.sampled_from(noise_stds),
        )
    )


def make_problem(
    seed, n_actions, dim, n_rounds, mixing_form, cov_form, latent_form, offset_form, latent_dim, action_scale, noise_std
):
    rng = np.random.default_rng(seed)
    mixing, written_out = _mixing(rng, mixing_form, n_actions, dim, latent_dim)
    p = written_out.shape[2]
    latent_cov, latent_dense = _latent_cov(rng, latent_form if p else "full", p, dim)
    action_cov, action_dense = _action_cov(rng, cov_form, n_actions, dim, action_scale)
    offset = {"none": None, "shared": rng.normal(size=dim), "each": rng.normal(size=(n_actions, dim))}[offset_form]
    offset_dense = np.broadcast_to(0.0 if offset is None else offset, (n_actions, dim))
    latent_mean = rng.normal(size=p)
    contexts, rewards = rng.normal(size=(n_rounds, dim)), 2 * rng.normal(size=n_rounds)
    # Skewed towards few actions, so that some are seen often and some never.
    actions = np.minimum(rng.integers(0, n_actions, n_rounds), rng.integers(0, n_actions, n_rounds))
    return Problem(
        prior=ma.HierarchicalGaussian(latent_mean, latent_cov, mixing, action_cov, offset),
        logs=ma.LoggedData(contexts, actions, rewards, n_actions=n_actions),
        noise_std=noise_std,
        dense=DenseProblem(
            latent_mean, latent_dense, written_out, action_dense, offset_dense, contexts, actions, rewards, noise_std
        ),
    )


def _mixing(rng, form, n_actions, dim, latent_dim):
    if form in ("dense", "none"):
        matrices = rng.normal(size=(n_actions, dim, latent_dim if form == "dense" else 0))
        return matrices, matrices
    n_effects = max(1, latent_dim // 2)
    weights = np.zeros((n_actions, n_effects))
    if form == "one_hot":
        weights[np.arange(n_actions), rng.integers(0, n_effects, n_actions)] = rng.uniform(0.5, 1.5, n_actions)
        weights[0] *= rng.integers(0, 2)  # sometimes an action without any effect
    else:
        weights = rng.normal(size=weights.shape)
        if form == "sparse_effects":
            weights *= rng.random(weights.shape) < 0.6
    effects = sparse.csr_array(weights) if form != "dense_effects" else weights
    return ma.MixedEffects(effects, dim), np.einsum("kj,ab->kajb", weights, np.eye(dim)).reshape(n_actions, dim, -1)


def _latent_cov(rng, form, p, dim):
    if form == "scalar":
        return 1.7, 1.7 * np.eye(p)
    if form == "diagonal":
        variances = rng.uniform(0, 3, p)
        return variances, np.diag(variances)
    if form == "blocks" and p % dim == 0:
        roots = rng.normal(size=(p // dim, dim, dim))
        blocks = roots @ roots.swapaxes(1, 2)
        dense = np.zeros((p, p))
        for j, block in enumerate(blocks):
            dense[j * dim : (j + 1) * dim, j * dim : (j + 1) * dim] = block
        return blocks, dense
    root = rng.normal(size=(p, p))
    return root @ root.T, root @ root.T


def _action_cov(rng, form, n_actions, dim, scale):
    if form == "scalar":
        return scale, np.broadcast_to(scale * np.eye(dim), (n_actions, dim, dim))
    if form == "diagonal":
        variances = scale * rng.uniform(0, 2, dim)
        return variances, np.broadcast_to(np.diag(variances), (n_actions, dim, dim))
    rank = dim if form != "singular" else max(1, dim - 1)
    root = rng.normal(size=(n_actions, dim, rank))
    covs = scale * root @ root.swapaxes(1, 2)
    covs = (covs + covs.swapaxes(1, 2)) / 2
    if form == "shared":
        return covs[0], np.broadcast_to(covs[0], covs.shape)
    return covs, covs
