"""Agreement with other software on models that both can express.

scikit-learn (Gaussian process, BayesianRidge, Ridge), statsmodels (mixed linear model), a Polya-Gamma sampler for
clicks, and constants that the Open Bandit Pipeline computed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel
from sklearn.linear_model import BayesianRidge, Ridge
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.tools.sm_exceptions import ConvergenceWarning

import manyarms as ma
from trust.check import Check, Outcome, Row
from trust.exactness import random_problem, relative_error
from trust.oracles_and_studies import DenseProblem, clicks, obp_agreement, polya_gamma

SECTION = "Agreement with other software"
SKLEARN_TOLERANCE, OBP_TOLERANCE = 1e-8, 1e-9


class RewardKernel(Kernel):
    """Cov(r(x, a), r(x', b)) = xᵀ Cov(θ_a, θ_b) x' under a prior; rows are contexts with the action at the end."""

    def __init__(self, prior_cov: np.ndarray):
        self.prior_cov = prior_cov  # (K, K, d, d)

    def __call__(self, X: np.ndarray, Y: np.ndarray | None = None, eval_gradient: bool = False) -> np.ndarray:
        Y = X if Y is None else Y
        left, right = X[:, -1].astype(int), Y[:, -1].astype(int)
        blocks = self.prior_cov[left[:, None], right[None, :]]
        return np.einsum("nd,nmde,me->nm", X[:, :-1], blocks, Y[:, :-1])

    def diag(self, X: np.ndarray) -> np.ndarray:
        actions = X[:, -1].astype(int)
        return np.einsum("nd,nde,ne->n", X[:, :-1], self.prior_cov[actions, actions], X[:, :-1])

    def is_stationary(self) -> bool:
        return False


def prior_moments(problem: DenseProblem) -> tuple[np.ndarray, np.ndarray]:
    """E θ, (K, d), and Cov(θ_a, θ_b), (K, K, d, d), of a prior that is written out."""
    W, K = problem.mixing, problem.n_actions
    cov = np.einsum("adp,pq,beq->abde", W, problem.latent_cov, W)
    cov[np.arange(K), np.arange(K)] += problem.action_cov
    return W @ problem.latent_mean + problem.offset, cov


def measure_gaussian_process(case: int) -> Row:
    """Means, standard deviations and evidence of a posterior beside scikit-learn's Gaussian process."""
    rng = np.random.default_rng([1631, case])
    problem = random_problem(
        rng, most_actions=12, most_rounds=120, n_rounds=int(rng.integers(5, 121)), action_scale=1.0
    )
    dense, posterior = problem.dense, problem.fit()
    mean, cov = prior_moments(dense)
    process = GaussianProcessRegressor(RewardKernel(cov), alpha=problem.noise_std**2, optimizer=None)
    prior_rewards = np.einsum("nd,nd->n", dense.contexts, mean[dense.actions])
    process.fit(np.column_stack([dense.contexts, dense.actions]), dense.rewards - prior_rewards)
    contexts, actions = rng.normal(size=(40, dense.dim)), rng.integers(0, dense.n_actions, 40)
    above_prior, std = process.predict(np.column_stack([contexts, actions]), return_std=True)
    expected = above_prior + np.einsum("nd,nd->n", contexts, mean[actions])
    evidence = process.log_marginal_likelihood_value_
    prior_std = np.sqrt(RewardKernel(cov).diag(np.column_stack([contexts, actions])))
    return {
        "mean reward": relative_error(posterior.expected_reward(contexts, actions), expected),
        # Theirs is a difference of variances, exact to rounding of the prior's.
        "variance of a reward": float(
            np.abs(posterior.reward_std(contexts, actions) ** 2 - std**2).max() / np.square(prior_std).max()
        ),
        "log evidence": relative_error(posterior.log_evidence, evidence),
    }


def measure_ridge(case: int) -> Row:
    """The weights of independent actions beside Ridge and BayesianRidge on the rounds of each."""
    rng = np.random.default_rng([1632, case])
    dim, n_actions, n_rounds = int(rng.integers(1, 6)), 4, 160
    contexts, actions = rng.normal(size=(n_rounds, dim)), rng.integers(0, n_actions, n_rounds)
    theta = rng.normal(size=(n_actions, dim))
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + rng.normal(size=n_rounds)
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=n_actions)
    penalty = float(np.exp(rng.normal()))
    posterior = ma.fit(logs, ma.priors.ridge(n_actions, dim, penalty=penalty, noise_std=1.0), ma.Gaussian(1.0))
    errors = {"Ridge": 0.0, "BayesianRidge mean": 0.0, "BayesianRidge covariance": 0.0}
    for action in range(n_actions):
        rows = actions == action
        ridge = Ridge(alpha=penalty, fit_intercept=False).fit(contexts[rows], rewards[rows])
        bayes = BayesianRidge(fit_intercept=False).fit(contexts[rows], rewards[rows])
        prior = ma.priors.independent(n_actions, mean=np.zeros(dim), cov=1.0 / bayes.lambda_)
        weights = ma.fit(logs, prior, ma.Gaussian(bayes.alpha_**-0.5)).weights
        for name, ours, theirs in (
            ("Ridge", posterior.weights.action_mean([action])[0], ridge.coef_),
            ("BayesianRidge mean", weights.action_mean([action])[0], bayes.coef_),
            ("BayesianRidge covariance", weights.action_cov([action])[0], bayes.sigma_),
        ):
            errors[name] = max(errors[name], relative_error(ours, theirs))
    return errors


def summarise_errors(tolerance: float, rows: Sequence[Row]) -> Outcome:
    worst = {name: max(row[name] for row in rows) for name in rows[0]}
    measured = ", ".join(f"{name} {error:.0e}" for name, error in worst.items())
    return Outcome(measured, max(worst.values()) <= tolerance)


def summarise_sklearn(rows: Sequence[Row]) -> Outcome:
    return summarise_errors(SKLEARN_TOLERANCE, rows)


def measure_mixed_model(case: int) -> Row:
    """A learned prior beside the maximum likelihood of a mixed linear model, and both posteriors of action effects."""
    rng = np.random.default_rng([1633, case])
    n_actions = int(rng.integers(30, 80))
    root = np.tril(rng.uniform(0.3, 1.0, (2, 2)))
    theta = rng.normal(size=2) + rng.normal(size=(n_actions, 2)) @ root.T
    n_rounds, noise_std = 15 * n_actions, float(rng.uniform(0.4, 1.2))
    actions = rng.integers(0, n_actions, n_rounds)
    contexts = np.column_stack([np.ones(n_rounds), rng.normal(size=n_rounds)])
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + noise_std * rng.normal(size=n_rounds)
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=n_actions)
    start = ma.priors.independent(n_actions, dim=2, cov=1.0)
    learned = ma.learn_prior(logs, start, action_cov="full", means="maximised", avoid_boundary=False)
    model = MixedLM(rewards, contexts, groups=actions, exog_re=contexts)
    with warnings.catch_warnings():
        # It warns where its own search ends early; its likelihood then shows how early.
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs: Any = model.fit(reml=False, method="bfgs", maxiter=5000, gtol=1e-9)
    # The same variances on both sides: the action effects are then a matter of algebra.
    prior = ma.priors.independent(n_actions, mean=theirs.fe_params, cov=theirs.cov_re)
    fixed = ma.fit(logs, prior, ma.Gaussian(theirs.scale**0.5))
    predicted = np.array([np.asarray(theirs.random_effects[action]) for action in np.unique(actions)])
    ours = fixed.weights.action_mean(np.unique(actions)) - theirs.fe_params
    eigenvalues = np.linalg.eigvalsh(theirs.cov_re)
    return {
        "singular": float(eigenvalues[0] < SINGULAR * eigenvalues[-1]),
        "evidence_behind": float(fixed.log_evidence - learned.log_evidence),
        "evidence": relative_error(fixed.log_evidence, theirs.llf),
        "effects": relative_error(ours, predicted),
        "mean": float(np.abs(learned.prior.offset - theirs.fe_params).max()),
        "covariance": relative_error(learned.prior.action_cov([0])[0], theirs.cov_re),
        "noise": relative_error(learned.likelihood.noise_std**2, theirs.scale),
    }


SINGULAR = 1e-8
"""Where the most likely covariance has an eigenvalue this small, statsmodels inverts it and loses digits."""
MIXED_LIMITS = {
    "evidence_behind": 1e-5,
    "evidence": 1e-8,
    "effects": 1e-8,
    "mean": 1e-4,
    "covariance": 1e-2,
    "noise": 1e-3,
}
"""Largest deviations: algebra to 1e-8; learned numbers as exactly as two searches of a flat top agree."""


def summarise_mixed_model(rows: Sequence[Row]) -> Outcome:
    regular = [row for row in rows if not row["singular"]]
    algebra = {name: max(row[name] for row in regular) for name in ("evidence", "effects")}
    worst = {name: max(row[name] for row in rows) for name in MIXED_LIMITS} | algebra
    holds = all(worst[name] <= limit for name, limit in MIXED_LIMITS.items())
    measured = ", ".join(f"{name.replace('_', ' ')} {error:.0e}" for name, error in worst.items())
    note = (
        f"The most likely covariance was singular in {len(rows) - len(regular)} of {len(rows)} problems. statsmodels "
        "inverts it, so evidence and effects were not compared there; the search of learn_prior ends within 1e-5 nats."
    )
    return Outcome(measured, holds, (note,) if len(regular) < len(rows) else ())


def measure_clicks(case: int) -> Row:
    """Values of three policies under the variational posterior beside a Polya-Gamma sampler."""
    rate = clicks.RATES[case % len(clicks.RATES)]
    world_rng, policy_rng, chain_rng = np.random.default_rng([1634, case]).spawn(3)
    problem = clicks.draw_problem(rate, world_rng)
    logs = problem.logs
    posterior = ma.fit(logs, problem.prior, ma.Bernoulli())
    tables = clicks.policy_tables(problem, posterior, policy_rng)
    values = clicks.Values(logs.contexts, tables)
    chain = polya_gamma.sweeps(
        problem.model, logs.contexts, logs.actions, logs.rewards, n_chains=clicks.N_CHAINS, rng=chain_rng
    )
    kept = islice(chain, clicks.N_WARMUP, clicks.N_WARMUP + N_SWEEPS, clicks.THIN)
    drawn = np.stack([values(draw.action_weights) for draw in kept], axis=-1)
    row: Row = {"rate": rate, "r_hat": 0.0}
    for number, (name, table) in enumerate(tables.items()):
        exact = drawn[:, number]
        estimate = posterior.value(ma.TablePolicy(table), logs.contexts)
        row[name] = [
            float((estimate.value - exact.mean()) / exact.std()),
            float(estimate.posterior_std / exact.std()),
        ]
        row["r_hat"] = max(row["r_hat"], polya_gamma.r_hat(exact))
    return row


N_SWEEPS = 1200
LARGEST_SHIFT, LARGEST_RATIO = 0.2, 0.15
"""How far means, in standard deviations, and standard deviations, as a share, may be from the sampler's."""


def summarise_clicks(rows: Sequence[Row]) -> Outcome:
    """95 % of the problems must be within the limits, for each policy; the sampler must have mixed."""
    names = [name for name in rows[0] if name not in ("rate", "r_hat")]
    notes, shifts, ratios = list[str](), list[float](), list[float]()
    for name in names:
        shift = np.quantile([abs(row[name][0]) for row in rows], 0.95)
        ratio = np.quantile([abs(row[name][1] - 1) for row in rows], 0.95)
        shifts.append(float(shift))
        ratios.append(float(ratio))
        bias = np.mean([row[name][0] for row in rows])
        notes.append(
            f"{name}: in 95 % of problems the mean is within {shift:.2f} standard deviations of the sampler's (on "
            f"average {bias:+.3f}), and the standard deviation within {100 * ratio:.0f} %."
        )
    r_hat = max(row["r_hat"] for row in rows)
    notes.append(f"The largest R-hat of the sampler is {r_hat:.3f}.")
    measured = f"means {max(shifts):.2f} standard deviations, standard deviations {100 * max(ratios):.0f} %"
    return Outcome(
        measured, max(shifts) <= LARGEST_SHIFT and max(ratios) <= LARGEST_RATIO and r_hat < 1.1, tuple(notes)
    )


def measure_obp(case: int) -> Row:
    """The value and the contributions of an estimator beside the constants of obp 0.5.7."""
    name = sorted(obp_agreement.OBP)[case]
    estimator, policy, logs = obp_agreement.case(name)
    value, contributions = obp_agreement.OBP[name]
    row: Row = {"estimator": name, "value": abs(estimator.estimate(policy, logs).value - value)}
    # The direct method has no contributions of its own.
    if name != "DM":
        row["rounds"] = float(np.abs(np.subtract(estimator.contributions(policy, logs), contributions)).max())
    return row


def summarise_obp(rows: Sequence[Row]) -> Outcome:
    worst = max(rows, key=lambda row: max(row["value"], row.get("rounds", 0.0)))
    error = max(worst["value"], worst.get("rounds", 0.0))
    return Outcome(f"largest difference {error:.0e} ({worst['estimator']})", error <= OBP_TOLERANCE)


CHECKS = (
    Check(
        "sklearn-gaussian-process", SECTION, "A posterior is scikit-learn's Gaussian process with the prior's kernel.",
        f"relative error at most {SKLEARN_TOLERANCE:.0e}", 200, measure_gaussian_process, summarise_sklearn, batch=50,
    ),
    Check(
        "sklearn-ridge", SECTION, "Independent actions are scikit-learn's Ridge and BayesianRidge.",
        f"relative error at most {SKLEARN_TOLERANCE:.0e}", 100, measure_ridge, summarise_sklearn, batch=50,
    ),
    Check(
        "statsmodels-mixed-model", SECTION, "Learned priors and action effects are those of statsmodels' MixedLM.",
        ", ".join(f"{name.replace('_', ' ')} {limit:.0e}" for name, limit in MIXED_LIMITS.items()), 30,
        measure_mixed_model, summarise_mixed_model, batch=3,
    ),
    Check(
        "polya-gamma-clicks", SECTION, "Values from clicks are close to those of an exact sampler.",
        f"95 % of problems: means within {LARGEST_SHIFT} standard deviations, standard deviations within "
        f"{100 * LARGEST_RATIO:.0f} %", 60, measure_clicks, summarise_clicks, batch=1, shortest=3,
    ),
    Check(
        "obp-constants", SECTION, "Estimators return what the Open Bandit Pipeline returns.",
        f"difference at most {OBP_TOLERANCE:.0e}", len(obp_agreement.OBP), measure_obp, summarise_obp, batch=22,
    ),
)  # fmt: skip
