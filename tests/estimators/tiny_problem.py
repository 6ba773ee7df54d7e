"""A problem small enough to enumerate all its logs."""

import numpy as np

import manyarms as ma

# Two contexts, three actions, two rounds: 36 logs with their probabilities, and rewards 0 / 1 on top.
CONTEXTS = np.array([[1.0, 0.0], [0.0, 1.0]])
NU = np.array([0.4, 0.6])
LOGGING = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
TARGET = np.array([[0.1, 0.6, 0.3], [0.7, 0.2, 0.1]])
REWARD = np.array([[0.2, 0.9, 0.6], [0.5, 0.3, 0.8]])  # chances of a reward of one


class Rule(ma.Policy):
    """Probabilities by context, for the two contexts above."""

    def __init__(self, table):
        self.table, self.n_actions = table, table.shape[1]

    def choices(self, contexts, eligible):
        from manyarms.core.choices import Choices

        dense = self.table[contexts.argmax(axis=1)]
        if eligible is not None:
            dense = dense * eligible.toarray()
            dense = dense / dense.sum(axis=1, keepdims=True)
        return Choices(len(contexts), self.n_actions, dense=dense)


def model(rewards):
    """A posterior whose reward for context j and action a is rewards[j, a]."""
    empty = ma.LoggedData(np.empty((0, 2)), [], [], n_actions=rewards.shape[1])
    return ma.fit(empty, ma.priors.independent(rewards.shape[1], mean=np.asarray(rewards).T, cov=1.0))


def value(estimator, problem):
    logs, policy, _ = problem
    return estimator.estimate(policy, logs).value
