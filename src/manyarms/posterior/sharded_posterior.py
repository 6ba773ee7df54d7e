"""A posterior of more actions than one machine holds: solved where their rounds were summed, written in shards."""

# pyright: reportIncompatibleVariableOverride=false
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.arrow import ds, pa, pq
from manyarms._base.checks import Array, as_actions, as_instance, as_path
from manyarms._base.files import replacing
from manyarms.core import Catalog, FeatureMap, Fingerprint, HierarchicalGaussian, LatentFactor, Logs, ObservedRows
from manyarms.core.logged_data import as_logs
from manyarms.core.observed_rows import group_rows, observe
from manyarms.engines import Engine, as_engine
from manyarms.errors import InputError, ModelFileError, OutputFileError
from manyarms.inference.condition import absorb_groups, conditioning
from manyarms.inference.latent_posterior import sums_for
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.collect_statistics import CollectedStatistics, CollectStatistics
from manyarms.likelihoods.likelihood import as_likelihood
from manyarms.linalg.indexing import chunks
from manyarms.posterior.gaussian_posterior import RewardFactor, SingleFactorPosterior
from manyarms.posterior.posterior import same_as


@dataclass(frozen=True, eq=False, repr=False)
class ShardedPosterior(SingleFactorPosterior):
    """The posterior that `fit_sharded` returns: ψ in memory, θ_a of every seen action in files.

    Values and policies read from the files what they need: means of all actions, (K, d) numbers in memory, and the
    rest only for the actions that a policy can choose.

    Attributes:
        latent_mean: (d',) E ψ.
        latent_factor: F with F Fᵀ = Cov ψ.
        n_seen: How many actions were logged.
        folder: Parquet files with columns action, mean (d numbers), covariance (d x d numbers, row by row), and rows
            and responses, which say the same as the rounds of the action (r x d and r numbers).
        prior: The prior over all actions.
        likelihood: The distribution of rewards given weights.
        log_evidence: log p(rewards | contexts, actions).
        n_rounds: How many rounds it has seen.
        learned_from: The fingerprints of the rounds it has seen.
        features: The map from context columns to φ(x), if the logs came with one.
        catalog: The ids of the actions, if the logs came with a catalog.
    """

    not_saved = "Its actions are in the files of its folder already."
    latent_mean: Float[Array, " p"]
    latent_factor: LatentFactor
    n_seen: int
    folder: Path
    prior: HierarchicalGaussian
    likelihood: Likelihood
    log_evidence: float = 0.0
    n_rounds: int = 0
    learned_from: tuple[Fingerprint, ...] = ()
    features: FeatureMap | None = None
    catalog: Catalog | None = None
    n_actions = same_as("prior.n_actions")
    dim = same_as("prior.dim")
    # The rewards are not checked against the prior.
    warnings: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        return (
            f"ShardedPosterior({self.n_seen:,} actions seen, d'={len(self.latent_mean)}, log evidence "
            f"{self.log_evidence:.6g}, in {self.folder})"
        )

    @property
    def latent_cov(self) -> Float[Array, "p p"]:
        """Cov ψ, written out."""
        return self.latent_factor.covariance()

    @property
    def predictor_weights(self) -> ShardedPosterior:
        return self

    @cached_property
    def seen_actions(self) -> tuple[Int[Array, " m"], ...]:
        return (np.sort(self._read(["action"])["action"].to_numpy()),)

    def action_mean(self) -> Float[Array, "K d"]:
        """E θ_a of all actions."""
        return self._all_means

    @cached_property
    def _all_means(self) -> Float[Array, "K d"]:
        means = np.array(self._conditioned(ObservedRows.empty()).action_mean())
        table = self._read(["action", "mean"])
        means[table["action"].to_numpy()] = _numbers(table, "mean").reshape(-1, self.dim)
        return means

    def action_cov(self, actions: Any) -> Float[Array, "m d d"]:
        """Cov θ_a of the actions asked for."""
        actions = as_actions("actions", actions, n_actions=self.n_actions)
        return self.factors_for(np.unique(actions))[0].weights.action_cov(actions)

    def factors_for(self, actions: Int[Array, " m"]) -> tuple[RewardFactor, ...]:
        return (RewardFactor(self._conditioned(self._observed(actions)), self.prior, self.likelihood),)

    def _conditioned(self, observed: ObservedRows) -> HierarchicalGaussian:
        return _conditioned(self.prior, self.latent_mean, self.latent_factor, observed)

    def _observed(self, actions: Int[Array, " m"]) -> ObservedRows:
        """The rows of those of the actions, which ascend, that were logged."""
        if len(actions) == 0 or self.n_seen == 0:
            return ObservedRows.empty()
        table = self._read(["action", "rows", "responses"], actions)
        if len(table) == 0:
            return ObservedRows.empty()
        ranks = np.diff(table["responses"].combine_chunks().offsets.to_numpy())
        root = _numbers(table, "rows").reshape(-1, self.dim)
        groups, _ = group_rows(np.repeat(table["action"].to_numpy(), ranks), root, _numbers(table, "responses"))
        return ObservedRows(groups, 0.0, 0.0)

    def _read(self, columns: list[str], actions: Int[Array, " m"] | None = None) -> Any:
        """Columns of the files, of all logged actions or of some that ascend.

        A file that is gone is an error: its actions would look as if they had never been logged.
        """
        schema = _schema(self.dim)
        if self.n_seen == 0:
            return schema.empty_table().select(columns)
        wanted = None
        if actions is not None:
            # The bounds let row groups be skipped.
            field = ds.field("action")
            bounds = (field >= int(actions[0])) & (field <= int(actions[-1]))
            wanted = bounds & field.isin(pa.array(actions))
        remedy = "Put its files back, or fit again into an empty folder."
        try:
            files = sorted(str(path.absolute()) for path in self.folder.glob("actions-*.parquet"))
            shards = ds.dataset(files, schema=schema, format="parquet")
            n_actions = shards.count_rows() if files else 0
            if n_actions == self.n_seen:
                return shards.to_table(columns=columns, filter=wanted)
        except (pa.ArrowException, OSError) as problem:
            raise ModelFileError(f"{self.folder} cannot be read: {problem}", remedy) from problem
        raise ModelFileError(f"{self.folder} has {n_actions:,} actions; the fit wrote {self.n_seen:,}.", remedy)


def _numbers(table: Any, column: str) -> Float[Array, " n"]:
    """All numbers of a column of lists, one list after the other."""
    return table[column].combine_chunks().flatten().to_numpy(zero_copy_only=False)


def _schema(dim: int) -> Any:

    numbers = pa.float64()
    return pa.schema(
        [
            ("action", pa.int64()),
            ("mean", pa.list_(numbers, dim)),
            ("covariance", pa.list_(numbers, dim * dim)),
            ("rows", pa.list_(numbers)),
            ("responses", pa.list_(numbers)),
        ]
    )


def _conditioned(
    prior: HierarchicalGaussian, latent_mean: Float[Array, " p"], latent_factor: LatentFactor, observed: ObservedRows
) -> HierarchicalGaussian:
    """The posterior of the actions with these rows, around the ψ of all rounds."""
    with conditioning(prior):
        gains, _ = absorb_groups(prior, observed, sums_for(prior))
    # The evidence of single actions is not needed.
    return prior.conditioned(latent_mean, latent_factor, observed, gains, 0.0, 0.0, 0.0)


def fit_sharded(
    logs: Logs,
    prior: HierarchicalGaussian,
    likelihood: Likelihood | None = None,
    *,
    out: Any,
    engine: Engine | str | None = None,
) -> ShardedPosterior:
    """The posterior when the sums of all actions are too large for the memory of one machine.

    Statistics are merged by action on the cluster and stay there. Every shard of actions reduces to its evidence on ψ,
    a few numbers for each pair of effects that meet in an action. These are collected, ψ is solved for and sent back,
    and each shard writes the mean and covariance of its own actions. An action never logged has the mean and covariance
    that the prior gives it around this ψ. The algebra is that of `fit`, in another order of summation.

    Args:
        logs: A `LogStream`, or rounds in memory.
        prior: Over all actions; it is sent to every worker.
        likelihood: A likelihood for which one pass is enough; by default `Gaussian(noise_std=1.0)`.
        out: A folder that all workers see, empty or not there yet; files are named after the first action in them.
        engine: As in `fit`.
    """
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    likelihood = as_likelihood(likelihood)
    if likelihood.treatment != "exact":
        raise InputError(f"{type(likelihood).__name__} needs several passes, each with all weights.", "Use fit().")
    if prior.observed.groups:
        raise InputError("must not be an earlier posterior.", "Pass the first prior, and all logs.", argument="prior")
    # An absolute path: workers may run in other folders, and so may this process when the files are read.
    logs, folder = as_logs(logs, prior), as_path("out", out).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputFileError(f"{folder} cannot be a folder: {problem.strerror}.", "Name another folder.") from problem
    if any(folder.iterdir()):
        raise InputError(
            f"{folder} is not empty: files of another fit would be read together with those of this one.",
            "Pass an empty or a new folder.",
            argument="out",
        )
    with as_engine(engine).sharded(logs, CollectStatistics(likelihood, prior.n_actions, logs.dim)) as shards:
        parts = shards.map(partial(latent_evidence, prior, likelihood.noise_std))
        total = sums_for(prior)
        for part in parts:
            total.add_sums(part.gram, part.score, part.misfit)
        latent = total.posterior()
        solved = latent.mean, latent.factor
        seen = sum(shards.map(partial(_write_shard, prior, likelihood.noise_std, solved, folder)))
    log_det = sum((part.log_det for part in parts), 0.0) + latent.log_det
    squares = sum(part.residual for part in parts) + latent.misfit
    log_evidence = sum(part.constant for part in parts) - 0.5 * (log_det + squares)
    return ShardedPosterior(
        latent.mean,
        latent.factor,
        seen,
        folder,
        prior,
        likelihood,
        log_evidence,
        sum(part.n_rounds for part in parts),
        (logs.fingerprint,),
        logs.features,
        logs.catalog,
    )


class _ShardEvidence(NamedTuple):
    """The evidence of a shard on ψ, its terms of the log evidence, and its number of rounds."""

    gram: Float[Array, "J b b"]
    score: Float[Array, " p"]
    misfit: float
    log_det: float
    residual: float
    constant: float
    n_rounds: int


def latent_evidence(prior: HierarchicalGaussian, noise_std: float, counted: CollectedStatistics) -> _ShardEvidence:
    """The evidence on ψ of one shard of the actions."""
    observed, evidence = observe(counted.statistics, noise_std), sums_for(prior)
    with np.errstate(over="ignore", invalid="ignore"), conditioning(prior):
        _, log_det = absorb_groups(prior, observed, evidence)
    constant = observed.log_normaliser + float(counted.numbers[0])
    return _ShardEvidence(*evidence.sums, log_det, observed.residual, constant, counted.statistics.n_rounds)


def _write_shard(
    prior: HierarchicalGaussian,
    noise_std: float,
    latent: tuple[Float[Array, " p"], LatentFactor],
    folder: Path,
    counted: CollectedStatistics,
) -> int:
    """Write the actions of a shard to a file, and count them; done again, it writes the same file."""
    observed = observe(counted.statistics, noise_std)
    if observed.groups:
        _write_actions(_conditioned(prior, *latent, observed), folder)
    return len(observed.actions)


def _write_actions(weights: HierarchicalGaussian, folder: Path) -> None:

    owners, roots, responses = weights.observed.rows()
    order = np.argsort(owners, kind="stable")
    owners, roots, responses = owners[order], roots[order], responses[order]
    actions, schema = weights.observed.actions, _schema(weights.dim)
    starts = np.searchsorted(owners, actions)
    with (
        replacing(folder / f"actions-{int(actions[0]):012}.parquet") as file,
        pq.ParquetWriter(file, schema) as writer,
    ):
        for part in chunks(len(actions), 1 << 14):
            some, first = actions[part], starts[part]
            last = starts[part.stop] if part.stop < len(starts) else len(owners)
            offsets = np.append(first, last) - first[0]
            columns = [
                pa.array(some),
                *(
                    pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values[0].size)
                    for values in (weights.action_mean(some), weights.action_cov(some))
                ),
                pa.ListArray.from_arrays(offsets * weights.dim, roots[first[0] : last].reshape(-1)),
                pa.ListArray.from_arrays(offsets, responses[first[0] : last]),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
