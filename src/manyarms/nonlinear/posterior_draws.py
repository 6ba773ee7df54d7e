"""Draws of ψ and θ, and what follows from them: weights, rewards, values of policies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.special import ndtr

from manyarms._base.checks import Array, as_actions, as_instance
from manyarms.core.choices import Choices
from manyarms.core.estimate import Estimate
from manyarms.core.feature_map import as_contexts
from manyarms.core.fingerprint import Fingerprint
from manyarms.core.policy import FeatureMass, Policy, row_weights
from manyarms.errors import ShapeError, TooLargeError
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import chunks, pair_rows
from manyarms.model_file.save import SavedModel
from manyarms.nonlinear.convergence import effective_draws, poor, r_hat
from manyarms.nonlinear.nonlinear_hierarchy import NonlinearHierarchy
from manyarms.nonlinear.seen_actions import Conditional
from manyarms.posterior.policy_profile import mean_variance
from manyarms.posterior.value_draws import Empirical

MAX_KEPT = 1 << 27
"""How many numbers draws of weights may take (a gigabyte)."""
DRAWS_PER_BLOCK = 8
ACTIONS_PER_BLOCK = 256
"""Fixed, both: the noise of a block comes from its number, so that an action has the same weights whoever asks."""


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorDraws(SavedModel):
    """What `sample_posterior` returns.

    Attributes:
        hierarchy: The prior that was sampled.
        likelihood: How rewards arise from weights.
        chains: ψ by chain and draw, (c, n, d').
        seen: Which actions were logged; action 0 where none was.
        seen_weights: θ of seen actions by chain and draw, (c, n, m, d), where they had to be drawn along; None where
            they are drawn exactly given ψ, when needed.
        conditional: θ given ψ for seen actions.
        key: Of the noise with which weights are drawn given ψ.
        learned_from: Which rounds were used.
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

    def __repr__(self) -> str:
        c, n, p = self.chains.shape
        worth = float(np.min(self.effective_draws)) if p else float(c * n)
        return f"PosteriorDraws({c} chains of {n:,}, latent_dim={p}, worth {worth:.4g} draws)"

    @property
    def n_draws(self) -> int:
        """All chains together."""
        return self.chains.shape[0] * self.chains.shape[1]

    @property
    def latent(self) -> Float[Array, "s p"]:
        """ψ, one chain after the other."""
        return self.chains.reshape(self.n_draws, -1)

    @cached_property
    def r_hat(self) -> Float[Array, " p"]:
        """Of each coordinate of ψ: 1 when chains and their halves agree."""
        return r_hat(self.chains)

    @cached_property
    def effective_draws(self) -> Float[Array, " p"]:
        """How many independent draws the draws of each coordinate of ψ are worth."""
        return effective_draws(self.chains)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the draws of ψ, in plain words. A value may be fine where ψ is not, and says so itself."""
        return poor("the latent", self.chains)

    def action_weights(self, actions: Any) -> Float[Array, "s m d"]:
        """θ_a of the actions asked for, for every draw: the same with whatever others they are asked for."""
        ids = as_actions("actions", actions, n_actions=self.hierarchy.n_actions)
        if self.n_draws * len(ids) * self.hierarchy.dim > MAX_KEPT:
            raise TooLargeError(
                f"{self.n_draws} draws of {len(ids)} actions are more than {MAX_KEPT:,} numbers. Ask for fewer actions."
            )
        distinct, where = np.unique(ids, return_inverse=True)
        found = [theta for _, theta in self._blocks(distinct)]
        return np.concatenate(found)[:, where]

    def drawn_values(
        self, policy: Policy, contexts: Any, *, eligible: Any = None, weights: Any = None
    ) -> Float[Array, " s"]:
        """V(π) = mean over contexts of Σ_a π(a | x) r(x, a), for every draw; draws of two policies are paired."""
        return self._values(policy, contexts, eligible, weights)[0]

    def value(
        self, policy: Policy, contexts: Any, *, eligible: Any = None, weights: Any = None, groups: Any = None
    ) -> Estimate:
        """The posterior of V(π), as `RewardPosterior.value`, from draws.

        Args:
            policy: Any policy on the same actions.
            contexts: (n, d), a sample of those the policy will meet.
            eligible: Which actions may be chosen where; None for all.
            weights: (n,) how often each context counts; None for once.
            groups: (n,) users or sessions, when contexts come in clusters.

        Returns:
            An `Estimate` with the draws as its shape; `diagnostics` has their R-hat, what they are worth, and the
            Monte Carlo error of the mean.
        """
        return self._estimate(*self._values(policy, contexts, eligible, weights), weights, groups)

    def difference(
        self,
        policy: Policy,
        baseline: Policy,
        contexts: Any,
        *,
        eligible: Any = None,
        weights: Any = None,
        groups: Any = None,
    ) -> Estimate:
        """The posterior of V(policy) - V(baseline), paired on contexts and draws."""
        values, rows = self._values(policy, contexts, eligible, weights)
        base_values, base_rows = self._values(baseline, contexts, eligible, weights, "baseline")
        return self._estimate(values - base_values, rows - base_rows, weights, groups)

    def _estimate(self, values: Float[Array, " s"], rows: Float[Array, " n"], weights: Any, groups: Any) -> Estimate:
        counts = row_weights(weights, len(rows))
        context = mean_variance(rows, counts, groups)
        spread = float(np.sqrt(context or 0.0))
        chains = values.reshape(*self.chains.shape[:2], 1)
        posterior, worth = float(values.var()), float(effective_draws(chains)[0])
        alone = ("one context or group says nothing of how they vary: std is for these contexts alone",)
        return Estimate(
            value=float(values.mean()),
            std=float(np.sqrt(posterior + spread**2)),
            posterior_std=float(np.sqrt(posterior)),
            context_std=None if context is None else spread,
            method="draws",
            warnings=(*poor("the value", chains), *(alone if context is None else ())),
            shape=SmoothedDraws(values, spread) if spread > 0 else Empirical(values),
            posterior_shape=Empirical(values),
            diagnostics={
                "n_contexts": float(counts.sum()),
                "effective_draws": worth,
                "r_hat": float(r_hat(chains)[0]),
                "monte_carlo_std": float(np.sqrt(posterior / worth)),
            },
        )

    def _values(
        self, policy: Policy, contexts: Any, eligible: Any, weights: Any, name: str = "policy"
    ) -> tuple[Float[Array, " s"], Float[Array, " n"]]:
        """V(π) for every draw, and Σ_a π(a | x_i) r(x_i, a) for every context, its mean over draws."""
        policy = as_instance(name, policy, Policy, "a policy")
        if policy.n_actions != self.hierarchy.n_actions:
            raise ShapeError(f"{name} has {policy.n_actions} actions; the draws have {self.hierarchy.n_actions}.")
        x = as_contexts(contexts, None, columns=self.hierarchy.dim)
        mass = policy.feature_mass(x, eligible=eligible, weights=weights)
        if self.likelihood.is_linear:
            return self._linear_values(policy, x, mass, eligible)
        share = row_weights(weights, len(x))
        share = share / share.sum()
        values, rows = np.zeros(self.n_draws), np.zeros(len(x))
        # Where each action stands among those with any mass.
        slot = np.full(self.hierarchy.n_actions, -1)
        slot[mass.actions] = np.arange(len(mass.actions))
        for draws, theta in self._blocks(mass.actions):
            for part, block, choices in policy.blocks(x, eligible):
                found = self._rewards(choices, block, theta, slot)
                rows[part] += found.sum(axis=0) / self.n_draws
                values[draws] += found @ share[part]
        return values, rows

    def _linear_values(
        self, policy: Policy, x: Float[Array, "n d"], mass: FeatureMass, eligible: Any
    ) -> tuple[Float[Array, " s"], Float[Array, " n"]]:
        """The same where r(x, a) = φ(x)ᵀ θ_a: the feature mass says all of V(π), and the mean of θ all of its rows."""
        values, means = np.empty(self.n_draws), np.zeros((self.hierarchy.n_actions, self.hierarchy.dim))
        for draws, theta in self._blocks(mass.actions):
            values[draws] = np.einsum("smd,md->s", theta, mass.vectors)
            means[mass.actions] += theta.sum(axis=0) / self.n_draws
        return values, policy.profile(x, means, eligible=eligible)[1]

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
                        "sbm,bm->sb", self.likelihood.reward_given(eta), _shares(choices, part, some)
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


@dataclass(frozen=True)
class SmoothedDraws:
    """Draws, each blurred by a normal distribution of the same width: what the contexts leave open."""

    values: Float[Array, " s"]
    width: float

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds the value with probability `level`."""
        from scipy.optimize import brentq  # noqa: PLC0415  slow to import

        ends = self.values.min() - 40 * self.width, self.values.max() + 40 * self.width
        low, high = (
            cast(float, brentq(lambda v, q=q: self._below(v) - q, *ends)) for q in (0.5 - level / 2, 0.5 + level / 2)
        )
        return low, high

    @property
    def probability_positive(self) -> float:
        """How sure it is that the quantity is above zero."""
        return 1.0 - self._below(0.0)

    def _below(self, value: float) -> float:
        return float(np.mean(ndtr((value - self.values) / self.width)))


def _shares(choices: Choices, rows: slice, columns: Int[Array, " m"]) -> Float[Array, "b m"]:
    """What the parts that are not named give to some actions."""
    out = np.zeros((rows.stop - rows.start, len(columns)))
    if choices.everywhere is not None:
        out += choices.everywhere[columns]
    if choices.dense is not None:
        out += choices.dense[rows][:, columns]
    return out


# How many numbers are at hand at a time: predictors, and weights.
_TILE = 1 << 20
_DRAWN = 1 << 22
