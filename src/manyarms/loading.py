"""Model files, opened: every kind of object that one may hold, by the name it is saved under."""

from __future__ import annotations

from typing import Any

from manyarms import _container
from manyarms._saving import Saved, rebuild
from manyarms.core.catalog import Catalog
from manyarms.core.covariance import ActionCovariance
from manyarms.core.effects import EffectGroup
from manyarms.core.features import FeatureMap
from manyarms.core.fingerprint import Fingerprint
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.labels import Integers, Mixed, Ragged, Words
from manyarms.core.latent import BlockFactor, EliminatedFactor
from manyarms.core.mixing import DenseMixing, MixedEffects
from manyarms.core.observed import Observed, RankGroup
from manyarms.core.policy import Policy
from manyarms.core.statistics import Rows, Statistics, Sums
from manyarms.errors import ModelFileError
from manyarms.learners import LinearSoftmax
from manyarms.likelihoods import Bernoulli, Gaussian, LogNormal, Poisson, StudentT
from manyarms.linalg.elimination import BlockCholesky, Layer, Plan
from manyarms.policies import EpsilonGreedy, Greedy, Pessimistic, Softmax, TablePolicy, Thompson, Uniform
from manyarms.posterior import HurdlePosterior, RewardPosterior

POSTERIORS: tuple[type[Saved], ...] = (RewardPosterior, HurdlePosterior)
POLICIES: tuple[type[Saved], ...] = (
    Greedy, Pessimistic, Softmax, Thompson, EpsilonGreedy, Uniform, TablePolicy, LinearSoftmax,
)  # fmt: skip
LIKELIHOODS: tuple[type[Saved], ...] = (Gaussian, LogNormal, Bernoulli, Poisson, StudentT)
PARTS: tuple[type[Saved], ...] = (
    HierarchicalGaussian, DenseMixing, MixedEffects, ActionCovariance, EffectGroup, BlockFactor, EliminatedFactor,
    BlockCholesky, Plan, Layer, Observed, RankGroup, Statistics, Rows, Sums, Fingerprint, FeatureMap, Catalog, Words,
    Integers, Mixed, Ragged,
)  # fmt: skip
KINDS: dict[str, type[Saved]] = {kind.saved_as: kind for kind in (*POSTERIORS, *POLICIES, *LIKELIHOODS, *PARTS)}
"""All that is ever made of a file: nothing else in it is looked up, imported or run."""


def load(path: Any) -> RewardPosterior | HurdlePosterior | Policy:
    """The posterior or the policy that `save` wrote to a file.

    Every checksum is verified; then nothing is copied. Arrays are read-only views of the file, which stays open as
    long as any of them is used: replace it with `save` or a rename, as you like, but do not write into it.

    Args:
        path: Of the file.

    Raises:
        ModelFileError: When there is no such file, it is no model file, it is damaged, or a newer manyarms wrote it.
    """
    where = _container.as_path(path)
    model, arrays = _container.read(where)
    with _container.explained(where):
        unknown = {entry["kind"] for entry in model["objects"]} - KINDS.keys()
        if unknown:
            raise ModelFileError(f"{where} holds a {min(unknown)!r:.80}, which this manyarms does not know: upgrade.")
        found = rebuild(model, arrays, KINDS)
        if not isinstance(found, (RewardPosterior, HurdlePosterior, Policy)):
            raise ModelFileError(f"{where} holds a part of a model, and no posterior or policy.")
        return found
