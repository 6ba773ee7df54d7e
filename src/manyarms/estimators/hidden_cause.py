"""Hidden causes: how strong would one have to be that moved both the logged choice and the reward?

If the reward of round i was b_i too high for such a reason, the posterior gain is off by Σ_i g_i b_i, where g_i is its
derivative by that reward: the gain of a Gaussian posterior is linear in the rewards. So the worst case under a bound
on b is closed form: δ Σ |g_i| where every |b_i| is at most δ, and δ √(n Σ g_i²) where their root mean square is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_instance, as_scalar, row_weights
from manyarms.core import ActionRows, ActionSums, Estimate, LoggedData, Policy, Statistics, Tabular
from manyarms.core.feature_map import as_contexts
from manyarms.core.logged_data import check_logs
from manyarms.core.result_tables import number, signed_number
from manyarms.errors import InputError
from manyarms.inference import condition
from manyarms.posterior import RewardPosterior
from manyarms.posterior.policy_profile import POLICY_AND_BASELINE, collect_profiles


@dataclass(frozen=True)
class ColumnStrength:
    """A context column as a measure of hidden causes: the bias of the model if the column had been hidden.

    Attributes:
        column: The name of the column, or its number.
        strength: The bias of rewards that hiding it causes, in the measure of `HiddenCause.tipping`.
        gain_without: The gain of a model without it.
        times: How many times as strong a hidden cause must be, in the worst direction, to bring the gain to zero.
        times_to_doubt: How many times as strong it must be to make the interval reach zero.
    """

    column: str
    strength: float
    gain_without: float
    times: float
    times_to_doubt: float


@dataclass(frozen=True, repr=False)
class HiddenCause(Tabular):
    """The result of `hidden_cause`.

    Attributes:
        gain: The model's gain, with its interval.
        tipping: The bias of rewards that would bring the gain to zero, in the unit of the reward.
        tipping_to_doubt: The bias that would make the interval reach zero; 0 if it does already.
        bound: "round" if no round may have a larger bias; "mean square" if their root mean square may not.
        columns: Every context column as a measure, the strongest first.
    """

    gain: Estimate
    tipping: float
    tipping_to_doubt: float
    bound: Literal["round", "mean square"]
    columns: tuple[ColumnStrength, ...]

    @property
    def sentence(self) -> str:
        """The answer in plain words."""
        return self.sentence_about(f"the model's gain of {signed_number(self.gain.value)}")

    def sentence_about(self, gain: str) -> str:
        """The answer in plain words, where `gain` names the model's gain: "it" below a sentence that gives it."""
        if self.gain.value == 0.0:
            return "The gain is zero, so there is nothing for a hidden cause to overturn."
        measure = "in every round" if self.bound == "round" else "(root mean square)"
        text = (
            f"To bring {gain} to zero, a hidden cause would have to bias rewards by "
            f"{number(self.tipping)} {measure}, always in the most harmful direction."
        )
        strongest = self.columns[0] if self.columns and self.columns[0].strength > 0 else None
        if strongest is not None:
            text += (
                f" That is {number(strongest.times)} times the bias that hiding {strongest.column}, the strongest "
                "context column, would cause."
            )
        if self.tipping_to_doubt == 0.0:
            return f"{text} The interval contains zero already, so the answer is in doubt without any hidden cause."
        less = ""
        if strongest is not None:
            times = number(strongest.times_to_doubt)
            less = f" ({'about' if times == '1' else f'{times} times'} the bias from hiding {strongest.column})"
        return (
            f"{text} A bias of {number(self.tipping_to_doubt)}{less} is enough to make the interval of the model's "
            "gain reach zero."
        )

    def records(self) -> list[dict[str, Any]]:
        """One plain record per context column."""
        return [vars(column) for column in self.columns]

    def record(self) -> dict[str, Any]:
        """The result as plain values, for JSON."""
        figures = {"gain": self.gain.value, "tipping": self.tipping, "tipping_to_doubt": self.tipping_to_doubt}
        return {"sentence": self.sentence, **figures, "bound": self.bound, "columns": self.records()}

    def __repr__(self) -> str:
        return self.sentence


def hidden_cause(
    posterior: RewardPosterior,
    policy: Policy,
    baseline: Policy,
    contexts: Any,
    *,
    logs: LoggedData | None = None,
    level: float = 0.95,
    eligible: Any = None,
    weights: Any = None,
) -> HiddenCause:
    """Measure how strong a hidden cause of both logging and reward must be to overturn a gain.

    Such a cause makes logged rewards too high or too low for reasons that no context column shows. The gain moves by
    its derivative by each reward times the bias of that reward, so the worst case under a bound is exact.

    A bias in euros or clicks means little by itself. So every context column is a measure: how far would rewards have
    been off, had it been hidden? A cause that must be twice as strong as the strongest column that anyone thought of
    is less likely than one that must be a tenth as strong.

    Args:
        posterior: A fitted posterior with Gaussian rewards.
        policy: The candidate.
        baseline: The policy that it is compared with, such as `Logged(logs)`.
        contexts: (n, d), or a table: a sample of those that the policies will meet.
        logs: All rounds of the fit. With them, `tipping` bounds the bias of every single round; without them, its root
            mean square over the rounds of the fit, which the model's sums determine.
        level: The level of the interval of the gain.
        eligible: The actions that may be chosen in each context; None for all.
        weights: (n,) how often each context counts; None for once.

    Raises:
        InputError: If rewards are not Gaussian, since the gain is then not linear in them.
    """
    posterior = as_instance("posterior", posterior, RewardPosterior, "a posterior from fit()")
    level = as_scalar("level", level, above=0.0, below=1.0)
    if not (posterior.is_linear and posterior.likelihood.treatment == "exact"):
        raise InputError(
            f"must have Gaussian rewards; the gain is not linear in {type(posterior.likelihood).__name__} rewards.",
            "Use propensity_sensitivity, which needs no model.",
            argument="posterior",
        )
    both = {"policy": policy, "baseline": baseline}
    profiles = collect_profiles(posterior, both, POLICY_AND_BASELINE, contexts, eligible, weights, None, None)
    x = as_contexts(contexts, posterior.features, columns=posterior.dim)
    gain, mass = posterior.estimate(profiles), profiles.masses_of((1.0, 0.0))[0]
    vectors = np.zeros((posterior.n_actions, posterior.dim))
    vectors[mass.actions] = mass.vectors
    slopes = posterior.weights.covariances_with(vectors, np.arange(len(vectors)))
    slopes /= posterior.likelihood.noise_std**2
    measure = _MeanSquare(posterior.statistics, slopes) if logs is None else _EveryRound(posterior, logs, slopes)
    low, high = gain.interval(level)
    nearest = max(low, -high, 0.0)
    columns = [
        _strength(name, places, posterior, vectors, measure, gain.value, nearest)
        for name, places in _columns(posterior, x)
    ]
    return HiddenCause(
        gain=gain,
        tipping=_ratio(abs(gain.value), measure.reach),
        tipping_to_doubt=_ratio(nearest, measure.reach),
        bound=measure.bound,
        columns=tuple(sorted(columns, key=lambda column: -column.strength)),
    )


class _EveryRound:
    """The measure of biases by the largest of them: the worst case is a bias of the same size in every round."""

    bound: Literal["round", "mean square"] = "round"

    def __init__(self, posterior: RewardPosterior, logs: LoggedData, slopes: Float[Array, "K d"]):
        logs = check_logs(as_instance("logs", logs, LoggedData, "a LoggedData"), posterior.prior)
        counts = row_weights(logs.weights, len(logs))
        n_rounds = int(np.count_nonzero(counts))
        if n_rounds != posterior.statistics.n_rounds:
            raise InputError(
                f"has {n_rounds:,} rounds; the posterior was fitted to {posterior.statistics.n_rounds:,}.",
                "Pass all rounds of the fit, and no others.",
                argument="logs",
            )
        self._logs = logs
        self._size = counts * np.abs(np.einsum("nd,nd->n", logs.contexts, slopes[logs.actions]))
        self.reach = float(self._size.sum())

    def shift(self, change: Float[Array, "K d"]) -> float:
        """The largest shift of the gain by biases as large as a change of weights makes them, of any signs."""
        return float(self._size @ np.abs(np.einsum("nd,nd->n", self._logs.contexts, change[self._logs.actions])))


class _MeanSquare:
    """The measure of biases by their root mean square over the rounds of the fit, which are known by their sums."""

    bound: Literal["round", "mean square"] = "mean square"

    def __init__(self, statistics: Statistics, slopes: Float[Array, "K d"]):
        self._statistics = statistics
        self.reach = float(np.sqrt(statistics.total_weight * _square_sum(statistics, slopes)))

    def shift(self, change: Float[Array, "K d"]) -> float:
        """The largest shift of the gain by biases with the root mean square of those of a change of weights."""
        size = np.sqrt(_square_sum(self._statistics, change) / max(self._statistics.total_weight, 1e-300))
        return float(self.reach * size)


def _square_sum(statistics: Statistics, vectors: Float[Array, "K d"]) -> float:
    """Σ w (φᵀ v_a)² over the rounds."""
    sums, rows = statistics.sums, statistics.rows
    own = vectors[sums.actions]
    total = np.einsum("md,mde,me->", own, sums.gram, own)
    return float(max(total, 0.0) + np.sum(np.einsum("nd,nd->n", rows.features, vectors[rows.actions]) ** 2))


def _columns(posterior: RewardPosterior, x: Float[Array, "n d"]) -> list[tuple[str, list[int]]]:
    """The context columns with the places of their features; none where features mix several columns."""
    features = posterior.features
    if posterior.prior.observed.groups:
        # Such a prior has seen the columns before.
        return []
    if features is None:
        return [(f"column {place}", [int(place)]) for place in np.flatnonzero(np.ptp(x, axis=0) > 0)]
    if features.expansion is not None:
        return []
    start, columns = int(features.intercept), list[tuple[str, list[int]]]()
    for feature in features.features:
        columns.append((feature.column, list(range(start, start + len(feature.names)))))
        start += len(feature.names)
    return columns


def _strength(
    name: str, places: list[int], posterior: RewardPosterior, vectors: Float[Array, "K d"], measure: Any, gain: float,
    nearest: float,
) -> ColumnStrength:  # fmt: skip
    """A column as a measure: the model is fitted again without it."""
    hidden = condition(posterior.prior, _without(posterior.statistics, places), posterior.likelihood.noise_std)
    means = np.array(hidden.action_mean())
    means[:, places] = 0.0
    shift = measure.shift(posterior.weights.action_mean() - means)
    return ColumnStrength(
        column=name,
        strength=_ratio(shift, measure.reach) if shift > 0 else 0.0,
        gain_without=float(np.sum(vectors * means)),
        times=_ratio(abs(gain), shift),
        times_to_doubt=_ratio(nearest, shift),
    )


def _without(statistics: Statistics, places: list[int]) -> Statistics:
    """The statistics of rounds in which some features are zero."""
    squares, rounds = statistics.sums.squares.copy(), statistics.rows.rounds.copy()
    squares[:, places, :] = squares[:, :, places] = rounds[:, places] = 0.0
    sums, rows = ActionSums(statistics.sums.actions, squares), ActionRows(statistics.rows.actions, rounds)
    return replace(statistics, sums=sums, rows=rows)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else (0.0 if part == 0.0 else np.inf)
