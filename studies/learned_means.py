"""Coverage of 95 % intervals when the mean of a prior was learned: treated as certain, or as an effect.

Twenty actions with 50 rounds each, an intercept and nothing else; noise 1. The actions vary around 1 with a given
standard deviation. `learn_prior` estimates the mean and this standard deviation and treats them as certain. With
`shared_std` the mean is an effect with a posterior of its own.

    python studies/learned_means.py [--worlds 400]
"""

import argparse

import numpy as np

import manyarms as ma

K, N = 20, 1000


def covers(action_std: float, shared: bool, seed: int) -> tuple[bool, bool]:
    """Whether the intervals contain the mean over all actions, and the gain of the first half over all."""
    rng = np.random.default_rng(seed)
    theta = 1.0 + action_std * rng.normal(size=K)
    contexts, actions = np.ones((N, 1)), rng.integers(0, K, size=N)
    logs = ma.LoggedData(contexts, actions, theta[actions] + rng.normal(size=N), n_actions=K)
    prior = ma.priors.from_catalog(K, dim=1, shared_std=1.0 if shared else None)
    posterior = ma.learn_prior(logs, prior).posterior
    half = np.repeat([2 / K, 0.0], K // 2)
    uniform, first = ma.Uniform(K), ma.TablePolicy(half)
    value = posterior.value(uniform, contexts).interval(of="contexts")
    gain = posterior.difference(first, uniform, contexts).interval(of="contexts")
    return value[0] <= theta.mean() <= value[1], gain[0] <= half @ theta - theta.mean() <= gain[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=400)
    worlds = parser.parse_args().worlds
    print(
        "| standard deviation of actions | value: mean as certain | mean as effect "
        "| gain: mean as certain | mean as effect |"
    )
    print("|---|---|---|---|---|")
    for action_std in (0.0, 0.1, 0.3, 1.0):
        plain, effect = (
            np.mean([covers(action_std, shared, seed) for seed in range(worlds)], axis=0) for shared in (False, True)
        )
        cells = (plain[0], effect[0], plain[1], effect[1])
        print(
            f"| {action_std} | " + " | ".join(f"{share:.1%}".replace("%", " %") for share in cells) + " |", flush=True
        )


if __name__ == "__main__":
    main()
