"""Methods to compare: each estimates the value of a target or learns a policy from the same task.

A user method is a subclass of `Method` with a `name` and one or both of `estimate` and `learn`.
`manyarms reproduce --method file.py:Class` adds it to every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import lu_factor, lu_solve

from manyarms._base.checks import Array
from manyarms.core import Estimate, HierarchicalGaussian, LoggedData, Policy
from manyarms.errors import InputError
from manyarms.estimators.compare import slope
from manyarms.estimators.estimator import Estimator
from manyarms.estimators.importance_weighted import DR, IPS, SNIPS
from manyarms.estimators.reward_model import CrossFit
from manyarms.estimators.set_weighted import MIPS, OffCEM, PolicyConvolution
from manyarms.experiments.problem import NOISE_LEVELS, Kind, Known
from manyarms.learners import Learner
from manyarms.learners import learner as learners
from manyarms.learners.training import Training
from manyarms.likelihoods import Bernoulli, Gaussian, Likelihood
from manyarms.policies import Greedy, Pessimistic
from manyarms.posterior import RewardPosterior, fit
from manyarms.prior_learning import learn_prior
from manyarms.priors import ridge

PENALTY, WEAK_NEIGHBOURS = 1e-3, 10
"""λ of DM (Freq) where it is not chosen on the log, and neighbours of policy convolution that knows only W_a μ."""

CLUSTER_SHARES = (0.005, 0.02, 0.05, 0.2)
NEIGHBOUR_SHARES = (0.003, 0.01, 0.03, 0.1, 0.3)
"""Sizes that SLOPE++ chooses from, as shares of K: clusters, and neighbours; in learning, the third of these."""

ONE_STANDARD_ERROR = 0.6827
"""Level of the intervals by which SLOPE++ chooses. At 95 % it keeps to the most biased choice until n is very large."""
SWEPT_CLUSTERS, SWEPT_NEIGHBOURS = (5, 20, 50, 200), (3, 10, 30, 100)
"""Sizes of the methods that are not tuned but swept, for K = 1000."""

CLIPS = (0.0, 10.0, 100.0, 1000.0)
"""Floors on the propensity that SLOPE++ chooses from, in units of the smallest propensity of the log."""


@dataclass(frozen=True)
class MethodTask:
    """Everything that a method is given when it works on a problem.

    Attributes:
        logs: The logged rounds.
        known: The knowledge that methods may use beside the logs.
        eligible: The actions that could be chosen in each round; None for all.
        rng: The method's own generator. The same cell always gets the same one, whatever else is run.
    """

    logs: LoggedData
    known: Known
    eligible: Any
    rng: np.random.Generator


class Method:
    """Estimates the value of targets, learns policies, or both.

    Attributes:
        name: Its name in rows and figures.
        slow: Whether learning takes seconds rather than milliseconds; such methods are run on fewer instances.
        revision: Raised when a method of the library is changed, so that its old rows are not mixed with new ones.
        stream: The name that its random numbers come from, if not its own: it kept them when it was renamed.
    """

    name: str
    slow: bool = False
    revision: int = 1
    stream: str = ""

    def estimate(self, task: MethodTask, target: Policy) -> Estimate:
        """Estimate the value of `target` on contexts like those of the log."""
        raise NotImplementedError(f"{self.name} has no estimate.")

    def learn(self, task: MethodTask) -> Policy:
        """Learn a policy for contexts like those of the log."""
        raise NotImplementedError(f"{self.name} has no learn.")

    def offers(self, kind: Kind) -> bool:
        """The kind of task it does: evaluation ("ope") or learning ("opl")."""
        name = "estimate" if kind == "ope" else "learn"
        return getattr(type(self), name) is not getattr(Method, name)


@dataclass(frozen=True)
class DirectMethod(Method):
    """Fits a posterior, then evaluates a target by it or picks the action with the highest expected reward.

    The prior is made from the task and the likelihood from what is known; where it `learns_prior`, the scales and means
    of the prior, and the noise, are learned from the log as well.
    """

    name: str
    prior: Callable[[MethodTask], HierarchicalGaussian]
    likelihood: Callable[[Known], Likelihood] = lambda known: Gaussian(known.noise_std)
    policy: Callable[[RewardPosterior], Policy] = Greedy
    learns_prior: bool = False
    revision: int = 1

    def estimate(self, task: MethodTask, target: Policy) -> Estimate:
        return self._fit(task).value(target, task.logs.contexts, eligible=task.eligible, groups=task.logs.groups)

    def learn(self, task: MethodTask) -> Policy:
        return self.policy(self._fit(task))

    def _fit(self, task: MethodTask) -> RewardPosterior:
        parts = task.logs, self.prior(task), self.likelihood(task.known)
        return learn_prior(*parts).posterior if self.learns_prior else fit(*parts)


class JointPosteriorMethod(Method):
    """sDM's answer by brute force: the posterior of all weights at once, without using its structure.

    θ | S has mean (I + C G)⁻¹ (m + C B) and covariance (I + C G)⁻¹ C, where m and C are the prior's. One (K d, K d)
    system, at O(K³ d³) (paper, Sec. 3).
    """

    name = "joint posterior"

    def estimate(self, task: MethodTask, target: Policy) -> Estimate:
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
        context_std = expected.std(ddof=1) / np.sqrt(len(logs))
        return Estimate(
            value=float(expected.mean()),
            std=float(np.sqrt(variance + context_std**2)),
            posterior_std=float(np.sqrt(variance)),
            context_std=float(context_std),
        )


class LoggedMean(Method):
    """The method that returns the mean reward of the log itself, whatever the target."""

    name = "logged"

    def estimate(self, task: MethodTask, target: Policy) -> Estimate:
        rewards = task.logs.rewards
        return Estimate(float(rewards.mean()), float(rewards.std() / np.sqrt(len(rewards))), kind="sampling")


class PriorOnly(Method):
    """The method that uses the structured prior and no log: it shows how much of a result was known beforehand."""

    name = "sDM, no data"

    def learn(self, task: MethodTask) -> Policy:
        return Greedy(fit(task.logs.take(slice(0, 0)), task.known.prior, Gaussian(task.known.noise_std)))


@dataclass(frozen=True)
class WeightingMethod(Method):
    """Estimators by importance weights, and a learner, if any, of the softmax policy that maximises one.

    Of several estimators, SLOPE++ chooses one on the log.
    """

    name: str
    estimators: Callable[[MethodTask], Sequence[Estimator]]
    learner: Callable[[MethodTask, Training], Learner] | None = None
    slow: bool = True
    revision: int = 1
    stream: str = ""

    def estimate(self, task: MethodTask, target: Policy) -> Estimate:
        candidates = self.estimators(task)
        if len(candidates) == 1:
            return candidates[0].estimate(target, task.logs, eligible=task.eligible)
        return slope(candidates, target, task.logs, level=ONE_STANDARD_ERROR, eligible=task.eligible).estimate

    def learn(self, task: MethodTask) -> Policy:
        if self.learner is None:
            return super().learn(task)
        # A held-out fifth says when to stop: climbing to the top fits noise, and takes five times as long.
        learner = self.learner(task, Training(holdout=0.2, rng=task.rng))
        return learner.learn(task.logs, eligible=task.eligible)

    def offers(self, kind: Kind) -> bool:
        return kind == "ope" or self.learner is not None


_structured: Callable[[MethodTask], HierarchicalGaussian] = attrgetter("known.prior")


def _ridge(task: MethodTask, penalty: float | None = None) -> HierarchicalGaussian:
    """The prior of the paper's DM (Freq), by default with a penalty chosen on the log."""
    logs = task.logs if penalty is None else None
    return ridge(task.known.n_actions, task.known.dim, penalty=penalty, logs=logs, noise_std=task.known.noise_std)


def _plug_in(task: MethodTask) -> RewardPosterior:
    """DM (Freq) fitted to all rounds, as the reward model of DR in the paper."""
    return fit(task.logs, _ridge(task), Gaussian(task.known.noise_std))


def _cross_fit(task: MethodTask, prior: Callable[[MethodTask], HierarchicalGaussian]) -> CrossFit:
    """A reward model for doubly robust estimates that never saw the round it corrects."""
    return CrossFit(prior(task), Gaussian(task.known.noise_std), rng=task.rng)


def _doubly_robust(name: str, model: Callable[[MethodTask], RewardPosterior | CrossFit]) -> WeightingMethod:
    """DR without a clip."""
    return WeightingMethod(
        name,
        lambda task: (DR(model(task)),),
        lambda task, training: learners.DRLearner(model(task), training=training),
    )


def _clips(task: MethodTask) -> list[float]:
    """Floors on the propensity to choose from; 0 for none. Without propensities there is nothing to go by."""
    propensities = task.logs.propensities
    smallest = 0.0 if propensities is None or not len(propensities) else float(propensities.min())
    return sorted({min(1.0, clip * smallest) for clip in CLIPS})


def _tuned_dr(task: MethodTask) -> list[Estimator]:
    model = _plug_in(task)
    return [DR(model, clip) for clip in _clips(task)]


def _sizes(shares: Iterable[float], n_actions: int) -> list[int]:
    return sorted({max(2, round(share * n_actions)) for share in shares})


def _tuned_mips(task: MethodTask) -> list[Estimator]:
    known = task.known
    if known.clusters_given:
        return [MIPS(known.clusters)]
    return [MIPS(known.clusters_by_size(size)) for size in _sizes(CLUSTER_SHARES, known.n_actions)]


def _directions(known: Known) -> Float[Array, "K e"]:
    """The vectors of the actions at unit length, whose nearest neighbours are those by cosine."""
    norms = np.linalg.norm(known.vectors, axis=1, keepdims=True)
    return known.vectors / np.where(norms > 0, norms, 1.0)


def _tuned_pc(task: MethodTask) -> list[Estimator]:
    vectors = _directions(task.known)
    return [PolicyConvolution(vectors, size) for size in _sizes(NEIGHBOUR_SHARES, task.known.n_actions)]


def _pc_learner(task: MethodTask, training: Training) -> Learner:
    (size,) = _sizes(NEIGHBOUR_SHARES[2:3], task.known.n_actions)
    return learners.PolicyConvolutionLearner(_directions(task.known), size, training=training)


def _with_clusters(size: int) -> WeightingMethod:
    return WeightingMethod(f"MIPS, {size} clusters", lambda task: (MIPS(task.known.clusters_by_size(size)),))


def _with_neighbours(size: int) -> WeightingMethod:
    return WeightingMethod(f"PC, {size} neighbours", lambda task: (PolicyConvolution(_directions(task.known), size),))


def _with_other_prior(prior: str) -> DirectMethod:
    """sDM with another prior of the world, by name."""
    return DirectMethod(f"sDM, {prior}", lambda task: task.known.other_priors[prior])


DIRECT = ("sDM", "DM (Bayes)", "DM (Freq)")
PAPER = (*DIRECT, "IPS", "snIPS", "DR", "MIPS", "PC")
"""Names of the methods in the paper's figures."""
LEARNERS_BEYOND = ("sDM (learned prior)", "DR (sDM)")
BEYOND = (*LEARNERS_BEYOND, "OffCEM (sDM)")
"""Names of methods beyond the paper; OffCEM does not learn."""
FIXED_FREQ, CROSS_FITTED = "DM (Freq), λ = 0.001", "DR, cross-fitted"
PAPER_CLICKS = "sDM (Bernoulli, paper)"
"""Name of sDM with the paper's treatment of clicks: maximum likelihood and curvature of each action on its own."""
WEAK = ("MIPS (W_a μ)", "PC (W_a μ)")
UNTUNED = (FIXED_FREQ, "IPS, no clip", *WEAK)
"""Names of variants of the paper's methods that are not tuned, or know less."""
SWEPT_MIPS = tuple(f"MIPS, {size} clusters" for size in SWEPT_CLUSTERS)
SWEPT_PC = tuple(f"PC, {size} neighbours" for size in SWEPT_NEIGHBOURS)

_PRIORS = {part: [f"{part} off by {v:g}" for v in NOISE_LEVELS] for part in ("prior", "means", "covariances")}
MISSPECIFIED = {part: tuple(f"sDM, {prior}" for prior in priors) for part, priors in _PRIORS.items()}
"""Names of sDM with everything misspecified, with the means only, with the covariances only; in order of v."""

_METHODS = (
    DirectMethod("sDM", _structured),
    DirectMethod("DM (Bayes)", attrgetter("known.unstructured")),
    DirectMethod("DM (Freq)", _ridge, revision=2),
    WeightingMethod(
        "IPS",
        lambda task: [IPS(clip) for clip in _clips(task)],
        lambda task, training: learners.IPSLearner(training=training),
        revision=2,
    ),
    WeightingMethod("snIPS", lambda task: (SNIPS(),), lambda task, training: learners.SNIPSLearner(training=training)),
    WeightingMethod(
        "DR",
        _tuned_dr,
        lambda task, training: learners.DRLearner(_plug_in(task), training=training),
        revision=2,
    ),
    WeightingMethod(
        "MIPS",
        _tuned_mips,
        lambda task, training: learners.MIPSLearner(task.known.clusters, training=training),
        revision=2,
    ),
    WeightingMethod("PC", _tuned_pc, _pc_learner, revision=2),
    DirectMethod(FIXED_FREQ, lambda task: _ridge(task, penalty=PENALTY)),
    WeightingMethod("IPS, no clip", lambda task: (IPS(),)),
    _doubly_robust(CROSS_FITTED, lambda task: _cross_fit(task, _ridge)),
    WeightingMethod(
        WEAK[0],
        lambda task: (MIPS(task.known.weak_clusters),),
        lambda task, training: learners.MIPSLearner(task.known.weak_clusters, training=training),
        stream="MIPS",
    ),
    WeightingMethod(
        WEAK[1],
        lambda task: (PolicyConvolution(task.known.prior.action_mean(), WEAK_NEIGHBOURS),),
        lambda task, training: learners.PolicyConvolutionLearner(
            task.known.prior.action_mean(), WEAK_NEIGHBOURS, training=training
        ),
        stream="PC",
    ),
    *map(_with_clusters, SWEPT_CLUSTERS),
    *map(_with_neighbours, SWEPT_NEIGHBOURS),
    DirectMethod("sDM, pessimistic", _structured, policy=lambda posterior: Pessimistic(posterior, delta=0.05)),
    PriorOnly(),
    _with_other_prior("own variances"),
    JointPosteriorMethod(),
    LoggedMean(),
    DirectMethod("sDM (Bernoulli)", _structured, lambda known: Bernoulli()),
    DirectMethod(PAPER_CLICKS, _structured, lambda known: Bernoulli("paper", expected="probit")),
    DirectMethod("sDM (learned prior)", attrgetter("known.learnable"), learns_prior=True),
    _doubly_robust("DR (sDM)", lambda task: _cross_fit(task, _structured)),
    WeightingMethod("OffCEM (sDM)", lambda task: (OffCEM(task.known.weak_clusters, _cross_fit(task, _structured)),)),
    *(_with_other_prior(prior) for priors in _PRIORS.values() for prior in priors),
)
METHODS: dict[str, Method] = {method.name: method for method in _METHODS}
"""The library's methods by name."""


def check_method_names(names: Iterable[str], known: Iterable[str], noun: str) -> None:
    """Refuse names of methods, or of other things, that do not exist, and say which do."""
    options = sorted(known, key=str.casefold)
    unknown = [name for name in names if name not in options]
    if unknown:
        raise InputError(f"there is no {noun} {'; '.join(unknown)}.", f"There are: {'; '.join(options)}.")
