"""How often 95 % intervals hold the truth when the mean of a prior was learned: taken for certain, or an effect.

Twenty actions, 50 rounds each, an intercept and nothing else; they spread by so much around 1, noise 1. `learn_prior`
finds mean and spread and takes them for certain; with `shared_std` the mean is an effect with a posterior of its own.

    python studies/learned_means.py [--worlds 400]
"""

import argparse

import numpy as np

import manyarms as ma

K, N = 20, 1000


def covered(spread: float, shared: bool, seed: int) -> tuple[bool, bool]:
    """Whether the intervals hold the mean over all actions, and the gain of the first half over all."""
    rng = np.random.default_rng(seed)
    theta = 1.0 + spread * rng.normal(size=K)
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
    print("| actions spread by | value: mean for certain | mean an effect | gain: mean for certain | mean an effect |")
    print("|---|---|---|---|---|")
    for spread in (0.0, 0.1, 0.3, 1.0):
        plain, effect = (np.mean([covered(spread, one, s) for s in range(worlds)], axis=0) for one in (False, True))
        cells = (plain[0], effect[0], plain[1], effect[1])
        print(f"| {spread} | " + " | ".join(f"{share:.1%}".replace("%", " %") for share in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
