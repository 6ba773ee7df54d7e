"""The model as a scikit-learn estimator, for pipelines, grids and folds; `ma.sklearn`, loaded when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from manyarms._base.checks import Array, as_actions, as_count, as_instance
from manyarms.core import Catalog, HierarchicalGaussian, LoggedData
from manyarms.errors import InputError, ShapeError
from manyarms.likelihoods.likelihood import as_likelihood
from manyarms.posterior import RewardPosterior, fit
from manyarms.prior_learning import learn_prior
from manyarms.priors import from_categories, independent

__all__ = ["SDMRegressor"]


class SDMRegressor(RegressorMixin, BaseEstimator):
    """A scikit-learn regressor, E[y | x, a] = g(φ(x)ᵀ θ_a), whose actions share strength through the prior of θ.

    φ(x) is x, with a one before it unless `fit_intercept` is False. The posterior is exact where y is Gaussian. With a
    single action and no prior it is Bayesian ridge regression, noise and penalty by maximum evidence. All weights of an
    action have one prior scale unless `prior` says otherwise, as in ridge regression: scale the columns of X first.

    Args:
        prior: A `HierarchicalGaussian` prior of all θ_a, with as many dimensions as φ(x), which is used as it is. None
            to learn noise, standard deviations and means from the data, under the structure of `categories`.
        categories: (K,) The category of every action, whose effects actions share. Or a `Catalog` with categories; then
            `action` holds its ids. None when actions share only a mean.
        likelihood: The likelihood of y, such as `ma.Bernoulli()`; None for `ma.Gaussian()`. When the prior is learned,
            so is its noise.
        n_actions: K. By default that of prior or categories, else one more than the largest action seen.
        fit_intercept: True when every action has an intercept.

    Attributes:
        posterior_: The fitted posterior, which answers all further questions.
        n_features_in_: The number of columns of X.

    Example:
        >>> import numpy as np
        >>> import manyarms as ma
        >>> X, action = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
        >>> model = ma.sklearn.SDMRegressor(ma.priors.independent(3, cov=100.0, dim=2), likelihood=ma.Gaussian(0.1))
        >>> model.fit(X, [1.0, 2.0, 4.0, 5.0], action).predict([[4.0], [4.0]], [1, 2]).round(1)
        array([6., 0.])
    """

    def __init__(
        self,
        prior: Any = None,
        *,
        categories: Any = None,
        likelihood: Any = None,
        n_actions: Any = None,
        fit_intercept: Any = True,
    ):
        self.prior = prior
        self.categories = categories
        self.likelihood = likelihood
        self.n_actions = n_actions
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, action: Any = None, sample_weight: Any = None) -> SDMRegressor:
        """The posterior given these rounds.

        Args:
            X: (n, p) Contexts.
            y: (n,) Rewards.
            action: (n,) Action numbers, or ids of the `Catalog`; None when there is only one action.
            sample_weight: (n,) Row weights: weight 2 is the row twice.
        """
        columns, y = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, columns, dtype=np.float64)
        likelihood, known = as_likelihood(self.likelihood), self._given_actions()
        numbers = self._numbers(action, len(columns), known)
        logs = LoggedData(
            self._features(columns),
            numbers,
            y,
            n_actions=int(numbers.max()) + 1 if known is None else known,
            weights=weights,
            catalog=self.categories if isinstance(self.categories, Catalog) else None,
        )
        if self.prior is not None:
            self.posterior_: RewardPosterior = fit(logs, self.prior, likelihood)
            return self
        # Learning the prior moves the mean of the intercepts only where there are several actions.
        centred = self.fit_intercept and likelihood.is_linear
        level = float(np.average(y, weights=weights)) if centred else 0.0
        start, varied = self._structure(logs.n_actions, logs.dim, level), logs.counted().rewards
        # One round, or rewards that do not vary, carry no information about standard deviations.
        if len(varied) < 2 or (centred and np.ptp(varied) == 0.0):
            self.posterior_ = fit(logs, start, likelihood)
        else:
            self.posterior_ = learn_prior(logs, start, likelihood).posterior
        return self

    def predict(
        self, X: Any, action: Any = None, return_std: bool = False
    ) -> Float[Array, " n"] | tuple[Float[Array, " n"], Float[Array, " n"]]:
        """E[y | x, a] for one action per row.

        Args:
            X: (n, p) Contexts.
            action: (n,) Action numbers, or ids of the `Catalog`; None when there is only one action.
            return_std: True to also return the standard deviation of y itself, noise included, as in `BayesianRidge`;
                only for Gaussian y. `posterior_.reward_std` is that of the expectation, for every likelihood.
        """
        check_is_fitted(self)
        x = self._features(validate_data(self, X, reset=False, dtype=np.float64))
        numbers = self._numbers(action, len(x), self.posterior_.n_actions)
        mean = self.posterior_.expected_reward(x, numbers)
        if not return_std:
            return mean
        if self.posterior_.method != "exact":
            problem = f"needs Gaussian rewards; these are {type(self.posterior_.likelihood).__name__}."
            remedy = "Use posterior_.reward_std, which is that of the expected reward."
            raise InputError(problem, remedy, argument="return_std")
        return mean, np.hypot(self.posterior_.reward_std(x, numbers), self.posterior_.likelihood.noise_std)

    def score(self, X: Any, y: Any, sample_weight: Any = None, action: Any = None) -> float:
        """R² of the predictions.

        Args:
            X: (n, p) Contexts.
            y: (n,) Rewards.
            sample_weight: (n,) Row weights.
            action: (n,) Action numbers or ids, as in `predict`.
        """
        return float(r2_score(y, self.predict(X, action), sample_weight=sample_weight))

    def _given_actions(self) -> int | None:
        """K according to the parameters; None when they leave it to the data."""
        counts = dict[str, int]()
        if self.prior is not None:
            counts["prior"] = as_instance("prior", self.prior, HierarchicalGaussian, "a HierarchicalGaussian").n_actions
        if self.categories is not None:
            counts["categories"] = len(self.categories)
        if self.n_actions is not None:
            counts["n_actions"] = as_count("n_actions", self.n_actions)
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise ShapeError(f"the parameters disagree on the number of actions: {listed}.", "Make all of one catalog.")
        return next(iter(counts.values()), None)

    def _structure(self, n_actions: int, dim: int, level: float) -> HierarchicalGaussian:
        """The prior that learning starts from: shared effects around the mean level of the rewards."""
        mean = np.zeros(dim)
        mean[0] = level
        if self.categories is None:
            return independent(n_actions, mean=mean, cov=1.0)
        # An offset is a prior without variance, added.
        return from_categories(self.categories, dim=dim) + independent(n_actions, mean=mean, cov=0.0)

    def _features(self, X: Any) -> Float[Array, "n d"]:
        return np.column_stack([np.ones(len(X)), X]) if self.fit_intercept else X

    def _numbers(self, action: Any, n_rows: int, n_actions: int | None) -> Int[Array, " n"]:
        """The action number of every row; without `action`, the only one."""
        if action is None:
            if n_actions not in (None, 1):
                raise InputError(f"there are {n_actions} actions.", "Pass action=, one for each row.")
            return np.zeros(n_rows, dtype=np.int64)
        given = self.categories.numbers(action) if isinstance(self.categories, Catalog) else action
        return as_actions("action", given, n_actions=n_actions, length=n_rows)
