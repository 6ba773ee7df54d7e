"""Every learner on the paper's synthetic problem: its share of the optimal value, and its time.

K = 1000 actions, d = 10, n = 5000 rounds of uniform logging, two worlds; with and without a held-out fifth.

    python studies/learners.py [--actions 1000] [--rounds 5000]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.cluster import KMeans

import manyarms as ma
from manyarms._base.rng import split
from manyarms.datasets import SyntheticProblem
from manyarms.learners import Learner


def learners(prior: ma.HierarchicalGaussian, rng: np.random.Generator) -> dict[str, Learner]:
    """The learners to compare, by name."""
    centres = prior.action_mean()
    clusters = KMeans(n_clusters=10, n_init=1, random_state=0).fit(centres).labels_.astype(int)
    ridge = ma.priors.ridge(prior.n_actions, prior.dim, penalty=1e-3)
    learners_by_name: dict[str, Learner] = {
        "sDM": ma.DMLearner(prior),
        "DM (Bayes)": ma.DMLearner(prior.marginal()),
        "DM (Freq)": ma.DMLearner(ridge),
    }
    for name, holdout in (("", 0.0), (", held-out fifth", 0.2)):
        training = ma.Training(holdout=holdout, rng=rng)
        learners_by_name |= {
            f"IPS{name}": ma.IPSLearner(training=training),
            f"snIPS{name}": ma.SNIPSLearner(training=training),
            f"DR (DM Freq){name}": ma.DRLearner(ma.CrossFit(ridge, rng=rng), training=training),
            f"DR (sDM){name}": ma.DRLearner(ma.CrossFit(prior, rng=rng), training=training),
            f"MIPS{name}": ma.MIPSLearner(clusters, training=training),
            f"PC{name}": ma.PolicyConvolutionLearner(centres, 10, training=training),
        }
    return learners_by_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5000)
    args = parser.parse_args()
    problem = SyntheticProblem(n_actions=args.actions)
    reached: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for world_rng in np.random.default_rng(0).spawn(2):
        prior_rng, draw_rng, test_rng, log_rng, learn_rng = split(world_rng, "prior", "world", "test", "log", "learn")
        prior = problem.draw_prior(prior_rng)
        world = problem.draw_environment(prior, draw_rng)
        contexts = world.contexts(2000, test_rng)
        logs = world.log(ma.Uniform(problem.n_actions), args.rounds, log_rng)
        for name, learner in learners(prior, learn_rng).items():
            start = time.process_time()
            policy = learner.learn(logs)
            seconds.setdefault(name, []).append(time.process_time() - start)
            reached.setdefault(name, []).append(world.value(policy, contexts) / world.optimal_value(contexts))
    for name, shares in reached.items():
        percentages = " / ".join(f"{share:5.1%}" for share in shares)
        print(f"{name:<32} {percentages}   {np.mean(seconds[name]):6.2f} s CPU")


if __name__ == "__main__":
    main()
