"""Expansions of features: splines, products, random Fourier and Nystroem features, as plain numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, check_choice
from manyarms._base.job_options import Expand
from manyarms.errors import InputError

N_KNOTS, DEGREE = 5, 3
"""Knots of a spline, at even quantiles, and its degree."""
N_FOURIER, N_LANDMARKS = 100, 50
"""The number of random Fourier features, and of landmarks of Nystroem features."""
MAX_PRODUCTS = 1000
"""The largest number of products of two features."""


@dataclass(frozen=True)
class FeatureExpansion:
    """More features g(z), computed from features z: scikit-learn fits g, and NumPy evaluates it.

    Attributes:
        kind: "splines": the B-splines of each column, constant outside the knots. "products": z_i z_j for i < j.
            "fourier": √(2/D) cos(zᵀ w_k + b_k). "nystroem": exp(-γ ‖z - landmark_k‖²), times a matrix.
        columns: The places of the features that are expanded.
        first: Knots, one row per column ("splines"); w ("fourier"); landmarks ("nystroem"); empty for "products".
        second: b ("fourier"), or the matrix ("nystroem"); empty for the others.
        gamma: γ, for "nystroem".
    """

    kind: Expand
    columns: tuple[int, ...]
    first: tuple[tuple[float, ...], ...] = ()
    second: tuple[tuple[float, ...], ...] = ()
    gamma: float = 1.0

    def fits(self, n_features: int) -> bool:
        """True if it is an expansion of so many features, with matrices of matching shapes and finite numbers."""
        columns, first, second = self.columns, [len(row) for row in self.first], [len(row) for row in self.second]
        numbers = [self.gamma, *(x for rows in (self.first, self.second) for row in rows for x in row)]
        if not all(type(x) in (int, float) and np.isfinite(x) for x in numbers):
            return False
        if not columns or not all(type(c) is int and 0 <= c < n_features for c in columns):
            return False
        p, m = len(columns), len(first)
        shapes = {
            "splines": m == p and len(set(first)) == 1 and first[0] > 2 * DEGREE + 1 and not second and self._ascend(),
            "products": m == 0 and not second and p * (p - 1) <= 2 * MAX_PRODUCTS,
            "fourier": m == p and len(set(first)) == 1 and second == first[:1],
            "nystroem": m > 0 and set(first) == {p} and bool(second) and set(second) == {m},
        }
        return shapes.get(self.kind, False)

    def _ascend(self) -> bool:
        return bool((np.diff(np.array(self.first)) > 0).all())

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The name of each new feature."""
        if self.kind == "splines":
            count = len(self.first[0]) - DEGREE - 2
            return tuple(f"spline {k} of {column}" for column in self.columns for k in range(count))
        if self.kind == "products":
            left, right = np.triu_indices(len(self.columns), 1)
            return tuple(f"{self.columns[i]} x {self.columns[j]}" for i, j in zip(left, right, strict=True))
        count = len(self.second[0]) if self.kind == "fourier" else len(self.second)
        return tuple(f"{self.kind} {k}" for k in range(count))

    def __call__(self, features: Float[Array, "n p"]) -> Float[Array, "n k"]:
        """g(z) for every row of features."""
        z = np.asarray(features)[:, list(self.columns)]
        if self.kind == "splines":
            return np.hstack([_splines(z[:, j], np.array(knots))[:, :-1] for j, knots in enumerate(self.first)])
        if self.kind == "products":
            left, right = np.triu_indices(len(self.columns), 1)
            return z[:, left] * z[:, right]
        first, second = np.array(self.first), np.array(self.second)
        if self.kind == "fourier":
            return np.sqrt(2 / first.shape[1]) * np.cos(z @ first + second[0])
        squares = np.sum(z**2, axis=1)[:, None] + np.sum(first**2, axis=1) - 2 * z @ first.T
        return np.exp(-self.gamma * np.maximum(squares, 0.0)) @ second.T

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FeatureExpansion:
        """The expansion whose fields were written to JSON."""
        rows = {name: tuple(tuple(row) for row in data[name]) for name in ("first", "second")}
        return cls(data["kind"], tuple(data["columns"]), **rows, gamma=float(data["gamma"]))


def learn_expansion(
    kind: Expand, features: Float[Array, "n p"], columns: Any = None, *, seed: int = 0
) -> FeatureExpansion:
    """Fit an expansion to a sample of features, which should have about unit size.

    For contexts in memory: `np.hstack([contexts, learn_expansion("splines", contexts)(contexts)])`.

    Args:
        kind: "splines", "products", "fourier" or "nystroem".
        features: (n, p) the sample; constant columns are left out.
        columns: The columns to expand; None for all.
        seed: Seed of random weights and of landmarks.
    """
    check_choice("expand", kind, get_args(Expand))
    places = np.arange(np.shape(features)[1]) if columns is None else np.asarray(columns, dtype=np.int64)
    places = places[np.ptp(features[:, places], axis=0) > 0] if len(features) else places[:0]
    if kind == "splines":
        inner = np.quantile(features[:, places], np.linspace(0, 1, N_KNOTS), axis=0)
        places = places[(np.diff(inner, axis=0) > 0).all(axis=0)]
    if len(places) < (2 if kind == "products" else 1):
        raise InputError(
            f"needs numeric columns with enough different values; {kind} cannot be made of these.",
            "Leave it out.",
            argument="expand",
        )
    z, chosen = features[:, places], tuple(int(place) for place in places)
    if kind == "products":
        count = len(places) * (len(places) - 1) // 2
        if count > MAX_PRODUCTS:
            problem = f"of products would add {count:,} features; the limit is {MAX_PRODUCTS:,}."
            raise InputError(problem, 'Use "fourier" or "nystroem".', argument="expand")
        return FeatureExpansion(kind, chosen)
    gamma = 1.0 / len(places)
    if kind == "splines":
        from sklearn.preprocessing import SplineTransformer  # noqa: PLC0415

        model: Any = SplineTransformer(N_KNOTS, DEGREE, knots="quantile", include_bias=False).fit(z)
        return FeatureExpansion(kind, chosen, _rows([spline.t for spline in model.bsplines_]))
    from sklearn.kernel_approximation import Nystroem, RBFSampler  # noqa: PLC0415

    if kind == "fourier":
        model = RBFSampler(gamma=gamma, n_components=N_FOURIER, random_state=seed).fit(z)
        return FeatureExpansion(kind, chosen, _rows(model.random_weights_), _rows([model.random_offset_]), gamma)
    with warnings.catch_warnings():
        # Fewer rows than landmarks: all rows are landmarks.
        warnings.simplefilter("ignore")
        model = Nystroem(gamma=gamma, n_components=min(N_LANDMARKS, len(z)), random_state=seed).fit(z)
    return FeatureExpansion(kind, chosen, _rows(model.components_), _rows(model.normalization_), gamma)


def _rows(matrix: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in np.asarray(matrix, dtype=np.float64).tolist())


def _splines(x: Float[Array, " n"], knots: Float[Array, " t"]) -> Float[Array, "n k"]:
    """All B-splines of DEGREE at x, by the recursion of Cox and de Boor; constant outside the inner knots."""
    x = np.clip(x, knots[DEGREE], knots[-DEGREE - 1])[:, None]
    basis = ((x >= knots[:-1]) & (x < knots[1:])).astype(np.float64)
    for degree in range(1, DEGREE + 1):
        rise = (x - knots[: -degree - 1]) / (knots[degree:-1] - knots[: -degree - 1])
        fall = (knots[degree + 1 :] - x) / (knots[degree + 1 :] - knots[1:-degree])
        basis = rise * basis[:, :-1] + fall * basis[:, 1:]
    return basis


def spline_pieces(knots: Float[Array, " t"]) -> Float[Array, "k p c"]:
    """The B-splines of `FeatureExpansion`, without the last, as polynomials between two inner knots.

    Coefficients of 1, u, u², ... for u = x - left knot, one row per spline and interval.
    """
    inner = knots[DEGREE : len(knots) - DEGREE]
    width, powers = np.diff(inner), np.arange(DEGREE + 1)
    # A polynomial of degree 3 is known by its values at four points; inside, where no neighbour takes over.
    at = (powers + 1) / (DEGREE + 2)
    values = np.stack([_splines(left + at * wide, knots)[:, :-1] for left, wide in zip(inner, width, strict=False)])
    scaled = np.linalg.solve(at[:, None] ** powers, values)
    return np.moveaxis(scaled / width[:, None, None] ** powers[:, None], 2, 0)
