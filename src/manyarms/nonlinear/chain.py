"""Several latent layers, one above the other, written as one latent vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_count, as_instance, as_vector
from manyarms.core.latent_covariance import BlockFactor
from manyarms.nonlinear.nonlinear_hierarchy import (
    Centres,
    NonlinearHierarchy,
    Supplied,
    central_differences,
    usual_moves,
)


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
        function: f, of the lowest layer: function(ψ_L, actions) returns (m, d).
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
        found = [parts[0]]
        for number, noise in enumerate(parts[1:]):
            found.append(self._step(number, found[-1]) + noise)
        return tuple(found)

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
