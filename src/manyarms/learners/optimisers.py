"""Ways up an objective: L-BFGS on all rounds, Adam on minibatches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array, as_count, as_scalar
from manyarms.learners.objective import Objective
from manyarms.linalg.groups import chunks

Report = Callable[[int, float, Float[Array, "K d"]], bool]
"""Called after every step with its number, the objective and the weights; False says to stop."""


class Optimiser(ABC):
    """A rule for moving weights uphill; it reports every step and keeps nothing."""

    stochastic: bool = False

    @abstractmethod
    def maximise(self, objective: Objective, report: Report, rng: np.random.Generator) -> None:
        """Climb from zero weights, the uniform policy, until there is nothing to gain or `report` says to stop."""


class LBFGS(Optimiser):
    """L-BFGS on all rounds at once: the objective never falls, and no randomness is involved.

    Args:
        max_iterations: Steps at most.
        tolerance: Stop when no entry of the gradient is larger.
    """

    def __init__(self, max_iterations: int = 100, tolerance: float = 1e-6):
        self.max_iterations = as_count("max_iterations", max_iterations)
        self.tolerance = as_scalar("tolerance", tolerance, at_least=0.0)

    def maximise(self, objective: Objective, report: Report, rng: np.random.Generator) -> None:
        from scipy.optimize import minimize  # noqa: PLC0415  slow to import

        shape, step = objective.shape, 0

        def downhill(flat: Float[Array, " p"]) -> tuple[float, Float[Array, " p"]]:
            value, gradient = objective.value_and_gradient(flat.reshape(shape))
            return -value, -gradient.reshape(-1)

        def after(intermediate_result: Any) -> None:
            nonlocal step
            step += 1
            # SciPy goes on working in its own array; what is reported must not change under the reader's hands.
            weights = np.array(intermediate_result.x).reshape(shape)
            if not report(step, -float(intermediate_result.fun), weights):
                raise StopIteration

        options = {"maxiter": self.max_iterations, "gtol": self.tolerance, "ftol": 1e-12}
        start = np.zeros(objective.shape).reshape(-1)
        minimize(downhill, start, jac=True, method="L-BFGS-B", callback=after, options=options)


class Adam(Optimiser):
    """Adam on minibatches (Kingma and Ba): for more rounds than a full pass a step can afford.

    Args:
        learning_rate: The size of a step.
        n_epochs: Passes over the rounds at most; an epoch is one step of the report.
        batch_size: Rounds a minibatch.
    """

    stochastic = True

    def __init__(self, learning_rate: float = 0.05, n_epochs: int = 30, batch_size: int = 256):
        self.learning_rate = as_scalar("learning_rate", learning_rate, above=0.0)
        self.n_epochs = as_count("n_epochs", n_epochs)
        self.batch_size = as_count("batch_size", batch_size)

    def maximise(self, objective: Objective, report: Report, rng: np.random.Generator) -> None:
        weights, n = np.zeros(objective.shape), len(objective)
        moments = _Moments(objective.shape)
        for epoch in range(1, self.n_epochs + 1):
            order, value = rng.permutation(n), 0.0
            for batch in chunks(n, self.batch_size):
                found, gradient = objective.take(order[batch]).value_and_gradient(weights)
                value += found * (batch.stop - batch.start) / n
                weights += self.learning_rate * moments.direction(gradient)
            if not report(epoch, value, weights.copy()):
                return


class _Moments:
    """Running means of the gradient and of its square."""

    def __init__(self, shape: tuple[int, int]):
        self._first, self._second, self._steps = np.zeros(shape), np.zeros(shape), 0

    def direction(self, gradient: Float[Array, "K d"]) -> Float[Array, "K d"]:
        self._steps += 1
        self._first += (1 - _DECAY) * (gradient - self._first)
        self._second += (1 - _SQUARE_DECAY) * (gradient**2 - self._second)
        # Both means start at zero; dividing by the weight they have gathered takes that out.
        first = self._first / (1 - _DECAY**self._steps)
        second = self._second / (1 - _SQUARE_DECAY**self._steps)
        return first / (np.sqrt(second) + 1e-8)


_DECAY, _SQUARE_DECAY = 0.9, 0.999
