"""Are plans right, and how much does the exploration policy save?

python studies/plans.py calibration     # simulated problems: decisions reached against decisions promised
python studies/plans.py clicks          # the same for clicks, whose future rounds count by their Gaussian sites
python studies/plans.py traffic         # rounds with the exploration policy and as now; needs MANYARMS_DATA

Calibration: the truth is drawn from today's posterior, the planned number of rounds is logged, and the posterior is
updated. A decision is reached if the gain is then positive, or negative, with the probability that the plan asked for.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from decision_worlds import given_policies, load_world, logging_policy, write_log

import manyarms as ma
from manyarms.datasets.shop import Shop

K, DIM, SURE, CHANCE = 12, 2, 0.95, 0.7
MOST = 50_000
"""Problems whose plan is longer than this are left out: they take too long to simulate."""
SHORT = 1000
"""Plans of fewer rounds than this are also shown apart: their rounds differ most from the mean that plans assume."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("calibration", "clicks", "traffic"))
    parser.add_argument("--problems", type=int, default=520)
    arguments = parser.parse_args()
    if arguments.part == "traffic":
        show_traffic()
        return
    settings = ((None, 60),) if arguments.part == "calibration" else ((0.5, 200), (0.1, 1000))
    for rate, rounds in settings:
        name = "gaussian rewards" if rate is None else f"clicks around {rate:.0%}"
        print(f"{name}, {rounds:,} rounds today", flush=True)
        results = calibrate(arguments.problems, rate, rounds)
        short = np.array([result.rounds < SHORT for result in results])
        for words, chosen in (("all", short | True), (f"of less than {SHORT} rounds", short), ("longer", ~short)):
            print(f"  plans {words}: {summary([results[place] for place in np.flatnonzero(chosen)])}", flush=True)


@dataclass(frozen=True)
class Outcome:
    """A plan that was carried out.

    Attributes:
        reached: Whether it reached its decision.
        promised: The probability that it promised.
        rounds: The planned number of rounds.
        std_ratio: The posterior standard deviation of the gain after them, divided by the planned one.
    """

    reached: bool
    promised: float
    rounds: float
    std_ratio: float


def summary(results: list[Outcome]) -> str:
    """How often decisions were reached and promised, and how far the planned standard deviations were off."""
    if not results:
        return "none"
    reached, promised, _, ratios = np.array([list(vars(result).values()) for result in results], dtype=float).T
    error = np.sqrt((promised * (1 - promised)).sum()) / len(promised)
    return (
        f"{len(reached):,} problems, promised {promised.mean():.1%}, reached {reached.mean():.1%}, "
        f"{(reached.mean() - promised.mean()) / error:+.1f} standard errors; standard deviation {ratios.mean():.3f} "
        f"times the planned one, nine of ten {np.quantile(ratios, 0.05):.2f} to {np.quantile(ratios, 0.95):.2f}"
    )


def calibrate(n_problems: int, rate: float | None, rounds: int) -> list[Outcome]:
    """The outcomes of plans for problems that are neither settled today nor take too long."""
    results, seed = list[Outcome](), 0
    while len(results) < n_problems:
        result = outcome(seed, rate, rounds)
        seed += 1
        if result is not None:
            results.append(result)
    return results


def outcome(seed: int, rate: float | None, rounds: int) -> Outcome | None:
    """What the planned rounds of one problem bring; None if it is settled, or takes too long."""
    rng = np.random.default_rng(seed)
    offset = None if rate is None else np.array([np.log(rate / (1 - rate)), 0.0])
    prior = ma.priors.from_categories(rng.integers(3, size=K), dim=DIM, effect_std=0.7, action_std=0.4)
    if offset is not None:
        prior = prior + ma.priors.independent(K, mean=offset, cov=1e-8 * np.eye(DIM))
    likelihood = ma.Gaussian(1.0) if rate is None else ma.Bernoulli()
    shares = rng.dirichlet(np.ones(K))
    logging = ma.TablePolicy(shares)

    def log(weights: np.ndarray, contexts: np.ndarray) -> ma.LoggedData:
        actions = logging.sample(contexts, rng)
        predictor = np.einsum("nd,nd->n", contexts, weights[actions])
        noise = rng.normal(size=len(contexts)) if rate is None else rng.random(len(contexts))
        rewards = predictor + noise if rate is None else (noise < 1 / (1 + np.exp(-predictor))) * 1.0
        return ma.LoggedData(contexts, actions, rewards, n_actions=K)

    def draw_contexts(n: int) -> np.ndarray:
        return np.column_stack([np.ones(n), rng.normal(size=n)])

    posterior = ma.fit(log(prior.sample(rng)[0], draw_contexts(rounds)), prior, likelihood)
    policy, baseline = ma.TablePolicy(np.eye(K)[1]), ma.TablePolicy(np.eye(K)[2])
    contexts = draw_contexts(400)
    planned = ma.plan(posterior, policy, baseline, contexts, logging=logging, sure=SURE, chance=CHANCE)
    if not 0 < planned.rounds <= MOST:
        return None
    new = draw_contexts(int(planned.rounds))
    later = posterior.update(log(posterior.weights.sample(rng)[0], new))
    gain = later.difference(policy, baseline, np.concatenate([contexts, new]))
    certain = max(gain.probability_positive, 1 - gain.probability_positive) >= SURE
    ratio = (gain.posterior_std or 0.0) / planned.std_at(planned.rounds)
    return Outcome(certain, planned.chance_at(planned.rounds), planned.rounds, ratio)


def show_traffic() -> None:
    """The rounds that questions take, logged as now and with the exploration policy, on the shop and on real data."""
    folder = os.environ.get("MANYARMS_DATA")
    names = ["shop"] if folder is None else ["shop", "movielens", "science", "jester"]
    print(f"{'set':<10} {'question':<28} {'as now':>10} {'candidate':>10} {'best':>10} {'ratio':>6} {'cost':>7}")
    for name in names:
        ratios = list[float]()
        for seed in range(3):
            for question, plan in questions(name, None if folder is None else Path(folder), seed):
                if plan.rounds == 0:
                    continue
                rounds = [way.rounds for way in plan.traffic]
                ratios.append(rounds[2] / rounds[0])
                figures = " ".join(f"{count:>10,.0f}" for count in rounds)
                cost = plan.traffic[2].cost
                print(f"{name:<10} {question:<28} {figures} {ratios[-1]:>6.2f} {cost:>7.4f}", flush=True)
        print(f"{name:<10} median ratio of {len(ratios)} open questions: {np.median(ratios):.2f}", flush=True)


def questions(name: str, folder: Path | None, seed: int) -> list[tuple[str, ma.Plan]]:
    """Questions about two policies, with a fifth of the traffic to explore."""
    if name == "shop":
        drawn = Shop(n_items=5000, n_categories=40, n_rounds=4000).draw(np.random.default_rng(seed))
        logs, categories = drawn.logs, drawn.categories
        posterior = ma.learn_prior(logs, ma.priors.from_categories(categories, dim=logs.dim, shared_std=1.0)).posterior
        current, greedy, careful = ma.Logged(logs), ma.Greedy(posterior), ma.Pessimistic(posterior, 0.3)
        return [
            ("greedy or pessimistic", ma.plan(posterior, greedy, careful, logs.contexts, logging=current)),
            ("greedy or current", ma.plan(posterior, greedy, current, logs.contexts)),
        ]
    world, rng = load_world(name, folder), np.random.default_rng(seed)
    shares = logging_policy(world, "sharp")
    logs, items = write_log(world, shares, 300, rng)
    prior = ma.priors.from_categories(world.categories, dim=logs.dim, shared_std=1.0)
    posterior = ma.learn_prior(logs, prior).posterior
    given = {kind: ma.TablePolicy(table[items]) for kind, table in given_policies(world, rng).items()}
    now, eligible = ma.TablePolicy(shares[items]), world.eligible(items)
    outside = given["outside"]
    return [
        (
            "two recommenders",
            ma.plan(posterior, outside, given["outside, noisy"], logs.contexts, logging=now, eligible=eligible),
        ),
        ("recommender or current", ma.plan(posterior, outside, now, logs.contexts, eligible=eligible)),
    ]


if __name__ == "__main__":
    main()
