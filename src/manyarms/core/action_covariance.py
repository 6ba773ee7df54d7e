"""Σ_a, the covariance of θ_a around W_a ψ + c_a: a scalar, a diagonal, one matrix for all, or one per action."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.checks import Array, as_covariances, as_floats, check_rows, frozen
from manyarms.errors import CovarianceError, ShapeError
from manyarms.linalg.factor_and_solve import eigen_root, psd_root
from manyarms.linalg.indexing import chunks
from manyarms.model_file.part_checks import flags_array, floats, maybe
from manyarms.model_file.save import Saved


class ActionCovariance(Saved):
    """Σ_a of every action. Every form offers the same few products, so that callers need not know which it is.

    Exactly one of the three attributes is set.

    Attributes:
        variances: (d,) if Σ_a is diagonal and shared (a scalar is a diagonal of equal entries).
        shared: (d, d) if all actions share a full matrix.
        each: (K, d, d) if every action has its own matrix.
    """

    saved_as = "action covariance"
    saved_fields = ("variances", "shared", "each", "shared_root", "definite")
    saved_checks: ClassVar = {
        "variances": maybe(lambda part: floats(1)(part) and bool((part >= 0).all())),
        "shared": maybe(floats(2)),
        "each": maybe(floats(3, repeated=True)),
        "shared_root": maybe(floats(2)),
        "definite": maybe(flags_array),
    }

    def __init__(self, *, variances: Array | None = None, shared: Array | None = None, each: Array | None = None):
        self.variances = None if variances is None else frozen(variances)
        self.shared = None if shared is None else frozen(shared)
        self.each = None if each is None else frozen(each)

    @classmethod
    def of(cls, value: Any, *, n_actions: int, dim: int) -> ActionCovariance:
        """Check the argument `action_cov` of a user: a scalar, (d,), (d, d) or (K, d, d)."""
        if isinstance(value, ActionCovariance):
            return value
        array = as_floats("action_cov", value, ndim=(0, 1, 2, 3))
        shapes = {0: (), 1: (dim,), 2: (dim, dim), 3: (n_actions, dim, dim)}
        if array.shape != shapes[array.ndim]:
            raise ShapeError(
                f"must be a scalar, ({dim},), ({dim}, {dim}) or ({n_actions}, {dim}, {dim}) here; got shape "
                f"{array.shape}.",
                argument="action_cov",
            )
        if array.ndim <= 1:
            check_rows("action_cov", array, lambda v: v >= 0, CovarianceError, "must not be negative", _VARIANCE)
            return cls(variances=np.broadcast_to(array, (dim,)).copy())
        matrices = as_covariances("action_cov", array if array.ndim == 3 else array[None])
        return cls(shared=matrices[0].copy()) if array.ndim == 2 else cls(each=matrices.copy())

    @classmethod
    def from_root(cls, root: Float[Array, "d d"]) -> ActionCovariance:
        """Σ_a = L Lᵀ for all actions, with exactly this L as its root."""
        if not np.any(root - np.diag(np.diagonal(root))):
            return cls(variances=np.diagonal(root) ** 2)
        out = cls(shared=root @ root.T)
        out._shared_root = frozen(root)
        return out

    def saved(self) -> dict[str, Any]:
        # A posterior stores products with this root, and must use the same one on a machine that rounds differently.
        return {
            "variances": self.variances,
            "shared": self.shared,
            "each": self.each,
            "shared_root": None if self.shared is None else self._shared_root,
            "definite": vars(self).get("_definite"),
        }

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> ActionCovariance:
        out = cls(variances=parts["variances"], shared=parts["shared"], each=parts["each"])
        if parts["shared_root"] is not None:
            out._shared_root = parts["shared_root"]
        if parts["definite"] is not None:
            out._definite = parts["definite"]
        return out

    def consistent(self) -> bool:
        """True if exactly one form is set, of square matrices."""
        given = [part for part in (self.variances, self.shared, self.each) if part is not None]
        if len(given) != 1 or (given[0].ndim > 1 and given[0].shape[-1] != given[0].shape[-2]):
            return False
        root, definite = vars(self).get("_shared_root"), vars(self).get("_definite")
        if (root is None) != (self.shared is None) or (root is not None and root.shape != given[0].shape):
            return False
        return definite is None or (self.each is not None and definite.shape == self.each.shape[:1])

    def fits(self, n_actions: int, dim: int) -> bool:
        """True if there are covariances of so many actions and features."""
        shapes = ((self.variances, (dim,)), (self.shared, (dim, dim)), (self.each, (n_actions, dim, dim)))
        return all(part is None or part.shape == shape for part, shape in shapes)

    def times_root(self, rows: Float[Array, "m r d"], actions: Int[Array, " m"]) -> Float[Array, "m r d"]:
        """Every row times L_a, where L_a L_aᵀ = Σ_a."""
        if self.variances is not None:
            return rows * np.sqrt(self.variances)
        return rows @ self._root(actions)

    def times_root_t(self, rows: Float[Array, "m r d"], actions: Int[Array, " m"]) -> Float[Array, "m r d"]:
        """Every row times L_aᵀ."""
        if self.variances is not None:
            return rows * np.sqrt(self.variances)
        return rows @ self._root(actions).swapaxes(-1, -2)

    def blocks(self, actions: Int[Array, " m"]) -> Float[Array, "m d d"]:
        """Σ_a of each action as a matrix."""
        matrix = self.shared if self.variances is None else np.diag(self.variances)
        return self._each(actions) if matrix is None else np.broadcast_to(matrix, (len(actions), *matrix.shape))

    def colour(self, noise: Float[Array, "s m d"], actions: Int[Array, " m"]) -> Float[Array, "s m d"]:
        """L_a ε with L_a L_aᵀ = Σ_a: turns standard normal noise into draws from N(0, Σ_a)."""
        return self.times_root_t(noise.swapaxes(0, 1), actions).swapaxes(0, 1)

    def plus(self, other: ActionCovariance, n_actions: int) -> ActionCovariance:
        """Σ_a of the sum of two independent vectors, in the simplest form that can hold both."""
        if self.variances is not None and other.variances is not None:
            return ActionCovariance(variances=self.variances + other.variances)
        for first, second in ((self, other), (other, self)):
            # A part with zero variance must not turn the other one into full matrices.
            if second.variances is not None and not second.variances.any():
                return first
        if self.each is None and other.each is None:
            return ActionCovariance(shared=(self.blocks(np.zeros(1, int)) + other.blocks(np.zeros(1, int)))[0])
        everyone = np.arange(n_actions)
        return ActionCovariance(each=self.blocks(everyone) + other.blocks(everyone))

    def scaled(self, factor: float) -> ActionCovariance:
        """Σ_a times a number that is not negative."""
        parts = {name: getattr(self, name) for name in ("variances", "shared", "each")}
        out = ActionCovariance(**{name: None if part is None else factor * part for name, part in parts.items()})
        if self.each is not None and factor > 0:
            out._definite = self._definite
        return out

    def extended(self, extra: ActionCovariance | None, n_actions: int, n_new: int) -> ActionCovariance:
        """The covariances of these actions followed by those of `n_new` more; None repeats the shared one."""
        if extra is None:
            if self.each is not None:
                raise ShapeError(
                    "differs by action here.", "Pass action_cov= for the new actions too.", argument="action_cov"
                )
            return self
        same = all(np.array_equal(getattr(self, name), getattr(extra, name)) for name in ("variances", "shared"))
        if same and self.each is None:
            return self
        old, new = self.blocks(np.arange(n_actions)), extra.blocks(np.arange(n_new))
        return ActionCovariance(each=np.concatenate([old, new]))

    def _each(self, actions: Int[Array, " m"]) -> Float[Array, "m d d"]:
        assert self.each is not None
        return self.each[actions]

    def _root(self, actions: Int[Array, " m"]) -> Float[Array, "*m d d"]:
        if self.shared is not None:
            return self._shared_root
        matrices, definite = self._each(actions), self._definite[actions]
        if definite.all():
            return np.linalg.cholesky(matrices)
        out = np.empty_like(matrices)
        for which, root in ((definite, np.linalg.cholesky), (~definite, eigen_root)):
            out[which] = root(matrices[which])
        return out

    @cached_property
    def _definite(self) -> Bool[Array, " K"]:
        """True for each matrix that has a Cholesky factor.

        This is decided once: a posterior stores products with one root, and must use the same root later, whichever
        other actions come with it.
        """
        assert self.each is not None
        out = np.ones(len(self.each), dtype=bool)
        for part in chunks(len(self.each), 4096):
            try:
                np.linalg.cholesky(self.each[part])
            except np.linalg.LinAlgError:
                values = np.linalg.eigvalsh(self.each[part])
                out[part] = values[:, 0] > 1e-10 * values[:, -1]
        return out

    @cached_property
    def _shared_root(self) -> Float[Array, "d d"]:
        assert self.shared is not None
        return psd_root(self.shared)


_VARIANCE = "Pass variances, not standard deviations; 0 means theta_a is exactly W_a psi + c_a."
