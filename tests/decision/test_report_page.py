"""The page draws its charts without a network, and labels of a catalog are shown and never run."""

import re

import pytest
from browser import opened
from decision_world import CHARTS, EVIL, world

import manyarms as ma


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
