"""Code that processor and GPU share uses what the array API standard has and nothing else."""

import array_api_strict as xp
import numpy as np

from manyarms.gpu.click_sums import SiteSums
from manyarms.learners import Adam
from manyarms.learners.objective import Objective
from manyarms.likelihoods.sites import between


class StrictObjective(Objective):
    """-‖β - centre‖² / 2 of a few rounds, in arrays that allow no more than the standard."""

    def __init__(self, centres):
        object.__setattr__(self, "centres", centres)

    def __len__(self):
        return len(self.centres)

    def take(self, rows):
        return StrictObjective(self.centres[rows])

    def place_weights(self, weights):
        return xp.asarray(weights.copy())

    def as_array(self, weights):
        return np.array(weights)

    def value_and_gradient(self, weights):
        centre = xp.asarray(self.centres.mean(axis=0))
        return float(-xp.sum((weights - centre) ** 2)) / 2, centre - weights


def test_adam_takes_its_steps_in_any_arrays():
    centres = np.random.default_rng(0).normal(size=(40, 3, 2))
    reported = []

    def report(step, value, weights):
        reported.append((value, weights))
        return True

    optimiser, start = Adam(0.1, n_epochs=3, batch_size=16), np.zeros((3, 2))
    optimiser.maximise(StrictObjective(centres), report, np.random.default_rng(1), start)
    # Adam as its paper writes it, with corrected moments.
    rng, beta, step = np.random.default_rng(1), np.zeros((3, 2)), 0
    m, v = np.zeros((3, 2)), np.zeros((3, 2))
    for _, weights in reported:
        order = rng.permutation(40)
        for rows in (order[:16], order[16:32], order[32:]):
            step, gradient = step + 1, centres[rows].mean(axis=0) - beta
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            beta = beta + 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        assert isinstance(weights, np.ndarray)
        np.testing.assert_allclose(weights, beta, rtol=1e-12)


def test_sums_of_sites_move_along_a_straight_line_in_any_arrays():
    rng = np.random.default_rng(2)
    shapes = (4, 3, 3), (4, 3), (4,), (), (9,), (9,)
    old, new = ([rng.normal(size=shape) for shape in shapes] for _ in range(2))
    moved = between(*(SiteSums(*map(xp.asarray, parts)) for parts in (old, new)), 0.25)
    parts = moved.gram, moved.moment, moved.square, moved.weight, moved.weights, moved.linears
    for got, start, end in zip(parts, old, new, strict=True):
        np.testing.assert_allclose(np.asarray(got), 0.75 * start + 0.25 * end, rtol=1e-14)
