"""Small logs and every learner with its estimator."""

import numpy as np
import pytest

import manyarms as ma

N, K, D = 150, 7, 3  # blocks have at least 32 rounds, so that these make five blocks in four lanes
rng = np.random.default_rng(3)
CLUSTERS = np.array([0, 1, 2, 0, 1, 2, 0])
EMBEDDINGS = rng.normal(size=(K, 2))


def make_logs(n=N, seed=0, **known):
    """Rounds of a random softmax policy; rewards are not negative, so that every learner takes them."""
    rng = np.random.default_rng(seed)
    logging = ma.LinearSoftmax(0.7 * rng.normal(size=(K, D)))
    contexts = rng.normal(size=(n, D))
    actions = logging.sample(contexts, rng)
    known = {
        "propensities": logging.probability_of(contexts, actions),
        "logging_policy": logging,
        "weights": rng.integers(0, 4, n) + 0.25 * rng.integers(0, 2, n),
    } | known
    return ma.LoggedData(contexts, actions, rng.gamma(2.0, size=n), n_actions=K, **known)


def prior():
    return ma.priors.independent(K, mean=0.3, cov=0.5, dim=D)


def model():
    """A posterior of other rounds."""
    return ma.fit(make_logs(80, seed=9), prior())


def cross_fit():
    return ma.CrossFit(prior(), n_folds=3, rng=np.random.default_rng(4))


MAKERS = {
    "IPS": (ma.IPSLearner, ma.IPS),
    "IPS clipped": (lambda **kw: ma.IPSLearner(0.2, **kw), lambda: ma.IPS(0.2)),
    "snIPS": (ma.SNIPSLearner, ma.SNIPS),
    "DR": (lambda **kw: ma.DRLearner(model(), 0.1, **kw), lambda: ma.DR(model(), 0.1)),
    "DR cross-fitted": (lambda **kw: ma.DRLearner(cross_fit(), **kw), lambda: ma.DR(cross_fit())),
    "MIPS": (lambda **kw: ma.MIPSLearner(CLUSTERS, **kw), lambda: ma.MIPS(CLUSTERS)),
    "PC": (
        lambda **kw: ma.PolicyConvolutionLearner(EMBEDDINGS, 3, 0.05, **kw),
        lambda: ma.PolicyConvolution(EMBEDDINGS, 3, 0.05),
    ),
    "LS": (
        lambda **kw: ma.LogarithmicSmoothingLearner(0.3, **kw),
        lambda: ma.LogarithmicSmoothing(0.3),
    ),
    "LS at 0": (lambda **kw: ma.LogarithmicSmoothingLearner(0.0, **kw), ma.IPS),
}
every_learner = pytest.mark.parametrize("which", MAKERS)
with_and_without_eligible = pytest.mark.parametrize("restricted", [False, True], ids=["all", "eligible"])


def make_learner(which, **kw):
    return MAKERS[which][0](**kw)


def random_policy(seed=5, n_actions=K):
    return ma.LinearSoftmax(np.random.default_rng(seed).normal(size=(n_actions, D)))


def bandit(n, seed):
    """Three kinds of customers, four actions, binary rewards: a table that a linear softmax can follow."""
    rng = np.random.default_rng(seed)
    chances = np.array([[0.1, 0.2, 0.3, 0.8], [0.7, 0.1, 0.4, 0.2], [0.3, 0.3, 0.9, 0.1]])
    kind, actions = rng.integers(0, 3, n), rng.integers(0, 4, n)
    rewards = (rng.random(n) < chances[kind, actions]).astype(float)
    logs = ma.LoggedData(np.eye(3)[kind], actions, rewards, np.full(n, 0.25), 4, logging_policy=ma.Uniform(4))
    return logs, chances
