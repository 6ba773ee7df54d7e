"""Training of a softmax policy: penalties, early stopping, and the optimisers L-BFGS and Adam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from manyarms._base.checks import Array, as_count, as_instance, as_scalar
from manyarms._base.rng import as_generator, split
from manyarms.errors import InputError
from manyarms.gpu.device import CPU, as_device
from manyarms.learners.device_objective import DeviceObjective
from manyarms.learners.objective import Criterion, Objective
from manyarms.learners.training_rounds import TrainingRounds
from manyarms.linalg.indexing import chunks


@dataclass(frozen=True)
class TrainingStep:
    """One step of training, as reported to `Training(progress=...)`.

    Attributes:
        step: The number of iterations of L-BFGS, or of epochs of Adam, so far.
        objective: The objective on the training rounds, penalties included; with Adam, its mean over batches.
        held_out: The criterion on the held-out rounds, without penalties; None when no rounds are held out.
    """

    step: int
    objective: float
    held_out: float | None


class Training:
    """Settings that all learners of softmax policies share.

    Args:
        optimiser: `LBFGS()` or `Adam()`.
        holdout: The share of rounds (of groups, when the logs have them) held out of training. After every step the
            criterion is computed on them, without penalties, and the best weights so far are kept.
        patience: The number of steps without a new best on the held-out rounds after which training stops.
        imitation: ρ of a term ρ mean log π(a_i | x_i), the cross-entropy towards the logged actions, which is least at
            the logging policy. It needs no propensities. In units of the reward; 0 for none.
        ridge: λ of a penalty λ/2 ‖β‖²; 0 for none.
        rng: A NumPy generator, needed to hold out rounds and to draw minibatches. It is read once, here, so that the
            same learner learns the same from the same logs.
        progress: Called with a `TrainingStep` after every step.
        device: "cuda" computes objectives and gradients on a GPU, up to rounding the same (docs/gpu.md).
    """

    def __init__(
        self,
        optimiser: Optimiser | None = None,
        *,
        holdout: float = 0.0,
        patience: int = 10,
        imitation: float = 0.0,
        ridge: float = 1e-4,
        rng: np.random.Generator | None = None,
        progress: Callable[[TrainingStep], None] | None = None,
        device: str = CPU,
    ):
        optimiser = LBFGS() if optimiser is None else optimiser
        self.optimiser = as_instance("optimiser", optimiser, Optimiser, "LBFGS() or Adam(...)")
        self.holdout = as_scalar("holdout", holdout, at_least=0.0, below=1.0)
        self.patience = as_count("patience", patience)
        self.imitation = as_scalar("imitation", imitation, at_least=0.0)
        self.ridge = as_scalar("ridge", ridge, at_least=0.0)
        if rng is None and (self.holdout > 0 or self.optimiser.stochastic):
            raise InputError(
                "held-out rounds and minibatches are drawn at random.", "Pass rng=np.random.default_rng(seed)."
            )
        self._seed = 0 if rng is None else int(as_generator(rng).integers(0, 1 << 63))
        self.progress = progress
        self.device = as_device(device)

    def objective(self, rounds: TrainingRounds, criterion: Criterion) -> Objective:
        """The objective on these rounds, penalties included."""
        return self._placed(Objective(rounds, criterion, imitation=self.imitation, ridge=self.ridge))

    def estimate(self, rounds: TrainingRounds, criterion: Criterion) -> Objective:
        """The objective on these rounds without penalties."""
        return self._placed(Objective(rounds, criterion))

    def _placed(self, objective: Objective) -> Objective:
        return objective if self.device == CPU else DeviceObjective.place(objective, self.device)

    def weights_for(self, rounds: TrainingRounds, criterion: Criterion, units: Array | None) -> Float[Array, "K d"]:
        """The weights that training on these rounds ends with, some held out by `units`, the group of each round."""
        holdout_rng, order_rng = split(np.random.default_rng(self._seed), "holdout", "order")
        held = self._held_out(np.arange(len(rounds)) if units is None else units, holdout_rng)
        held_objective = self.estimate(rounds.take(np.flatnonzero(held)), criterion) if held.any() else None
        objective = self.objective(rounds.take(np.flatnonzero(~held)) if held.any() else rounds, criterion)
        best, best_step = np.zeros(objective.shape), 0
        best_value = -np.inf if held_objective is None else held_objective.value(best)

        def report(step: int, value: float, weights: Float[Array, "K d"]) -> bool:
            # The best weights on the held-out rounds are kept; without any, the last ones.
            nonlocal best, best_step, best_value
            held_value = None if held_objective is None else held_objective.value(weights)
            if self.progress is not None:
                self.progress(TrainingStep(step, value, held_value))
            if held_value is None or held_value > best_value:
                best, best_step = weights, step
                best_value = best_value if held_value is None else held_value
            return step - best_step < self.patience

        self.optimiser.maximise(objective, report, order_rng)
        return best

    def _held_out(self, units: Array, rng: np.random.Generator) -> Bool[Array, " n"]:
        names, unit = np.unique(units, return_inverse=True)
        if self.holdout == 0:
            return np.zeros(len(units), dtype=bool)
        n_held = round(self.holdout * len(names))
        if not 0 < n_held < len(names):
            raise InputError(
                f"must hold out at least one round or group and leave one to learn from; {self.holdout} holds out "
                f"{n_held} of {len(names)}.",
                argument="holdout",
            )
        return rng.permutation(len(names))[unit] < n_held


Report = Callable[[int, float, Float[Array, "K d"]], bool]
"""Called after every step with its number, the objective and the weights. Training stops when it returns False."""


class Optimiser(ABC):
    """An optimiser for training: it maximises an objective, reports every step and keeps no state."""

    stochastic: bool = False

    @abstractmethod
    def maximise(self, objective: Objective, report: Report, rng: np.random.Generator) -> None:
        """Climb from zero weights, the uniform policy, until there is nothing to gain or `report` returns False."""


class LBFGS(Optimiser):
    """Training by L-BFGS on all rounds at once: the objective never falls, and no randomness is involved.

    Args:
        max_iterations: Largest number of steps.
        tolerance: Training stops when no entry of the gradient is larger.
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
            # SciPy goes on working in its own array; the reported weights must not change afterwards.
            weights = np.array(intermediate_result.x).reshape(shape)
            if not report(step, -float(intermediate_result.fun), weights):
                raise StopIteration

        options = {"maxiter": self.max_iterations, "gtol": self.tolerance, "ftol": 1e-12}
        start = np.zeros(objective.shape).reshape(-1)
        minimize(downhill, start, jac=True, method="L-BFGS-B", callback=after, options=options)


class Adam(Optimiser):
    """Training by Adam on minibatches (Kingma and Ba): for so many rounds that a full pass per step costs too much.

    Args:
        learning_rate: The size of a step.
        n_epochs: Largest number of passes over the rounds. Each is reported as one step.
        batch_size: The number of rounds per minibatch.
    """

    stochastic = True

    def __init__(self, learning_rate: float = 0.05, n_epochs: int = 30, batch_size: int = 256):
        self.learning_rate = as_scalar("learning_rate", learning_rate, above=0.0)
        self.n_epochs = as_count("n_epochs", n_epochs)
        self.batch_size = as_count("batch_size", batch_size)

    def maximise(self, objective: Objective, report: Report, rng: np.random.Generator) -> None:
        weights, n, steps = objective.start(), len(objective), 0
        first, second = 0.0 * weights, 0.0 * weights
        for epoch in range(1, self.n_epochs + 1):
            order, value = rng.permutation(n), 0.0
            for batch in chunks(n, self.batch_size):
                batch_value, gradient = objective.take(order[batch]).value_and_gradient(weights)
                value += batch_value * (batch.stop - batch.start) / n
                steps += 1
                first += (1 - _DECAY) * (gradient - first)
                second += (1 - _SQUARE_DECAY) * (gradient**2 - second)
                # Both means start at zero; dividing by the weight they have gathered takes that out.
                spread = (second / (1 - _SQUARE_DECAY**steps)) ** 0.5
                weights += self.learning_rate * (first / (1 - _DECAY**steps) / (spread + 1e-8))
            if not report(epoch, value, objective.as_array(weights)):
                return


_DECAY, _SQUARE_DECAY = 0.9, 0.999
"""Shares of the running means of the gradient and of its square that a step keeps."""
