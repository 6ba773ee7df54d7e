"""The figure on theory: `python studies/theory_figure.py [--out docs/reproduction]` writes theory.svg and theory.pdf.

Four panels: Theorem 1 with its counterexample and the corrected bound, as K grows; the same bounds with three actions
on the unit circle, with the explicit bound; Theorem 3, which holds with equality; and the half-widths of Bayesian and
frequentist intervals, which fall as 1 / sqrt(n) from about 1,000 rounds on. Simulated means have bars of one
standard error.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import vl_convert

import manyarms as ma
from manyarms import datasets, theory

COLOURS = {
    "suboptimality": "#D55E00",
    "Theorem 1": "#0072B2",
    "corrected bound": "#009E73",
    "explicit bound": "#8C8C8C",
    "Bayes MSE": "#D55E00",
    "Theorem 3": "#0072B2",
    "Bayesian": "#D55E00",
    "frequentist": "#0072B2",
    "1 / sqrt(n)": "#8C8C8C",
}
BOUNDED = "Bayes suboptimality and bounds"
SIMULATED = {"suboptimality", "Bayes MSE", "Bayesian", "frequentist"}
"""Lines without dashes; the others are bounds, or references."""

WORLDS = 20
"""Worlds and logs over which half-widths are averaged."""

Rows = list[dict[str, Any]]


def with_bar(x: float, name: str, mean: float, error: float) -> dict[str, Any]:
    """A simulated mean with a bar of one standard error."""
    return {"x": x, "name": name, "y": mean, "low": mean - error, "high": mean + error}


def pooled_error(parts: list[theory.BayesSuboptimality]) -> float:
    """The standard error of a mean over instances from several draws of the prior."""
    means = np.array([part.mean for part in parts])
    return float(means.std(ddof=1) / math.sqrt(len(means)))


def counterexample(rng: np.random.Generator) -> Rows:
    """d = d' = 1, φ = 1, no data: the suboptimality exceeds the bound of Theorem 1 at K = 1,000 and 10,000."""
    rows: Rows = []
    for K in (10, 100, 1000, 10_000):
        kind = datasets.SyntheticProblem(n_actions=K, dim=1, latent_dim=1)
        parts: list[theory.BayesSuboptimality] = []
        for child in rng.spawn(40):
            # W_a and the latent mean are drawn anew, as in the paper; its bound is for each of them.
            problem = theory.BayesianProblem(kind.draw_prior(child), lambda r, n: np.ones((n, 1)), kind.noise_std)
            parts.append(theory.bayes_suboptimality(problem, 0, rng=child, n_instances=10, n_contexts=1))
        squared = float(np.mean([part.expected_squared_norm for part in parts]))
        rows += [
            with_bar(K, "suboptimality", float(np.mean([part.mean for part in parts])), pooled_error(parts)),
            {
                "x": K,
                "name": "Theorem 1",
                "y": float(np.mean([theory.theorem_1_bound(1, p.expected_norm) for p in parts])),
            },
            {"x": K, "name": "corrected bound", "y": theory.corrected_bound(K, squared)},
        ]
    return rows


def bounds_by_n(rng: np.random.Generator) -> Rows:
    """Contexts on the unit circle, three actions: the assumptions of the explicit bound, with long logs."""
    root = math.sqrt(1.5)
    model = theory.IsotropicModel(2, 0.8, 0.5, 1.2, 0.5, root)
    mixing = np.linalg.qr(rng.standard_normal((3, 4, 2)))[0].swapaxes(1, 2)
    prior = ma.HierarchicalGaussian(np.full(4, 0.3), 1.2**2, mixing, 0.5**2)

    def circle(r: np.random.Generator, n: int) -> Any:
        angle = r.uniform(0, 2 * np.pi, n)
        return np.column_stack([np.cos(angle), np.sin(angle)])

    problem, rows = theory.BayesianProblem(prior, circle, 0.8), Rows()
    for n in (10, 100, 1000, 10_000, 100_000):
        count = 200 if n < 100_000 else 60
        risk = theory.bayes_suboptimality(problem, n, rng=rng, n_instances=count, n_contexts=100)
        rows += [
            with_bar(n, "suboptimality", risk.mean, risk.standard_error),
            {"x": n, "name": "Theorem 1", "y": theory.theorem_1_bound(2, risk.expected_norm)},
            {"x": n, "name": "corrected bound", "y": theory.corrected_bound(3, risk.expected_squared_norm)},
            {"x": n, "name": "explicit bound", "y": theory.explicit_bound(model, n, np.full(3, 1 / 3))},
        ]
    return rows


def setting(K: int, rng: np.random.Generator) -> theory.BayesianProblem:
    """The paper's synthetic problem with K actions."""
    kind = datasets.SyntheticProblem(n_actions=K)
    return theory.BayesianProblem(kind.draw_prior(rng), kind.draw_contexts, kind.noise_std)


def theorem_3(rng: np.random.Generator) -> Rows:
    """Bayes MSE and the expected squared norm, means over 50 pairs of context and action."""
    problem, rows = setting(50, rng), Rows()
    contexts, actions = problem.draw_contexts(rng, 50), rng.integers(50, size=50)
    for n in (10, 100, 1000, 10_000):
        risk = theory.bayes_mse(problem, contexts, actions, n, rng=rng, n_instances=400)
        by_instance = risk.squared_error.mean(axis=1)
        rows += [
            with_bar(n, "Bayes MSE", float(by_instance.mean()), float(by_instance.std(ddof=1) / math.sqrt(400))),
            {"x": n, "name": "Theorem 3", "y": float(risk.expected_squared_norm.mean())},
        ]
    return rows


def widths(rng: np.random.Generator) -> Rows:
    """Mean half-widths of 95 % intervals of r(x, a), valid for all x, in the paper's problem with 20 actions."""
    problem, rows = setting(20, rng), Rows()
    contexts, actions = problem.draw_contexts(rng, 200), rng.integers(20, size=200)
    for n in (100, 300, 1000, 10_000, 100_000):
        means: dict[str, list[float]] = {"frequentist": [], "Bayesian": []}
        for child in rng.spawn(WORLDS if n < 100_000 else 4):
            world, logs = problem.draw(n, child)
            posterior = ma.fit(logs, problem.prior, ma.Gaussian(problem.noise_std))
            marginal = ma.fit(logs, problem.prior.marginal(), ma.Gaussian(problem.noise_std))
            norms = np.linalg.norm(world.weights, axis=1)[actions]
            wide = theory.frequentist_width(marginal, contexts, actions, norms, 0.05)
            means["frequentist"].append(float(wide.mean()))
            means["Bayesian"].append(float(theory.bayesian_width(posterior, contexts, actions, 0.05).mean()))
        for name, values in means.items():
            rows.append(
                with_bar(n, name, float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))))
            )
    last = rows[-1]
    return rows + [{"x": n, "name": "1 / sqrt(n)", "y": last["y"] * math.sqrt(last["x"] / n)} for n in (100, 100_000)]


def panel(title: str, across: str, upward: str, rows: Rows) -> Any:
    """One panel, with a legend of its own."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    legend = alt.Legend(
        title=None, orient="bottom", columns=2, symbolType="stroke", symbolSize=500, symbolStrokeWidth=2
    )
    colour = alt.Color("name:N", scale=alt.Scale(domain=names, range=[COLOURS[name] for name in names]), legend=legend)
    dashes = [[1, 0] if name in SIMULATED else [6, 3] for name in names]
    dash = alt.StrokeDash("name:N", scale=alt.Scale(domain=names, range=dashes), legend=legend)
    x_axis, y_axis = alt.Axis(format="~s", grid=False, tickCount=5), alt.Axis(format="~g", tickCount=5)
    x = alt.X("x:Q", scale=alt.Scale(type="log", nice=False, padding=8), title=across, axis=x_axis)

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", scale=alt.Scale(type="log", nice=False, padding=12), title=upward, axis=y_axis)

    base = alt.Chart(alt.Data(values=rows)).encode(x, colour)
    bars = alt.Chart(alt.Data(values=[row for row in rows if "low" in row])).encode(x, colour, y("low"), alt.Y2("high"))
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(y("y"), dash),
        bars.mark_rule(strokeWidth=1.5),
        base.mark_point(filled=True, size=46).encode(y("y")),
    ).properties(title=alt.TitleParams(title, fontSize=13, fontWeight="normal"), width=330, height=220)


def main() -> None:
    """Simulate, print the numbers, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction"))
    out = parser.parse_args().out
    seeds = np.random.default_rng(2025).spawn(4)
    panels = (
        ("Theorem 1 fails: d = 1, no data, K varies", "actions, K", BOUNDED, counterexample(seeds[0])),
        ("Three actions, d = 2: n varies", "rounds, n", BOUNDED, bounds_by_n(seeds[1])),
        ("Theorem 3 is an equality: K = 50, d = 10", "rounds, n", "Bayes MSE and Theorem 3", theorem_3(seeds[2])),
        ("Half-widths valid for all x: K = 20, d = 10", "rounds, n", "mean half-width", widths(seeds[3])),
    )
    for title, _, _, rows in panels:
        print(title)
        for row in rows:
            print(f"  {row['x']:>8,} {row['name']:<16} {row['y']:.4g}")
    chart = alt.concat(*(panel(*part) for part in panels), columns=2).resolve_scale(
        color="independent", strokeDash="independent"
    )
    spec = (
        chart.configure(background="white", font="Arial, Helvetica, sans-serif").configure_view(stroke="#bbb").to_dict()
    )
    svg = vl_convert.vegalite_to_svg(spec)
    (out / "theory.svg").write_text(svg, encoding="utf-8")
    (out / "theory.pdf").write_bytes(vl_convert.svg_to_pdf(svg))
    (out / "theory.png").write_bytes(vl_convert.svg_to_png(svg, scale=2))


if __name__ == "__main__":
    main()
