"""The stages that `manyarms bench` times: each by this library, by plain forms, and by other libraries if installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from manyarms.bench import plain_forms as plain
from manyarms.bench.bench_problem import BenchProblem, BenchSize
from manyarms.bench.machine_limits import read_parquet
from manyarms.bench.other_libraries import by_bayesianbandits, by_obp, by_skdr_eval, by_statsmodels, installed
from manyarms.core import FeatureMap, LoggedData, Policy, Statistics
from manyarms.core.feature_map import Numeric
from manyarms.estimators.importance_weighted import DR, IPS, SNIPS
from manyarms.inference import condition
from manyarms.likelihoods import Bernoulli, Gaussian
from manyarms.logs.read_logs import read_logs
from manyarms.policies import Greedy, Logged, Pessimistic, TablePolicy, Thompson
from manyarms.posterior import fit
from manyarms.posterior.reward_width import confidence_radius
from manyarms.prior_learning.learn_prior import learn_prior
from manyarms.priors import independent

OURS, LOOP, TEXTBOOK = "manyarms", "loop", "textbook"
DRAWS = 20


@dataclass(frozen=True)
class Form:
    """One way to compute a stage.

    Attributes:
        call: Computes it.
        answer: Makes numbers of what `call` returns, to compare with those of the other forms.
        floats: The size of the largest array that it makes; forms that need too much are not run.
    """

    call: Callable[[], Any]
    answer: Callable[[Any], Any] = np.asarray
    floats: float = 0.0


MOST_FLOATS = 6e7
"""The largest array of a plain form: half a gigabyte."""

Forms = Mapping[str, Form]


@dataclass(frozen=True)
class Stage:
    """A stage of the library that is timed by itself.

    Attributes:
        forms: Makes the ways to compute it on a problem; the first is this library's.
        limit: Operations and bytes that any form needs, for the limit of the machine; None where they are not known.
        share: The share of the actions and rounds that it is given, for stages that take long.
        tolerance: How far answers may differ, relative to the largest number; None where they are random.
    """

    forms: Callable[[BenchProblem], Forms]
    limit: Callable[[BenchSize], tuple[float, float]] | None = None
    share: float = 1.0
    tolerance: float | None = 1e-10


def _seen(size: BenchSize) -> float:
    """The number of actions that are logged, on average."""
    K, n, _ = size
    return K * -np.expm1(n * np.log1p(-1 / K)) if K > 1 else 1.0


def _statistics(p: BenchProblem) -> Forms:
    K, n, d = p.size
    rounds = (p.contexts, p.actions, p.rewards, K)
    logs = p.logs
    return {
        OURS: Form(lambda: Gaussian(1.0).statistics(logs, K), lambda s: _sums_of(s, K, d)),
        LOOP: Form(lambda: plain.loop_statistics(*rounds), _joined, p.square_floats),
        TEXTBOOK: Form(lambda: plain.batched_statistics(*rounds), _joined, p.square_floats + n * d**2),
    }


def _sums_of(statistics: Statistics, K: int, d: int) -> np.ndarray:
    """G_a and B_a of our statistics, which keep few rounds as they are, as one vector."""
    gram, moment = np.zeros((K, d, d)), np.zeros((K, d))
    rows, sums = statistics.rows, statistics.sums
    gram[sums.actions], moment[sums.actions] = sums.gram, sums.moment
    np.add.at(gram, rows.actions, rows.features[:, :, None] * rows.features[:, None, :])
    np.add.at(moment, rows.actions, rows.features * rows.rewards[:, None])
    return _joined((gram, moment))


def _joined(parts: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts])


def _posterior(p: BenchProblem) -> Forms:
    statistics, prior, seen = p.statistics, p.prior, np.unique(p.actions)

    def ours() -> Any:
        weights = condition(prior, statistics, 1.0)
        return weights.action_mean(seen), weights.action_cov(seen)

    forms = {OURS: Form(ours, _joined)}
    if 4 * p.square_floats <= MOST_FLOATS:
        sums = p.plain_statistics
        answer: Callable[[plain.PlainPosterior], Any] = lambda q: _joined((q.mean[seen], q.cov[seen]))  # noqa: E731
        forms[LOOP] = Form(lambda: plain.loop_posterior(p.model, *sums), answer)
        forms[TEXTBOOK] = Form(lambda: plain.batched_posterior(p.model, *sums), answer)
    return forms


def _fit(p: BenchProblem) -> Forms:
    logs, prior, K = p.logs, p.prior, p.size.n_actions
    squares, n = float(np.sum(p.rewards**2)), p.size.n_rounds

    def by(statistics: Any, solve: plain.Posterior) -> float:
        gram, moment = statistics(p.contexts, p.actions, p.rewards, K)
        return plain.plain_log_evidence(p.model, gram, moment, n, squares, solve)

    return {
        OURS: Form(lambda: fit(logs, prior), lambda fitted: fitted.log_evidence),
        LOOP: Form(lambda: by(plain.loop_statistics, plain.loop_posterior), floats=4 * p.square_floats),
        TEXTBOOK: Form(lambda: by(plain.batched_statistics, plain.batched_posterior), floats=4 * p.square_floats),
    }


def _independent(p: BenchProblem) -> Forms:
    K, _, d = p.size
    logs, prior = p.logs, independent(K, dim=d)

    def loop() -> np.ndarray:
        gram, moment = plain.loop_statistics(p.contexts, p.actions, p.rewards, K)
        return np.array([np.linalg.solve(g + np.eye(d), b) for g, b in zip(gram, moment, strict=True)])

    def textbook() -> np.ndarray:
        gram, moment = plain.batched_statistics(p.contexts, p.actions, p.rewards, K)
        return np.linalg.solve(gram + np.eye(d), moment[:, :, None])[:, :, 0]

    forms = {
        OURS: Form(lambda: fit(logs, prior), lambda fitted: fitted.weights.action_mean()),
        LOOP: Form(loop, floats=p.square_floats),
        TEXTBOOK: Form(textbook, floats=p.square_floats + p.size.n_rounds * d**2),
    }
    if installed("bayesianbandits"):
        forms["bayesianbandits"] = Form(lambda: by_bayesianbandits(p), floats=p.square_floats)
    return forms


def _numbers(estimate: Any) -> list[float]:
    return [estimate.value, estimate.posterior_std]


def _value(p: BenchProblem) -> Forms:
    K, posterior, logs = p.size.n_actions, p.posterior, p.logs
    forms = {OURS: Form(lambda: posterior.value(Logged(logs), p.contexts), _numbers)}
    if 4 * p.square_floats <= MOST_FLOATS:
        fitted, rounds = p.plain_posterior, (p.contexts, p.actions, K)
        forms[LOOP] = Form(lambda: plain.loop_value(p.model, fitted, plain.loop_mass(*rounds)))
        forms[TEXTBOOK] = Form(lambda: plain.batched_value(p.model, fitted, plain.batched_mass(*rounds)))
    return forms


def _difference(p: BenchProblem) -> Forms:
    K, posterior, policies = p.size.n_actions, p.posterior, (Logged(p.logs), Logged(p.other_logs))
    forms = {OURS: Form(lambda: posterior.difference(*policies, p.contexts), _numbers)}
    if 4 * p.square_floats <= MOST_FLOATS:
        fitted = p.plain_posterior
        first, second = ((p.contexts, logs.actions, K) for logs in (p.logs, p.other_logs))
        forms[LOOP] = Form(
            lambda: plain.loop_value(p.model, fitted, plain.loop_mass(*first) - plain.loop_mass(*second))
        )
        forms[TEXTBOOK] = Form(
            lambda: plain.batched_value(p.model, fitted, plain.batched_mass(*first) - plain.batched_mass(*second))
        )
    return forms


def _greedy(p: BenchProblem) -> Forms:
    x, posterior = p.some_contexts, p.posterior
    mean = np.ascontiguousarray(posterior.weights.action_mean())
    return {
        OURS: Form(lambda: Greedy(posterior).actions(x)),
        LOOP: Form(lambda: plain.loop_greedy(x, mean)),
        TEXTBOOK: Form(lambda: plain.batched_greedy(x, mean), floats=len(x) * p.size.n_actions),
    }


def _pessimistic(p: BenchProblem) -> Forms:
    x, posterior = p.some_contexts, p.posterior
    # The bounds of single actions are kept with a posterior, as its means are.
    Pessimistic(posterior).actions(x[:1])
    forms = {OURS: Form(lambda: Pessimistic(posterior).actions(x))}
    if 4 * p.square_floats <= MOST_FLOATS:
        given = (x, p.plain_posterior.mean, p.plain_posterior.cov, confidence_radius(p.size.dim, 0.05))
        forms[LOOP] = Form(lambda: plain.loop_pessimistic(*given))
        forms[TEXTBOOK] = Form(lambda: plain.batched_pessimistic(*given), floats=2 * len(x) * p.size.n_actions)
    return forms


def _thompson(p: BenchProblem) -> Forms:
    x, posterior = p.some_contexts[:DRAWS], p.posterior
    policy: Callable[[], Policy] = lambda: Thompson(posterior, DRAWS, rng=np.random.default_rng(p.seed))  # noqa: E731
    forms = {OURS: Form(lambda: policy().top_k(x, 1))}
    if 4 * p.square_floats <= MOST_FLOATS:
        given = (p.model, p.plain_posterior, x, DRAWS)
        forms[LOOP] = Form(lambda: plain.loop_thompson(*given, np.random.default_rng(p.seed)))
        forms[TEXTBOOK] = Form(lambda: plain.batched_thompson(*given, np.random.default_rng(p.seed)))
    return forms


ONE_FIT = "one fit"


def _learn_prior(p: BenchProblem) -> Forms:
    logs, prior, K = p.logs, p.prior, p.size.n_actions
    squares, n = float(np.sum(p.rewards**2)), p.size.n_rounds

    def by(statistics: Any, solve: plain.Posterior) -> float:
        gram, moment = statistics(p.contexts, p.actions, p.rewards, K)

        def evidence(model: plain.PlainModel) -> float:
            return plain.plain_log_evidence(model, gram, moment, n, squares, solve)

        return plain.search_prior(evidence, p.model, noise=True)

    return {
        OURS: Form(lambda: learn_prior(logs, prior, means="fixed", avoid_boundary=False), _learned_evidence),
        LOOP: Form(lambda: by(plain.loop_statistics, plain.loop_posterior), floats=4 * p.square_floats),
        TEXTBOOK: Form(lambda: by(plain.batched_statistics, plain.batched_posterior), floats=4 * p.square_floats),
        ONE_FIT: Form(lambda: fit(logs, prior), lambda _: None),
    }


def _learned_evidence(learned: Any) -> float:
    return learned.posterior.log_evidence


def _random_intercepts(p: BenchProblem) -> Forms:
    K, n, _ = p.size
    logs = LoggedData(np.ones((n, 1)), p.actions, p.levels, n_actions=K)
    prior = independent(K, dim=1)
    forms = {
        OURS: Form(lambda: learn_prior(logs, prior, means="maximised", avoid_boundary=False), _learned_evidence),
        ONE_FIT: Form(lambda: fit(logs, prior), lambda _: None),
    }
    if installed("statsmodels.regression.mixed_linear_model"):
        forms["statsmodels"] = Form(lambda: by_statsmodels(p))
    return forms


def _clicks(p: BenchProblem) -> Forms:
    logs, prior = p.click_logs, p.prior

    def by(statistics: Any, solve: plain.Posterior) -> float:
        return plain.click_evidence(p.model, p.contexts, p.actions, p.clicks, statistics, solve)

    return {
        OURS: Form(lambda: fit(logs, prior, Bernoulli()), lambda fitted: fitted.log_evidence),
        LOOP: Form(lambda: by(plain.loop_statistics, plain.loop_posterior), floats=4 * p.square_floats),
        TEXTBOOK: Form(lambda: by(plain.batched_statistics, plain.batched_posterior), floats=4 * p.square_floats),
    }


def _learn_clicks(p: BenchProblem) -> Forms:
    logs, prior = p.click_logs, p.prior

    def textbook() -> float:
        def evidence(model: plain.PlainModel) -> float:
            return plain.click_evidence(
                model, p.contexts, p.actions, p.clicks, plain.batched_statistics, plain.batched_posterior
            )

        return plain.search_prior(evidence, p.model, noise=False)

    return {
        OURS: Form(
            lambda: learn_prior(logs, prior, Bernoulli(), means="fixed", avoid_boundary=False), _learned_evidence
        ),
        TEXTBOOK: Form(textbook, floats=4 * p.square_floats),
        ONE_FIT: Form(lambda: fit(logs, prior, Bernoulli()), lambda _: None),
    }


READING = "reading"


def _out_of_core(p: BenchProblem) -> Forms:
    K, n, d = p.size
    names, path = [f"x{i}" for i in range(d)], p.file
    features = FeatureMap([Numeric(name) for name in names], intercept=False)
    # A folder is read as a stream, whatever its size.
    stream = read_logs(path, names, "action", "reward", features=features, n_actions=K)

    def columns() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        table = pq.read_table(path)
        contexts = np.column_stack([table[name].to_numpy() for name in names])
        return contexts, table["action"].to_numpy(), table["reward"].to_numpy()

    return {
        OURS: Form(lambda: Gaussian(1.0).statistics(stream, K), lambda s: _sums_of(s, K, d)),
        LOOP: Form(lambda: plain.loop_statistics(*columns(), K), _joined, p.square_floats),
        TEXTBOOK: Form(lambda: plain.batched_statistics(*columns(), K), _joined, p.square_floats + n * d**2),
        READING: Form(lambda: read_parquet(path), lambda _: None),
    }


def _estimators(p: BenchProblem) -> Forms:
    K, n, _ = p.size
    logs, posterior = p.logs, p.posterior
    given = (p.contexts, p.actions, p.rewards, np.full(n, 1 / K), p.shares, posterior.weights.action_mean())

    def ours() -> list[float]:
        policy = TablePolicy(p.shares)
        return [estimator.estimate(policy, logs).value for estimator in (IPS(), SNIPS(), DR(posterior))]

    forms = {
        OURS: Form(ours),
        LOOP: Form(lambda: plain.loop_estimates(*given)),
        TEXTBOOK: Form(lambda: plain.batched_estimates(*given), floats=2 * n * K),
    }
    if installed("obp.ope"):
        forms["obp"] = Form(lambda: by_obp(p), floats=3 * n * K)
    if installed("skdr_eval"):
        forms["skdr-eval"] = Form(lambda: by_skdr_eval(p), lambda _: None, floats=3 * n * K)
    return forms


STAGES: dict[str, Stage] = {
    "statistics": Stage(_statistics, lambda s: (2 * s.n_rounds * s.dim**2, 8 * s.n_rounds * (s.dim + 2))),
    "posterior": Stage(_posterior, lambda s: (3 * _seen(s) * s.dim**3, 24 * _seen(s) * s.dim**2)),
    "fit": Stage(_fit, lambda s: (2 * s.n_rounds * s.dim**2 + _seen(s) * s.dim**3, 8 * s.n_rounds * (s.dim + 2))),
    "independent arms": Stage(_independent, lambda s: (2 * s.n_rounds * s.dim**2 + _seen(s) * s.dim**3, 0)),
    "value": Stage(_value, lambda s: (2 * _seen(s) * s.dim**2, 8 * s.n_rounds * (s.dim + 2))),
    "difference": Stage(_difference, lambda s: (2 * _seen(s) * s.dim**2, 8 * s.n_rounds * (s.dim + 2))),
    "greedy": Stage(_greedy, lambda s: (2 * min(200, s.n_rounds) * s.n_actions * s.dim, 0)),
    "pessimistic": Stage(_pessimistic, lambda s: (2 * min(200, s.n_rounds) * s.n_actions * s.dim, 0)),
    "Thompson": Stage(
        _thompson, lambda s: (2 * DRAWS * s.n_actions * s.dim * (s.dim + DRAWS), 0), tolerance=None
    ),
    "learn_prior": Stage(_learn_prior, share=0.1, tolerance=1e-7),
    "random intercepts": Stage(_random_intercepts, share=0.1, tolerance=1e-7),
    "clicks, fit": Stage(_clicks, share=0.1, tolerance=1e-7),
    "clicks, learn_prior": Stage(_learn_clicks, share=0.03, tolerance=1e-6),
    "out of core": Stage(_out_of_core),
    "estimators": Stage(_estimators, lambda s: (4 * s.n_rounds * s.dim, 24 * s.n_rounds * (s.dim + 4))),
}  # fmt: skip
"""Every stage, by name."""
