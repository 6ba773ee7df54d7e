"""Do guardrails keep their promise? Worlds with two goals that pull against each other.

Each world has margins and returns per action, drawn from a prior, with a correlation: the actions that earn more are
also returned more. One half of a log learns a policy for the margin, greedy or softmax; the other half decides whether
to ship it, with the guardrail "returns at most 5 % worse, with 95 % probability". The true changes are known.

A ship is false if the margin falls or the returns rise by more than the limit. The promise: at most 2.5 % of the
decisions ship a worse margin, and at most 5 % ship a policy that breaks the guardrail. Without guardrails, most ships
break it.

    python studies/guardrails.py [--problems 200] [--seed 0]
"""

from __future__ import annotations

import argparse

import numpy as np

import manyarms as ma
from manyarms._base.rng import split

K, DIM, N, LIMIT = 30, 2, 1500, 0.05


def run_problem(rng: np.random.Generator, pull: float) -> dict[str, bool]:
    """One world: what is shipped with and without the guardrail, and whether that is right.

    Args:
        rng: A generator.
        pull: The correlation of the weights of margins and of returns.
    """
    world_rng, log_rng, split_rng = split(rng, "world", "log", "split")
    prior = ma.priors.from_categories(np.arange(K) % 5, dim=DIM, effect_std=0.3, action_std=0.3)
    margins = prior.sample(world_rng)[0]
    returns = pull * margins + np.sqrt(1 - pull**2) * prior.sample(world_rng)[0]
    # Means of one per round, so that a change is a share of something.
    margins[:, 0], returns[:, 0] = margins[:, 0] + 1.0, returns[:, 0] + 1.0
    x = np.column_stack([np.ones(N), log_rng.normal(size=N)])
    actions = log_rng.integers(K, size=N)
    earned = (x * margins[actions]).sum(axis=1) + log_rng.normal(size=N)
    returned = (x * returns[actions]).sum(axis=1) + log_rng.normal(size=N)
    rows = split_rng.permutation(N)
    first, second = np.sort(rows[: N // 2]), np.sort(rows[N // 2 :])
    logs = ma.LoggedData(x, actions, earned, np.full(N, 1 / K), n_actions=K)
    posterior = ma.learn_prior(logs.take(first), ma.priors.from_categories(np.arange(K) % 5, dim=DIM)).posterior
    policies = {"greedy": ma.Greedy(posterior), "softmax": ma.Softmax(posterior, temperature=0.3)}
    half = logs.take(second)
    guardrail = ma.Guardrail("returns", returned[second], at_most_worse=LIMIT, better="lower")
    with_goal = ma.decide(policies, half, posterior, guardrails=[guardrail])
    without = ma.decide(policies, half, posterior)
    fresh = np.column_stack([np.ones(4000), world_rng.normal(size=4000)])

    def change(policy: ma.Policy, weights: np.ndarray) -> float:
        rewards = fresh @ weights.T
        return float((policy.probabilities(fresh) * rewards).sum(axis=1).mean() - rewards.mean())

    limit = LIMIT * abs(float((fresh @ returns.T).mean()))
    facts = dict[str, bool]()
    for name, decision in (("guarded", with_goal), ("free", without)):
        shipped = decision.verdict == "ship"
        facts[f"{name} ships"] = shipped
        facts[f"{name} worse"] = shipped and change(policies[decision.policy], margins) < 0
        facts[f"{name} breaks"] = shipped and change(policies[decision.policy], returns) > limit
    facts["could ship"] = any(change(p, margins) > 0 and change(p, returns) <= limit for p in policies.values())
    return facts


def run(n_problems: int, seed: int, pull: float) -> dict[str, float]:
    """The shares of problems in which each thing happened."""
    rows = [run_problem(rng, pull) for rng in np.random.default_rng(seed).spawn(n_problems)]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for pull in (0.3, 0.0, 0.8):
        shares = run(args.problems, args.seed, pull)
        print(
            f"correlation {pull:+.1f}, {args.problems} problems: "
            + ", ".join(f"{k} {v:.1%}" for k, v in shares.items())
        )


if __name__ == "__main__":
    main()
