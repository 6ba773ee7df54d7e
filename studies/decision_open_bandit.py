"""The Open Bandit part of studies/decisions.py: two policies that really ran, each evaluated from the log of the other.

There is no truth for every action here, only the click rate of each policy in its own log, with an error of its own. A
method's interval counts as covering when the two agree: both errors are added in squares, since the logs are
independent. Whether a policy that a method would ship is better is known no better than that, so false ships and power
are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from decision_methods import gains_over_log, noise_of, weighting_estimators, without_propensities
from decision_tables import needed

import manyarms as ma
from manyarms._base.rng import split
from manyarms.datasets import OpenBanditLog, load_open_bandit
from manyarms.errors import InputError

CAMPAIGNS = ("all", "men", "women")
POLICIES = ("random", "bts")
ROUNDS = (5000, 10_000)
"""Log sizes. The published sample has 10,000 rounds per policy and campaign, with some 40 clicks."""
Z = 1.96

Row = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A policy that really ran, for the rounds of another policy's log.

    Attributes:
        shares: (3, K) The probability of each item at each position.
        click_rate: The click rate in its own log.
        error: The standard error of that click rate.
    """

    shares: np.ndarray
    click_rate: float
    error: float


def as_candidate(log: OpenBanditLog, policy: str, rng: np.random.Generator) -> Candidate:
    """The policy of a log.

    "random" is uniform. "bts" is a Thompson sampler whose probabilities are only known for the items it showed, so it
    is replaced by how often it showed each item at each position in a random half of its log. Its click rate is that of
    the other half. This assumes that the click rate of an item did not change within the week of the log.
    """
    n_items, n = len(log.items), len(log)
    if policy == "random":
        shares, clicks = np.full((3, n_items), 1 / n_items), log.clicks
    else:
        half = rng.permutation(n) < n // 2
        counts = np.zeros((3, n_items))
        np.add.at(counts, (log.positions[half], log.actions[half]), 1.0)
        shares, clicks = counts / counts.sum(axis=1, keepdims=True), log.clicks[~half]
    return Candidate(shares, float(clicks.mean()), float(clicks.std() / np.sqrt(len(clicks))))


def run_log(
    folder: Path, campaign: str, logging: str, n: int, likelihood: str, propensities: bool, rng: np.random.Generator
) -> list[Row]:
    """One log of one policy: a row per method, about the value of the other policy."""
    rounds_rng, half_rng = split(rng, "rounds", "half")
    (other,) = set(POLICIES) - {logging}
    log = load_open_bandit(folder, campaign=campaign, policy=logging)
    candidate = as_candidate(load_open_bandit(folder, campaign=campaign, policy=other), other, half_rng)
    logs = log.logged_data("position").take(rounds_rng.permutation(len(log))[:n])
    half_a, half_b = logs.take(np.arange(len(logs) // 2)), logs.take(np.arange(len(logs) // 2, len(logs)))
    if not propensities:
        half_b = without_propensities(half_b)
    _, groups = np.unique(log.item_features["item_feature_1"].astype(str), return_inverse=True)
    prior = ma.priors.from_categories(groups, dim=logs.dim)
    posterior = ma.learn_prior(half_a, prior, noise_of(likelihood, half_a)).posterior
    policy = ma.TablePolicy(candidate.shares[half_b.contexts.argmax(axis=1)])
    facts = {"candidate": other, "click_rate": candidate.click_rate, "click_rate_error": candidate.error}
    values = {
        "posterior": lambda: posterior.value(policy, half_b.contexts),
        "Checked": lambda: ma.Checked(posterior).estimate(policy, half_b),
        **{by.name: lambda by=by: by.estimate(policy, half_b) for by in weighting_estimators(posterior, half_b)},
    }
    rows, gains = list[Row](), gains_over_log(posterior, half_b)
    for method, value in values.items():
        try:
            estimate = value()
            low, high = estimate.interval(0.95)
            numbers = {"value": estimate.value, "low": low, "high": high}
            numbers["probability"] = gains[method](policy).probability_positive
        except InputError:
            numbers = dict.fromkeys(("value", "low", "high", "probability"), np.nan)
        rows.append({**facts, "method": method, **numbers})
    return rows


def cells(rounds: Iterable[int], n_logs: int) -> Iterator[Row]:
    """The facts that tell one log from another."""
    for n, campaign, logging, number in product(rounds, CAMPAIGNS, POLICIES, range(n_logs)):
        yield {"campaign": campaign, "logging": logging, "rounds": n, "log": number}


def has_campaign(folder: Path, campaign: str) -> bool:
    """True when both logs of a campaign are in the folder."""
    return all(
        (folder / f"{policy}_{campaign}.parquet").exists() or (folder / policy / campaign).exists()
        for policy in POLICIES
    )


def agrees(row: Row) -> bool:
    """True when the interval of a method and the click rate of the candidate agree, given the errors of both."""
    side = row["value"] - row["low"] if row["click_rate"] < row["value"] else row["high"] - row["value"]
    return abs(row["value"] - row["click_rate"]) <= np.hypot(side, Z * row["click_rate_error"])


def summarise_clicks(rows: Iterable[Row]) -> list[Row]:
    """One row per size, candidate and method."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["rounds"], row["candidate"], row["method"]), []).append(row)
    return [
        {
            "rounds": n,
            "candidate": candidate,
            "method": method,
            "logs": len(group),
            "agreement": float(np.mean([agrees(row) for row in group])),
            "width": float(np.nanmedian([(row["high"] - row["low"]) / row["click_rate"] for row in group])),
            "own_width": float(np.median([2 * Z * row["click_rate_error"] / row["click_rate"] for row in group])),
            "error": float(np.nanmedian([abs(row["value"] / row["click_rate"] - 1) for row in group])),
            "ships": int(np.sum([row["probability"] >= needed(row) for row in group])),
        }
        for (n, candidate, method), group in groups.items()
    ]
