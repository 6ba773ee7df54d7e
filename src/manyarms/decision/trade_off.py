"""`ma.trade_off`: how much of one goal a policy can have for how much of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_instance, as_vector, check_choice
from manyarms.core import Estimate, Policy, Tabular
from manyarms.core.feature_map import as_contexts
from manyarms.core.result_tables import number
from manyarms.decision.guardrail import Better
from manyarms.errors import RangeError
from manyarms.policies.greedy import BlendedGreedy
from manyarms.posterior.posterior import Posterior

STEPS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.5, 5.0, 10.0)
"""Weights of the other goal, in units in which both goals vary alike between actions."""
SAMPLE = 200
"""Contexts and actions that show how much the goals vary."""


@dataclass(frozen=True, eq=False)
class TradeOffPoint:
    """One policy on a trade-off curve.

    Attributes:
        weight: The weight of the other goal beside the main one, in the unit of the rewards.
        policy: The policy that maximises the weighted sum, to evaluate, cap or save.
        value: Its value for the main goal; its gain where there is a baseline.
        other: Its value for the other goal; its change where there is a baseline.
    """

    weight: float
    policy: BlendedGreedy
    value: Estimate
    other: Estimate


@dataclass(frozen=True, repr=False)
class TradeOff(Tabular):
    """A trade-off curve: policies from one goal to the other.

    Attributes:
        points: The policies, from the main goal alone to almost the other alone.
        better: "higher" if high rewards of the other goal are good, "lower" if they are bad.
        is_gain: True if values are changes against a baseline.
    """

    points: tuple[TradeOffPoint, ...]
    better: Better
    is_gain: bool

    def within(self, at_most_worse: float) -> TradeOffPoint | None:
        """The point with the highest main value whose other goal is at most this much worse; None if there is none.

        Args:
            at_most_worse: The limit, in the unit of the other reward; 0 for no change for the worse.
        """
        sign = 1.0 if self.better == "higher" else -1.0
        kept = [point for point in self.points if sign * point.other.value >= -at_most_worse]
        return max(kept, key=lambda point: point.value.value, default=None)

    def records(self, level: float = 0.95) -> list[dict[str, Any]]:
        """One record per policy.

        Args:
            level: The level of the intervals.
        """
        return [
            {
                "weight": point.weight,
                **_figures("value", point.value, level),
                **_figures("other", point.other, level),
            }
            for point in self.points
        ]

    def __repr__(self) -> str:
        return f"TradeOff({len(self.points)} policies)"

    def __str__(self) -> str:
        lines = [f"{'weight':>10}{'main goal':>14}{'other goal':>14}"]
        lines += [
            f"{number(point.weight):>10}{number(point.value.value):>14}{number(point.other.value):>14}"
            for point in self.points
        ]
        return "\n".join(lines)


def _figures(name: str, estimate: Estimate, level: float) -> dict[str, float]:
    low, high = estimate.interval(level)
    return {name: estimate.value, f"{name}_low": low, f"{name}_high": high}


def trade_off(
    posterior: Posterior,
    other: Posterior,
    contexts: Any,
    *,
    better: Better = "higher",
    baseline: Policy | None = None,
    weights: Any = None,
) -> TradeOff:
    """Trade one goal off against another: each policy maximises r(x, a) + w r'(x, a) for a weight w of the other goal.

    No policy has more of both goals, by the expected rewards of the two models, than those on the curve. Values are
    those of the models on the given contexts: decide about the chosen policy on other rounds, with a `Guardrail`.

    Args:
        posterior: The model of the main goal.
        other: The model of the other goal, on the same actions and features.
        contexts: (n, d), or a table.
        better: "higher" if high rewards of the other goal are good, "lower" if they are bad.
        baseline: A policy to compare with, such as `Logged(logs)`: values are then changes. None for plain values.
        weights: Weights of the other goal, at least 0; by default ten, spread by how much both goals vary.
    """
    as_instance("posterior", posterior, Posterior, "what ma.fit returned")
    as_instance("other", other, Posterior, "what ma.fit returned")
    check_choice("better", better, ("higher", "lower"))
    chosen = _spread_weights(posterior, other, contexts) if weights is None else as_vector("weights", weights)
    if (chosen < 0).any():
        raise RangeError(f"must be at least 0; got {chosen.min():g}.", 'Use better="lower".', argument="weights")
    sign = 1.0 if better == "higher" else -1.0
    points = list[TradeOffPoint]()
    for weight in chosen.tolist():
        policy = BlendedGreedy([posterior, other], [1.0, sign * weight])
        values = [
            model.value(policy, contexts) if baseline is None else model.difference(policy, baseline, contexts)
            for model in (posterior, other)
        ]
        points.append(TradeOffPoint(weight, policy, *values))
    return TradeOff(tuple(points), better, baseline is not None)


def _spread_weights(posterior: Posterior, other: Posterior, contexts: Any) -> Float[Array, " w"]:
    """Weights at which both goals matter: by how much expected rewards vary between actions."""
    x = as_contexts(contexts, posterior.features, columns=posterior.dim)
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.integers(len(x), size=SAMPLE), SAMPLE)
    actions = np.tile(rng.integers(posterior.n_actions, size=SAMPLE), SAMPLE)
    spreads = [
        float(np.std(np.asarray(model.expected_reward(x[rows], actions)).reshape(SAMPLE, SAMPLE), axis=1).mean())
        for model in (posterior, other)
    ]
    return np.array(STEPS) * (spreads[0] / spreads[1] if spreads[0] > 0 and spreads[1] > 0 else 1.0)
