"""Draws from a posterior in the form of ArviZ, for its plots and diagnostics: `ma.arviz`, with `manyarms[arviz]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_instance, import_optional
from manyarms._base.rng import as_generator, split
from manyarms._version import __version__
from manyarms.core import HierarchicalGaussian, LoggedData
from manyarms.core.logged_data import check_logs
from manyarms.errors import ShapeError, TooLargeError
from manyarms.linalg.indexing import chunks
from manyarms.posterior import RewardPosterior

if TYPE_CHECKING:
    from xarray import DataTree

__all__ = ["inference_data"]

_DIMS = {
    "latent": ["effect"],
    "weights": ["action", "feature"],
    "reward": ["round"],
    "context": ["round", "feature"],
    "logged_action": ["round"],
}

MAX_NUMBERS = 1 << 27
"""The largest number of values in the draws of one group (a gigabyte)."""


def inference_data(
    posterior: RewardPosterior,
    *,
    n_draws: int = 1000,
    rng: np.random.Generator,
    actions: Any = None,
    logs: LoggedData | None = None,
) -> DataTree:
    """Draws for ArviZ: joint and independent, of ψ and θ from prior and posterior, one chain, beside the observed data.

    The groups `posterior` and `prior` have `latent` (chain, draw, effect), where actions share effects, and `weights`
    (chain, draw, action, feature). With `logs` there are also `observed_data` with `reward` (round), `constant_data`
    with `context` and `logged_action`, and `log_likelihood`, that of each reward under each posterior draw, for
    leave-one-out scores. A weighted round occurs once. Actions are named by their ids where there is a catalog.

    ArviZ uses this tree from version 1.0 on; earlier versions convert it with `arviz.from_datatree`.

    Args:
        posterior: A fitted `RewardPosterior`.
        n_draws: The number of draws from each.
        rng: A NumPy generator.
        actions: The actions whose weights are drawn; None for all.
        logs: The rounds that it was fitted on, or others; None for none.

    Raises:
        MissingLibraryError: When arviz-base is not installed.
        ShapeError: When `actions` is empty.
        TooLargeError: When draws of all these actions, or rounds, would take more than a gigabyte.
    """
    arviz: Any = import_optional("arviz_base", "ma.arviz", "manyarms[arviz]")
    posterior = as_instance("posterior", posterior, RewardPosterior, "what ma.fit returned")
    n_draws, weights, K = as_count("n_draws", n_draws), posterior.weights, posterior.n_actions
    shown = np.arange(K) if actions is None else as_actions("actions", actions, n_actions=K)
    if not len(shown):
        raise ShapeError("must name at least one action.", "Leave it out for all of them.", argument="actions")
    logged = np.empty(0, dtype=np.int64) if logs is None else check_logs(logs, posterior.prior).actions
    drawn = np.union1d(shown, logged)
    for numbers, subject, remedy in (
        (n_draws * len(drawn) * weights.dim, f"{len(drawn):,} actions", "Name fewer actions="),
        (n_draws * len(logged), f"{len(logged):,} rounds", "Pass some of the logs"),
    ):
        if numbers > MAX_NUMBERS:
            problem = f"{n_draws:,} draws for {subject} would take {numbers:,} numbers."
            raise TooLargeError(problem, f"{remedy}, or take fewer draws.")
    before, after = split(as_generator(rng), "prior", "posterior")
    variables = _draws(weights, drawn, n_draws, after)
    theta = variables["weights"][0]
    groups = {
        "posterior": {**variables, "weights": theta[None, :, np.searchsorted(drawn, shown)]},
        "prior": _draws(posterior.prior, shown, n_draws, before),
    }
    if logs is not None:
        groups["log_likelihood"] = {"reward": _log_likelihood(posterior, logs, theta, np.searchsorted(drawn, logged))}
        groups["observed_data"] = {"reward": logs.rewards}
        groups["constant_data"] = {"context": logs.contexts, "logged_action": _ids(posterior, logged)}
    coords = {
        "action": _ids(posterior, shown),
        "feature": list(posterior.feature_names),
        "effect": _effects(posterior.prior, posterior.feature_names),
        "round": np.arange(len(logged)),
    }
    attrs = {
        "inference_library": "manyarms",
        "inference_library_version": __version__,
        "likelihood": repr(posterior.likelihood),
        "log_evidence": posterior.log_evidence,
    }
    return arviz.from_dict(groups, dims=_DIMS, coords=coords, attrs={"/": attrs})


def _draws(
    weights: HierarchicalGaussian, actions: Int[Array, " m"], n_draws: int, rng: np.random.Generator
) -> dict[str, Array]:
    """One chain of draws of ψ, and of θ_a given each. A prior under which actions share nothing has no ψ."""
    latent_rng, action_rng = split(rng, "latent", "actions")
    latent = weights.draw_latent(latent_rng, n_draws)
    shared = {"latent": latent[None]} if latent.shape[1] else {}
    return {**shared, "weights": weights.draw_given(latent, actions, action_rng)[None]}


def _log_likelihood(
    posterior: RewardPosterior, logs: LoggedData, theta: Float[Array, "s m d"], place: Int[Array, " n"]
) -> Float[Array, "1 s n"]:
    out = np.empty((1, len(theta), len(logs)))
    for rows in chunks(len(logs), max(1, (1 << 22) // theta[:, 0].size)):
        predictor = np.einsum("nd,snd->sn", logs.contexts[rows], theta[:, place[rows]])
        rewards = np.broadcast_to(logs.rewards[rows], predictor.shape)
        flat = posterior.likelihood.log_density(rewards.reshape(-1), predictor.reshape(-1))
        out[0, :, rows] = flat.reshape(predictor.shape)
    return out


def _ids(posterior: RewardPosterior, actions: Int[Array, " m"]) -> Array:
    """The names of actions: numbers, or texts where ids are not numbers, since files allow nothing else."""
    if posterior.catalog is None:
        return actions
    ids = posterior.catalog.ids[actions]
    return ids if ids.dtype.kind in "iuf" else np.array([str(name) for name in ids.tolist()])


def _effects(prior: HierarchicalGaussian, features: tuple[str, ...]) -> list[str]:
    """The names of the coordinates of ψ: the effect, and the feature where effects are in the space of θ."""
    names = list[str]()
    for group in prior.effects:
        labels = range(group.count) if group.labels is None else group.labels
        parts = features if group.part_dim == len(features) else [str(j) for j in range(group.part_dim)]
        names += [f"{group.name}={label}[{part}]" for label in labels for part in parts]
    return names
