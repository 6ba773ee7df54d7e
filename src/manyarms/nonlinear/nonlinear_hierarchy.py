"""The prior: a latent ψ, and action weights around any smooth function of it.

Functions that users supply: called with care, their results checked, their derivatives by differences if need be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_instance, as_vector, frozen
from manyarms._base.rng import split
from manyarms.core.action_covariance import ActionCovariance
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.latent_covariance import BlockFactor, check_dense_size
from manyarms.core.logged_data import LoggedData
from manyarms.core.mixing import MAX_DENSE, DenseMixing
from manyarms.errors import DataTypeError, InputError, NonFiniteError, ShapeError, TooLargeError

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
        if int(np.prod(shape)) > MAX_DENSE:
            raise TooLargeError(
                f"Jacobians of {len(actions)} actions are {self.dim} x {self.latent_dim} numbers each; the limit is "
                f"{MAX_DENSE:,} in all. sample_posterior needs those of seen actions only."
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


STEP = float(np.cbrt(np.finfo(float).eps))
"""Of central differences, in units of the argument: errors of rounding and of truncation are then about equal."""


class Supplied:
    """A function with the name under which errors speak of it, for instance "function 'tanh_centres'".

    Args:
        role: What it is an argument for.
        function: What the user passed.
    """

    def __init__(self, role: str, function: Any):
        if not callable(function):
            raise DataTypeError(f"{role} must be a function; got {type(function).__name__}.")
        self.name = f"{role} {getattr(function, '__name__', type(function).__name__)!r}"
        self._function = function

    def __call__(
        self, latent: Float[Array, " p"], actions: Int[Array, " m"] | None, shape: tuple[int, ...], meaning: str
    ) -> Float[Array, "..."]:
        """Its value, of the shape demanded and finite.

        Args:
            latent: ψ.
            actions: Which actions are asked for; None when the function takes ψ alone.
            shape: What it must return.
            meaning: The same in letters, for the error.
        """
        at = frozen(latent)
        value = self._function(at) if actions is None else self._function(at, frozen(actions))
        try:
            # A copy: a function may return the same buffer again and again.
            array = np.array(value, dtype=np.float64)
        except (TypeError, ValueError) as cause:
            raise DataTypeError(f"{self.name} must return numbers: {cause}") from cause
        asked = "" if actions is None else f" when asked for {len(actions)} actions, the first of them {actions[0]}"
        if array.shape != shape:
            raise ShapeError(f"{self.name} must return shape {meaning} = {shape}{asked}; got {array.shape}.")
        self._check_finite(array, latent, actions)
        return array

    def _check_finite(
        self, array: Float[Array, "..."], latent: Float[Array, " p"], actions: Int[Array, " m"] | None
    ) -> None:
        if np.isfinite(array).all():
            return
        where = tuple(np.argwhere(~np.isfinite(array))[0])
        place = f"entry {int(where[0])}" if actions is None else f"action {int(actions[where[0]])}"
        psi = np.array2string(latent, precision=4, threshold=6)
        raise NonFiniteError(
            f"{self.name} must return finite numbers; {place} has {array[where]} at latent {psi}. "
            "Bound the function, or narrow latent_cov if such values are not meant."
        )


def central_differences(
    function: Callable[[Float[Array, " p"]], Float[Array, "..."]],
    latent: Float[Array, " p"],
    scale: Float[Array, " p"],
) -> Float[Array, "... p"]:
    """The derivative by ψ in 2 d' calls; its error is about 1e-10 of what the function changes by within `scale`.

    Args:
        function: Of ψ alone.
        latent: Where.
        scale: How far each coordinate usually moves.
    """
    # A step below the rounding of ψ itself would be lost.
    steps = STEP * np.maximum(scale, np.abs(latent))
    columns: list[Array] = []
    for j, step in enumerate(steps):
        low, high = np.array(latent), np.array(latent)
        low[j] -= step
        high[j] += step
        # The distance that floating point makes of two steps, not the one asked for.
        columns.append((function(high) - function(low)) / (high[j] - low[j]))
    return np.stack(columns, axis=-1) if columns else np.zeros((*function(latent).shape, 0))


def usual_moves(std: Float[Array, " p"]) -> Float[Array, " p"]:
    """A scale for differences: the prior's, but at most one; a coordinate that never moves gets one as well."""
    return np.where(std > 0, np.minimum(std, 1.0), 1.0)
