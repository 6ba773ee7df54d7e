"""A decision lists six checks. Those that could not be run count as such: fewer inputs never look safer."""

import re
from dataclasses import replace

import numpy as np
import pytest
from decision_world import world

import manyarms as ma
from manyarms.decision.decision_checks import checks_by_category, doubts, model_checks
from manyarms.decision.write_report import html_page
from manyarms.prior_checks.check_categories import CategoryCheck, CategoryChecks


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
    assert decision.checks_summary == "0 of 6 checks passed, 6 not run"
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
    finding = decision.checks[1].finding
    assert finding.startswith("Too few rounds of the log match the policy's choices: their effective sample size is 0")
    # It is a caution, whatever the verdict; what stands in the way is listed apart from it.
    first = html_page(decision, "t").split('<nav aria-label="Sections">')[0].replace("&#x27;", "'")
    assert finding in first.split("What to be careful about")[1]


def test_every_page_and_every_record_says_what_no_log_can_show(parts):
    _, test, posterior = parts
    decision = ma.decide({"greedy": ma.Greedy(posterior)}, test, posterior)
    page, record = html_page(decision, "t"), decision.as_json()
    for word in ("Self-selection", "Hidden causes", "Change"):
        assert word in page
        assert any(word in text for text in record["cannot_see"])


def flagged(n_failed, n):
    """The result of checks by category of which some failed."""
    rows = [
        CategoryCheck(f"kind <{k}>", 40.0, 3, 1.25, 0.0, 9.0, 0.5, 5.0, 1.0, 1e-6, ("posterior mean",) * (k < n_failed))
        for k in range(n)
    ]
    return CategoryChecks(tuple(rows), 0.95, True)


@pytest.mark.parametrize(
    ("n_failed", "doubt"), [(1, []), (2, ["the rewards of 2 of 4 categories contradict the model"])]
)
def test_many_categories_that_contradict_the_model_are_a_doubt(n_failed, doubt):
    assert doubts(None, flagged(n_failed, 4)) == doubt


def test_the_page_lists_the_categories_that_contradict_the_model(parts):
    _, test, posterior = parts
    decision = ma.decide({"softmax": ma.Softmax(posterior, 1.0)}, test, posterior)
    page = html_page(replace(decision, category_checks=flagged(2, 6)), "t")
    assert "<h3>Categories that contradict the model: 2 of 6</h3>" in page
    table = page.split('aria-label="Categories that contradict the model"')[1].split("</table>")[0]
    assert table.count("<tr>") - 1 == 2
    first = [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", table)][:6]
    assert first == ["kind &lt;0&gt;", "40", "1.25", "0", "0.500", "posterior mean"]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "a does not contradict the model."),
        (["a", "b"], "Neither a nor b contradicts the model."),
        (["a", "b", "c"], "None of a, b, c contradicts the model."),
    ],
)
def test_estimators_that_agree_are_named(names, words):
    sound = ma.Estimate(1.0, 0.1, kind="sampling", diagnostics={"effective_sample_size": 1000.0})
    row = ma.jobs.PolicyResult("new", ma.Estimate(1.0, 0.1), estimates=dict.fromkeys(names, sound))
    evaluation = ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.1)), (row,))
    check = model_checks(evaluation, row, None, None)[0]
    assert (check.outcome, check.finding) == ("passed", words)


def test_categories_that_cannot_be_checked_one_by_one_are_said_to_be_unchecked(parts):
    _, test, posterior = parts
    labels = np.arange(test.n_actions) % 6
    checked, reasons = checks_by_category(posterior, test, labels, 1001, True)
    assert checked is None and reasons == ["Categories were not checked one by one: there are 1,001, more than 1,000."]
    bare = test.take(np.arange(0))
    checked, reasons = checks_by_category(posterior, bare, labels, 6, True)
    assert checked is None and reasons[0].startswith("Categories were not checked: ")
