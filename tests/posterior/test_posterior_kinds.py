"""Every kind of posterior has the same interface: values, every policy, evaluate and decide."""

from __future__ import annotations

import shutil
from functools import cache
from tempfile import mkdtemp

import jaxtyping
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax

import manyarms as ma
from manyarms.nonlinear import NonlinearHierarchy
from manyarms.posterior.reward_width import confidence_radius
from manyarms.prior_learning.averaged_posterior import AveragedPosterior, PosteriorsByPrior

K, D, N = 6, 2, 160
CATEGORIES = np.repeat(np.eye(2), K // 2, axis=0)


def draw_logs(kind: str) -> ma.LoggedData:
    """Rounds on five of six actions: linear rewards, clicks, or purchases."""
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(N), rng.normal(size=N)])
    actions, theta = rng.integers(K - 1, size=N), rng.normal(size=(K, D))
    eta = np.einsum("nd,nd->n", x, theta[actions])
    if kind == "linear":
        return ma.LoggedData(x, actions, 2.0 + eta + 0.5 * rng.normal(size=N), n_actions=K)
    clicks = (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(float)
    amounts = np.exp(0.3 * eta + 0.2 * rng.normal(size=N))
    return ma.LoggedData(x, actions, clicks if kind == "clicks" else clicks * amounts, n_actions=K)


def categories_prior() -> ma.HierarchicalGaussian:
    return ma.HierarchicalGaussian(np.zeros(4), 1.0, ma.MixedEffects(CATEGORIES, dim=D), action_cov=0.3)


def saturating() -> NonlinearHierarchy:
    loadings = np.random.default_rng(0).normal(size=(K, D, 2))
    return NonlinearHierarchy(
        np.zeros(2), 1.0, lambda psi, actions: loadings[actions] @ np.tanh(psi), 0.5, n_actions=K, dim=D
    )


MAKERS = {
    "linear": lambda: ma.fit(draw_logs("linear"), categories_prior(), ma.Gaussian(0.5)),
    "clicks": lambda: ma.fit(draw_logs("clicks"), categories_prior(), ma.Bernoulli()),
    "hurdle": lambda: ma.fit(draw_logs("bought"), categories_prior(), ma.Hurdle(ma.Bernoulli(), ma.LogNormal(0.3))),
    "averaged": lambda: ma.learn_prior(draw_logs("linear"), categories_prior(), ma.Gaussian(0.5)).averaged(
        5, rng=np.random.default_rng(1)
    ),
    "averaged clicks": lambda: ma.learn_prior(draw_logs("clicks"), categories_prior(), ma.Bernoulli()).averaged(
        5, rng=np.random.default_rng(1)
    ),
    "sharded": lambda: ma.fit_sharded(draw_logs("linear"), categories_prior(), ma.Gaussian(0.5), out=mkdtemp()),
    "linearised": lambda: ma.fit_nonlinear(draw_logs("linear"), saturating(), ma.Gaussian(0.5)),
    "sampled": lambda: ma.sample_posterior(
        draw_logs("linear"), saturating(), ma.Gaussian(0.5), 80, rng=np.random.default_rng(2), warmup=20
    ),
    "sampled clicks": lambda: ma.sample_posterior(
        draw_logs("clicks"), saturating(), ma.Bernoulli(), 80, rng=np.random.default_rng(2), warmup=20
    ),
}


@cache
def posterior_of(kind: str) -> ma.Posterior:
    return MAKERS[kind]()


def contexts(n: int = 40) -> np.ndarray:
    rng = np.random.default_rng(8)
    return np.column_stack([np.ones(n), rng.normal(size=n)])


def tables(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    return rng.dirichlet(np.ones(K), size=n), rng.dirichlet(np.ones(K), size=n)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_value_is_the_mean_of_expected_rewards(kind):
    posterior, x, (first, second) = posterior_of(kind), contexts(), tables()
    rewards = posterior.expected_reward(x)
    assert rewards.shape == (40, K)
    everyone = np.tile(np.arange(K), 40)
    assert_allclose(posterior.expected_reward(np.repeat(x, K, axis=0), everyone), rewards.reshape(-1), rtol=1e-9)
    policy, baseline = ma.TablePolicy(first), ma.TablePolicy(second)
    values = [np.mean(np.sum(table * rewards, axis=1)) for table in (first, second)]
    difference = posterior.difference(policy, baseline, x)
    assert posterior.value(policy, x).value == pytest.approx(values[0], rel=1e-9)
    assert difference.value == pytest.approx(values[0] - values[1], abs=1e-9)
    # Clear of zero, so that a relative change is defined.
    lift = posterior.lift(policy, baseline, x)
    assert lift.value == pytest.approx((values[0] - values[1]) / abs(values[1]), abs=1e-9)
    low, high = lift.interval()
    assert low < lift.value < high


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_the_value_of_one_choice_is_as_wide_as_its_reward(kind):
    posterior, x = posterior_of(kind), contexts(1)
    for action in range(K):
        table = np.eye(K)[[action]]
        std = posterior.value(ma.TablePolicy(table), x).posterior_std
        assert posterior.reward_std(x, [action])[0] == pytest.approx(std, rel=1e-6)


@pytest.mark.parametrize("kind", MAKERS)
def test_an_estimate_tells_the_share_of_choices_never_logged(kind):
    posterior = posterior_of(kind)
    assert posterior.value(ma.Uniform(K), contexts()).diagnostics["unsupported_mass"] == pytest.approx(1 / K)
    assert (posterior.n_actions, posterior.dim) == (K, D)
    assert len(posterior.learned_from) == 1
    assert all(isinstance(text, str) for text in posterior.warnings)


@pytest.mark.parametrize("eligible", [None, [[0, 2, 5]] * 40], ids=["all", "some"])
@pytest.mark.parametrize("kind", MAKERS)
def test_greedy_and_softmax_follow_expected_rewards(kind, eligible):
    posterior, x = posterior_of(kind), contexts()
    rewards = posterior.expected_reward(x).copy()
    if eligible is not None:
        rewards[:, [1, 3, 4]] = -np.inf
    greedy = ma.Greedy(posterior)
    assert_allclose(greedy.actions(x, eligible=eligible), rewards.argmax(axis=1))
    assert_allclose(greedy.top_k(x, 3, eligible=eligible), np.argsort(-rewards, axis=1)[:, :3])
    probabilities = ma.Softmax(posterior, 0.2).probabilities(x, eligible=eligible)
    assert_allclose(probabilities, softmax(rewards / 0.2, axis=1), atol=1e-9)


@pytest.mark.parametrize("eligible", [None, [[0, 2, 5]] * 40], ids=["all", "some"])
@pytest.mark.parametrize("kind", MAKERS)
def test_pessimistic_maximises_a_lower_bound(kind, eligible):
    posterior, x = posterior_of(kind), contexts()
    weights = posterior.predictor_weights
    assert (weights is None) == (kind in ("hurdle", "averaged", "averaged clicks", "sampled", "sampled clicks"))
    if weights is None:
        rows, everyone = np.repeat(x, K, axis=0), np.tile(np.arange(K), len(x))
        mean, std = posterior.expected_reward(x), posterior.reward_std(rows, everyone).reshape(-1, K)
    else:
        mean = x @ weights.action_mean().T
        std = np.sqrt(np.einsum("nd,ade,ne->na", x, weights.action_cov(np.arange(K)), x))
    bounds = mean - confidence_radius(2 * D if kind == "hurdle" else D, 0.1) * std
    if eligible is not None:
        bounds[:, [1, 3, 4]] = -np.inf
    policy = ma.Pessimistic(posterior, 0.1)
    assert_allclose(policy.actions(x, eligible=eligible), bounds.argmax(axis=1))
    assert_allclose(policy.top_k(x, 2, eligible=eligible), np.argsort(-bounds, axis=1)[:, :2])


@pytest.mark.parametrize("kind", MAKERS)
def test_thompson_counts_the_draws_in_which_an_action_is_best(kind):
    posterior, x = posterior_of(kind), contexts()
    policy = ma.Thompson(posterior, 60, rng=np.random.default_rng(4))
    assert policy.n_draws == 60
    reward = np.ones((60, len(x), K))
    for factor in policy._factors:
        reward *= factor.likelihood.reward_given(np.einsum("nd,sad->sna", x, factor.theta(0, np.arange(K))))
    shares = np.stack([(reward.argmax(axis=2) == action).mean(axis=0) for action in range(K)], axis=1)
    assert_allclose(policy.probabilities(x), shares)
    sampled = policy.sample(np.repeat(x[:1], 400, axis=0), np.random.default_rng(5))
    # Up to 60 fresh draws stand behind 400 samples.
    assert_allclose(np.bincount(sampled, minlength=K) / 400, shares[0], atol=0.4)


@pytest.mark.parametrize("kind", MAKERS)
def test_draws_of_values_agree_with_the_value(kind):
    posterior, x, (first, second) = posterior_of(kind), contexts(), tables()
    policies = ma.TablePolicy(first), ma.TablePolicy(second)
    plain = posterior.difference(*policies, x)
    drawn = posterior.value_draws(policies[0], x, baseline=policies[1], n_draws=400, rng=np.random.default_rng(6))
    draws = drawn.posterior_shape.draws
    assert len(draws) == (80 if kind.startswith("sampled") else 400)
    # Where rewards are not linear the delta method is only near the draws.
    error = 5 * draws.std() / np.sqrt(len(draws)) + (0.0 if kind in ("linear", "sharded", "averaged") else 0.02)
    assert draws.mean() == pytest.approx(plain.value, abs=error)
    # A log-normal amount of an action never logged has a tail that the delta method does not see.
    assert drawn.posterior_std == pytest.approx(plain.posterior_std, rel=1.0 if kind == "hurdle" else 0.35)


def test_a_sharded_posterior_is_the_fitted_one():
    fitted, sharded, x, (first, second) = posterior_of("linear"), posterior_of("sharded"), contexts(), tables()
    policies = ma.TablePolicy(first), ma.TablePolicy(second)
    for verb in ("difference", "lift"):
        got, expected = (getattr(posterior, verb)(*policies, x) for posterior in (sharded, fitted))
        for name in ("value", "std", "posterior_std", "context_std"):
            assert getattr(got, name) == pytest.approx(getattr(expected, name), rel=1e-9)
        assert got.diagnostics == pytest.approx(expected.diagnostics)
        assert got.method == expected.method
    actions = np.arange(40) % K
    assert_allclose(sharded.reward_std(x, actions), fitted.reward_std(x, actions), rtol=1e-9)
    thompson = [ma.Thompson(posterior, 50, rng=np.random.default_rng(7)) for posterior in (sharded, fitted)]
    assert_allclose(thompson[0].probabilities(x), thompson[1].probabilities(x))


def test_an_average_over_one_prior_is_the_posterior_under_it():
    fitted, x, (first, second) = posterior_of("clicks"), contexts(), tables()
    single = AveragedPosterior(fitted, PosteriorsByPrior([fitted.weights]), np.ones(1))
    policies = ma.TablePolicy(first), ma.TablePolicy(second)
    for verb in ("difference", "lift"):
        got, expected = (getattr(posterior, verb)(*policies, x) for posterior in (single, fitted))
        assert got.value == pytest.approx(expected.value, rel=1e-9)
        assert got.std == pytest.approx(expected.std, rel=1e-9)
    actions = np.arange(40) % K
    assert_allclose(single.expected_reward(x), fitted.expected_reward(x), rtol=1e-9)
    assert_allclose(single.reward_std(x, actions), fitted.reward_std(x, actions), rtol=1e-9)


@pytest.mark.parametrize("kind", MAKERS)
def test_evaluate_and_decide_take_any_posterior(kind):
    posterior = posterior_of(kind)
    logs = draw_logs({"hurdle": "bought"}.get(kind, "clicks" if kind.endswith("clicks") else "linear"))
    held_out = logs.take(slice(0, 60))
    policies = {"greedy": ma.Greedy(posterior), "uniform": ma.Uniform(K)}
    evaluation = ma.evaluate(policies, held_out, posterior, pairs=True)
    for row in evaluation.policies:
        policy, baseline = policies[row.name], ma.Logged(held_out)
        expected = posterior.value(policy, held_out.contexts), posterior.difference(policy, baseline, held_out.contexts)
        for got, estimate in zip((row.value, row.difference), expected, strict=True):
            assert got.value == pytest.approx(estimate.value, rel=1e-9)
            assert got.std == pytest.approx(estimate.std, rel=1e-9)
            assert got.warnings == estimate.warnings
    decision = ma.decide(policies, held_out, posterior, categories=[str(c) for c in CATEGORIES.argmax(axis=1)])
    assert decision.evaluation.policies[0].value.value == pytest.approx(evaluation.policies[0].value.value)
    assert str(decision)


def test_thompson_of_a_hurdle_survives_a_file(tmp_path):
    policy = ma.Thompson(posterior_of("hurdle"), 30, rng=np.random.default_rng(4))
    policy.save(tmp_path / "policy.arrow")
    again = ma.load(tmp_path / "policy.arrow")
    assert_allclose(again.probabilities(contexts()), policy.probabilities(contexts()), rtol=0)


@pytest.mark.parametrize("kind", ["averaged", "sampled", "sharded"])
def test_a_policy_of_a_posterior_that_is_not_saved_says_what_to_do(kind, tmp_path):
    for policy in (ma.Greedy(posterior_of(kind)), ma.Thompson(posterior_of(kind), 5, rng=np.random.default_rng(0))):
        with pytest.raises(ma.errors.DataTypeError, match="cannot be saved"):
            policy.save(tmp_path / "policy.arrow")


@pytest.fixture
def unchecked():
    """The package as users have it: its own errors, not those of the shape checks that tests turn on."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked")
def test_a_policy_of_something_else_is_refused():
    for make in (ma.Greedy, ma.Pessimistic, lambda p: ma.Softmax(p, 1.0), lambda p: ma.Thompson(p, rng=None)):
        with pytest.raises(ma.errors.DataTypeError, match="posterior must be what"):
            make(categories_prior())


@pytest.mark.parametrize("damage", ["gone", "cut short", "from another fit"])
def test_a_sharded_posterior_whose_files_are_not_all_there_is_not_a_prior(damage, tmp_path):
    posterior = ma.fit_sharded(draw_logs("linear"), categories_prior(), out=tmp_path / "actions")
    file = next(posterior.folder.glob("*.parquet"))
    if damage == "gone":
        file.unlink()
    elif damage == "cut short":
        file.write_bytes(file.read_bytes()[:-20])
    else:
        shutil.copy(file, file.with_name("actions-9.parquet"))
    with pytest.raises(ma.errors.ModelFileError, match="fit again into an empty folder"):
        posterior.reward_std(np.ones((1, D)), [0])


def test_a_sharded_posterior_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    posterior = ma.fit_sharded(draw_logs("linear"), categories_prior(), out="actions")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    expected = ma.fit(draw_logs("linear"), categories_prior()).reward_std(np.ones((1, D)), [0])
    assert_allclose(posterior.reward_std(np.ones((1, D)), [0]), expected, rtol=1e-9)


def test_a_sharded_fit_that_cannot_be_is_refused_and_one_without_rounds_is_the_prior(tmp_path):
    logs, prior = draw_logs("linear"), categories_prior()
    for words, arguments, out in (
        (r"Bernoulli needs several passes.*Use fit\(\)", (draw_logs("clicks"), prior, ma.Bernoulli()), "a"),
        ("prior must not be an earlier posterior", (logs, ma.fit(logs, prior).weights), "a"),
    ):
        with pytest.raises(ma.errors.InputError, match=words):
            ma.fit_sharded(*arguments, out=tmp_path / out)
    (tmp_path / "file").write_text("")
    with pytest.raises(ma.errors.OutputFileError, match=r"cannot be a folder: .*Name another folder"):
        ma.fit_sharded(logs, prior, out=tmp_path / "file" / "shards")
    fitted = ma.fit_sharded(logs, prior, ma.Gaussian(0.5), out=tmp_path / "shards")
    assert repr(fitted) == (
        f"ShardedPosterior(5 actions seen, d'=4, log evidence {fitted.log_evidence:.6g}, in {tmp_path / 'shards'})"
    )
    # The last action was never logged, so nothing of it is in the files.
    alone = ma.TablePolicy(np.eye(K)[K - 1])
    whole = ma.fit(logs, prior, ma.Gaussian(0.5))
    assert_allclose(fitted.value(alone, contexts()).value, whole.value(alone, contexts()).value)
    empty = ma.fit_sharded(logs.take(np.arange(0)), prior, out=tmp_path / "empty")
    assert empty.seen_actions[0].tolist() == [] and empty.n_seen == 0
    assert_allclose(empty.value(alone, contexts()).posterior_std, ma.fit(logs.take(np.arange(0)), prior).value(
        alone, contexts()
    ).posterior_std)  # fmt: skip
