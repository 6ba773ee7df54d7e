"""How a softmax policy is trained: which optimiser, which penalties, when to stop.

Ways up an objective: L-BFGS on all rounds, Adam on minibatches.
"""

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
from manyarms.learners.objective import Criterion, Objective
from manyarms.learners.training_rounds import TrainingRounds
from manyarms.linalg.indexing import chunks


@dataclass(frozen=True)
class TrainingStep:
    """Where training stands.

    Attributes:
        step: Iterations of L-BFGS, epochs of Adam.
        objective: What is maximised, penalties included, on the rounds trained on; with Adam, its mean over batches.
        held_out: The criterion without penalties on the rounds held out; None when none are.
    """

    step: int
    objective: float
    held_out: float | None


class Training:
    """What all learners of softmax policies share.

    Args:
        optimiser: `LBFGS()` or `Adam()`.
        holdout: The share of rounds (of groups, when the logs have them) held out of training. After every step the
            criterion is computed on them, without penalties, and the best weights so far are kept.
        patience: How many steps without a new best the held-out rounds are given.
        imitation: ρ of a term ρ mean log π(a_i | x_i): the cross-entropy towards the logged actions, which is least at
            the logging policy; no propensity is needed for it. In units of the reward; 0 for none.
        ridge: λ of a penalty λ/2 ‖β‖²; 0 for none.
        rng: A NumPy generator; needed to hold out rounds and to draw minibatches. It is read once, here, so that the
            same learner learns the same from the same logs.
        progress: Called with a `TrainingStep` after every step.
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
    ):
        self.optimiser = as_instance("optimiser", optimiser or LBFGS(), Optimiser, "LBFGS() or Adam(...)")
        self.holdout = as_scalar("holdout", holdout, at_least=0.0, below=1.0)
        self.patience = as_count("patience", patience)
        self.imitation = as_scalar("imitation", imitation, at_least=0.0)
        self.ridge = as_scalar("ridge", ridge, at_least=0.0)
        if rng is None and (self.holdout > 0 or self.optimiser.stochastic):
            raise InputError("holding rounds out and minibatches need chance: pass rng=np.random.default_rng(seed).")
        self._seed = 0 if rng is None else int(as_generator(rng).integers(0, 1 << 63))
        self.progress = progress

    def objective(self, problem: TrainingRounds, criterion: Criterion) -> Objective:
        """What is maximised on these rounds, penalties included."""
        return Objective(problem, criterion, imitation=self.imitation, ridge=self.ridge)

    def weights_for(
        self, problem: TrainingRounds, criterion: Criterion, units: Array | None = None
    ) -> Float[Array, "K d"]:
        """The weights that training ends with.

        Args:
            problem: The rounds.
            criterion: F.
            units: (n,) which rounds belong together; None when each stands alone.
        """
        holdout_rng, order_rng = split(np.random.default_rng(self._seed), "holdout", "order")
        held = self._held_out(np.arange(len(problem)) if units is None else units, holdout_rng)
        watch = _Watch(Objective(problem.take(np.flatnonzero(held)), criterion) if held.any() else None, self)
        trained_on = problem.take(np.flatnonzero(~held)) if held.any() else problem
        objective = self.objective(trained_on, criterion)
        watch.begin(np.zeros(objective.shape))
        self.optimiser.maximise(objective, watch.report, order_rng)
        return watch.best

    def _held_out(self, units: Array, rng: np.random.Generator) -> Bool[Array, " n"]:
        names, unit = np.unique(units, return_inverse=True)
        if self.holdout == 0:
            return np.zeros(len(units), dtype=bool)
        n_held = round(self.holdout * len(names))
        if not 0 < n_held < len(names):
            raise InputError(
                f"holdout={self.holdout} leaves {n_held} of {len(names)} rounds or groups to judge on; "
                "at least one is needed, and one to learn from."
            )
        return rng.permutation(len(names))[unit] < n_held


class _Watch:
    """Keeps the weights to end with: the best on the rounds held out, or else the last."""

    def __init__(self, held: Objective | None, training: Training):
        self._held, self._patience, self._progress = held, training.patience, training.progress
        self._best_value, self._best_step = -np.inf, 0

    def begin(self, weights: Float[Array, "K d"]) -> None:
        self.best: Float[Array, "K d"] = weights
        if self._held is not None:
            self._best_value = self._held.value(weights)

    def report(self, step: int, value: float, weights: Float[Array, "K d"]) -> bool:
        held = None if self._held is None else self._held.value(weights)
        if self._progress is not None:
            self._progress(TrainingStep(step, value, held))
        if held is None or held > self._best_value:
            self.best, self._best_step = weights, step
            self._best_value = self._best_value if held is None else held
        return step - self._best_step < self._patience


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
        moments = _GradientMoments(objective.shape)
        for epoch in range(1, self.n_epochs + 1):
            order, value = rng.permutation(n), 0.0
            for batch in chunks(n, self.batch_size):
                found, gradient = objective.take(order[batch]).value_and_gradient(weights)
                value += found * (batch.stop - batch.start) / n
                weights += self.learning_rate * moments.direction(gradient)
            if not report(epoch, value, weights.copy()):
                return


class _GradientMoments:
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
