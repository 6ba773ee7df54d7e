"""The value on a grid: Bayes' rule with a prior whose two sides differ, by brute force."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from manyarms.estimators.model_error import ModelError
from manyarms.estimators.value_on_grid import PriorSide, ResidualEvidence, value_on_grid

STUDENT = stats.t.ppf(0.5 + (np.arange(40) + 0.5) / 80, 3)


def evidence(observed, distance=0.8):
    """A policy whose model says 1.0, and whose residuals say what was observed, with a standard error of 0.5."""
    return ResidualEvidence(
        model=1.0, centre=1.0, baseline=0.0, distance=distance, observed=observed, inverse_size=0.05, spread=5.0,
        effective_size=20.0, context_error=1e-12, low=-np.inf, high=np.inf, is_binary=False, size=1.0,
    )  # fmt: skip


def share_below(x, observed, below, above, distance=0.8):
    """The probability of values below x: a prior on arcsinh(V / knee), times a normal likelihood, by quadrature."""
    knee = 0.5

    def density(v):
        std, scale = below if v < 1.0 else above
        stds = np.hypot(std / np.hypot(1.0, knee), scale * distance * STUDENT)
        u = np.arcsinh(v / knee) - np.arcsinh(1.0 / knee)
        prior = stats.norm.pdf(u, scale=stds).mean() / np.hypot(v, knee)
        return prior * stats.norm.pdf(observed - v, scale=0.5)

    low, high = (integrate.quad(density, *ends, points=[1.0], limit=500)[0] for ends in ((-4.0, x), (-4.0, 6.0)))
    return low / high


@pytest.mark.parametrize("observed", [0.3, 1.0, 1.8])
@pytest.mark.parametrize(
    ("below", "above"), [((0.1, 0.05), (0.1, 0.5)), ((0.6, 0.3), (0.1, 0.3))], ids=["error", "doubt"]
)
def test_the_two_sides_of_the_prior_follow_bayes_rule(observed, below, above):
    sides = [PriorSide(std, ModelError.fixed(scale)) for std, scale in (below, above)]
    shape = value_on_grid(evidence(observed), *sides).shape
    at = [shape.quantile(share) for share in (0.025, 0.5, 0.975)]
    assert_allclose([share_below(x, observed, below, above) for x in at], [0.025, 0.5, 0.975], atol=3e-3)


def test_evidence_of_rounds_that_the_model_learned_from_counts_its_own_doubt_once():
    fresh = evidence(1.3)
    learned = fresh.of_learned_rounds(0.2)
    own = 0.2**2
    noise = float(fresh.variance(np.array([1.3]))[0])
    assert_allclose(learned.inverse_size, fresh.inverse_size * (1 - own / noise))
    assert_allclose(learned.context_error, fresh.context_error + own)
    # Without residuals, or with a model that is sure, there is nothing to count twice.
    unobserved = evidence(None).of_learned_rounds(0.2)
    assert unobserved.inverse_size == fresh.inverse_size
    assert_allclose(unobserved.context_error, fresh.context_error + own)
    assert fresh.of_learned_rounds(0.0) == fresh
