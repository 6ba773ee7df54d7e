"""Estimators: exactly unbiased where theory says so, by enumerating every log of a tiny problem; and their limits."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse, stats

import manyarms as ma
from manyarms.estimators.logging_policy import propensities_of

# Two contexts, three actions, two rounds: 36 logs with their probabilities, and rewards 0 / 1 on top.
CONTEXTS = np.array([[1.0, 0.0], [0.0, 1.0]])
NU = np.array([0.4, 0.6])
LOGGING = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
TARGET = np.array([[0.1, 0.6, 0.3], [0.7, 0.2, 0.1]])
REWARD = np.array([[0.2, 0.9, 0.6], [0.5, 0.3, 0.8]])  # chances of a reward of one
CLUSTERS = np.array([0, 1, 1])
TRUTH = float(NU @ (TARGET * REWARD).sum(axis=1))


class Rule(ma.Policy):
    """Probabilities by context, for the two contexts above."""

    def __init__(self, table):
        self.table, self.n_actions = table, table.shape[1]

    def choices(self, contexts, eligible):
        from manyarms.core.choices import Choices

        dense = self.table[contexts.argmax(axis=1)]
        if eligible is not None:
            dense = dense * eligible.toarray()
            dense = dense / dense.sum(axis=1, keepdims=True)
        return Choices(len(contexts), self.n_actions, dense=dense)


def every_log(reward=REWARD, logging=LOGGING, rounds=2):
    """(probability, log) for every outcome of so many rounds."""
    outcomes = []
    for x, a, r in itertools.product(range(2), range(3), range(2)):
        chance = NU[x] * logging[x, a] * (reward[x, a] if r else 1 - reward[x, a])
        outcomes.append((chance, x, a, r))
    for drawn in itertools.product(outcomes, repeat=rounds):
        chance = np.prod([one[0] for one in drawn])
        if chance > 0:
            x, a, r = (np.array([one[i] for one in drawn]) for i in (1, 2, 3))
            yield (
                chance,
                ma.LoggedData(
                    CONTEXTS[x], a, r, logging[x, a], n_actions=logging.shape[1], logging_policy=Rule(logging)
                ),
            )


def expectation(estimator, **problem):
    return sum(chance * estimator.estimate(Rule(TARGET), log).value for chance, log in every_log(**problem))


def model(rewards):
    """A posterior whose reward for context j and action a is rewards[j, a]."""
    empty = ma.LoggedData(np.empty((0, 2)), [], [], n_actions=rewards.shape[1])
    return ma.fit(empty, ma.priors.independent(rewards.shape[1], mean=np.asarray(rewards).T, cov=1.0))


WRONG = REWARD + np.array([[0.3, -0.2, 0.1], [-0.4, 0.2, 0.5]])
SHIFTED = REWARD + np.array([[0.3, -0.2, -0.2], [-0.4, 0.5, 0.5]])  # wrong, but right within each cluster
CLUSTERED = np.array([[0.2, 0.9, 0.9], [0.5, 0.3, 0.3]])  # depends on the cluster only


@pytest.mark.parametrize(
    "estimator",
    [ma.IPS(), ma.DR(model(WRONG)), ma.MIPS([0, 1, 2]), ma.OffCEM(CLUSTERS, model(SHIFTED))],
    ids=lambda e: e.name,
)
def test_estimator_is_exactly_unbiased(estimator):
    assert_allclose(expectation(estimator), TRUTH, atol=1e-12)


def test_mips_is_exactly_unbiased_when_rewards_depend_on_the_cluster_only():
    truth = float(NU @ (TARGET * CLUSTERED).sum(axis=1))
    for clusters in (CLUSTERS, np.array(["tea", "mug"])[CLUSTERS], np.array([None, "mug"])[CLUSTERS]):
        assert_allclose(expectation(ma.MIPS(clusters), reward=CLUSTERED), truth, atol=1e-12)


def test_mips_has_the_known_bias_when_clusters_hide_differences():
    """E = Σ_x ν Σ_c π(c | x) Σ_a π_0(a | x, c) r(x, a)."""
    expected = 0.0
    for x in range(2):
        for c in range(2):
            inside = np.flatnonzero(CLUSTERS == c)
            within = LOGGING[x, inside] / LOGGING[x, inside].sum()
            expected += NU[x] * TARGET[x, inside].sum() * (within @ REWARD[x, inside])
    assert abs(expected - TRUTH) > 0.01
    assert_allclose(expectation(ma.MIPS(CLUSTERS)), expected, atol=1e-12)


def test_ips_has_the_known_bias_without_support():
    logging = np.array([[0.7, 0.3, 0.0], [0.2, 0.2, 0.6]])
    lost = NU[0] * TARGET[0, 2] * REWARD[0, 2]
    assert_allclose(expectation(ma.IPS(), logging=logging), TRUTH - lost, atol=1e-12)


def test_clipping_has_the_known_bias():
    clip = 0.4
    expected = np.sum(NU[:, None] * LOGGING * TARGET / np.maximum(LOGGING, clip) * REWARD)
    assert_allclose(expectation(ma.IPS(clip=clip)), expected, atol=1e-12)
    capped = np.sum(NU[:, None] * LOGGING * np.minimum(TARGET / LOGGING, 1.5) * REWARD)
    assert_allclose(expectation(ma.IPS(cap=1.5)), capped, atol=1e-12)


def test_offcem_with_a_wrong_model_is_biased():
    assert abs(expectation(ma.OffCEM(CLUSTERS, model(WRONG))) - TRUTH) > 0.01


def test_balanced_ips_is_exactly_unbiased_for_two_loggers():
    second = np.array([[0.1, 0.1, 0.8], [0.6, 0.3, 0.1]])
    total = 0.0
    for p1, first in every_log(rounds=1):
        for p2, other in every_log(logging=second, rounds=1):
            x = np.stack([first.contexts[0], other.contexts[0]])
            log = ma.LoggedData(
                x, [first.actions[0], other.actions[0]], [first.rewards[0], other.rewards[0]], n_actions=3
            )
            estimator = ma.BalancedIPS([Rule(LOGGING), Rule(second)], [0, 1])
            total += p1 * p2 * estimator.estimate(Rule(TARGET), log).value
    assert_allclose(total, TRUTH, atol=1e-12)


@pytest.fixture(scope="module")
def problem():
    """A log with five actions, its policies and a fitted model."""
    rng = np.random.default_rng(0)
    n, k, d = 300, 5, 3
    x = rng.normal(size=(n, d))
    logging = rng.dirichlet(np.ones(k), n)
    actions = np.array([rng.choice(k, p=p) for p in logging])
    rewards = rng.uniform(0, 2, n)
    logs = ma.LoggedData(x, actions, rewards, logging[np.arange(n), actions], k, logging_policy=ma.TablePolicy(logging))
    posterior = ma.fit(ma.LoggedData(x, actions, rewards, n_actions=k), ma.priors.independent(k, dim=d))
    return logs, ma.TablePolicy(rng.dirichlet(np.ones(k), n)), posterior


def value(estimator, problem):
    logs, policy, _ = problem
    return estimator.estimate(policy, logs).value


def test_limits_of_estimators_are_other_estimators(problem):
    logs, policy, posterior = problem
    k = logs.n_actions
    embeddings = np.random.default_rng(1).normal(size=(k, 2))
    dm = posterior.value(policy, logs.contexts).value
    ips, dr = value(ma.IPS(), problem), value(ma.DR(posterior), problem)
    for estimator, expected in (
        (ma.MIPS(np.arange(k)), ips),
        (ma.MIPS(np.column_stack([np.arange(k) // 2, np.arange(k) % 2])), ips),
        (ma.PolicyConvolution(embeddings, 1), ips),
        (ma.PolicyConvolution(embeddings, k), logs.rewards.mean()),
        (ma.MIPS(np.zeros(k, dtype=int)), logs.rewards.mean()),
        (ma.OffCEM(np.arange(k), posterior), dr),
        (ma.SwitchDR(posterior, 0.0), dm),
        (ma.SwitchDR(posterior, np.inf), dr),
        (ma.DRos(posterior, 0.0), dm),
        (ma.DRos(posterior, np.inf), dr),
        (ma.DRos(posterior, 1e14), dr),
        (ma.SubGaussianIPS(0.0), ips),
        (ma.SubGaussianDR(posterior, 0.0), dr),
        (ma.ExponentialSmoothing(1.0), ips),
        (ma.LogarithmicSmoothing(0.0), ips),
        (ma.LogarithmicSmoothing(1e-9), ips),
        (ma.BalancedIPS([logs.logging_policy], np.zeros(len(logs), dtype=int)), ips),
        (ma.WeightedIPS(np.zeros(len(logs), dtype=int)), ips),
        (ma.DM(posterior), dm),
    ):
        assert_allclose(value(estimator, problem), expected, rtol=1e-6 if "LS" in estimator.name else 1e-9)


def test_dr_with_a_perfect_model_and_no_noise_is_dm_whatever_the_weights(problem):
    logs, policy, posterior = problem
    rewards = posterior.expected_reward(logs.contexts, logs.actions)
    noiseless = ma.LoggedData(logs.contexts, logs.actions, rewards, np.full(len(logs), 1e-3), logs.n_actions)
    dm = posterior.value(policy, logs.contexts).value
    for estimator in (ma.DR(posterior), ma.SNDR(posterior), ma.DRos(posterior, 3.0), ma.SubGaussianDR(posterior, 0.5)):
        assert_allclose(estimator.estimate(policy, noiseless).value, dm, rtol=1e-10)


def test_self_normalised_estimates_stay_within_the_rewards(problem):
    logs, policy, _ = problem
    p = policy.probability_of(logs.contexts, logs.actions)
    w = p / logs.propensities
    assert_allclose(value(ma.SNIPS(), problem), w @ logs.rewards / w.sum())
    assert_allclose(ma.SNIPS().contributions(policy, logs).mean(), value(ma.SNIPS(), problem))


def test_replay_averages_the_matching_rounds(problem):
    logs, _, posterior = problem
    greedy = ma.Greedy(posterior)
    matched = greedy.actions(logs.contexts) == logs.actions
    assert_allclose(ma.Replay().estimate(greedy, logs).value, logs.rewards[matched].mean())


def test_eligible_reaches_the_target_policy():
    sets = [[0, 1], [1, 2]] * 10
    x, a = np.tile(CONTEXTS, (10, 1)), np.tile([1, 2], 10)
    logs = ma.LoggedData(x, a, np.ones(20), np.full(20, 0.5), 3)
    allowed = TARGET.copy()
    allowed[0, 2] = allowed[1, 0] = 0
    allowed /= allowed.sum(axis=1, keepdims=True)
    expected = np.mean(allowed[np.tile([0, 1], 10), a] / 0.5)
    assert_allclose(ma.IPS().estimate(Rule(TARGET), logs, eligible=sets).value, expected)
    assert_allclose(
        ma.DR(model(REWARD)).estimate(Rule(TARGET), logs, eligible=sets).value,
        np.mean((allowed * REWARD).sum(axis=1)[np.tile([0, 1], 10)])
        + np.mean(allowed[np.tile([0, 1], 10), a] / 0.5 * (1 - REWARD[np.tile([0, 1], 10), a])),
    )


def test_cross_fitting_never_predicts_a_round_it_was_fitted_on(problem):
    """Changing one reward must not change the model's own prediction of that round."""
    logs, policy, _ = problem
    cross = ma.CrossFit(ma.priors.independent(logs.n_actions, dim=logs.dim), n_folds=4, rng=np.random.default_rng(3))
    before, _ = cross.predict(policy, logs, None)
    changed = logs.rewards.copy()
    changed[7] += 100
    after, _ = cross.predict(policy, ma.LoggedData(logs.contexts, logs.actions, changed, n_actions=5), None)
    assert_allclose(before[7], after[7], rtol=1e-12)
    assert not np.allclose(before, after)
    assert "estimated" not in " ".join(ma.DR(cross).estimate(policy, logs).warnings)


def test_cross_fitting_keeps_groups_together(problem):
    logs, _, _ = problem
    groups = np.arange(len(logs)) // 10
    grouped = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 5, groups=groups)
    cross = ma.CrossFit(ma.priors.independent(5, dim=3), n_folds=3, rng=np.random.default_rng(0))
    folds = cross.folds(grouped)
    assert all(len(set(folds[groups == g])) == 1 for g in range(30))


# Errors and intervals


def test_standard_errors_are_those_of_many_repetitions():
    """IPS and snIPS (delta method), rounds in groups and not, against the spread over fresh logs."""
    rng = np.random.default_rng(0)
    target = Rule(TARGET)

    def draw(n_groups, size):
        x = np.repeat(rng.choice(2, n_groups, p=NU), size)
        u = np.repeat(rng.normal(size=n_groups), size) * 0.5  # a user's own taste: rounds of a group go together
        a = np.array([rng.choice(3, p=LOGGING[i]) for i in x])
        r = REWARD[x, a] + u + 0.3 * rng.normal(size=len(x))
        return ma.LoggedData(CONTEXTS[x], a, r, LOGGING[x, a], 3, groups=np.repeat(np.arange(n_groups), size))

    logs = [draw(60, 4) for _ in range(400)]
    for estimator in (ma.IPS(), ma.SNIPS()):
        found = [estimator.estimate(target, log) for log in logs]
        spread = np.std([e.value for e in found], ddof=1)
        assert_allclose(np.mean([e.std for e in found]), spread, rtol=0.12)
        # Pretending that rounds are independent promises too much.
        naive = [ma.LoggedData(g.contexts, g.actions, g.rewards, g.propensities, 3) for g in logs]
        assert np.mean([estimator.estimate(target, log).std for log in naive]) < 0.85 * spread


def test_bootstrap_and_normal_intervals_agree_on_many_rounds(problem):
    logs, policy, _ = problem
    for kind in (ma.IPS, ma.SNIPS):
        normal = kind().estimate(policy, logs)
        drawn = kind(interval=ma.Bootstrap(4000, rng=np.random.default_rng(0))).estimate(policy, logs)
        assert (normal.method, drawn.method) == ("normal", "bootstrap")
        assert_allclose(drawn.interval(0.8), normal.interval(0.8), atol=0.15 * normal.std)
        again = kind(interval=ma.Bootstrap(4000, rng=np.random.default_rng(0))).estimate(policy, logs)
        assert drawn.interval() == again.interval()


def test_bernstein_interval_is_maurer_and_pontils(problem):
    logs, policy, _ = problem
    found = ma.IPS(cap=5.0, interval=ma.EmpiricalBernstein(width=10.0)).estimate(policy, logs)
    rounds = ma.IPS(cap=5.0).contributions(policy, logs)
    n, log = len(rounds), np.log(4 / 0.05)
    half = np.sqrt(2 * rounds.var(ddof=1) * log / n) + 7 * 10.0 * log / (3 * (n - 1))
    assert_allclose(found.interval(0.95), (rounds.mean() - half, rounds.mean() + half))
    # How sure it is that the value is above zero: the level at which the lower bound reaches it.
    sure = found.probability_positive
    low, _ = found.interval(2 * sure - 1)
    assert_allclose(low, 0.0, atol=1e-6)


def test_rows_with_weights_count_as_often(problem):
    logs, policy, _ = problem
    counts = np.random.default_rng(0).integers(0, 3, len(logs))
    rows = np.repeat(np.arange(len(logs)), counts)
    weighted = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 5, weights=counts)
    posterior = problem[2]
    strata = np.arange(len(logs)) % 2
    loggers = [ma.Uniform(5), ma.TablePolicy([0.1, 0.2, 0.3, 0.2, 0.2])]
    for estimator, repeated in (
        (ma.IPS(), ma.IPS()), (ma.SNIPS(), ma.SNIPS()), (ma.DR(posterior), ma.DR(posterior)),
        (ma.SNDR(posterior), ma.SNDR(posterior)), (ma.DM(posterior), ma.DM(posterior)),
        (ma.WeightedIPS(strata), ma.WeightedIPS(strata[rows])),
        (ma.BalancedIPS(loggers, strata), ma.BalancedIPS(loggers, strata[rows])),
    ):  # fmt: skip
        got = estimator.estimate(policy, weighted)
        expected = repeated.estimate(policy.take(rows), logs.take(rows))
        assert_allclose(got.value, expected.value, err_msg=estimator.name)
        assert_allclose(got.std, expected.std, err_msg=estimator.name)
        for figure in {"effective_sample_size", "mean_weight", "unsupported_mass"} & set(got.diagnostics):
            assert_allclose(got.diagnostics[figure], expected.diagnostics[figure], atol=1e-12)


def test_weighted_ips_tells_the_error_within_strata_only():
    """Two strata with the same mean and noises 0.1 and 3: the spread over many logs."""
    rng = np.random.default_rng(0)
    strata = np.repeat([0, 1], 200)
    found = []
    for _ in range(200):
        rewards = 10 + rng.normal(size=400) * np.where(strata == 0, 0.1, 3.0)
        logs = ma.LoggedData(np.ones((400, 1)), np.zeros(400, dtype=int), rewards, np.ones(400))
        found.append(ma.WeightedIPS(strata).estimate(ma.Uniform(1), logs))
    assert_allclose(np.mean([e.std for e in found]), np.std([e.value for e in found]), rtol=0.15)


# Unknown logging policy


def test_propensities_come_from_the_log_else_the_policy_else_an_estimate(problem):
    logs, _, _ = problem
    assert propensities_of(logs)[0] is logs.propensities
    bare = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=5, logging_policy=logs.logging_policy)
    assert_allclose(propensities_of(bare)[0], logs.propensities)
    unknown = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=5)
    assert propensities_of(unknown)[1]
    found = ma.IPS().estimate(ma.Uniform(5), unknown)
    assert found.diagnostics["estimated_propensities"] == 1
    assert "propensities were estimated from the logs" in found.warnings


@pytest.mark.parametrize("n_actions", [6, 400])
def test_estimated_propensities_are_calibrated(n_actions):
    """A softmax logger by category, given the categories; few actions by regression on each, many by category."""
    rng = np.random.default_rng(0)
    n, n_categories = 20_000, 3
    category = np.arange(n_actions) % n_categories
    x = rng.normal(size=(n, 2))
    logits = x @ rng.normal(size=(2, n_categories))
    by_category = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    drawn = np.array([rng.choice(n_categories, p=p) for p in by_category])
    popularity = rng.dirichlet(np.ones(n_actions))
    within = popularity / np.bincount(category, weights=popularity)[category]
    actions = np.array([rng.choice(np.flatnonzero(category == c), p=within[category == c]) for c in drawn])
    truth = by_category[np.arange(n), category[actions]] * within[actions]
    logs = ma.LoggedData(x, actions, np.zeros(n), n_actions=n_actions)
    fitted = ma.EstimatedLogging(logs, category)
    p = fitted.probability_of(x, actions)
    assert np.abs(np.log(p / truth)).mean() < 0.12
    # The weights of another policy average to one.
    weights = ma.TablePolicy(popularity).probability_of(x, actions) / p
    assert_allclose(weights.mean(), 1.0, atol=0.05)
    few = x[:20]
    assert_allclose(fitted.probabilities(few).sum(axis=1), 1.0)
    assert_allclose(fitted.probabilities(few)[np.arange(20), actions[:20]], p[:20])


def test_estimated_logging_covers_labels_never_logged():
    logs = ma.LoggedData(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 3, np.zeros(50), n_actions=5)
    p = ma.EstimatedLogging(logs).probabilities(logs.contexts)
    assert_allclose(p.sum(axis=1), 1.0)
    assert (p > 0).all()


# Diagnostics, training rounds, comparisons


def test_diagnostics_are_what_their_names_say(problem):
    logs, policy, _ = problem
    w = policy.probability_of(logs.contexts, logs.actions) / logs.propensities
    found = ma.IPS().estimate(policy, logs).diagnostics
    assert_allclose(found["effective_sample_size"], w.sum() ** 2 / (w**2).sum())
    assert_allclose(found["max_weight_share"], w.max() / w.sum())
    assert_allclose(found["mean_weight"], w.mean())
    assert found["unsupported_mass"] == 0


def test_mass_on_actions_never_logged_is_counted_and_warned_about():
    logs = ma.LoggedData(np.ones((30, 1)), np.zeros(30, dtype=int), np.ones(30), np.ones(30), 4)
    policy = ma.TablePolicy([0.25, 0.25, 0.5, 0.0])
    found = ma.IPS().estimate(policy, logs)
    assert_allclose(found.diagnostics["unsupported_mass"], 0.75)
    assert any("75%" in text for text in found.warnings)
    assert not any(
        "75%" in t for t in ma.IPS(thresholds=ma.Thresholds(max_unsupported_mass=0.8)).estimate(policy, logs).warnings
    )
    assert [row["category"] for row in ma.support_by_category(policy, logs, [7, 7, 3, 3])] == [3, 7]
    table = ma.support_by_category(policy, logs, ["a", "a", "b", "b"])
    assert [row["category"] for row in table] == ["a", "b"]
    assert_allclose([row["unsupported"] for row in table], [0.25, 0.5])
    assert_allclose([row["logged"] for row in table], [1.0, 0.0])


def test_share_of_the_prior_is_one_without_data_and_falls_with_it(problem):
    logs, policy, _ = problem
    prior = ma.priors.independent(5, dim=3)
    shares = []
    for n in (0, 20, 300):
        posterior = ma.fit(logs.take(slice(0, n)), prior)
        found = ma.DM(posterior).estimate(policy, logs)
        shares.append(found.diagnostics["prior_share"])
    assert shares[0] == pytest.approx(1.0)
    assert shares[0] > shares[1] > shares[2]
    assert any("prior" in text for text in ma.DM(ma.fit(logs.take(slice(0, 0)), prior)).estimate(policy, logs).warnings)


def test_rounded_propensities_are_noticed():
    propensities = np.round(np.random.default_rng(0).uniform(0.001, 0.4, 50), 3)
    logs = ma.LoggedData(np.ones((50, 1)), np.zeros(50, dtype=int), np.ones(50), np.maximum(propensities, 0.001), 2)
    assert any("rounded" in text for text in ma.IPS().estimate(ma.Uniform(2), logs).warnings)


@pytest.mark.parametrize("by", ["row", "group", "time"])
def test_splits_share_no_round_and_lose_none(by):
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 12, 100)
    logs = ma.LoggedData(rng.normal(size=(100, 2)), rng.integers(0, 3, 100), np.arange(100.0), groups=groups)
    first, second = logs.split(0.7, by=by, rng=rng)
    assert sorted([*first.rewards, *second.rewards]) == list(range(100))
    if by == "group":
        assert not set(first.groups) & set(second.groups)
    if by == "time":
        assert list(first.rewards) == list(range(70))
    if by == "row":
        assert len(first) == 70


def test_evaluation_on_training_rounds_is_noticed(problem):
    logs, _, _ = problem
    prior = ma.priors.independent(5, dim=3)
    train, test = logs.split(0.5, rng=np.random.default_rng(0))
    posterior = ma.fit(train, prior)
    greedy = ma.Greedy(posterior)

    def noticed(estimator, on, policy=greedy):
        return bool(estimator.estimate(policy, on).diagnostics["evaluated_on_training_rounds"])

    assert noticed(ma.IPS(), train)
    assert noticed(ma.IPS(), logs)
    assert noticed(ma.IPS(), train.take(slice(0, 5)))
    assert not noticed(ma.IPS(), test)
    assert noticed(ma.IPS(), train, ma.EpsilonGreedy(greedy, 0.1))
    assert noticed(ma.DR(posterior), train, ma.Uniform(5))
    assert not noticed(ma.DR(posterior), test, ma.Uniform(5))
    assert noticed(ma.IPS(), test, ma.Greedy(posterior.update(test)))
    # The same rows read once more are the same rows.
    again = ma.LoggedData(logs.contexts.copy(), logs.actions, logs.rewards, logs.propensities, 5)
    assert noticed(ma.IPS(), again)


def test_comparison_reports_all_pairs_and_leaves_out_training_rounds(problem):
    logs, _, _ = problem
    train, test = logs.split(0.5, rng=np.random.default_rng(0))
    posterior = ma.fit(train, ma.priors.independent(5, dim=3))
    policies = {"greedy": ma.Greedy(posterior), "uniform": ma.Uniform(5)}
    estimators = [ma.IPS(), ma.SNIPS(), ma.DR(posterior), ma.DM(posterior, name="DM (Bayes)")]
    seen = []
    table = ma.compare(policies, test, estimators, progress=lambda done, total: seen.append((done, total)))
    assert len(table) == 8
    assert seen[-1] == (8, 8)
    assert len(ma.compare(policies, test, estimators, progress=True)) == 8
    for row in table:
        estimator = next(e for e in estimators if e.name == row.estimator)
        assert row.estimate.value == estimator.estimate(policies[row.policy], test).value
    assert {record["estimator"] for record in table.records()} == {"IPS", "snIPS", "DR", "DM (Bayes)"}
    assert "greedy" in str(table)
    on_train = ma.compare(policies, train, estimators)
    assert {(p, e) for p, e, _ in on_train.left_out} == {
        ("greedy", "IPS"), ("greedy", "snIPS"), ("greedy", "DR"), ("uniform", "DR"),
    }  # fmt: skip
    assert len(ma.compare(policies, train, estimators, allow_training_rounds=True)) == 8


def test_slope_takes_the_narrowest_that_agrees_with_all_wider():
    class Fixed(ma.Estimator):
        def __init__(self, name, value, half):
            self.name, self._found = name, ma.Estimate(value, half / stats.norm.ppf(0.975), kind="sampling")

        def estimate(self, policy, logs, *, eligible=None):
            return self._found

    logs = ma.LoggedData(np.ones((2, 1)), [0, 1], [0.0, 1.0])
    wide, middle, biased = Fixed("wide", 0.0, 1.0), Fixed("middle", 1.0, 0.5), Fixed("biased", 3.0, 0.1)
    chosen = ma.slope([biased, wide, middle], ma.Uniform(2), logs)
    # |1 - 0| ≤ 0.5 + 1.449; |3 - 0| > 0.1 + 1.449
    assert chosen.estimator.name == "middle"
    assert ma.slope([biased], ma.Uniform(2), logs).estimator.name == "biased"


def test_slope_caps_the_weights_of_a_log_with_hardly_any_support():
    rng = np.random.default_rng(0)
    n = 2000
    propensities = np.where(rng.random(n) < 0.02, 0.001, 0.5)
    logs = ma.LoggedData(np.ones((n, 1)), np.zeros(n, dtype=int), rng.uniform(size=n), propensities, 2)
    candidates = [ma.IPS(cap=cap) for cap in (5.0, 50.0, 500.0, 5000.0)]
    chosen = ma.slope(candidates, ma.Uniform(2), logs)
    assert chosen.estimate.std <= min(e.estimate(ma.Uniform(2), logs).std for e in candidates[2:])


# Bad input

BAD_LOGS = dict(contexts=np.ones((4, 1)), actions=[0, 1, 0, 1], rewards=[0.0, 1.0, 1.0, 0.0])
CALLS = {
    "policy on other actions": (
        lambda: ma.IPS().estimate(ma.Uniform(3), ma.LoggedData(**BAD_LOGS)),
        ma.errors.ShapeError, "policy has 3 actions",
    ),
    "clusters of another length": (
        lambda: ma.MIPS([0, 1, 1]).estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS)),
        ma.errors.ShapeError, "3 actions",
    ),
    "fractional clusters": (lambda: ma.MIPS([0.5, 1]), ma.errors.DataTypeError, "clusters must be integers"),
    "no clusters": (lambda: ma.MIPS(np.empty(0, dtype=int)), ma.errors.ShapeError, "clusters"),
    "more neighbours than actions": (
        lambda: ma.PolicyConvolution(np.ones((3, 1)), 4), ma.errors.ShapeError, "at most the number of actions, 3",
    ),
    "NaN embeddings": (
        lambda: ma.PolicyConvolution([[1.0], [np.nan]], 1),
        ma.errors.NonFiniteError, "embeddings must be finite; row 1",
    ),
    "all weights zero": (
        lambda: ma.SNIPS().estimate(ma.TablePolicy([0, 0, 1.0]), ma.LoggedData(**BAD_LOGS, n_actions=3)),
        ma.errors.InputError, "all weights are zero",
    ),
    "replay of a random policy": (
        lambda: ma.Replay().estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS)), ma.errors.InputError, "deterministic",
    ),
    "replay without a match": (
        lambda: ma.Replay().estimate(ma.TablePolicy([0, 0, 1.0]), ma.LoggedData(**BAD_LOGS, n_actions=3)),
        ma.errors.InputError, "all weights are zero",
    ),
    "negative rewards under a logarithm": (
        lambda: ma.LogarithmicSmoothing(1.0).estimate(
            ma.Uniform(2), ma.LoggedData(np.ones((2, 1)), [0, 1], [1.0, -1.0])
        ),
        ma.errors.InputError, "row 1 has -1.0",
    ),
    "a model that is none": (lambda: ma.DR("model"), ma.errors.DataTypeError, "CrossFit"),
    "alpha above one": (lambda: ma.ExponentialSmoothing(1.5), ma.errors.InputError, "alpha must be .* at most 1"),
    "negative clip": (lambda: ma.IPS(clip=-1.0), ma.errors.InputError, "clip must be at least 0"),
    "strata of another length": (
        lambda: ma.WeightedIPS([0, 1]).estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS)),
        ma.errors.ShapeError, "strata",
    ),
    "strata without a policy": (lambda: ma.BalancedIPS([ma.Uniform(2)], [0, 1]), ma.errors.ShapeError, "policy 1"),
    "one round": (
        lambda: ma.IPS().estimate(ma.Uniform(2), ma.LoggedData([[1.0]], [0], [1.0], n_actions=2)),
        ma.errors.InputError, "at least 2 rounds",
    ),
    "nothing to compare": (lambda: ma.compare({}, ma.LoggedData(**BAD_LOGS), []), ma.errors.InputError, "at least one"),
    "split without a generator": (
        lambda: ma.LoggedData(**BAD_LOGS).split(0.5), ma.errors.InputError, r"rng=np\.random",
    ),
    "split by groups that are not there": (
        lambda: ma.LoggedData(**BAD_LOGS).split(0.5, by="group", rng=np.random.default_rng(0)),
        ma.errors.InputError, "no groups",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_bad_calls_are_refused(name):
    call, error, message = CALLS[name]
    with pytest.raises(error, match=message):
        call()


def test_sets_may_be_asked_of_every_kind_of_choice():
    """Σ of probabilities over a set, for named, shared and dense parts, against the sum written out."""
    rng = np.random.default_rng(0)
    n, k = 20, 7
    sets = sparse.csr_array((rng.random((4, k)) < 0.5).astype(float))
    which, x = rng.integers(0, 4, n), rng.normal(size=(n, 2))
    table = rng.dirichlet(np.ones(k), n)
    for policy in (
        ma.TablePolicy(table), ma.TablePolicy(sparse.csr_array(table)), ma.TablePolicy(table[0]), ma.Uniform(k),
        ma.EpsilonGreedy(ma.TablePolicy(sparse.csr_array(table)), 0.3),
    ):  # fmt: skip
        expected = (policy.probabilities(x) * sets.toarray()[which]).sum(axis=1)
        assert_allclose(policy.probability_of_sets(x, sets, which), expected, atol=1e-12)


def test_eligible_restricts_the_target_and_not_the_logger():
    """MIPS on rewards that depend on the cluster only, an action ruled out for the target: still exactly unbiased."""
    allowed = np.array([True, True, False])
    kept = TARGET * allowed
    kept /= kept.sum(axis=1, keepdims=True)
    truth = float(NU @ (kept * CLUSTERED).sum(axis=1))
    total = sum(
        chance * ma.MIPS(CLUSTERS).estimate(Rule(TARGET), log, eligible=allowed).value
        for chance, log in every_log(reward=CLUSTERED)
    )
    assert_allclose(total, truth, atol=1e-12)


@pytest.mark.parametrize(
    "interval", [ma.Normal(), ma.Bootstrap(3000, rng=np.random.default_rng(0)), ma.EmpiricalBernstein(3.0)]
)
def test_every_interval_counts_a_row_of_weight_two_twice(problem, interval):
    logs, policy, _ = problem
    counts = np.random.default_rng(0).integers(0, 4, len(logs))
    rows = np.repeat(np.arange(len(logs)), counts)
    weighted = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 5, weights=counts)
    got = ma.IPS(interval=interval).estimate(policy, weighted)
    expected = ma.IPS(interval=interval).estimate(policy.take(rows), logs.take(rows))
    assert_allclose(got.interval(0.9), expected.interval(0.9), atol=0.08 * expected.std)


def test_errors_of_a_posterior_follow_groups_too():
    """Users who come back with the same context: twenty of them are twenty, however often they come."""
    rng = np.random.default_rng(0)
    users = rng.normal(size=(20, 3))
    x, groups = np.repeat(users, 20, axis=0), np.repeat(np.arange(20), 20)
    logs = ma.LoggedData(x, rng.integers(0, 5, 400), rng.normal(size=400), np.full(400, 0.2), 5, groups=groups)
    posterior = ma.fit(logs, ma.priors.independent(5, dim=3))
    found = ma.DM(posterior).estimate(ma.Greedy(posterior), logs)
    once = posterior.value(ma.Greedy(posterior), users)
    assert_allclose(found.context_std, once.context_std)


def test_right_propensities_are_not_accused():
    rng = np.random.default_rng(0)
    n, k = 5000, 1000
    logs = ma.LoggedData(rng.normal(size=(n, 2)), rng.integers(0, k, n), rng.normal(size=n), np.full(n, 1 / k), k)
    policy = ma.TablePolicy(rng.dirichlet(np.full(k, 5.0)))
    for estimator in (ma.IPS(), ma.IPS(cap=0.5), ma.ExponentialSmoothing(0.5), ma.SubGaussianIPS(0.5)):
        text = " ".join(estimator.estimate(policy, logs).warnings)
        assert "rounded" not in text
        assert "mean weight" not in text


def test_one_refusal_does_not_cost_the_others_their_answer(problem):
    logs, policy, _ = problem
    table = ma.compare([policy], logs, [ma.Replay(), ma.IPS(cap=3.0, name="IPS, cap 3"), ma.IPS()])
    assert [row.estimator for row in table] == ["IPS, cap 3", "IPS"]
    assert "deterministic" in table.left_out[0][2]


def test_what_is_tied_to_rows_follows_a_split(problem):
    logs, policy, _ = problem
    _, test = logs.split(0.5, rng=np.random.default_rng(0))
    assert_allclose(policy.take(test.rows).probabilities(test.contexts), policy.probabilities(logs.contexts)[test.rows])


MORE_CALLS = {
    "no policy": lambda logs: ma.IPS().estimate("uniform", logs),
    "an interval by name": lambda logs: ma.IPS(interval="normal"),
    "one number for clusters": lambda logs: ma.MIPS(3),
    "one group": lambda logs: ma.IPS().estimate(
        ma.Uniform(2), ma.LoggedData(**BAD_LOGS, groups=np.zeros(4, dtype=int))
    ),
    "weights that sum to one": lambda logs: ma.IPS().estimate(
        ma.Uniform(2), ma.LoggedData(**BAD_LOGS, weights=np.full(4, 0.25))
    ),
    "weights of zero": lambda logs: ma.IPS().estimate(ma.Uniform(2), ma.LoggedData(**BAD_LOGS, weights=np.zeros(4))),
    "no support": lambda logs: ma.IPS().estimate(ma.TablePolicy([0, 0, 1.0]), ma.LoggedData(**BAD_LOGS, n_actions=3)),
    "a logger of other rows": lambda logs: ma.LoggedData(
        **BAD_LOGS, logging_policy=ma.TablePolicy(np.full((7, 2), 0.5))
    ),
    "a split with nothing on one side": lambda logs: logs.split(0.01, by="time"),
}


@pytest.mark.parametrize("name", MORE_CALLS)
def test_more_bad_calls_are_refused(name):
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(ma.errors.InputError):
            MORE_CALLS[name](ma.LoggedData(**BAD_LOGS))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
