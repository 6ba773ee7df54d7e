"""What the demo finds out: the policies side by side, and which of them to ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import manyarms as ma
from manyarms.briefing.answer import SURE
from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.shop import read_tables
from manyarms.jobs.evaluating import Judged


@dataclass(frozen=True)
class Candidate:
    """A policy, as judged by the posterior and, since the shop is made up, by the truth.

    Attributes:
        name: What to call it.
        value: Margin a round.
        gain: The same, less that of what runs now.
        true_value: What the posterior does not know, on the same customers.
        never_shown: Share of its choices that fall on items with no row in the log.
    """

    name: str
    value: ma.Estimate
    gain: ma.Estimate
    true_value: float
    never_shown: float


@dataclass(frozen=True)
class Comparison:
    """What runs now and what could run instead.

    Attributes:
        n_rounds: Rounds in the log.
        n_items: Items in the catalog.
        n_categories: Their categories.
        n_never_shown: Items with no row in the log.
        learned: What was learned of the prior, by name: standard deviations, and means coordinate by coordinate.
        now: What runs now; its gain is zero.
        candidates: What could run instead.
        briefing: All of it, for the report.
    """

    n_rounds: int
    n_items: int
    n_categories: int
    n_never_shown: int
    learned: Mapping[str, float]
    now: Candidate
    candidates: tuple[Candidate, ...]
    briefing: ma.Briefing

    @property
    def best(self) -> Candidate:
        """The candidate that the answer is about."""
        return next(one for one in self.candidates if one.name == self.briefing.answer.policy)

    @property
    def ships(self) -> bool:
        """Whether the answer is to ship it."""
        return self.briefing.answer.verdict == "ship"


def compare(folder: Path, truth: LinearEnvironment) -> Comparison:
    """Read the files as a user would, learn a prior and fit, and judge the policies on the logged customers.

    Args:
        folder: Holds logs.parquet and catalog.parquet.
        truth: For the true values; nothing else sees it.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415  slow to import: `manyarms --help` must not wait for it

    catalog = pq.read_table(folder / "catalog.parquet")
    logs = read_tables(pq.read_table(folder / "logs.parquet"), catalog)
    categories = catalog["category"].to_pylist()
    learned = ma.learn_prior(logs, ma.priors.from_categories(categories, dim=logs.dim, shared_std=1.0))
    posterior = learned.posterior
    unseen = np.bincount(logs.actions, minlength=logs.n_actions) == 0
    policies, now = _policies(posterior, logs.contexts), ma.Logged(logs)
    true_values = {name: truth.value(policy, logs.contexts) for name, policy in {"logged": now, **policies}.items()}
    briefing = ma.brief(
        policies,
        logs,
        posterior,
        estimators=[ma.SNIPS(), ma.DR(posterior)],
        categories=categories,
        truth=true_values,
        true_rewards=truth.expected_reward(logs.contexts, logs.actions),
        sure=SURE,
        notes={"command": "manyarms demo", "data": "a made-up shop, so the truth is known"},
    )
    now_row, *others = (_judged(row, true_values[row.name]) for row in briefing.evaluation.rows)
    return Comparison(
        n_rounds=len(logs),
        n_items=logs.n_actions,
        n_categories=len(set(categories)),
        n_never_shown=int(unseen.sum()),
        learned={parameter.name: parameter.value for parameter in learned.parameters},
        now=now_row,
        candidates=tuple(others),
        briefing=briefing,
    )


def _judged(row: Judged, true_value: float) -> Candidate:
    assert row.value is not None
    is_now = row.difference is None
    gain = ma.Estimate(0.0, 0.0) if row.difference is None else row.difference
    name = "what runs now" if is_now else row.name
    return Candidate(name, row.value, gain, true_value, row.value.diagnostics["unsupported_mass"])


def _policies(posterior: ma.RewardPosterior, contexts: Any) -> Mapping[str, ma.Policy]:
    return {
        "greedy": _written_down(ma.Greedy(posterior), contexts),
        "pessimistic": _written_down(ma.Pessimistic(posterior), contexts),
        "uniform": ma.Uniform(posterior.weights.n_actions),
    }


def _written_down(policy: ma.Policy, contexts: Any) -> ma.TablePolicy:
    """A deterministic policy as a table of its choices: the best items are searched for once, not at every question."""
    chosen = policy.actions(contexts)
    n = len(chosen)
    return ma.TablePolicy(sparse.csr_array((np.ones(n), chosen, np.arange(n + 1)), shape=(n, policy.n_actions)))
