"""A posterior of more actions than one machine holds: solved where their rounds were summed, written in shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_instance
from manyarms._base.files import replacing
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.latent_covariance import LatentFactor
from manyarms.core.logged_data import Logs
from manyarms.core.observed_rows import ObservedRows
from manyarms.engines import Engine, as_engine
from manyarms.errors import InputError
from manyarms.inference.condition import absorb_groups, observe, small_products
from manyarms.inference.latent_posterior import sums_for
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.collect_statistics import CollectedStatistics, CollectStatistics
from manyarms.likelihoods.gaussian import as_likelihood
from manyarms.linalg.indexing import chunks
from manyarms.posterior.reward_posterior import as_logs


@dataclass(frozen=True)
class ShardedPosterior:
    """What `fit_sharded` returns: ψ here, θ_a of every seen action in files.

    Attributes:
        latent_mean: (d',) E ψ.
        latent_factor: F with F Fᵀ = Cov ψ.
        log_evidence: log p(rewards | contexts, actions).
        n_seen: How many actions were logged.
        folder: Parquet files with columns action, mean (d numbers) and covariance (d x d numbers, row by row).
    """

    latent_mean: Float[Array, " p"]
    latent_factor: LatentFactor
    log_evidence: float
    n_seen: int
    folder: Path

    def __repr__(self) -> str:
        return (
            f"ShardedPosterior({self.n_seen:,} actions seen, d'={len(self.latent_mean)}, log evidence "
            f"{self.log_evidence:.6g}, in {self.folder})"
        )

    @property
    def latent_cov(self) -> Float[Array, "p p"]:
        """Cov ψ, written out."""
        return self.latent_factor.covariance()


def fit_sharded(
    logs: Logs,
    prior: HierarchicalGaussian,
    likelihood: Likelihood | None = None,
    *,
    out: Any,
    engine: Engine | str | None = None,
) -> ShardedPosterior:
    """The posterior when the sums of all actions are too large to be in one place.

    Statistics are merged by action on the cluster and stay there. Every shard of actions reduces to what it says of ψ,
    a few numbers for each pair of effects that meet in an action; these come here, ψ is solved for and sent back, and
    each shard writes mean and covariance of its own actions. An action never logged has the mean and covariance that
    the prior gives it around this ψ. The same algebra as `fit`, in another order of summation.

    Args:
        logs: A `LogStream`, or rounds in memory.
        prior: Over all actions; it is sent to every worker.
        likelihood: One for which a pass is enough; by default `Gaussian(noise_std=1.0)`.
        out: A folder that all workers see, empty or not there yet; files are named after the first action in them.
        engine: As in `fit`.
    """
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    likelihood = as_likelihood(likelihood)
    if likelihood.treatment != "exact":
        raise InputError(f"{type(likelihood).__name__} needs several passes, each of them with all of θ; use fit().")
    if prior.observed.groups:
        raise InputError("an earlier posterior cannot be a prior here: pass the first prior, and all logs.")
    logs, folder = as_logs(logs, prior), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: files of another fit beside those of this one would be read with it.")
    with as_engine(engine).sharded(logs, CollectStatistics(likelihood, prior.n_actions, logs.dim)) as shards:
        found = shards.map(_Latent(prior, likelihood.noise_std))
        total = sums_for(prior)
        for part in found:
            total.add_sums(part.gram, part.score, part.misfit)
        latent = total.posterior()
        # A whole path: workers may stand in other folders.
        write = _Write(prior, likelihood.noise_std, latent.mean, latent.factor, folder.absolute())
        seen = sum(shards.map(write))
    log_det = sum((part.log_det for part in found), 0.0) + latent.log_det
    squares = sum(part.residual for part in found) + latent.misfit
    log_evidence = sum(part.constant for part in found) - 0.5 * (log_det + squares)
    return ShardedPosterior(latent.mean, latent.factor, log_evidence, seen, folder)


@dataclass(frozen=True)
class _Said:
    """What a shard says of ψ, and its terms of the evidence."""

    gram: Float[Array, "J b b"]
    score: Float[Array, " p"]
    misfit: float
    log_det: float
    residual: float
    constant: float


@dataclass(frozen=True)
class _Latent:
    """What a shard of actions says of ψ."""

    prior: HierarchicalGaussian
    noise_std: float

    def __call__(self, counted: CollectedStatistics) -> _Said:
        observed = observe(counted.statistics, self.noise_std)
        evidence = sums_for(self.prior)
        with np.errstate(over="ignore", invalid="ignore"), small_products(self.prior):
            _, log_det = absorb_groups(self.prior, observed, evidence)
        constant = observed.log_normaliser + float(counted.numbers[0])
        return _Said(*evidence.sums, log_det, observed.residual, constant)


@dataclass(frozen=True)
class _Write:
    """Mean and covariance of the actions of a shard, written to a file; done again, it writes the same file."""

    prior: HierarchicalGaussian
    noise_std: float
    latent_mean: Float[Array, " p"]
    latent_factor: LatentFactor
    folder: Path

    def __call__(self, counted: CollectedStatistics) -> int:
        observed = observe(counted.statistics, self.noise_std)
        if not observed.groups:
            return 0
        with small_products(self.prior):
            gains, _ = absorb_groups(self.prior, observed, sums_for(self.prior))
        # What the evidence is of nobody asks a shard.
        weights = self.prior.conditioned(self.latent_mean, self.latent_factor, observed, gains, 0.0, 0.0, 0.0)
        self._write(weights, observed)
        return len(observed.actions)

    def _write(self, weights: HierarchicalGaussian, observed: ObservedRows) -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        d = weights.dim
        kinds = [
            ("action", pa.int64()),
            ("mean", pa.list_(pa.float64(), d)),
            ("covariance", pa.list_(pa.float64(), d * d)),
        ]
        schema = pa.schema(kinds)
        actions = np.sort(observed.actions)
        with (
            replacing(self.folder / f"actions-{int(actions[0]):012}.parquet") as file,
            pq.ParquetWriter(file, schema) as writer,
        ):
            for part in chunks(len(actions), 1 << 14):
                some = actions[part]
                lists = [weights.action_mean(some), weights.action_cov(some).reshape(len(some), -1)]
                arrays = [
                    pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1]) for values in lists
                ]
                writer.write_table(pa.Table.from_arrays([pa.array(some), *arrays], schema=schema))
