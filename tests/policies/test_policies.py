"""Policies, against brute force over all actions, and by enumeration."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import manyarms as ma
from manyarms.core.choices import Choices
from manyarms.datasets import LinearEnvironment
from manyarms.errors import NumericalError
from manyarms.linalg import top_k as best
from manyarms.linalg.quadratic_forms import Forms
from manyarms.posterior import confidence_radius

N, K, D = 40, 30, 3


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(7)


@pytest.fixture(scope="module")
def posterior(rng):
    effects = ma.MixedEffects(np.eye(4)[rng.integers(0, 4, K)], D)
    prior = ma.HierarchicalGaussian(np.zeros(4 * D), 1.0, effects, 0.3)
    logs = ma.LoggedData(rng.normal(size=(60, D)), rng.integers(0, K // 2, 60), rng.normal(size=60), n_actions=K)
    return ma.fit(logs, prior, ma.Gaussian(0.5))


@pytest.fixture(scope="module")
def contexts(rng):
    return rng.normal(size=(N, D))


@pytest.fixture(scope="module")
def eligible(rng):
    """Sets of one to a dozen actions a row."""
    return [list(rng.choice(K, size=rng.integers(1, 13), replace=False)) for _ in range(N)]


def mask(eligible):
    allowed = np.zeros((N, K), dtype=bool)
    for i, ids in enumerate(eligible):
        allowed[i, ids] = True
    return allowed


def lower_bounds(posterior, contexts, delta):
    covs = posterior.weights.action_cov(np.arange(K))
    widths = np.sqrt(np.einsum("nd,kde,ne->nk", contexts, covs, contexts))
    return posterior.expected_reward(contexts) - confidence_radius(D, delta) * widths


def every_policy(posterior, contexts, rng):
    table = rng.dirichlet(np.ones(K), N)
    logs = ma.LoggedData(contexts, rng.integers(0, K, N), np.zeros(N), n_actions=K)
    return {
        "greedy": ma.Greedy(posterior),
        "pessimistic": ma.Pessimistic(posterior, delta=0.1),
        "softmax": ma.Softmax(posterior, temperature=0.4),
        "thompson": ma.Thompson(posterior, n_draws=50, rng=np.random.default_rng(1)),
        "uniform": ma.Uniform(K),
        "table": ma.TablePolicy(table),
        "sparse table": ma.TablePolicy(sparse.csr_array(table)),
        "shared table": ma.TablePolicy(table[0]),
        "logged": ma.Logged(logs),
        "capped": ma.CappedPolicy(posterior, contexts, max_share=0.3),
        "blended": ma.BlendedGreedy([posterior, posterior], [1.0, 0.5]),
        "epsilon greedy": ma.EpsilonGreedy(ma.Greedy(posterior), 0.2),
        "epsilon softmax": ma.EpsilonGreedy(ma.Softmax(posterior, temperature=0.4), 0.2),
        "epsilon table": ma.EpsilonGreedy(ma.TablePolicy(table[0]), 0.3),
        "epsilon logged": ma.EpsilonGreedy(ma.Logged(logs), 0.3),
    }


NAMES = [
    "greedy", "pessimistic", "softmax", "thompson", "uniform", "table", "sparse table", "shared table", "logged",
    "capped", "blended",
    "epsilon greedy", "epsilon softmax", "epsilon table", "epsilon logged",
]  # fmt: skip


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_call_of_a_policy_tells_of_one_distribution(name, limited, posterior, contexts, eligible):
    policy = every_policy(posterior, contexts, np.random.default_rng(3))[name]
    allowed = None
    if limited:
        allowed = eligible
        if "logged" in name:
            base = policy if name == "logged" else policy.policy
            allowed = [[*ids, int(base._logged[i])] for i, ids in enumerate(eligible)]
    p = policy.probabilities(contexts, eligible=allowed)
    assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert (p >= 0).all()
    if limited:
        assert (p[~mask(allowed)] == 0).all()
    # one action a row, by its number
    for action in (0, 7, K - 1):
        got = policy.probability_of(contexts, np.full(N, action), eligible=allowed)
        assert_allclose(got, p[:, action], atol=1e-12)
    # the likeliest action
    modes = policy.actions(contexts, eligible=allowed)
    assert_allclose(p[np.arange(N), modes], p.max(axis=1), atol=1e-12)
    # chunks of any size
    pieces = [block for _, block in policy.probability_chunks(contexts, eligible=allowed, chunk_size=7)]
    assert_allclose(np.concatenate(pieces), p, atol=1e-12)
    # feature mass, and the value that follows from it
    mass = policy.feature_mass(contexts, eligible=allowed)
    dense = np.zeros((K, D))
    dense[mass.actions] = mass.vectors
    assert_allclose(dense, p.T @ contexts / N, atol=1e-12)
    value = posterior.value(policy, contexts, eligible=allowed)
    rows = (p * posterior.expected_reward(contexts)).sum(axis=1)
    assert_allclose(value.value, rows.mean(), atol=1e-12)
    assert_allclose(value.context_std, rows.std(ddof=1) / np.sqrt(N), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("name", ["softmax", "uniform", "table", "sparse table", "shared table", "epsilon greedy",
                                  "epsilon softmax", "epsilon table"])  # fmt: skip
def test_samples_have_the_probabilities_of_the_policy(name, limited, posterior, contexts, eligible):
    policy = every_policy(posterior, contexts, np.random.default_rng(3))[name]
    allowed = eligible if limited else None
    p = policy.probabilities(contexts, eligible=allowed)
    rng, draws = np.random.default_rng(11), 1200
    counts = np.zeros((N, K))
    for _ in range(draws):
        counts[np.arange(N), policy.sample(contexts, rng, eligible=allowed)] += 1
    assert (counts[p == 0] == 0).all()
    assert (counts[p > 1 - 1e-9] == draws).all()
    open_ = (p > 0.01) & (p < 0.99)  # where a normal is a fair picture of a count
    z = (counts / draws - p)[open_] / np.sqrt(p * (1 - p) / draws)[open_]
    assert np.abs(z).max() < 5
    assert abs(z.std() - 1) < 0.2


def test_greedy_is_the_argmax_of_expected_rewards(posterior, contexts, eligible, monkeypatch):
    scores = posterior.expected_reward(contexts)
    greedy = ma.Greedy(posterior)
    assert_array_equal(greedy.actions(contexts), scores.argmax(axis=1))
    limited = np.where(mask(eligible), scores, -np.inf)
    assert_array_equal(greedy.actions(contexts, eligible=eligible), limited.argmax(axis=1))
    monkeypatch.setattr(best, "ROWS", 3)
    monkeypatch.setattr(best, "COLUMNS", 4)
    assert_array_equal(greedy.actions(contexts), scores.argmax(axis=1))
    assert_array_equal(greedy.top_k(contexts, 6), np.argsort(-scores, axis=1, kind="stable")[:, :6])


@pytest.mark.parametrize("delta", [0.9, 0.05, 1e-9])
def test_pessimistic_is_the_argmax_of_lower_bounds(posterior, contexts, eligible, delta, monkeypatch):
    policy, bounds = ma.Pessimistic(posterior, delta), lower_bounds(posterior, contexts, delta)
    expected = np.argsort(-bounds, axis=1, kind="stable")
    limited = np.where(mask(eligible), bounds, -np.inf)
    for rows, columns in ((256, 1024), (5, 4)):
        monkeypatch.setattr(best, "ROWS", rows)
        monkeypatch.setattr(best, "COLUMNS", columns)
        assert_array_equal(policy.actions(contexts), expected[:, 0])
        assert_array_equal(policy.top_k(contexts, 5), expected[:, :5])
        assert_array_equal(policy.actions(contexts, eligible=eligible), limited.argmax(axis=1))


def test_lower_bounds_agree_when_most_pairs_are_pruned(contexts):
    """Little uncertainty and spread-out means: the other branch of the search."""
    rng = np.random.default_rng(0)
    x, means = rng.normal(size=(300, 4)), 10 * rng.normal(size=(3000, 4))
    covs = 1e-4 * np.broadcast_to(np.eye(4), (3000, 4, 4)) * rng.uniform(0.1, 2, (3000, 1, 1))
    bounds = x @ means.T - 3.0 * np.sqrt(np.einsum("nd,kde,ne->nk", x, covs, x))
    got = best.best_lower_bounds(x, means, Forms(lambda ids: covs[ids]), 3.0, k=3)
    assert_array_equal(got, np.argsort(-bounds, axis=1, kind="stable")[:, :3])


def test_radius_is_the_papers():
    # d + 2 √(d log 1/δ) + 2 log 1/δ at d = 4, δ = e⁻¹: 4 + 4 + 2.
    assert_allclose(confidence_radius(4, np.exp(-1)), np.sqrt(10.0))


def test_softmax_has_the_odds_of_its_scores_and_grows_greedy_when_cold(posterior, contexts):
    scores = posterior.expected_reward(contexts)
    p = ma.Softmax(posterior, temperature=0.5).probabilities(contexts)
    assert_allclose(np.log(p[:, 1:] / p[:, :1]), (scores[:, 1:] - scores[:, :1]) / 0.5, atol=1e-9)
    cold = ma.Softmax(posterior, temperature=1e-9).probabilities(contexts)
    assert_allclose(cold, ma.Greedy(posterior).probabilities(contexts), atol=1e-12)


def test_thompson_shares_are_the_probabilities_of_being_best(posterior, contexts, eligible):
    """Against independent draws of all weights from the joint posterior."""
    few, allowed = contexts[:5], mask(eligible)[:5]
    theta = posterior.weights.sample(np.random.default_rng(5), 20_000)
    thompson = ma.Thompson(posterior, n_draws=4000, rng=np.random.default_rng(6))
    for limit, given in ((np.ones_like(allowed), None), (allowed, eligible[:5])):
        scores = np.where(limit[:, None], np.einsum("nd,skd->nsk", few, theta), -np.inf)
        truth = np.stack([np.bincount(row, minlength=K) / len(theta) for row in scores.argmax(axis=2)])
        shares = thompson.probabilities(few, eligible=given)
        error = np.sqrt(truth * (1 - truth) * (1 / 4000 + 1 / 20_000)) + 1e-3
        assert (np.abs(shares - truth) / error).max() < 4.5
    assert_allclose(thompson.max_share_error, 0.5 / np.sqrt(4000))


def test_thompson_is_frozen_but_samples_afresh(posterior, contexts):
    thompson = ma.Thompson(posterior, n_draws=200, rng=np.random.default_rng(6))
    again = ma.Thompson(posterior, n_draws=200, rng=np.random.default_rng(6))
    p = thompson.probabilities(contexts)
    assert_array_equal(p, again.probabilities(contexts))
    # The rows around a row do not matter.
    assert_array_equal(p[10:20], thompson.probabilities(contexts[10:20]))
    first, second = (
        thompson.sample(contexts, np.random.default_rng(0)),
        thompson.sample(contexts, np.random.default_rng(1)),
    )
    assert (first != second).any()


def test_fresh_thompson_samples_follow_the_shares(posterior, contexts):
    shares = ma.Thompson(posterior, n_draws=4000, rng=np.random.default_rng(6)).probabilities(contexts[:1])[0]
    policy = ma.Thompson(posterior, n_draws=4000, rng=np.random.default_rng(7))
    drawn = policy.sample(np.repeat(contexts[:1], 4000, axis=0), np.random.default_rng(8))
    counts = np.bincount(drawn, minlength=K) / 4000
    error = np.sqrt(2 * shares * (1 - shares) / 4000) + 1e-3
    assert (np.abs(counts - shares) / error).max() < 4.5


def test_logged_repeats_what_was_logged(posterior, contexts):
    actions = np.random.default_rng(0).integers(0, K, N)
    logs = ma.LoggedData(contexts, actions, np.zeros(N), n_actions=K)
    assert_array_equal(ma.Logged(logs).actions(contexts), actions)
    assert_array_equal(ma.Logged(logs).take(np.array([3, 1])).actions(contexts[[3, 1]]), actions[[3, 1]])
    with pytest.raises(ma.errors.ShapeError, match="40 rows"):
        ma.Logged(logs).actions(contexts[:5])


def test_top_k_of_a_table_ranks_by_probability_and_fills_with_minus_one():
    policy = ma.TablePolicy([0.1, 0.0, 0.6, 0.3])
    assert_array_equal(policy.top_k(np.zeros((2, 1)), 4), [[2, 3, 0, -1]] * 2)
    assert_array_equal(policy.top_k(np.zeros((1, 1)), 2, eligible=[[0, 3]]), [[3, 0]])


def test_top_k_of_scores_fills_short_rows(posterior, contexts):
    got = ma.Greedy(posterior).top_k(contexts[:2], 3, eligible=[[4], [9, 2]])
    assert_array_equal(got[0], [4, -1, -1])
    assert set(got[1][:2]) == {2, 9}
    assert got[1][2] == -1


@pytest.mark.parametrize(
    "form",
    [
        "lists",
        "tuples",
        "csr",
        "dense mask",
        "lists of booleans",
        "tuples of booleans",
        "function of lists",
        "function of csr",
    ],
)
def test_eligible_means_the_same_in_every_form(form, posterior, contexts, eligible):
    allowed = mask(eligible)
    given = {
        "lists": eligible,
        "tuples": tuple(map(tuple, eligible)),
        "lists of booleans": allowed.tolist(),
        "tuples of booleans": tuple(map(tuple, allowed)),
        "csr": sparse.csr_matrix(allowed),
        "dense mask": allowed,
        "function of lists": lambda rows: eligible[rows],
        "function of csr": lambda rows: sparse.csr_array(allowed[rows]),
    }[form]
    got = ma.Uniform(K).probabilities(contexts, eligible=given)
    assert_allclose(got, allowed / allowed.sum(axis=1, keepdims=True))
    difference = posterior.difference(ma.Greedy(posterior), ma.Uniform(K), contexts, eligible=given)
    assert difference.value > 0


def test_eligible_sets_may_repeat_an_action():
    got = ma.Uniform(4).probabilities(np.zeros((1, 1)), eligible=[[2, 2, 0]])
    assert_allclose(got, [[0.5, 0, 0.5, 0]])


@pytest.mark.slow
def test_a_million_actions_never_meet_as_rows_by_actions():
    """A value over 10^5 actions and 2,000 rows would need 1.6 GB as one array; peak memory stays far below."""
    import tracemalloc

    rng, k, n = np.random.default_rng(0), 100_000, 2000
    category = rng.integers(0, 5, k)
    weights = sparse.csr_array((np.ones(k), category, np.arange(k + 1)), shape=(k, 5))
    prior = ma.HierarchicalGaussian(np.zeros(10), 1.0, ma.MixedEffects(weights, 2), 0.1)
    x = rng.normal(size=(n, 2))
    logs = ma.LoggedData(x, rng.integers(0, k, n), rng.normal(size=n), n_actions=k)
    posterior = ma.fit(logs, prior)
    tracemalloc.start()
    for policy in (ma.Greedy(posterior), ma.Logged(logs), ma.Uniform(k), ma.EpsilonGreedy(ma.Greedy(posterior), 0.1)):
        posterior.value(policy, x)
    ma.Pessimistic(posterior).actions(x[:50])
    ma.Softmax(posterior, temperature=1.0).probability_of(x[:60], np.zeros(60, dtype=int))
    ma.Greedy(posterior).top_k(x, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


def test_one_mask_of_stock_holds_for_all_rows(posterior, contexts):
    stock = np.random.default_rng(0).random(K) < 0.7
    everywhere = np.broadcast_to(stock, (N, K))
    for policy in (ma.Greedy(posterior), ma.Pessimistic(posterior), ma.Uniform(K), ma.Softmax(posterior, 1.0)):
        assert_allclose(
            policy.probabilities(contexts, eligible=stock), policy.probabilities(contexts, eligible=everywhere)
        )
        assert_array_equal(policy.top_k(contexts, 4, eligible=stock), policy.top_k(contexts, 4, eligible=everywhere))


def test_many_eligible_pairs_are_read_some_at_a_time(posterior, contexts, monkeypatch):
    from manyarms.core import eligibility

    stock = np.random.default_rng(0).random(K) < 0.7
    expected = ma.Greedy(posterior).actions(contexts, eligible=stock)
    sizes = []

    def sets(rows):
        sizes.append(rows.stop - rows.start)
        return np.broadcast_to(stock, (sizes[-1], K))

    monkeypatch.setattr(eligibility, "PAIRS_PER_BLOCK", 5 * stock.sum())
    many = np.tile(contexts, (4, 1))
    assert_array_equal(ma.Greedy(posterior).actions(many, eligible=sets), np.tile(expected, 4))
    assert max(sizes[1:]) == 5


def test_thompson_ranks_by_wins(posterior, contexts):
    thompson = ma.Thompson(posterior, n_draws=300, rng=np.random.default_rng(6))
    shares = thompson.probabilities(contexts)
    got = thompson.top_k(contexts, 3)
    expected = np.argsort(-shares, axis=1, kind="stable")[:, :3]
    expected = np.where(np.take_along_axis(shares, expected, axis=1) > 0, expected, -1)
    assert_array_equal(got, expected)


def test_logging_by_thompson_claims_no_propensities(posterior):
    world = LinearEnvironment(np.ones((K, D)), 1.0, lambda rng, n: rng.normal(size=(n, D)))
    policy = ma.Thompson(posterior, n_draws=50, rng=np.random.default_rng(0))
    assert world.log(policy, 500, np.random.default_rng(1)).propensities is None


def test_lower_bounds_survive_cancellation_in_scores():
    """Means that nearly cancel: a floor with slack for the result alone would prune every pair."""
    rng = np.random.default_rng(0)
    x, means = rng.normal(size=(200, 8)), rng.normal(size=(50, 8))
    x[:, 1] = x[:, 0]
    means[:, 0] += 1e9
    means[:, 1] -= 1e9
    got = best.best_lower_bounds(x, means, Forms(lambda ids: np.zeros((len(ids), 8, 8))), 3.0)
    scores = x @ means.T
    assert (scores.max(axis=1) - scores[np.arange(200), got[:, 0]] < 1e-5).all()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
def test_contexts_that_overflow_are_refused_and_never_become_an_action(posterior):
    x, means = np.full((6, 2), 1e200), np.full((9, 2), 1e200) * [1, -1]
    with pytest.raises(ma.errors.NumericalError, match="row 0"):
        best.best_columns(x, means)
    with pytest.raises(ma.errors.NumericalError, match="row 0"):
        best.best_lower_bounds(x, means, Forms(lambda ids: np.zeros((len(ids), 2, 2))), 1.0)
    with pytest.raises(ma.errors.NumericalError, match="row 0"):
        ma.Softmax(posterior, 0.5).actions(np.full((3, D), 1.7e308))
    with pytest.raises(ma.errors.NumericalError, match="overflow"):
        posterior.value(ma.Uniform(K), np.full((3, D), 1e200))


def test_no_exploration_can_be_sampled(posterior, contexts):
    policy = ma.EpsilonGreedy(ma.Greedy(posterior), 0.0)
    assert_array_equal(policy.sample(contexts, np.random.default_rng(0)), ma.Greedy(posterior).actions(contexts))


def test_tables_that_sum_to_nearly_one_always_give_an_action():
    table = sparse.csr_array(np.tile([0.5, 0.5 - 8e-7], (200_000, 1)))
    assert ma.TablePolicy(table).sample(np.zeros((200_000, 1)), np.random.default_rng(0)).min() >= 0


def test_blas_threads_are_set_back_after_calls_from_several_threads(posterior, contexts):
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info

    before = [pool["num_threads"] for pool in threadpool_info()]
    many = np.tile(contexts, (50, 1))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ma.Greedy(posterior).actions(many), range(40)))
    assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_top_k_of_a_table_with_zeros_writes_out_no_rows_by_actions_array():
    """2,000 rows of a catalog of 100,000 would take 1.6 GB; few actions are eligible in each."""
    import tracemalloc

    k, n = 100_000, 2000
    table = np.zeros(k)
    table[::2] = 2.0 / k
    sets = [[2 * i, 2 * i + 1, 2 * i + 4] for i in range(n)]
    x = np.zeros((n, 1))
    tracemalloc.start()
    got = ma.TablePolicy(table).top_k(x, 3, eligible=sets)
    mixed = ma.Policy.top_k(ma.EpsilonGreedy(ma.TablePolicy(table), 0.5), x[:60], 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_array_equal(got, [[2 * i, 2 * i + 4, -1] for i in range(n)])
    assert_array_equal(mixed, [[0, 2]] * 60)
    assert peak < 200e6


def test_a_stored_zero_is_no_choice():
    """Else a level drawn above the sum of a row, which rounding allows, would land on it."""
    given = sparse.csr_array((np.array([0.5, 0.5, 0.0]), np.array([0, 1, 2]), np.array([0, 3])), shape=(1, 3))
    assert given.nnz == 3
    for eligible in (None, sparse.csr_array(np.ones((1, 3)))):
        choices = ma.TablePolicy(given).choices(np.zeros((1, 1)), eligible)
        assert_array_equal(choices.named.indices, [0, 1])


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("temperature", [1e-300, 1e-308, 5e-324])
def test_softmax_is_greedy_when_so_cold_that_scores_overflow(posterior, contexts, eligible, temperature):
    cold, allowed = ma.Softmax(posterior, temperature), mask(eligible)
    scores = posterior.expected_reward(contexts)
    for limit, given in ((np.ones_like(allowed), None), (allowed, eligible)):
        ranked = np.where(limit, scores, -np.inf)
        # Actions never logged may tie, up to rounding.
        among_best = ranked >= ranked.max(axis=1, keepdims=True) - 1e-12
        p = cold.probabilities(contexts, eligible=given)
        assert_allclose(p.sum(axis=1), 1.0)
        assert p[~among_best].max() < 1e-100
        drawn = cold.sample(contexts, np.random.default_rng(0), eligible=given)
        assert among_best[np.arange(N), drawn].all()


@pytest.mark.parametrize("part", ["named", "everywhere", "dense"])
def test_no_action_is_drawn_from_probabilities_that_are_not_numbers(part):
    class Broken(ma.Policy):
        n_actions = 2

        def choices(self, contexts, eligible):
            n, bad = len(contexts), np.full((len(contexts), 2), 0.5)
            bad[-1, 1] = np.nan
            values = {"named": sparse.csr_array(bad), "everywhere": bad[-1], "dense": bad}[part]
            return Choices(n, 2, **{part: values})

    with pytest.raises(NumericalError, match="row 0" if part == "everywhere" else "row 3"):
        Broken().sample(np.zeros((4, 1)), np.random.default_rng(0))
