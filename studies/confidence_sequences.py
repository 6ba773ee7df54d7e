"""Do confidence sequences cover at all looks at once? 10,000 looks at logs with known truth.

python studies/confidence_sequences.py

Rewards are clicks of a given rate, or clicks weighted as by a target policy that differs from the logging policy. A log
counts as covered if the interval after every single round, from the second on, holds the true value. The normal
interval is that of `IPS()`, looked at just as often.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import ndtri

import manyarms as ma

LOGGING, TARGET = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.3, 0.5])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--looks", type=int, default=10_000)
    arguments = parser.parse_args()
    print(f"{'click rate':>10} {'weights':>8} {'sequence covers all looks':>27} {'normal interval does':>22}")
    for rate in (0.5, 0.1, 0.01):
        for weighted in (False, True):
            shares = share_of_logs_covered(arguments.logs, arguments.looks, rate, seed=0, weighted=weighted)
            print(f"{rate:>10} {'yes' if weighted else 'no':>8} {shares[0]:>27.1%} {shares[1]:>22.1%}")


def share_of_logs_covered(
    n_logs: int, n_looks: int, rate: float, seed: int, *, weighted: bool = False
) -> tuple[float, float]:
    """The share of logs in which all intervals hold the truth: of the sequence, and of the normal interval."""
    rng, covered = np.random.default_rng(seed), np.zeros((n_logs, 2), dtype=bool)
    weights = TARGET / LOGGING if weighted else np.ones(3)
    sequence = ma.ConfidenceSequence(0.0, float(weights.max()))
    n, z = np.arange(1, n_looks + 1), ndtri(0.975)
    for log in range(n_logs):
        actions = rng.choice(3, p=LOGGING, size=n_looks)
        contributions = weights[actions] * (rng.random(n_looks) < rate)
        low, high = sequence.intervals(contributions).T
        covered[log, 0] = (low <= rate).all() and (rate <= high).all()
        mean = np.cumsum(contributions) / n
        spread = np.maximum(np.cumsum(contributions**2) / n - mean**2, 0.0)
        # From the hundredth round on: before, nobody would trust a normal interval.
        half = z * np.sqrt(spread / n)
        covered[log, 1] = (np.abs(mean - rate) <= half)[99:].all()
    sequence_share, normal_share = covered.mean(axis=0)
    return float(sequence_share), float(normal_share)


if __name__ == "__main__":
    main()
