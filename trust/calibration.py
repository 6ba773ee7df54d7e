"""Simulation-based calibration: parameters drawn from the prior, rewards from them, and the posterior asked about them.

If the posterior is right, the posterior probability below the true value of any quantity is uniform over simulations
(Cook, Gelman and Rubin, 2006; Talts et al., 2018). That probability is the PIT value of a simulation. It comes from the
posterior distribution that users see; for the log likelihood it is the rank of the truth among posterior draws.

Exact posteriors must pass a test of uniformity. For approximations, the coverage of intervals is reported, and that of
95 % intervals for values is compared with what the documentation says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit, gammaln, log_expit, ndtr

import manyarms as ma
from trust.check import Check, Outcome, Row

SECTION = "Calibration"
SIMULATIONS = 1000
DIM = 2
EFFECT_STD, ACTION_STD, NOISE_STD, DEGREES = 0.7, 0.5, 0.8, 4.0
N_DRAWS = 99
LEVELS = (0.5, 0.8, 0.95)
LEAST_P = 0.01
"""The least p-value, of all tests of a check together, that counts as uniform."""
VALUES = ("value", "difference")

Array = np.ndarray


@dataclass(frozen=True)
class Catalog:
    """Actions in categories, the first of which is logged most and the last of which never.

    Attributes:
        counts: (K,) how often each action is logged.
        n_categories: Action a is in category a mod n_categories.
        rare: An action that is logged twice.
    """

    counts: tuple[int, ...]
    n_categories: int
    rare: int

    @property
    def n_actions(self) -> int:
        return len(self.counts)

    @property
    def category(self) -> Array:
        return np.arange(self.n_actions) % self.n_categories

    def prior(self, mean: float) -> ma.HierarchicalGaussian:
        """The true prior; `mean` is the mean of the intercepts of category effects."""
        mixing = ma.MixedEffects(np.eye(self.n_categories)[self.category], DIM)
        return ma.HierarchicalGaussian(self._centre(mean).ravel(), EFFECT_STD**2, mixing, ACTION_STD**2)

    def draw_world(self, mean: float, rng: np.random.Generator) -> World:
        """Parameters by the definition of the prior, without the library's own sampler."""
        centre = self._centre(mean)
        effects = centre + EFFECT_STD * rng.normal(size=centre.shape)
        theta = effects[self.category] + ACTION_STD * rng.normal(size=(self.n_actions, DIM))
        actions = np.repeat(np.arange(self.n_actions), self.counts)
        contexts = np.column_stack([np.ones(len(actions)), rng.uniform(-1, 1, (len(actions), DIM - 1))])
        return World(self, effects.ravel(), theta, contexts, actions)

    def _centre(self, mean: float) -> Array:
        return np.tile([mean, *[0.0] * (DIM - 1)], (self.n_categories, 1))


@dataclass(frozen=True)
class World:
    """One draw of all parameters, and contexts with actions: ψ (p,), θ (K, d), contexts (n, d), actions (n,)."""

    catalog: Catalog
    latent: Array
    theta: Array
    contexts: Array
    actions: Array

    @property
    def predictor(self) -> Array:
        return np.einsum("nd,nd->n", self.contexts, self.theta[self.actions])

    def logs(self, rewards: Array) -> ma.LoggedData:
        return ma.LoggedData(self.contexts, self.actions, rewards, n_actions=self.catalog.n_actions)


SMALL = Catalog((40, 12, 12, 8, 8, 2, 6, 6, 4, 4, 2, 0), n_categories=3, rare=5)
TWENTY_SEEN = Catalog((30, 10, 10, *[5] * 16, 2, *[0] * 10), n_categories=5, rare=19)
"""Twenty logged actions of thirty, for priors that are learned."""


@dataclass(frozen=True)
class Rewards:
    """A distribution of rewards, written out independently of the library.

    Attributes:
        likelihood: The same distribution in the library.
        prior_mean: The mean intercept of category effects.
        draw: Rewards for given predictors η.
        log_density: log p(rewards | η), by round on the last axis.
        expected: The expected reward for given η.
    """

    likelihood: Any
    prior_mean: float
    draw: Callable[[Array, np.random.Generator], Array]
    log_density: Callable[[Array, Array], Array]
    expected: Callable[[Array], Array]


GAUSSIAN = Rewards(
    ma.Gaussian(NOISE_STD),
    0.5,
    lambda eta, rng: eta + NOISE_STD * rng.normal(size=len(eta)),
    lambda r, eta: stats.norm.logpdf(r, eta, NOISE_STD),
    lambda eta: eta,
)
CLICKS = Rewards(
    ma.Bernoulli(),
    -1.5,
    lambda eta, rng: (rng.random(len(eta)) < expit(eta)).astype(float),
    lambda r, eta: log_expit((2 * r - 1) * eta),
    expit,
)
COUNTED = Rewards(
    ma.Poisson(),
    -0.5,
    lambda eta, rng: rng.poisson(np.exp(eta)).astype(float),
    lambda r, eta: r * eta - np.exp(eta) - gammaln(r + 1),
    np.exp,
)
STUDENT_T = Rewards(
    ma.StudentT(NOISE_STD, DEGREES),
    0.5,
    lambda eta, rng: eta + NOISE_STD * rng.standard_t(DEGREES, len(eta)),
    lambda r, eta: stats.t.logpdf(r, DEGREES, eta, NOISE_STD),
    lambda eta: eta,
)
AMOUNT = Rewards(
    ma.LogNormal(NOISE_STD),
    0.5,
    lambda eta, rng: np.exp(eta + NOISE_STD * rng.normal(size=len(eta))),
    lambda r, eta: stats.norm.logpdf(np.log(r), eta, NOISE_STD) - np.log(r),
    lambda eta: np.exp(eta + NOISE_STD**2 / 2),
)
"""The amount of a purchase."""


def policies(posterior: Any, rng: np.random.Generator) -> tuple[ma.Policy, ma.Policy]:
    """A greedy policy, which depends on the logs, and a random one, which does not."""
    return ma.Greedy(posterior), ma.TablePolicy(rng.dirichlet(np.ones(posterior.n_actions)))


def value_pits(posterior: Any, expected: Callable[[Array], Array], rng: np.random.Generator) -> Row:
    """PIT values of V(π) and V(π_1) - V(π_2), where `expected` maps contexts to the true rewards of all actions."""
    contexts = np.column_stack([np.ones(50), rng.uniform(-1, 1, (50, DIM - 1))])
    greedy, fixed = policies(posterior, rng)
    rewards = expected(contexts)
    truth = [float((policy.probabilities(contexts) * rewards).sum(axis=1).mean()) for policy in (greedy, fixed)]
    value = posterior.value(fixed, contexts)
    difference = posterior.difference(greedy, fixed, contexts)
    return {"value": _pit_of(value, truth[1]), "difference": _pit_of(difference, truth[0] - truth[1])}


def _pit_of(estimate: ma.Estimate, truth: float) -> float:
    """The posterior probability below the truth, by the distribution that `interval(of="contexts")` uses."""
    if estimate.posterior_shape is None:
        return float(ndtr((truth - estimate.value) / estimate.posterior_std))
    return estimate.posterior_shape.below(truth)


def weight_pits(weights: ma.HierarchicalGaussian, world: World, rng: np.random.Generator) -> Row:
    """PIT values of ψ and of the weights of three actions, each along a random direction."""
    toward = rng.normal(size=len(world.latent))
    pits = {"latent": _normal_pit(toward, weights.latent_mean, weights.latent_cov, world.latent)}
    unseen = world.catalog.n_actions - 1
    for name, action in (("frequent", 0), ("rare", world.catalog.rare), ("unseen", unseen)):
        mean, cov = weights.action_mean([action])[0], weights.action_cov([action])[0]
        pits[f"{name} action"] = _normal_pit(rng.normal(size=DIM), mean, cov, world.theta[action])
    return pits


def _normal_pit(direction: Array, mean: Array, cov: Array, truth: Array) -> float:
    return float(ndtr(direction @ (truth - mean) / np.sqrt(direction @ cov @ direction)))


def likelihood_rank(
    posterior: ma.RewardPosterior, rewards: Rewards, observed: Array, world: World, rng: np.random.Generator
) -> float:
    """The rank of the log likelihood at the truth among those at posterior draws, as a number between 0 and 1."""
    draws = posterior.weights.sample(rng, N_DRAWS)
    predictors = np.einsum("nd,snd->sn", world.contexts, draws[:, world.actions])
    sampled = rewards.log_density(observed, predictors).sum(axis=1)
    true = float(rewards.log_density(observed, world.predictor).sum())
    return float((np.sum(sampled < true) + rng.random()) / (N_DRAWS + 1))


REWARDS = {"Gaussian": GAUSSIAN, "clicks": CLICKS, "counts": COUNTED, "Student-t": STUDENT_T}


def simulate(kind: str, stream: int, case: int) -> Row:
    """The PIT values of one simulation with a fixed prior; `stream` is the seed of its kind."""
    rewards = REWARDS[kind]
    world_rng, reward_rng, ask_rng = np.random.default_rng([stream, case]).spawn(3)
    world = SMALL.draw_world(rewards.prior_mean, world_rng)
    observed = rewards.draw(world.predictor, reward_rng)
    posterior = ma.fit(world.logs(observed), SMALL.prior(rewards.prior_mean), rewards.likelihood)
    return {
        **weight_pits(posterior.weights, world, ask_rng),
        **value_pits(posterior, lambda x: rewards.expected(x @ world.theta.T), ask_rng),
        "log likelihood": likelihood_rank(posterior, rewards, observed, world, ask_rng),
    }


def simulate_hurdle(case: int) -> Row:
    """The PIT values of one simulation of purchases; those of weights are of the amount."""
    occurs_rng, amount_rng, reward_rng, ask_rng = np.random.default_rng([1615, case]).spawn(4)
    occurs = SMALL.draw_world(0.0, occurs_rng)
    amount = replace(SMALL.draw_world(AMOUNT.prior_mean, amount_rng), contexts=occurs.contexts, actions=occurs.actions)
    bought = CLICKS.draw(occurs.predictor, reward_rng)
    spent = np.where(bought > 0, AMOUNT.draw(amount.predictor, reward_rng), 0.0)
    priors = SMALL.prior(0.0), SMALL.prior(AMOUNT.prior_mean)
    posterior = ma.fit(occurs.logs(spent), priors, ma.Hurdle(ma.Bernoulli(), AMOUNT.likelihood))
    true_rewards = lambda x: expit(x @ occurs.theta.T) * AMOUNT.expected(x @ amount.theta.T)  # noqa: E731
    return {
        **weight_pits(posterior.amount.weights, amount, ask_rng),
        **value_pits(posterior, true_rewards, ask_rng),
        "log likelihood": likelihood_rank(posterior.occurs, CLICKS, bought, occurs, ask_rng),
    }


def simulate_learned(case: int) -> Row:
    """The PIT values of one simulation with a learned prior, taken as certain and averaged over its uncertainty."""
    world_rng, reward_rng, ask_rng, average_rng = np.random.default_rng([1616, case]).spawn(4)
    world = TWENTY_SEEN.draw_world(GAUSSIAN.prior_mean, world_rng)
    observed = GAUSSIAN.draw(world.predictor, reward_rng)
    start = ma.priors.from_categories(TWENTY_SEEN.category, dim=DIM)
    learned = ma.learn_prior(world.logs(observed), start)
    posterior, averaged = learned.posterior, learned.averaged(32, rng=average_rng)
    pits = weight_pits(posterior.weights, world, ask_rng)
    pits["log likelihood"] = likelihood_rank(posterior, GAUSSIAN, observed, world, ask_rng)
    state = ask_rng.bit_generator.state
    for name, kind in (("", posterior), ("averaged ", averaged)):
        # Both are asked about the same policies and contexts, except that each has its own greedy policy.
        ask_rng.bit_generator.state = state
        answers = value_pits(kind, lambda x: x @ world.theta.T, ask_rng)
        pits |= {f"{name}{quantity}": pit for quantity, pit in answers.items()}
    return pits


def uniformity(pits: Array) -> dict[str, float]:
    """p-values of the hypothesis that PIT values are uniform: Kolmogorov-Smirnov, and chi-square over 20 bins.

    Fewer bins if there are few simulations, so that five or more are expected in each.
    """
    n_bins = int(np.clip(len(pits) // 5, 2, 20))
    counts = np.histogram(pits, bins=n_bins, range=(0.0, 1.0))[0]
    return {"KS": float(stats.kstest(pits, "uniform").pvalue), "chi-square": float(stats.chisquare(counts).pvalue)}


def covered(pits: Array, level: float) -> float:
    """The share of central intervals of a level that contain the truth."""
    return float(np.mean(np.abs(pits - 0.5) <= level / 2))


def _columns(rows: Sequence[Row]) -> dict[str, Array]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def coverage_notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """Coverage of each quantity at 50, 80 and 95 %, with the KS p-value."""
    return tuple(
        f"{name}: coverage {', '.join(f'{100 * covered(pits, level):.1f} %' for level in LEVELS)} at 50, 80 and 95 %; "
        f"mean PIT {pits.mean():.3f}; KS p = {uniformity(pits)['KS']:.2g}"
        for name, pits in _columns(rows).items()
    )


def summarise_exact(rows: Sequence[Row]) -> Outcome:
    """All quantities must look uniform; the least p-value is corrected for the number of tests."""
    tests = {f"{name}, {test}": p for name, pits in _columns(rows).items() for test, p in uniformity(pits).items()}
    worst = min(tests, key=tests.__getitem__)
    corrected = min(1.0, len(tests) * tests[worst])
    return Outcome(
        f"least p = {corrected:.2g} ({worst}, corrected for {len(tests)} tests)",
        corrected >= LEAST_P,
        coverage_notes(rows),
    )


def summarise_approximate(lowest: dict[str, float], rows: Sequence[Row]) -> Outcome:
    """95 % intervals of the named quantities must cover at least a share, up to three standard errors."""
    columns = _columns(rows)
    coverage = {name: covered(columns[name], 0.95) for name in lowest}
    holds = all(
        coverage[name] >= least - 3 * np.sqrt(least * (1 - least) / len(rows)) for name, least in lowest.items()
    )
    measured = ", ".join(f"{name} {100 * share:.1f} %" for name, share in coverage.items())
    return Outcome(measured, holds, coverage_notes(rows))


def _approximate(
    kind: str, claim: str, threshold: str, measure: Callable[[int], Row], lowest: dict[str, float]
) -> Check:
    return Check(
        f"calibration-{kind}", SECTION, claim, threshold, SIMULATIONS, measure,
        partial(summarise_approximate, lowest), batch=50, shortest=20,
    )  # fmt: skip


NARROW_T = float(2 * ndtr(0.86 * stats.norm.ppf(0.975)) - 1)
"""The coverage of a 95 % interval whose standard deviation is 0.86 of the right one, as documented for ν = 3."""

CHECKS = (
    Check(
        "calibration-gaussian", SECTION, "With Gaussian rewards and the true prior, every posterior is calibrated.",
        f"p at least {LEAST_P} over all tests of uniformity", SIMULATIONS, partial(simulate, "Gaussian", 1611),
        summarise_exact, batch=100, shortest=20,
    ),
    _approximate(
        "clicks", "Intervals for clicks cover (variational approximation).",
        "95 % intervals of values cover at least 92 %", partial(simulate, "clicks", 1612), dict.fromkeys(VALUES, 0.92),
    ),
    _approximate(
        "counts", "Intervals for counts cover (variational approximation).",
        "95 % intervals of values cover at least 92 %", partial(simulate, "counts", 1613), dict.fromkeys(VALUES, 0.92),
    ),
    _approximate(
        "student-t", "Intervals for heavy tails are too narrow, but no narrower than documented.",
        f"95 % intervals of values cover at least {100 * NARROW_T:.1f} %", partial(simulate, "Student-t", 1614),
        dict.fromkeys(VALUES, NARROW_T),
    ),
    _approximate(
        "hurdle", "Intervals for purchases cover (delta method for values).",
        "95 % intervals of values cover at least 92 %", simulate_hurdle, dict.fromkeys(VALUES, 0.92),
    ),
    _approximate(
        "learned-prior", "Averaged over a prior learned from twenty actions, intervals cover.",
        "95 % intervals of averaged values cover at least 92 %", simulate_learned,
        {"averaged value": 0.92, "averaged difference": 0.92},
    ),
)  # fmt: skip
