"""Purchases: a reward that is zero or else an amount, as a hurdle of two likelihoods."""

from __future__ import annotations

from dataclasses import dataclass, field

from manyarms._base.checks import as_instance
from manyarms.likelihoods.bernoulli import Bernoulli
from manyarms.likelihoods.gaussian import LogNormal
from manyarms.likelihoods.likelihood import Likelihood


@dataclass(frozen=True)
class Hurdle:
    """A hurdle, then an amount: r = 0 with probability 1 - p(x, a), else r ~ amount.

    For spending, where most visitors buy nothing.

    Args:
        occurs: Likelihood of whether there is a reward.
        amount: Likelihood of a reward that is not zero.
    """

    occurs: Likelihood = field(default_factory=Bernoulli)
    amount: Likelihood = field(default_factory=LogNormal)

    def __post_init__(self) -> None:
        as_instance("occurs", self.occurs, Bernoulli, "a Bernoulli")
        as_instance("amount", self.amount, Likelihood, "a likelihood, as in ma.LogNormal(1.0)")
