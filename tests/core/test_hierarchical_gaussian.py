import numpy as np
import pytest
from numpy.testing import assert_array_equal
from oracles import DenseJoint, DenseProblem
from problems import make_problem
from scipy import sparse

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, ShapeError, TooLargeError


def test_covariances_of_two_actions_are_transposes_however_far_the_data_outweigh_the_prior():
    rng = np.random.default_rng(0)
    prior = ma.HierarchicalGaussian(np.zeros(3), 1e16, rng.normal(size=(4, 2, 3)), 1e16)
    logs = ma.LoggedData(rng.normal(size=(40, 2)), rng.integers(4, size=40), rng.normal(size=40), n_actions=4)
    weights = ma.fit(logs, prior, ma.Gaussian(1e-6)).weights
    left, right = np.triu_indices(4)
    assert np.array_equal(weights.cross_cov(left, right), weights.cross_cov(right, left).swapaxes(1, 2))


def test_posteriors_stay_exact_where_the_data_outweigh_the_prior_in_some_directions_only():
    """In K_a = I + R_a Σ_a R_aᵀ the one is lost beside 1e22, and with it the direction in which Σ_a is zero."""
    rng = np.random.default_rng(0)
    n_actions, dim, noise_std = 3, 3, 1e-6
    # One direction without variance, exactly: entries and their sums are small integers times a power of two.
    roots = 2.0**13 * rng.integers(-3, 4, size=(n_actions, dim, dim - 1))
    action_cov = roots @ roots.swapaxes(1, 2)
    mixing = rng.normal(size=(n_actions, dim, 2))
    contexts, actions = rng.normal(size=(30, dim)), np.arange(30) % n_actions
    parts = (np.zeros(2), np.eye(2), mixing, action_cov, np.zeros((n_actions, dim)))
    dense = DenseProblem(*parts, contexts, actions, rng.normal(size=30), noise_std)
    exact = DenseJoint(dense, digits=80)
    logs = ma.LoggedData(contexts, actions, dense.rewards, n_actions=n_actions)
    weights = ma.fit(logs, ma.HierarchicalGaussian(*parts), ma.Gaussian(noise_std)).weights
    left, right = (grid.ravel() for grid in np.meshgrid(*2 * [np.arange(n_actions)], indexing="ij"))
    blocks = weights.cross_cov(left, right).reshape(n_actions, n_actions, dim, dim)
    scale = np.abs(exact.blocks).max()
    assert scale < 1e-10
    assert np.abs(blocks - exact.blocks).max() < 1e-6 * scale
    assert np.abs(weights.latent_cov - exact.latent_cov).max() < 1e-6 * np.abs(exact.latent_cov).max()
    assert np.abs(weights.action_mean() - exact.action_mean).max() < 1e-8 * np.abs(exact.action_mean).max()


@pytest.mark.parametrize("mixing_form", ["dense", "none", "one_hot", "sparse_effects"])
@pytest.mark.parametrize("grouped", [False, True])
def test_variances_of_several_sums_are_those_of_the_dense_joint(mixing_form, grouped):
    problem = make_problem(
        3, n_actions=7, dim=3, n_rounds=30, mixing_form=mixing_form, cov_form="each", latent_form="full",
        offset_form="none", latent_dim=4, action_scale=1.0, noise_std=0.7,
    )  # fmt: skip
    prior = problem.prior.grouped() if grouped else problem.prior
    weights = ma.fit(problem.logs, prior, ma.Gaussian(0.7)).weights
    vectors = np.random.default_rng(1).normal(size=(7, 4, 3))
    parts = [(vectors[part], np.arange(7)[part]) for part in (slice(0, 5), slice(5, 7))]
    blocks = DenseJoint(problem.dense).blocks
    want = np.einsum("ajd,abde,bje->j", vectors, blocks, vectors)
    np.testing.assert_allclose(weights.variances_of_sums(parts, 4), want, rtol=1e-10)


@pytest.mark.parametrize("n_actions", [40, 100_000])
def test_the_rows_of_seen_actions_are_found_whether_seen_actions_are_many_or_few_of_all(n_actions):
    rng = np.random.default_rng(1)
    ids, counts = rng.choice(n_actions, 12, replace=False), rng.integers(1, 4, 12)
    actions = np.repeat(ids, counts)
    prior = ma.priors.independent(n_actions, dim=3)
    logs = ma.LoggedData(
        rng.normal(size=(len(actions), 3)), actions, rng.normal(size=len(actions)), n_actions=n_actions
    )
    observed = ma.fit(logs, prior).weights.observed
    wanted = rng.permutation(np.concatenate([ids, np.setdiff1d([0, 5, 39, n_actions - 1], ids)]))
    found = dict[int, int]()
    for number, where, place in observed.find(wanted):
        assert_array_equal(observed.groups[number].actions[place], wanted[where])
        found |= dict.fromkeys(wanted[where].tolist(), observed.groups[number].rank)
    assert found == dict(zip(ids.tolist(), counts.tolist(), strict=True))


EFFECTS = ma.MixedEffects(np.eye(3), 2)
DENSE = np.arange(12.0).reshape(3, 2, 2)


def under(mixing, offset=None):
    size = mixing.latent_dim if isinstance(mixing, ma.MixedEffects) else mixing.shape[2]
    return ma.HierarchicalGaussian(np.zeros(size), np.eye(size), mixing, 1.0, offset)


def test_sum_adds_priors():
    parts = [under(EFFECTS), under(DENSE), under(np.zeros((3, 2, 0)), np.ones(2))]
    total, one_by_one = sum(parts), parts[0] + parts[1] + parts[2]
    left, right = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    assert_array_equal(total.cross_cov(left, right), one_by_one.cross_cov(left, right))
    want = sum(part.cross_cov(left, right) for part in parts)
    np.testing.assert_allclose(total.cross_cov(left, right), want, rtol=1e-12)
    assert_array_equal(total.action_mean(), np.ones((3, 2)))


def test_only_priors_of_the_same_actions_can_be_added(own_errors):
    prior = under(EFFECTS)
    with pytest.raises(ShapeError, match="3 actions in 2 dimensions cannot be added to one of 4 actions in 2 dim"):
        _ = prior + under(np.zeros((4, 2, 0)))
    posterior = ma.fit(ma.LoggedData(np.ones((2, 2)), [0, 1], [1.0, 2.0], n_actions=3), prior).weights
    for first, second in ((prior, posterior), (posterior, prior)):
        with pytest.raises(InputError, match=r"only priors can be added. Add them before the fit"):
            _ = first + second
    for wrong in (3, None):
        with pytest.raises(TypeError, match="unsupported operand"):
            _ = prior + wrong
        with pytest.raises(TypeError, match="unsupported operand"):
            _ = wrong + prior


@pytest.mark.parametrize(
    ("prior", "extra", "message"),
    [
        (under(DENSE), np.zeros((1, 2, 3)), r"of new actions must have shape \(n_new, 2, 2\)"),
        (under(DENSE), ma.MixedEffects(np.ones((1, 1)), 2), r"of new actions must have shape \(n_new, 2, 2\)"),
        (under(EFFECTS), ma.MixedEffects(np.ones((1, 2)), 2), "on the same 3 effects and dim=2. A new effect needs"),
        (under(EFFECTS), ma.MixedEffects(np.ones((1, 3)), 1), "on the same 3 effects and dim=2"),
        (under(EFFECTS), np.zeros((1, 2, 6)), "must be MixedEffects with weights on the same 3 effects"),
    ],
)
def test_new_actions_need_a_mixing_of_the_kind_that_there_is(prior, extra, message):
    with pytest.raises(ShapeError, match=message) as caught:
        prior.with_actions(extra)
    assert caught.value.argument == "mixing"


def test_new_actions_need_an_offset_where_each_has_its_own():
    with pytest.raises(ShapeError, match=r"differs by action here. Pass offset= for the new actions too") as caught:
        under(DENSE, np.ones((3, 2))).with_actions(np.zeros((1, 2, 2)))
    assert caught.value.argument == "offset"
    grown = under(DENSE, np.ones(2)).with_actions(np.zeros((1, 2, 2)))
    assert_array_equal(grown.action_mean(), np.ones((4, 2)))


def test_effects_beside_a_dense_mixing_that_would_not_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setattr("manyarms.core.mixing.MAX_DENSE", 35)
    with pytest.raises(TooLargeError, match=r"needs 3 matrices of 2 x 6; the limit is 35.*Write the other part as eff"):
        _ = under(EFFECTS) + under(DENSE)
    monkeypatch.setattr("manyarms.core.mixing.MAX_DENSE", 36)
    assert (under(EFFECTS) + under(DENSE)).latent_dim == 8


def test_effects_are_weighted_by_numbers():
    with pytest.raises(DataTypeError, match="weights must hold numbers; got dtype complex128"):
        ma.MixedEffects(sparse.csr_array(np.eye(3) * 1j), 2)


def test_actions_whose_mixing_differs_by_less_than_rounding_are_not_twins():
    """A sum of one large weight and a small one rounds to the large one, and a quick comparison takes them as equal."""
    weights = np.array([[1e20, 0.0], [1e20, 1.0], [0.0, 1.0], [0.0, 1.0]])
    assert under(ma.MixedEffects(weights, 1)).mixing.kinds[0].tolist() == [0, 1, 2, 3]
    # Without rounding, equal ones are found.
    assert under(ma.MixedEffects(weights[2:], 1)).twins.tolist() == [0, 0]
