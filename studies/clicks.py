"""Rare clicks: how far are approximate posteriors of a policy's value from the exact one, and do intervals cover?

K = 50 actions in 5 categories, contexts (1, z) with z uniform on [-1, 1]², clicks with probability g(xᵀ θ_a), weights
drawn from a category prior whose intercept makes the average click rate 1, 5 or 20 %. 1000 rounds logged uniformly, the
true prior used. Three policies are evaluated on the logged contexts: uniform, a random softmax that knows nothing about
the log, and greedy under the variational posterior. Each treatment of `ma.Bernoulli` is compared with a Polya-Gamma
Gibbs sampler (`polya_gamma.py`), which is exact. Expected rewards come from quadrature or from the probit
approximation, intervals from the delta method; "variational, draws" takes both from draws of the same Gaussian, as
`value_draws` does.

For each it prints the bias of the posterior mean, also in units of its posterior standard deviation, its RMSE, and the
coverage of the 95 % interval; then how far means and standard deviations are from those of the sampler, problem by
problem, in units of the sampler's standard deviation. Required of "variational": a bias below 0.2 posterior standard
deviations, and a coverage at most 3 points below the sampler's on the same problems.

    python studies/clicks.py [--problems 200] [--rates 0.01 0.05 0.2] [--seed 0] [--sweeps 1200] [--processes 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from typing import NamedTuple

import numpy as np
from polya_gamma import Model, effective_size, r_hat, sweeps
from scipy.optimize import brentq
from scipy.special import expit

import manyarms as ma
from manyarms._base.rng import split

N_ACTIONS, N_CATEGORIES, DIM, N_ROUNDS = 50, 5, 3, 1000
EFFECT_STD, ACTION_STD = 0.6, 0.4
RATES = (0.01, 0.05, 0.2)
N_CHAINS, N_WARMUP, THIN = 4, 200, 2
EXACT = "exact (sampler)"


class Answer(NamedTuple):
    """The answer of a treatment about a value: mean, standard deviation and a 95 % interval."""

    mean: float
    std: float
    low: float
    high: float


@dataclass(frozen=True)
class Problem:
    """A world drawn from its prior, and a log of it.

    Attributes:
        prior: The prior as the library has it.
        model: The prior written out, for the sampler.
        theta: (K, d) the true weights.
        logs: The log, uniform over actions.
    """

    prior: ma.HierarchicalGaussian
    model: Model
    theta: np.ndarray
    logs: ma.LoggedData


class Result(NamedTuple):
    """The result of one problem: truth and answers by policy, how well the sampler mixed, and the number of clicks."""

    truth: dict[str, float]
    answers: dict[tuple[str, str], Answer]
    worst_r_hat: float
    least_size: float
    n_clicks: int


def intercept(rate: float) -> float:
    """The mean intercept at which a click has probability `rate`, averaged over weights and contexts."""
    grid = (np.arange(20) + 0.5) ** 2 / 400
    norms = 1.0 + np.add.outer(grid, grid).ravel()
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = np.sqrt(norms * (EFFECT_STD**2 + ACTION_STD**2))[:, None] * nodes
    return brentq(lambda m: float(np.mean(expit(m + z) @ weights) / weights.sum()) - rate, -20.0, 20.0)


def draw_problem(rate: float, rng: np.random.Generator, n_rounds: int = N_ROUNDS) -> Problem:
    """A problem: categories, weights and a log."""
    prior_rng, latent_rng, action_rng, context_rng, choice_rng, click_rng = split(
        rng, "categories", "latent", "actions", "contexts", "choices", "clicks"
    )
    member = np.eye(N_CATEGORIES)[prior_rng.integers(0, N_CATEGORIES, N_ACTIONS)]
    mean = np.tile([intercept(rate), *[0.0] * (DIM - 1)], N_CATEGORIES)
    W = np.einsum("kc,de->kdce", member, np.eye(DIM)).reshape(N_ACTIONS, DIM, N_CATEGORIES * DIM)
    model = Model(
        mean,
        EFFECT_STD**2 * np.eye(len(mean)),
        W,
        np.zeros((N_ACTIONS, DIM)),
        np.tile(ACTION_STD**2 * np.eye(DIM), (N_ACTIONS, 1, 1)),
    )
    prior = ma.HierarchicalGaussian(mean, EFFECT_STD**2, ma.MixedEffects(member, DIM), ACTION_STD**2)
    theta = W @ (mean + EFFECT_STD * latent_rng.normal(size=len(mean)))
    theta += ACTION_STD * action_rng.normal(size=theta.shape)
    x = np.column_stack([np.ones(n_rounds), context_rng.uniform(-1, 1, (n_rounds, DIM - 1))])
    actions = choice_rng.integers(0, N_ACTIONS, n_rounds)
    clicks = click_rng.random(n_rounds) < expit(np.einsum("nd,nd->n", x, theta[actions]))
    return Problem(prior, model, theta, ma.LoggedData(x, actions, clicks.astype(float), n_actions=N_ACTIONS))


def policy_tables(problem: Problem, posterior: ma.RewardPosterior, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The probabilities of all actions on the logged contexts, (n, K)."""
    x = problem.logs.contexts
    scores = 2.0 * x @ rng.normal(size=(N_ACTIONS, DIM)).T
    softmax = np.exp(scores - scores.max(axis=1, keepdims=True))
    return {
        "uniform": np.full((len(x), N_ACTIONS), 1.0 / N_ACTIONS),
        "softmax": softmax / softmax.sum(axis=1, keepdims=True),
        "greedy": np.eye(N_ACTIONS)[ma.Greedy(posterior).actions(x)],
    }


class Values:
    """The values of all policies on given contexts as a function of the weights, for very many draws of them.

    In single precision, which is accurate to 1e-6 of a value and far faster.
    """

    def __init__(self, contexts: np.ndarray, tables: dict[str, np.ndarray]):
        self._x = contexts.T.astype(np.float32)
        self._share = np.column_stack([table.T.ravel() for table in tables.values()]).astype(np.float32) / len(contexts)

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        """The values (s, policies) for weights (s, K, d)."""
        rewards = (-theta.astype(np.float32)) @ self._x
        np.exp(rewards, out=rewards)
        rewards += 1.0
        np.reciprocal(rewards, out=rewards)
        return (rewards.reshape(len(theta), -1) @ self._share).astype(float)


def answer_from_draws(draws: np.ndarray) -> Answer:
    """Moments and quantiles of draws."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Answer(float(draws.mean()), float(draws.std(ddof=1)), float(low), float(high))


def exact(
    problem: Problem, tables: dict[str, np.ndarray], n_sweeps: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draws of the value of every policy from the posterior itself, (chains, draws)."""
    logs = problem.logs
    chain = sweeps(problem.model, logs.contexts, logs.actions, logs.rewards, n_chains=N_CHAINS, rng=rng)
    kept, values = islice(chain, N_WARMUP, N_WARMUP + n_sweeps, THIN), Values(logs.contexts, tables)
    drawn = np.stack([values(draw.action_weights) for draw in kept], axis=-1)
    return {name: drawn[:, number] for number, name in enumerate(tables)}


def approximate_answers(
    problem: Problem, fitted: dict[str, ma.RewardPosterior], tables: dict[str, np.ndarray], rng: np.random.Generator
) -> Iterator[tuple[tuple[str, str], Answer]]:
    """The answer of each treatment for each policy, with their names."""
    x = problem.logs.contexts
    for treatment, posterior in fitted.items():
        for expected in ("quadrature", "probit"):
            treated = replace(posterior, likelihood=ma.Bernoulli(posterior.likelihood.treatment, expected))
            name = treatment if expected == "quadrature" else f"{treatment}, probit"
            for policy, table in tables.items():
                estimate = treated.value(ma.TablePolicy(table), x)
                interval = estimate.interval(0.95, of="contexts")
                yield (policy, name), Answer(estimate.value, estimate.posterior_std or 0.0, *interval)
    theta, values = fitted["variational"].weights.sample(rng, 2000), Values(x, tables)
    drawn = np.concatenate([values(part) for part in np.array_split(theta, 500)])
    for number, policy in enumerate(tables):
        yield (policy, "variational, draws"), answer_from_draws(drawn[:, number])


def run_problem(rng: np.random.Generator, rate: float, n_sweeps: int) -> Result:
    """Draw a problem, fit it, sample its posterior, and compare the answers."""
    world_rng, policy_rng, draw_rng, chain_rng = split(rng, "world", "policy", "draws", "chains")
    problem = draw_problem(rate, world_rng)
    fitted = {name: ma.fit(problem.logs, problem.prior, ma.Bernoulli(name, "quadrature")) for name in TREATMENTS}
    tables = policy_tables(problem, fitted["variational"], policy_rng)
    rewards = expit(problem.logs.contexts @ problem.theta.T)
    truth = {name: float((table * rewards).sum(axis=1).mean()) for name, table in tables.items()}
    answers = dict(approximate_answers(problem, fitted, tables, draw_rng))
    draws = exact(problem, tables, n_sweeps, chain_rng)
    answers |= {(policy, EXACT): answer_from_draws(values) for policy, values in draws.items()}
    return Result(
        truth,
        answers,
        max(map(r_hat, draws.values())),
        min(map(effective_size, draws.values())),
        int(problem.logs.rewards.sum()),
    )


TREATMENTS = ("variational", "laplace", "paper")
POLICIES = ("uniform", "softmax", "greedy")
METHODS = (
    EXACT, "variational", "variational, draws", "variational, probit", "laplace", "laplace, probit", "paper",
    "paper, probit",
)  # fmt: skip
REQUIRED = ("variational", "variational, draws", "variational, probit")


def run(rate: float, n_problems: int, seed: int, n_sweeps: int = 1200, processes: int = 1) -> list[Result]:
    """The results of all problems with a click rate."""
    rngs = np.random.default_rng([seed, round(rate * 1e6)]).spawn(n_problems)
    work = partial(run_problem, rate=rate, n_sweeps=n_sweeps)
    if processes == 1:
        return [work(rng) for rng in rngs]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(work, rngs, chunksize=4))


class Row(NamedTuple):
    """A table row for a treatment; a mean and its standard error where there are two numbers."""

    bias: tuple[float, float]
    scaled_bias: tuple[float, float]
    rmse: float
    coverage: float


def summary(results: list[Result], policy: str, method: str) -> Row:
    """The table row of a method for a policy, over all problems."""
    mean, std = np.array([result.answers[policy, method][:2] for result in results]).T
    error = mean - np.array([result.truth[policy] for result in results])
    coverage = float(np.mean([covers(result, policy, method) for result in results]))
    return Row(_mean(error), _mean(error / std), float(np.sqrt(np.mean(error**2))), coverage)


def covers(result: Result, policy: str, method: str) -> bool:
    """Whether the 95 % interval contains the truth."""
    answer = result.answers[policy, method]
    return answer.low <= result.truth[policy] <= answer.high


def distances(results: list[Result], policy: str, method: str) -> tuple[np.ndarray, np.ndarray]:
    """(mean - exact mean) / exact std and std / exact std, for every problem."""
    mean, std = np.array([result.answers[policy, method][:2] for result in results]).T
    exact_mean, exact_std = np.array([result.answers[policy, EXACT][:2] for result in results]).T
    return (mean - exact_mean) / exact_std, std / exact_std


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def print_tables(rate: float, results: list[Result]) -> None:
    clicks = np.mean([result.n_clicks for result in results]) / N_ROUNDS
    worst, least = max(r.worst_r_hat for r in results), np.array([r.least_size for r in results])
    print(
        f"\nclick rate {rate:.0%} (logged: {clicks:.2%}), {len(results)} problems; sampler: R-hat at most {worst:.3f},"
    )
    print(f"effective draws: median {np.median(least):.0f}, least {least.min():.0f}")
    for policy in POLICIES:
        value = np.mean([result.truth[policy] for result in results])
        print(f"\n{policy} policy, mean value {value:.4f}")
        print(f"{'treatment':<20} {'bias':>19} {'bias / std':>15} {'RMSE':>8} {'covers':>7}   vs the exact posterior:")
        print(f"{'':<20} {'':>19} {'':>15} {'':>8} {'':>7} {'mean':>7} {'|mean| 50, 95 %':>16} {'std 5, 50, 95 %':>20}")
        for method in METHODS:
            row = summary(results, policy, method)
            line = f"{method:<20} {row.bias[0]:>+9.5f} ± {row.bias[1]:<7.5f} {row.scaled_bias[0]:>+6.2f} ± "
            line += f"{row.scaled_bias[1]:<5.2f} {row.rmse:>8.5f} {row.coverage:>7.1%}"
            if method != EXACT:
                shift, ratio = distances(results, policy, method)
                line += (
                    f" {shift.mean():>+7.2f} {np.median(np.abs(shift)):>8.2f}, {np.quantile(np.abs(shift), 0.95):<6.2f}"
                )
                line += " " + ", ".join(f"{q:>5.2f}" for q in np.quantile(ratio, [0.05, 0.5, 0.95]))
            print(line)


class Verdict(NamedTuple):
    """The requirement: bias in posterior standard deviations, coverage minus that of the sampler, and its error."""

    bias: float
    gap: float
    gap_error: float

    @property
    def holds(self) -> bool:
        """Whether the bias is below 0.2 and the coverage at most 3 points below the sampler's."""
        return abs(self.bias) < 0.2 and self.gap >= -0.03


def requirement(results: list[Result], policy: str, method: str) -> Verdict:
    """The verdict on a method, paired: both intervals on the same problems."""
    gap = [float(covers(result, policy, method)) - covers(result, policy, EXACT) for result in results]
    return Verdict(summary(results, policy, method).scaled_bias[0], *_mean(np.array(gap)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweeps", type=int, default=1200)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    verdicts: list[str] = []
    for rate in args.rates:
        results = run(rate, args.problems, args.seed, args.sweeps, args.processes)
        print_tables(rate, results)
        for policy, method in product(POLICIES, REQUIRED):
            bias, gap, error = verdict = requirement(results, policy, method)
            line = f"{rate:>5.0%}  {policy:<8} {method:<20} {bias:>+6.2f} {gap:>+7.1%} ± {error:<5.1%}"
            verdicts.append(f"{line} {'holds' if verdict.holds else 'FAILS'}")
    print("\nrequired: |bias| < 0.2 posterior std, coverage at most 3 points below the sampler's on the same problems")
    print(" rate  policy   treatment              bias     gap")
    print("\n".join(verdicts))


if __name__ == "__main__":
    main()
