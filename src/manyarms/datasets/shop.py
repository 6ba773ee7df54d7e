"""A simulated shop: customers, a catalog in categories, and a log in which most items never appear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_count, as_scalar, frozen
from manyarms._base.rng import split
from manyarms.core import HierarchicalGaussian, LoggedData
from manyarms.datasets.environment import LinearEnvironment
from manyarms.errors import ActionError, ShapeError
from manyarms.priors import from_categories, independent

CUSTOMER_COLUMNS = ("age", "evening", "mobile", "returning", "past_spend")
"""Age in decades from forty, three yes-or-no columns, and past spending on a log scale, all of about unit scale."""

CATEGORY_NAMES = tuple(
    "audio bakery baskets bedding bicycles books cameras camping candles chairs cheese chocolate coffee cosmetics "
    "cutlery fishing flowers games garden glasses guitars hats jewellery kettles knitting lamps paint pasta pets "
    "phones posters rugs running shoes skincare soap tea tools toys yoga".split()
)

TRUST_AFTER = 50
"""The number of rounds after which the shop trusts the average margin of a category by half."""


@dataclass(frozen=True)
class Shop:
    """Item a shown to customer x brings a margin of N(xᵀ θ_a, σ²) euros, with θ_a = ψ_c + item effect in category c.

    ψ_c ~ N((mean_margin, 0, ..., 0), category_std² I), and the item effect ~ N(0, item_std² I). x is an intercept and
    the `CUSTOMER_COLUMNS`.

    The shop's own policy is mediocre on purpose. In every category a few items get nearly all the views (Zipf, in an
    order unrelated to their margin). Some categories are in fashion, and each day those that earned more on the days
    before get somewhat more views. The shop learns from logged rewards alone. So, given the log, its choices say
    nothing more about θ, and a posterior need not know how it chose.

    Args:
        n_items: K.
        n_categories: The number of categories, at most n_items.
        n_rounds: n, over all days.
        n_days: The number of days. The shop updates its policy every day.
        mean_margin: Mean margin over categories, for a customer with zeros in all columns.
        category_std: Standard deviation between categories, in each column.
        item_std: Standard deviation between the items of one category, in each column.
        noise_std: σ.
        popularity_exponent: Zipf exponent: the k-th item of a category is shown in proportion to k^-exponent.
        fashion_std: Standard deviation of the initial log share of views between categories.
        eagerness: Increase of that log share per euro of average margin.
    """

    n_items: int = 5000
    n_categories: int = 40
    n_rounds: int = 20_000
    n_days: int = 20
    mean_margin: float = 0.30
    category_std: float = 0.04
    item_std: float = 0.03
    noise_std: float = 0.80
    popularity_exponent: float = 1.6
    fashion_std: float = 0.7
    eagerness: float = 12.5

    def __post_init__(self) -> None:
        for name in ("n_items", "n_categories", "n_rounds", "n_days"):
            as_count(name, getattr(self, name))
        as_scalar("mean_margin", self.mean_margin)
        for name in ("category_std", "item_std", "noise_std", "popularity_exponent", "fashion_std", "eagerness"):
            as_scalar(name, getattr(self, name), at_least=0.0)
        if self.n_categories > self.n_items:
            raise ShapeError(
                f"must be at most the number of items, since no category is empty; got {self.n_categories} for "
                f"{self.n_items} items.",
                argument="n_categories",
            )

    def prior(self, categories: Any) -> HierarchicalGaussian:
        """The prior that this shop is drawn from: an effect per category, and the item's own effect around it.

        Its scales are known, since the shop is simulated. On your own data, `learn_prior` estimates them.

        Args:
            categories: (K,) The category name of each item.
        """
        centre = np.array([self.mean_margin] + [0.0] * len(CUSTOMER_COLUMNS))
        around = from_categories(categories, dim=len(centre), effect_std=self.category_std, action_std=self.item_std)
        return around + independent(len(categories), mean=centre, cov=0.0)

    def draw(self, rng: np.random.Generator) -> ShopLog:
        """A random shop: its catalog, its true environment and its log."""
        catalog_rng, truth_rng, log_rng = split(rng, "catalog", "truth", "log")
        categories = _draw_categories(self.n_items, self.n_categories, catalog_rng)
        items = np.array([f"item-{number:05d}" for number in range(self.n_items)])
        weights = self.prior(categories).sample(truth_rng)[0]
        environment = LinearEnvironment(weights, self.noise_std, draw_customers)
        logs, days = self._log(environment, categories, log_rng)
        return ShopLog(frozen(items), frozen(categories), logs, frozen(days), environment)

    def _log(
        self, environment: LinearEnvironment, categories: Array, rng: np.random.Generator
    ) -> tuple[LoggedData, Int[Array, " n"]]:
        customers_rng, display_rng, actions_rng, noise_rng = split(rng, "customers", "display", "actions", "noise")
        n, K, J = self.n_rounds, self.n_items, self.n_categories
        category = np.unique(categories, return_inverse=True)[1]
        x = environment.contexts(n, customers_rng)
        noise = self.noise_std * noise_rng.standard_normal(n)
        popularity = self._popularity(category, display_rng)
        actions, days = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        rewards, propensities = np.empty(n), np.empty(n)
        for day, today in enumerate(np.array_split(np.arange(n), self.n_days), start=1):
            before = slice(0, today[0] if len(today) else n)
            raised = self.eagerness * _margin_above_average(category[actions[before]], rewards[before], J)
            # Margins are unbounded; without the maximum taken out first, exp could overflow.
            shares = popularity * np.exp(raised - raised.max())[category]
            shares /= shares.sum()
            actions[today] = actions_rng.choice(K, size=len(today), p=shares)
            propensities[today] = shares[actions[today]]
            rewards[today] = environment.expected_reward(x[today], actions[today]) + noise[today]
            days[today] = day
        return LoggedData(x, actions, rewards, propensities, K), days

    def _popularity(self, category: Int[Array, " K"], rng: np.random.Generator) -> Float[Array, " K"]:
        """Initial shares of views: Zipf within each category, times a log-normal share of the category."""
        order_rng, fashion_rng = split(rng, "order", "fashion")
        order = np.lexsort((order_rng.random(len(category)), category))
        start = np.searchsorted(category[order], np.arange(self.n_categories))
        rank = np.empty(len(category))
        rank[order] = np.arange(1, len(category) + 1) - start[category[order]]
        within = rank**-self.popularity_exponent
        fashion = np.exp(self.fashion_std * fashion_rng.standard_normal(self.n_categories))
        return within * (fashion / np.bincount(category, weights=within))[category]


@dataclass(frozen=True)
class ShopLog:
    """The catalog and log of a shop, as it would keep them, and the truth, which it would not know.

    Attributes:
        items: (K,) Ids of the items.
        categories: (K,) The category of each item.
        logs: The rounds, with items numbered in the order of the catalog.
        days: (n,) The day of each round, from 1.
        environment: The true environment: `environment.value(policy, contexts)` is the true value of any policy.
    """

    items: Array
    categories: Array
    logs: LoggedData
    days: Int[Array, " n"]
    environment: LinearEnvironment

    @property
    def catalog_table(self) -> pa.Table:
        """A table of every item and its category, shown or not."""
        return pa.table({"item": pa.array(self.items.tolist()), "category": pa.array(self.categories.tolist())})

    @property
    def logs_table(self) -> pa.Table:
        """A table with one row per round: day, customer, item, margin and propensity."""
        columns: dict[str, Any] = {"day": self.days}
        columns |= dict(zip(CUSTOMER_COLUMNS, self.logs.contexts[:, 1:].T, strict=True))
        columns |= {"item": self.items[self.logs.actions].tolist(), "margin": self.logs.rewards}
        columns |= {"propensity": self.logs.propensities}
        return pa.table(columns)


def read_tables(logs: pa.Table, catalog: pa.Table) -> LoggedData:
    """The rounds of the shop's logs table, with items numbered in the order of its catalog table.

    Raises:
        ActionError: When an item of the log is missing from the catalog.
    """
    number = {item: k for k, item in enumerate(catalog["item"].to_pylist())}
    shown = logs["item"].to_pylist()
    missing = next((row for row, item in enumerate(shown) if item not in number), None)
    if missing is not None:
        raise ActionError(f"items of the log must be in the catalog; row {missing} has {shown[missing]!r}.", "Add it.")
    intercept = np.ones(len(logs))
    contexts = np.column_stack([intercept, *(logs[name].to_numpy() for name in CUSTOMER_COLUMNS)])
    actions = np.array([number[item] for item in shown], dtype=np.int64)
    return LoggedData(contexts, actions, logs["margin"].to_numpy(), logs["propensity"].to_numpy(), len(number))


def draw_customers(rng: np.random.Generator, n: int) -> Float[Array, "n d"]:
    """Customers of the shop as contexts: an intercept and the `CUSTOMER_COLUMNS`. Only the returning have spent."""
    age_rng, evening_rng, mobile_rng, returning_rng, spend_rng = split(rng, *CUSTOMER_COLUMNS)
    age = (np.clip(age_rng.normal(40.0, 14.0, n), 18.0, 80.0) - 40.0) / 10.0
    evening = evening_rng.random(n) < 0.45
    mobile = mobile_rng.random(n) < 1.0 / (1.0 + np.exp(0.5 * age - 0.4))
    returning = returning_rng.random(n) < 0.40
    past_spend = np.where(returning, np.abs(spend_rng.normal(1.2, 0.6, n)), 0.0)
    return np.column_stack([np.ones(n), age, evening, mobile, returning, past_spend])


def _draw_categories(n_items: int, n_categories: int, rng: np.random.Generator) -> Array:
    """A category name per item: categories of unequal size, none empty."""
    size_rng, item_rng, order_rng = split(rng, "sizes", "items", "order")
    share = size_rng.lognormal(0.0, 0.5, n_categories)
    others = item_rng.choice(n_categories, n_items - n_categories, p=share / share.sum())
    code = order_rng.permutation(np.concatenate([np.arange(n_categories), others]))
    laps = -(-n_categories // len(CATEGORY_NAMES))
    names = [name if lap == 0 else f"{name} {lap + 1}" for lap in range(laps) for name in CATEGORY_NAMES]
    return np.array(names)[code]


def _margin_above_average(
    category: Int[Array, " m"], rewards: Float[Array, " m"], n_categories: int
) -> Float[Array, " J"]:
    """The average margin of each category above that of the shop, shrunk while there are few rounds."""
    if len(rewards) == 0:
        return np.zeros(n_categories)
    count = np.bincount(category, minlength=n_categories)
    total = np.bincount(category, weights=rewards - rewards.mean(), minlength=n_categories)
    return total / (count + TRUST_AFTER)
