"""The closed-form posterior of the hierarchy (paper, Section 4), over seen actions only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_instance, as_scalar, frozen
from manyarms.core import MAX_DENSE_LATENT, HierarchicalGaussian, Statistics
from manyarms.core.observed_rows import ObservedGroup, ObservedRows, merge_columns, observe
from manyarms.errors import NumericalError, ShapeError
from manyarms.inference.latent_posterior import LatentEvidence, LatentPosterior, SummedEvidence, gather
from manyarms.linalg.factor_and_solve import gram, lower_factor, solve_lower, solve_lower_t
from manyarms.linalg.indexing import cache_chunks
from manyarms.linalg.threads import one_blas_thread

Absorb = Callable[[HierarchicalGaussian, ObservedRows, LatentEvidence], tuple[tuple[Array, ...], float]]
"""A function that conditions on all seen actions: see `absorb_groups`."""


def condition(prior: HierarchicalGaussian, statistics: Statistics, noise_std: float) -> HierarchicalGaussian:
    """The distribution of ψ and θ given logged rounds, of the same type as the prior.

    With rows R_a, responses ρ_a (`core.observed_rows`), K_a = I + R_a Σ_a R_aᵀ = C_a C_aᵀ and H_a = C_a⁻¹ R_a:
    the latent precision gains Σ_a (H_a W_a)ᵀ (H_a W_a), a sum of squares that needs no inverse of Σ_a, and the rest of
    the posterior of an action is N_a = C_a⁻ᵀ H_a, kept as N_a L_a with L_a L_aᵀ = Σ_a. An action never logged is
    neither solved for nor stored.

    Cost O(m d³ + m d d'²) for m seen actions and dense W; with one effect per action O(m d³ + J d³).

    Args:
        prior: The belief before these rounds; an earlier posterior is allowed.
        statistics: The sums over these rounds.
        noise_std: σ, the standard deviation of a reward around φ(x)ᵀ θ_a.

    Returns:
        A new distribution; `prior` is unchanged. Its `log_evidence` counts all rounds since the first prior.
    """
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    statistics = as_instance("statistics", statistics, Statistics, "Statistics of rounds")
    check_sizes(prior, statistics)
    noise_std = as_scalar("noise_std", noise_std, above=1e-150, below=1e150)
    return solve_further(prior, observe(statistics, noise_std))[0]


def check_sizes(prior: HierarchicalGaussian, statistics: Statistics) -> None:
    """Refuse to condition a prior on statistics of other actions or dimensions."""
    if (statistics.n_actions, statistics.dim) != (prior.n_actions, prior.dim):
        raise ShapeError(
            f"the prior has {prior.n_actions} actions in {prior.dim} dimensions; "
            f"the statistics have {statistics.n_actions} in {statistics.dim}.",
            "Build the prior for the actions and contexts of the logs.",
        )


def condition_on(prior: HierarchicalGaussian, observed: ObservedRows) -> HierarchicalGaussian:
    """Condition an unconditioned prior on rows: its posterior alone."""
    return solve(prior, observed)[0]


def solve(
    prior: HierarchicalGaussian, observed: ObservedRows, absorb: Absorb | None = None
) -> tuple[HierarchicalGaussian, LatentPosterior]:
    """Condition an unconditioned prior on rows: its posterior, and that of ψ alone in units of its prior.

    `absorb` replaces `absorb_groups`, for rows that are worked on elsewhere.
    """
    # An overflow becomes an error with a name: here below, or where rows are factored.
    with np.errstate(over="ignore", invalid="ignore"), conditioning_threads(prior):
        evidence = gather(prior, observed)
        gains, log_det = (absorb or absorb_groups)(prior, observed, evidence)
        latent = evidence.posterior()
    return _posterior(prior, observed, gains, latent, log_det + latent.log_det), latent


def _posterior(
    prior: HierarchicalGaussian,
    observed: ObservedRows,
    gains: tuple[Array, ...],
    latent: LatentPosterior,
    log_det: float,
) -> HierarchicalGaussian:
    log_evidence = observed.log_normaliser - 0.5 * (log_det + observed.residual + latent.misfit)
    if not np.isfinite(log_evidence):
        raise NumericalError("the squares of the rewards overflow.", "Rescale rewards and noise_std.")
    return prior.conditioned(latent.mean, latent.factor, observed, gains, log_evidence, latent.misfit, log_det)


def solve_further(
    prior: HierarchicalGaussian, observed: ObservedRows, *, others: bool = True
) -> tuple[HierarchicalGaussian, LatentPosterior]:
    """Condition a prior, which may be an earlier posterior, on further rows; as `solve` does with all rows together.

    Where a large posterior gets rows of few actions, only these are solved for. The others are as they were, and what
    they say about ψ is added up from their rows once per posterior, so that no rounding errors are carried along.

    Args:
        prior: A prior or a posterior.
        observed: The further rows.
        others: False for a result that holds only actions with further rows. Others are then like unseen ones in it,
            but ψ, the evidence and its parts are those given all rows.
    """
    own, left = prior.observed.split(observed.actions)
    if prior.observed.groups and _FEW * len(own.actions) <= sum(int(at.sum()) for at in left):
        before = _evidence_of(prior)
        if before is not None and before[0].fits(prior.observed.actions, observed.actions):
            return _add_rows(prior, before, own, observed, left if others else [])
    return solve(prior.base, prior.observed.joined(observed))


_FEW = 2
"""How many actions without further rows there must be for each one that has some, for the others to be left alone."""


def _add_rows(
    prior: HierarchicalGaussian,
    before: tuple[SummedEvidence, float],
    own: ObservedRows,
    observed: ObservedRows,
    left: list[Array],
) -> tuple[HierarchicalGaussian, LatentPosterior]:
    """Condition a posterior on further rows of actions with the rows `own`. Those `left` by group are taken over."""
    base, known, earlier = prior.base, prior.observed, before[0].empty()
    with np.errstate(over="ignore", invalid="ignore"), conditioning_threads(base):
        # What these actions said is taken back, and what they say now is added.
        _, own_log_det = absorb_groups(base, own, earlier)
        evidence, joined = before[0].without(earlier), own.joined(observed)
        gains, log_det = absorb_groups(base, joined, evidence)
        latent = evidence.posterior()
    groups = [(g.actions, g.root, g.response, gain) for g, gain in zip(joined.groups, gains, strict=True)]
    for group, gain, at in zip(known.groups, prior.gains, left, strict=False):
        groups.append((group.actions[at], group.root[at], group.response[at], gain[at]))
    columns = merge_columns(groups)
    together = ObservedRows(
        tuple(ObservedGroup(*column[:3]) for column in columns),
        known.residual + joined.residual,
        known.log_normaliser + joined.log_normaliser,
    )
    log_det += before[1] - own_log_det + latent.log_det
    return _posterior(base, together, tuple(column[3] for column in columns), latent, log_det), latent


def _evidence_of(posterior: HierarchicalGaussian) -> tuple[SummedEvidence, float] | None:
    """Evidence on ψ from all rows of a posterior, and Σ_a log |K_a|; None where it is no sum, or too large to keep."""
    if posterior not in _evidence:
        base, observed = posterior.base, posterior.observed
        evidence = gather(base, observed)
        if not isinstance(evidence, SummedEvidence) or evidence.size > _MOST_KEPT:
            return None
        with np.errstate(over="ignore", invalid="ignore"), conditioning_threads(base):
            _evidence[posterior] = evidence, absorb_groups(base, observed, evidence)[1]
    return _evidence[posterior]


_evidence: WeakKeyDictionary[HierarchicalGaussian, tuple[SummedEvidence, float]] = WeakKeyDictionary()
_MOST_KEPT = 1 << 24
"""Numbers of a Γ (128 MB) up to which it is kept with a posterior."""


def conditioning_threads(prior: HierarchicalGaussian) -> AbstractContextManager[None]:
    """Condition priors in this block with one BLAS thread, unless ψ is so large that its factor is worth several."""
    large = _WORTH_THREADS < prior.mixing.gram_blocks(prior.prior_factor) <= MAX_DENSE_LATENT
    return nullcontext() if large else one_blas_thread()


_WORTH_THREADS = 512


def absorb_groups(
    prior: HierarchicalGaussian, observed: ObservedRows, evidence: LatentEvidence
) -> tuple[tuple[Array, ...], float]:
    """Condition on all seen actions, as evidence on ψ; return their gains N_a L_a, by group, and Σ_a log |K_a|."""
    absorbed = [_absorb(prior, group, evidence) for group in observed.groups]
    return tuple(gain for gain, _ in absorbed), sum((log_det for _, log_det in absorbed), 0.0)


def _absorb(
    prior: HierarchicalGaussian, group: ObservedGroup, evidence: LatentEvidence
) -> tuple[Float[Array, "m r d"], float]:
    """Add one group of actions to the evidence on ψ; return their gains N_a L_a and Σ_a log |K_a|."""
    gains, log_det = np.empty_like(group.root), 0.0
    for part in cache_chunks(len(group.actions), max(prior.dim**2, group.rank * evidence.row_size)):
        actions, R, rho = group.actions[part], group.root[part], group.response[part]
        Z = prior.action_covariance.times_root(R, actions)
        C = _row_cholesky(Z, actions)
        white = solve_lower(C, np.concatenate([R, rho[:, :, None]], axis=2))
        gains[part] = solve_lower_t(C, prior.action_covariance.times_root(white[:, :, :-1], actions))
        pivots = np.einsum("mrr->mr", C)
        uneven = np.flatnonzero(pivots.max(axis=1) > UNEVEN * pivots.min(axis=1))
        if len(uneven):
            white[uneven], gains[part][uneven], pivots[uneven] = _by_singular_values(Z[uneven], R[uneven], rho[uneven])
        H, h = white[:, :, :-1], white[:, :, -1]
        centre = prior.mixing.apply(prior.latent_mean[None], actions)[0] + prior.offset_of(actions)
        evidence.add(H, h - np.einsum("mrd,md->mr", H, centre), actions)
        log_det += 2 * float(np.sum(np.log(pivots)))
    return frozen(gains), log_det


def _row_cholesky(Z: Float[Array, "m r d"], actions: Array) -> Float[Array, "m r r"]:
    """C_a of K_a = I + Z_a Z_aᵀ, Z_a = R_a L_a, whose eigenvalues are at least one.

    Through Z_a, and not R_a Σ_a R_aᵀ, so that directions in which Σ_a vanishes stay at exactly one.
    """
    K = gram(Z.swapaxes(1, 2))
    np.einsum("mrr->mr", K)[...] += 1.0
    finite = np.isfinite(K).all(axis=(1, 2))
    if not finite.all():
        raise NumericalError(
            f"the rows of action {int(actions[np.argmin(finite)])} overflow.", "Rescale contexts, rewards or noise_std."
        )
    try:
        return np.linalg.cholesky(K)
    except np.linalg.LinAlgError:
        # Data outweigh the prior by more than 1e16 and the one is lost beside them. The QR of [Z_a, I]ᵀ has the same
        # factor and never forms K_a.
        eye = np.broadcast_to(np.eye(Z.shape[1]), (len(Z), Z.shape[1], Z.shape[1]))
        return lower_factor(np.concatenate([Z.swapaxes(1, 2), eye], axis=1))


UNEVEN = 1e4
"""The ratio of two pivots of C_a, the root of a condition number, above which C_a costs more than half the digits."""


def _by_singular_values(
    Z: Float[Array, "m r d"], R: Float[Array, "m r d"], rho: Float[Array, "m r"]
) -> tuple[Float[Array, "m r c"], Float[Array, "m r d"], Float[Array, "m r"]]:
    """[H_a, h_a], N_a L_a and the square roots of the eigenvalues of K_a, from Z_a = U s Vᵀ: K_a = U (1 + s²) Uᵀ.

    For rows that outweigh the prior in some directions and not in others. The small eigenvalues of K_a are lost in
    K_a and its factor, but not in U, which is orthogonal to the last digit. H_a and h_a are rotated by Uᵀ, which
    leaves all that ψ learns from them the same.
    """
    U, s, Vt = np.linalg.svd(Z, full_matrices=False)
    pivots = np.hypot(1.0, s)
    white = U.swapaxes(1, 2) @ np.concatenate([R, rho[:, :, None]], axis=2) / pivots[:, :, None]
    return white, (U * (s / pivots / pivots)[:, None, :]) @ Vt, pivots
