"""Methods side by side: each judges a target or learns a policy from the same task.

A method of one's own is a subclass of `Method` with a `name` and one or both of `estimate` and `learn`;
`manyarms reproduce --method file.py:Class` puts it into every figure.

The posterior without its structure: what sDM saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from manyarms.core.estimate import Estimate
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.policy import Policy
from manyarms.estimators.estimator import Estimator
from manyarms.estimators.importance_weighted import DR, IPS, SNIPS
from manyarms.estimators.reward_model import CrossFit
from manyarms.estimators.set_weighted import MIPS, OffCEM, PolicyConvolution
from manyarms.experiments.problem import Kind, Known, Task
from manyarms.learners import Learner
from manyarms.learners.training import Training
from manyarms.learners.weighted_learners import (
    DRLearner,
    IPSLearner,
    MIPSLearner,
    PolicyConvolutionLearner,
    SNIPSLearner,
)
from manyarms.likelihoods import Bernoulli, Gaussian, Likelihood
from manyarms.policies import Greedy, Pessimistic
from manyarms.posterior import RewardPosterior, fit
from manyarms.prior_learning import learn_prior
from manyarms.priors import ridge

N_NEIGHBOURS = 10
"""Of policy convolution."""

PENALTY = 1e-3
"""λ of the ridge regression that the paper calls DM (Freq)."""


class Method:
    """Judges targets, learns policies, or both.

    Attributes:
        name: What rows and figures call it.
        slow: Whether learning takes seconds rather than milliseconds: such methods are run on fewer instances.
    """

    name: str
    slow: bool = False

    def estimate(self, task: Task, target: Policy) -> Estimate:
        """The value of `target` on contexts like those of the log."""
        self._refuse("estimate")

    def learn(self, task: Task) -> Policy:
        """A policy for contexts like those of the log."""
        self._refuse("learn")

    def offers(self, kind: Kind) -> bool:
        """Whether it evaluates ("ope"), or learns ("opl")."""
        mine, blank = (type(self).estimate, Method.estimate) if kind == "ope" else (type(self).learn, Method.learn)
        return mine is not blank

    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(f"{self.name} has no {what}.")


Choose = Callable[[RewardPosterior], Policy]


@dataclass(frozen=True)
class Direct(Method):
    """Fit, then judge by the posterior of the value, or choose the action with the highest expected reward.

    Args:
        name: What to call it.
        prior: From what is known to a prior.
        likelihood: From what is known to a likelihood.
        choose: From a posterior to a policy.
    """

    name: str
    prior: Callable[[Known], HierarchicalGaussian]
    likelihood: Callable[[Known], Likelihood] = lambda known: Gaussian(known.noise_std)
    choose: Choose = Greedy

    def estimate(self, task: Task, target: Policy) -> Estimate:
        return self._fit(task).value(target, task.logs.contexts, eligible=task.eligible, groups=task.logs.groups)

    def learn(self, task: Task) -> Policy:
        return self.choose(self._fit(task))

    def _fit(self, task: Task) -> RewardPosterior:
        return fit(task.logs, self.prior(task.known), self.likelihood(task.known))


class Joint(Method):
    """sDM's answer by brute force; see `experiments.joint`."""

    name = "joint posterior"

    def estimate(self, task: Task, target: Policy) -> Estimate:
        return joint_estimate(task, target)


class OfTheLog(Method):
    """What was logged, instead of the target: its mean reward."""

    name = "logged"

    def estimate(self, task: Task, target: Policy) -> Estimate:
        rewards = task.logs.rewards
        return Estimate(float(rewards.mean()), float(rewards.std() / np.sqrt(len(rewards))), kind="sampling")


class PriorAlone(Method):
    """The structured prior before any log: how much of a result was known beforehand."""

    name = "sDM, no data"

    def learn(self, task: Task) -> Policy:
        nothing = task.logs.take(slice(0, 0))
        return Greedy(fit(nothing, task.known.prior, Gaussian(task.known.noise_std)))


@dataclass(frozen=True)
class Learned(Method):
    """sDM whose noise, spreads and means come from the log as well."""

    name: str = "sDM (learned prior)"
    likelihood: Callable[[Known], Likelihood] = lambda known: Gaussian(known.noise_std)

    def estimate(self, task: Task, target: Policy) -> Estimate:
        return self._fit(task).value(target, task.logs.contexts, eligible=task.eligible, groups=task.logs.groups)

    def learn(self, task: Task) -> Policy:
        return Greedy(self._fit(task))

    def _fit(self, task: Task) -> RewardPosterior:
        return learn_prior(task.logs, task.known.learnable, self.likelihood(task.known)).posterior


@dataclass(frozen=True)
class Weighted(Method):
    """An estimator by importance weights, and the softmax policy that maximises it.

    Args:
        name: What to call it.
        estimator: From a task to an estimator.
        learner: From a task to a learner; None when there is none.
    """

    name: str
    estimator: Callable[[Task], Estimator]
    learner: Callable[[Task, Training], Learner] | None = None
    slow: bool = True

    def estimate(self, task: Task, target: Policy) -> Estimate:
        return self.estimator(task).estimate(target, task.logs, eligible=task.eligible)

    def learn(self, task: Task) -> Policy:
        if self.learner is None:
            self._refuse("learn")
        # A fifth held out says when to stop: climbing to the top fits noise, and takes five times as long.
        learner = self.learner(task, Training(holdout=0.2, rng=task.rng))
        return learner.learn(task.logs, eligible=task.eligible)

    def offers(self, kind: Kind) -> bool:
        return kind == "ope" or self.learner is not None


def freq(known: Known) -> HierarchicalGaussian:
    """The prior under which the posterior mean is the paper's DM (Freq)."""
    return ridge(known.n_actions, known.dim, penalty=PENALTY, noise_std=known.noise_std)


def crossed(task: Task, prior: HierarchicalGaussian) -> CrossFit:
    """A reward model for doubly robust estimates that never saw the round it corrects."""
    return CrossFit(prior, Gaussian(task.known.noise_std), rng=task.rng)


def misspecified(name: str) -> Direct:
    """sDM with one of the wrong priors that the world knows by this name."""
    return Direct(f"sDM, {name}", lambda known: known.other_priors[name])


SDM = Direct("sDM", lambda known: known.prior)
DM_BAYES = Direct("DM (Bayes)", lambda known: known.unstructured)
DM_FREQ = Direct("DM (Freq)", freq)
IPS_ = Weighted("IPS", lambda task: IPS(), lambda task, training: IPSLearner(training=training))
SNIPS_ = Weighted("snIPS", lambda task: SNIPS(), lambda task, training: SNIPSLearner(training=training))
DR_ = Weighted(
    "DR",
    lambda task: DR(crossed(task, freq(task.known))),
    lambda task, training: DRLearner(crossed(task, freq(task.known)), training=training),
)
MIPS_ = Weighted(
    "MIPS",
    lambda task: MIPS(task.known.clusters),
    lambda task, training: MIPSLearner(task.known.clusters, training=training),
)
PC = Weighted(
    "PC",
    lambda task: PolicyConvolution(task.known.vectors, N_NEIGHBOURS),
    lambda task, training: PolicyConvolutionLearner(task.known.vectors, N_NEIGHBOURS, training=training),
)
PESSIMISTIC = Direct(
    "sDM, pessimistic", lambda known: known.prior, choose=lambda posterior: Pessimistic(posterior, delta=0.05)
)
CLICKS = Direct("sDM (Bernoulli)", lambda known: known.prior, lambda known: Bernoulli())
DR_SDM = Weighted(
    "DR (sDM)",
    lambda task: DR(crossed(task, task.known.prior)),
    lambda task, training: DRLearner(crossed(task, task.known.prior), training=training),
)
OFFCEM = Weighted("OffCEM (sDM)", lambda task: OffCEM(task.known.clusters, crossed(task, task.known.prior)))
OWN_VARIANCES = Direct("sDM, own variances", lambda known: known.other_priors["own variances"])

DIRECT = (SDM, DM_BAYES, DM_FREQ)
WEIGHTED = (IPS_, SNIPS_, DR_, MIPS_, PC)
PAPER = DIRECT + WEIGHTED
"""The methods of the paper's figures."""
LEARNED = Learned()
PRIOR_ALONE, JOINT, LOGGED = PriorAlone(), Joint(), OfTheLog()
BEYOND = (LEARNED, DR_SDM, OFFCEM)
"""Those the paper does not have."""


LEVELS = (0.5, 1.0, 1.5)
"""v of the wrong priors."""

WRONG = {
    part: tuple(misspecified(f"{part} off by {v:g}") for v in LEVELS) for part in ("prior", "means", "covariances")
}
"""sDM with everything wrong, with means wrong only, with covariances wrong only; in order of v."""

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *PAPER,
        PESSIMISTIC,
        PRIOR_ALONE,
        OWN_VARIANCES,
        JOINT,
        LOGGED,
        CLICKS,
        *BEYOND,
        *(m for ms in WRONG.values() for m in ms),
    )
}
"""All of them by name."""


def joint_estimate(task: Task, target: Policy) -> Estimate:
    """The posterior of a value from one (K d, K d) system, at O(K³ d³) (paper, Sec. 3): the same answer as that of sDM.

    θ | S has mean (I + C G)⁻¹ (m + C B) and covariance (I + C G)⁻¹ C, where m and C are the prior's.
    """
    known, logs = task.known, task.logs
    K, d = known.n_actions, known.dim
    left, right = np.repeat(np.arange(K), K), np.tile(np.arange(K), K)
    C = known.prior.cross_cov(left, right).reshape(K, K, d, d).swapaxes(1, 2).reshape(K * d, K * d)
    rows = np.zeros((len(logs), K, d))
    rows[np.arange(len(logs)), logs.actions] = logs.contexts / known.noise_std
    phi = rows.reshape(len(logs), K * d)
    factor = lu_factor(np.eye(K * d) + C @ (phi.T @ phi))
    moment = phi.T @ (logs.rewards / known.noise_std)
    weights = lu_solve(factor, known.prior.action_mean().reshape(-1) + C @ moment).reshape(K, d)
    mass, expected = target.profile(logs.contexts, weights, eligible=task.eligible)
    m = np.zeros((K, d))
    m[mass.actions] = mass.vectors
    variance = m.reshape(-1) @ lu_solve(factor, C @ m.reshape(-1))
    of_contexts = expected.std(ddof=1) / np.sqrt(len(logs))
    return Estimate(
        value=float(expected.mean()),
        std=float(np.sqrt(variance + of_contexts**2)),
        posterior_std=float(np.sqrt(variance)),
        context_std=float(of_contexts),
    )
