"""Draws of ψ and θ, the posterior made of them, and the convergence of the chains that they come from."""

# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_actions, row_weights
from manyarms._base.rng import as_generator
from manyarms.core import Catalog, Choices, Estimate, FeatureMap, FeatureMass, Fingerprint, Policy
from manyarms.core.estimate import EmpiricalShape, NormalMixture
from manyarms.errors import TooLargeError
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import chunks
from manyarms.linalg.sparse_matrices import pair_rows
from manyarms.nonlinear.nonlinear_hierarchy import NonlinearHierarchy
from manyarms.nonlinear.seen_actions import Conditional
from manyarms.posterior.action_scores import LinearScores, Scores
from manyarms.posterior.policy_profile import PolicyProfile, PolicyProfiles
from manyarms.posterior.posterior import ONE_CONTEXT, Posterior, same_as
from manyarms.posterior.reward_draws import FactorDraws

MAX_KEPT = 1 << 27
"""How many numbers draws of weights may take (a gigabyte)."""
DRAWS_PER_BLOCK = 8
ACTIONS_PER_BLOCK = 256
"""Fixed, both: the noise of a block comes from its number, so that an action has the same weights whoever asks."""


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorDraws(Posterior):
    """Draws from the posterior, as `sample_posterior` returns them.

    Attributes:
        hierarchy: The prior that was sampled.
        likelihood: How rewards arise from weights.
        chains: ψ by chain and draw, (c, n, d').
        seen: The actions that were logged, ascending.
        seen_weights: θ of seen actions by chain and draw, (c, n, m, d), where they had to be drawn along; None where
            they are drawn exactly given ψ, when needed.
        conditional: θ given ψ for seen actions.
        key: The key of the noise with which weights are drawn given ψ.
        learned_from: The fingerprints of the rounds used.
        features: The map from context columns to φ(x), if the logs came with one: then contexts may be tables.
        catalog: The ids of the actions, if the logs came with a catalog.
    """

    not_saved = "Its functions are code: keep the hierarchy, and sample again."
    hierarchy: NonlinearHierarchy
    likelihood: Likelihood
    chains: Float[Array, "c n p"]
    seen: Int[Array, " m"]
    seen_weights: Float[Array, "c n m d"] | None
    conditional: Conditional
    key: tuple[int, ...]
    learned_from: tuple[Fingerprint, ...] = ()
    features: FeatureMap | None = None
    catalog: Catalog | None = None
    n_actions = same_as("hierarchy.n_actions")
    dim = same_as("hierarchy.dim")

    def __repr__(self) -> str:
        c, n, p = self.chains.shape
        worth = float(np.min(self.effective_draws)) if p else float(c * n)
        return f"PosteriorDraws({c} chains of {n:,}, latent_dim={p}, worth {worth:.4g} draws)"

    @property
    def n_draws(self) -> int:
        """The number of draws, in all chains together."""
        return self.chains.shape[0] * self.chains.shape[1]

    @property
    def latent(self) -> Float[Array, "s p"]:
        """ψ, one chain after the other."""
        return self.chains.reshape(self.n_draws, -1)

    @cached_property
    def r_hat(self) -> Float[Array, " p"]:
        """R-hat of each coordinate of ψ: 1 when chains and their halves agree."""
        return r_hat(self.chains)

    @cached_property
    def effective_draws(self) -> Float[Array, " p"]:
        """The number of independent draws that the draws of each coordinate of ψ are worth."""
        return effective_draws(self.chains)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is wrong with the draws of ψ, in plain words. A value may be fine where ψ is not.

        Estimates carry warnings of their own draws instead.
        """
        return _convergence_warnings("the latent", self.chains)

    def action_weights(self, actions: Any) -> Float[Array, "s m d"]:
        """θ_a of the actions asked for, for every draw: the same with whatever others they are asked for."""
        ids = as_actions("actions", actions, n_actions=self.n_actions)
        if self.n_draws * len(ids) * self.hierarchy.dim > MAX_KEPT:
            raise TooLargeError(
                f"{self.n_draws} draws of {len(ids)} actions are more than {MAX_KEPT:,} numbers.",
                "Ask for fewer actions.",
            )
        distinct, where = np.unique(ids, return_inverse=True)
        return np.concatenate([theta for _, theta in self._blocks(distinct)])[:, where]

    @property
    def expected_rewards(self) -> Scores:
        if self.likelihood.is_linear:
            return LinearScores(self.mean_weights)
        return _MeanOverDraws(self)

    @cached_property
    def mean_weights(self) -> Float[Array, "K d"]:
        """E θ_a of every action: the mean over draws."""
        means = np.zeros((self.n_actions, self.dim))
        for columns in chunks(self.n_actions, ACTIONS_PER_BLOCK):
            for _, theta in self._blocks(np.arange(columns.start, columns.stop)):
                means[columns] += theta.sum(axis=0) / self.n_draws
        return means

    @property
    def seen_actions(self) -> tuple[Int[Array, " m"], ...]:
        return (self.seen,)

    def pair_rewards(
        self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]
    ) -> Iterator[tuple[slice, Float[Array, "b n"]]]:
        """r(x_i, a_i) of one action per row, some draws at a time."""
        distinct, where = np.unique(actions, return_inverse=True)
        for draws, theta in self._blocks(distinct):
            yield draws, self.likelihood.reward_given(np.einsum("snd,nd->sn", theta[:, where], contexts))

    def pair_std(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        mean, squares = self.expected_rewards.score_pairs(contexts, actions), np.zeros(len(contexts))
        for _, rewards in self.pair_rewards(contexts, actions):
            squares += np.sum((rewards - mean) ** 2, axis=0)
        return np.sqrt(squares / self.n_draws)

    def draw_factors(self, n_draws: int, rngs: Sequence[np.random.Generator]) -> tuple[FactorDraws, ...]:
        return (_SampledDraws(self, n_draws, rngs[0]),)

    def drawn_values(
        self, policy: Policy, contexts: Any, *, eligible: Any = None, weights: Any = None
    ) -> Float[Array, " s"]:
        """V(π) = mean over contexts of Σ_a π(a | x) r(x, a), for every draw; draws of two policies are paired."""
        draws = self.profile(policy, contexts, eligible, weights).draws
        assert draws is not None
        return draws

    def combine(
        self, profiles: PolicyProfiles, combination: tuple[float, ...], centre: float | None = None
    ) -> Estimate:
        assert profiles.draws is not None
        values = profiles.factors(combination) @ profiles.draws
        if centre is not None:
            values += centre - values.mean()
        context = profiles.rows.mean_variance(np.array(combination))
        spread = float(np.sqrt(context or 0.0))
        chains = values.reshape(*self.chains.shape[:2], 1)
        posterior, worth = float(values.var()), float(effective_draws(chains)[0])
        return Estimate(
            value=float(values.mean()),
            std=float(np.sqrt(posterior + spread**2)),
            posterior_std=float(np.sqrt(posterior)),
            context_std=None if context is None else spread,
            method="draws",
            warnings=(*_convergence_warnings("the value", chains), *(ONE_CONTEXT if context is None else ())),
            shape=NormalMixture.around(values, spread) if spread > 0 else EmpiricalShape(values),
            posterior_shape=EmpiricalShape(values),
            diagnostics={
                "n_contexts": profiles.rows.weight,
                "effective_draws": worth,
                "r_hat": float(r_hat(chains)[0]),
                "monte_carlo_std": float(np.sqrt(posterior / worth)),
            },
        )

    def collect(self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any) -> PolicyProfile:
        x, mass = contexts, policy.feature_mass(contexts, eligible=eligible, weights=weights)
        if self.likelihood.is_linear:
            return self._collect_linear(policy, x, mass, eligible)
        share = row_weights(weights, len(x))
        share = share / share.sum()
        values, rows = np.zeros(self.n_draws), np.zeros(len(x))
        # The place of each action among those with any mass.
        slot = np.full(self.n_actions, -1)
        slot[mass.actions] = np.arange(len(mass.actions))
        for draws, theta in self._blocks(mass.actions):
            for part, block, choices in policy.blocks(x, eligible):
                rewards = self._rewards(choices, block, theta, slot)
                rows[part] += rewards.sum(axis=0) / self.n_draws
                values[draws] += rewards @ share[part]
        return PolicyProfile((mass,), rows, values)

    def _collect_linear(
        self, policy: Policy, x: Float[Array, "n d"], mass: FeatureMass, eligible: Any
    ) -> PolicyProfile:
        """The profile where r(x, a) = φ(x)ᵀ θ_a: V(π) follows from the feature mass, its rows from the mean of θ."""
        values, means = np.empty(self.n_draws), np.zeros((self.hierarchy.n_actions, self.hierarchy.dim))
        for draws, theta in self._blocks(mass.actions):
            values[draws] = np.einsum("smd,md->s", theta, mass.vectors)
            means[mass.actions] += theta.sum(axis=0) / self.n_draws
        return PolicyProfile((mass,), policy.profile(x, means, eligible=eligible)[1], values)

    def _rewards(
        self, choices: Choices, x: Float[Array, "b d"], theta: Float[Array, "s m d"], slot: Int[Array, " K"]
    ) -> Float[Array, "s b"]:
        """Σ_a π(a | x_i) g(φ(x_i)ᵀ θ_a) for some draws and some contexts."""
        out = np.zeros((len(theta), len(x)))
        if choices.named is not None and choices.named.nnz:
            most = int(np.diff(choices.named.indptr).max())
            for part in chunks(len(x), max(1, _TILE // (len(theta) * most * x.shape[1]))):
                named = choices.named[part]
                eta = np.einsum("spd,pd->sp", theta[:, slot[named.indices]], x[part][pair_rows(named)])
                pairs = (named.data, np.arange(named.nnz), named.indptr)
                share = sparse.csr_array(pairs, shape=(part.stop - part.start, named.nnz))
                out[:, part] += np.asarray(share @ self.likelihood.reward_given(eta).T).T
        if choices.everywhere is not None or choices.dense is not None:
            chosen = np.flatnonzero(slot >= 0)
            for columns in chunks(len(chosen), ACTIONS_PER_BLOCK):
                some = chosen[columns]
                for part in chunks(len(x), max(1, _TILE // (len(theta) * len(some)))):
                    eta = x[part] @ theta[:, slot[some]].swapaxes(1, 2)
                    out[:, part] += np.einsum(
                        "sbm,bm->sb", self.likelihood.reward_given(eta), choices.unnamed_shares(part, some)
                    )
        return out

    def _blocks(self, actions: Int[Array, " m"]) -> Iterator[tuple[slice, Float[Array, "b m d"]]]:
        """θ of distinct ascending actions, some draws at a time."""
        known, kept = np.flatnonzero(np.isin(actions, self.seen)), self.seen_weights
        place = np.searchsorted(self.seen, actions[known])
        # Drawn given ψ: all of them, or those whose weights were not drawn along.
        rest = np.arange(len(actions)) if kept is None else np.setdiff1d(np.arange(len(actions)), known)
        colour = self.hierarchy.action_covariance.colour
        step = DRAWS_PER_BLOCK * max(1, _DRAWN // (DRAWS_PER_BLOCK * len(actions) * self.hierarchy.dim))
        for draws in chunks(self.n_draws, step):
            e = self._noise(draws, actions)
            theta, centres = np.empty_like(e), np.empty_like(e)
            centres[:, rest] = [self.hierarchy.centre(psi, actions[rest]) for psi in self.latent[draws]]
            theta[:, rest] = centres[:, rest] + colour(e[:, rest], actions[rest])
            if kept is None:
                theta[:, known] = self.conditional.draw(centres[:, known], e[:, known], place)
            else:
                theta[:, known] = kept.reshape(self.n_draws, *kept.shape[2:])[draws][:, place]
            yield draws, theta

    def _noise(self, draws: slice, actions: Int[Array, " m"]) -> Float[Array, "b m d"]:
        """Standard normal numbers, the same for a draw and an action whatever others are asked for."""
        out = np.empty((draws.stop - draws.start, len(actions), self.hierarchy.dim))
        shape = (DRAWS_PER_BLOCK, ACTIONS_PER_BLOCK, self.hierarchy.dim)
        home = actions // ACTIONS_PER_BLOCK
        for number in np.unique(home):
            mine = home == number
            within = actions[mine] % ACTIONS_PER_BLOCK
            for part in chunks(len(out), DRAWS_PER_BLOCK):
                counter = [0, 0, (draws.start + part.start) // DRAWS_PER_BLOCK, int(number)]
                rng = np.random.Generator(np.random.Philox(key=self.key, counter=counter))
                out[part, mine] = rng.standard_normal(shape)[: part.stop - part.start, within]
        return out


class _MeanOverDraws(Scores):
    """E r(x, a) as a mean over draws, where rewards are not linear in the weights."""

    many_actions = 64

    def __init__(self, posterior: PosteriorDraws):
        self._posterior, self.n_actions = posterior, posterior.n_actions

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        out = np.zeros(len(contexts))
        for _, rewards in self._posterior.pair_rewards(contexts, actions):
            out += rewards.sum(axis=0) / self._posterior.n_draws
        return out

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        out, posterior = np.zeros((len(contexts), self.n_actions)), self._posterior
        for columns in chunks(self.n_actions, ACTIONS_PER_BLOCK):
            for _, theta in posterior._blocks(np.arange(columns.start, columns.stop)):
                for part in chunks(len(contexts), max(1, _TILE // (len(theta) * theta.shape[1]))):
                    rewards = posterior.likelihood.reward_given(contexts[part] @ theta.swapaxes(1, 2))
                    out[part, columns] += rewards.sum(axis=0) / posterior.n_draws
        return out


class _SampledDraws(FactorDraws):
    """Some of the draws of a sampled posterior, in random order, and no more than there are."""

    def __init__(self, posterior: PosteriorDraws, n_draws: int, rng: np.random.Generator):
        self._posterior, self.likelihood = posterior, posterior.likelihood
        self._chosen = as_generator(rng).permutation(posterior.n_draws)[:n_draws]
        self.n_draws = len(self._chosen)

    def theta(self, chunk: int, actions: Int[Array, " c"]) -> Float[Array, "s c d"]:
        return np.concatenate([theta for _, theta in self._posterior._blocks(actions)])[self._chosen]


# How many numbers are at hand at a time: predictors, and weights.
_TILE = 1 << 20
_DRAWN = 1 << 22


HIGHEST_R_HAT = 1.05
FEWEST_DRAWS = 100.0


def r_hat(chains: Float[Array, "c n q"]) -> Float[Array, " q"]:
    """Convergence of posterior draws in chains: √(total variance / that within halves), 1 if all halves agree.

    The statistic of Gelman and Rubin. NaN when a chain has fewer than four draws, 1 for a quantity that never moves.
    """
    halves = _halves(chains)
    if halves.shape[1] < 2:
        return np.full(chains.shape[2], np.nan)
    within, total = _variances(halves)
    return np.sqrt(np.divide(total, within, out=np.ones_like(total), where=within > 0))


def effective_draws(chains: Float[Array, "c n q"]) -> Float[Array, " q"]:
    """The independent posterior draws that these are worth for a mean, from autocorrelations within halves of chains.

    n / (1 + 2 Σ_t ρ_t), summed while pairs ρ_{2t} + ρ_{2t+1} stay positive and do not rise (Geyer, 1992), as in Stan.
    """
    halves = _halves(chains)
    m, n, q = halves.shape
    if n < 2:
        return np.full(q, np.nan)
    within, total = _variances(halves)
    moving = total > 0
    scale = np.where(moving, total, 1.0)
    # The autocovariance by lag, through the spectrum; padded, so that the end does not meet the beginning.
    spectrum = np.fft.rfft(halves - halves.mean(axis=1, keepdims=True), n=2 * n, axis=1)
    covariance = (np.fft.irfft(np.abs(spectrum) ** 2, n=2 * n, axis=1)[:, :n] / n).mean(axis=0)
    # Halves that lie apart count as correlation at every lag.
    rho = 1.0 - (within - covariance * n / (n - 1)) / scale
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2, q).sum(axis=1)
    pairs = np.minimum.accumulate(np.where(np.cumprod(pairs > 0, axis=0) > 0, pairs, 0.0), axis=0)
    time = np.maximum(2.0 * pairs.sum(axis=0) - 1.0, 1.0 / np.log10(max(m * n, 10)))
    return np.where(moving, m * n / time, float(m * n))


def _convergence_warnings(quantity: str, chains: Float[Array, "c n q"]) -> tuple[str, ...]:
    """Everything that is wrong with chains, in plain words."""
    if chains.shape[2] == 0:
        return ()
    apart, worth = float(np.max(r_hat(chains))), float(np.min(effective_draws(chains)))
    warnings = list[str]()
    if not apart <= HIGHEST_R_HAT:
        warnings.append(
            f"chains disagree about {quantity} (R-hat {apart:.3g}): they need more warmup, or do not move between modes"
        )
    if not worth >= FEWEST_DRAWS:
        warnings.append(f"draws of {quantity} are worth only {worth:.3g} independent ones; raise n_draws or thin")
    return tuple(warnings)


def _halves(chains: Float[Array, "c n q"]) -> Float[Array, "h k q"]:
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, chains.shape[1] - half :]])


def _variances(halves: Float[Array, "h k q"]) -> tuple[Float[Array, " q"], Float[Array, " q"]]:
    """The mean variance within, and an estimate of the total one that is too large while halves disagree."""
    n = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    # Rounding must not count as variance where nothing moves.
    within = np.where(np.ptp(halves, axis=(0, 1)) > 0, within, 0.0)
    between = halves.mean(axis=1).var(axis=0, ddof=1) if len(halves) > 1 else np.zeros_like(within)
    return within, within * (n - 1) / n + np.where(np.ptp(halves, axis=(0, 1)) > 0, between, 0.0)
