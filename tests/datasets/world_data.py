"""Random numbers, and a policy that depends on the context."""

import numpy as np

import manyarms as ma
from manyarms.core.choices import Choices


def rng(seed=0):
    return np.random.default_rng(seed)


class Tilted(ma.Policy):
    """Softmax of fixed scores: depends on the context, and has probabilities of the dense form."""

    def __init__(self, weights):
        self.weights, (self.n_actions, self.dim) = weights, weights.shape

    def choices(self, contexts, eligible):
        scores = np.exp(contexts @ self.weights.T)
        scores = scores if eligible is None else scores * eligible.toarray()
        return Choices(len(contexts), self.n_actions, dense=scores / scores.sum(axis=1, keepdims=True))
