import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import manyarms as ma
from manyarms.errors import InputError

N_ACTIONS, DIM = 12, 2


def problem(seed=0, n=60):
    """A log of a shop whose candidate is hardly better than its baseline."""
    rng = np.random.default_rng(seed)
    prior = ma.priors.from_categories(rng.integers(3, size=N_ACTIONS), dim=DIM, action_std=0.4)
    weights = prior.sample(rng)[0]
    shares = rng.dirichlet(np.ones(N_ACTIONS))
    contexts, actions = rng.normal(size=(n, DIM)), rng.choice(N_ACTIONS, p=shares, size=n)
    rewards = np.einsum("nd,nd->n", contexts, weights[actions]) + rng.normal(size=n)
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=N_ACTIONS)
    posterior = ma.fit(logs, prior, ma.Gaussian(1.0))
    candidate, baseline = ma.TablePolicy(np.eye(N_ACTIONS)[1]), ma.TablePolicy(np.eye(N_ACTIONS)[2])
    return posterior, candidate, baseline, ma.TablePolicy(shares), rng.normal(size=(50, DIM)) + 1.0


def dense_variance(posterior, difference, logging, contexts, n):
    """Var of the gain after n rounds, from the joint covariance of all weights and the mean information of a round."""
    k, d = posterior.n_actions, posterior.dim
    left, right = np.repeat(np.arange(k), k), np.tile(np.arange(k), k)
    joint = posterior.weights.cross_cov(left, right).reshape(k, k, d, d).swapaxes(1, 2).reshape(k * d, k * d)
    probabilities = logging.probabilities(contexts)
    information = np.zeros((k, d, k, d))
    for action in range(k):
        information[action, :, action] = (probabilities[:, action] * contexts.T) @ contexts / len(contexts)
    after = np.linalg.solve(np.eye(k * d) + n * joint @ information.reshape(k * d, k * d), joint)
    mass = (difference.T @ contexts / len(contexts)).reshape(-1)
    return float(mass @ after @ mass)


@pytest.mark.parametrize("n", [0, 7, 1000, 10**6])
def test_the_std_after_more_rounds_is_that_of_the_joint_posterior(n):
    posterior, candidate, baseline, logging, contexts = problem()
    difference = candidate.probabilities(contexts) - baseline.probabilities(contexts)
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging)
    expected = dense_variance(posterior, difference, logging, contexts, n)
    assert planned.std_at(n) ** 2 == pytest.approx(expected, rel=1e-9)


def test_rounds_are_the_least_that_reach_the_chance():
    posterior, candidate, baseline, logging, contexts = problem()
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging, chance=0.7)
    assert planned.chance_at(planned.rounds) >= 0.7
    assert planned.chance_at(0.97 * planned.rounds) < 0.7


def test_the_best_traffic_needs_fewer_rounds_and_its_policy_can_be_saved(tmp_path):
    posterior, candidate, baseline, logging, contexts = problem()
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging)
    now, _, best = planned.traffic
    assert best.rounds <= 0.5 * now.rounds
    planned.policy.save(tmp_path / "explore.arrow")
    again = ma.load(tmp_path / "explore.arrow")
    np.testing.assert_array_equal(again.probabilities(contexts), planned.policy.probabilities(contexts))
    assert sum(item["share"] for item in planned.items) == pytest.approx(1.0)


def test_the_best_traffic_follows_the_covariance_of_each_action_with_the_gain():
    """Candidate and baseline choose one action each; what all others tell about the gain is in the joint covariance."""
    posterior, candidate, baseline, logging, contexts = problem()
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging)
    difference = candidate.probabilities(contexts) - baseline.probabilities(contexts)
    mass = difference.T @ contexts / len(contexts)
    left, right = (grid.ravel() for grid in np.meshgrid(*2 * [np.arange(N_ACTIONS)], indexing="ij"))
    joint = posterior.weights.cross_cov(left, right).reshape(N_ACTIONS, N_ACTIONS, DIM, DIM)
    covariances = np.einsum("abde,be->ad", joint, mass)
    weights = planned.policy.weights
    scale = np.linalg.norm(weights) / np.linalg.norm(covariances)
    np.testing.assert_allclose(np.abs(weights), scale * np.abs(covariances), rtol=1e-8, atol=1e-10 * scale)


def test_exploring_costs_no_more_than_allowed():
    posterior, candidate, baseline, logging, contexts = problem()
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging, max_cost=1e-3)
    assert all(way.cost <= 1e-3 * (1 + 1e-9) for way in planned.traffic)


def test_a_question_that_is_settled_needs_no_rounds():
    posterior, _, _, _, contexts = problem()
    far_better = ma.plan(posterior, ma.Greedy(posterior), ma.TablePolicy(np.eye(N_ACTIONS)[0]), contexts, sure=0.6)
    assert far_better.rounds == 0
    assert "settled" in str(far_better)


def test_a_plan_says_when_no_number_of_rounds_would_settle_the_question():
    """Effects are independent, and logging never shows the two actions that are compared."""
    _, candidate, baseline, _, contexts = problem()
    logs = ma.LoggedData(contexts, np.full(50, 3), contexts[:, 0], n_actions=N_ACTIONS)
    posterior = ma.fit(logs, ma.priors.independent(N_ACTIONS, dim=DIM))
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=ma.TablePolicy(np.eye(N_ACTIONS)[3]))
    assert planned.rounds == np.inf
    assert "as now: no number of rounds suffices" in str(planned)
    assert np.isfinite(planned.traffic[2].rounds), "showing the two actions would settle it"


def test_a_model_without_one_set_of_weights_is_refused():
    posterior, candidate, baseline, _, contexts = problem()
    hurdle = ma.fit(
        ma.LoggedData(contexts, np.arange(50) % N_ACTIONS, np.arange(50) % 2 * 1.0, n_actions=N_ACTIONS),
        posterior.prior,
        ma.Hurdle(amount=ma.Gaussian(1.0)),
    )
    with pytest.raises(InputError, match="posterior must be a model with a single set of weights"):
        ma.plan(hurdle, candidate, baseline, contexts)


def test_choices_that_are_spread_out_over_many_actions_are_drawn(monkeypatch):
    """No array of all pairs: the draws of many contexts say nearly the same."""
    posterior, candidate, baseline, _, _ = problem()
    contexts, uniform = np.random.default_rng(3).normal(size=(20_000, DIM)), ma.Uniform(N_ACTIONS)
    exact = ma.plan(posterior, candidate, baseline, contexts, logging=uniform).std_at(1000)
    monkeypatch.setattr("manyarms.decision.plan.MANY_PAIRS", 1000)
    monkeypatch.setattr("manyarms.decision.plan._named_pairs", lambda choices: pytest.fail("pairs were written out"))
    drawn = ma.plan(posterior, candidate, baseline, contexts, logging=uniform).std_at(1000)
    assert drawn == pytest.approx(exact, rel=0.02)


def decided(seed):
    """Whether the planned rounds settle a question whose truth is drawn from today's posterior; and the promise."""
    posterior, candidate, baseline, logging, contexts = problem(seed)
    rng = np.random.default_rng([seed, 1])
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging, sure=0.95, chance=0.6)
    n, weights = min(int(planned.rounds), 100_000), posterior.weights.sample(rng)[0]
    new = contexts[rng.integers(len(contexts), size=n)]
    actions = logging.sample(new, rng)
    rewards = np.einsum("nd,nd->n", new, weights[actions]) + rng.normal(size=n)
    later = posterior.update(ma.LoggedData(new, actions, rewards, n_actions=N_ACTIONS)) if n else posterior
    gain = later.difference(candidate, baseline, contexts)
    # The same contexts come again, so their mean is known.
    certain = ndtri(0.95) * gain.posterior_std <= abs(gain.value)
    today, needed = posterior.difference(candidate, baseline, contexts), ndtri(0.95) * gain.posterior_std
    moved = np.sqrt(max(today.posterior_std**2 - gain.posterior_std**2, 1e-300))
    return certain, ndtr((today.value - needed) / moved) + ndtr((-today.value - needed) / moved)


@pytest.mark.slow
def test_decisions_are_reached_as_often_as_promised():
    reached, promised = np.array([decided(seed) for seed in range(200)]).T
    error = np.sqrt((promised * (1 - promised)).sum()) / 200
    assert abs(reached.mean() - promised.mean()) < 3 * error
