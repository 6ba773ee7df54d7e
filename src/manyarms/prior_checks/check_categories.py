"""Checks of the posterior against the logs, category by category; what the prior expected is shown beside it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtr, chdtrc

from manyarms._base.checks import Array, as_instance, as_scalar
from manyarms.core import LoggedData, Tabular, any_shared, as_column, encode
from manyarms.core.catalog import metadata
from manyarms.core.labels import with_missing
from manyarms.core.logged_data import check_logs
from manyarms.core.result_tables import shorten
from manyarms.errors import InputError, ShapeError
from manyarms.posterior import RewardPosterior
from manyarms.posterior.misfit import CLOSE
from manyarms.prior_checks.category_forecast import CategorySums, RewardSum, forecast_categories, reward_sum_for


@dataclass(frozen=True)
class CategoryCheck:
    """One category: the rewards of its logged rounds beside those that prior and posterior expect.

    Attributes:
        category: The label.
        n_rounds: The number of its rounds, by their weights.
        n_actions: The number of its actions that were logged.
        observed: The mean reward; under `LogNormal` the mean log reward.
        prior_mean: The mean reward that the prior expects. It is shown and not tested.
        prior_z: The difference in standard deviations of the prior predictive; for clicks and counts the normal score
            of the probability of a lower mean. It is shown and not tested.
        posterior_mean: The mean reward that the posterior expects.
        posterior_z: The difference in standard deviations of the posterior predictive, as for `prior_z`.
        dispersion: Mean squared residual over its expectation; NaN where nothing is left to vary, and for clicks, whose
            mean determines their spread.
        p_value: The smallest p-value of its tests, of the posterior mean and of the dispersion, before any correction.
        flags: The failed tests, out of "posterior mean" and "dispersion".
    """

    category: Hashable
    n_rounds: float
    n_actions: int
    observed: float
    prior_mean: float
    prior_z: float
    posterior_mean: float
    posterior_z: float
    dispersion: float
    p_value: float
    flags: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class CategoryChecks(Tabular):
    """The result of `check_categories`: a table, the worst category first.

    Attributes:
        rows: One row per category with any rounds.
        level: The probability that a correct model has no flag at all.
        held_out: True if the posterior had not seen these rounds.
    """

    rows: tuple[CategoryCheck, ...]
    level: float
    held_out: bool

    @property
    def flagged(self) -> tuple[CategoryCheck, ...]:
        """The categories that fail at least one test."""
        return tuple(row for row in self.rows if row.flags)

    def records(self) -> list[dict[str, Any]]:
        """One plain record per category."""
        return [{**vars(row), "flags": "; ".join(row.flags)} for row in self.rows]

    def __iter__(self) -> Iterator[CategoryCheck]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        shown = self.rows[:SHOWN]
        wide = max([8, *(min(len(str(row.category)), 28) for row in shown)])
        lines = [
            f"{'category':<{wide}} {'rounds':>9} {'observed':>9} {'prior':>9} {'z':>7} {'posterior':>9} {'z':>7} "
            f"{'dispersion':>11}"
        ]
        for row in shown:
            first, second = ("*" if name in row.flags else " " for name in TESTS)
            dispersion = "-" if np.isnan(row.dispersion) else f"{row.dispersion:.2f}"
            lines.append(
                f"{shorten(str(row.category), wide):<{wide}} {row.n_rounds:>9,.8g} {row.observed:>9.3g} "
                f"{row.prior_mean:>9.3g} {row.prior_z:>7.1f} {row.posterior_mean:>9.3g} "
                f"{row.posterior_z:>6.1f}{first} {dispersion:>10}{second}"
            )
        rest = self.rows[SHOWN:]
        if rest:
            lines.append(f"and {len(rest):,} more, {sum(bool(row.flags) for row in rest):,} of them flagged")
        kind = "held out" if self.held_out else "those of the fit"
        lines.append(
            f"{len(self.flagged):,} of {len(self):,} categories flagged (*) at {100 * self.level:.0f} %; rounds are "
            f"{kind}"
        )
        return "\n".join(lines)


def check_categories(
    posterior: RewardPosterior,
    logs: LoggedData,
    categories: Any,
    *,
    level: float = 0.95,
    held_out: bool | None = None,
) -> CategoryChecks:
    """Predictive checks of the mean reward and of the spread around it, one for each category of actions.

    The sum of a category's rewards is compared with the rewards that the posterior expects at these contexts and
    actions. That sum is Gaussian, so its z-score is exact on held-out rounds. On the rounds of the fit itself it is
    cautious, since the posterior has moved towards them. Log-normal rewards are checked on the log scale. For clicks
    and counts, p-values are tails of a binomial or Poisson sum whose rate is as uncertain as the weights, which matters
    for small categories. They come from joint draws of the weights (`draw_rates`), the same every time.

    The mean and z-score of the prior are shown beside it and raise no flag: decisions rest on the posterior, and a
    prior that is far off and wide does it no harm. `check_prior` tests the prior.

    The dispersion compares squared residuals (r - φᵀθ̂_a)² with their expectation: σ² + φᵀ Cov θ_a φ on held-out rounds,
    σ² - φᵀ Cov θ_a φ on the rounds of the fit. It is tested on the latter where rewards are Gaussian, against χ² with
    Σ (1 - φᵀ Cov θ_a φ / σ²) degrees of freedom, which spreads no less. That of counts is shown and not tested.

    A category is flagged when the p-value of one of its one or two tests, times the number of all tests over all
    categories, is below 1 - `level`; for the dispersion, the ratio must also lie outside 0.8 ... 1.25. Weights of
    rounds are counts: weight 2 means the round happened twice.

    Args:
        posterior: A fitted posterior.
        logs: All rounds of the fit, or rounds that it has not seen.
        categories: (K,) hashable labels of all actions, or a `Catalog` with categories; actions without one (None, NaN)
            form the category "(missing)".
        level: The probability that a correct model gets no flag at all.
        held_out: True if the posterior has not seen these rounds. By default this is found out from their origin; the
            rounds of a fit from bare `Statistics` cannot be traced and count as not seen.

    Raises:
        InputError: For `StudentT`: a few rounds decide the mean of heavy-tailed rewards, and no test of it is valid.

    Examples:
        >>> import numpy as np
        >>> import manyarms as ma
        >>> from manyarms.prior_checks.check_categories import check_categories
        >>> rng = np.random.default_rng(0)
        >>> actions = rng.integers(4, size=200)
        >>> rewards = 3.0 * (actions == 3) + rng.normal(size=200)
        >>> logs = ma.LoggedData(np.ones((200, 1)), actions, rewards)
        >>> posterior = ma.fit(logs, ma.priors.independent(4, dim=1, cov=0.01))
        >>> [row.category for row in check_categories(posterior, logs, ["tea", "tea", "mug", "pot"]).flagged]
        ['pot']
    """
    posterior = as_instance("posterior", posterior, RewardPosterior, "a posterior from fit()")
    logs = check_logs(logs, posterior.prior)
    level = as_scalar("level", level, above=0.0, below=1.0)
    column, K = metadata(categories, "categories", as_column), posterior.prior.n_actions
    if len(column) != K:
        raise ShapeError(
            f"must have {K} labels, one for each action of the posterior; got {len(column)}.", argument="categories"
        )
    codes, labels, _ = with_missing(encode("categories", column))
    if held_out is None:
        held_out = not any_shared(posterior.learned_from, (logs.fingerprint,))
    reward_sum = reward_sum_for(posterior.likelihood)
    reward_sum.likelihood.check(logs.rewards)
    sums = forecast_categories(posterior, logs, codes, len(labels), reward_sum)
    present = np.flatnonzero(sums.weight > 0)
    if len(present) == 0:
        raise InputError("has no rounds to check categories on.", argument="logs")
    columns, p_values = _columns(reward_sum, sums, present, held_out)
    return CategoryChecks(_rows(columns, p_values, [labels[i] for i in present], level), level, held_out)


def _columns(
    reward_sum: RewardSum, sums: CategorySums, present: Int[Array, " c"], held_out: bool
) -> tuple[dict[str, Array], Float[Array, "t c"]]:
    """The columns of the table, and the p-values of each test."""
    weight, reward, residual_sq, noise, variance = (
        column[present] for column in (sums.weight, sums.reward, sums.residual_sq, sums.noise, sums.variance)
    )
    n_actions = np.bincount(sums.posterior.owner, minlength=len(sums.weight))[present]
    columns, p_values = {"n_rounds": weight, "n_actions": n_actions, "observed": reward / weight}, list[Array]()
    for name, forecast in (("prior", sums.prior), ("posterior", sums.posterior)):
        z, p_value = reward_sum.compare(sums, forecast, present)
        columns |= {f"{name}_mean": forecast.total[present] / weight, f"{name}_z": z}
        if name == "posterior":
            p_values.append(p_value)
    expected = noise + (variance if held_out else -variance)
    some = expected > 1e-9 * noise
    columns["dispersion"] = np.divide(residual_sq, expected, out=np.full(len(present), np.nan), where=some)
    if reward_sum.is_gaussian and not held_out:
        unit = np.divide(noise, weight)
        value, degrees = residual_sq / unit, np.maximum(expected / unit, np.finfo(float).tiny)
        p_value = np.minimum(2 * np.minimum(chdtr(degrees, value), chdtrc(degrees, value)), 1.0)
        p_values.append(np.where(some, p_value, 1.0))
    return columns, np.array(p_values)


def _rows(
    columns: dict[str, Array], p_values: Float[Array, "t c"], labels: list[Hashable], level: float
) -> tuple[CategoryCheck, ...]:
    """The rows with their flags, the worst first."""
    fails = p_values * p_values.size < 1 - level
    dispersion = columns["dispersion"]
    fails[1:] &= ~((dispersion >= CLOSE[0]) & (dispersion <= CLOSE[1]))
    columns = {**columns, "p_value": p_values.min(axis=0)}
    rows = list[CategoryCheck]()
    for i in np.lexsort((columns["p_value"], ~fails.any(axis=0))):
        flags = tuple(name for name, fail in zip(TESTS, fails[:, i], strict=False) if fail)
        values: dict[str, Any] = {name: column[i].item() for name, column in columns.items()}
        rows.append(CategoryCheck(labels[i], flags=flags, **values))
    return tuple(rows)


TESTS = ("posterior mean", "dispersion")
SHOWN = 20
