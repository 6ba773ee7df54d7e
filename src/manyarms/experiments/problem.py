"""What an experiment is made of: a problem draws worlds, a world gives tasks to methods and knows the truth."""

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
"""Off-policy evaluation (judge a given target) or off-policy learning (find a policy)."""


@dataclass(frozen=True)
class Origin:
    """The data behind a problem.

    Attributes:
        digest: The same for the same data, wherever it lies; see `digest_of`.
        caveat: What it lacks of what its owners published, in words; empty when nothing.
    """

    digest: str
    caveat: str = ""


def digest_of(*parts: object) -> str:
    """A short text that is the same for the same arrays, texts and numbers, and for no others."""
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
    """What is not as published, from counts that were found and those there should be; empty when all agree."""
    wrong = [f"{found:,} {name} instead of {whole:,}" for name, (found, whole) in counts.items() if found != whole]
    return f"not the full data: {', '.join(wrong)}" if wrong else ""


@dataclass(frozen=True)
class Known:
    """What methods may know before they see a log.

    On MovieLens, as in the paper, `vectors` are the true weights: what a method makes of them is its own affair.

    Attributes:
        prior: The structured prior of sDM.
        unstructured: The prior of DM (Bayes): actions are independent.
        noise_std: σ that all linear-Gaussian methods assume.
        vectors: (K, e) a vector for each action, for policy convolution.
        learnable: The structure that a prior is learned in, from the log alone.
        make_clusters: Gives `clusters`; called when a method first asks for them.
        make_other_priors: Gives `other_priors`; called when a method first asks for them.
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
        """Further priors by name: variants, wrong ones."""
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
class Task:
    """All that a method gets.

    Attributes:
        logs: The rounds.
        known: What is known beside them.
        eligible: Which actions could be chosen in each round; None for all.
        rng: The method's own generator: the same for the same cell, whatever else is run.
    """

    logs: LoggedData
    known: Known
    eligible: Any
    rng: np.random.Generator


class World(ABC):
    """One instance of a problem.

    Attributes:
        known: What methods may know.
        target: The policy whose value is asked for in off-policy evaluation.
        target_value: Its true value.
        target_error: The standard error of that, where it was itself measured.
        best_value: The value of the best policy there is.
    """

    known: Known
    target: Policy
    target_value: float
    target_error: float = 0.0
    best_value: float

    @abstractmethod
    def log(self, n: int, rng: np.random.Generator) -> LoggedData:
        """n rounds."""

    @abstractmethod
    def value(self, policy: Policy) -> float:
        """The true value of any policy."""

    def target_on(self, logs: LoggedData) -> Policy:
        """The target as a policy for the contexts of these logs."""
        return self.target

    def eligible(self, logs: LoggedData) -> Any:
        """Which actions could be chosen in each round of a log; None for all."""
        return None


class Problem(ABC):
    """A kind of world, with all its knobs set; a frozen dataclass, so that it travels to processes."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What rows of results call it; two problems with one label are the same problem."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> World:
        """An instance."""

    def origin(self) -> Origin | None:
        """The data it is made of, so that rows of two data sets are never mixed; None when its label says it all."""
        return None
