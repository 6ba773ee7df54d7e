"""Items as vectors, for indexes that search for the largest inner product, such as FAISS and hnswlib."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, Shaped

from manyarms._base.checks import Array, as_path, check_overflow
from manyarms._base.files import PathLike, check_output_folder, replace_files, write_failure
from manyarms.core import FeatureMap, as_contexts
from manyarms.errors import InputError, OutputFileError
from manyarms.posterior.action_scores import LinearScores

if TYPE_CHECKING:
    from manyarms.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False, repr=False)
class ItemVectors:
    """Items as vectors v_a = E θ_a: in a context x, the best items have the largest inner products φ(x)ᵀ v_a.

    Where expected rewards are linear in the features, φ(x)ᵀ v_a is the expected reward itself. Then the k largest inner
    products are the k best items of `Greedy`, up to the rounding of single precision, and `exact` is True. Items that
    nothing tells apart, such as unseen ones of a category, have the same vector, and an index may return any of them.

    For clicks, counts and amounts on a log scale, the expected reward also depends on how uncertain θ_a is, and an
    inner product ranks items only approximately. Ask the index for more candidates than needed, and let
    `Greedy(posterior).top_k(contexts, k, eligible=candidates)` rank those.

    Attributes:
        ids: (K,) ids where there is a catalog, else numbers, in the order of the rows of `vectors`.
        vectors: (K, d) in single precision, as indexes read them.
        features: The map from context columns to φ(x), if the logs came with one: then contexts may be tables.
        exact: True if the order by inner products is that of expected rewards.
    """

    ids: Shaped[Array, " K"]
    vectors: Float32[Array, "K d"]
    features: FeatureMap | None
    exact: bool

    def __len__(self) -> int:
        return len(self.vectors)

    def __repr__(self) -> str:
        order = "exact" if self.exact else "approximate"
        return f"ItemVectors({len(self):,} items, d={self.vectors.shape[1]}, {order} order)"

    def queries(self, contexts: Any) -> Float32[Array, "n d"]:
        """φ(x) of every context, the vectors to search an index with.

        Args:
            contexts: (n, d), or a table.
        """
        return _single("queries", as_contexts(contexts, self.features, columns=self.vectors.shape[1]))

    def write(self, out: PathLike) -> None:
        """Write `vectors.npy` and `ids.json` to a folder, which is created if necessary.

        `vectors.npy` holds the vectors as a plain array in single precision, one row per item. `numpy.load` opens it,
        also as a memory map, and both FAISS (`index.add`) and hnswlib (`index.add_items`) take the result as it is.
        `ids.json` is the list of the ids of these rows.

        Args:
            out: The folder. Existing files of these names are replaced.

        Raises:
            OutputFileError: If a file cannot be written.
        """
        folder, ids = as_path("out", out), self.ids.tolist()
        check_output_folder(folder, "vectors and ids are two files", "save .vectors yourself")
        odd = next((id for id in ids if not isinstance(id, str | int | float)), None)
        if odd is not None:
            problem = f"ids.json holds texts and numbers only; the catalog has the id {odd!r:.80}."
            raise InputError(problem, "Use texts as ids.")
        array = io.BytesIO()
        np.save(array, self.vectors, allow_pickle=False)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise OutputFileError(*write_failure(folder, problem)) from problem
        replace_files({folder / VECTORS: array.getvalue(), folder / IDS: json.dumps(ids).encode()})


VECTORS, IDS = "vectors.npy", "ids.json"
"""The names of the files that `ItemVectors.write` creates."""


def make_item_vectors(posterior: Posterior) -> ItemVectors:
    """The item vectors of a posterior: the means of linear scores, or of the weights behind scores that are not.

    Raises:
        InputError: If no inner product ranks the items, as where two rewards multiply.
    """
    scores, weights = posterior.expected_rewards, posterior.predictor_weights
    if isinstance(scores, LinearScores):
        means = scores.means
    elif weights is not None:
        means = weights.action_mean()
    else:
        raise InputError(
            f"no inner product ranks the items of a {type(posterior).__name__}: its expected rewards are not a "
            "function of one.",
            "Use Greedy(posterior).top_k.",
        )
    ids = np.arange(posterior.n_actions) if posterior.catalog is None else posterior.catalog.ids
    return ItemVectors(ids, _single("item vectors", means), posterior.features, isinstance(scores, LinearScores))


def _single(name: str, array: Array) -> Float32[Array, "m d"]:
    with np.errstate(over="ignore"):
        return check_overflow(name, np.ascontiguousarray(array, dtype=np.float32))
