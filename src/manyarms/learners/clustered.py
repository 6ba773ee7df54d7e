"""Learners that weight sets of actions instead of single ones: w_i = π(A_i | x_i) / max(π_0(A_i | x_i), clip)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._arrays import Array, as_scalar
from manyarms.core.data import LoggedData
from manyarms.core.eligibility import Eligibility
from manyarms.errors import ShapeError
from manyarms.estimators.clustered import cluster_sets, neighbourhoods
from manyarms.estimators.propensity import as_labels, logging_of
from manyarms.learners.base import SoftmaxLearner
from manyarms.learners.problem import Problem, Sets, make_problem
from manyarms.learners.training import Training
from manyarms.linalg.pairs import shape_of


class _SetWeighted(SoftmaxLearner):
    """argmax mean of w(x, A) r for the set A of the logged action."""

    def __init__(
        self,
        members: sparse.csr_array,
        set_of_action: Int[Array, " K"],
        clip: float | None,
        training: Training | None,
    ):
        super().__init__(training=training)
        self._members, self._set_of_action = members, set_of_action
        self.clip = 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)

    def problem(self, logs: LoggedData, eligible: Eligibility | None) -> Problem:
        if len(self._set_of_action) != logs.n_actions:
            raise ShapeError(
                f"{self.name} was built for {len(self._set_of_action)} actions; the logs have {logs.n_actions}."
            )
        sets = Sets(self._members, self._set_of_action[logs.actions])
        partition = shape_of(self._members)[0] < logs.n_actions
        logging, _ = logging_of(logs, self._set_of_action if partition else None)
        below = logging.probability_of_sets(logs.contexts, self._members, sets.which)
        return make_problem(logs, below, clip=self.clip, sets=sets, eligible=eligible)


class MIPSLearner(_SetWeighted):
    """argmax mean of π(c_i | x_i) / π_0(c_i | x_i) r_i: within a cluster it has no preference, and spreads its choice.

    π_0 of a cluster needs the logging policy as a function; where the logs have none, it is estimated.

    Args:
        clusters: (K,) a cluster each, a whole number or a text, or (K, c) categorical embeddings, whose combinations
            are the clusters.
        clip: A floor on π_0 of a cluster.
        training: Optimiser, penalties, early stopping.
    """

    name = "MIPS"

    def __init__(self, clusters: Any, clip: float | None = None, *, training: Training | None = None):
        labels = as_labels("clusters", clusters)
        super().__init__(cluster_sets(labels), labels, clip, training)


class PolicyConvolutionLearner(_SetWeighted):
    """argmax mean of π(N(a_i) | x_i) / π_0(N(a_i) | x_i) r_i, N(a) being the k actions nearest to a; k = 1 is IPS.

    π_0 of a neighbourhood needs the logging policy as a function; where the logs have none, it is estimated.

    Args:
        embeddings: (K, e) numbers; nearness is Euclidean.
        k: How many neighbours, the action itself among them.
        clip: A floor on π_0 of a neighbourhood.
        training: Optimiser, penalties, early stopping.
    """

    name = "PC"

    def __init__(self, embeddings: Any, k: int, clip: float | None = None, *, training: Training | None = None):
        members = neighbourhoods(embeddings, k)
        super().__init__(members, np.arange(shape_of(members)[0]), clip, training)
