"""The page draws its charts without a network, and labels of a catalog are shown and never run."""

import re
from base64 import b64encode
from hashlib import sha256

import numpy as np
import pytest
from browser import opened, printed_pages
from decision_world import CHARTS, EVIL, world
from fast_first import fast_first

import manyarms as ma


def drawn_charts(dom):
    return re.search(r'<html[^>]*data-drawn="(\d+)"', dom)


def at_the_end(page, html):
    """A page with more at the end of its body; the text of a script also has the end of a body."""
    before, end, after = page.rpartition("</body>")
    return before + html + end + after


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
    asking.write_text(at_the_end(path.read_text(), '<img src="http://127.0.0.1:9/x.png">'))
    assert any("Content Security Policy" in line for line in opened(asking, width=width)[1])


def with_script(path, text):
    """A copy of a page with one more script, which its policy allows by its hash."""
    digest = b64encode(sha256(text.encode()).digest()).decode()
    page = path.read_text().replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    copy = path.with_name("with-script.html")
    copy.write_text(at_the_end(page, f"<script>{text}</script>"))
    return copy


def test_the_theme_switch_and_the_labels_of_marks_keep_to_the_policy_of_the_page(known, tmp_path):
    (path,) = ma.write_report(known[0], tmp_path / "report.html")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', path.read_text()).group(1)
    assert "unsafe" not in policy
    script = """setTimeout(() => {
      document.getElementById("theme").click();
      setTimeout(() => {
        for (const mark of document.querySelectorAll("#chart-values svg .mark-symbol path")) {
          const { left, top, width, height } = mark.getBoundingClientRect();
          const place = { clientX: left + width / 2, clientY: top + height / 2, bubbles: true };
          for (const kind of ["pointerover", "mouseover", "pointermove", "mousemove"])
            mark.dispatchEvent(new MouseEvent(kind, place));
        }
        const label = document.getElementById("vg-tooltip-element");
        document.documentElement.dataset.label = label ? getComputedStyle(label).visibility : "none";
      }, 4000);
    }, 4000);"""
    dom, console = opened(with_script(path, script))
    assert console == []
    assert 'data-theme="dark"' in dom and "data-failed" not in dom
    assert drawn_charts(dom).group(1) == str(len(CHARTS))
    assert 'data-label="visible"' in dom


@pytest.mark.parametrize(
    "foreign",
    fast_first(
        [
            "<script>document.documentElement.dataset.ran = 1</script>",
            '<img src="data:," onerror="document.documentElement.dataset.ran = 1">',
            "<style>body { display: none }</style>",
            '<p style="position: fixed">over everything</p>',
        ]
    ),
)
def test_code_and_styles_that_are_not_the_pages_own_are_blocked(known, tmp_path, foreign):
    (path,) = ma.write_report(known[0], tmp_path / "report.html")
    path.write_text(at_the_end(path.read_text(), foreign))
    dom, console = opened(path)
    assert drawn_charts(dom).group(1) == str(len(CHARTS))
    assert re.search(r"<html[^>]*data-ran", dom) is None
    assert any("Content Security Policy" in line for line in console)


@pytest.mark.slow
def test_labels_of_a_catalog_are_shown_and_never_run(tmp_path):
    train, test, catalog = world(evil=True)
    posterior = ma.fit(train, ma.priors.from_categories(catalog, dim=3))
    policies = {f"greedy {EVIL}": ma.Greedy(posterior), "uniform": ma.Uniform(60)}
    decision = ma.decide(policies, test, posterior, estimators=[ma.SNIPS()], notes={"command": EVIL})
    (path,) = ma.write_report(decision, tmp_path / "report.html", title=f"Title {EVIL}")
    assert EVIL not in path.read_text()
    dom, console = opened(path)
    assert console == [] and drawn_charts(dom).group(1) == str(len(CHARTS))
    shown = re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    assert "<img" not in shown and "<b>" not in shown and "&lt;img" in shown
    assert all(
        image.suffix == ".svg" and EVIL not in image.read_text()
        for image in ma.write_report(decision, tmp_path / "s", format="svg")
    )


def drifting_backtest():
    """Forecasts of 16 days, in which rewards rise from the eleventh on."""
    rng = np.random.default_rng(0)
    day, kinds = np.repeat(np.arange(16), 100), np.arange(12) % 3
    actions = rng.integers(12, size=1600)
    rewards = 2.0 + 0.3 * kinds[actions] + 0.7 * (day >= 10) + rng.normal(size=1600)
    times = np.datetime64("2024-05-01T10:00") + day.astype("timedelta64[D]")
    return ma.backtest(ma.LoggedData(np.ones((1600, 1)), actions, rewards, n_actions=12, times=times), categories=kinds)


@pytest.mark.slow
def test_pages_with_goals_a_plan_and_a_backtest_are_drawn_and_take_two_pages_of_paper(tmp_path):
    rng, backtest = np.random.default_rng(5), drifting_backtest()
    train, test, catalog = (
        part
        if isinstance(part, ma.Catalog)
        else part.with_rewards(0.1 * part.rewards + 2.0 * rng.normal(size=len(part)))
        for part in world()
    )
    posterior = ma.learn_prior(train, ma.priors.from_categories(catalog, dim=3)).posterior
    policies = {"greedy": ma.Greedy(posterior), "softmax": ma.Softmax(posterior, temperature=0.3)}
    goal = ma.Guardrail("returns", rng.random(len(test)), at_most_worse=0.5, better="lower")
    options = {"guardrails": [goal], "estimators": [ma.SNIPS(), ma.DR(posterior)], "unit": "euros"}
    undecided = ma.decide(policies, test, posterior, backtest=backtest, **options)
    assert undecided.plan is not None and undecided.plan.rounds > 0
    for name, result, charts in (("report", undecided, len(CHARTS) + 2), ("backtest", backtest, 2)):
        (path,) = ma.write_report(result, tmp_path / f"{name}.html")
        for width, dark in ((1280, True), (390, False)):
            dom, console = opened(path, width=width, dark=dark)
            assert console == [] and drawn_charts(dom).group(1) == str(charts) and "data-failed" not in dom
            # Every chart has a sentence that says what it shows.
            captions = re.findall(r"<figcaption>(.*?)</figcaption>", dom, flags=re.DOTALL)
            assert len(captions) == charts and all(text.startswith("<strong>") for text in captions)
        assert printed_pages(path) <= 2
