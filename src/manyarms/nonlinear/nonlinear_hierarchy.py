"""The prior: a latent ψ, of one layer or several, and action weights around any smooth function of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_instance, as_vector, frozen
from manyarms._base.rng import split
from manyarms.core import MAX_DENSE, ActionCovariance, DenseMixing, HierarchicalGaussian, LoggedData
from manyarms.core.latent_covariance import BlockFactor, check_dense_size
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
                f"{MAX_DENSE:,} in all.",
                "Use sample_posterior, which needs those of seen actions only.",
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
            f"n_actions={hierarchy.n_actions} and dim={hierarchy.dim}.",
            "Build it on the whole catalog, with dim equal to the number of context columns.",
        )
    return logs


def as_hierarchy(value: Any) -> NonlinearHierarchy:
    """A `NonlinearHierarchy` as it is, or a linear prior written as one."""
    if isinstance(value, NonlinearHierarchy):
        return value
    if not isinstance(value, HierarchicalGaussian):
        raise DataTypeError(
            f"must be a NonlinearHierarchy or a HierarchicalGaussian; got {type(value).__name__}.", argument="prior"
        )
    prior = value
    if prior.observed.groups:
        raise InputError("has seen data already.", "Pass the prior before the fit, and all logs.", argument="prior")

    def linear(latent: Array, actions: Array) -> Array:
        return prior.mixing.apply(latent[None], actions)[0] + prior.offset_of(actions)

    def mixing(latent: Array, actions: Array) -> Array:
        check_dense_size(prior.latent_dim)
        return prior.mixing.apply(np.eye(prior.latent_dim), actions).transpose(1, 2, 0)

    return NonlinearHierarchy(
        prior.latent_mean, prior.prior_factor, linear, prior.action_covariance, prior.n_actions, prior.dim, mixing
    )


STEP = float(np.cbrt(np.finfo(float).eps))
"""The step of central differences, relative to the argument: rounding and truncation errors are then about equal."""


class Supplied:
    """A function with the name under which errors speak of it, for instance "function 'tanh_centres'".

    Args:
        role: The argument that it was passed as.
        function: The function that the user passed.
    """

    def __init__(self, role: str, function: Any):
        if not callable(function):
            raise DataTypeError(f"must be a function; got {type(function).__name__}.", argument=role)
        self.name = f"{role} {getattr(function, '__name__', type(function).__name__)!r}"
        self._function = function

    def __call__(
        self, latent: Float[Array, " p"], actions: Int[Array, " m"] | None, shape: tuple[int, ...], meaning: str
    ) -> Float[Array, "..."]:
        """The value of the function, of the shape required and finite.

        Args:
            latent: ψ.
            actions: The actions asked for; None when the function takes ψ alone.
            shape: The shape it must return.
            meaning: The shape in letters, for the error.
        """
        at = frozen(latent)
        value = self._function(at) if actions is None else self._function(at, frozen(actions))
        try:
            # A copy: a function may return the same buffer again and again.
            array = np.array(value, dtype=np.float64)
        except (TypeError, ValueError) as cause:
            raise DataTypeError(f"must return numbers: {cause}", argument=self.name) from cause
        asked = "" if actions is None else f" when asked for {len(actions)} actions, the first of them {actions[0]}"
        if array.shape != shape:
            raise ShapeError(f"must return shape {meaning} = {shape}{asked}; got {array.shape}.", argument=self.name)
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
            f"must return finite numbers; {place} has {array[where]} at latent {psi}.",
            "Bound the function, or narrow latent_cov if such values are not meant.",
            argument=self.name,
        )


def central_differences(
    function: Callable[[Float[Array, " p"]], Float[Array, "..."]],
    latent: Float[Array, " p"],
    scale: Float[Array, " p"],
) -> Float[Array, "... p"]:
    """The derivative by ψ in 2 d' calls; its error is about 1e-10 of what the function changes by within `scale`.

    Args:
        function: A function of ψ alone.
        latent: The point at which the derivative is taken.
        scale: The distance that each coordinate usually moves.
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


@dataclass(frozen=True)
class Layer:
    """ψ' | ψ ~ N(g(ψ), Λ): one latent layer below another.

    Args:
        function: g: called as function(ψ), returns (size,).
        cov: Λ: a scalar, (size,), blocks (J, b, b) with J b = size, or (size, size); zero is allowed.
        size: The length of ψ'.
        jacobian: ∂g/∂ψ: called as jacobian(ψ), returns (size, length of ψ); by default central differences.
    """

    function: Callable[[Array], Any]
    cov: Any
    size: int
    jacobian: Callable[[Array], Any] | None = None


def chain(
    latent_mean: Any,
    latent_cov: Any,
    layers: Sequence[Layer],
    function: Centres,
    action_cov: Any,
    n_actions: int,
    dim: int,
    jacobian: Centres | None = None,
) -> NonlinearHierarchy:
    """ψ_1 ~ N(μ, Σ), ψ_{l+1} | ψ_l ~ N(g_l(ψ_l), Λ_l), and θ_a | ψ_L ~ N(f_a(ψ_L), Σ_a), as one hierarchy.

    Its latent vector is (ψ_1, ε_2, ..., ε_L), independent in the prior, with ψ_{l+1} = g_l(ψ_l) + ε_{l+1}; Jacobians
    follow by the chain rule, so differences are taken layer by layer. `hierarchy.function.states(latent)` gives
    ψ_1 ... ψ_L back.

    Args:
        latent_mean: μ of the top layer.
        latent_cov: Σ of the top layer, in any form that `NonlinearHierarchy` takes.
        layers: From the top down; none makes a plain hierarchy.
        function: f of the lowest layer: function(ψ_L, actions) returns (m, d).
        action_cov: Σ_a.
        n_actions: K.
        dim: d.
        jacobian: ∂f/∂ψ_L: (m, d, length of ψ_L); by default central differences.

    Example: two traits of a region move five of a shop, which move what its customers respond to.

        >>> import numpy as np
        >>> from manyarms.nonlinear import Layer, chain
        >>> rng = np.random.default_rng(0)
        >>> down, loadings = rng.normal(size=(5, 2)), rng.normal(size=(100, 3, 5))
        >>> shop = Layer(lambda region: np.tanh(down @ region), cov=0.1, size=5)
        >>> chain(np.zeros(2), 1.0, [shop], lambda psi, actions: loadings[actions] @ psi, 0.1, n_actions=100, dim=3)
        NonlinearHierarchy(100 actions, d=3, latent_dim=7, function 'ChainedFunction')
    """
    mean = as_vector("latent_mean", latent_mean)
    given = [as_instance("layers", layer, Layer, "a sequence of Layer") for layer in layers]
    factor = BlockFactor.of(latent_cov, latent_dim=len(mean))
    sizes = [len(mean), *(as_count("size", layer.size) for layer in given)]
    stds = [_std(factor)]
    for layer in given:
        below = BlockFactor.of(layer.cov, latent_dim=layer.size)
        stds.append(_std(below))
        factor = factor.beside(below)
    composed = ChainedFunction(given, sizes, stds, Supplied("function", function), jacobian, dim)
    whole_mean = np.concatenate([mean, np.zeros(sum(sizes[1:]))])
    return NonlinearHierarchy(whole_mean, factor, composed, action_cov, n_actions, dim, composed.jacobian)


class ChainedFunction:
    """f_a of the lowest layer as a function of (ψ_1, ε_2, ..., ε_L); made by `chain`."""

    def __init__(
        self,
        layers: Sequence[Layer],
        sizes: Sequence[int],
        stds: Sequence[Float[Array, " q"]],
        function: Supplied,
        jacobian: Centres | None,
        dim: int,
    ):
        self._sizes, self._scales, self._dim = tuple(sizes), [usual_moves(std) for std in stds], dim
        self._steps = [Supplied(f"layer {i}'s function", layer.function) for i, layer in enumerate(layers)]
        self._slopes = [
            None if layer.jacobian is None else Supplied(f"layer {i}'s jacobian", layer.jacobian)
            for i, layer in enumerate(layers)
        ]
        self._function = function
        self._jacobian = None if jacobian is None else Supplied("jacobian", jacobian)

    def __call__(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d"]:
        return self._centre(self.states(latent)[-1], actions)

    def states(self, latent: Float[Array, " p"]) -> tuple[Float[Array, " q"], ...]:
        """ψ_1 ... ψ_L."""
        parts = np.split(latent, np.cumsum(self._sizes)[:-1])
        states = [parts[0]]
        for number, noise in enumerate(parts[1:]):
            states.append(self._step(number, states[-1]) + noise)
        return tuple(states)

    def jacobian(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d p"]:
        """∂f_a/∂(ψ_1, ε_2, ..., ε_L), by the chain rule."""
        states = self.states(latent)
        # ∂ψ_{l+1} = G_l ∂ψ_l + ∂ε_{l+1}: a block of columns joins with every layer.
        slope = np.eye(self._sizes[0])
        for number, state in enumerate(states[:-1]):
            slope = np.concatenate([self._slope(number, state) @ slope, np.eye(self._sizes[number + 1])], axis=1)
        return self._last_slope(states[-1], actions) @ slope

    def _step(self, number: int, state: Float[Array, " q"]) -> Float[Array, " r"]:
        return self._steps[number](state, None, (self._sizes[number + 1],), "(size,)")

    def _slope(self, number: int, state: Float[Array, " q"]) -> Float[Array, "r q"]:
        given = self._slopes[number]
        if given is not None:
            return given(state, None, (self._sizes[number + 1], len(state)), "(size, size above)")
        return central_differences(lambda psi: self._step(number, psi), state, self._scales[number])

    def _centre(self, state: Float[Array, " q"], actions: Int[Array, " m"]) -> Float[Array, "m d"]:
        return self._function(state, actions, (len(actions), self._dim), "(m, d)")

    def _last_slope(self, state: Float[Array, " q"], actions: Int[Array, " m"]) -> Float[Array, "m d q"]:
        if self._jacobian is not None:
            return self._jacobian(state, actions, (len(actions), self._dim, len(state)), "(m, d, size of last layer)")
        return central_differences(lambda psi: self._centre(psi, actions), state, self._scales[-1])


def _std(factor: BlockFactor) -> Float[Array, " p"]:
    return np.sqrt(np.einsum("jab,jab->ja", factor.blocks, factor.blocks)).reshape(-1)
