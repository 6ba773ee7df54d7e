"""plan: the figures of the library, the exploration policy as a file, and the chart."""

import numpy as np
import pytest
from small_shop import ROLES, done, figures, refused

import manyarms as ma


@pytest.fixture(scope="module")
def world(shop, tmp_path_factory):
    """A model, rounds, and a candidate that is hardly different: it shows the logged items, but to anyone."""
    posterior = ma.load(shop / "model.arrow")
    logs = ma.read_logs(
        shop / "new", ["age", "city"], "item", "spend", "p", posterior.catalog, features=posterior.features
    ).collect()
    candidate = ma.TablePolicy(np.bincount(logs.actions, minlength=logs.n_actions) / len(logs))
    path = tmp_path_factory.mktemp("candidate") / "candidate.arrow"
    candidate.save(path)
    command = ["plan", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--candidate", path]
    return posterior, logs, candidate, command


def test_plan_gives_the_figures_of_the_library_and_saves_its_policy(world, tmp_path):
    saved, chart = tmp_path / "explore.arrow", tmp_path / "plan.svg"
    posterior, logs, candidate, command = world
    shown = figures(*command, "--share", "0.1", "--chance", "0.7", "--policy", saved, "--chart", chart)
    planned = ma.plan(posterior, candidate, ma.Logged(logs), logs.contexts, chance=0.7, share=0.1)
    assert [row["rounds"] for row in shown["traffic"]] == [row["rounds"] for row in planned.records()]
    assert shown["items"][0]["id"] == posterior.catalog.ids[planned.items[0]["action"]]
    assert "probability of a decision" in chart.read_text()
    again = ma.load(saved)
    np.testing.assert_allclose(again.probabilities(logs.contexts), planned.policy.probabilities(logs.contexts))


def test_plan_prints_a_sentence_and_the_items_to_show(world):
    printed = done(*world[-1]).stdout
    assert "To decide with a probability of 80 %, log about" in printed
    assert "The exploration policy shows most often:" in printed


def test_a_settled_question_has_no_chart(shop, tmp_path):
    command = ["plan", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--candidate", "softmax:0.3"]
    result = done(*command, "--sure", "0.51", "--chart", tmp_path / "plan.svg")
    assert "sure of a gain" in result.stdout and "No chart was written" in result.stderr
    assert not (tmp_path / "plan.svg").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--share", "0"], ["--share must be above 0"]),
        (["--chance", "1"], ["--chance must be", "below 1"]),
        (["--candidate", "grredy"], ["grredy"]),
        (["--chart", "plan.gif"], ["--chart must end in .svg or .png"]),
    ],
)
def test_bad_flags_are_refused_in_one_line(shop, flags, words):
    refused("plan", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, *flags, words=words)


def test_a_policy_and_a_chart_are_two_files(shop, tmp_path):
    command = ["plan", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--candidate", "uniform"]
    (tmp_path / "b").mkdir()
    refused(*command, "--policy", tmp_path / "a.svg", "--chart", tmp_path / "b" / ".." / "a.svg", words=["same file"])
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
