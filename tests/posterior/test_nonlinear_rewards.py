"""Values, policies and learned priors when rewards are not linear in the weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

import manyarms as ma
from manyarms.errors import InputError, RangeError
from manyarms.prior_learning.evidence import ApproximateEvidence
from manyarms.prior_learning.hyperparameters import Hyperparameters


def draw_clicks(seed, n_actions=12, dim=2, n_rounds=300, centre=-1.0):
    rng = np.random.default_rng(seed)
    category = rng.integers(0, 3, n_actions)
    prior = ma.priors.from_categories(category, dim=dim, effect_std=0.7, action_std=0.5)
    prior += ma.priors.independent(n_actions, mean=np.array([centre] + [0.0] * (dim - 1)), cov=0.0)
    theta = prior.sample(rng)[0]
    x = rng.normal(size=(n_rounds, dim))
    x[:, 0] = 1.0
    actions = rng.integers(0, n_actions - 2, n_rounds)
    rewards = (rng.random(n_rounds) < expit(np.einsum("nd,nd->n", x, theta[actions]))).astype(float)
    return prior, ma.LoggedData(x, actions, rewards, n_actions=n_actions), rng


def stacked(posterior):
    """Mean and covariance of all weights in one vector."""
    K, d = posterior.n_actions, posterior.dim
    left, right = (part.ravel() for part in np.meshgrid(np.arange(K), np.arange(K), indexing="ij"))
    cov = posterior.weights.cross_cov(left, right).reshape(K, K, d, d).transpose(0, 2, 1, 3).reshape(K * d, K * d)
    return posterior.weights.action_mean().reshape(-1), cov


LIKELIHOODS = [
    ma.Bernoulli(),
    ma.Bernoulli("laplace"),
    ma.Bernoulli(expected="quadrature"),
    ma.Poisson(),
    ma.LogNormal(0.5),
]


def fitted(likelihood):
    prior, logs, rng = draw_clicks(1)
    if isinstance(likelihood, ma.LogNormal):
        logs = logs.with_rewards(1.0 + logs.rewards)
    return ma.fit(logs, prior, likelihood), logs, rng


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_value_is_the_delta_method_written_out(likelihood):
    """V = mean_i Σ_a π(a | x_i) E g(η_ia), and its variance J Cov Jᵀ with J the derivative by every weight."""
    posterior, logs, rng = fitted(likelihood)
    x, K, d = logs.contexts[:40], 12, 2
    table = rng.dirichlet(np.ones(K), size=40)
    mean, cov = stacked(posterior)
    blocks = cov.reshape(K, d, K, d)[np.arange(K), :, np.arange(K)]
    eta, variance = x @ mean.reshape(K, d).T, np.einsum("ni,aij,nj->na", x, blocks, x)
    rows = np.sum(table * likelihood.mean_reward(eta, variance), axis=1)
    slope = table * likelihood.mean_slope(eta, variance)
    J = np.einsum("na,nd->ad", slope, x).reshape(-1) / 40
    policies = {
        "table": ma.TablePolicy(table),
        "greedy": ma.Greedy(posterior),
        "uniform": ma.Uniform(K),
        "mixed": ma.EpsilonGreedy(ma.Greedy(posterior), 0.4),
    }
    got = posterior.value(policies["table"], x)
    assert got.method == "delta"
    assert got.value == pytest.approx(rows.mean(), rel=1e-10)
    assert got.posterior_std == pytest.approx(np.sqrt(J @ cov @ J), rel=1e-9)
    for name, policy in policies.items():
        # Whatever its form, a policy is worth what its table of probabilities is worth.
        written_out = ma.TablePolicy(policy.probabilities(x))
        one, other = posterior.value(policy, x), posterior.value(written_out, x)
        assert_allclose([one.value, one.posterior_std], [other.value, other.posterior_std], rtol=1e-9, err_msg=name)
    gap = posterior.difference(policies["table"], policies["uniform"], x)
    base = posterior.value(policies["uniform"], x)
    assert gap.value == pytest.approx(got.value - base.value, abs=1e-12)


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_draws_and_delta_method_agree(likelihood):
    """Where the posterior is narrow; draws are within four standard errors, and the same for a difference."""
    prior, logs, rng = draw_clicks(2, n_rounds=4000)
    if isinstance(likelihood, ma.LogNormal):
        logs = logs.with_rewards(1.0 + logs.rewards)
    posterior = ma.fit(logs, prior, likelihood)
    x, seen = logs.contexts[:50], np.arange(12) < 10  # an action never logged has a wide, skewed reward
    for policy in (ma.Uniform(12), ma.Greedy(posterior)):
        exact = posterior.value(policy, x, eligible=seen)
        drawn = posterior.value_draws(policy, x, n_draws=2000, rng=rng, eligible=seen)
        assert drawn.method == "draws"
        assert drawn.value == exact.value
        mean = drawn.posterior_shape.draws.mean()
        assert mean == pytest.approx(exact.value, abs=4 * drawn.diagnostics["monte_carlo_std"] + 1e-6)
        assert drawn.posterior_std == pytest.approx(exact.posterior_std, rel=0.12)
        assert_allclose(drawn.interval(of="contexts"), exact.interval(of="contexts"), atol=0.3 * exact.posterior_std)
    gap = posterior.difference(ma.Greedy(posterior), ma.Uniform(12), x, eligible=seen)
    drawn = posterior.value_draws(
        ma.Greedy(posterior), x, baseline=ma.Uniform(12), n_draws=2000, rng=rng, eligible=seen
    )
    mean = drawn.posterior_shape.draws.mean()
    assert mean == pytest.approx(gap.value, abs=4 * drawn.diagnostics["monte_carlo_std"] + 1e-6)
    assert drawn.posterior_std == pytest.approx(gap.posterior_std, rel=0.12)


def test_greedy_and_softmax_follow_expected_rewards():
    for likelihood in LIKELIHOODS:
        posterior, logs, rng = fitted(likelihood)
        x = logs.contexts[:60]
        expected = posterior.expected_reward(x)
        assert_allclose(ma.Greedy(posterior).actions(x), expected.argmax(axis=1))
        top = ma.Greedy(posterior).top_k(x, 4)
        assert_allclose(np.take_along_axis(expected, top, axis=1), np.sort(expected, axis=1)[:, ::-1][:, :4])
        allowed = [sorted(rng.choice(12, size=5, replace=False).tolist()) for _ in range(60)]
        chosen = ma.Greedy(posterior).actions(x, eligible=allowed)
        assert all(a == max(row, key=lambda b, e=e: e[b]) for a, row, e in zip(chosen, allowed, expected, strict=True))
        shares = np.exp(expected / 0.1 - (expected / 0.1).max(axis=1, keepdims=True))
        assert_allclose(ma.Softmax(posterior, 0.1).probabilities(x), shares / shares.sum(axis=1, keepdims=True))
        pairs = posterior.expected_reward(x, np.arange(60) % 12)
        assert_allclose(pairs, expected[np.arange(60), np.arange(60) % 12], rtol=1e-10)


def test_direct_method_judges_by_expected_rewards():
    posterior, logs, _ = fitted(ma.Bernoulli())
    estimate = ma.DM(posterior).estimate(ma.Uniform(12), logs)
    assert estimate.value == pytest.approx(posterior.expected_reward(logs.contexts).mean(), rel=1e-10)


def test_a_start_changes_the_way_and_not_the_end():
    prior, logs, _ = draw_clicks(3)
    cold = ma.fit(logs, prior, ma.Bernoulli(), tolerance=1e-10)
    warm = ma.fit(logs, prior, ma.Bernoulli(), start=cold, tolerance=1e-10)
    assert len(warm.trace) < len(cold.trace)
    assert_allclose(warm.weights.action_mean(), cold.weights.action_mean(), atol=1e-5)
    assert warm.log_evidence == pytest.approx(cold.log_evidence, abs=1e-8)


def test_update_is_near_a_fit_on_everything():
    """Old rounds keep the factors that were found without the new ones: close, and not the same."""
    prior, logs, _ = draw_clicks(4, n_rounds=600)
    whole = ma.fit(logs, prior, ma.Bernoulli())
    updated = ma.fit(logs.take(slice(0, 400)), prior, ma.Bernoulli()).update(logs.take(slice(400, 600)))
    value, other = (p.value(ma.Uniform(12), logs.contexts) for p in (whole, updated))
    assert other.value == pytest.approx(value.value, abs=0.2 * value.posterior_std)
    assert other.posterior_std == pytest.approx(value.posterior_std, rel=0.1)
    assert updated.statistics.n_rounds == 600
    assert updated.log_evidence == pytest.approx(whole.log_evidence, abs=1.0)
    again = updated.refit(logs)
    assert again.statistics.n_rounds == 600
    assert again.log_evidence == pytest.approx(whole.log_evidence, abs=1e-4)
    assert_allclose(again.weights.action_mean(), whole.weights.action_mean(), atol=2e-3)


def test_a_fit_that_was_cut_short_says_so():
    prior, logs, _ = draw_clicks(5)
    posterior = ma.fit(logs, prior, ma.Bernoulli(), max_iterations=1)
    assert not posterior.converged
    assert any("not converged" in text for text in posterior.value(ma.Uniform(12), logs.contexts).warnings)


def hurdle_problem(seed=6, n_actions=10, n_rounds=1500):
    rng = np.random.default_rng(seed)
    category = rng.integers(0, 3, n_actions)
    occurs, amount = (
        ma.priors.from_categories(category, dim=2, effect_std=0.5, action_std=0.3)
        + ma.priors.independent(n_actions, mean=np.array([centre, 0.0]), cov=0.0)
        for centre in (-0.5, 1.0)
    )
    first, second = occurs.sample(rng)[0], amount.sample(rng)[0]
    x = np.column_stack([np.ones(n_rounds), rng.normal(size=n_rounds)])
    actions = rng.integers(0, n_actions, n_rounds)
    buys = rng.random(n_rounds) < expit(np.einsum("nd,nd->n", x, first[actions]))
    size = np.exp(np.einsum("nd,nd->n", x, second[actions]) + 0.4 * rng.normal(size=n_rounds))
    return (occurs, amount), ma.LoggedData(x, actions, np.where(buys, size, 0.0), n_actions=n_actions), rng


def test_a_hurdle_is_a_product_of_two_posteriors():
    priors, logs, rng = hurdle_problem()
    posterior = ma.fit(logs, priors, ma.Hurdle(ma.Bernoulli(), ma.LogNormal(0.4)))
    buys = logs.with_rewards((logs.rewards > 0).astype(float))
    occurs = ma.fit(buys, priors[0], ma.Bernoulli())
    amount = ma.fit(logs.take(np.flatnonzero(logs.rewards)), priors[1], ma.LogNormal(0.4))
    assert posterior.log_evidence == pytest.approx(occurs.log_evidence + amount.log_evidence)
    x = logs.contexts[:80]
    expected = occurs.expected_reward(x) * amount.expected_reward(x)
    assert_allclose(posterior.expected_reward(x), expected)
    assert_allclose(ma.Greedy(posterior).actions(x), expected.argmax(axis=1))
    table = rng.dirichlet(np.ones(10), size=80)
    got = posterior.value(ma.TablePolicy(table), x)
    assert got.value == pytest.approx(np.sum(table * expected, axis=1).mean())
    # The variance of a product's mean: one delta term for each set of weights, and one for the product of their errors.
    total, slopes, covs = 0.0, [], []
    for one, other in ((occurs, amount), (amount, occurs)):
        mean, cov = stacked(one)
        blocks = cov.reshape(10, 2, 10, 2)[np.arange(10), :, np.arange(10)]
        eta, variance = x @ mean.reshape(10, 2).T, np.einsum("ni,aij,nj->na", x, blocks, x)
        slopes.append(one.likelihood.mean_slope(eta, variance))
        covs.append(cov)
        J = np.einsum("na,nd->ad", table * slopes[-1] * other.expected_reward(x), x).reshape(-1) / 80
        total += J @ cov @ J
    M = np.zeros((10, 2, 10, 2))
    M[np.arange(10), :, np.arange(10)] = np.einsum("na,ni,nj->aij", table * slopes[0] * slopes[1], x, x) / 80
    M = M.reshape(20, 20)
    total += np.trace(M.T @ covs[0] @ M @ covs[1])
    assert got.posterior_std == pytest.approx(np.sqrt(total), rel=1e-9)
    drawn = posterior.value_draws(ma.TablePolicy(table), x, n_draws=2000, rng=rng)
    mean = drawn.posterior_shape.draws.mean()
    assert mean == pytest.approx(got.value, abs=4 * got.posterior_std / np.sqrt(2000))
    assert drawn.posterior_std == pytest.approx(got.posterior_std, rel=0.15)


@pytest.mark.parametrize("likelihood", [ma.Bernoulli(), ma.Poisson(), ma.StudentT(1.0)], ids=str)
@pytest.mark.parametrize("means", ["integrated", "maximised"])
def test_gradient_of_the_lower_bound_is_that_of_its_differences(likelihood, means):
    prior, logs, rng = draw_clicks(7, n_rounds=150)
    evidence = ApproximateEvidence(logs, likelihood, 12)
    hyper = Hyperparameters(
        prior, likelihood.dispersion, evidence.seen, evidence.scale, effect_cov="diagonal", action_cov="scale",
        means=means, learn_noise=True,
    )  # fmt: skip
    eta = hyper.start() + 0.2 * rng.normal(size=hyper.size)
    _, slope = evidence.at(hyper, eta, avoid_boundary=True)
    differences = [
        (evidence.at(hyper, eta + row, avoid_boundary=True)[0] - evidence.at(hyper, eta - row, avoid_boundary=True)[0])
        / 2e-3
        for row in 1e-3 * np.eye(hyper.size)
    ]
    assert_allclose(slope, differences, rtol=5e-3, atol=5e-3)


@pytest.mark.slow
def test_a_prior_of_clicks_is_learned_and_compared():
    rng = np.random.default_rng(8)
    category = np.arange(120) % 12
    truth = ma.priors.from_categories(category, dim=2, effect_std=0.9, action_std=0.4)
    truth += ma.priors.independent(120, mean=np.array([-1.0, 0.5]), cov=0.0)
    theta = truth.sample(rng)[0]
    x = np.column_stack([np.ones(2500), rng.normal(size=2500)])
    actions = rng.integers(0, 120, 2500)
    clicks = (rng.random(2500) < expit(np.einsum("nd,nd->n", x, theta[actions]))).astype(float)
    logs = ma.LoggedData(x, actions, clicks, n_actions=120)
    learned = ma.learn_prior(logs, ma.priors.from_categories(category, dim=2), ma.Bernoulli())
    found = {p.name: p for p in learned.parameters}
    for name, value in (("actions std", 0.4), ("category std", 0.9)):
        assert abs(np.log(found[name].value / value)) < 3.5 * found[name].error
    assert found["category mean 0"].value == pytest.approx(-1.0, abs=3.5 * found["category mean 0"].error)
    assert isinstance(learned.likelihood, ma.Bernoulli)
    rivals = {"category": learned, "alone": ma.priors.independent(120, dim=2)}
    table = ma.compare_priors(logs, rivals, ma.Bernoulli(), n_folds=2)
    assert table.best == "category"
    averaged = learned.averaged(16, rng=rng).value(ma.Uniform(120), x[:200])
    plain = learned.posterior.value(ma.Uniform(120), x[:200])
    assert averaged.value == pytest.approx(plain.value, abs=plain.posterior_std)


def test_held_out_clicks_are_scored_by_their_probability():
    prior, logs, _ = draw_clicks(9, n_rounds=60)
    table = ma.compare_priors(logs, {"only": prior}, ma.Bernoulli(expected="quadrature"), n_folds=3)
    fold = np.random.default_rng(0).permutation(60) % 3
    total = 0.0
    for i in range(3):
        kind = ma.Bernoulli(expected="quadrature")
        p = ma.fit(logs.take(np.flatnonzero(fold != i)), prior, kind)
        rows = np.flatnonzero(fold == i)
        chance = p.expected_reward(logs.contexts[rows], logs.actions[rows])
        total += np.sum(np.log(np.where(logs.rewards[rows] == 1, chance, 1 - chance)))
    assert table.rows[0].held_out == pytest.approx(total / 60, rel=1e-6)


def test_rewards_outside_the_support_are_refused_by_row():
    prior, logs, _ = draw_clicks(0)
    half = logs.rewards.copy()
    half[7] = 0.5
    for likelihood, rewards, words in (
        (ma.Bernoulli(), half, "row 7 has 0.5"),
        (ma.Poisson(), -logs.rewards, "row"),
        (ma.LogNormal(1.0), logs.rewards, "row"),
    ):
        with pytest.raises(RangeError, match=words):
            ma.fit(logs.with_rewards(rewards), prior, likelihood)
    with pytest.raises(InputError, match="needs the rounds themselves"):
        ma.fit(ma.Gaussian().statistics(logs, 12), prior, ma.Bernoulli())
    with pytest.raises(InputError, match="all rewards are equal"):
        ma.learn_prior(logs.with_rewards(np.ones(300)), prior, ma.Bernoulli())
