"""Where the Open Bandit Pipeline computes the same thing, it gets the same number.

Its answers are constants here, found with obp 0.5.7 on the inputs below; it is no dependency. To find them again:
`action_dist=TARGET[:, :, None]`, `pscore=LOGGING[ROUND, ACTIONS]`, `position` zero, and
`estimated_rewards_by_reg_model=(CONTEXTS @ MODEL_WEIGHTS.T)[:, :, None]`. The class and its arguments stand over each.

What is left out, as the definitions differ:

- SelfNormalizedInverseProbabilityWeighting and SelfNormalizedDoublyRobust accept `lambda_` and ignore it. Here `cap`
  cuts the weights, then they are normalised, as BalancedInverseProbabilityWeighting does with the weights given to it.
  The weights that class is meant for come from a classifier, which has no counterpart here.
- A weight of zero at SubGaussian(lambda_=1) or DoublyRobustWithShrinkage(lambda_=0) is 0 / 0 there, and the value NaN;
  here such a weight stays zero.
- MarginalizedInverseProbabilityWeighting without `p_e_a` regresses the action on context and embedding; here the
  logging policy is estimated. Its self-normalised version takes several embeddings for independent, given the context.
- ReplayMethod takes chances below 1 for no match, and no match at all for a value of 0; both are errors here.
- Bootstraps there resample contributions that are normalised already; here the ratio is formed anew in each draw.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

import manyarms as ma

ROUND, ACTION = np.arange(12), np.arange(4)


def table(counts):
    return counts / counts.sum(axis=1, keepdims=True)


TARGET = table((3 * ROUND[:, None] + 5 * ACTION) % 7)  # with zeros, one of them at a logged action
LOGGING = table(1 + (5 * ROUND[:, None] + 2 * ACTION + ROUND[:, None] * ACTION) % 6)
OTHER_LOGGING = table(1 + (2 * ROUND[:, None] + 3 * ACTION) % 5)
CHOSEN = np.array([1, 0, 2, 3, 1, 1, 0, 3, 2, 2, 3, 0])  # by a policy without chance
CONTEXTS = np.column_stack([(5 * ROUND % 12 - 5) / 4, (7 * ROUND % 11 - 4) / 5])
ACTIONS = np.array([1, 0, 3, 3, 2, 1, 0, 2, 2, 1, 3, 0])
REWARDS = np.array([1.0, 0.5, 2.25, -0.75, 0.0, 3.0, 1.5, 0.25, -1.25, 2.0, 0.75, 1.75])
MODEL_WEIGHTS = np.array([[0.5, -0.25], [1.0, 0.75], [-0.5, 0.25], [0.25, 1.5]])
CLUSTERS = np.array([0, 1, 1, 2])
EMBEDDINGS = np.array([[0, 1], [0, 0], [0, 1], [1, 0]])
EVEN, UNEVEN = ROUND % 2, (ROUND % 3 > 0).astype(int)  # which of two policies logged: 6 and 6 rounds, or 4 and 8

TARGET_POLICY, LOGGING_POLICIES = ma.TablePolicy(TARGET), [ma.TablePolicy(LOGGING), ma.TablePolicy(OTHER_LOGGING)]


def logs_of(strata):
    propensities = np.where(strata == 0, LOGGING[ROUND, ACTIONS], OTHER_LOGGING[ROUND, ACTIONS])
    only = None if strata.any() else LOGGING_POLICIES[0]
    return ma.LoggedData(CONTEXTS, ACTIONS, REWARDS, propensities, n_actions=4, logging_policy=only)


# An empty log gives the prior back, so that these are exactly the predictions given to obp.
NOTHING = ma.LoggedData(np.empty((0, 2)), [], [], n_actions=4)
MODEL = ma.fit(NOTHING, ma.priors.independent(4, mean=MODEL_WEIGHTS, cov=1.0))
LOGS, EVEN_LOGS, UNEVEN_LOGS = logs_of(0 * ROUND), logs_of(EVEN), logs_of(UNEVEN)

OURS = {
    "IPS": (ma.IPS(), LOGS),
    "IPS, capped": (ma.IPS(cap=2.0), LOGS),
    "IPS, clipped": (ma.IPS(clip=0.2), LOGS),
    "snIPS": (ma.SNIPS(), LOGS),
    "snIPS, capped": (ma.SNIPS(cap=2.0), LOGS),
    "DM": (ma.DM(MODEL), LOGS),
    "DR": (ma.DR(MODEL), LOGS),
    "DR, capped": (ma.DR(MODEL, cap=2.0), LOGS),
    "snDR": (ma.SNDR(MODEL), LOGS),
    "Switch-DR": (ma.SwitchDR(MODEL, 2.5), LOGS),
    "Switch-DR at zero": (ma.SwitchDR(MODEL, 0.0), LOGS),
    "DRos": (ma.DRos(MODEL, 1.5), LOGS),
    "SG-IPS": (ma.SubGaussianIPS(0.3), LOGS),
    "SG-DR": (ma.SubGaussianDR(MODEL, 0.3), LOGS),
    "replay": (ma.Replay(), LOGS),
    "MIPS, clusters": (ma.MIPS(CLUSTERS), LOGS),
    "MIPS, embeddings": (ma.MIPS(EMBEDDINGS), LOGS),
    "IPS, two loggers": (ma.IPS(), UNEVEN_LOGS),
    "DR, two loggers": (ma.DR(MODEL), UNEVEN_LOGS),
    "balanced IPS": (ma.BalancedIPS(LOGGING_POLICIES, UNEVEN), UNEVEN_LOGS),
    "balanced DR": (ma.BalancedIPS(LOGGING_POLICIES, UNEVEN, MODEL), UNEVEN_LOGS),
    "weighted IPS": (ma.WeightedIPS(EVEN), EVEN_LOGS),
}

# What estimate_policy_value and _estimate_round_rewards return; rounds are written with 12 decimals.
# fmt: off
OBP = {
    # InverseProbabilityWeighting()
    "IPS": (
        0.9829099912433247,
        [1.851851851852, 0.321428571429, 0.0, -2.25, 0.0, 6.461538461538,
         5.454545454545, 0.25, -7.5, 2.222222222222, 0.9, 4.083333333333],
    ),
    # InverseProbabilityWeighting(lambda_=2.0)
    "IPS, capped": (
        1.1704585537918872,
        [1.851851851852, 0.321428571429, 0.0, -1.5, 0.0, 6.0,
         3.0, 0.25, -2.5, 2.222222222222, 0.9, 3.5],
    ),
    # InverseProbabilityWeighting(), pscore=np.maximum(LOGGING[ROUND, ACTIONS], 0.2); it has no floor of its own
    "IPS, clipped": (
        1.1539507560340896,
        [1.851851851852, 0.321428571429, 0.0, -1.125, 0.0, 6.461538461538,
         2.727272727273, 0.25, -2.678571428571, 2.222222222222, 0.9, 2.916666666667],
    ),
    # SelfNormalizedInverseProbabilityWeighting()
    "snIPS": (
        0.5084887348303792,
        [0.958018347184, 0.166284613118, 0.0, -1.163992291828, 0.0, 3.342747094482,
         2.821799495342, 0.12933247687, -3.879974306095, 1.149622016621, 0.465596916731, 2.11243045554],
    ),
    # BalancedInverseProbabilityWeighting(lambda_=2.0), estimated_importance_weights=(TARGET / LOGGING)[ROUND, ACTIONS]
    "snIPS, capped": (
        0.8738848470882575,
        [1.382625012345, 0.239984198571, 0.0, -1.119926259999, 0.0, 4.479705039997,
         2.239852519999, 0.186654376667, -1.866543766666, 1.659150014814, 0.671955756, 2.613161273332],
    ),
    # DirectMethod()
    "DM": (
        0.17670423326673323,
        [-1.054166666667, 0.321428571429, 0.591666666667, 0.6675, 0.598333333333, -0.638461538462,
         0.846590909091, 0.758333333333, -0.330357142857, 0.633333333333, 0.05625, -0.33],
    ),
    # DoublyRobust()
    "DR": (
        1.1656521834646838,
        [4.223611111111, 0.739285714286, 0.591666666667, -6.6075, 0.671666666667, 8.623076923077,
         6.755681818182, 1.708333333333, -7.680357142857, 1.077777777778, 1.18125, 2.703333333333],
    ),
    # DoublyRobust(lambda_=2.0)
    "DR, capped": (
        1.4632386248011249,
        [4.223611111111, 0.739285714286, 0.591666666667, -4.1825, 0.671666666667, 7.961538461538,
         4.096590909091, 1.708333333333, -2.780357142857, 1.077777777778, 1.18125, 2.27],
    ),
    # SelfNormalizedDoublyRobust()
    "snDR": (
        0.6883165848444728,
        [1.676185622807, 0.537598568482, 0.591666666667, -3.096075076912, 0.636270859882, 4.152809296962,
         3.903540362378, 1.249796745439, -4.13273196283, 0.863257736657, 0.638246145914, 1.239234052687],
    ),
    # SwitchDoublyRobust(lambda_=2.5)
    "Switch-DR": (
        1.8919779410404411,
        [4.223611111111, 0.739285714286, 0.591666666667, 0.6675, 0.671666666667, 8.623076923077,
         0.846590909091, 1.708333333333, -0.330357142857, 1.077777777778, 1.18125, 2.703333333333],
    ),
    # SwitchDoublyRobust(lambda_=0.0)
    "Switch-DR at zero": (
        0.17670423326673323,
        [-1.054166666667, 0.321428571429, 0.591666666667, 0.6675, 0.598333333333, -0.638461538462,
         0.846590909091, 0.758333333333, -0.330357142857, 0.633333333333, 0.05625, -0.33],
    ),
    # DoublyRobustWithShrinkage(lambda_=1.5)
    "DRos": (
        0.6415613700892627,
        [0.551858100274, 0.649028571429, 0.591666666667, -0.371785714286, 0.668347477605, 1.624478220575,
         1.448611678106, 1.328333333333, -0.624357142857, 0.87712565839, 0.630229591837, 0.3252],
    ),
    # SubGaussianInverseProbabilityWeighting(lambda_=0.3)
    "SG-IPS": (
        0.9533852031436657,
        [1.474926253687, 0.36, 0.0, -1.40625, 0.0, 4.8,
         3.045685279188, 0.25, -3.0, 2.150537634409, 0.849056603774, 2.916666666667],
    ),
    # SubGaussianDoublyRobust(lambda_=0.3)
    "SG-DR": (
        1.1822266708565758,
        [3.149373156342, 0.789428571429, 0.591666666667, -3.879375, 0.69235042735, 6.241538461538,
         4.146083294878, 1.708333333333, -3.270357142857, 1.063440860215, 1.117570754717, 1.836666666667],
    ),
    # ReplayMethod(), action_dist=np.eye(4)[CHOSEN][:, :, None]
    "replay": (
        0.8125,
        [1.5, 0.75, 0.0, -1.125, 0.0, 4.5,
         2.25, 0.0, -1.875, 0.0, 1.125, 2.625],
    ),
    # MarginalizedInverseProbabilityWeighting(n_actions=4), pi_b=LOGGING[:, :, None],
    # action_embed=CLUSTERS[ACTIONS][:, None], p_e_a=np.eye(3)[CLUSTERS][:, :, None]
    "MIPS, clusters": (
        1.207728960853961,
        [1.111111111111, 0.321428571429, 0.0, -2.25, 0.0, 4.615384615385,
         5.454545454545, 0.444444444444, -2.1875, 2.0, 0.9, 4.083333333333],
    ),
    # MarginalizedInverseProbabilityWeighting(n_actions=4), pi_b=LOGGING[:, :, None],
    # action_embed=EMBEDDINGS[ACTIONS], p_e_a=np.eye(2)[EMBEDDINGS].transpose(0, 2, 1)
    "MIPS, embeddings": (
        0.8716816362649698,
        [1.851851851852, 0.482142857143, 0.0, -2.25, 0.0, 6.461538461538,
         0.909090909091, 0.125, -1.875, 2.222222222222, 0.9, 1.633333333333],
    ),
    # MultiLoggersNaiveInverseProbabilityWeighting(), pscore that of the policy which logged, by UNEVEN
    "IPS, two loggers": (
        1.1160917169250504,
        [1.851851851852, 0.357142857143, 0.0, -2.25, 0.0, 4.153846153846,
         5.454545454545, 1.083333333333, -1.964285714286, 2.222222222222, 0.54, 1.944444444444],
    ),
    # MultiLoggersNaiveDoublyRobust(), the same pscore
    "DR, two loggers": (
        1.4381116869241872,
        [4.223611111111, 0.785714285714, 0.591666666667, -6.6075, 0.649666666667, 5.315384615385,
         6.755681818182, 4.875, -2.255357142857, 1.077777777778, 0.73125, 1.114444444444],
    ),
    # MultiLoggersBalancedInverseProbabilityWeighting(), pscore_avg=((LOGGING + 2 * OTHER_LOGGING) / 3)[ROUND, ACTIONS]
    "balanced IPS": (
        0.9189648738068931,
        [1.724137931034, 0.344387755102, 0.0, -2.395161290323, 0.0, 4.715176715177,
         2.337662337662, 0.513157894737, -2.605263157895, 3.414634146341, 0.623076923077, 2.355769230769],
    ),
    # MultiLoggersBalancedDoublyRobust(), the same pscore_avg
    "balanced DR": (
        0.9745110634895155,
        [3.859626436782, 0.769132653061, 0.591666666667, -7.07685483871, 0.65537037037, 6.119958419958,
         3.379058441558, 2.708333333333, -2.883515037594, 1.316260162602, 0.835096153846, 1.42],
    ),
    # MultiLoggersWeightedInverseProbabilityWeighting(), stratum_idx=EVEN, pscore by EVEN
    "weighted IPS": (
        1.2058475084249813,
        [1.024157148372, 0.516769692814, 0.0, -3.581213971201, 0.0, 6.010429042576,
         3.016608327931, 1.567534734869, -4.147836450905, 6.752457319437, 0.497740374109, 2.813523883099],
    ),
}
# fmt: on


def case(name):
    estimator, logs = OURS[name]
    return estimator, ma.TablePolicy(np.eye(4)[CHOSEN]) if name == "replay" else TARGET_POLICY, logs


@pytest.mark.parametrize("name", OBP)
def test_values_are_those_of_obp(name):
    estimator, policy, logs = case(name)
    assert_allclose(estimator.estimate(policy, logs).value, OBP[name][0], rtol=0, atol=1e-9)


# DM has no contributions of its own; Switch-DR at zero has the same.
@pytest.mark.parametrize("name", [name for name in OBP if name != "DM"])
def test_contributions_are_those_of_obp(name):
    estimator, policy, logs = case(name)
    assert_allclose(estimator.contributions(policy, logs), OBP[name][1], rtol=0, atol=1e-9)


def test_every_comparison_has_both_sides():
    assert OURS.keys() == OBP.keys()


# obp.ope.helper.estimate_student_t_lower_bound(rounds, delta=0.05): its standard error times a quantile of t. For
# self-normalised estimators the errors differ: there the denominator counts as known, here by the delta method.
@pytest.mark.parametrize(
    ("name", "bound"), [("IPS", -0.9138136476288875), ("DR", -1.2473708445390457), ("DRos", 0.2960613462252872)]
)
def test_standard_errors_are_those_of_obp(name, bound):
    estimate = OURS[name][0].estimate(TARGET_POLICY, LOGS)
    assert_allclose(estimate.value - stats.t(11).ppf(0.95) * estimate.std, bound, rtol=0, atol=1e-9)


# obp.ope.helper.estimate_bernstein_lower_bound(rounds, x_max=10.0, delta=0.05). One side at 0.05 is two sides at 0.9.
@pytest.mark.parametrize(("kind", "bound"), [(ma.IPS, -9.710703482208853), (ma.DR, -10.30884319917526)])
def test_bernstein_bounds_are_those_of_obp(kind, bound):
    interval = ma.EmpiricalBernstein(width=10.0)
    estimator = kind(interval=interval) if kind is ma.IPS else kind(MODEL, interval=interval)
    low, _ = estimator.estimate(TARGET_POLICY, LOGS).interval(0.9)
    assert_allclose(low, bound, rtol=0, atol=1e-9)


# InverseProbabilityWeightingTuning, DoublyRobustTuning, SwitchDoublyRobustTuning, DoublyRobustWithShrinkageTuning, with
# lambdas=CANDIDATES, tuning_method="slope", delta=0.3: `best_hyperparam` and the value. Widths there are a one-sided
# quantile of t times the standard error; `level` is chosen so that the normal quantile here is the same number.
CANDIDATES = [0.25, 0.5, 0.9, 1.5, 2.5, 5.0, 50.0]


@pytest.mark.parametrize(
    ("make", "best", "value"),
    [
        (lambda c: ma.IPS(cap=c), 0.9, 0.6455357142857143),
        (lambda c: ma.DR(MODEL, cap=c), 0.9, 0.871074272949273),
        (lambda c: ma.SwitchDR(MODEL, c), 2.5, 1.8919779410404411),
        (lambda c: ma.DRos(MODEL, c), 1.5, 0.6415613700892627),
    ],
    ids=["IPS", "DR", "Switch-DR", "DRos"],
)
def test_slope_chooses_as_obp(make, best, value):
    level = 2 * special.ndtr(stats.t(11).ppf(1 - 0.3)) - 1
    estimators = [make(c) for c in CANDIDATES]
    chosen = ma.slope(estimators, TARGET_POLICY, LOGS, level=level)
    assert chosen.estimator is estimators[CANDIDATES.index(best)]
    assert_allclose(chosen.estimate.value, value, rtol=0, atol=1e-9)


def combined(rounds, strata, ddof):
    """Means of strata, weighted by their precisions."""
    parts = [rounds[strata == k] for k in range(2)]
    precision = np.array([len(part) / part.var(ddof=ddof) for part in parts])
    return precision @ [part.mean() for part in parts] / precision.sum()


def test_weighted_ips_of_strata_of_unequal_size_differs_from_obp_by_the_variances_alone():
    # MultiLoggersWeightedInverseProbabilityWeighting() divides squares by n_k where n_k - 1 makes variances unbiased;
    # with strata of one size the factor cancels.
    rounds = ma.IPS().contributions(TARGET_POLICY, UNEVEN_LOGS)
    assert_allclose(combined(rounds, UNEVEN, ddof=0), 0.9269251406690193, rtol=0, atol=1e-9)
    ours = ma.WeightedIPS(UNEVEN).estimate(TARGET_POLICY, UNEVEN_LOGS).value
    assert_allclose(ours, combined(rounds, UNEVEN, ddof=1), rtol=0, atol=1e-9)


def test_weighted_dr_weights_whole_rounds_where_obp_weights_residuals_alone():
    # MultiLoggersWeightedDoublyRobust() leaves Σ_a π r̂ without the weights of strata, which its own formula gives it,
    # and yet takes the precisions of whole rounds. Both are consistent; in the formula weights and precisions match.
    rounds = ma.DR(MODEL).contributions(TARGET_POLICY, EVEN_LOGS)
    direct = ma.SwitchDR(MODEL, 0.0).contributions(TARGET_POLICY, EVEN_LOGS)
    variance = np.array([rounds[EVEN == k].var() for k in range(2)])
    share = (1 / variance) / (1 / variance).sum()
    theirs = direct.mean() + share @ [(rounds - direct)[EVEN == k].mean() for k in range(2)]
    assert_allclose(theirs, 1.0047425302045891, rtol=0, atol=1e-9)
    ours = ma.WeightedIPS(EVEN, MODEL).estimate(TARGET_POLICY, EVEN_LOGS).value
    assert_allclose(ours, combined(rounds, EVEN, ddof=1), rtol=0, atol=1e-9)
