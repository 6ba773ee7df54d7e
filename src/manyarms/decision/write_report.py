"""`ma.write_report`: a decision as one HTML page that needs no network, as JSON, or as chart images."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import vl_convert

from manyarms._base.checks import as_instance, as_path, as_text
from manyarms._base.files import replace_files
from manyarms._base.job_options import REPORT_FORMATS as FORMATS
from manyarms._version import __version__
from manyarms.core.result_tables import number, percent
from manyarms.decision import plots
from manyarms.decision import report_sentences as sentences
from manyarms.decision.backtest_sections import BACKTEST_SECTIONS, backtest_answer, backtest_cards
from manyarms.decision.decide import Decision
from manyarms.decision.recommendation import needed_probability
from manyarms.decision.report_parts import fold, notes
from manyarms.decision.report_sections import SECTIONS, draw_charts
from manyarms.errors import InputError
from manyarms.jobs.backtest_result import Backtest

PRINTED = (
    "policies",
    "segments",
    "goals",
    "best",
    "trust",
    "blind",
    *(section.anchor for section in BACKTEST_SECTIONS),
)
"""Sections on paper: what a reader needs to check the answer, on two pages."""


def write_report(
    decision: Decision | Backtest,
    path: Any,
    *,
    format: str | None = None,
    title: str | None = None,
    unit: str | None = None,
) -> list[Path]:
    """Write a decision or a backtest to files, for people or for machines.

    Args:
        decision: The result of `ma.decide`, or of `ma.backtest`.
        path: A file for HTML and JSON; a folder for SVG and PNG, which gets one image per chart.
        format: "html", one page with interactive charts that opens without a network; "json", all figures; "svg" or
            "png", the charts. None to use the ending of `path`.
        title: The title of the page; None for "Policy report" or "Backtest".
        unit: The unit of the reward, such as "euros"; None for that of the result.

    Returns:
        The files written. Each is written completely or not at all.
    """
    if not isinstance(decision, Backtest):
        as_instance("decision", decision, Decision, "what ma.decide() or ma.backtest() returned")
    usual = "Backtest" if isinstance(decision, Backtest) else "Policy report"
    path, title = as_path("path", path), usual if title is None else as_text("title", title)
    if unit is not None:
        decision = replace(decision, unit=as_instance("unit", unit, str, "a text"))
    kind = path.suffix.removeprefix(".").lower() if format is None else format
    if not isinstance(kind, str) or kind not in FORMATS:  # pyright: ignore[reportUnnecessaryIsInstance]
        problem = f"must be one of {', '.join(FORMATS)}; got {kind!r}."
        remedy = "Name one, or let the path end in it."
        raise InputError(problem, remedy, argument="format", flag_remedy="Name one, or let --out end in it.")
    if kind in ("html", "json") and not path.parent.is_dir():
        raise InputError(f"must be in an existing folder; {path.parent} does not exist.", argument="path")
    if kind == "html":
        contents = {path: html_page(decision, title).encode(errors="replace")}
    elif kind == "json":
        text = json.dumps(decision.as_json(), indent=2, ensure_ascii=False) + "\n"
        contents = {path: text.encode(errors="replace")}
    else:
        path.mkdir(parents=True, exist_ok=True)
        contents = {path / f"{name}.{kind}": _image(spec, kind) for name, spec in _charts(decision).items()}
    replace_files(contents)
    return list(contents)


def write_chart(chart: Any, path: Path) -> None:
    """Write one chart by itself, as `write_report` writes all: as SVG or PNG by the ending, whole or not at all."""
    replace_files({path: _image(chart.to_dict(validate=False), path.suffix.removeprefix(".").lower())})


def html_page(decision: Decision | Backtest, title: str) -> str:
    """The report as HTML. Text from catalogs and logs is escaped, and the page may not load anything.

    No text in a script can end its element, and no line ends between a number and its percent sign.
    """
    bundle: Any = vl_convert.javascript_bundle
    charts, listed = _charts(decision), BACKTEST_SECTIONS if isinstance(decision, Backtest) else SECTIONS
    sections = [
        (section.anchor, section.heading, html) for section in listed if (html := section.html(decision, charts))
    ]
    page_files = files("manyarms.decision") / "page_files"
    page, css, script = (
        (page_files / f"report.{ending}").read_text(encoding="utf-8") for ending in ("html", "css", "js")
    )
    # Chromium and others normalise line ends before they hash an element.
    css, script, vega = (
        text.replace("\r\n", "\n") for text in (css, script, bundle().replace("</script", "<\\/script"))
    )
    themes = {"light": plots.theme(), "dark": plots.theme(dark=True)}
    return Template(page).substitute(
        version=__version__,
        title=escape(title),
        css=css,
        verdict=_verdict_style(decision),
        sentence=escape(decision.sentence).replace(" %", "&nbsp;%"),
        answer=_answer(decision) if isinstance(decision, Decision) else _listed(backtest_answer(decision)),
        cards=_figures(backtest_cards(decision)) if isinstance(decision, Backtest) else _cards(decision),
        links="".join(f'<a href="#{name}">{escape(heading)}</a>' for name, heading, _ in sections),
        sections="".join(
            f'<section id="{name}" aria-labelledby="{name}-head"{_printed(name)}>'
            f'<h2 id="{name}-head">{escape(heading)}</h2>{html}</section>'
            for name, heading, html in sections
        ),
        made_with="".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in decision.made_with.items()),
        charts=_json(charts),
        themes=_json({name: {**theme, "background": "transparent"} for name, theme in themes.items()}),
        vega=vega,
        script=script,
        styles=_hashes(css),
        scripts=_hashes(vega, script),
    )


def _charts(decision: Decision | Backtest) -> dict[str, dict[str, Any]]:
    """The charts of a decision or of a backtest, by name."""
    if isinstance(decision, Decision):
        return draw_charts(decision)
    return {name: chart for section in BACKTEST_SECTIONS for name, chart in section.draw(decision).items()}


def _verdict_style(decision: Decision | Backtest) -> str:
    """The classes of the box with the verdict, which give its colour."""
    if isinstance(decision, Backtest):
        return "undecided amber" if decision.alarms else "ship green"
    # A policy to ship is not shown in green above a check that failed, or a red light of the model for this policy.
    own = any(
        light.colour == "red" and (light.policy, light.estimator) == (decision.policy, "model")
        for light in decision.diagnostics
    )
    return f"{decision.verdict} {'red' if own else _light(decision)}"


def _figures(figures: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in figures.items())


def _printed(name: str) -> str:
    """The class of a section that is printed; the others are for the screen."""
    return ' class="printed"' if name in PRINTED else ""


def _hashes(*texts: str) -> str:
    """The texts of elements that a Content-Security-Policy allows, by their hashes; no others run or apply."""
    digests = (b64encode(sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def _image(spec: Mapping[str, Any], kind: str) -> bytes:
    theme = plots.theme()
    options: dict[str, Any] = {"vl_spec": {**spec, "config": theme}, "format_locale": theme["locale"]["number"]}
    if kind == "svg":
        return vl_convert.vegalite_to_svg(**options).encode()
    return vl_convert.vegalite_to_png(**options, scale=2.0)


def _json(value: Any) -> str:
    """JSON without text that could end the script element around it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _cards(decision: Decision) -> str:
    """The main figures, above the sections."""
    evaluation = decision.evaluation
    mean = sentences.in_unit(number(evaluation.mean_reward), decision.unit)
    figures = {"Rounds evaluated": f"{evaluation.n_rounds:,}", "Mean logged reward": mean}
    if evaluation.pooled_rounds is not None:
        figures = {
            "Rounds used for the gains": f"{evaluation.pooled_rounds:,}",
            "Rounds used for everything else": f"{evaluation.n_rounds:,}",
            "Mean logged reward": mean,
        }
    best = next((row for row in evaluation.policies if row.name == decision.policy), None)
    if best is not None and best.value is not None:
        figures[f"Value of {best.name} (model)"] = sentences.in_unit(number(best.value.value), decision.unit)
    if decision.probability is not None:
        figures["Probability of a gain"] = percent(decision.probability)
    cells = _figures(figures)
    count, _, others = decision.checks_summary.partition(" checks passed")
    link = f'<a class="light {_light(decision)}" href="#trust">{count}</a>'
    heading = f"Checks passed ({others.removeprefix(', ')})" if others else "Checks passed"
    return f"{cells}<div><dt>{heading}</dt><dd>{link}</dd></div>"


def _answer(decision: Decision) -> str:
    """The first screen below the verdict: the gain in its unit, what speaks against it, what to do next, and why."""
    against, larger = sentences.blockers(decision), sentences.passed_over(decision)
    answer = _listed(
        {
            "Gain": sentences.gain_sentence(decision),
            "What stands in the way of shipping": against,
            "What to be careful about": sentences.concerns(decision),
            "Why not a larger gain": larger,
            "What to do next": decision.next_step,
        }
    )
    reason = decision.reason
    # These stand above already.
    for known in (decision.next_step, needed_probability(decision.sure) if against else "", *larger):
        reason = reason.replace(known, "").strip() if known else reason
    why = fold("Why", f"<p>{escape(f'{reason} {decision.checks_summary}.')}</p>" if reason else "")
    return f"{answer}{why}".replace(" %", "&nbsp;%")


def _listed(parts: Mapping[str, str | Sequence[str]]) -> str:
    """The first screen below the answer: a line for each part that is not empty, or a list of sentences."""
    rows = "".join(
        f"<dt>{name}</dt><dd>{escape(text) if isinstance(text, str) else notes(text)}</dd>"
        for name, text in parts.items()
        if text
    )
    return f'<dl class="answer">{rows}</dl>'.replace(" %", "&nbsp;%")


def _light(decision: Decision) -> str:
    """Red if a check failed; green only if all six were possible and passed, so that fewer inputs never look safer."""
    colours = {check.colour for check in decision.checks}
    return next(colour for colour in ("red", "amber", "green") if colour in colours)
