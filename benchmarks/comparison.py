"""The neighbours on one public task: scikit-learn's digits as a bandit, with 10 actions and with 200.

    make comparison                                   # an environment with all libraries, then this script
    python benchmarks/comparison.py --refresh docs/comparison.md

Each image is shown one item. Every item belongs to a digit. It brings a reward of 1 with its own probability (0.5 to 1)
if it belongs to the digit in the image, else 0. With 10 actions there is one item per digit, with 200 there are 20. The
logging policy mixes a weak classifier with chance. The target policy mixes a better one with chance, and prefers the
other half of the items. Both are known, so every estimator gets true propensities. The true value is the mean over all
images.

Each library is used through its public functions, with simple linear models of the rewards.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

PACKAGES = ("obp", "skdr-eval", "causalrl", "bayesianbandits", "manyarms")


class Answer(NamedTuple):
    """An estimate with its 95 % interval; None where a library refuses."""

    value: float
    low: float
    high: float


class Task(NamedTuple):
    """One log of the digits bandit, with what only the referee knows: true rewards, and the value of the target."""

    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    logging: np.ndarray
    target: np.ndarray
    digit_of: np.ndarray
    everyone: np.ndarray
    true_rewards: np.ndarray
    value: float


def draw_task(items: int, n: int, seed: int) -> Task:
    """A log of n rounds, with `items` items per digit."""
    rng = np.random.default_rng(seed)
    images, digits = load_digits(return_X_y=True)
    images = PCA(15, whiten=True, random_state=0).fit_transform(images)
    everyone = np.column_stack([np.ones(len(images)), images])
    digit_of = np.repeat(np.arange(10), items)
    true_rewards = (digits[:, None] == digit_of) * rng.uniform(0.5, 1.0, size=10 * items)
    popular = rng.permuted(np.tile(np.where(np.arange(items) < items / 2, 3.0, 1.0), (10, 1)), axis=1)
    logging, target = (
        0.7 * _chances(everyone, digits, rounds, items, shares, rng) + 0.3 / (10 * items)
        for rounds, shares in ((40, popular), (200, 1.0 / popular))
    )
    rows = rng.integers(len(images), size=n)
    actions = (logging[rows].cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=10 * items - 1)
    rewards = (rng.random(n) < true_rewards[rows, actions]).astype(float)
    value = float((target * true_rewards).sum(axis=1).mean())
    return Task(everyone[rows], actions, rewards, logging[rows], target[rows], digit_of, everyone, true_rewards, value)


def _chances(everyone: Any, digits: Any, rounds: int, items: int, shares: Any, rng: np.random.Generator) -> np.ndarray:
    """The probabilities of a policy: a classifier of `rounds` images chooses the digit, fixed shares the item."""
    seen = np.concatenate([np.flatnonzero(digits == digit)[:1] for digit in range(10)])  # each digit at least once
    seen = np.concatenate([seen, rng.integers(len(digits), size=rounds)])
    classifier = LogisticRegression(max_iter=1000).fit(everyone[seen], digits[seen])
    within = shares / shares.sum(axis=1, keepdims=True)
    return np.repeat(classifier.predict_proba(everyone), items, axis=1) * within.ravel()


def _obp(task: Task) -> dict[str, Answer]:
    from obp import ope  # noqa: PLC0415  each library is imported where it is used

    K = task.logging.shape[1]
    feedback = {
        "action": task.actions, "reward": task.rewards, "position": np.zeros(len(task.actions), dtype=int),
        "pscore": task.logging[np.arange(len(task.actions)), task.actions],
    }  # fmt: skip
    model = ope.RegressionModel(n_actions=K, base_model=LogisticRegression(max_iter=1000))
    predicted = model.fit_predict(
        context=task.contexts, action=task.actions, reward=task.rewards, n_folds=2, random_state=0
    )
    common = {**feedback, "action_dist": task.target[:, :, None]}
    answers = {}
    for name, estimator, extra in (
        ("SNIPW", ope.SelfNormalizedInverseProbabilityWeighting(), {}),
        ("DR, logistic regression", ope.DoublyRobust(), {"estimated_rewards_by_reg_model": predicted}),
    ):
        value = estimator.estimate_policy_value(**common, **extra)
        interval = estimator.estimate_interval(**common, **extra, n_bootstrap_samples=200, random_state=0)
        answers[name] = Answer(float(value), interval["95.0% CI (lower)"], interval["95.0% CI (upper)"])
    return answers


def _skdr_eval(task: Task) -> dict[str, Answer]:
    import skdr_eval  # noqa: PLC0415

    K = task.logging.shape[1]
    observed = np.column_stack([task.contexts, np.eye(K)[task.actions]])
    predicted, _ = skdr_eval.fit_outcome_crossfit(observed, task.rewards, estimator="ridge")
    eligible = np.ones_like(task.logging, dtype=bool)
    result = skdr_eval.dr_value_with_clip(task.logging, task.target, task.rewards, predicted, task.actions, eligible)[
        "SNDR"
    ]
    half = 1.96 * result.SE_if
    return {"SNDR, ridge": Answer(result.V_hat, result.V_hat - half, result.V_hat + half)}


def _causalrl(task: Task) -> dict[str, Answer | None]:
    from causalrl.data.trajectory import TrajectoryLog  # noqa: PLC0415
    from causalrl.ope import stream_policy_value  # noqa: PLC0415

    rows = np.arange(len(task.actions))
    weights = task.target[rows, task.actions] / task.logging[rows, task.actions]
    cells = [
        {"entity_id": int(row), "episode_id": 0, "t": 0, "kind": "value", "name": name, "value": float(column[row])}
        for row in rows
        for name, column in (("weight", weights), ("reward", task.rewards))
    ]
    certificate = stream_policy_value(TrajectoryLog.from_rows(cells))
    if certificate.value is None or certificate.ci is None:
        return {"SNIPW": None}
    low, high = (certificate.ci.lo, certificate.ci.hi) if hasattr(certificate.ci, "lo") else tuple(certificate.ci)
    return {"SNIPW": Answer(float(certificate.value), float(low), float(high))}


def _manyarms(task: Task) -> dict[str, Answer]:
    import manyarms as ma  # noqa: PLC0415

    rows, K = np.arange(len(task.actions)), task.logging.shape[1]
    logs = ma.LoggedData(
        task.contexts, task.actions, task.rewards, task.logging[rows, task.actions], K,
        logging_policy=ma.TablePolicy(task.logging),
    )  # fmt: skip
    target = ma.TablePolicy(task.target)
    train, test = np.arange(0, len(rows), 2), np.arange(1, len(rows), 2)
    prior = ma.priors.from_categories(task.digit_of, dim=task.contexts.shape[1], shared_std=1.0)
    posterior = ma.learn_prior(logs, prior).posterior
    half = ma.fit(logs.take(train), posterior.prior, posterior.likelihood)
    estimates = {
        "posterior": posterior.value(target, logs.contexts),
        "Checked, half of the rounds": ma.Checked(half).estimate(target.take(test), logs.take(test)),
        "DR, posterior": ma.DR(
            ma.CrossFit(posterior.prior, posterior.likelihood, rng=np.random.default_rng(0))
        ).estimate(target, logs),
    }
    return {name: Answer(estimate.value, *estimate.interval()) for name, estimate in estimates.items()}


EVALUATORS: dict[str, Callable[[Task], Any]] = {
    "obp": _obp, "skdr-eval": _skdr_eval, "causalrl": _causalrl, "manyarms": _manyarms,
}  # fmt: skip


def _learn_obp(task: Task) -> np.ndarray:
    from obp.policy import IPWLearner  # noqa: PLC0415

    learner = IPWLearner(n_actions=task.logging.shape[1], base_classifier=LogisticRegression(max_iter=1000))
    pscore = task.logging[np.arange(len(task.actions)), task.actions]
    learner.fit(context=task.contexts, action=task.actions, reward=task.rewards, pscore=pscore)
    return learner.predict(context=task.everyone)[:, :, 0].argmax(axis=1)


def _learn_bayesianbandits(task: Task) -> np.ndarray:
    from bayesianbandits import (  # noqa: PLC0415
        Arm,
        ContextualAgent,
        EmpiricalBayesNormalRegressor,
        EpsilonGreedy,
    )

    arms = [Arm(k, learner=EmpiricalBayesNormalRegressor()) for k in range(task.logging.shape[1])]
    agent = ContextualAgent(arms, EpsilonGreedy(0.0), random_seed=0)
    for action in np.unique(task.actions):
        rows = task.actions == action
        agent.select_for_update(int(action)).update(task.contexts[rows], task.rewards[rows])
    # Exact posterior means: `pull` would rank the arms by means of random draws.
    return np.column_stack([arm.learner.predict(task.everyone) for arm in agent.arms]).argmax(axis=1)


def _learn_manyarms(task: Task) -> np.ndarray:
    import manyarms as ma  # noqa: PLC0415

    logs = ma.LoggedData(task.contexts, task.actions, task.rewards, n_actions=task.logging.shape[1])
    prior = ma.priors.from_categories(task.digit_of, dim=task.contexts.shape[1], shared_std=1.0)
    return ma.Greedy(ma.learn_prior(logs, prior).posterior).actions(task.everyone)


LEARNERS: dict[str, tuple[str, Callable[[Task], np.ndarray]]] = {
    "obp": ("IPWLearner, logistic regression", _learn_obp),
    "bayesianbandits": ("a Bayesian regression per arm, greedy", _learn_bayesianbandits),
    "manyarms": ("Greedy", _learn_manyarms),
}


def compare_values(items: int, n: int, n_logs: int) -> list[str]:
    """Rows of the table of estimates: error, coverage and time of each library."""
    answers: dict[tuple[str, str], list[tuple[Answer | None, float]]] = {}
    seconds = dict.fromkeys(EVALUATORS, 0.0)
    for seed in range(n_logs):
        task = draw_task(items, n, seed)
        for library, evaluate in EVALUATORS.items():
            start = time.process_time()
            results = evaluate(task)
            seconds[library] += (time.process_time() - start) / n_logs
            for name, answer in results.items():
                answers.setdefault((library, name), []).append((answer, task.value))
    lines = []
    for (library, name), pairs in answers.items():
        given = [(answer, value) for answer, value in pairs if answer is not None]
        if not given:
            lines.append(f"| {library} | {name} | {10 * items} | refused {len(pairs)} of {len(pairs)} | | | |")
            continue
        error = np.sqrt(np.mean([(answer.value - value) ** 2 for answer, value in given]))
        covered = np.mean([answer.low <= value <= answer.high for answer, value in given])
        width = np.mean([answer.high - answer.low for answer, _ in given])
        refused = "" if len(given) == len(pairs) else f" (refused {len(pairs) - len(given)})"
        figures = f"{error:.3f}{refused} | {100 * covered:.0f} % | {width:.2f} | {seconds[library]:.2f}"
        lines.append(f"| {library} | {name} | {10 * items} | {figures} |")
    return lines


def compare_learners(items: int, n: int, n_logs: int) -> list[str]:
    """Rows of the table of learned policies: their true value as a share of the best policy's, and time."""
    lines = []
    for library, (name, learn) in LEARNERS.items():
        shares, start = [], time.process_time()
        for seed in range(n_logs):
            task = draw_task(items, n, seed)
            reached = task.true_rewards[np.arange(len(task.everyone)), learn(task)].mean()
            shares.append(reached / task.true_rewards.max(axis=1).mean())
        seconds = (time.process_time() - start) / n_logs
        error = np.std(shares) / np.sqrt(n_logs)
        lines.append(f"| {library} | {name} | {10 * items} | {np.mean(shares):.2f} ± {error:.2f} | {seconds:.2f} |")
    return lines


def tables(n: int, n_logs: int) -> str:
    """Both tables as Markdown, with the versions of all libraries."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    values = [row for items in (1, 20) for row in compare_values(items, n, n_logs)]
    learned = [row for items in (1, 20) for row in compare_learners(items, n, n_logs)]
    return "\n".join([
        f"{n_logs} logs of {n:,} rounds each; {versions}.", "",
        "| library | estimate | actions | error (RMSE) | 95 % intervals that cover | mean width | CPU s |",
        "|---|---|---|---|---|---|---|", *values, "",
        "| library | policy learned from the log | actions | its true value, as a share of the best | CPU s |",
        "|---|---|---|---|---|", *learned,
    ])  # fmt: skip


def main() -> None:
    """Print the tables, or write them into a page between its two markers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--logs", type=int, default=10)
    parser.add_argument("--refresh", type=Path, help="the page whose tables to replace")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    text = tables(options.rounds, options.logs)
    print(text)
    if options.refresh is not None:
        page = options.refresh.read_text(encoding="utf-8")
        before, rest = page.split("<!-- tables -->\n", 1)
        after = rest.split("<!-- end of tables -->", 1)[1]
        fresh = f"{before}<!-- tables -->\n\n{text}\n\n<!-- end of tables -->{after}"
        options.refresh.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
