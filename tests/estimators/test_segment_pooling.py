"""Pooled gains match a dense Gaussian with explicit inverses, and named segments keep the error of the whole family."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm

from manyarms.core.estimate import Estimate
from manyarms.estimators import segment_pooling as pooling
from manyarms.estimators.segment_pooling import SegmentEvidence, surely_below

FLAT = 1e6


def evidence(rng, n=5, unseen=0.0, missing=()):
    root = rng.normal(size=(n, n))
    variance = rng.uniform(0.05, 2.0, n)
    observed = rng.normal(size=n)
    for place in missing:
        variance[place], observed[place] = np.inf, np.nan
    return SegmentEvidence(
        model=rng.normal(size=n), covariance=0.1 * root @ root.T, observed=observed, variance=variance,
        context_variance=rng.uniform(0.01, 0.5, n), shares=rng.dirichlet(np.ones(n)), size=1.3, unseen_variance=unseen,
    )  # fmt: skip


def dense(case, overall):
    """Means and variances by explicit inverses, with a level of huge variance, and a loop over both spreads."""

    def spreads():
        for spread in pooling.SPREADS:
            yield spread * case.size, spread**2 * (1 + (spread / pooling.USUAL_SPREAD) ** 2) ** -1.5

    def posteriors(z, noise, known_cov):
        """(density, mean, covariance) of effects given each spread."""
        n, seen = len(z), np.isfinite(noise)
        for spread, prior in spreads():
            cov = known_cov + spread**2 * np.eye(n) + FLAT * np.ones((n, n))
            H = np.eye(n)[seen]
            S = H @ cov @ H.T + np.diag(noise[seen])
            K = cov @ H.T @ np.linalg.inv(S)
            density = prior * multivariate_normal(np.zeros(seen.sum()), S).pdf(z[seen])
            yield density, K @ z[seen], cov - K @ H @ cov

    n = len(case.model)
    model = list(posteriors(case.model, case.context_variance, np.zeros((n, n))))
    total = sum(part[0] for part in model)
    centre = sum(d * mean for d, mean, _ in model) / total
    spread = sum(d * (cov + np.outer(mean - centre, mean - centre)) for d, mean, cov in model) / total
    errors = list(posteriors(case.observed - case.model, case.variance, case.covariance))
    total, P = sum(part[0] for part in errors), np.eye(n) - case.shares
    means = [P @ (centre + mean) + overall.value for _, mean, _ in errors]
    covs = [P @ (spread + cov + case.unseen_variance * np.eye(n)) @ P.T + overall.std**2 for _, _, cov in errors]
    shares = [part[0] / total for part in errors]
    value = sum(share * mean for share, mean in zip(shares, means, strict=True))
    squares = sum(s * (np.diag(c) + (m - value) ** 2) for s, m, c in zip(shares, means, covs, strict=True))
    return value, np.sqrt(squares)


@pytest.mark.parametrize("options", [{}, {"unseen": 0.3}, {"missing": (1, 3)}, {"n": 1}])
def test_pooled_gains_match_the_dense_gaussian(options):
    case, overall = evidence(np.random.default_rng(3), **options), Estimate(0.4, 0.2)
    estimates = case.pooled(overall).estimates()
    value, std = dense(case, overall)
    assert_allclose([estimate.value for estimate in estimates], value, atol=1e-5)
    assert_allclose([estimate.std for estimate in estimates], std, rtol=1e-4)
    assert_allclose(case.shares @ value, overall.value, atol=1e-9)


def test_without_an_overall_gain_the_level_is_that_of_the_segments():
    """Gains of the dense Gaussian with its own level: those given the overall gain, moved by one number."""
    case = evidence(np.random.default_rng(3))
    own, moved = ([e.value for e in case.pooled(overall).estimates()] for overall in (None, Estimate(0.4, 0.2)))
    assert_allclose(np.ptp(np.subtract(own, moved)), 0.0, atol=1e-9)
    level = case.shares @ own
    # The level follows what segments with precise rewards observed.
    precise = pooling.SegmentEvidence(
        case.model, case.covariance, case.observed, np.full(5, 1e-8), np.full(5, 1e-8), case.shares, case.size, 0.0
    )
    assert_allclose([e.value for e in precise.pooled().estimates()], case.observed, atol=1e-3)
    assert abs(level - case.shares @ moved) > 1e-3


def test_a_segment_with_few_rounds_follows_the_others_and_one_with_many_its_own_rewards():
    n = 30
    rng = np.random.default_rng(0)
    observed, variance = 1.0 + 0.1 * rng.normal(size=n), np.full(n, 0.01)
    observed[0], variance[0] = 8.0, 9.0
    observed[1], variance[1] = 3.0, 1e-4
    case = SegmentEvidence(
        np.zeros(n), np.zeros((n, n)), observed, variance, np.full(n, 1e-4), np.full(n, 1 / n), size=1.0
    )
    gains = [estimate.value for estimate in case.pooled(Estimate(1.1, 0.05)).estimates()]
    assert 0.5 < gains[0] < 1.8 and gains[1] > 2.8


def test_the_number_of_losses_by_chance_is_that_of_simulated_segments():
    rng = np.random.default_rng(1)
    case = evidence(rng, n=40, missing=(2,))
    known = np.isfinite(case.variance)
    errors = np.sqrt(case.variance + case.context_variance)[known]
    simulated = (0.4 + errors * rng.normal(size=(20_000, known.sum())) < 0).sum(axis=1)
    assert abs(case.losses_by_chance(0.4) - simulated.mean()) < 4 * simulated.std() / np.sqrt(20_000)


def test_segments_are_named_by_the_rule_of_holm():
    p = np.array([0.004, 0.9, 0.0005, 0.016, 0.02])
    # 0.05 / 5, / 4, / 3, / 2: the third and the fourth smallest pass as well, the last does not.
    assert surely_below(p).tolist() == [True, False, True, True, True]
    assert surely_below(np.array([0.011, 0.012, 0.013, 0.014, 0.015])).tolist() == [False] * 5
    assert surely_below(np.array([0.04])).tolist() == [True]


@pytest.mark.slow
def test_where_no_segment_differs_at_most_five_percent_of_reports_name_a_loser():
    """50 segments without any gain; the noise of segments, of the model and of the overall gain is as it is stated."""
    rng, n, named, covered, n_reports = np.random.default_rng(5), 50, 0, [], 120
    for _ in range(n_reports):
        sizes = np.maximum(rng.dirichlet(np.full(n, 0.7)) * 4000, 1)
        shares, variance, context = sizes / sizes.sum(), 4.0 / sizes, 0.2 / sizes
        level = 0.02 * rng.normal()
        case = SegmentEvidence(
            model=level + np.sqrt(context) * rng.normal(size=n), covariance=1e-4 * np.ones((n, n)),
            observed=np.sqrt(variance + context) * rng.normal(size=n), variance=variance,
            context_variance=context, shares=shares, size=1.0,
        )  # fmt: skip
        overall = Estimate(float(shares @ case.observed), float(np.sqrt(shares**2 @ (variance + context))))
        probabilities = np.array([gain.probability_positive for gain in case.pooled(overall).estimates()])
        named += surely_below(probabilities).any()
        # A 95 % interval contains zero if neither side of it has less than 2.5 %.
        covered += ((probabilities > 0.025) & (probabilities < 0.975)).tolist()
    assert named / n_reports <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / n_reports)
    assert np.mean(covered) > 0.93
    # One by one, without pooling and without a rule, nearly every report would name one.
    assert 1 - (1 - norm.cdf(-1.96)) ** n > 0.7
