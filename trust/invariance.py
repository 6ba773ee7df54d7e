"""Checks that a fit does not depend on things that should not matter.

Each family changes the logs or the way they are processed, undoes the change in the posterior, and compares. Names of
families say what was changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import manyarms as ma
from manyarms.core import statistics
from manyarms.engines.dask import Dask
from manyarms.linalg import indexing, threads, top_k
from trust.check import Check, Outcome, Row
from trust.exactness import relative_error

SECTION = "Invariance"
CATEGORIES = 3
LIKELIHOODS: dict[str, Any] = {
    "Gaussian": ma.Gaussian(0.7),
    "clicks": ma.Bernoulli(),
    "counts": ma.Poisson(),
    "Student-t": ma.StudentT(0.7, 4.0),
}
EXACT_TOLERANCE, LOOP_TOLERANCE = 1e-10, 1e-5
"""The relative difference that is allowed with Gaussian rewards, and where the variational loop runs.

The loop stops when a step adds less than 1e-12 nats: that fixes a mean to about 1e-6 standard deviations.
"""


@dataclass(frozen=True)
class Setting:
    """The parts of a fit that a family may change.

    Attributes:
        category: (K,) the category of each action.
        mean: (d,) the prior mean of each category effect.
        effect_cov: (d, d) the covariance of a category effect.
        action_cov: (d, d) the covariance of an action around its category.
        contexts: (n, d).
        actions: (n,).
        rewards: (n,).
        weights: (n,) how often a row counts.
        likelihood: The distribution of rewards.
    """

    category: np.ndarray
    mean: np.ndarray
    effect_cov: np.ndarray
    action_cov: np.ndarray
    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    weights: np.ndarray | None
    likelihood: Any

    @property
    def prior(self) -> ma.HierarchicalGaussian:
        mixing = ma.MixedEffects(np.eye(CATEGORIES)[self.category], len(self.mean))
        blocks = np.tile(self.effect_cov, (CATEGORIES, 1, 1))
        return ma.HierarchicalGaussian(np.tile(self.mean, CATEGORIES), blocks, mixing, self.action_cov)

    @property
    def logs(self) -> ma.LoggedData:
        return ma.LoggedData(
            self.contexts, self.actions, self.rewards, n_actions=len(self.category), weights=self.weights
        )

    def fit(self) -> Answer:
        # A small tolerance: the loop would otherwise stop at different steps.
        return Answer.of(ma.fit(self.logs, self.prior, self.likelihood, tolerance=1e-12))

    def fit_and_choose(self) -> Answer:
        posterior = ma.fit(self.logs, self.prior, self.likelihood, tolerance=1e-12)
        return Answer.of(posterior, self.contexts)


@dataclass(frozen=True)
class Answer:
    """What is compared: ψ, the weights of every action, and the log evidence."""

    latent_mean: np.ndarray
    action_mean: np.ndarray
    action_cov: np.ndarray
    log_evidence: float
    greedy_value: float = 0.0
    """The value of the greedy policy, where it is compared."""

    @staticmethod
    def of(posterior: Any, contexts: np.ndarray | None = None) -> Answer:
        weights = posterior if isinstance(posterior, ma.ShardedPosterior) else posterior.weights
        everyone = np.arange(posterior.n_actions)
        effects = weights.latent_mean.reshape(CATEGORIES, -1)
        value = 0.0 if contexts is None else posterior.value(ma.Greedy(posterior), contexts).value
        return Answer(effects, weights.action_mean(), weights.action_cov(everyone), posterior.log_evidence, value)

    def difference(self, other: Answer) -> float:
        """The largest relative difference of a quantity."""
        return max(relative_error(getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)


def draw_setting(rng: np.random.Generator, kind: str) -> Setting:
    """Rounds of some actions in three categories, with rewards drawn from their distribution; two actions unseen."""
    n_actions, dim, n_rounds = int(rng.integers(6, 20)), int(rng.integers(2, 5)), int(rng.integers(40, 200))
    roots = 0.4 * rng.normal(size=(2, dim, dim)) + 0.3 * np.eye(dim)
    effect_cov, action_cov = (root @ root.T for root in roots)
    mean = 0.3 * rng.normal(size=dim)
    category = rng.integers(0, CATEGORIES, n_actions)
    effects = rng.multivariate_normal(mean, effect_cov, CATEGORIES)
    theta = effects[category] + rng.multivariate_normal(np.zeros(dim), action_cov, n_actions)
    contexts = np.column_stack([np.ones(n_rounds), rng.uniform(-1, 1, (n_rounds, dim - 1))])
    actions = np.minimum(rng.integers(0, n_actions - 2, n_rounds), rng.integers(0, n_actions - 2, n_rounds))
    predictor = np.einsum("nd,nd->n", contexts, theta[actions])
    rewards = {
        "Gaussian": lambda: predictor + 0.7 * rng.normal(size=n_rounds),
        "clicks": lambda: (rng.random(n_rounds) < 1 / (1 + np.exp(-predictor))).astype(float),
        "counts": lambda: rng.poisson(np.exp(np.minimum(predictor, 4.0))).astype(float),
        "Student-t": lambda: predictor + 0.7 * rng.standard_t(4.0, n_rounds),
    }[kind]()
    return Setting(category, mean, effect_cov, action_cov, contexts, actions, rewards, None, LIKELIHOODS[kind])


def changed(setting: Setting, **parts: Any) -> Setting:
    return Setting(**({name: getattr(setting, name) for name in setting.__dataclass_fields__} | parts))


def relabel_actions(setting: Setting, rng: np.random.Generator) -> Answer:
    new_number = rng.permutation(len(setting.category))
    category = np.empty_like(setting.category)
    category[new_number] = setting.category
    answer = changed(setting, category=category, actions=new_number[setting.actions]).fit()
    return Answer(
        answer.latent_mean, answer.action_mean[new_number], answer.action_cov[new_number], answer.log_evidence
    )


def rotate_features(setting: Setting, rng: np.random.Generator) -> Answer:
    Q = np.linalg.qr(rng.normal(size=setting.effect_cov.shape))[0]
    answer = changed(
        setting,
        mean=Q @ setting.mean,
        effect_cov=_symmetric(Q @ setting.effect_cov @ Q.T),
        action_cov=_symmetric(Q @ setting.action_cov @ Q.T),
        contexts=setting.contexts @ Q.T,
    ).fit()
    return Answer(answer.latent_mean @ Q, answer.action_mean @ Q, Q.T @ answer.action_cov @ Q, answer.log_evidence)


def shift_rewards(setting: Setting, rng: np.random.Generator) -> Answer:
    """Rewards and the prior mean of the intercept go up by the same number."""
    shift = np.zeros(len(setting.mean))
    shift[0] = 10.0 * rng.normal()
    answer = changed(setting, mean=setting.mean + shift, rewards=setting.rewards + shift[0]).fit()
    return Answer(answer.latent_mean - shift, answer.action_mean - shift, answer.action_cov, answer.log_evidence)


def scale_rewards(setting: Setting, rng: np.random.Generator) -> Answer:
    """Rewards in another unit, with the prior and the noise in the same unit; the evidence changes by n log(unit)."""
    unit = float(np.exp(3.0 * rng.normal()))
    likelihood = setting.likelihood
    scaled = ma.Gaussian(unit * 0.7) if isinstance(likelihood, ma.Gaussian) else ma.StudentT(unit * 0.7, 4.0)
    answer = changed(
        setting,
        mean=unit * setting.mean,
        effect_cov=unit**2 * setting.effect_cov,
        action_cov=unit**2 * setting.action_cov,
        rewards=unit * setting.rewards,
        likelihood=scaled,
    ).fit()
    evidence = answer.log_evidence + len(setting.rewards) * np.log(unit)
    return Answer(answer.latent_mean / unit, answer.action_mean / unit, answer.action_cov / unit**2, evidence)


def repeat_rows(setting: Setting, rng: np.random.Generator) -> tuple[Answer, Answer]:
    """Rows with whole weights, and the same rows as often as their weights say."""
    counts = rng.integers(0, 4, len(setting.actions))
    rows = np.repeat(np.arange(len(counts)), counts)
    repeated = changed(
        setting, contexts=setting.contexts[rows], actions=setting.actions[rows], rewards=setting.rewards[rows]
    )
    return repeated.fit(), changed(setting, weights=counts.astype(float)).fit()


def shuffle_rows(setting: Setting, rng: np.random.Generator) -> Answer:
    order = rng.permutation(len(setting.actions))
    return changed(
        setting, contexts=setting.contexts[order], actions=setting.actions[order], rewards=setting.rewards[order]
    ).fit()


def update_in_parts(setting: Setting, rng: np.random.Generator) -> Answer:
    """One fit, then updates with the rest of the rounds in parts of random size."""
    cuts = np.sort(rng.integers(0, len(setting.actions) + 1, 4))
    logs = setting.logs
    posterior = ma.fit(logs.take(slice(0, cuts[0])), setting.prior, setting.likelihood)
    for start, end in zip(cuts, [*cuts[1:], len(logs)], strict=True):
        posterior = posterior.update(logs.take(slice(start, end)))
    return Answer.of(posterior)


def add_statistics(setting: Setting, rng: np.random.Generator) -> Answer:
    """Statistics of shards of random rows, added up and fitted."""
    shard = rng.integers(0, 4, len(setting.actions))
    K = len(setting.category)
    parts = [setting.likelihood.statistics(setting.logs.take(np.flatnonzero(shard == i)), K) for i in range(4)]
    return Answer.of(ma.fit(sum(parts), setting.prior, setting.likelihood))


def shard_actions(setting: Setting, rng: np.random.Generator) -> Answer:
    """`fit_sharded`, with actions in files."""
    with tempfile.TemporaryDirectory() as folder:
        return Answer.of(ma.fit_sharded(setting.logs, setting.prior, setting.likelihood, out=Path(folder) / "actions"))


def change_chunks(setting: Setting, rng: np.random.Generator) -> tuple[Answer, Answer]:
    """Rounds read, summed and ranked in blocks of random sizes, and all at once."""
    many = with_many_rounds(setting, rng)
    with blocks_of(int(rng.integers(20, 200))):
        in_blocks = many.fit_and_choose()
    return in_blocks, many.fit_and_choose()


def change_threads(setting: Setting, rng: np.random.Generator) -> tuple[Answer, Answer]:
    """One thread and four, over blocks so small that each thread has many."""
    many = with_many_rounds(setting, rng)

    def fit_with(n_threads: int) -> Answer:
        with blocks_of(40), mock.patch.object(threads, "n_cores", lambda: n_threads):
            return many.fit_and_choose()

    return fit_with(1), fit_with(4)


def with_many_rounds(setting: Setting, rng: np.random.Generator) -> Setting:
    """The rounds of a setting repeated in random order, more than are summed in one go."""
    rows = rng.integers(0, len(setting.actions), 1500)
    return changed(
        setting, contexts=setting.contexts[rows], actions=setting.actions[rows], rewards=setting.rewards[rows]
    )


@contextmanager
def blocks_of(rows: int) -> Iterator[None]:
    """Inside this block of code, rounds are read, multiplied and ranked `rows` at a time, and actions a few."""
    with (
        mock.patch.object(ma.LoggedData.batches, "__defaults__", (rows,)),
        mock.patch.object(indexing, "CHUNK_NUMBERS", 100),
        mock.patch.object(statistics, "BUFFER", 1),
        mock.patch.object(statistics, "BLOCK", rows),
        mock.patch.object(top_k, "ROWS", rows),
    ):
        yield


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


Change = Callable[[Setting, np.random.Generator], Answer | tuple[Answer, Answer]]
ALL, LINEAR, GAUSSIAN = tuple(LIKELIHOODS), ("Gaussian", "Student-t"), ("Gaussian",)
FAMILIES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "labels of actions": (relabel_actions, ALL),
    "rotation of features": (rotate_features, ALL),
    "shift of rewards": (shift_rewards, LINEAR),
    "scale of rewards": (scale_rewards, LINEAR),
    "repeated rows or weights": (repeat_rows, ALL),
    "order of rows": (shuffle_rows, ALL),
    "updates in parts": (update_in_parts, GAUSSIAN),
    "sums of statistics": (add_statistics, GAUSSIAN),
    "shards of actions": (shard_actions, GAUSSIAN),
    "chunk size": (change_chunks, ALL),
    "threads": (change_threads, ALL),
}
"""What is changed, and the rewards for which nothing else may change."""
VARIANTS = tuple((family, kind) for family, (_, kinds) in FAMILIES.items() for kind in kinds)


def measure_invariance(case: int) -> Row:
    family, kind = VARIANTS[case % len(VARIANTS)]
    setting_rng, change_rng = np.random.default_rng([1604, case]).spawn(2)
    setting = draw_setting(setting_rng, kind)
    answers = FAMILIES[family][0](setting, change_rng)
    first, second = answers if isinstance(answers, tuple) else (answers, setting.fit())
    return {"family": family, "rewards": kind, "difference": first.difference(second)}


def tolerance(row: Row) -> float:
    """The allowed difference: none between threads, rounding where one solve is enough, more where a loop runs."""
    if row["family"] == "threads":
        return 0.0
    return EXACT_TOLERANCE if row["rewards"] == "Gaussian" else LOOP_TOLERANCE


def summarise_invariance(rows: Sequence[Row]) -> Outcome:
    broken = [row for row in rows if not row["difference"] <= tolerance(row)]
    exact, loop = (
        max((row["difference"] for row in rows if (row["rewards"] == "Gaussian") == gaussian), default=0.0)
        for gaussian in (True, False)
    )
    notes = list[str]()
    for family in dict.fromkeys(row["family"] for row in rows):
        worst = dict[str, float]()
        for row in rows:
            if row["family"] == family:
                worst[row["rewards"]] = max(worst.get(row["rewards"], 0.0), row["difference"])
        figures = ", ".join(f"{kind} {difference:.0e}" for kind, difference in worst.items())
        failures = sum(row["family"] == family for row in broken)
        notes.append(f"{family.capitalize()}: {figures}" + (f"; {failures} cases fail." if failures else "."))
    return Outcome(f"{exact:.0e} (Gaussian), {loop:.0e} (variational loop)", not broken, tuple(notes))


def measure_processes(case: int) -> Row:
    """A fit, and a sharded fit, of files that two processes read in pieces, beside the fit in this process."""
    from distributed import Client, LocalCluster  # noqa: PLC0415  only this check starts processes

    rng = np.random.default_rng([1605, case])
    kind = ("Gaussian", "clicks")[case % 2]
    setting = draw_setting(rng, kind)
    with tempfile.TemporaryDirectory() as name:
        stream = _file_stream(setting, Path(name), rng)
        alone = Answer.of(ma.fit(stream, setting.prior, setting.likelihood, tolerance=1e-12))
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,  # pyright: ignore
            Client(cluster) as client,
        ):
            engine = Dask(client, pieces=int(rng.integers(2, 9)))
            together = ma.fit(stream, setting.prior, setting.likelihood, tolerance=1e-12, engine=engine)
            differences = {"processes": Answer.of(together).difference(alone)}
            if kind == "Gaussian":
                folder = Path(name) / "actions"
                sharded = ma.fit_sharded(stream, setting.prior, setting.likelihood, out=folder, engine=engine)
                differences["shards in processes"] = Answer.of(sharded).difference(alone)
    return {"rewards": kind, **differences}


def _file_stream(setting: Setting, folder: Path, rng: np.random.Generator) -> ma.LogStream:
    """The rounds of a setting in Parquet files of several row groups."""
    columns = [f"x{i}" for i in range(1, setting.contexts.shape[1])]
    values = dict(zip(columns, setting.contexts[:, 1:].T, strict=True))
    table = pa.table({**values, "item": setting.actions, "reward": setting.rewards})
    logs = folder / "logs"
    logs.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        rows = table.slice(int(part[0]), len(part))
        pq.write_table(rows, logs / f"part-{number}.parquet", row_group_size=int(rng.integers(3, 30)))
    # The feature map adds the intercept, so that there are as many features as in the setting.
    return ma.read_logs(logs, columns, "item", "reward", n_actions=len(setting.category))


def summarise_processes(rows: Sequence[Row]) -> Outcome:
    worst = dict[str, float]()
    for row in rows:
        for name, difference in row.items():
            if name != "rewards":
                key = f"{row['rewards']}, {name}"
                worst[key] = max(worst.get(key, 0.0), difference)
    holds = all(
        difference <= (EXACT_TOLERANCE if key.startswith("Gaussian") else LOOP_TOLERANCE)
        for key, difference in worst.items()
    )
    return Outcome("; ".join(f"{key}: {difference:.0e}" for key, difference in worst.items()), holds)


CHECKS = (
    Check(
        "invariance", SECTION, "A fit does not depend on labels, units, order, shards, chunks or threads.",
        "relative difference at most 1e-10 (Gaussian) and 1e-5 (variational loop); none between threads",
        25 * len(VARIANTS), measure_invariance, summarise_invariance, batch=len(VARIANTS), shortest=len(VARIANTS),
    ),
    Check(
        "processes", SECTION, "A fit in several processes is the fit in one.",
        "relative difference at most 1e-10 (Gaussian) and 1e-5 (clicks)",
        6, measure_processes, summarise_processes, alone=True,
    ),
)  # fmt: skip
