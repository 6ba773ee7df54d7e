"""The report of a decision: the figures are the library's, the page draws by itself, and labels cannot do anything."""

import json
import re
import subprocess
import sys
from html import escape

import numpy as np
import pytest
from browser import opened
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.decision.support import support
from manyarms.decision.verdict import answer
from manyarms.decision.write_report import page
from manyarms.errors import InputError

EVIL = '</script><img src=x onerror="document.title=1">'
CHARTS = {"values", "gains", "better", "agreement", "movers", "support", "shrinkage", "calibration"}


def world(n=1500, K=60, evil=False, seed=0):
    """Clean rewards of items in six categories, the logs split in two."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(6, 3))[np.arange(K) % 6] + 0.2 * rng.normal(size=(K, 3))
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    actions = rng.integers(K - 10, size=n)
    rewards = np.einsum("nd,nd->n", x, theta[actions]) + rng.normal(size=n)
    labels = [f"kind {k % 6}" for k in range(K)]
    ids = [f"item {k}" for k in range(K)]
    if evil:
        labels, ids = [EVIL + one for one in labels], [f"<b>{one}</b>\x07&{EVIL}" for one in ids]
    catalog = ma.Catalog(ids, categories=labels)
    logs = ma.LoggedData(x, actions, rewards, np.full(n, 1 / (K - 10)), K, catalog=catalog)
    return logs.take(np.arange(n // 2)), logs.take(np.arange(n // 2, n)), catalog


@pytest.fixture(scope="module")
def known():
    train, test, catalog = world()
    posterior = ma.fit(train, ma.priors.from_categories(catalog, dim=3))
    policies = {
        "greedy": ma.Greedy(posterior),
        "pessimistic": ma.Pessimistic(posterior),
        "uniform": ma.Uniform(60),
    }
    briefing = ma.decide(policies, test, posterior, estimators=[ma.SNIPS(), ma.DR(posterior)])
    return briefing, policies, test, posterior


def test_a_briefing_says_what_the_posterior_says(known):
    briefing, policies, test, posterior = known
    gain = posterior.difference(policies["greedy"], ma.Logged(test), test.contexts)
    lift = posterior.lift(policies["greedy"], ma.Logged(test), test.contexts)
    row = briefing.evaluation.policies[0]
    assert_allclose([row.difference.value, row.difference.std], [gain.value, gain.std], rtol=1e-9)
    assert_allclose([row.lift.value, *row.lift.interval()], [lift.value, *lift.interval()], rtol=1e-9)
    between = posterior.difference(policies["greedy"], policies["uniform"], test.contexts)
    better = briefing.evaluation.probability_better
    assert_allclose(better("greedy", "uniform"), between.probability_positive, rtol=1e-9)
    assert_allclose(better("uniform", "greedy"), 1 - between.probability_positive, atol=1e-12)
    assert_allclose(better("logged", "greedy"), 1 - gain.probability_positive, atol=1e-12)
    low, high = lift.interval()
    assert briefing.answer.verdict == "ship"
    assert f"{100 * lift.value:+.3g} % [{100 * low:+.3g}, {100 * high:+.3g}]" in briefing.answer.sentence


def test_shares_by_category_and_movers_count_choices(known):
    briefing, policies, test, _ = known
    chosen, kinds = policies["greedy"].actions(test.contexts), np.arange(60) % 6
    for row in briefing.support.rows:
        mine = kinds == int(row.category[-1])
        assert_allclose(row.logged, mine[test.actions].mean())
        assert_allclose(row.chosen["greedy"], mine[chosen].mean(), atol=1e-12)
        never = mine & ~np.isin(np.arange(60), test.actions)
        assert_allclose(row.unsupported["greedy"], never[chosen].mean(), atol=1e-12)
    change = np.bincount(chosen, minlength=60) / len(test) - np.bincount(test.actions, minlength=60) / len(test)
    moved = briefing.movers
    assert_allclose([row.change for row in moved.rows[:3]], np.sort(change)[::-1][:3], atol=1e-12)
    assert_allclose(moved.rows[-1].change, change.min(), atol=1e-12)
    assert_allclose(moved.moved, np.maximum(change, 0).sum(), atol=1e-12)


def test_shrinkage_lies_between_an_actions_own_mean_and_its_category(known):
    """With one feature, a precision-weighted mean of both; here against the dense formula."""
    n, K = 90, 6
    rng = np.random.default_rng(1)
    actions = np.repeat(np.arange(K), [1, 2, 4, 8, 25, 50])
    logs = ma.LoggedData(np.ones((n, 1)), actions, rng.normal(size=n) + actions % 2, n_actions=K)
    posterior = ma.fit(logs, ma.priors.from_categories(np.arange(K) % 2, dim=1, action_std=0.5))
    found = ma.decide({"uniform": ma.Uniform(K)}, logs, posterior, categories=np.arange(K) % 2).shrinkage
    assert [row.n_rounds for row in found.rows] == [1, 2, 4, 8, 25, 50]
    psi = posterior.weights.latent_mean
    for row in found.rows:
        a, weight = int(row.action), row.n_rounds / (row.n_rounds + 1 / 0.5**2)
        assert_allclose(row.category_only, psi[a % 2], rtol=1e-9)
        assert_allclose(row.own, logs.rewards[actions == a].mean(), rtol=1e-9)
        assert_allclose(row.posterior, weight * row.own + (1 - weight) * row.category_only, rtol=1e-9)


def test_calibration_is_shown_on_unseen_rounds_or_against_the_truth_only(known):
    briefing, policies, test, posterior = known
    bins = briefing.calibration.bins
    assert briefing.calibration.held_out and len(bins) == 10
    expected = posterior.expected_reward(test.contexts, test.actions)
    order = np.argsort(expected)[: len(test) // 10]
    assert_allclose([bins[0].expected, bins[0].observed], [expected[order].mean(), test.rewards[order].mean()])
    seen = ma.decide(policies, world()[0], posterior)
    assert not seen.calibration.held_out and seen.calibration.bins == ()
    assert any("has seen these rounds" in one for one in seen.missing)
    told = ma.decide(policies, world()[0], posterior, true_rewards=np.zeros(750))
    assert {one.observed for one in told.calibration.bins} == {0.0}


def judged(**differences):
    rows = [ma.jobs.PolicyResult(name, ma.Estimate(1.0, 0.1), one) for name, one in differences.items()]
    return ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.1)), tuple(rows))


@pytest.mark.parametrize(
    ("verdict", "policy", "gains"),
    [
        ("ship", "b", {"a": (0.1, 0.01), "b": (0.2, 0.05), "c": (0.5, 1.0)}),
        ("undecided", "b", {"a": (-0.1, 0.01), "b": (0.1, 0.1)}),
        ("keep", "a", {"a": (-0.1, 0.01), "b": (-0.2, 0.01)}),
    ],
)
def test_the_answer_is_the_surest_gain_or_none(verdict, policy, gains):
    found = answer(judged(**{name: ma.Estimate(*one, diagnostics={}) for name, one in gains.items()}))
    assert (found.verdict, found.policy) == (verdict, policy)
    assert found.sentence.startswith({"ship": "Ship b", "undecided": "Not decided", "keep": "Keep what"}[verdict])


def test_a_gain_that_the_rewards_contradict_is_not_shipped():
    def found(value, size):
        check = ma.Estimate(value, 0.05, kind="sampling", diagnostics={"effective_sample_size": size})
        gain = ma.Estimate(0.3, 0.05, diagnostics={})
        row = ma.jobs.PolicyResult("new", ma.Estimate(1.3, 0.05), gain, estimates={"snips": check})
        return answer(ma.Evaluation(100, 1.0, ma.jobs.PolicyResult("logged", ma.Estimate(1.0, 0.05)), (row,)))

    assert found(1.25, 1000.0).verdict == found(1.6, 1000.0).verdict == "ship"
    refuted = found(1.05, 1000.0)
    assert refuted.verdict == "undecided" and "but snips refutes it" in refuted.sentence
    # Far below the model, and still a clear gain.
    assert found(1.15, 1000.0).verdict == "ship"
    # Weights that are worth a handful of rounds refute nothing.
    assert found(1.05, 20.0).verdict == "ship"


def two_arms(means, seed, n=4000):
    """What runs now shows the first of two arms four times in five."""
    rng = np.random.default_rng(seed)
    actions = rng.choice(2, p=[0.8, 0.2], size=n)
    rewards = np.array(means)[actions] + 0.1 * rng.normal(size=n)
    return ma.LoggedData(np.ones((n, 1)), actions, rewards, np.where(actions == 0, 0.8, 0.2), n_actions=2)


def test_a_model_that_is_wrong_about_what_runs_now_ships_nothing():
    """Rewards have moved since the fit: the log itself shows what it brought."""
    posterior = ma.fit(two_arms([0.1, 0.3], 0), ma.priors.independent(2, mean=[0.2], cov=0.05), ma.Gaussian(0.1))
    policies, judges = {"greedy": ma.Greedy(posterior)}, [ma.SNIPS(), ma.DR(posterior)]
    moved = ma.decide(policies, two_arms([0.5, 0.3], 1), posterior, estimators=judges).answer
    assert moved.verdict == "undecided" and "puts what runs now at 0.141, which brought 0.4" in moved.sentence
    assert "snIPS" in moved.sentence
    assert ma.decide(policies, two_arms([0.1, 0.3], 1), posterior, estimators=judges).answer.verdict == "ship"


def test_a_model_whose_noise_the_rewards_contradict_ships_nothing():
    rng = np.random.default_rng(5)
    logs = ma.LoggedData(np.ones((3000, 1)), rng.integers(50, size=3000), 1 + rng.normal(size=3000), n_actions=50)
    wrong, right = (
        ma.fit(logs, ma.priors.independent(50, mean=[1.0], cov=cov), ma.Gaussian(noise))
        for cov, noise in ((1.0, 0.05), (0.01, 1.0))
    )
    found = ma.decide({"greedy": ma.Greedy(wrong)}, logs, wrong).answer
    assert found.verdict == "undecided" and "times as much as its noise says" in found.sentence
    assert "noise" not in ma.decide({"greedy": ma.Greedy(right)}, logs, right).answer.sentence


def test_a_policy_that_changes_nothing_leaves_nothing_to_decide():
    train, test, catalog = world()
    posterior = ma.fit(train, ma.priors.from_categories(catalog, dim=3))
    same = ma.decide({"same": ma.Logged(test)}, test, posterior)
    assert same.answer.sentence.startswith("Nothing to decide: same") and page(same, "Same")


def test_what_is_missing_is_said_and_the_rest_is_there(tmp_path):
    train, test, _ = world()
    bare = ma.LoggedData(test.contexts, test.actions, test.rewards, n_actions=60)
    posterior = ma.fit(
        ma.LoggedData(train.contexts, train.actions, train.rewards, n_actions=60),
        ma.priors.independent(60, dim=3, cov=1.0),
    )
    single = ma.decide({"greedy": ma.Greedy(posterior)}, bare, posterior)
    said = " ".join(single.missing)
    assert "no categories" in said and "no propensities" in said
    text = page(single, "One")
    assert 'id="chart-gains"' in text and 'id="chart-better"' not in text and 'id="chart-support"' not in text
    without = ma.decide({"uniform": ma.Uniform(60)}, test, estimators=[ma.SNIPS()])
    assert without.answer.verdict == "estimated" and "Without a model" in " ".join(without.missing)
    assert 'id="chart-agreement"' in page(without, "No model")
    with pytest.raises(InputError, match="nothing to judge"):
        ma.decide({}, test, posterior)
    with pytest.raises(InputError, match=r"format must be one of html, json, svg, png; got 'pdf'"):
        ma.write_report(single, tmp_path / "report.pdf")
    with pytest.raises(InputError, match="seen all of these rounds"):
        ma.plots.calibration(
            ma.decide(
                {"greedy": ma.Greedy(posterior)}, train, ma.fit(train, ma.priors.independent(60, dim=3, cov=1.0))
            ).calibration
        )


WRONG = """
import numpy as np, manyarms as ma
logs = ma.LoggedData(np.ones((9, 1)), np.arange(9) % 3, np.arange(9.0), n_actions=3)
posterior = ma.fit(logs, ma.priors.independent(3, dim=1))
briefing = ma.decide({"uniform": ma.Uniform(3)}, logs, posterior)
charts = [getattr(ma.plots, name) for name in ma.plots.__all__ if name != "theme"]
tries = [lambda draw=draw: draw(briefing) for draw in charts]
tries += [lambda: ma.decide({"uniform": ma.Uniform(3)}, logs, "model"), lambda: ma.write_report(posterior, "x.html")]
for attempt in tries:
    try:
        attempt()
    except ma.errors.DataTypeError as refused:
        print(refused)
"""


def test_charts_and_reports_refuse_what_they_are_not_made_of(known, tmp_path):
    # In a process of its own, where no annotation is checked before ours.
    told = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == len(CHARTS) + 2 and all("must be" in line for line in told)
    with pytest.raises(InputError, match="there is none at"):
        ma.write_report(known[0], tmp_path / "nowhere" / "report.html")
    assert len(repr(known[0])) < 300


def test_of_thousands_of_categories_the_top_ones_are_shown_and_the_rest_summed_up():
    train, test, _ = world(K=4000)
    many = np.arange(4000)
    posterior = ma.fit(train, ma.priors.independent(4000, dim=3, cov=1.0))
    briefing = ma.decide({"uniform": ma.Uniform(4000)}, test, posterior, categories=many)
    assert len(briefing.support.rows) == 21 and briefing.support.rows[-1].category == "3,980 others"
    assert_allclose(sum(row.logged for row in briefing.support.rows), 1.0)
    assert_allclose(sum(row.chosen["uniform"] for row in briefing.support.rows), 1.0)
    assert "4,000 categories" in " ".join(briefing.missing) and len(page(briefing, "Many")) < 2_000_000
    whole = support(briefing.evaluation, test, many, shown=5000)
    assert len(whole.rows) == 4000 and whole.n_summed == 0


def test_every_format_has_the_same_figures(known, tmp_path):
    briefing = known[0]
    (html,) = ma.write_report(briefing, tmp_path / "report.html", title="A <title>")
    text = html.read_text(encoding="utf-8")
    assert len(text.encode()) < 2_000_000 and escape(briefing.answer.sentence) in text and "A &lt;title&gt;" in text
    (found,) = ma.write_report(briefing, tmp_path / "report.json")
    told = json.loads(found.read_text())
    assert told["answer"]["sentence"] == briefing.answer.sentence
    rows = [told["evaluation"]["baseline"], *told["evaluation"]["policies"]]
    for row, judged_row in zip(rows, briefing.evaluation.rows, strict=True):
        assert row["value"]["interval_95"] == list(judged_row.value.interval())
    for kind, begins in (("svg", b"<svg"), ("png", b"\x89PNG")):
        written = ma.write_report(briefing, tmp_path / kind, format=kind)
        assert {path.stem for path in written} == CHARTS
        assert all(path.read_bytes().startswith(begins) for path in written)


def drawn_charts(dom):
    return re.search(r'<html[^>]*data-drawn="(\d+)"', dom)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_draws_all_its_charts_and_fetches_nothing(known, tmp_path, width, dark):
    (path,) = ma.write_report(known[0], tmp_path / "report.html")
    dom, console = opened(path, width=width, dark=dark)
    assert console == []
    assert drawn_charts(dom).group(1) == str(len(CHARTS)) and "data-failed" not in dom
    assert f'data-theme="{"dark" if dark else "light"}"' in dom
    for name in CHARTS:
        place = dom[dom.index(f'id="chart-{name}"') :]
        assert "<svg" in place[: place.index("</figure>")]
        assert re.search(r'aria-label="[^"]{40,}', place)
    # The page may not ask for anything: where something on it does, the console says so.
    asking = tmp_path / "asking.html"
    asking.write_text(path.read_text().replace("</body>", '<img src="http://127.0.0.1:9/x.png"></body>'))
    assert any("Content Security Policy" in line for line in opened(asking, width=width)[1])


def test_labels_of_a_catalog_are_shown_and_never_run(tmp_path):
    train, test, catalog = world(evil=True)
    posterior = ma.fit(train, ma.priors.from_categories(catalog, dim=3))
    policies = {f"greedy {EVIL}": ma.Greedy(posterior), "uniform": ma.Uniform(60)}
    briefing = ma.decide(policies, test, posterior, estimators=[ma.SNIPS()], notes={"command": EVIL})
    (path,) = ma.write_report(briefing, tmp_path / "report.html", title=f"Title {EVIL}")
    assert EVIL not in path.read_text()
    dom, console = opened(path)
    assert console == [] and drawn_charts(dom).group(1) == str(len(CHARTS))
    shown = re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    assert "<img" not in shown and "<b>" not in shown and "&lt;img" in shown
    assert all(
        one.suffix == ".svg" and EVIL not in one.read_text()
        for one in ma.write_report(briefing, tmp_path / "s", format="svg")
    )
