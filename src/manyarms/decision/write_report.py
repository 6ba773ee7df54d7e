"""The report of a decision: one page that needs no network, made of a briefing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from manyarms._base.checks import as_instance
from manyarms._base.files import replace_files
from manyarms._base.option_values import REPORT_FORMATS as FORMATS
from manyarms._version import __version__
from manyarms.decision import plots
from manyarms.decision.decide import Decision
from manyarms.decision.report_sections import SECTIONS, charts_of
from manyarms.decision.verdict import number, percent
from manyarms.errors import InputError


def write_report(
    briefing: Decision, path: Any, *, format: str | None = None, title: str = "Policy report"
) -> list[Path]:
    """Write what `ma.decide` has found, for people or for machines.

    Args:
        briefing: What `ma.decide` returned.
        path: A file for HTML and JSON; a folder for SVG and PNG, which gets an image for each chart.
        format: "html", one page with interactive charts that opens without a network; "json", all figures; "svg" or
            "png", the charts. None to tell by the ending of `path`.
        title: Of the page.

    Returns:
        The files that were written; each is there whole or not at all.
    """
    briefing = as_instance("briefing", briefing, Decision, "what ma.decide() returned")
    where = Path(path)
    kind = format or where.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}; got {kind!r}. Name it, or end the path in it.")
    if kind in ("html", "json") and not where.parent.is_dir():
        raise InputError(f"path must lie in a folder that is there; there is none at {where.parent}.")
    if kind == "html":
        contents = {where: page(briefing, title).encode(errors="replace")}
    elif kind == "json":
        contents = {
            where: (json.dumps(briefing.as_json(), indent=2, ensure_ascii=False) + "\n").encode(errors="replace")
        }
    else:
        where.mkdir(parents=True, exist_ok=True)
        contents = {where / f"{name}.{kind}": _image(spec, kind) for name, spec in _specs(briefing).items()}
    replace_files(contents)
    return list(contents)


def page(briefing: Decision, title: str) -> str:
    """The page as HTML. What comes from catalogs and logs is escaped, and the page may fetch nothing."""
    specs = _specs(briefing)
    sections = [(name, head, body) for name, head, make in SECTIONS if (body := make(briefing, specs))]
    contents = "".join(f'<a href="#{name}">{escape(head)}</a>' for name, head, _ in sections)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{escape(head)}</h2>{text}</section>'
        for name, head, text in sections
    )
    answer = briefing.answer
    asset = files("manyarms.decision") / "page_files"
    return f"""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline' 'unsafe-eval'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="generator" content="manyarms {__version__}">
<title>{escape(title)}</title>
<style>{(asset / "report.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header><span>{escape(title)}</span><button id="theme" type="button" aria-label="Switch between light and dark">Dark\
</button></header>
<main>
<div class="answer {answer.verdict}"><h1>{escape(answer.sentence)}</h1><p>{escape(answer.reason)}</p></div>
{_cards(briefing)}
<nav aria-label="Sections">{contents}</nav>
<noscript><p class="note">Charts need JavaScript; every figure is in the tables too.</p></noscript>
{body}
</main>
<footer>{_made_with(briefing.made_with)}</footer>
<script type="application/json" id="charts">{_json(specs)}</script>
<script type="application/json" id="themes">{_json(_themes())}</script>
<script>{_vega()}</script>
<script>{(asset / "report.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _specs(briefing: Decision) -> dict[str, dict[str, Any]]:
    """The charts in Vega-Lite, without a look: the page gives them one."""
    specs = dict[str, dict[str, Any]]()
    for name, drawn in charts_of(briefing).items():
        spec = drawn.to_dict(validate=False)
        spec.pop("config", None)
        spec.pop("$schema", None)
        specs[name] = spec
    return specs


def _themes() -> dict[str, Any]:
    """Both looks, on whatever ground the page has."""
    looks = {"light": plots.theme(), "dark": plots.theme(dark=True)}
    return {name: {**look, "background": "transparent"} for name, look in looks.items()}


def _vega() -> str:
    """What draws charts in a browser, with nothing in it that could end its script element."""
    import vl_convert  # noqa: PLC0415  slow to import

    bundle: Any = vl_convert.javascript_bundle
    return bundle().replace("</script", "<\\/script")


def _image(spec: Mapping[str, Any], kind: str) -> bytes:
    import vl_convert  # noqa: PLC0415

    dressed = {**spec, "config": plots.theme()}
    if kind == "svg":
        return vl_convert.vegalite_to_svg(dressed).encode()
    return vl_convert.vegalite_to_png(dressed, scale=2.0)


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _cards(briefing: Decision) -> str:
    """The few figures that everyone asks for first."""
    evaluation = briefing.evaluation
    figures = {"rounds judged on": f"{evaluation.n_rounds:,}", "mean reward now": number(evaluation.mean_reward)}
    best = next((row for row in evaluation.policies if row.name == briefing.answer.policy), None)
    if best is not None and best.value is not None:
        figures[f"value of {best.name}"] = number(best.value.value)
    if briefing.answer.probability is not None:
        figures["sure that it is better"] = percent(briefing.answer.probability)
    red = sum(light.colour == "red" and light.policy == briefing.answer.policy for light in briefing.lights)
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in figures.items())
    if best is not None:
        look = "light red" if red else "light green"
        link = f'<a class="{look}" href="#trust">{red}</a>'
        cells += f"<div><dt>red lights of {escape(best.name)}</dt><dd>{link}</dd></div>"
    return f'<dl class="cards">{cells}</dl>'


def _made_with(lines: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in lines.items())
    return f"<h2>Made with</h2><dl>{rows}</dl>"
