"""The parts of an experiment: a problem draws worlds; a world makes logs for methods and knows the true values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, frozen
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy

Kind = Literal["ope", "opl"]
"""Off-policy evaluation (estimate the value of a given target), or off-policy learning (find a good policy)."""


@dataclass(frozen=True)
class Origin:
    """The data behind a problem.

    Attributes:
        digest: A digest of the data, the same in whatever folder the data lies; see `digest_of`.
        caveat: What is missing from the data as published, in words; empty when nothing is.
    """

    digest: str
    caveat: str = ""


def digest_of(*parts: object) -> str:
    """A short digest of arrays, texts and numbers: equal for equal parts, different for different ones."""
    digest = sha256()
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            digest.update(f"{part.dtype.str} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part.tolist() if isinstance(part, np.ndarray) else part).encode())
        digest.update(b"\x1f")
    return digest.hexdigest()[:32]


def shortfall(**counts: tuple[int, int]) -> str:
    """A caveat for data that is not as published, from (actual, published) counts; empty when all agree."""
    wrong = [f"{actual:,} {name} instead of {full:,}" for name, (actual, full) in counts.items() if actual != full]
    return f"not the full data: {', '.join(wrong)}" if wrong else ""


@dataclass(frozen=True)
class Known:
    """The knowledge that methods may use before they see a log.

    On MovieLens, as in the paper, `vectors` are the true weights. Each method decides how to use them.

    Attributes:
        prior: The structured prior of sDM.
        unstructured: The prior of DM (Bayes), in which actions are independent.
        noise_std: σ that all linear-Gaussian methods assume.
        vectors: (K, e) a vector for each action, for policy convolution.
        learnable: The structure in which a prior is learned, from the log alone.
        make_clusters: Makes `clusters`; called when a method first asks for them.
        make_other_priors: Makes `other_priors`; called when a method first asks for them.
    """

    prior: HierarchicalGaussian
    unstructured: HierarchicalGaussian
    noise_std: float
    vectors: Float[Array, "K e"]
    learnable: HierarchicalGaussian
    make_clusters: Callable[[], Int[Array, " K"]]
    make_other_priors: Callable[[], Mapping[str, HierarchicalGaussian]] = dict[str, HierarchicalGaussian]

    @cached_property
    def clusters(self) -> Int[Array, " K"]:
        """(K,) a cluster for each action, for MIPS and OffCEM."""
        return frozen(self.make_clusters())

    @cached_property
    def other_priors(self) -> Mapping[str, HierarchicalGaussian]:
        """Further priors by name: variants and misspecified ones."""
        return self.make_other_priors()

    @property
    def n_actions(self) -> int:
        """K."""
        return self.prior.n_actions

    @property
    def dim(self) -> int:
        """d."""
        return self.prior.dim


@dataclass(frozen=True)
class MethodTask:
    """Everything that a method is given.

    Attributes:
        logs: The logged rounds.
        known: The knowledge that methods may use beside the logs.
        eligible: The actions that could be chosen in each round; None for all.
        rng: The method's own generator. The same cell always gets the same one, whatever else is run.
    """

    logs: LoggedData
    known: Known
    eligible: Any
    rng: np.random.Generator


class World(ABC):
    """One instance of a problem.

    Attributes:
        known: The knowledge that methods may use.
        target: The policy to evaluate in off-policy evaluation.
        target_value: Its true value.
        target_error: The standard error of `target_value`, where that was itself measured.
        best_value: The value of the best possible policy.
    """

    known: Known
    target: Policy
    target_value: float
    target_error: float = 0.0
    best_value: float

    @abstractmethod
    def log(self, n: int, rng: np.random.Generator) -> LoggedData:
        """A log of n rounds."""

    @abstractmethod
    def value(self, policy: Policy) -> float:
        """The true value of any policy."""

    def target_on(self, logs: LoggedData) -> Policy:
        """The target as a policy for the contexts of these logs."""
        return self.target

    def eligible(self, logs: LoggedData) -> Any:
        """The actions that could be chosen in each round of a log; None for all."""
        return None


class Problem(ABC):
    """A family of worlds with every setting fixed; a frozen dataclass, so that it can be sent to other processes."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The problem's name in result rows; two problems with the same label are the same problem."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> World:
        """An instance."""

    def origin(self) -> Origin | None:
        """The data it is made of, so that rows of two data sets are never mixed; None when the label says it all."""
        return None
