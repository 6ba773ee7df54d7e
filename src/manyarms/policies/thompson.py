"""Every action with the probability that it is the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.special import ndtri

from manyarms._base.checks import Array, as_count, check_overflow
from manyarms._base.rng import hashed_uniforms, split
from manyarms.core import Choices, HierarchicalGaussian, Policy, as_eligibility, eligible_blocks
from manyarms.errors import InputError, RangeError
from manyarms.gpu.device import CPU, as_device
from manyarms.linalg.indexing import chunks, group_by
from manyarms.model_file.arrow_file import WrongPart
from manyarms.model_file.part_checks import floats, instance_of
from manyarms.policies.device_scores import DeviceScoreDraws
from manyarms.policies.scored_policy import follow
from manyarms.posterior.gaussian_posterior import GaussianPosterior
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_draws import ACTIONS_PER_CHUNK, FactorDraws, GaussianFactorDraws

MAX_DRAWS = 100_000
"""The most draws of a policy: at this number, the standard error of a share is below 0.2 %."""

Predict = Callable[[Array, slice], Array]
"""Predictors of some rows and a chunk of actions, (b, s, c), from the weights of the chunk, (s, c, d)."""


class Thompson(Policy):
    """π(a | x) = P(a maximises r(x, a) | data), by posterior draws.

    The draws are frozen when the policy is made, so `probabilities` are deterministic: shares of `n_draws` wins, each
    with a Monte Carlo error of at most `max_share_error`. With Gaussian weights only ψ of each draw is kept; θ_a given
    ψ is made again for a chunk of actions whenever it is needed. Where thousands of actions were never logged, the best
    of those that nothing tells apart is drawn at once, for each context on its own: the largest of m numbers with one
    normal distribution. `sample` draws afresh.

    Args:
        posterior: Any posterior, such as `fit` returns. A sampled one lends the draws it has, n_draws at most.
        n_draws: How many draws, at most 100,000; the cost of a query is n_draws times that of a greedy one.
        rng: A NumPy generator.
        device: "cuda" finds the best actions on a GPU. Its draws have the same distribution, but are other draws
            (docs/gpu.md).
    """

    saved_as = "thompson"
    saved_fields = ("posterior", "latent", "key")
    saved_checks: ClassVar = {
        "posterior": instance_of(GaussianPosterior),
        "latent": lambda part: floats(2)(part) and len(part) > 0,
        "key": lambda part: isinstance(part, np.ndarray) and part.dtype == np.uint64 and part.ndim == 1,
    }
    rows_per_block = 4096
    samples_have_probabilities = False

    def __init__(self, posterior: Posterior, n_draws: int = 1000, *, rng: np.random.Generator, device: str = CPU):
        self.posterior = follow(self, posterior)
        self.device = as_device(device)
        count = as_count("n_draws", n_draws)
        if count > MAX_DRAWS:
            problem = f"must be at most {MAX_DRAWS:,}, since all draws are kept in memory; got {count:,}."
            raise RangeError(problem, "Ask for fewer draws; 1,000 give shares to within 2 %.", argument="n_draws")
        # A single factor takes the generator itself.
        rngs = [rng] if posterior.n_factors == 1 else split(rng, *(str(i) for i in range(posterior.n_factors)))
        self._factors: tuple[FactorDraws, ...] = posterior.draw_factors(count, rngs)

    @property
    def n_draws(self) -> int:
        """The number of draws."""
        return self._factors[0].n_draws

    def saved(self) -> dict[str, Any]:
        factors = [factor for factor in self._factors if isinstance(factor, GaussianFactorDraws)]
        if not factors:
            # The posterior, which is not Gaussian, refuses to be saved and says what to do.
            return {"posterior": self.posterior}
        latent, key = [factor.latent for factor in factors], [factor.key for factor in factors]
        return {"posterior": self.posterior, "latent": np.hstack(latent), "key": np.concatenate(key)}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> Thompson:
        out, posterior = object.__new__(cls), parts["posterior"]
        out.device = CPU
        out.posterior = follow(out, posterior)
        sizes = [factor.weights.latent_dim for factor in posterior.factors]
        if parts["latent"].shape[1] != sum(sizes) or len(parts["key"]) != 2 * len(sizes):
            raise WrongPart("the draws of a 'thompson' are not of its posterior")
        latents, keys = np.split(parts["latent"], np.cumsum(sizes)[:-1], axis=1), np.split(parts["key"], len(sizes))
        out._factors = tuple(
            GaussianFactorDraws(posterior, number, *drawn)
            for number, drawn in enumerate(zip(latents, keys, strict=True))
        )
        return out

    @cached_property
    def _on_device(self) -> DeviceScoreDraws:
        factor = self._factors[0]
        if len(self._factors) > 1 or not isinstance(factor, GaussianFactorDraws):
            raise InputError(
                "a GPU draws from posteriors with a single set of Gaussian weights.",
                'Use device="cpu" for this posterior.',
                argument="device",
            )
        seed = int(factor.key[0] >> np.uint64(33))
        return DeviceScoreDraws(factor.weights, factor.latent, seed, self.device)

    @property
    def max_share_error(self) -> float:
        """The largest standard error that a share can have: that of a share of one half."""
        return float(0.5 / np.sqrt(self.n_draws))

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        s = self.n_draws
        if self.device != CPU and eligible is None:
            return self._shares(self._on_device.best(contexts))

        def predict(theta: Float[Array, "s c d"], rows: slice) -> Float[Array, "b s c"]:
            width = theta.shape[1]
            with np.errstate(over="ignore", invalid="ignore"):
                scores = contexts[rows] @ theta.reshape(s * width, -1).T
            return check_overflow("expected rewards", scores).reshape(-1, s, width)

        return self._shares(self._winners(contexts, np.arange(s)[None], predict, (1 << 22) // s, eligible))

    def _shares(self, winner: Int[Array, "n s"]) -> Choices:
        """The share of draws in which each action wins."""
        n, s = winner.shape
        code, count = np.unique(np.arange(n)[:, None] * self.n_actions + winner, return_counts=True)
        starts = np.searchsorted(code, np.arange(n + 1) * self.n_actions)
        named = sparse.csr_array((count / s, code % self.n_actions, starts), shape=(n, self.n_actions))
        return Choices(n, self.n_actions, named=named)

    def sample(self, contexts: Any, rng: np.random.Generator, *, eligible: Any = None) -> Int[Array, " n"]:
        """The best action under a fresh draw of all weights; up to `n_draws` draws, shared by the rows in turn."""
        x = self._check_contexts(contexts)
        if len(x) == 0:
            return np.empty(0, dtype=np.int64)
        fresh = Thompson(self.posterior, min(len(x), self.n_draws), rng=rng)
        allowed = as_eligibility(eligible, len(x), self.n_actions)
        out = np.empty(len(x), dtype=np.int64)
        for rows, block in eligible_blocks(allowed, len(x), self.rows_per_block):
            own, draw = x[rows], np.arange(rows.start, rows.stop) % fresh.n_draws

            def predict(
                theta: Float[Array, "s c d"], part: slice, own: Array = own, draw: Array = draw
            ) -> Float[Array, "b 1 c"]:
                return np.einsum("bd,bcd->bc", own[part], theta[draw[part]])[:, None]

            out[rows] = fresh._winners(own, draw[:, None], predict, (1 << 20) // x.shape[1], block)[:, 0]
        return out

    def _winners(
        self,
        contexts: Float[Array, "n d"],
        draws: Int[Array, "#n s"],
        predict: Predict,
        pairs: int,
        eligible: sparse.csr_array | None,
    ) -> Int[Array, "n s"]:
        """The best action of each row under some draws, from their predictors, for so many pairs at a time."""
        n, per_row = len(contexts), draws.shape[1]
        best, winner = np.full((n, per_row), -np.inf), np.zeros((n, per_row), dtype=np.int64)

        def offer(rows: slice, scores: Float[Array, "b s c"], action_of: Callable[[Array], Array]) -> None:
            top = scores.argmax(axis=2)
            value = np.take_along_axis(scores, top[:, :, None], axis=2)[:, :, 0]
            better = value > best[rows]
            best[rows][better] = value[better]
            winner[rows][better] = action_of(top)[better]

        unseen = self._unseen if eligible is None else None
        for actions, thetas, allowed in self._draws(eligible, None if unseen is None else unseen.others):
            for rows in chunks(n, max(1, pairs // len(actions))):
                scores = self._rewards([predict(theta, rows) for theta in thetas])
                if allowed is not None:
                    scores[~np.broadcast_to(allowed[rows, None], scores.shape)] = -np.inf
                offer(rows, scores, lambda top, actions=actions: actions[top])
        if unseen is not None:
            for part in chunks(unseen.n_kinds, ACTIONS_PER_CHUNK):
                for rows in chunks(n, max(1, pairs // (part.stop - part.start))):
                    of_rows = draws if len(draws) == 1 else draws[rows]
                    best_of_kind = unseen.best(contexts[rows], of_rows, part)
                    scores = predict(unseen.centres[:, part], rows) + best_of_kind
                    offer(rows, scores, lambda top, r=rows, d=of_rows, p=part: unseen.members(contexts[r], d, p, top))
        return winner

    @cached_property
    def _unseen(self) -> _UnseenActions | None:
        """The actions that nothing tells apart, where there are so many that their best is worth drawing at once."""
        factor = self._factors[0]
        if len(self._factors) > 1 or not isinstance(factor, GaussianFactorDraws):
            return None
        weights = factor.weights
        if (
            weights.n_actions - len(weights.observed.actions) < MANY_UNSEEN
            or weights.action_covariance.each is not None
        ):
            return None
        return _UnseenActions(weights, factor.latent, int(factor.key[1]))

    def _rewards(self, predictors: list[Array]) -> Array:
        """Numbers that rank actions as their rewards do."""
        if len(predictors) == 1:
            # A reward increases with its predictor.
            return predictors[0]
        rewards = [f.likelihood.reward_given(eta) for f, eta in zip(self._factors, predictors, strict=True)]
        return np.prod(rewards, axis=0)

    def _draws(
        self, eligible: sparse.csr_array | None, among: Int[Array, " m"] | None
    ) -> Iterator[tuple[Int[Array, " c"], list[Float[Array, "s c d"]], Array | None]]:
        """θ of every draw and factor, a chunk of actions at a time, with its columns of the eligibility mask."""
        by_column = None if eligible is None else eligible.tocsc()
        everyone = np.arange(self.n_actions) if among is None else among
        for number, columns in enumerate(chunks(len(everyone), ACTIONS_PER_CHUNK)):
            if by_column is not None and by_column.indptr[columns.start] == by_column.indptr[columns.stop]:
                continue  # No action of this chunk may be chosen, and its noise does not depend on other chunks.
            actions = everyone[columns]
            thetas = [factor.theta(number, actions) for factor in self._factors]
            yield actions, thetas, None if by_column is None else by_column[:, columns].toarray() > 0


class _UnseenActions:
    """Actions that were never logged, by kind: given ψ, those of a kind are independent with one distribution.

    The predictor of each is N(φ(x)ᵀ (W ψ + c), ‖φ(x)‖² in Σ), so the largest of m has its centre and, times the
    standard deviation, the largest of m standard normal numbers: Φ⁻¹(u^(1/m)). Each of the m is as likely to be it.

    Attributes:
        others: The actions that are not of any such kind, ascending.
        centres: W ψ + c of every draw and kind, (s, q, d).
        n_kinds: q.
    """

    def __init__(self, weights: HierarchicalGaussian, latent: Float[Array, "s p"], key: int):
        groups = group_by(weights.twins)
        kinds = np.flatnonzero(groups.counts > 1)
        self._members, self._starts, self._counts = groups.order, groups.starts[kinds], groups.counts[kinds]
        self.others, self.n_kinds = np.sort(groups.order[groups.starts[groups.counts == 1]]), len(kinds)
        lowest = groups.keys[kinds]
        self.centres = weights.mixing.apply(latent, lowest) + weights.offset_of(lowest)
        self._covariance, self._key = weights.action_covariance, key

    def best(self, contexts: Float[Array, "b d"], draws: Int[Array, "#b s"], kinds: slice) -> Float[Array, "b s q"]:
        """The largest predictor of each kind less its centre; it depends on the context and on the draw alone."""
        width = np.linalg.norm(
            self._covariance.times_root(contexts[:, None], np.zeros(len(contexts), int))[:, 0], axis=1
        )
        uniform = self._uniforms(contexts, draws, np.arange(kinds.start, kinds.stop), 0)
        # 1 - u^(1/m) without cancellation.
        return width[:, None, None] * -ndtri(-np.expm1(np.log(uniform) / self._counts[kinds]))

    def members(
        self, contexts: Float[Array, "b d"], draws: Int[Array, "#b s"], kinds: slice, which: Int[Array, "b s"]
    ) -> Int[Array, "b s"]:
        """The action that is the best of a kind, given by its place in `kinds`."""
        kind = kinds.start + which
        uniform = self._uniforms(contexts, draws, kind[:, :, None], 1)[:, :, 0]
        return self._members[self._starts[kind] + (uniform * self._counts[kind]).astype(np.int64)]

    def _uniforms(self, contexts: Array, draws: Array, kinds: Array, purpose: int) -> Float[Array, "b s q"]:
        # Zeros of both signs are one number.
        rows = [column[:, None, None] for column in (contexts + 0.0).view(np.uint64).T]
        return hashed_uniforms(self._key, np.array([purpose], np.uint64), *rows, draws[:, :, None], kinds)


MANY_UNSEEN = 1 << 13
"""Actions that were never logged, from which on the best of a kind is drawn at once."""
