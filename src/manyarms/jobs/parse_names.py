"""Policies, estimators and likelihoods parsed from their names, as flags and spec files give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from manyarms._base.checks import as_count, as_text
from manyarms._base.job_options import ESTIMATORS, FLOOR, POLICIES
from manyarms.core.policy import Policy
from manyarms.errors import InputError, RangeError
from manyarms.estimators import Estimator
from manyarms.estimators import importance_weighted as iw
from manyarms.likelihoods import Bernoulli, Gaussian, Likelihood, LogNormal, Poisson, StudentT
from manyarms.policies import EpsilonGreedy, Greedy, Pessimistic, Softmax, Thompson, Uniform
from manyarms.policies.thompson import MAX_DRAWS
from manyarms.posterior.posterior import Posterior


def policy_named(
    text: str,
    posterior: Posterior | None = None,
    *,
    n_actions: int | None = None,
    n_draws: int = 1000,
    rng: np.random.Generator | None = None,
) -> Policy:
    """Parse the name of a policy, with its number after a colon: "greedy", "softmax:0.1", "epsilon-greedy:0.05".

    Args:
        text: One of `POLICIES`, with a number where it takes one.
        posterior: The posterior it is made from; "uniform" needs none.
        n_actions: K, for "uniform" without a posterior.
        n_draws: The number of draws of "thompson" without a number.
        rng: A generator for the draws of "thompson"; by default that of seed 0.
    """
    name, number = _parse(text, POLICIES, "policy")
    if n_actions is not None:
        n_actions = as_count("n_actions", n_actions)
    n_draws = as_count("n_draws", n_draws)
    if name == "uniform":
        count = posterior.n_actions if posterior is not None else n_actions
        if count is None:
            raise InputError(
                "uniform needs to know how many actions there are.",
                "Pass a model or a catalog.",
                flag_remedy="Pass --model or --catalog.",
            )
        return Uniform(count)
    if posterior is None:
        problem = f"policy {name!r} is made from a model."
        raise InputError(problem, "Pass a model.", flag_remedy="Pass --model.")
    if name == "thompson":
        if number is not None and (not number.is_integer() or number < 1):
            raise InputError(f"{text!r} must have a whole number of at least 1 after its colon.")
        if number is not None and number > MAX_DRAWS:
            raise RangeError(f"{text!r} has too many draws: there can be at most {MAX_DRAWS:,}.", "Ask for fewer.")
        draws = n_draws if number is None else int(number)
        return Thompson(posterior, draws, rng=np.random.default_rng(0) if rng is None else rng)
    makers: dict[str, Callable[[], Policy]] = {
        "greedy": lambda: Greedy(posterior),
        "pessimistic": lambda: Pessimistic(posterior, 0.05 if number is None else number),
        "softmax": lambda: Softmax(posterior, _required(text, number)),
        "epsilon-greedy": lambda: EpsilonGreedy(Greedy(posterior), _required(text, number)),
    }
    return makers[name]()


def check_policy_name(text: str, without_number: Sequence[str] = ()) -> None:
    """Refuse a text that `policy_named` would refuse, before there is a posterior.

    Args:
        text: The name of a policy.
        without_number: Policies that need no number here.
    """
    name, number = _parse(text, POLICIES, "policy")
    if number is None and POLICIES[name] in ("temperature", "epsilon") and name not in without_number:
        _required(text, number)


def estimator_named(text: str, posterior: Posterior | None = None) -> Estimator:
    """Parse the name of an estimator, with its number after a colon: "ips", "ips:0.01", "switch-dr:10".

    The number of "ips", "snips", "dr" and "sndr" is a floor on the propensity: 0.01 makes no weight larger than 100.

    Args:
        text: One of `ESTIMATORS`, with a number where it takes one.
        posterior: The reward model of those that have one.
    """
    kind, number = _parse(text, ESTIMATORS, "estimator")
    if ESTIMATORS[kind] == FLOOR and number is not None and not 0 <= number <= 1:
        problem = f"the number of {text.strip()!r} is a floor on the propensity, from 0 to 1."
        remedy = f"For weights of at most {number:g} write {kind}:{1 / number:.3g}." if number > 1 else ""
        raise RangeError(problem, remedy)
    with_model = kind in WITH_REWARD_MODEL
    if with_model and posterior is None:
        problem = f"estimator {kind!r} uses a reward model."
        raise InputError(problem, "Pass a model.", flag_remedy="Pass --model.")
    arguments: list[Any] = [posterior] if with_model else []
    if ESTIMATORS[kind]:
        arguments.append(number if ESTIMATORS[kind] == FLOOR else _required(text, number))
    make = WITH_REWARD_MODEL[kind] if with_model else WITHOUT_MODEL[kind]
    # Spelled as on every page, snIPS for snips, and named with its number, so that different numbers differ in name.
    own: str = make.name  # pyright: ignore[reportFunctionMemberAccess]
    return make(*arguments, name=text.strip().replace(kind, own, 1) if own.lower() == kind else text.strip())


WITHOUT_MODEL: dict[str, Callable[..., Estimator]] = {
    "ips": iw.IPS,
    "snips": iw.SNIPS,
    "replay": iw.Replay,
    "sub-gaussian-ips": iw.SubGaussianIPS,
    "exponential-smoothing": iw.ExponentialSmoothing,
    "logarithmic-smoothing": iw.LogarithmicSmoothing,
}
WITH_REWARD_MODEL: dict[str, Callable[..., Estimator]] = {
    "dr": iw.DR,
    "sndr": iw.SNDR,
    "switch-dr": iw.SwitchDR,
    "dros": iw.DRos,
    "sub-gaussian-dr": iw.SubGaussianDR,
}

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "student-t": StudentT,
    "log-normal": LogNormal,
}


def likelihood_named(kind: Any, noise_std: float = 1.0) -> Likelihood:
    """Parse the name of a likelihood.

    Args:
        kind: One of `LIKELIHOODS`.
        noise_std: The noise of a single reward, for those that have one.
    """
    if not isinstance(kind, str) or kind not in LIKELIHOODS:
        raise InputError(f"must be one of {', '.join(LIKELIHOODS)}; got {kind!r}.", argument="likelihood")
    make: Any = LIKELIHOODS[kind]
    return make(noise_std) if kind in ("gaussian", "student-t", "log-normal") else make()


def _parse(text: str, known: dict[str, str], role: str) -> tuple[str, float | None]:
    name, colon, rest = as_text(f"the name of the {role}", text).strip().partition(":")
    if name not in known:
        near = get_close_matches(name, known, 1)
        plural = "policies" if role == "policy" else f"{role}s"
        problem = f"there is no {role} {name!r}; the {plural} are {', '.join(known)}."
        own = "For your own, pass column:NAME, table:FILE or shares:FILE." if role == "policy" else ""
        raise InputError(problem, f"Did you mean {near[0]}?" if near else own)
    if not colon:
        return name, None
    if not known[name]:
        raise InputError(f"{role} {name!r} takes no number; got {text!r}.")
    try:
        return name, float(rest)
    except ValueError:
        raise InputError(f"{text!r} must have a number after its colon, the {known[name]}.") from None


def _required(text: str, number: float | None) -> float:
    if number is None:
        name = text.strip()
        raise InputError(f"{name!r} needs a number, its {({**POLICIES, **ESTIMATORS})[name]}, as in {name}:0.1.")
    return number
