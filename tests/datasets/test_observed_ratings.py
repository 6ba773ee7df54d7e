"""Worlds on partly observed matrices, checked by enumeration."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from world_data import Tilted, rng

import manyarms as ma
from manyarms.core.eligibility import PAIRS_PER_BLOCK
from manyarms.datasets import MatrixEnvironment
from manyarms.errors import DataTypeError, EligibilityError, InputError, RangeError, ShapeError

N, K, D = 40, 9, 3
TEST = np.arange(1, N, 2)


@pytest.fixture
def tables():
    ratings, mask = rng(1).normal(size=(N, K)), rng(2).random((N, K)) < 0.5
    mask[np.arange(N), np.arange(N) % K] = True
    ratings[0, 0] = 0.0  # an observed zero
    return ratings, mask, rng(3).normal(size=(N, D))


def as_given(kind, ratings, mask, features):
    """The same partly observed world, passed in the ways that callers have it."""
    cells = sparse.csr_array((ratings[mask], np.nonzero(mask)), shape=mask.shape)
    matrix, observed = {
        "dense": (ratings, mask),
        "missing as NaN": (np.where(mask, ratings, np.nan), mask),
        "sparse": (cells, cells),
        "sparse mask": (ratings, sparse.coo_array(mask)),
        "sparse, dense mask": (cells.tocsc(), mask),
    }[kind]
    return MatrixEnvironment(matrix, features, TEST, observed=observed)


KINDS = ["dense", "missing as NaN", "sparse", "sparse mask", "sparse, dense mask"]


@pytest.fixture(params=KINDS)
def partial(request, tables):
    return (as_given(request.param, *tables), *tables)


def targets():
    return {
        "uniform": ma.Uniform(K),
        "tilted": Tilted(rng(4).normal(size=(K, D))),
        "explored": ma.EpsilonGreedy(Tilted(rng(5).normal(size=(K, D))), 0.3),
        "shared": ma.TablePolicy(rng(6).dirichlet(np.ones(K))),
    }


def enumerated(policy, contexts, users, ratings, eligible):
    """The value by its definition."""
    chances = policy.probabilities(contexts, eligible=eligible)
    return np.mean([sum(chances[i, a] * ratings[u, a] for a in range(K)) for i, u in enumerate(users)])


@pytest.mark.parametrize("name", targets())
def test_value_of_a_partly_observed_world_is_that_of_a_double_loop(partial, name):
    environment, ratings, mask, features = partial
    policy = targets()[name]
    policy.rows_per_block = 7
    truth = enumerated(policy, features[TEST], TEST, ratings, mask[TEST])
    assert_allclose(environment.value(policy), truth, rtol=1e-12)
    assert_allclose(environment.value(policy, eligible=environment.test_eligible), truth, rtol=1e-12)
    assert_allclose(environment.value(policy, environment.test_contexts), truth, rtol=1e-12)
    users = rng(7).integers(N, size=60)
    everyone = enumerated(policy, features[users], users, ratings, mask[users])
    assert_allclose(environment.value(policy, features[users]), everyone, rtol=1e-12)
    narrowed = mask & (rng(8).random((N, K)) < 0.7)
    narrowed[np.arange(N), np.arange(N) % K] = True
    truth = enumerated(policy, features[TEST], TEST, ratings, narrowed[TEST])
    wider = narrowed | ~mask  # what is eligible and not observed makes no difference
    assert_allclose(environment.value(policy, eligible=wider[TEST]), truth, rtol=1e-12)


def test_a_policy_tied_to_the_test_rows_keeps_to_what_is_observed(partial):
    environment, ratings, mask, features = partial
    table = rng(9).dirichlet(np.ones(K), size=len(TEST))
    for policy in (ma.TablePolicy(table), ma.TablePolicy(sparse.csr_array(table))):
        assert_allclose(
            environment.value(policy), enumerated(policy, features[TEST], TEST, ratings, mask[TEST]), rtol=1e-12
        )
    with pytest.raises(ShapeError, match="tied to 21 rows"):
        environment.value(ma.TablePolicy(rng().dirichlet(np.ones(K), size=21)))


@pytest.mark.parametrize("name", targets())
def test_logs_hold_real_cells_of_observed_actions_with_their_probabilities(partial, name):
    environment, ratings, mask, features = partial
    policy = targets()[name]
    logs = environment.log(policy, 5000, rng(10))
    assert_array_equal(np.unique(logs.groups), environment.logging_users)
    assert_array_equal(logs.contexts, features[logs.groups])
    assert mask[logs.groups, logs.actions].all()
    assert_array_equal(logs.rewards, ratings[logs.groups, logs.actions])
    chances = policy.probabilities(features, eligible=mask)
    assert_allclose(logs.propensities, chances[logs.groups, logs.actions], rtol=1e-12)
    if name == "uniform":
        assert_allclose(logs.propensities, 1.0 / mask.sum(axis=1)[logs.groups], rtol=1e-12)
    counts = np.zeros((N, K))
    np.add.at(counts, (logs.groups, logs.actions), 1)
    expected = 5000 * chances[environment.logging_users] / len(environment.logging_users)
    assert (np.abs(counts[environment.logging_users] - expected) < 5 * np.sqrt(expected) + 1).all()


def test_the_logging_policy_of_a_log_keeps_to_what_is_observed(partial):
    """Estimators ask it for actions other than the logged one, and without `eligible`."""
    environment, _, mask, features = partial
    policy = targets()["tilted"]
    logs = environment.log(policy, 300, rng(11))
    chances = policy.probabilities(features, eligible=mask)
    assert_allclose(logs.logging_policy.probabilities(logs.contexts), chances[logs.groups], rtol=1e-12)
    rows = rng(12).permutation(300)[:50]
    part = logs.take(rows)
    assert_allclose(part.logging_policy.probabilities(part.contexts), chances[part.groups], rtol=1e-12)
    assert environment.log(ma.TablePolicy(np.full((20, K), 1 / K)), 20, rng(13)).logging_policy is None


def test_what_is_eligible_is_what_is_observed_of_the_users_asked_for(partial):
    environment, _, mask, _ = partial
    users = rng(14).integers(N, size=100)
    sets = environment.eligible(users)
    assert len(sets) == 100
    assert_array_equal(sets.tocsr().toarray(), mask[users])
    assert_array_equal(sets[rng(15).permutation(100)[:9]].tocsr().toarray(), mask[users[rng(15).permutation(100)[:9]]])
    assert_array_equal(environment.test_eligible.tocsr().toarray(), mask[TEST])
    with pytest.raises(InputError, match="users"):
        environment.eligible([N])
    with pytest.raises(ShapeError, match=r"one row per context.* 100"):
        ma.Uniform(K).probabilities(np.ones((101, D)), eligible=sets)


def test_estimates_from_a_log_come_near_the_truth_within_what_is_observed(tables):
    ratings, mask, features = tables[0] + 2.0, *tables[1:]
    environment = as_given("dense", ratings, mask, features)
    logs = environment.log(ma.Uniform(K), 20_000, rng(16))
    sets = environment.eligible(logs.groups)
    best = ma.EpsilonGreedy(environment.optimal_policy(), 0.5)
    for target in (*targets().values(), best):
        # Given the users that came by, only actions are random: rounds are then independent.
        chances = target.probabilities(features, eligible=mask)
        truth = (chances * np.where(mask, ratings, 0.0)).sum(axis=1)[logs.groups].mean()
        terms = ma.IPS().contributions(target, logs, eligible=sets)
        assert abs(terms.mean() - truth) < 4 * terms.std() / np.sqrt(len(logs))
        found = ma.IPS().estimate(target, logs, eligible=sets)
        whole = environment.value(target, features[environment.logging_users])
        assert abs(found.value - whole) < 4 * found.std
    # Told that everything could have been chosen, the same estimator is wrong.
    blind = ma.IPS().contributions(best, logs)
    assert abs(blind.mean() - truth) > 4 * blind.std() / np.sqrt(len(logs))


def test_cross_fitting_takes_the_eligible_sets_of_its_folds(tables):
    environment = as_given("dense", *tables)
    logs = environment.log(ma.Uniform(K), 400, rng(17))
    sets = environment.eligible(logs.groups)
    model = ma.CrossFit(ma.priors.independent(K, dim=D), rng=rng(18))
    target = targets()["tilted"]
    lazy = ma.DR(model).estimate(target, logs, eligible=sets)
    written = ma.DR(model).estimate(target, logs, eligible=sets.tocsr())
    assert_allclose([lazy.value, lazy.std], [written.value, written.std], rtol=1e-12)


def test_the_optimal_policy_has_the_optimal_value(partial):
    environment, ratings, mask, features = partial
    best = environment.optimal_policy()
    visible = np.where(mask, ratings, -np.inf)
    assert_allclose(environment.optimal_value(), visible[TEST].max(axis=1).mean(), rtol=1e-12)
    assert_allclose(environment.value(best), environment.optimal_value(), rtol=1e-12)
    users = rng(19).integers(N, size=30)
    assert_allclose(environment.optimal_value(features[users]), visible[users].max(axis=1).mean(), rtol=1e-12)
    assert_array_equal(best.actions(features), visible.argmax(axis=1))
    assert_array_equal(best.actions(features, eligible=environment.eligible(np.arange(N))), visible.argmax(axis=1))
    narrowed = rng(20).random((N, K)) < 0.6
    narrowed[np.arange(N), np.arange(N) % K] = True
    expected = np.where(narrowed, visible, -np.inf).argmax(axis=1)
    assert (expected != visible.argmax(axis=1)).any()
    assert_array_equal(best.actions(features, eligible=narrowed), expected)
    half = ma.EpsilonGreedy(best, 0.5).probabilities(features, eligible=mask)
    assert_allclose(half, 0.5 * mask / mask.sum(axis=1, keepdims=True) + 0.5 * np.eye(K)[visible.argmax(axis=1)])


def test_the_optimal_policy_refuses_whom_it_does_not_know_by_row(tables):
    ratings, mask, features = tables
    best = as_given("dense", *tables).optimal_policy()
    best.rows_per_block = 4
    strangers = features[:10].copy()
    strangers[7] += 1e-9
    with pytest.raises(InputError, match="BestObserved knows no user with the features in row 7"):
        best.actions(strangers)
    with pytest.raises(InputError, match=r"EpsilonGreedy knows no user .* row 7"):
        ma.EpsilonGreedy(best, 0.5).probabilities(strangers, eligible=mask[:10])
    with pytest.raises(InputError, match="row 7 belongs to no user"):
        as_given("dense", *tables).value(ma.Uniform(K), strangers)
    unseen = mask[:10].copy()
    unseen[6] = ~mask[6]
    with pytest.raises(EligibilityError, match="none is eligible in row 6"):
        best.actions(features[:10], eligible=unseen)
    with pytest.raises(EligibilityError, match="none is eligible in row 3"):
        as_given("dense", *tables).value(ma.Uniform(K), features[3:10][::-1], eligible=unseen[3:10][::-1])
    twins = features.copy()
    twins[12], twins[31] = [0.0, 1, 2], [-0.0, 1, 2]
    alike = MatrixEnvironment(ratings, twins, TEST, observed=mask)
    assert np.isfinite(alike.value(ma.Uniform(K)) + alike.optimal_value())
    for ask in (alike.optimal_policy, lambda: alike.value(ma.Uniform(K), twins)):
        with pytest.raises(InputError, match="users 12 and 31 have the same features"):
            ask()


def test_a_world_with_everything_observed_is_one_without_a_mask(tables):
    ratings, _, features = tables
    plain = MatrixEnvironment(ratings, features, TEST)
    masked = MatrixEnvironment(ratings, features, TEST, observed=np.ones((N, K), dtype=bool))
    assert plain.eligible([0, 1]) is None
    assert plain.test_eligible is None
    for policy in (*targets().values(), plain.optimal_policy()):
        truth = enumerated(policy, features[TEST], TEST, ratings, None)
        assert_allclose([plain.value(policy), masked.value(policy)], truth, rtol=1e-12)
    assert_allclose(masked.optimal_value(), plain.optimal_value(), rtol=1e-12)
    first, second = plain.log(ma.Uniform(K), 50, rng(21)), masked.log(ma.Uniform(K), 50, rng(21))
    assert_array_equal(first.groups, second.groups)
    assert_allclose(second.propensities, first.propensities)


def test_a_sparse_matrix_without_a_mask_has_zeros_where_nothing_is_stored(tables):
    ratings, mask, features = tables
    filled = np.where(mask, ratings, 0.0)
    filled[1], filled[3] = 0.0, -np.arange(1.0, K + 1)  # nothing stored; nothing at zero or above
    dense = MatrixEnvironment(filled, features, TEST)
    thin = MatrixEnvironment(sparse.csr_array(filled), features, TEST)
    for policy in (*targets().values(), dense.optimal_policy()):
        assert_allclose(thin.value(policy), dense.value(policy), rtol=1e-12)
    assert_allclose(thin.optimal_value(), filled[TEST].max(axis=1).mean(), rtol=1e-12)
    assert_array_equal(thin.optimal_policy().actions(features), filled.argmax(axis=1))
    some = rng(22).random((N, K)) < 0.4
    some[:, 4] = True
    assert_array_equal(
        thin.optimal_policy().actions(features, eligible=some), np.where(some, filled, -np.inf).argmax(axis=1)
    )
    logs = thin.log(ma.Uniform(K), 500, rng(23))
    assert_array_equal(logs.rewards, filled[logs.groups, logs.actions])


def test_noise_is_added_to_what_is_logged_and_to_nothing_else(tables):
    ratings, mask, features = tables
    quiet, loud = (MatrixEnvironment(ratings, features, TEST, observed=mask, noise_std=s) for s in (0.0, 0.5))
    clean, noisy = quiet.log(ma.Uniform(K), 8000, rng(24)), loud.log(ma.Uniform(K), 8000, rng(24))
    assert_array_equal(clean.actions, noisy.actions)
    noise = noisy.rewards - clean.rewards
    assert abs(noise.std() / 0.5 - 1) < 4 / np.sqrt(16_000)
    assert abs(np.corrcoef(noise, noisy.actions)[0, 1]) < 4 / np.sqrt(8000)
    assert loud.value(ma.Uniform(K)) == quiet.value(ma.Uniform(K))


def test_a_large_log_never_writes_its_sets_out(monkeypatch):
    """Rounds are read some at a time: no block has more pairs than a few times the limit."""
    from manyarms.datasets import matrix_environment as module

    features, mask = rng(25).normal(size=(30, 2)), rng(26).random((30, 400)) < 0.9
    environment = MatrixEnvironment(rng(27).random((30, 400)), features, np.arange(10), observed=mask)
    sizes, block = [], module.ObservedActions.block

    def spy(self, rows):
        found = block(self, rows)
        sizes.append(found.nnz)
        return found

    monkeypatch.setattr(module.ObservedActions, "block", spy)
    logs = environment.log(ma.Uniform(400), 20_000, rng(28))
    logs.logging_policy.probability_of(logs.contexts, logs.actions)
    assert sum(sizes) > 3 * 20_000 * 300
    assert max(sizes) < 1.2 * PAIRS_PER_BLOCK


def test_a_wrong_partly_observed_world_is_refused(tables):
    ratings, mask, features = tables
    empty = mask.copy()
    empty[[5, 8]] = False
    broken = ratings.copy()
    broken[6, np.flatnonzero(mask[6])[0]] = np.nan
    infinite = sparse.csr_array(np.where(mask, ratings, 0.0))
    infinite.data[infinite.indptr[6]] = np.inf
    wrong = [
        (dict(observed=empty), EligibilityError, "nothing to choose from in row 5"),
        (dict(observed=sparse.csr_array(empty)), EligibilityError, "nothing to choose from in row 5"),
        (dict(observed=mask[:, :-1]), ShapeError, "shape of matrix"),
        (dict(observed=mask.astype(int)), DataTypeError, "boolean mask"),
        (dict(matrix=broken), InputError, "matrix must be finite; row 6"),
        (dict(matrix=infinite), InputError, "matrix must be finite; row 6 holds inf"),
        (dict(matrix=sparse.csr_array(mask * 1j)), DataTypeError, "real numbers"),
        (dict(noise_std=-1.0), RangeError, "noise_std"),
    ]
    for change, error, message in wrong:
        arguments = dict(matrix=ratings, observed=mask) | change
        with pytest.raises(error, match=message):
            MatrixEnvironment(arguments.pop("matrix"), features, TEST, **arguments)
