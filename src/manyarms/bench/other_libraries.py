"""Stages by other libraries, where these are installed."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np

from manyarms.bench.bench_problem import BenchProblem


def installed(library: str) -> bool:
    """True if another library is there; it is imported now, so that its first call is not charged with that."""
    try:
        import_module(library)
    except ImportError:
        return False
    return True


def by_bayesianbandits(p: BenchProblem) -> np.ndarray:
    """Posterior means of a normal regression per arm, N(0, I) beforehand."""
    from bayesianbandits import NormalRegressor  # noqa: PLC0415  where it is installed  # pyright: ignore

    out = np.zeros((p.size.n_actions, p.size.dim))
    order = np.argsort(p.actions, kind="stable")
    seen, starts = np.unique(p.actions[order], return_index=True)
    for a, rows in zip(seen, np.split(order, starts[1:]), strict=True):
        out[a] = NormalRegressor(alpha=1.0, beta=1.0).fit(p.contexts[rows], p.rewards[rows]).coef_
    return out


def by_statsmodels(p: BenchProblem) -> float:
    """The log likelihood of a mixed model with one random intercept per action, by statsmodels."""
    from statsmodels.regression.mixed_linear_model import MixedLM  # noqa: PLC0415  where it is installed

    ones = np.ones((len(p.levels), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(MixedLM(p.levels, ones, groups=p.actions, exog_re=ones).fit(reml=False).llf)


def by_obp(p: BenchProblem) -> list[float]:
    """IPS, SNIPS and DR by Open Bandit Pipeline, from the matrix of all probabilities."""
    from obp import ope  # noqa: PLC0415  where it is installed  # pyright: ignore

    n, K = p.size.n_rounds, p.size.n_actions
    common: dict[str, Any] = {
        "action": p.actions, "reward": p.rewards, "position": np.zeros(n, dtype=int), "pscore": np.full(n, 1 / K),
        "action_dist": np.broadcast_to(p.shares, (n, K)).copy()[:, :, None],
    }  # fmt: skip
    predicted = (p.contexts @ p.posterior.weights.action_mean().T)[:, :, None]
    return [
        float(ope.InverseProbabilityWeighting().estimate_policy_value(**common)),
        float(ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**common)),
        float(ope.DoublyRobust().estimate_policy_value(**common, estimated_rewards_by_reg_model=predicted)),
    ]


def by_skdr_eval(p: BenchProblem) -> float:
    """Self-normalised DR by skdr-eval, which clips weights: another estimate, so only its time is compared."""
    import skdr_eval  # noqa: PLC0415  where it is installed  # pyright: ignore

    n, K = p.size.n_rounds, p.size.n_actions
    logging, target = np.full((n, K), 1 / K), np.broadcast_to(p.shares, (n, K)).copy()
    predicted = np.einsum("nd,nd->n", p.contexts, p.posterior.weights.action_mean()[p.actions])
    everything = np.ones((n, K), dtype=bool)
    return skdr_eval.dr_value_with_clip(logging, target, p.rewards, predicted, p.actions, everything)["SNDR"].V_hat
