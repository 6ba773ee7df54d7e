"""Training of a softmax policy: penalties, early stopping, and the optimisers L-BFGS and Adam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
        step: The number of iterations of L-BFGS, or of epochs of Adam, so far, with all penalties.
        objective: The objective on the training rounds, penalties included; with Adam, its mean over batches.
        held_out: The criterion on the held-out rounds, without penalties; None when no rounds are held out.
        ridge: λ.
    """

    step: int
    objective: float
    held_out: float | None
    ridge: float = 0.0


class Training:
    """Settings that all learners of softmax policies share.

    Args:
        optimiser: `LBFGS()` or `Adam()`.
        holdout: The share of rounds (of groups, when the logs have them) held out of training. After every step the
            criterion is computed on them, without penalties, and the best weights so far are kept.
        patience: The number of steps without a new best on the held-out rounds after which training stops.
        imitation: ρ of a term ρ mean log π(a_i | x_i), the cross-entropy towards the logged actions, which is least at
            the logging policy. It needs no propensities. In units of the reward; 0 for none.
        ridge: λ of a penalty λ/2 ‖β‖²; 0 for none. Of several, the held-out rounds choose one: training goes from the
            largest to the smallest, each time from where the last one ended, which takes far fewer steps.
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
        ridge: float | Sequence[float] | Float[Array, " m"] = 1e-4,
        rng: np.random.Generator | None = None,
        progress: Callable[[TrainingStep], None] | None = None,
        device: str = CPU,
    ):
        optimiser = LBFGS() if optimiser is None else optimiser
        self.optimiser = as_instance("optimiser", optimiser, Optimiser, "LBFGS() or Adam(...)")
        self.holdout = as_scalar("holdout", holdout, at_least=0.0, below=1.0)
        self.patience = as_count("patience", patience)
        self.imitation = as_scalar("imitation", imitation, at_least=0.0)
        self.ridges = _as_ridges(ridge)
        if len(self.ridges) > 1 and self.holdout == 0:
            raise InputError(
                "several penalties are compared on held-out rounds.", "Pass holdout=0.2 and rng.", argument="ridge"
            )
        if rng is None and (self.holdout > 0 or self.optimiser.stochastic):
            raise InputError(
                "held-out rounds and minibatches are drawn at random.", "Pass rng=np.random.default_rng(seed)."
            )
        self._seed = 0 if rng is None else int(as_generator(rng).integers(0, 1 << 63))
        self.progress = progress
        self.device = as_device(device)

    def objective(self, rounds: TrainingRounds, criterion: Criterion) -> Objective:
        """The objective on these rounds, penalties included: with several, the largest."""
        return self._placed(Objective(rounds, criterion, imitation=self.imitation, ridge=self.ridges[0]))

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
        course = _Course(np.zeros(objective.shape), held_objective, self.patience, self.progress)
        for ridge in self.ridges:
            course.begin(ridge)
            self.optimiser.maximise(replace(objective, ridge=ridge), course.report, order_rng, course.last)
        return course.best

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


class _Course:
    """The course of a training: the last weights, and the best ones on held-out rounds, if there are any of these."""

    def __init__(
        self,
        start: Float[Array, "K d"],
        held_out: Objective | None,
        patience: int,
        progress: Callable[[TrainingStep], None] | None,
    ):
        self._held_out, self._patience, self._progress = held_out, patience, progress
        self.last = self.best = start
        self._step = 0
        self._value = self._best_value = -np.inf if held_out is None else held_out.value(start)

    def begin(self, ridge: float) -> None:
        """Begin with another penalty, from the last weights."""
        self._ridge, self._best_step, self._best_here = ridge, 0, self._value
        self._earlier_steps = self._step

    def report(self, step: int, objective: float, weights: Float[Array, "K d"]) -> bool:
        """Take the weights of a step; False if training is to stop."""
        held_value = None if self._held_out is None else self._held_out.value(weights)
        self._step, self.last = self._earlier_steps + step, weights
        if self._progress is not None:
            self._progress(TrainingStep(self._step, objective, held_value, self._ridge))
        if held_value is None:
            self.best = weights
            return True
        self._value = held_value
        if held_value > self._best_value:
            self.best, self._best_value = weights, held_value
        if held_value > self._best_here:
            self._best_here, self._best_step = held_value, step
        return step - self._best_step < self._patience


def _as_ridges(ridge: Any) -> tuple[float, ...]:
    """The penalties, each once, from the largest."""
    several = np.ndim(ridge) == 1
    given = [as_scalar("ridge", value, at_least=0.0) for value in (ridge if several else [ridge])]
    if not given:
        raise InputError("holds no penalty.", "Pass a number, or several numbers to choose from.", argument="ridge")
    return tuple(sorted(set(given), reverse=True))


Report = Callable[[int, float, Float[Array, "K d"]], bool]
"""Called after every step with its number, the objective and the weights. Training stops when it returns False."""


class Optimiser(ABC):
    """An optimiser for training: it maximises an objective, reports every step and keeps no state."""

    stochastic: bool = False

    @abstractmethod
    def maximise(
        self, objective: Objective, report: Report, rng: np.random.Generator, start: Float[Array, "K d"]
    ) -> None:
        """Climb from some weights until there is nothing to gain or `report` returns False; zeros are uniform."""


class LBFGS(Optimiser):
    """Training by L-BFGS on all rounds at once: the objective never falls, and no randomness is involved.

    Args:
        max_iterations: Largest number of steps.
        tolerance: Training stops when no entry of the gradient is larger.
    """

    def __init__(self, max_iterations: int = 100, tolerance: float = 1e-6):
        self.max_iterations = as_count("max_iterations", max_iterations)
        self.tolerance = as_scalar("tolerance", tolerance, at_least=0.0)

    def maximise(
        self, objective: Objective, report: Report, rng: np.random.Generator, start: Float[Array, "K d"]
    ) -> None:
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
        minimize(downhill, start.reshape(-1), jac=True, method="L-BFGS-B", callback=after, options=options)


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

    def maximise(
        self, objective: Objective, report: Report, rng: np.random.Generator, start: Float[Array, "K d"]
    ) -> None:
        weights, n, steps = objective.place_weights(start), len(objective), 0
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
