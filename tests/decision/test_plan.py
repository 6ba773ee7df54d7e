from dataclasses import replace
from html import escape

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

import manyarms as ma
from manyarms.core.result_tables import signed_number
from manyarms.decision.guardrail import GuardrailResult
from manyarms.decision.plan import item_label, plan_next_step, plan_open_question, rounds_of_a_test
from manyarms.decision.recommendation import Recommendation
from manyarms.decision.write_report import html_page
from manyarms.errors import InputError, NumericalError
from manyarms.posterior import future_gain
from manyarms.posterior.future_gain import future_information

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


@pytest.fixture(scope="module")
def planned():
    posterior, candidate, baseline, logging, contexts = problem()
    return ma.plan(posterior, candidate, baseline, contexts, logging=logging)


@pytest.mark.parametrize("n", [0, 7, 1000, 10**6])
def test_the_std_after_more_rounds_is_that_of_the_joint_posterior(n, planned):
    posterior, candidate, baseline, logging, contexts = problem()
    difference = candidate.probabilities(contexts) - baseline.probabilities(contexts)
    expected = dense_variance(posterior, difference, logging, contexts, n)
    assert planned.std_at(n) ** 2 == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("place", [1, 2])
def test_other_traffic_mixes_the_information_of_two_policies(place, planned):
    posterior, candidate, baseline, logging, contexts = problem()
    other = (None, candidate, planned.policy)[place]
    mixed = ma.Mixture([logging, other], [0.8, 0.2])
    difference = candidate.probabilities(contexts) - baseline.probabilities(contexts)
    expected = dense_variance(posterior, difference, mixed, contexts, 500)
    assert planned.traffic[place].std_at(500) ** 2 == pytest.approx(expected, rel=1e-9)


def test_rounds_are_the_least_that_reach_the_chance():
    posterior, candidate, baseline, logging, contexts = problem()
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging, chance=0.7)
    assert planned.chance_at(planned.rounds) >= 0.7
    assert planned.chance_at(0.97 * planned.rounds) < 0.7


def test_the_exploration_policy_needs_fewer_rounds_and_can_be_saved(tmp_path, planned):
    contexts = problem()[-1]
    now, candidate, best = planned.traffic
    assert best.rounds <= 0.5 * now.rounds
    assert best.rounds <= candidate.rounds
    planned.policy.save(tmp_path / "explore.arrow")
    again = ma.load(tmp_path / "explore.arrow")
    np.testing.assert_array_equal(again.probabilities(contexts), planned.policy.probabilities(contexts))
    assert sum(item["share"] for item in planned.items) == pytest.approx(1.0)


def test_no_mixture_of_actions_settles_it_faster_than_the_exploration_policy():
    """One context and four actions: every way to explore is four shares, and all of them are tried on a grid."""
    prior = ma.HierarchicalGaussian(np.zeros(1), 1.0, np.ones((4, 1, 1)), np.array([0.1, 1.0, 2.0, 0.5])[:, None, None])
    posterior = ma.fit(ma.LoggedData(np.ones((4, 1)), np.arange(4), np.zeros(4)), prior, ma.Gaussian(1.0))
    rows = np.ones((4, 1))
    candidate, baseline = ma.TablePolicy([0.1, 0.7, 0.2, 0.0]), ma.TablePolicy([0.0, 0.0, 0.1, 0.9])
    planned = ma.plan(posterior, candidate, baseline, rows, logging=ma.TablePolicy([1.0, 0.0, 0.0, 0.0]), share=0.4)
    n = planned.traffic[2].rounds
    difference = candidate.probabilities(rows) - baseline.probabilities(rows)
    steps = range(11)
    grid = [(a, b, c, 10 - a - b - c) for a in steps for b in steps for c in steps if a + b + c <= 10]
    designs = [ma.TablePolicy(0.6 * np.eye(4)[0] + 0.4 * np.array(shares) / 10) for shares in grid]
    least = min(dense_variance(posterior, difference, design, rows, n) for design in designs)
    assert planned.traffic[2].std_at(n) ** 2 <= 1.02 * least


def test_the_exploration_policy_follows_the_covariance_of_each_action_with_the_gain(planned):
    """Candidate and baseline choose one action each; what all others tell about the gain is in the joint covariance."""
    posterior, candidate, baseline, _, contexts = problem()
    difference = candidate.probabilities(contexts) - baseline.probabilities(contexts)
    mass = difference.T @ contexts / len(contexts)
    left, right = (grid.ravel() for grid in np.meshgrid(*2 * [np.arange(N_ACTIONS)], indexing="ij"))
    joint = posterior.weights.cross_cov(left, right).reshape(N_ACTIONS, N_ACTIONS, DIM, DIM)
    covariances = np.einsum("abde,be->ad", joint, mass)
    np.testing.assert_allclose(planned.traffic[0]._future.covariances_at(0.0), covariances, rtol=1e-8, atol=1e-10)


def test_exploring_costs_no_more_than_allowed():
    posterior, candidate, baseline, logging, contexts = problem()
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=logging, max_cost=1e-3)
    assert all(way.cost <= 1e-3 * (1 + 1e-9) for way in planned.traffic)


def test_a_candidate_costs_what_it_is_expected_to_lose_against_the_traffic_of_now():
    posterior, _, baseline, logging, contexts = problem()
    rewards = [posterior.expected_reward(contexts, np.full(len(contexts), arm)).mean() for arm in range(N_ACTIONS)]
    now = logging.probabilities(contexts[:1])[0] @ rewards
    worst, best = (ma.TablePolicy(np.eye(N_ACTIONS)[pick(rewards)]) for pick in (np.argmin, np.argmax))
    planned = ma.plan(posterior, worst, baseline, contexts, logging=logging, share=0.2)
    assert planned.traffic[1].cost == pytest.approx(0.2 * (now - min(rewards)), rel=1e-9) and min(rewards) < now
    assert ma.plan(posterior, best, baseline, contexts, logging=logging).traffic[1].cost == 0.0


def test_a_question_that_is_settled_needs_no_rounds():
    posterior, _, _, _, contexts = problem()
    far_better = ma.plan(posterior, ma.Greedy(posterior), ma.TablePolicy(np.eye(N_ACTIONS)[0]), contexts, sure=0.6)
    assert far_better.rounds == 0
    assert "sure of a gain" in str(far_better)


def test_a_candidate_that_is_probably_worse_is_not_sent_to_a_test():
    posterior, _, _, _, contexts = problem()
    best, other = ma.Greedy(posterior), ma.TablePolicy(np.eye(N_ACTIONS)[0])
    shown = best.actions(contexts)
    logs = ma.LoggedData(contexts, shown, posterior.expected_reward(contexts, shown), n_actions=N_ACTIONS)
    open_ = Recommendation("undecided", "other", "", "")
    steps = [
        plan_next_step(open_, posterior, other, logs, 0.55, ma.Estimate(value, 0.2), "", [])[0].next_step
        for value in (-0.1, 0.1)
    ]
    assert all(step.startswith("The model alone is sure of a loss, but the logged rewards do not") for step in steps)
    assert steps[0].endswith("Keep the current policy, unless you have another reason to test other.")
    assert "Test other on a share of the traffic" in steps[1]


def test_a_plan_says_when_no_number_of_rounds_would_settle_the_question():
    """Effects are independent, and logging never shows the two actions that are compared."""
    _, candidate, baseline, _, contexts = problem()
    logs = ma.LoggedData(contexts, np.full(50, 3), contexts[:, 0], n_actions=N_ACTIONS)
    posterior = ma.fit(logs, ma.priors.independent(N_ACTIONS, dim=DIM))
    planned = ma.plan(posterior, candidate, baseline, contexts, logging=ma.TablePolicy(np.eye(N_ACTIONS)[3]))
    assert planned.rounds == np.inf
    assert "as now: no number of rounds is enough. Such rounds never show 2 of the 2 actions" in str(planned)
    assert "100 % of the variance of the gain would remain" in planned.reason
    assert planned.record()["traffic"][0]["rounds"] is None
    assert np.isfinite(planned.traffic[2].rounds), "showing the two actions would settle it"


def test_a_plan_says_when_features_of_the_gain_never_vary():
    """Both actions are logged, each only in the contexts where the candidate would not choose it."""
    contexts, other = np.tile(np.eye(2), (20, 1)), np.tile([1, 0], 20)
    posterior = ma.fit(
        ma.LoggedData(contexts[:0], other[:0], np.empty(0), n_actions=2), ma.priors.independent(2, dim=2),
        ma.Gaussian(1.0),
    )  # fmt: skip
    candidate, baseline = ma.TablePolicy(np.eye(2)[1 - other]), ma.TablePolicy(np.eye(2)[other])
    planned = ma.plan(posterior, candidate, baseline, contexts)
    # Four weights count alike, and two of them are never seen.
    assert "some of the features that the gain depends on never vary, so 50 % of the variance" in planned.reason
    assert planned.rounds == np.inf and repr(planned) == "Plan(no number of rounds is enough)"


def test_the_representation_of_a_plan_has_its_rounds(planned):
    assert repr(planned) == f"Plan({planned.rounds:,.0f} rounds)"


def logged_rounds(n=80):
    """A posterior, a candidate and rounds that leave it undecided."""
    rng = np.random.default_rng(0)
    posterior, candidate, _, logging, _ = problem()
    contexts = rng.normal(size=(n, DIM)) + 1.0
    actions = logging.sample(contexts, rng)
    return posterior, candidate, ma.LoggedData(contexts, actions, rng.normal(size=n), n_actions=N_ACTIONS)


def test_the_plan_of_a_decision_on_many_rounds_is_that_of_some_of_them(monkeypatch):
    monkeypatch.setattr("manyarms.decision.plan.MOST_CONTEXTS", 40)
    posterior, candidate, logs = logged_rounds(118)
    thinned = logs.take(np.arange(0, 118, 3))
    assert len(thinned) == 40
    expected = ma.plan(posterior.update(logs), candidate, ma.Logged(thinned), thinned.contexts)
    got = plan_open_question(posterior, candidate, logs, 0.975)
    assert got.rounds == pytest.approx(expected.rounds) and got.gain == pytest.approx(expected.gain)


def test_nothing_is_planned_where_a_guardrail_is_broken_or_the_policy_cannot_be_planned_for():
    posterior, candidate, logs = logged_rounds()
    open_ = Recommendation("undecided", "new", "", "", next_step="as it was")
    # The change of a goal is far below its limit: more rounds would settle nothing.
    broken = GuardrailResult("returns", "new", 1.0, ma.Estimate(-1.0, 0.1), 0.1, 0.0, 0.9, "higher")
    for policy, goals in ((candidate, [broken]), (ma.ColumnPolicy("item", N_ACTIONS), [])):
        advice, planned = plan_next_step(open_, posterior, policy, logs, 0.975, None, "", goals)
        assert advice is open_ and planned is None
    assert plan_next_step(open_, posterior, candidate, logs, 0.975, None, "", [])[1] is not None


def test_a_gain_that_is_sure_enough_for_the_verdict_is_not_planned_for_where_only_a_guardrail_is_open():
    posterior, candidate, logs = logged_rounds()
    open_ = Recommendation("undecided", "new", "", "", next_step="as it was")
    goal = GuardrailResult("returns", "new", 1.0, ma.Estimate(-0.1, 0.1), 0.1, 0.5, 0.9, "higher")
    assert not goal.holds and not goal.is_broken
    for probability, is_planned in ((0.93, False), (0.85, True)):
        gain = ma.Estimate(stats.norm.ppf(probability), 1.0)
        _, planned = plan_next_step(open_, posterior, candidate, logs, 0.9, gain, "", [goal], 0.975)
        assert (planned is not None) == is_planned


def test_items_are_shown_by_name_if_the_catalog_has_names():
    posterior, candidate, baseline, logging, contexts = problem()
    names = [f"Tea {k}" if k != 2 else None for k in range(N_ACTIONS)]
    named = replace(posterior, catalog=ma.Catalog([f"sku-{k}" for k in range(N_ACTIONS)], names=names))
    planned = ma.plan(named, candidate, baseline, contexts, logging=logging)
    labels = {item["action"]: item_label(item) for item in planned.items}
    assert labels[1] == "Tea 1" and labels[2] == "sku-2"
    assert all(item["id"] == f"sku-{item['action']}" for item in planned.items)
    without = ma.plan(posterior, candidate, baseline, contexts, logging=logging)
    assert {item_label(item) for item in without.items} == {str(item["action"]) for item in planned.items}


def test_two_policies_with_the_same_choices_are_never_told_apart():
    posterior, candidate, _, logging, contexts = problem()
    planned = ma.plan(posterior, candidate, candidate, contexts, logging=logging)
    assert {way.rounds for way in planned.traffic} == {np.inf}
    assert "Both policies make the same choices" in planned.sentence


def test_the_curve_passes_through_the_planned_rounds(planned, monkeypatch):
    monkeypatch.setattr("manyarms.decision.plan.CURVE_POINTS", 8)
    for way in planned.traffic:
        curve = [(row["rounds"], row["chance"]) for row in planned.curve() if row["traffic"] == way.name]
        rounds, chances = np.array(curve).T
        assert (np.diff(chances) >= 0).all()
        assert np.interp(np.log(way.rounds), np.log(rounds), chances) == pytest.approx(0.8, abs=0.05)


def test_a_context_of_weight_two_is_that_context_twice():
    posterior, _, _, logging, contexts = problem()
    weights = np.arange(len(contexts)) % 3 * 1.0
    repeated = np.repeat(contexts, weights.astype(int), axis=0)
    rng = np.random.default_rng(0)
    weighted = future_information(posterior, logging, contexts, weights, None, rng)
    plain = future_information(posterior, logging, repeated, None, None, rng)
    np.testing.assert_allclose(weighted.sums.gram, plain.sums.gram, rtol=1e-12)


def test_a_model_without_one_set_of_weights_is_refused():
    posterior, candidate, baseline, _, contexts = problem()
    hurdle = ma.fit(
        ma.LoggedData(contexts, np.arange(50) % N_ACTIONS, np.arange(50) % 2 * 1.0, n_actions=N_ACTIONS),
        posterior.prior,
        ma.Hurdle(amount=ma.Gaussian(1.0)),
    )
    with pytest.raises(InputError, match="posterior must be a model with a single set of weights"):
        ma.plan(hurdle, candidate, baseline, contexts)


def test_contexts_whose_squares_overflow_over_many_rounds_are_refused():
    posterior, candidate, baseline, _, contexts = problem()
    with pytest.raises(NumericalError, match="squares of contexts overflow in row 0"):
        ma.plan(posterior, candidate, baseline, 1e150 * contexts)


def test_choices_that_are_spread_out_over_many_actions_are_drawn(monkeypatch):
    """No array of all pairs: the draws of many contexts say nearly the same."""
    posterior, rng = problem()[0], np.random.default_rng(3)
    given = posterior, ma.Uniform(N_ACTIONS), rng.normal(size=(20_000, DIM)), None, None, rng
    exact = future_information(*given)
    monkeypatch.setattr(future_gain, "MANY_PAIRS", 1000)
    monkeypatch.setattr(future_gain, "_named_pairs", lambda choices: pytest.fail("pairs were written out"))
    drawn = future_information(*given)
    np.testing.assert_allclose(drawn.sums.gram, exact.sums.gram, atol=0.1 / N_ACTIONS)


def test_an_undecided_report_says_what_would_settle_it():
    rng = np.random.default_rng(0)
    posterior, candidate, _, logging, _ = problem()
    contexts = rng.normal(size=(80, DIM)) + 1.0
    actions = logging.sample(contexts, rng)
    logs = ma.LoggedData(
        contexts, actions, rng.normal(size=80), logging.probability_of(contexts, actions), n_actions=N_ACTIONS
    )
    decision = ma.decide({"new": candidate}, logs, posterior)
    assert decision.verdict == "undecided"
    assert decision.next_step.startswith("To decide with a probability of 80 %, log about")
    assert decision.as_json()["plan"]["sentence"] == decision.next_step
    # What the rounds have taught counts: the plan starts from all that is known.
    today = posterior.update(logs).difference(candidate, ma.Logged(logs), contexts)
    assert decision.plan.gain == pytest.approx(today.value)
    page = html_page(decision, "Mine")
    assert "What would settle it" in page and "chart-plan_chances" in page
    words = [f"about {float(f'{way.rounds:.2g}'):,.0f}" for way in decision.plan.traffic]
    assert f"More rounds needed to decide with a probability of 80 %: logged as now, {words[0]}; with " in page
    assert f"; with the exploration policy, {words[2]}." in page
    assert escape(decision.hidden_cause.sentence_about("it")) in page
    # One piece of advice: the plan's, and not also that of the verdict.
    assert decision.next_step in str(decision) and "or test" not in str(decision)


@pytest.mark.parametrize(("gain", "std", "sure"), [(0.3, 1.0, 0.975), (0.05, 0.4, 0.9)])
def test_a_test_of_the_planned_size_shows_the_gain_with_the_wished_chance(gain, std, sure):
    n = int(rounds_of_a_test(gain, std**2, sure))
    rng = np.random.default_rng(0)
    new, old = rng.normal(gain, std, size=(4000, n)), rng.normal(0.0, std, size=(4000, n))
    error = np.sqrt((new.var(axis=1, ddof=1) + old.var(axis=1, ddof=1)) / n)
    shown = (new.mean(axis=1) - old.mean(axis=1)) / error >= ndtri(sure)
    assert shown.mean() == pytest.approx(0.8, abs=0.025)


def test_where_the_model_is_sure_and_the_rewards_are_not_the_next_step_is_a_test_of_a_given_size():
    rng = np.random.default_rng(0)
    x, actions = np.ones((300, 1)), rng.integers(10, size=300)
    rewards = 1.5 * (actions == 3) + 5.0 * rng.normal(size=300)
    logs = ma.LoggedData(x, actions, rewards, np.full(300, 0.1), n_actions=10)
    told = ma.LoggedData(np.ones((2000, 1)), np.arange(2000) % 10, 1.0 * (np.arange(2000) % 10 == 3))
    posterior = ma.fit(told, ma.priors.independent(10, dim=1), ma.Gaussian(0.1))
    new = ma.TablePolicy(np.eye(10)[3])
    decision = ma.decide({"new": new}, logs, posterior, unit="euros")
    assert decision.verdict == "undecided" and decision.plan.rounds == 0
    gain = decision.gains["new"].value
    n = rounds_of_a_test(gain, logs.rewards.var(), 0.975)
    assert f"about {float(f'{n:.2g}'):,.0f} rounds with it, and as many with the current policy" in decision.next_step
    assert f"show a gain of {signed_number(gain)} euros with a probability of 80 %" in decision.next_step
    # Rounds of one user are not independent, so the size of a test is not known.
    users = np.repeat(np.arange(100), 3)
    grouped = ma.LoggedData(x, actions, rewards, logs.propensities, n_actions=10, groups=users)
    assert ma.decide({"new": new}, grouped, posterior).next_step.endswith("Test new on a share of the traffic.")


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
    # 520 problems: the first 200 alone are 3.2 standard errors above the promise, the other 320 are 0.8 below it. Seeds
    # from 10,000 on, which were tried once, are 0.1 above, and their first 200 are 0.3 above.
    reached, promised = np.array([decided(seed) for seed in range(520)]).T
    error = np.sqrt((promised * (1 - promised)).sum()) / len(promised)
    assert abs(reached.mean() - promised.mean()) < 3 * error
