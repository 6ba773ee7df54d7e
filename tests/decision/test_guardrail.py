"""Guardrails: the probability that another goal stays within its limit, and the verdict that follows."""

import re

import numpy as np
import pytest
from scipy.special import ndtri

import manyarms as ma
from manyarms.decision.guardrail import GuardrailResult, limit_words
from manyarms.decision.report_sentences import blockers
from manyarms.decision.write_report import html_page
from manyarms.errors import InputError, ShapeError

K, N = 6, 600
COSTS = np.array([1.0, 1.0, 1.0, 1.0, 3.0, 1.0])


@pytest.fixture(scope="module")
def world():
    """Action 4 earns most, costs most and is returned most; action 5 earns more than the others and harms nothing."""
    rng = np.random.default_rng(0)
    x, actions = np.column_stack([np.ones(N), rng.normal(size=N)]), rng.integers(K, size=N)
    margin = np.array([0.0, 0.0, 0.0, 0.0, 2.0, 1.0])[actions] + rng.normal(size=N)
    returned = (rng.random(N) < np.where(actions == 4, 0.6, 0.2)).astype(float)
    logs = ma.LoggedData(x, actions, margin, np.full(N, 1 / K), n_actions=K)
    old, new = np.arange(N // 2), np.arange(N // 2, N)
    posterior = ma.fit(logs.take(old), ma.priors.independent(K, dim=2), ma.Gaussian(1.0))
    policies = {"rich": ma.TablePolicy(np.eye(K)[4]), "safe": ma.TablePolicy(np.eye(K)[5])}
    return posterior, logs.take(new), returned[new], policies


def test_the_verdict_names_the_goal_that_blocks_and_ships_the_next_policy(world):
    posterior, logs, returned, policies = world
    assert ma.decide(policies, logs, posterior).policy == "rich"
    guardrail = ma.Guardrail("returns", returned, at_most_worse=0.25, better="lower")
    alone = ma.decide({"rich": policies["rich"]}, logs, posterior, guardrails=[guardrail])
    assert alone.verdict == "keep"
    assert "but the guardrail on returns blocks it" in alone.sentence
    assert "The change in returns is +" in alone.reason
    assert any(text.startswith("The change in returns is") for text in blockers(alone))
    (result,) = alone.guardrails
    assert result.is_broken and not result.holds and result.probability < 0.01
    both = ma.decide(policies, logs, posterior, guardrails=[guardrail])
    assert both.verdict == "ship" and both.policy == "safe"
    assert "rich gains more, but the guardrail on returns blocks it" in both.reason
    assert "It keeps to the guardrails: returns" in both.reason
    page = html_page(both, "Mine")
    assert "<dt>Why not a larger gain</dt>" in page and page.count("rich gains more, but") == 1
    record = both.as_json()
    assert [entry["holds"] for entry in record["guardrails"]] == [False, True]
    assert sum(record["probability_best"].values()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("current", "better", "words"),
    [
        (0.0, "lower", "at most +0.0200"),
        (0.0, "higher", "at least -0.0200"),
        (0.4, "lower", "at most +5.00 % (0.0200 per round)"),
        (-0.4, "higher", "at least -5.00 % (0.0200 per round)"),
    ],
)
def test_a_limit_in_words_is_a_share_only_of_what_is_not_zero(current, better, words):
    result = GuardrailResult("returns", "new", current, ma.Estimate(0.0, 0.1), 0.02, 0.5, 0.9, better)
    assert limit_words(result).replace("\N{NO-BREAK SPACE}", " ") == words


def test_the_page_shows_the_expected_loss_of_a_single_candidate_too(world):
    posterior, logs, _, policies = world
    decision = ma.decide({"rich": policies["rich"]}, logs, posterior)
    losses = decision.evaluation.expected_loss
    # It is surely better, so that keeping the current policy gives up its gain.
    assert losses["rich"] < 1e-3 and losses["logged"] == pytest.approx(decision.gains["rich"].value, rel=0.05)
    assert "Expected loss per round" in html_page(decision, "Mine")


def test_where_gain_and_guardrail_are_both_open_both_are_named_and_the_gain_is_planned():
    rng = np.random.default_rng(5)
    x, actions = np.ones((300, 1)), rng.integers(K, size=300)
    logs = ma.LoggedData(x, actions, 1.0 + 2.0 * rng.normal(size=300), np.full(300, 1 / K), n_actions=K)
    posterior = ma.fit(logs.take(np.arange(150)), ma.priors.independent(K, dim=1), ma.Gaussian(2.0))
    guardrail = ma.Guardrail("returns", rng.normal(1.0, 0.5, size=150), at_most_worse=0.001)
    new = {"new": ma.TablePolicy([0.3, 0.3, 0.1, 0.1, 0.1, 0.1])}
    decision = ma.decide(new, logs.take(np.arange(150, 300)), posterior, guardrails=[guardrail])
    assert decision.verdict == "undecided" and decision.plan is not None
    assert "The change in returns is" in decision.reason
    assert [text.split(" is ")[0] for text in blockers(decision)][:2] == [
        "The probability of a gain", "The change in returns",
    ]  # fmt: skip
    assert decision.next_step.endswith("The guardrail on returns must hold, too.")


def test_a_guardrail_that_the_log_cannot_settle_leaves_the_question_open(world):
    posterior, logs, _, policies = world
    chance = np.random.default_rng(1).normal(1.0, 0.5, size=len(logs))
    narrow = ma.Guardrail("chance", chance, at_most_worse=0.001)
    decision = ma.decide({"safe": policies["safe"]}, logs, posterior, guardrails=[narrow])
    assert decision.verdict == "undecided" and "Log more rounds" in decision.reason


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_test_of_the_stated_size_shows_that_an_open_guardrail_holds(world, better):
    posterior, logs, _, policies = world
    sign = 1.0 if better == "higher" else -1.0
    calls = sign * np.random.default_rng(4).normal(0.0, 2.0, size=len(logs)) + 4.0
    limit = ma.Guardrail("calls", calls, at_most_worse=0.02, better=better)
    decision = ma.decide({"safe": policies["safe"]}, logs, posterior, guardrails=[limit])
    (result,) = decision.guardrails
    assert decision.verdict == "undecided" and 0.5 < result.probability < 0.95
    count = float(re.search(r"as estimated, about ([\d,]+) rounds with it", decision.next_step)[1].replace(",", ""))
    # Tests of that size, if the change is as estimated: the end of a one-sided interval is within the limit.
    rng, error = np.random.default_rng(0), calls.std() * np.sqrt(2 / count)
    change = result.change.value + error * rng.normal(size=20_000)
    assert (sign * change - ndtri(0.95) * error >= -result.limit).mean() == pytest.approx(0.8, abs=0.02)
    # Rounds of one user are not independent, so the size of a test is not known.
    users = ma.LoggedData(
        logs.contexts, logs.actions, logs.rewards, logs.propensities, K, groups=np.arange(len(logs)) // 2
    )
    advice = ma.decide({"safe": policies["safe"]}, users, posterior, guardrails=[limit]).next_step
    assert "as estimated" not in advice and advice.startswith("Log more rounds")


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize("absolute", [False, True])
def test_the_probability_is_the_share_of_the_change_within_the_limit(world, better, absolute):
    """Against draws from the distribution of the checked change."""
    posterior, logs, returned, policies = world
    model = ma.fit(logs.with_rewards(returned), ma.priors.independent(K, dim=2), ma.Gaussian(0.4))
    options = dict(at_most_worse=0.1, better=better, absolute=absolute, posterior=model)
    (result,) = ma.decide(
        {"safe": policies["safe"]}, logs, posterior, guardrails=[ma.Guardrail("returns", returned, **options)]
    ).guardrails
    change = ma.Checked(model).difference(policies["safe"], ma.Logged(logs), logs.with_rewards(returned))
    rng = np.random.default_rng(0)
    part = rng.choice(len(change.shape.shares), p=change.shape.shares / change.shape.shares.sum(), size=200_000)
    draws = change.shape.means[part] + change.shape.stds[part] * rng.normal(size=len(part))
    limit = 0.1 if absolute else 0.1 * returned.mean()
    kept = draws >= -limit if better == "higher" else draws <= limit
    assert result.probability == pytest.approx(kept.mean(), abs=0.005)
    assert result.limit == pytest.approx(limit)


def test_known_costs_need_no_model(world):
    posterior, logs, _, policies = world
    guardrail = ma.Guardrail("delivery", costs=COSTS, at_most_worse=0.1, better="lower")
    rich, safe = ma.decide(policies, logs, posterior, guardrails=[guardrail]).guardrails
    assert rich.change.value == pytest.approx(3.0 - COSTS[logs.actions].mean())
    assert safe.change.value == pytest.approx(1.0 - COSTS[logs.actions].mean()) and safe.holds and not rich.holds
    same = ma.Guardrail("size", costs=np.ones(K))
    assert all(
        result.probability == 1.0 for result in ma.decide(policies, logs, posterior, guardrails=[same]).guardrails
    )


@pytest.mark.parametrize("timed", [False, True])
def test_where_the_log_is_split_every_round_keeps_its_own_rewards(timed):
    """Rewards that are costs of the actions change as the costs do, if no row is taken for another."""
    rng = np.random.default_rng(2)
    n = 400
    actions = rng.integers(K, size=n)
    rewards = 0.5 * actions + rng.normal(size=n)
    times = rng.permutation(n) if timed else None
    logs = ma.LoggedData(np.ones((n, 1)), actions, rewards, np.full(n, 1 / K), n_actions=K, times=times)
    goals = [
        ma.Guardrail("noted", COSTS[actions] + 1e-3 * rng.normal(size=n), at_most_worse=1.0, better="lower"),
        ma.Guardrail("known", costs=COSTS, at_most_worse=1.0, better="lower"),
    ]
    results = ma.decide(None, logs, categories=np.arange(K) % 2, guardrails=goals).guardrails
    changes = {(result.name, result.policy): result.change.value for result in results}
    for policy in ("greedy", "softmax"):
        assert changes["noted", policy] == pytest.approx(changes["known", policy], abs=0.05)


def test_bad_guardrails_are_refused(world):
    posterior, logs, returned, policies = world

    def decide(*guardrails):
        return ma.decide(policies, logs, posterior, guardrails=list(guardrails))

    with pytest.raises(ShapeError, match="rewards of returns must have 300 rows; got 299"):
        decide(ma.Guardrail("returns", returned[1:]))
    with pytest.raises(ShapeError, match="costs of parcels must have 6 rows"):
        decide(ma.Guardrail("parcels", costs=[1.0]))
    with pytest.raises(InputError, match="guardrails must have different names"):
        decide(ma.Guardrail("returns", returned), ma.Guardrail("returns", returned))
    with pytest.raises(InputError, match="either rewards per round or costs per action"):
        ma.Guardrail("returns")
    with pytest.raises(InputError, match="at_most_worse must be at least 0"):
        ma.Guardrail("returns", returned, at_most_worse=-0.1)
