"""Draws from the posterior itself, for any f_a and any likelihood: the paper's "approximate sampling"."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count
from manyarms._base.progress import Progress, reporter
from manyarms._base.rng import split
from manyarms.core import HierarchicalGaussian, LoggedData
from manyarms.errors import TooLargeError
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.gaussian import as_likelihood
from manyarms.nonlinear.nonlinear_hierarchy import NonlinearHierarchy, as_hierarchy, check_rounds
from manyarms.nonlinear.posterior_draws import MAX_KEPT, PosteriorDraws
from manyarms.nonlinear.sampler_kernels import Kernel, kernel_for
from manyarms.nonlinear.seen_actions import SeenActions


def sample_posterior(
    logs: LoggedData,
    prior: NonlinearHierarchy | HierarchicalGaussian,
    likelihood: Likelihood | None = None,
    n_draws: int = 1000,
    *,
    rng: np.random.Generator,
    warmup: int = 200,
    thin: int = 1,
    n_chains: int = 4,
    progress: Progress = False,
) -> PosteriorDraws:
    """Draws of ψ and θ given the logs, where θ_a | ψ ~ N(f_a(ψ), Σ_a) and rewards follow any likelihood.

    Elliptical slice sampling around the Gaussians of `fit_nonlinear`. ψ moves on ellipses of the linearised posterior,
    with the tails of a t distribution, and in between on those of the prior, so that it does not get stuck where the
    linearisation is poor. With Gaussian rewards θ is integrated out, and drawn exactly afterwards. With others each
    round has a Gaussian site, and θ_a = f_a(ψ) + L_a z_a is written as what the sites say given ψ plus a rest e_a. ψ
    moves given the e_a, which under the sites are independent of it, and, in between, given the z_a; the e_a and the
    z_a of all actions move at once, each on an ellipse of its own. The exact density decides every move, so draws are
    exact in the long run, whatever the linearisation is worth.

    Chains start from climbs of their own from draws of the prior, so that modes which do not mix show up in
    `PosteriorDraws.r_hat` and its `warnings`.

    Args:
        logs: Logged rounds.
        prior: A `NonlinearHierarchy`, or a linear prior that has not seen data.
        likelihood: How rewards arise; by default `Gaussian(noise_std=1.0)`. Its treatment does not matter.
        n_draws: The number of draws to keep in all chains together; rounded up to the same number each.
        rng: A NumPy generator.
        warmup: The number of sweeps of each chain that are thrown away.
        thin: Keep one of every `thin` sweeps.
        n_chains: The number of chains; at least two to see whether they agree.
        progress: True shows a progress bar; a function is called as progress(sweep, all sweeps).
    """
    hierarchy, likelihood = as_hierarchy(prior), as_likelihood(likelihood)
    check_rounds(logs, hierarchy)
    likelihood.check(logs.rewards, logs.weights)
    n_chains, thin = as_count("n_chains", n_chains), as_count("thin", thin)
    warmup, length = as_count("warmup", warmup, minimum=0), -(-as_count("n_draws", n_draws) // n_chains)
    noise_rng, *rngs = split(rng, "noise", *(f"chain {number}" for number in range(n_chains)))
    seen = SeenActions(hierarchy, logs)
    kernel = kernel_for(seen, likelihood)
    latent = np.empty((n_chains, length, hierarchy.latent_dim))
    weights = _room_for_weights(kernel, n_chains, length)
    per_chain = warmup + length * thin
    with reporter(progress, n_chains * per_chain, "sampling") as report:
        for number, chain_rng in enumerate(rngs):
            point = kernel.start(chain_rng, from_prior=number > 0)
            for sweep in range(per_chain):
                point = kernel.sweep(point, chain_rng)
                report(number * per_chain + sweep + 1, n_chains * per_chain)
                place, rest = divmod(sweep - warmup, thin)
                if place < 0 or rest < thin - 1:
                    continue
                latent[number, place] = seen.latent(point.white)
                if weights is not None and point.noise is not None:
                    weights[number, place] = kernel.conditional.weights(point.centres, point.noise)
    return PosteriorDraws(
        hierarchy,
        likelihood,
        latent,
        seen.actions[: len(seen.actions) if len(seen.logs) else 0],
        weights,
        kernel.conditional,
        tuple(int(word) for word in noise_rng.integers(0, 1 << 63, size=2)),
        (logs.fingerprint,),
        logs.features,
        logs.catalog,
    )


def _room_for_weights(kernel: Kernel, n_chains: int, length: int) -> Float[Array, "c n m d"] | None:
    """An empty array for θ of seen actions, if it has to be kept."""
    if not kernel.keeps_weights:
        return None
    shape = (n_chains, length, kernel.seen.n_actions, kernel.seen.hierarchy.dim)
    if int(np.prod(shape)) > MAX_KEPT:
        raise TooLargeError(
            f"{n_chains * length} draws of the weights of {shape[2]} seen actions are more than {MAX_KEPT:,} numbers.",
            "Ask for fewer draws, with a larger thin=.",
        )
    return np.empty(shape)
