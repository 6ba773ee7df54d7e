"""The posterior and what follows from it, against the dense joint Gaussian in high precision."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose
from oracles import DenseJoint
from problems import make_problem, recipes
from sklearn.linear_model import Ridge

import manyarms as ma
from manyarms.errors import NumericalError
from manyarms.inference import latent_posterior as latent
from manyarms.linalg import indexing


def error(got, exact):
    """The largest error over the largest entry."""
    exact = np.asarray(exact)
    if exact.size == 0:
        return 0.0
    return np.abs(np.asarray(got) - exact).max() / max(np.abs(exact).max(), np.finfo(float).tiny)


def errors(problem):
    """How far each quantity of the posterior is from the dense joint."""
    posterior, joint = problem.fit(), DenseJoint(problem.dense)
    everyone, w = problem.everyone, posterior.weights
    left, right = (grid.ravel() for grid in np.meshgrid(everyone, everyone, indexing="ij"))
    found = {
        "latent_mean": error(w.latent_mean, joint.latent_mean),
        "latent_cov": error(w.latent_cov, joint.latent_cov),
        "action_mean": error(w.action_mean(), joint.action_mean),
        "action_cov": error(w.action_cov(everyone), joint.blocks[everyone, everyone]),
        "cross_cov": error(w.cross_cov(left, right), joint.blocks[left, right]),
        "log_evidence": error(posterior.log_evidence, joint.log_evidence) if len(problem.logs) else 0.0,
    }
    rng = np.random.default_rng(len(problem.logs))
    contexts = rng.normal(size=(7, problem.prior.dim))
    table, baseline = rng.dirichlet(np.ones(len(everyone)), 7), rng.dirichlet(np.ones(len(everyone)))
    for name, policy, p in (
        ("value", ma.TablePolicy(table), table),
        ("shared", ma.TablePolicy(baseline), np.broadcast_to(baseline, table.shape)),
    ):
        mean, variance, rows = joint.value(p, contexts)
        got = posterior.value(policy, contexts)
        scale = np.abs(joint.action_mean @ contexts.T).max() or 1.0
        found[name] = abs(got.value - mean) / scale
        found[name + "_std"] = abs(got.posterior_std - np.sqrt(max(variance, 0.0))) / np.sqrt(_size(joint, contexts))
        found[name + "_contexts"] = abs(got.context_std - rows.std(ddof=1) / np.sqrt(len(rows))) / scale
    scale = np.abs(joint.action_mean @ contexts.T).max() or 1.0
    mean, variance, _ = joint.value(table - baseline, contexts)
    got = posterior.difference(ma.TablePolicy(table), ma.TablePolicy(baseline), contexts)
    found["difference"] = abs(got.value - mean) / scale
    found["difference_std"] = abs(got.posterior_std - np.sqrt(max(variance, 0.0))) / np.sqrt(_size(joint, contexts))
    return found


def _size(joint, contexts):
    """The scale of a variance: that of the largest single reward."""
    blocks = joint.blocks[np.arange(joint.K), np.arange(joint.K)]
    return max(np.einsum("nd,kde,ne->nk", contexts, blocks, contexts).max(), np.finfo(float).tiny)


@settings(max_examples=100)
@given(recipe=recipes())
def test_posterior_equals_the_dense_joint(recipe):
    problem = make_problem(**recipe)
    assert problem.largest_eigenvalue() < 1e6
    found = errors(problem)
    assert max(found.values()) < 1e-10, found


@settings(max_examples=40)
@given(recipe=recipes(action_scales=(1e2, 1e6, 1e10), noise_stds=(1e-4, 1e-2, 1.0)))
def test_error_grows_no_faster_than_the_weight_of_the_data(recipe):
    problem = make_problem(**recipe)
    allowed = max(1e-10, 100 * np.finfo(float).eps * problem.largest_eigenvalue())
    found = errors(problem)
    assert max(found.values()) < allowed, (found, allowed)


@settings(max_examples=100)
@given(recipe=recipes(action_scales=(1e2, 1e8, 1e14), noise_stds=(1e-6, 1e-3)))
def test_no_variance_is_ever_negative(recipe):
    problem = make_problem(**recipe)
    posterior = problem.fit()
    covs = posterior.weights.action_cov(problem.everyone)
    smallest, largest = np.linalg.eigvalsh(covs)[:, 0], np.linalg.eigvalsh(covs)[:, -1]
    assert (np.einsum("kdd->kd", covs) >= 0).all()
    assert (smallest >= -1e-14 * largest).all()
    contexts = np.random.default_rng(0).normal(size=(5, problem.prior.dim))
    std = posterior.value(ma.Uniform(problem.prior.n_actions), contexts).posterior_std
    assert np.isfinite(std)


@pytest.mark.parametrize("budget", [0, 1 << 30])
@settings(max_examples=40)
@given(recipe=recipes(action_scales=(0.01, 1.0), noise_stds=(1.0,)))
def test_rows_and_sums_give_the_same_latent_posterior(recipe, budget):
    problem = make_problem(**recipe)
    before = latent.QR_BUDGET
    latent.QR_BUDGET = budget
    try:
        found = errors(problem)
    finally:
        latent.QR_BUDGET = before
    assert max(found.values()) < 1e-10, found


def big_problem(seed, **changes):
    """Many rounds on few actions, so that rows, sums and unseen actions all occur."""
    settings = dict(
        n_actions=12, dim=3, n_rounds=150, mixing_form="sparse_effects", cov_form="each", latent_form="full",
        offset_form="each", latent_dim=4, action_scale=1.0, noise_std=0.7,
    )  # fmt: skip
    return make_problem(seed, **(settings | changes))


def summary(posterior):
    """All of a posterior in one vector."""
    w = posterior.weights
    everyone = np.arange(w.n_actions)
    parts = [w.latent_mean, w.latent_cov, w.action_mean(), w.action_cov(everyone), [posterior.log_evidence]]
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.parametrize("mixing_form", ["dense", "none", "one_hot", "sparse_effects"])
def test_batch_equals_sequential_shuffled_and_sharded(mixing_form):
    problem = big_problem(1, mixing_form=mixing_form)
    likelihood, logs, n = ma.Gaussian(problem.noise_std), problem.logs, len(problem.logs)
    whole = summary(problem.fit())
    shuffled = logs.take(np.random.default_rng(0).permutation(n))
    assert error(summary(ma.fit(shuffled, problem.prior, likelihood)), whole) < 1e-10

    cuts = [slice(0, 1), slice(1, 3), slice(3, 60), slice(60, 60), slice(60, n)]
    updated = ma.fit(logs.take(cuts[0]), problem.prior, likelihood)
    for rows in cuts[1:]:
        updated = updated.update(logs.take(rows))
    assert error(summary(updated), whole) < 1e-10

    parts = [likelihood.statistics(logs.take(slice(i, n, 4)), problem.prior.n_actions) for i in range(4)]
    sharded = ma.condition(problem.prior, (parts[3] + parts[1]) + (parts[0] + parts[2]), problem.noise_std)
    assert error(sharded.action_mean(), problem.fit().weights.action_mean()) < 1e-10


def test_yesterdays_posterior_is_todays_prior():
    problem = big_problem(2)
    likelihood, logs = ma.Gaussian(problem.noise_std), problem.logs
    first, second = logs.take(slice(0, 70)), logs.take(slice(70, None))
    yesterday = ma.fit(first, problem.prior, likelihood)
    today = ma.fit(second, yesterday.weights, likelihood)
    whole = problem.fit()
    assert error(summary(today)[:-1], summary(whole)[:-1]) < 1e-10
    # Its evidence is that of today's rounds given yesterday's.
    assert_allclose(yesterday.log_evidence + today.log_evidence, whole.log_evidence, rtol=1e-10)


def test_noise_may_change_from_one_day_to_the_next():
    problem = big_problem(3, n_rounds=40)
    first, second = problem.logs.take(slice(0, 20)), problem.logs.take(slice(20, None))
    yesterday = ma.fit(first, problem.prior, ma.Gaussian(0.5))
    today = ma.fit(second, yesterday.weights, ma.Gaussian(2.0))
    # The same as one fit on rounds scaled to unit noise.
    scale = np.where(np.arange(40) < 20, 0.5, 2.0)
    scaled = ma.LoggedData(
        problem.logs.contexts / scale[:, None], problem.logs.actions, problem.logs.rewards / scale, n_actions=12
    )
    assert error(summary(today)[:-1], summary(ma.fit(scaled, problem.prior, ma.Gaussian(1.0)))[:-1]) < 1e-10


def test_weight_two_is_the_row_twice_and_weight_zero_none():
    problem = big_problem(4)
    logs, counts = problem.logs, np.random.default_rng(0).integers(0, 4, len(problem.logs))
    weighted = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=12, weights=counts)
    repeated = logs.take(np.repeat(np.arange(len(logs)), counts))
    likelihood = ma.Gaussian(problem.noise_std)
    got, expected = ma.fit(weighted, problem.prior, likelihood), ma.fit(repeated, problem.prior, likelihood)
    assert error(summary(got), summary(expected)) < 1e-10


def test_relabelling_actions_relabels_the_posterior():
    problem, order = big_problem(5, mixing_form="dense"), np.random.default_rng(0).permutation(12)
    d = problem.dense
    prior = ma.HierarchicalGaussian(d.latent_mean, d.latent_cov, d.mixing[order], d.action_cov[order], d.offset[order])
    renamed = np.argsort(order)[problem.logs.actions]
    logs = ma.LoggedData(d.contexts, renamed, d.rewards, n_actions=12)
    got, expected = ma.fit(logs, prior, ma.Gaussian(problem.noise_std)), problem.fit()
    assert error(got.weights.action_mean(), expected.weights.action_mean()[order]) < 1e-10
    assert error(got.weights.action_cov(np.arange(12)), expected.weights.action_cov(order)) < 1e-10
    assert_allclose(got.log_evidence, expected.log_evidence, rtol=1e-10)


def test_rotating_features_with_the_prior_changes_no_reward():
    problem = big_problem(6, mixing_form="dense")
    d = problem.dense
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    prior = ma.HierarchicalGaussian(
        d.latent_mean, d.latent_cov, turn @ d.mixing, turn @ d.action_cov @ turn.T, d.offset @ turn.T
    )
    logs = ma.LoggedData(d.contexts @ turn.T, d.actions, d.rewards, n_actions=12)
    got, expected = ma.fit(logs, prior, ma.Gaussian(problem.noise_std)), problem.fit()
    assert error(got.expected_reward(d.contexts @ turn.T), expected.expected_reward(d.contexts)) < 1e-10
    assert error(got.reward_std(d.contexts @ turn.T, d.actions), expected.reward_std(d.contexts, d.actions)) < 1e-10


def test_results_do_not_depend_on_the_size_of_chunks(monkeypatch):
    problem = big_problem(7)
    expected = summary(problem.fit())
    monkeypatch.setattr(indexing, "CHUNK_NUMBERS", 40)
    assert error(summary(problem.fit()), expected) < 1e-12


def test_an_unseen_action_is_neither_solved_for_nor_stored():
    rng = np.random.default_rng(0)
    prior = ma.HierarchicalGaussian(np.zeros(6), 1.0, ma.MixedEffects(np.eye(3)[rng.integers(0, 3, 1000)], 2), 0.5)
    actions = np.array([3, 3, 700, 41])
    posterior = ma.fit(ma.LoggedData(rng.normal(size=(4, 2)), actions, rng.normal(size=4), n_actions=1000), prior)
    assert list(posterior.weights.observed.actions) == [3, 41, 700]
    assert sum(group.root.size for group in posterior.weights.observed.groups) == 4 * 2
    assert len(posterior.statistics.rows.actions) + len(posterior.statistics.sums.actions) <= 4


def test_empty_log_gives_the_prior_back():
    problem = big_problem(8)
    empty = ma.LoggedData(np.empty((0, 3)), [], [], n_actions=12)
    posterior = ma.fit(empty, problem.prior)
    assert posterior.log_evidence == 0.0
    assert_allclose(posterior.weights.action_mean(), problem.prior.action_mean())
    assert_allclose(posterior.weights.action_cov(np.arange(12)), problem.prior.action_cov(np.arange(12)))


def test_marginal_prior_keeps_means_and_covariances_and_drops_correlations():
    problem = big_problem(9)
    d, marginal = problem.dense, problem.prior.marginal()
    through = d.mixing @ d.latent_cov @ d.mixing.swapaxes(1, 2)
    assert_allclose(marginal.action_mean(), d.mixing @ d.latent_mean + d.offset)
    assert_allclose(marginal.action_cov(np.arange(12)), d.action_cov + through)
    assert marginal.latent_dim == 0
    assert_allclose(marginal.cross_cov([0], [1]), 0.0)


def test_dm_bayes_is_the_textbook_regression_of_each_action():
    problem = big_problem(10)
    prior = problem.prior.marginal()
    posterior = ma.fit(problem.logs, prior, ma.Gaussian(problem.noise_std))
    for a in range(12):
        x, r = (part[problem.logs.actions == a] for part in (problem.logs.contexts, problem.logs.rewards))
        precision = np.linalg.inv(prior.action_cov([a])[0])
        cov = np.linalg.inv(precision + x.T @ x / problem.noise_std**2)
        mean = cov @ (precision @ prior.action_mean([a])[0] + x.T @ r / problem.noise_std**2)
        assert_allclose(posterior.weights.action_cov([a])[0], cov, rtol=1e-8, atol=1e-12)
        assert_allclose(posterior.weights.action_mean([a])[0], mean, rtol=1e-8, atol=1e-12)


def test_dm_freq_is_scikit_learns_ridge():
    problem = big_problem(11)
    prior = ma.priors.ridge(12, 3, penalty=0.3, noise_std=0.7)
    posterior = ma.fit(problem.logs, prior, ma.Gaussian(0.7))
    for a in np.unique(problem.logs.actions):
        rows = problem.logs.actions == a
        ridge = Ridge(alpha=0.3, fit_intercept=False).fit(problem.logs.contexts[rows], problem.logs.rewards[rows])
        assert_allclose(posterior.weights.action_mean([a])[0], ridge.coef_, rtol=1e-8)


@pytest.mark.parametrize("mixing_form", ["dense", "one_hot"])
def test_actions_added_after_the_fit_equal_a_fit_with_them_from_the_start(mixing_form):
    problem = big_problem(12, mixing_form=mixing_form, cov_form="shared", offset_form="shared")
    d, likelihood = problem.dense, ma.Gaussian(problem.noise_std)
    half = np.arange(12) < 8
    logs = ma.LoggedData(d.contexts, d.actions % 8, d.rewards, n_actions=8)

    def part(mask):
        if mixing_form == "dense":
            return d.mixing[mask]
        return ma.MixedEffects(problem.prior.mixing.weights[np.flatnonzero(mask)], 3)

    shared = (d.action_cov[0], d.offset[0])
    small = ma.HierarchicalGaussian(d.latent_mean, d.latent_cov, part(half), *shared)
    grown = ma.fit(logs, small, likelihood).with_actions(part(~half))
    whole = ma.HierarchicalGaussian(d.latent_mean, d.latent_cov, part(half | ~half), *shared)
    expected = ma.fit(ma.LoggedData(d.contexts, d.actions % 8, d.rewards, n_actions=12), whole, likelihood)
    assert error(summary(grown), summary(expected)) < 1e-12
    # They can be logged and learned about afterwards.
    more = ma.LoggedData(d.contexts, d.actions, d.rewards, n_actions=12)
    assert error(summary(grown.update(more)), summary(expected.update(more))) < 1e-10


@pytest.mark.parametrize("mixing_form", ["dense", "sparse_effects", "none"])
def test_draws_have_the_mean_and_joint_covariance_of_the_posterior(mixing_form):
    problem = big_problem(13, n_actions=5, n_rounds=25, mixing_form=mixing_form)
    joint = DenseJoint(problem.dense)
    draws = problem.fit().weights.sample(np.random.default_rng(0), 40_000).reshape(40_000, -1)
    cov = joint.cov[joint.p :, joint.p :]
    centred = draws - joint.action_mean.reshape(-1)
    z = centred.mean(axis=0) / np.sqrt(np.diag(cov) / len(draws))
    assert np.abs(z).max() < 4.5
    spread = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / len(draws))
    assert (np.abs(centred.T @ centred / len(draws) - cov) / spread).max() < 4.5


def test_an_action_asked_for_twice_is_one_random_vector():
    draws = big_problem(14).fit().weights.sample(np.random.default_rng(0), 3, actions=[2, 5, 2])
    assert_allclose(draws[:, 0], draws[:, 2])
    assert not np.allclose(draws[:, 0], draws[:, 1])


def test_lift_is_the_ratio_of_values_and_its_error_that_of_posterior_draws():
    problem = big_problem(15, n_rounds=150, offset_form="none", action_scale=0.01)
    rng = np.random.default_rng(0)
    contexts = np.abs(rng.normal(size=(400, 3))) + 0.5
    logs = ma.LoggedData(contexts, rng.integers(0, 12, 400), 5 + rng.normal(size=400), n_actions=12)
    posterior = ma.fit(logs, problem.prior, ma.Gaussian(problem.noise_std))
    policy, baseline = ma.Greedy(posterior), ma.Uniform(12)
    lift = posterior.lift(policy, baseline, contexts)
    value, base = (posterior.value(p, contexts).value for p in (policy, baseline))
    assert_allclose(lift.value, (value - base) / base, rtol=1e-12)
    masses = [p.feature_mass(contexts) for p in (policy, baseline)]
    theta = posterior.weights.sample(rng, 20_000)
    first, second = (np.einsum("sad,ad->s", theta[:, m.actions], m.vectors) for m in masses)
    assert_allclose(lift.posterior_std, (first / second - 1).std(), rtol=0.05)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lift_against_a_gain_or_a_loss_has_the_error_of_draws_of_weights_and_of_contexts(sign):
    """The policy is worth about a half of the baseline or three times it: the baseline's own error counts for much."""
    rng = np.random.default_rng(0)
    means, stds = sign * np.array([[0.5, 0.7], [3.0, 4.0]]), np.array([0.1, 0.4])
    prior = ma.HierarchicalGaussian([0.0], 0.02, np.ones((2, 2, 1)), [s**2 * np.eye(2) for s in stds], offset=means)
    posterior = ma.fit(ma.LoggedData(np.empty((0, 2)), [], [], n_actions=2), prior)
    contexts = np.column_stack([np.ones(200), rng.uniform(0, 1, 200)])
    for policy, baseline in ((0, 1), (1, 0)):
        found = posterior.lift(ma.TablePolicy(np.eye(2)[policy]), ma.TablePolicy(np.eye(2)[baseline]), contexts)
        rows = [contexts @ means[a] for a in (policy, baseline)]
        assert_allclose(found.value, (rows[0].mean() - rows[1].mean()) / abs(rows[1].mean()), rtol=1e-9)
        draws = (
            np.sqrt(0.02) * rng.normal(size=(40_000, 1, 1)) + means + stds[:, None] * rng.normal(size=(40_000, 2, 2))
        )
        values = draws @ contexts.mean(axis=0)
        ratio = (values[:, policy] - values[:, baseline]) / np.abs(values[:, baseline])
        # The spread of the middle of the draws: a ratio has longer tails than its linear approximation.
        low, high = np.quantile(ratio, [0.16, 0.84])
        assert_allclose(found.posterior_std, (high - low) / 2, rtol=0.1)
        bootstrap = rng.integers(0, 200, (4000, 200))
        first, second = (row[bootstrap].mean(axis=1) for row in rows)
        assert_allclose(found.context_std, ((first - second) / np.abs(second)).std(), rtol=0.1)


def test_lift_is_refused_when_the_baseline_may_be_zero():
    problem = big_problem(16)
    with pytest.raises(ma.errors.UndefinedLiftError, match=r"difference\(\)"):
        problem.fit().lift(ma.Uniform(12), ma.Uniform(12), np.zeros((3, 3)))


def test_features_an_action_never_saw_leave_the_prior_there():
    """One-hot contexts give singular Gram matrices: exactly singular, and with zero rows."""
    dim, n = 4, 60
    rng = np.random.default_rng(0)
    contexts = np.eye(dim)[rng.integers(0, dim - 1, n)]
    actions, rewards = np.arange(n) % 3, rng.normal(size=n)
    prior = ma.priors.independent(3, mean=np.ones(dim), cov=2.0)
    posterior = ma.fit(ma.LoggedData(contexts, actions, rewards), prior, ma.Gaussian(0.5))
    assert_allclose(posterior.weights.action_mean()[:, -1], 1.0)
    for a in range(3):
        for j in range(dim - 1):
            mine = rewards[(actions == a) & (contexts[:, j] == 1)]
            precision = 1 / 2.0 + len(mine) / 0.25
            assert_allclose(posterior.weights.action_mean()[a, j], (1 / 2.0 + mine.sum() / 0.25) / precision, rtol=1e-9)
    # Linearly dependent columns (an intercept beside all one-hots): no zero row, yet singular.
    wide = np.column_stack([contexts[:, :3], np.ones(n)])
    posterior = ma.fit(ma.LoggedData(wide, actions, rewards), prior, ma.Gaussian(0.5))
    for a in range(3):
        x, r = wide[actions == a], rewards[actions == a]
        mean = np.linalg.solve(np.eye(dim) / 2 + x.T @ x / 0.25, np.ones(dim) / 2 + x.T @ r / 0.25)
        assert_allclose(posterior.weights.action_mean([a])[0], mean, rtol=1e-8)


def test_statistics_of_shards_are_fitted_as_logs_are():
    problem = big_problem(17)
    likelihood, n = ma.Gaussian(problem.noise_std), len(problem.logs)
    shards = [likelihood.statistics(problem.logs.take(slice(i, n, 3)), 12) for i in range(3)]
    assert error(summary(ma.fit(sum(shards), problem.prior, likelihood)), summary(problem.fit())) < 1e-10


def test_offsets_of_new_actions_need_none_on_the_old():
    problem = big_problem(18, mixing_form="dense", offset_form="none", cov_form="scalar")
    new = np.random.default_rng(0).normal(size=(2, 3))
    grown = problem.fit().with_actions(np.zeros((2, 3, 4)), offset=new)
    assert_allclose(grown.weights.action_mean()[12:], new)
    assert_allclose(grown.weights.action_mean()[:12], problem.fit().weights.action_mean())


def test_contexts_may_be_weighted():
    problem = big_problem(19)
    posterior, rng = problem.fit(), np.random.default_rng(0)
    x, counts = rng.normal(size=(20, 3)), rng.integers(0, 3, 20)
    greedy, uniform = ma.Greedy(posterior), ma.Uniform(12)
    got = posterior.difference(greedy, uniform, x, weights=counts)
    expected = posterior.difference(greedy, uniform, np.repeat(x, counts, axis=0))
    assert_allclose([got.value, got.posterior_std, got.context_std],
                    [expected.value, expected.posterior_std, expected.context_std])  # fmt: skip


def test_one_context_claims_no_error_of_contexts():
    found = big_problem(20).fit().value(ma.Uniform(12), np.ones((1, 3)))
    assert found.context_std is None
    assert found.std == found.posterior_std
    assert found.warnings


def test_units_of_features_do_not_matter_where_gram_matrices_are_singular():
    """An unscaled column (a timestamp) beside an action whose rounds are all alike, which cannot be factored."""
    rng, n = np.random.default_rng(0), 60
    x = np.column_stack([np.ones(n), rng.normal(size=n), 1.7e9 + 1e7 * rng.normal(size=n)])
    r = x @ [1, 2, 1e-9] + 0.1 * rng.normal(size=n)
    prior = ma.priors.independent(2, cov=np.array([1, 1, 1e-18]))
    alone = ma.fit(ma.LoggedData(x, np.zeros(n, dtype=int), r, n_actions=2), prior, ma.Gaussian(0.1))
    beside = np.vstack([x, np.repeat(x[:1], 5, axis=0)])
    actions = np.repeat([0, 1], [n, 5])
    logs = ma.LoggedData(beside, actions, np.concatenate([r, np.repeat(r[:1], 5)]))
    both = ma.fit(logs, prior, ma.Gaussian(0.1))
    scale = np.array([1, 1, 1e-9])
    assert_allclose(both.weights.action_mean([0]) / scale, alone.weights.action_mean([0]) / scale, rtol=1e-8)
    outer = np.outer(scale, scale)
    assert_allclose(both.weights.action_cov([0]) / outer, alone.weights.action_cov([0]) / outer, rtol=1e-6, atol=1e-9)


def test_no_uncertainty_in_the_null_direction_of_a_singular_covariance():
    for seed in range(50):
        root = np.random.default_rng(seed).normal(size=(3, 2))
        cov = root @ root.T
        prior = ma.priors.independent(2, cov=(cov + cov.T) / 2)
        null = np.cross(root[:, 0], root[:, 1])[None]
        std = ma.fit(ma.LoggedData(np.empty((0, 3)), [], [], n_actions=2), prior).value(ma.Uniform(2), null).std
        assert 0 <= std < 1e-7


@pytest.mark.slow
@settings(max_examples=60)
@given(recipe=recipes(action_scales=(1.0, 1e3), noise_stds=(0.1,)))
def test_singular_covariances_are_as_exact_as_others(recipe):
    problem = make_problem(**(recipe | {"cov_form": "singular", "n_rounds": 30}))
    if problem.largest_eigenvalue() < 1e6:
        found = errors(problem)
        assert max(found.values()) < 1e-10, found


def test_an_action_is_the_same_whoever_is_asked_for_beside_it():
    """One singular Σ_a among definite ones must not change the root that the others are used with."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 3, 3))
    covs = root @ root.swapaxes(1, 2) + 0.1 * np.eye(3)
    covs[::2, 2, :] = covs[::2, :, 2] = 0.0
    prior = ma.HierarchicalGaussian(np.zeros(2), 1.0, rng.normal(size=(6, 3, 2)), covs)
    logs = ma.LoggedData(rng.normal(size=(40, 3)), rng.integers(0, 6, 40), rng.normal(size=40), n_actions=6)
    for weights in (ma.fit(logs, prior).weights, ma.fit(logs, prior.marginal()).weights):
        everyone, mass = np.arange(6), rng.normal(size=(6, 3))
        alone = [weights.action_mean([a])[0] for a in everyone]
        assert_allclose(weights.action_mean(everyone), alone, rtol=1e-12)
        spread = [weights.action_cov([a])[0] for a in everyone]
        assert_allclose(weights.action_cov(everyone), spread, rtol=1e-10, atol=1e-14)
        left, right = (part.ravel() for part in np.meshgrid(everyone, everyone, indexing="ij"))
        across = weights.cross_cov(left, right).reshape(6, 6, 3, 3)
        assert_allclose(
            weights.covariances_with(mass, everyone), np.einsum("abij,bj->ai", across, mass), rtol=1e-9, atol=1e-12
        )
        for a in everyone:
            assert_allclose(weights.variance_of(mass[[a]], everyone[[a]]), mass[a] @ spread[a] @ mass[a], rtol=1e-10)


def test_a_discounted_posterior_is_that_of_rounds_logged_with_less_weight():
    """Half of them as rows, half as sums; three times a round at weight 1/3 is that round."""
    rng = np.random.default_rng(5)
    x, actions, rewards = (
        rng.normal(size=(90, 3)),
        np.append(np.zeros(60, dtype=int), np.arange(30)),
        rng.normal(size=90),
    )
    prior = ma.priors.from_categories(np.arange(40) % 4, dim=3)
    thrice = ma.LoggedData(np.tile(x, (3, 1)), np.tile(actions, 3), np.tile(rewards, 3), n_actions=40)
    found = ma.fit(thrice, prior, ma.Gaussian(0.7)).discounted(1 / 3)
    expected = ma.fit(ma.LoggedData(x, actions, rewards, n_actions=40), prior, ma.Gaussian(0.7))
    assert_allclose(found.weights.action_mean(), expected.weights.action_mean(), rtol=1e-10, atol=1e-12)
    everyone = np.arange(40)
    assert_allclose(found.weights.action_cov(everyone), expected.weights.action_cov(everyone), rtol=1e-10, atol=1e-12)
    with pytest.raises(ma.errors.RangeError, match="at most 1"):
        expected.discounted(2.0)


@pytest.mark.parametrize(
    ("gap", "noise", "warned"),
    [
        (1e-9, 1e-9, True),
        (1e-6, 1e-9, True),
        (1e-10, 1e-9, True),
        (1e-3, 1e-12, True),
        (1e-3, 1e-6, False),
        (1e-9, 1.0, False),
    ],
)
def test_rounding_that_moves_the_mean_of_collinear_features_is_warned_about(gap, noise, warned):
    rng, n = np.random.default_rng(0), 40
    z = rng.normal(size=n)
    x = np.column_stack([z, z + gap * rng.normal(size=n), np.ones(n)])
    r = x @ [0.5, -0.3, 0.2] + noise * rng.normal(size=n)
    prior = ma.HierarchicalGaussian(np.zeros(3), 1.0, ma.MixedEffects(np.zeros((1, 1)), 3), 1.0)
    posterior = ma.fit(ma.LoggedData(x, np.zeros(n, dtype=int), r, n_actions=1), prior, ma.Gaussian(noise))
    with mpmath.workdps(60):
        exact, rewards = mpmath.matrix(x.tolist()), mpmath.matrix([mpmath.mpf(value) for value in r.tolist()])
        cov = (exact.T * exact / mpmath.mpf(noise) ** 2 + mpmath.eye(3)) ** -1
        mean = cov * (exact.T * rewards) / mpmath.mpf(noise) ** 2
        found = posterior.weights.action_mean(np.array([0]))[0]
        shift = max(abs(float((mpmath.mpf(found[i]) - mean[i]) / mpmath.sqrt(cov[i, i]))) for i in range(3))
    assert (shift > 0.01) == warned
    assert any("collinear" in text for text in posterior.warnings) == warned


def test_evidence_on_the_latent_that_overflows_in_sums_is_refused(monkeypatch):
    monkeypatch.setattr(latent, "QR_BUDGET", 0)
    prior = ma.HierarchicalGaussian(np.zeros(2), 1e200, np.ones((3, 1, 2)), 0.0)
    logs = ma.LoggedData(np.full((6, 1), 1e80), np.arange(6) % 3, np.ones(6), n_actions=3)
    with pytest.raises(NumericalError, match=r"the evidence on the latent parameter overflows\. Rescale contexts"):
        ma.fit(logs, prior, ma.Gaussian(1.0))


def test_one_group_of_contexts_claims_no_error_of_contexts():
    problem = big_problem(0)
    contexts = np.random.default_rng(0).normal(size=(6, problem.prior.dim))
    posterior, policy = problem.fit(), ma.Uniform(problem.prior.n_actions)
    one = posterior.value(policy, contexts, groups=np.zeros(6, dtype=int))
    two = posterior.value(policy, contexts, groups=np.arange(6) % 2)
    assert not one.context_std and two.context_std > 0
    assert one.value == two.value
