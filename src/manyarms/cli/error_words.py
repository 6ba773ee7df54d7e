"""The library speaks of Python calls, the command line of flags: the one place where sentences are translated."""

from __future__ import annotations

import re

ARGUMENTS = {
    "missing": "--missing",
    "unknown": "--unknown",
    "catalog": "--catalog",
    "context": "--context",
    "categorical": "--categorical",
    "max_levels": "--max-levels",
    "time": "--time",
    "half_life": "--half-life",
    "maturity": "--maturity",
    "now": "--now",
    "keep": "--keep",
    "top_k": "--top-k",
    "engine": "--engine",
    "effect_std": "--prior-std",
    "action_std": "--action-std",
    "shared_std": "--shared-std",
    "noise_std": "--noise-std",
    "n_components": "--components",
}
"""Arguments of Python calls, and the flags that set them."""

_ONE = "|".join(ARGUMENTS)

SENTENCES = {
    r"half_life and maturity need": "--half-life and --maturity need",
    r'engine must be "local", "dask", "spark" or an engine': "--engine must be local, dask or spark",
    r"use fit\(\), which gives the prior back": "see what --maturity, --missing and --unknown leave out",
    r"with ma\.learn_prior, or set it": "by a fit without --no-learn-prior, or try another --prior",
    r"with ma\.learn_prior": "by a fit without --no-learn-prior, or try another --prior",
    r"Set the mean of the prior by hand, as in prior .* and use ma\.fit": "Wait for some, or pass --no-learn-prior",
    r"Number ids first, those never logged too: ma\.Catalog\(all_ids\)\.numbers\(ids\)": (
        "Pass --catalog with all ids, those never logged too"
    ),
    r"Pass a catalog that lists it, as in ma\.read_catalog\(\.\.\., other=True\)": (
        "Fit with --catalog and --unknown other, which adds it"
    ),
    r"Pass them: Catalog\(ids, \w+=\.\.\.\)": (
        "Name their column, or columns: --category, --tags, --taxonomy or --embedding"
    ),
    r"Use Gaussian for other numbers, Poisson for counts, Hurdle for amounts with many zeros": (
        "Use --likelihood gaussian for other numbers, --likelihood poisson for counts"
    ),
    r"Use Hurdle\(Bernoulli\(\), LogNormal\(\)\) for amounts that may be zero, Gaussian for other numbers": (
        "Use --likelihood gaussian for other numbers"
    ),
    r"Use LogNormal for positive amounts, Hurdle for amounts with many zeros, Gaussian for other numbers": (
        "Use --likelihood log-normal for positive amounts, --likelihood gaussian for other numbers"
    ),
    r"made from logs that ma\.read_logs read": "that `manyarms fit` or `manyarms learn` wrote",
    r"pass a posterior, or estimators": "pass --model, or --estimators",
    r"is made of a model: pass one": "is made of a model: pass --model",
    r"pass a model or a catalog": "pass --model or --catalog",
    r"uses a reward model: pass a model": "uses a reward model: pass --model",
    r"; use averaged\(\)": "",
    r"judge it on others \(logs\.split\)": "judge it on others",
    r"Pass n_actions= to LoggedData": "Both need one catalog",
}
"""Whole phrases, as regular expressions: those that a change of names alone would not make sense of."""


def in_flags(message: str) -> str:
    """A message of the library as a user of the command line needs it: `missing="drop"` is `--missing drop`."""
    for python, flags in SENTENCES.items():
        message = re.sub(python, flags, message)
    # In quotes, or a scale: folders may well be called time=3.
    message = re.sub(rf'\b({_ONE})="(\w+)"', lambda found: f"{ARGUMENTS[found[1]]} {found[2]}", message)
    message = re.sub(r"\b(\w+_std)=(?=\d)", lambda found: f"{ARGUMENTS.get(found[1], found[1])} ", message)
    message = re.sub(rf"\b([Pp]ass) ({_ONE})=", lambda found: f"{found[1]} {ARGUMENTS[found[2]]}", message)
    return re.sub(rf"^({_ONE})(?= (?:must|names|is)\b)", lambda found: ARGUMENTS[found[1]], message)
