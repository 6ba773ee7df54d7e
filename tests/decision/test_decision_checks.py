"""A decision lists six checks. Those that were not possible count as such: fewer inputs never look safer."""

from dataclasses import replace

import numpy as np
import pytest
from decision_world import world

import manyarms as ma
from manyarms.decision.write_report import html_page


@pytest.fixture(scope="module")
def parts():
    train, test, catalog = world()
    posterior = ma.learn_prior(train, ma.priors.from_catalog(catalog, dim=3, shared_std=1.0)).posterior
    return train, test, posterior


def outcomes(decision):
    return [check.outcome for check in decision.checks]


def test_all_six_checks_pass_where_the_model_is_right_and_the_rounds_are_new(parts):
    _, test, posterior = parts
    softmax = ma.Softmax(posterior, 1.0)
    decision = ma.decide({"softmax": softmax}, test, posterior, estimators=[ma.SNIPS(), ma.DR(posterior)])
    assert outcomes(decision) == ["passed"] * 6, decision.checks
    assert decision.checks_summary == "6 of 6 checks passed"
    assert 'class="light green" href="#trust"' in html_page(decision, "t")


def test_without_inputs_no_check_is_possible_and_none_is_green(parts):
    _, test, _ = parts
    bare = ma.LoggedData(test.contexts, test.actions, test.rewards, n_actions=test.n_actions)
    decision = ma.decide({"uniform": ma.Uniform(bare.n_actions)}, bare, estimators=[ma.SNIPS()])
    assert decision.checks_summary == "0 of 6 checks passed, 6 not possible"
    assert 'class="light green" href="#trust"' not in html_page(decision, "t")


def test_training_rounds_fail_a_check_and_no_green_answer_stands_above_it(parts):
    train, _, posterior = parts
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, train, posterior)
    assert decision.checks[0].outcome == "failed"
    page = html_page(decision, "t")
    assert f'class="verdict {decision.verdict} red"' in page


def test_no_green_answer_stands_above_a_red_light_of_the_model_for_the_shipped_policy(parts):
    _, test, posterior = parts
    softmax = ma.Softmax(posterior, 1.0)
    decision = ma.decide({"softmax": softmax}, test, posterior, estimators=[ma.SNIPS(), ma.DR(posterior)])
    light = next(light for light in decision.diagnostics if (light.policy, light.estimator) == ("softmax", "model"))
    calm = replace(decision, diagnostics=(replace(light, colour="green"),))
    assert decision.verdict == "ship" and 'class="verdict ship green"' in html_page(calm, "t")
    page = html_page(replace(decision, diagnostics=(replace(light, colour="red"),)), "t")
    assert 'class="verdict ship red"' in page


def test_a_policy_that_the_log_never_shows_fails_the_check_of_overlap(parts):
    _, test, posterior = parts
    never = np.zeros((len(test), test.n_actions))
    never[:, -1] = 1.0
    decision = ma.decide({"never": ma.TablePolicy(never)}, test, posterior)
    assert decision.checks[1].outcome == "failed"
    assert decision.checks[1].finding == "Their effective sample size is 0; at least 10 rounds are needed."


def test_every_page_and_every_record_says_what_no_log_can_show(parts):
    _, test, posterior = parts
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, test, posterior)
    page, record = html_page(decision, "t"), decision.as_json()
    for word in ("Self-selection", "Hidden causes", "Change"):
        assert word in page
        assert any(word in text for text in record["cannot_see"])
