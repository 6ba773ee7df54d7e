"""The paper's synthetic setting, sDM beside DM (Bayes) and DM (Freq), against figures of an independent implementation.

K = 1000, d = d' = 10, σ = 1, Σ = 3 I, Σ_a = I, uniform logging. For every n: relative reward of the greedy policy (and
of the pessimistic one for sDM), its value over that of the best policy, and the squared error of the estimated value of
a target that picks the truly best action half the time and a random one otherwise. Means over instances with standard
errors; z is the distance to the reference in joint standard errors. The other estimators stand beside them: IPS, snIPS,
DR with cross-fitted DM (Freq) and sDM, MIPS and policy convolution on what the prior says of each action.

    python studies/setting_one.py [--instances 50] [--actions 1000] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from sklearn.cluster import KMeans

import manyarms as ma
from manyarms._random import split
from manyarms.datasets import SyntheticProblem

# (mean, standard error) over 50 instances, from an independent implementation; relative reward, then MSE.
REFERENCE = {
    (1000, 100): {
        "sDM": (0.938, 0.005), "sDM pessimistic": (0.933, 0.006), "DM (Bayes)": (0.437, 0.020),
        "DM (Freq)": (0.333, 0.004), "MSE sDM": (1.38, 0.15), "MSE DM (Bayes)": (82, 6), "MSE DM (Freq)": (102, 7),
        "MSE IPS": (1050, 362), "MSE snIPS": (97, 7),
    },
    (1000, 1000): {
        "sDM": (0.949, 0.004), "sDM pessimistic": (0.937, 0.005), "DM (Bayes)": (0.661, 0.010),
        "DM (Freq)": (0.547, 0.003), "MSE sDM": (0.84, 0.06), "MSE DM (Bayes)": (58, 4), "MSE DM (Freq)": (85, 6),
        "MSE IPS": (182, 74), "MSE snIPS": (54, 8),
    },
    (1000, 5000): {
        "sDM": (0.964, 0.003), "sDM pessimistic": (0.941, 0.004), "DM (Bayes)": (0.866, 0.005),
        "DM (Freq)": (0.565, 0.018), "MSE sDM": (0.40, 0.03), "MSE DM (Bayes)": (9.6, 0.6), "MSE DM (Freq)": (26, 2),
        "MSE IPS": (25, 5), "MSE snIPS": (8.4, 2.0),
    },
    (1000, 10000): {
        "sDM": (0.977, 0.002), "sDM pessimistic": (0.958, 0.003), "DM (Bayes)": (0.944, 0.003),
        "DM (Freq)": (0.403, 0.020), "MSE sDM": (0.18, 0.02), "MSE DM (Bayes)": (1.05, 0.07),
        "MSE DM (Freq)": (1.85, 0.15), "MSE IPS": (12.7, 3.9), "MSE snIPS": (3.1, 0.8),
    },
    (100, 1000): {
        "sDM": (0.976, 0.002), "DM (Bayes)": (0.936, 0.003), "MSE sDM": (0.11, 0.01), "MSE DM (Bayes)": (0.76, 0.08),
    },
}  # fmt: skip

ROUNDS = (100, 1000, 5000, 10000)
PENALTY = 1e-3


def instance(problem: SyntheticProblem, rng: np.random.Generator) -> dict[tuple[int, str], float]:
    """One world, logged at every size: relative rewards and squared errors."""
    prior_rng, world_rng, test_rng, *log_rngs = split(rng, "prior", "world", "test", *(f"log {n}" for n in ROUNDS))
    prior = problem.draw_prior(prior_rng)
    world = problem.draw_environment(prior, world_rng)
    contexts = world.contexts(2000, test_rng)
    best = world.optimal_value(contexts)
    target = ma.EpsilonGreedy(world.optimal_policy(), 0.5)
    truth = world.value(target, contexts)
    methods = {
        "sDM": prior,
        "DM (Bayes)": prior.marginal(),
        "DM (Freq)": ma.priors.ridge(problem.n_actions, problem.dim, penalty=PENALTY, noise_std=problem.noise_std),
    }
    found: dict[tuple[int, str], float] = {}
    sets = set_estimators(prior)
    for n, log_rng in zip(ROUNDS, log_rngs, strict=True):
        logs = world.log(ma.Uniform(problem.n_actions), n, log_rng)
        for name, method in methods.items():
            posterior = ma.fit(logs, method, ma.Gaussian(problem.noise_std))
            found[n, name] = world.value(ma.Greedy(posterior), contexts) / best
            found[n, "MSE " + name] = (posterior.value(target, logs.contexts).value - truth) ** 2
            if name == "sDM":
                cautious = ma.Pessimistic(posterior, delta=0.05)
                found[n, "sDM pessimistic"] = world.value(cautious, contexts) / best
        # DR by cross-fitting, so that the reward model never saw the round it corrects.
        cross = {name: ma.CrossFit(methods[name], n_folds=5, rng=log_rng) for name in ("DM (Freq)", "sDM")}
        judges = [ma.IPS(), ma.SNIPS(), ma.DR(cross["DM (Freq)"]), *sets]
        for judge in judges:
            found[n, "MSE " + judge.name] = (judge.estimate(target, logs).value - truth) ** 2
        found[n, "MSE DR (sDM)"] = (ma.DR(cross["sDM"]).estimate(target, logs).value - truth) ** 2
    return found


def set_estimators(prior: ma.HierarchicalGaussian) -> list[ma.Estimator]:
    """MIPS by 10 clusters and PC by 10 neighbours, on W_a μ: all that the prior says of an action without ψ."""
    centres = prior.action_mean()
    clusters = KMeans(n_clusters=10, n_init=1, random_state=0).fit(centres).labels_
    return [ma.MIPS(clusters.astype(int)), ma.PolicyConvolution(centres, 10)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    problem = SyntheticProblem(n_actions=args.actions)
    runs = defaultdict[tuple[int, str], list[float]](list)
    for rng in np.random.default_rng(args.seed).spawn(args.instances):
        for key, value in instance(problem, rng).items():
            runs[key].append(value)

    print(f"K = {args.actions}, {args.instances} instances, seed {args.seed}")
    print(f"{'n':>6}  {'quantity':<18} {'here':>18} {'reference':>18} {'z':>6}")
    scores: list[float] = []
    for (n, name), values in sorted(runs.items(), key=lambda item: (item[0][0], item[0][1].startswith("MSE"))):
        mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
        known = REFERENCE.get((args.actions, n), {}).get(name)
        line = f"{n:>6}  {name:<18} {mean:>9.4g} ± {error:<6.2g}"
        if known is not None:
            scores.append((mean - known[0]) / np.hypot(error, known[1]))
            line += f" {known[0]:>9.4g} ± {known[1]:<6.2g} {scores[-1]:>6.2f}"
        print(line)
    if scores:
        inside = sum(abs(z) < 2 for z in scores)
        worst = max(abs(z) for z in scores)
        print(f"{inside} of {len(scores)} figures within two joint standard errors; largest |z| {worst:.2f}")


if __name__ == "__main__":
    main()
