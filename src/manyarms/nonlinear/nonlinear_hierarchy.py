"""The prior: a latent ψ, of one layer or several, and action weights around any smooth function of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_floats, as_instance, as_vector, check_callable, frozen
from manyarms._base.rng import split
from manyarms.core import MAX_DENSE, ActionCovariance, BlockFactor, DenseMixing, HierarchicalGaussian, LoggedData
from manyarms.core.latent_covariance import check_dense_size
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
        self._smooth = SmoothFunction("", function, jacobian, _std(self.latent_factor))

    def __repr__(self) -> str:
        return (
            f"NonlinearHierarchy({self.n_actions:,} actions, d={self.dim}, latent_dim={self.latent_dim}, "
            f"{self._smooth.name})"
        )

    @property
    def latent_dim(self) -> int:
        """d'."""
        return len(self.latent_mean)

    def centre(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d"]:
        """f_a(ψ) of the actions asked for."""
        if len(actions) == 0:
            return np.zeros((0, self.dim))
        return self._smooth(latent, actions, (len(actions), self.dim), "(m, d)")

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
        return self._smooth.slope(latent, actions, shape[:2], "(m, d, d')")

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
    """Check that a nonlinear hierarchy has the features and the actions of these logs."""
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


class SmoothFunction:
    """A function of ψ in a hierarchy that the user passed, and its derivative: theirs, or central differences.

    Errors name the `owner`, a layer. Steps follow `std`, how far ψ usually moves, where it is between zero and one.
    """

    def __init__(self, owner: str, function: Any, jacobian: Any, std: Float[Array, " p"]):
        self._function, self._jacobian = function, jacobian
        self._scale = np.where(std > 0, np.minimum(std, 1.0), 1.0)
        self.name, self._slope_name = _name_of(f"{owner}function", function), ""
        if jacobian is not None:
            self._slope_name = _name_of(f"{owner}jacobian", jacobian)

    def __call__(
        self, latent: Float[Array, " p"], actions: Int[Array, " m"] | None, shape: tuple[int, ...], meaning: str
    ) -> Float[Array, "..."]:
        """The value of the function for some actions (None: it takes ψ alone), checked to have a shape and be finite.

        `meaning` is the shape in letters, for the error.
        """
        return _checked_value(self._function, self.name, latent, actions, shape, meaning)

    def slope(
        self, latent: Float[Array, " p"], actions: Int[Array, " m"] | None, shape: tuple[int, ...], meaning: str
    ) -> Float[Array, "... p"]:
        """The derivative by ψ of a value of this shape; `meaning` is the shape of the derivative in letters.

        Differences take 2 d' calls; their error is about 1e-10 of what the function changes by within the usual moves.
        """
        if self._jacobian is not None:
            whole = (*shape, len(latent))
            return _checked_value(self._jacobian, self._slope_name, latent, actions, whole, meaning)
        # A step below the rounding of ψ itself would be lost.
        steps = STEP * np.maximum(self._scale, np.abs(latent))
        slopes = np.zeros((*shape, len(latent)))
        for j, step in enumerate(steps):
            low, high = np.array(latent), np.array(latent)
            low[j] -= step
            high[j] += step
            rise = self(high, actions, shape, meaning) - self(low, actions, shape, meaning)
            # The distance that floating point makes of two steps, not the one asked for.
            slopes[..., j] = rise / (high[j] - low[j])
        return slopes


def _name_of(role: str, function: Any) -> str:
    """The name under which errors speak of a function, for instance "function 'tanh_centres'"."""
    if not callable(function):
        raise DataTypeError(f"must be a function; got {type(function).__name__}.", argument=role)
    return f"{role} {getattr(function, '__name__', type(function).__name__)!r}"


def _checked_value(
    function: Any,
    name: str,
    latent: Float[Array, " p"],
    actions: Int[Array, " m"] | None,
    shape: tuple[int, ...],
    meaning: str,
) -> Float[Array, "..."]:
    at = frozen(latent)
    value = function(at) if actions is None else function(at, frozen(actions))
    try:
        # A copy: a function may return the same buffer again and again.
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise DataTypeError(f"must return numbers: {cause}", argument=name) from cause
    asked = "" if actions is None else f" when asked for {len(actions)} actions, the first of them {actions[0]}"
    if array.shape != shape:
        raise ShapeError(f"must return shape {meaning} = {shape}{asked}; got {array.shape}.", argument=name)
    if not np.isfinite(array).all():
        where = tuple(np.argwhere(~np.isfinite(array))[0])
        place = f"entry {int(where[0])}" if actions is None else f"action {int(actions[where[0]])}"
        psi = np.array2string(latent, precision=4, threshold=6)
        raise NonFiniteError(
            f"must return finite numbers; {place} has {array[where]} at latent {psi}.",
            "Bound the function, or narrow latent_cov if such values are not meant.",
            argument=name,
        )
    return array


@dataclass(frozen=True)
class Layer:
    """One latent layer of a hierarchy below another: ψ' | ψ ~ N(g(ψ), Λ).

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

    def __post_init__(self) -> None:
        check_callable("function", self.function)
        as_floats("cov", self.cov, ndim=(0, 1, 2, 3))
        as_count("size", self.size)
        if self.jacobian is not None:
            check_callable("jacobian", self.jacobian)


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
    factor = BlockFactor.of(latent_cov, latent_dim=len(mean))
    std, steps, sizes = _std(factor), list[SmoothFunction](), [len(mean)]
    layers = as_instance("layers", layers, Sequence, "a sequence of Layer")
    for number, layer in enumerate(as_instance("layers", layer, Layer, "a sequence of Layer") for layer in layers):
        sizes.append(as_count("size", layer.size))
        steps.append(SmoothFunction(f"layer {number}'s ", layer.function, layer.jacobian, std))
        below = BlockFactor.of(layer.cov, latent_dim=layer.size)
        std, factor = _std(below), factor.beside(below)
    composed = ChainedFunction(steps, sizes, SmoothFunction("", function, jacobian, std), dim)
    whole_mean = np.concatenate([mean, np.zeros(sum(sizes[1:]))])
    return NonlinearHierarchy(whole_mean, factor, composed, action_cov, n_actions, dim, composed.jacobian)


class ChainedFunction:
    """f_a of the lowest layer of a hierarchy as a function of (ψ_1, ε_2, ..., ε_L); made by `chain`."""

    def __init__(self, steps: Sequence[SmoothFunction], sizes: Sequence[int], last: SmoothFunction, dim: int):
        self._steps, self._sizes, self._last, self._dim = steps, sizes, last, dim

    def __call__(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d"]:
        return self._last(self.states(latent)[-1], actions, (len(actions), self._dim), "(m, d)")

    def states(self, latent: Float[Array, " p"]) -> tuple[Float[Array, " q"], ...]:
        """ψ_1 ... ψ_L."""
        first, *rest = np.split(latent, np.cumsum(self._sizes)[:-1])
        states = [first]
        for step, noise in zip(self._steps, rest, strict=True):
            states.append(step(states[-1], None, noise.shape, "(size,)") + noise)
        return tuple(states)

    def jacobian(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d p"]:
        """∂f_a/∂(ψ_1, ε_2, ..., ε_L), by the chain rule."""
        *above, lowest = self.states(latent)
        # ∂ψ_{l+1} = G_l ∂ψ_l + ∂ε_{l+1}: a block of columns joins with every layer.
        slope = np.eye(self._sizes[0])
        for step, state, size in zip(self._steps, above, self._sizes[1:], strict=True):
            down = step.slope(state, None, (size,), "(size, size above)")
            slope = np.concatenate([down @ slope, np.eye(size)], axis=1)
        return self._last.slope(lowest, actions, (len(actions), self._dim), "(m, d, size of last layer)") @ slope


def _std(factor: BlockFactor) -> Float[Array, " p"]:
    """The standard deviation of each coordinate of ψ."""
    return np.sqrt(np.einsum("jab,jab->ja", factor.blocks, factor.blocks)).reshape(-1)
