"""The prior: a latent ψ, and action weights around any smooth function of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array, as_actions, as_count, as_instance, as_vector, frozen
from manyarms._random import split
from manyarms.core.covariance import ActionCovariance
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.latent import BlockFactor, check_dense_size
from manyarms.core.mixing import MAX_WRITTEN_OUT, DenseMixing
from manyarms.errors import DataTypeError, InputError, ShapeError, TooLargeError
from manyarms.nonlinear.functions import Supplied, central_differences, usual_moves

Centres = Callable[[Array, Array], Any]
"""(ψ, actions) to (m, d), or to (m, d, d') for a Jacobian."""


class NonlinearHierarchy:
    """ψ ~ N(μ, Σ), and θ_a | ψ ~ N(f_a(ψ), Σ_a), independent over actions given ψ (paper, eq. 4, with any f_a).

    `fit_nonlinear` and `sample_posterior` take it in the place of a prior. With f_a(ψ) = W_a ψ + c_a it is a
    `HierarchicalGaussian`, which is the faster way to say so.

    Args:
        latent_mean: μ, (d',).
        latent_cov: Σ: a scalar, (d',), blocks (J, b, b) with J b = d', or (d', d').
        function: f: called as function(ψ, actions) with ψ (d',) and actions (m,), returns (m, d), the centres of the
            actions asked for. Only seen actions are asked for while fitting.
        action_cov: Σ_a: a scalar, (d,), (d, d) or (K, d, d); zero is allowed.
        n_actions: K.
        dim: d.
        jacobian: ∂f/∂ψ: called as function is, returns (m, d, d'). By default central differences, 2 d' calls of
            `function`, good to about ten digits.

    Raises:
        InputError: When shapes disagree, values are not finite, or a covariance is not symmetric PSD; for `function`
            and `jacobian` when they are called, naming the function and the first bad action.

    Example: every item loads on two traits whose effects saturate.

        >>> import numpy as np
        >>> from manyarms.nonlinear import NonlinearHierarchy
        >>> loadings = np.random.default_rng(0).normal(size=(5, 3, 2))
        >>> def saturating(psi, actions):
        ...     return loadings[actions] @ np.tanh(psi)
        >>> NonlinearHierarchy(np.zeros(2), 1.0, saturating, action_cov=0.1, n_actions=5, dim=3)
        NonlinearHierarchy(5 actions, d=3, latent_dim=2, function 'saturating')
    """

    def __init__(
        self,
        latent_mean: Any,
        latent_cov: Any,
        function: Centres,
        action_cov: Any,
        n_actions: int,
        dim: int,
        jacobian: Centres | None = None,
    ):
        self.latent_mean: Float[Array, " p"] = frozen(as_vector("latent_mean", latent_mean).copy())
        given = isinstance(latent_cov, BlockFactor)
        self.latent_factor = latent_cov if given else BlockFactor.of(latent_cov, latent_dim=self.latent_dim)
        self.n_actions, self.dim = as_count("n_actions", n_actions), as_count("dim", dim)
        self.action_covariance = ActionCovariance.of(action_cov, n_actions=self.n_actions, dim=self.dim)
        self.function = function
        self._function = Supplied("function", function)
        self._jacobian = None if jacobian is None else Supplied("jacobian", jacobian)

    def __repr__(self) -> str:
        return (
            f"NonlinearHierarchy({self.n_actions:,} actions, d={self.dim}, latent_dim={self.latent_dim}, "
            f"{self._function.name})"
        )

    @property
    def latent_dim(self) -> int:
        """d'."""
        return len(self.latent_mean)

    @property
    def latent_std(self) -> Float[Array, " p"]:
        """The standard deviation of each coordinate of ψ."""
        return np.sqrt(np.einsum("jab,jab->ja", self.latent_factor.blocks, self.latent_factor.blocks)).reshape(-1)

    def centre(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d"]:
        """f_a(ψ) of the actions asked for."""
        if len(actions) == 0:
            return np.zeros((0, self.dim))
        return self._function(latent, actions, (len(actions), self.dim), "(m, d)")

    def jacobian(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d p"]:
        """∂f_a/∂ψ of the actions asked for."""
        shape = (len(actions), self.dim, self.latent_dim)
        if int(np.prod(shape)) > MAX_WRITTEN_OUT:
            raise TooLargeError(
                f"Jacobians of {len(actions)} actions are {self.dim} x {self.latent_dim} numbers each; the limit is "
                f"{MAX_WRITTEN_OUT:,} in all. sample_posterior needs those of seen actions only."
            )
        if len(actions) == 0:
            return np.zeros(shape)
        if self._jacobian is not None:
            return self._jacobian(latent, actions, shape, "(m, d, d')")
        return central_differences(lambda psi: self.centre(psi, actions), latent, usual_moves(self.latent_std))

    def linearised(self, latent: Any) -> HierarchicalGaussian:
        """The linear hierarchy W_a = ∂f_a/∂ψ, c_a = f_a(ψ) - W_a ψ that touches this one at ψ, for all actions."""
        latent = as_vector("latent", latent, length=self.latent_dim)
        everyone = np.arange(self.n_actions)
        return self.tangent(latent, self.centre(latent, everyone), everyone, self.action_covariance)

    def tangent(
        self,
        latent: Float[Array, " p"],
        centres: Float[Array, "m d"],
        actions: Int[Array, " m"],
        action_covariance: ActionCovariance,
    ) -> HierarchicalGaussian:
        """`linearised` for some actions, numbered anew, with their centres known already; not for users."""
        W = self.jacobian(latent, actions)
        c = centres - W @ latent
        blank = HierarchicalGaussian(self.latent_mean, 0.0, DenseMixing(W), action_covariance, c)
        return blank.with_parts(self.latent_mean, self.latent_factor, action_covariance, c)

    def draw_latent(self, rng: np.random.Generator, size: int) -> Float[Array, "s p"]:
        """Draws of ψ from the prior: for example to start several fits from."""
        z = rng.standard_normal((as_count("size", size), self.latent_dim))
        return self.latent_mean + self.latent_factor.apply(z)

    def sample(self, rng: np.random.Generator, size: int = 1, actions: Any = None) -> Float[Array, "s m d"]:
        """Joint draws of θ_a from the prior, for the actions asked for (default: all), sharing ψ within a draw."""
        ids = np.arange(self.n_actions)
        if actions is not None:
            ids = as_actions("actions", actions, n_actions=self.n_actions)
        distinct, where = np.unique(ids, return_inverse=True)
        latent_rng, action_rng = split(rng, "latent", "actions")
        centres = np.stack([self.centre(psi, distinct) for psi in self.draw_latent(latent_rng, size)])
        theta = centres + self.action_covariance.colour(action_rng.standard_normal(centres.shape), distinct)
        return theta[:, where]


def check_rounds(logs: Any, hierarchy: NonlinearHierarchy) -> LoggedData:
    """Refuse logs that do not fit the hierarchy, before any work is done."""
    logs = as_instance("logs", logs, LoggedData, "a LoggedData")
    if logs.dim != hierarchy.dim or logs.n_actions > hierarchy.n_actions:
        raise ShapeError(
            f"the logs have {logs.n_actions} actions and {logs.dim} context columns; the hierarchy has "
            f"n_actions={hierarchy.n_actions} and dim={hierarchy.dim}. Build it on the whole catalog, with dim equal "
            "to the number of context columns."
        )
    return logs


def as_hierarchy(value: Any) -> NonlinearHierarchy:
    """A `NonlinearHierarchy` as it is, or a linear prior written as one."""
    if isinstance(value, NonlinearHierarchy):
        return value
    if not isinstance(value, HierarchicalGaussian):
        raise DataTypeError(
            f"prior must be a NonlinearHierarchy or a HierarchicalGaussian; got {type(value).__name__}."
        )
    prior = value
    if prior.observed.groups:
        raise InputError("prior has seen data already: pass the prior before the fit, and all logs.")

    def linear(latent: Array, actions: Array) -> Array:
        return prior.mixing.apply(latent[None], actions)[0] + prior.offset_of(actions)

    def mixing(latent: Array, actions: Array) -> Array:
        check_dense_size(prior.latent_dim)
        return prior.mixing.apply(np.eye(prior.latent_dim), actions).transpose(1, 2, 0)

    return NonlinearHierarchy(
        prior.latent_mean, prior.prior_factor, linear, prior.action_covariance, prior.n_actions, prior.dim, mixing
    )
