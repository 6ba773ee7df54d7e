"""Are decisions right where the model is wrong? Policies on real data sets, whose true gains are known.

    python studies/decisions.py --sets Corel16k001 jester digits --logs 3       MANYARMS_DATA: multilabel/ and jester/
    python studies/decisions.py --sets digits --likelihood bernoulli --rounds 1000 5000

Every item of a set has a known reward for every action, so the value of a policy is a mean over items. No reward is
linear in the contexts: every model here is wrong. A log is written by one of four logging policies. Its first half A
teaches the prior and the candidates, its second half B evaluates them: by the bare posterior given A, by `Checked`, and
by estimators with importance weights. A method ships a candidate when it gives the gain over the logging policy a
probability of at least 97.5 % to be positive.

There is one Parquet file per log in the folder `--out`. A log whose file is there is not run again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
from scipy import sparse
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import Ridge

import manyarms as ma
from manyarms._base.arrow import parquet_bytes
from manyarms._base.files import replace_files
from manyarms._base.rng import split
from manyarms.datasets import jester_world, load_jester
from manyarms.errors import InputError
from manyarms.estimators.estimator import SamplingEstimator
from manyarms.estimators.intervals import as_units
from manyarms.estimators.logging_policy import EstimatedLogging
from manyarms.estimators.reward_model import TableModel

DEVELOPMENT = ("science", "rcv1subset1_top944")
"""The sets on which the constants of `Checked` were chosen."""
REPORT = ("Corel16k001", "jester", "digits")
"""The sets on which nothing was chosen."""
LOGGING = ("uniform", "mild", "sharp", "popular")
ROUNDS = (1000, 5000, 20_000)
COMPONENTS = 12
SHIP = 0.975

Row = dict[str, Any]


@dataclass(frozen=True)
class World:
    """Items with a known reward for every action.

    Attributes:
        contexts: (m, d) Features of the items, with an intercept.
        rewards: (m, K) The reward of every action for every item.
        scores: (m, K) Rewards by a regression on other items: what the owner of the log knew beforehand.
        categories: (K,) A category of every action, from other items.
    """

    contexts: np.ndarray
    rewards: np.ndarray
    scores: np.ndarray
    categories: np.ndarray

    @property
    def n_actions(self) -> int:
        return self.rewards.shape[1]

    def value(self, policy: np.ndarray) -> float:
        """The true value of a policy, given as probabilities of all actions for all items."""
        return float(np.einsum("ma,ma->m", policy, self.rewards).mean())


def load_world(name: str, data: Path | None, seed: int = 0) -> World:
    """A data set as a world. Digits come with scikit-learn; other sets need the folder `data`."""
    if name == "digits":
        images, digits = load_digits(return_X_y=True)
        return labelled_world(images, np.eye(10)[digits], seed)
    if data is None:
        raise SystemExit(f"{name} needs MANYARMS_DATA, a folder with multilabel/ and jester/.")
    if name == "jester":
        return joke_world(load_jester(data / "jester"), seed)
    content = scipy.io.loadmat(data / "multilabel" / f"{name}.mat")
    target = content["target"]
    labels = (np.asarray(target.todense()) if sparse.issparse(target) else target).T > 0
    return labelled_world(sparse.csr_matrix(content["data"].astype(float)), labels.astype(float), seed)


def labelled_world(features: Any, labels: np.ndarray, seed: int) -> World:
    """Contexts are singular vectors of the features. A tenth of the items is set apart for scores and categories."""
    labels = labels[:, labels.sum(axis=0) > 0]
    order = np.random.default_rng(seed).permutation(len(labels))
    apart, items = np.split(order, [len(order) // 10])
    x = TruncatedSVD(COMPONENTS, random_state=seed).fit_transform(features)
    x = np.column_stack([np.ones(len(x)), x / x.std(axis=0)])
    centres = (labels[apart].T @ x[apart] + x[apart].mean(axis=0)) / (labels[apart].sum(axis=0)[:, None] + 1)
    scores = Ridge(10.0).fit(x[apart], labels[apart]).predict(x[items])
    return World(x[items], labels[items], scores, clusters(centres, seed))


def joke_world(ratings: np.ndarray, seed: int) -> World:
    """Half of the jokes give the contexts, the other half are the actions; 100 users are set apart."""
    world = jester_world(ratings, rank=COMPONENTS, n_actions=50, rng=np.random.default_rng(seed))
    x = world.environment.features
    return World(x, np.asarray(world.environment.matrix), x @ world.item_vectors.T, clusters(world.item_vectors, seed))


def clusters(vectors: np.ndarray, seed: int) -> np.ndarray:
    n_clusters = max(5, int(np.sqrt(len(vectors))))
    return KMeans(n_clusters, n_init=3, random_state=seed).fit_predict(vectors)


def logging_policy(world: World, kind: str) -> np.ndarray:
    """The probabilities of all actions for all items."""
    scores, n_actions = world.scores / world.scores.std(), world.n_actions
    if kind == "uniform":
        return np.full(scores.shape, 1 / n_actions)
    if kind == "mild":
        return softmax(scores, axis=1)
    if kind == "sharp":
        return 0.95 * softmax(3 * scores, axis=1) + 0.05 / n_actions
    popularity = world.scores.mean(axis=0)
    popularity = popularity - min(popularity.min(), 0.0)
    return np.tile(0.8 * popularity / popularity.sum() + 0.2 / n_actions, (len(scores), 1))


def learned_policies(posterior: ma.RewardPosterior, contexts: np.ndarray) -> dict[str, ma.Policy]:
    """Policies that follow the model."""
    expected = posterior.expected_reward(contexts)
    temperature = max((expected.max(axis=1) - expected.mean(axis=1)).mean(), 1e-9) / 4
    return {
        "greedy": ma.Greedy(posterior),
        "softmax": ma.Softmax(posterior, temperature),
        "epsilon-greedy": ma.EpsilonGreedy(ma.Greedy(posterior), 0.1),
    }


def given_policies(world: World, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Policies from elsewhere, as probabilities of all actions for all items: two good ones, and one that is random."""
    noise_rng, trap_rng = split(rng, "noise", "trap")
    noise = noise_rng.normal(size=world.scores.shape)
    return {
        "outside": best(world.scores),
        "outside, noisy": best(world.scores + 2 * world.scores.std() * noise),
        "random": best(world.contexts @ trap_rng.normal(size=(world.contexts.shape[1], world.n_actions))),
    }


def best(scores: np.ndarray) -> np.ndarray:
    """The policy that always takes the action of the highest score."""
    policy = np.zeros(scores.shape)
    policy[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
    return policy


def write_log(world: World, logging: np.ndarray, n: int, rng: np.random.Generator) -> tuple[ma.LoggedData, np.ndarray]:
    """Rounds with random items, and the item of every round."""
    items = rng.integers(len(world.contexts), size=n)
    sums = logging[items].cumsum(axis=1)
    actions = np.minimum((sums < rng.random((n, 1)) * sums[:, -1:]).sum(axis=1), world.n_actions - 1)
    logs = ma.LoggedData(
        world.contexts[items],
        actions,
        world.rewards[items, actions],
        n_actions=world.n_actions,
        propensities=logging[items, actions],
    )
    return logs, items


def without_propensities(logs: ma.LoggedData) -> ma.LoggedData:
    """The log with a logging policy that is estimated from its actions, once for all methods."""
    bare = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=logs.n_actions)
    estimated = EstimatedLogging(bare)
    return ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=logs.n_actions, logging_policy=estimated)


def methods(posterior: ma.RewardPosterior, logs: ma.LoggedData) -> dict[str, Callable[[ma.Policy], ma.Estimate]]:
    """Every method as a function from a policy to its gain over the log."""
    n, logged, checked = len(logs), ma.Logged(logs), ma.Checked(posterior)
    # The posterior's rewards, predicted once for all estimators.
    model = TableModel(posterior.expected_reward(logs.contexts))
    # A weight of √n is where Switch-DR drops a round, and where DRos gives the largest weight.
    by_weights = (ma.SNIPS(), ma.DR(model), ma.SNDR(model), ma.SwitchDR(model, np.sqrt(n)), ma.DRos(model, float(n)))
    return {
        "posterior": lambda policy: posterior.difference(policy, logged, logs.contexts),
        "Checked": lambda policy: checked.difference(policy, logged, logs),
        **{estimator.name: lambda policy, by=estimator: gain_by(by, policy, logs) for estimator in by_weights},
    }


def gain_by(estimator: SamplingEstimator, policy: ma.Policy, logs: ma.LoggedData) -> ma.Estimate:
    """The estimate minus the mean logged reward, with the standard error of this difference: both share the rounds."""
    rounds = estimator.rounds(policy, logs, None)
    if rounds.denominator is not None and not rounds.denominator.any():
        raise InputError("all weights are zero.")
    units = as_units(rounds.direct - logs.rewards, rounds.numerator, rounds.denominator, None, None)
    return ma.Estimate(units.value, units.std, kind="sampling", method="normal")


def run_log(
    world: World, kind: str, n: int, likelihood: str, propensities: bool, rng: np.random.Generator
) -> list[Row]:
    """One log: a row per candidate and method."""
    log_rng, candidate_rng = split(rng, "log", "candidates")
    logging = logging_policy(world, kind)
    logs, items = write_log(world, logging, n, log_rng)
    half_a, half_b, items_b = logs.take(np.arange(n // 2)), logs.take(np.arange(n // 2, n)), items[n // 2 :]
    if not propensities:
        half_b = without_propensities(half_b)
    noise = ma.Bernoulli() if likelihood == "bernoulli" else ma.Gaussian(max(0.05, float(half_a.rewards.std())))
    prior = ma.priors.from_categories(world.categories, dim=world.contexts.shape[1])
    posterior = ma.learn_prior(half_a, prior, noise).posterior
    current, rows, gains = world.value(logging), list[Row](), methods(posterior, half_b)
    given = given_policies(world, candidate_rng)
    candidates = {
        **learned_policies(posterior, world.contexts),
        **{k: ma.TablePolicy(v[items_b]) for k, v in given.items()},
    }
    for name, policy in candidates.items():
        shares = given[name] if name in given else policy.probabilities(world.contexts)
        truth = world.value(shares)
        facts = {"candidate": name, "true_value": truth, "true_gain": truth - current}
        for method, gain in gains.items():
            rows.append({**facts, "method": method, **answer(gain, policy)})
            value = rows[-1]["gain"] + float(half_b.rewards.mean())
            # The posterior's own value does not contain the mean logged reward.
            rows[-1]["value"] = posterior.value(policy, half_b.contexts).value if method == "posterior" else value
    return rows


def answer(gain: Callable[[ma.Policy], ma.Estimate], policy: ma.Policy) -> Row:
    """The gain with its interval and probability; NaN where a method has no answer."""
    try:
        estimate = gain(policy)
    except InputError:
        return dict.fromkeys(("gain", "low", "high", "probability"), np.nan)
    low, high = estimate.interval(0.95)
    return {"gain": estimate.value, "low": low, "high": high, "probability": estimate.probability_positive}


def run(
    sets: Sequence[str],
    out: Path,
    *,
    data: Path | None = None,
    rounds: Sequence[int] = ROUNDS,
    logging: Sequence[str] = LOGGING,
    n_logs: int = 3,
    likelihoods: Sequence[str] = ("gaussian",),
    propensities: bool = True,
    seed: int = 0,
) -> list[Row]:
    """Run the logs that are not in the folder yet, and return the rows of all that were asked for."""
    out.mkdir(parents=True, exist_ok=True)
    rows = list[Row]()
    for name in sets:
        world = load_world(name, data)
        for n, likelihood, kind, number in product(rounds, likelihoods, logging, range(n_logs)):
            known = "known" if propensities else "estimated"
            facts = {
                "set": name, "likelihood": likelihood, "propensities": known, "logging": kind, "rounds": n,
                "log": number, "seed": seed,
            }  # fmt: skip
            key = "-".join(str(fact) for fact in facts.values())
            file = out / f"{key}.parquet"
            if not file.exists():
                rng = np.random.default_rng(zlib.crc32(key.encode()))
                new = run_log(world, kind, n, likelihood, propensities, rng)
                replace_files({file: parquet_bytes(pa.Table.from_pylist([{**facts, **row} for row in new]))})
                print(key, file=sys.stderr)
            rows += pq.read_table(file).to_pylist()
    return rows


def summarise(rows: Iterable[Row], by: str = "rounds") -> list[Row]:
    """One row per part and method. The first part is "all"; the others are the values of the column `by`.

    A candidate without an answer is neither covered nor shipped. Errors are over the candidates that every method
    answered for, so that none is better off for its silence; widths are medians over the method's own answers. Both are
    shares of the candidate's true value, so that sets with other units of reward can be pooled.
    """
    parts = {"all": defaultdict[str, list[Row]](list)}
    silent = set[tuple[Any, ...]]()
    for row in rows:
        for part in ("all", row[by]):
            parts.setdefault(part, defaultdict(list))[row["method"]].append(row)
        if np.isnan(row["gain"]):
            silent.add(_candidate(row))
    return [
        {"part": part, "method": method, **_scores(group, silent)}
        for part, by_method in parts.items()
        for method, group in by_method.items()
    ]


def _candidate(row: Row) -> tuple[Any, ...]:
    """The log and the candidate of a row."""
    return tuple(row[name] for name in ("set", "likelihood", "propensities", "logging", "rounds", "log", "candidate"))


def _scores(rows: list[Row], silent: set[tuple[Any, ...]]) -> Row:
    names = ("true_gain", "true_value", "low", "high", "probability", "value")
    gain, truth, low, high, probability, value = (np.array([row[name] for row in rows]) for name in names)
    answered = np.array([_candidate(row) not in silent for row in rows])
    shipped, better, errors = probability >= SHIP, gain > 0, (np.abs(value - truth) / np.abs(truth))[answered]
    return {
        "candidates": len(rows),
        "no_answer": int(np.isnan(low).sum()),
        "coverage": float(((low <= gain) & (gain <= high)).mean()),
        "width": float(np.nanmedian((high - low) / np.abs(truth))),
        "ships": int(shipped.sum()),
        "false_ships": int((shipped & ~better).sum()),
        "power": float(shipped[better].mean()) if better.any() else np.nan,
        "error": float(errors.mean()),
        "median_error": float(np.median(errors)),
    }


def table(summary: Iterable[Row], by: str) -> Iterator[str]:
    """The summary as lines of a Markdown table."""
    yield _line(
        by, "method", "coverage", "median width", "ships", "false ships", "power", "mean error", "median error",
        "no answer",
    )  # fmt: skip
    yield "|---" * 10 + "|"
    for row in summary:
        shares = [f"{row[name]:.1%}" for name in ("power", "error", "median_error")]
        yield _line(
            row["part"], row["method"], f"{row['coverage']:.1%}", f"{row['width']:.3g}", row["ships"],
            row["false_ships"], *shares, row["no_answer"],
        )  # fmt: skip


def _line(*cells: Any) -> str:
    texts = (f"{cell:,}" if isinstance(cell, int) else str(cell).replace("%", " %") for cell in cells)
    return f"| {' | '.join(texts)} |"


def targets(summary: Iterable[Row], by: str) -> Iterator[str]:
    """What `Checked` aims at, and whether it holds, as lines of a Markdown table.

    The best error is that of any other method, and the best width that of any other method that covers at least 90 %.
    """
    parts = defaultdict[Any, dict[str, Row]](dict)
    for row in summary:
        parts[row["part"]][row["method"]] = row
    yield _line(
        by, "coverage", "false ships of ships", "power / posterior's", "error / best", "width / best that covers"
    )
    yield "|---" * 6 + "|"
    for part, by_method in parts.items():
        checked, posterior = by_method.pop("Checked"), by_method["posterior"]
        widths = [row["width"] for row in by_method.values() if row["coverage"] >= 0.9]
        false_share = checked["false_ships"] / max(checked["ships"], 1)
        power, error = checked["power"] / posterior["power"], min(row["error"] for row in by_method.values())
        width = checked["width"] / min(widths, default=np.nan)
        yield _line(
            part,
            f"{checked['coverage']:.1%}{_holds(checked['coverage'] >= 0.9)}",
            f"{false_share:.1%}{_holds(false_share <= 0.01)}",
            f"{power:.3f}{_holds(power >= 0.95)}",
            f"{checked['error'] / error:.2f}{_holds(checked['error'] <= 1.05 * error)}",
            f"{width:.2f}{_holds(width <= 1.5)}" if widths else "no other covers",
        )


def _holds(claim: bool) -> str:
    return ", holds" if claim else ", **does not hold**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(REPORT))
    parser.add_argument("--rounds", type=int, nargs="+", default=list(ROUNDS))
    parser.add_argument("--logs", type=int, default=3, help="logs per set, size, likelihood and logging policy")
    parser.add_argument("--likelihood", nargs="+", choices=["gaussian", "bernoulli"], default=["gaussian"])
    parser.add_argument("--without-propensities", action="store_true")
    parser.add_argument("--by", choices=["rounds", "set", "logging", "candidate"], default="rounds")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "manyarms-decisions")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = os.environ.get("MANYARMS_DATA")
    rows = run(
        args.sets,
        args.out,
        data=Path(data) if data else None,
        rounds=args.rounds,
        n_logs=args.logs,
        likelihoods=args.likelihood,
        propensities=not args.without_propensities,
        seed=args.seed,
    )
    for likelihood in args.likelihood:
        print(f"\n{', '.join(args.sets)}; {likelihood}; {args.logs} logs per cell; seed {args.seed}\n")
        chosen = [row for row in rows if row["likelihood"] == likelihood]
        summary = summarise(chosen, args.by)
        aims = targets(summary, args.by)
        print("\n".join([*table(summary, args.by), "", "Checked, and what it aims at:", "", *aims]))


if __name__ == "__main__":
    main()
