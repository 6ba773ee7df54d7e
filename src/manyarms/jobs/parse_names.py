"""Policies and estimators by name, as command lines and settings files call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from manyarms._base.option_values import ESTIMATORS, FLOOR, POLICIES
from manyarms.core.policy import Policy
from manyarms.errors import InputError, RangeError
from manyarms.estimators.estimator import Estimator
from manyarms.estimators.importance_weighted import (
    DR,
    IPS,
    SNDR,
    SNIPS,
    DRos,
    ExponentialSmoothing,
    LogarithmicSmoothing,
    Replay,
    SubGaussianDR,
    SubGaussianIPS,
    SwitchDR,
)
from manyarms.policies import EpsilonGreedy, Greedy, Pessimistic, Softmax, Thompson, Uniform
from manyarms.posterior.posterior import Posterior

Model = Posterior


def policy_named(
    text: str,
    posterior: Model | None = None,
    *,
    n_actions: int | None = None,
    n_draws: int = 1000,
    rng: np.random.Generator | None = None,
) -> Policy:
    """A policy from its name and, behind a colon, its number: "greedy", "softmax:0.1", "epsilon-greedy:0.05".

    Args:
        text: One of `POLICIES`, with a number where it takes one.
        posterior: What it is made of; "uniform" needs none.
        n_actions: K, for "uniform" without a posterior.
        n_draws: For "thompson" without a number.
        rng: For "thompson"; by default its draws are those of seed 0.
    """
    name, number = _parsed(text, POLICIES, "policy")
    if name == "uniform":
        count = posterior.n_actions if posterior is not None else n_actions
        if count is None:
            raise InputError("uniform needs to know how many actions there are: pass a model or a catalog.")
        return Uniform(count)
    if posterior is None:
        raise InputError(f"policy {name!r} is made of a model: pass one.")
    if name == "thompson":
        draws = n_draws if number is None else _whole(text, number)
        return Thompson(posterior, draws, rng=np.random.default_rng(0) if rng is None else rng)
    makers: dict[str, Callable[[], Policy]] = {
        "greedy": lambda: Greedy(posterior),
        "pessimistic": lambda: Pessimistic(posterior, 0.05 if number is None else number),
        "softmax": lambda: Softmax(posterior, _needed(text, number)),
        "epsilon-greedy": lambda: EpsilonGreedy(Greedy(posterior), _needed(text, number)),
    }
    return makers[name]()


def estimator_named(text: str, posterior: Model | None = None) -> Estimator:
    """An estimator from its name and, behind a colon, its number: "ips", "ips:0.01", "switch-dr:10".

    The number of "ips", "snips", "dr" and "sndr" is a floor on the propensity: 0.01 makes no weight larger than 100.

    Args:
        text: One of `ESTIMATORS`, with a number where it takes one.
        posterior: The reward model of those that have one.
    """
    kind, number = _parsed(text, ESTIMATORS, "estimator")
    if ESTIMATORS[kind] == FLOOR and number is not None and not 0 <= number <= 1:
        meant = f" For weights of at most {number:g} write {kind}:{1 / number:.3g}." if number > 1 else ""
        raise RangeError(f"the number of {text.strip()!r} is a floor on the propensity, from 0 to 1.{meant}")
    # As it was called, so that two with different numbers are told apart.
    name = text.strip()
    plain: dict[str, Callable[[], Estimator]] = {
        "ips": lambda: IPS(number, name=name),
        "snips": lambda: SNIPS(number, name=name),
        "replay": lambda: Replay(name=name),
        "sub-gaussian-ips": lambda: SubGaussianIPS(_needed(text, number), name=name),
        "exponential-smoothing": lambda: ExponentialSmoothing(_needed(text, number), name=name),
        "logarithmic-smoothing": lambda: LogarithmicSmoothing(_needed(text, number), name=name),
    }
    if kind in plain:
        return plain[kind]()
    if posterior is None:
        raise InputError(f"estimator {kind!r} uses a reward model: pass a model.")
    model: Any = posterior
    with_model: dict[str, Callable[[], Estimator]] = {
        "dr": lambda: DR(model, number, name=name),
        "sndr": lambda: SNDR(model, number, name=name),
        "switch-dr": lambda: SwitchDR(model, _needed(text, number), name=name),
        "dros": lambda: DRos(model, _needed(text, number), name=name),
        "sub-gaussian-dr": lambda: SubGaussianDR(model, _needed(text, number), name=name),
    }
    return with_model[kind]()


def _parsed(text: str, known: dict[str, str], what: str) -> tuple[str, float | None]:
    name, colon, rest = text.strip().partition(":")
    if name not in known:
        raise InputError(f"there is no {what} {name!r}; there are {', '.join(known)}.")
    if not colon:
        return name, None
    if not known[name]:
        raise InputError(f"{what} {name!r} takes no number; got {text!r}.")
    try:
        return name, float(rest)
    except ValueError:
        raise InputError(f"{text!r} must have a number behind its colon, the {known[name]}.") from None


def _needed(text: str, number: float | None) -> float:
    if number is None:
        what = {**POLICIES, **ESTIMATORS}[text.strip()]
        raise InputError(f"{text.strip()!r} needs a number, its {what}, as in {text.strip()}:0.1.")
    return number


def _whole(text: str, number: float) -> int:
    if not number.is_integer() or number < 1:
        raise InputError(f"{text!r} must have a whole number of at least 1 behind its colon.")
    return int(number)
