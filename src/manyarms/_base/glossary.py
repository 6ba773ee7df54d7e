"""The glossary of the docs, term by term: what `manyarms explain` prints."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from manyarms._base.checks import as_text
from manyarms.errors import InputError

PACKAGE = Path(__file__).parents[1]
PLACES = (PACKAGE / "glossary.md", PACKAGE.parents[1] / "docs" / "glossary.md")
"""In an installed package the page of the docs is a file of the package; in a copy of the repository it is in docs/."""


def explain(term: str | None = None) -> str:
    """The glossary entry for a term, such as "propensity" or "gains chart"; without a term, the list of all terms.

    Args:
        term: The term, in any case.

    Raises:
        InputError: If there is no such term; the message suggests the closest ones.
    """
    entries = glossary()
    if term is None:
        return "\n".join(
            sorted({text.partition(". ")[0].rstrip(".") for _, text in entries.values()}, key=str.casefold)
        )
    key = _key(as_text("term", term))
    if key in entries:
        return entries[key][1]
    near = get_close_matches(key, entries, 3, cutoff=0.6) or [name for name in entries if key and key in name][:3]
    spelled = [f'"{entries[name][0]}"' for name in near]
    remedy = f"Did you mean {', '.join(spelled)}?" if near else "Call explain() for the list of terms."
    # A shell reads brackets and the like as its own, so a term with one has to be quoted.
    quoted = any(not re.fullmatch(r'"[\w -]+"', name) for name in spelled)
    flag_remedy = (
        f"{remedy}{' (Keep the quotes.)' * quoted}" if near else "Run `manyarms explain` for the list of terms."
    )
    raise InputError(f"the glossary has no term {term!r}.", remedy, flag_remedy=flag_remedy)


@cache
def glossary() -> dict[str, tuple[str, str]]:
    """Each term of the glossary as it is spelled there, and the entry as plain text, by the key of the term."""
    page = next((place for place in PLACES if place.is_file()), None)
    if page is None:
        raise InputError("the glossary is not installed.", "Read docs/glossary.md in the repository.")
    entries = dict[str, tuple[str, str]]()
    paragraphs = re.split(r"\n\s*\n", page.read_text(encoding="utf-8"))
    for paragraph in (" ".join(text.split()) for text in paragraphs):
        if not paragraph.startswith("**"):
            continue
        terms = re.findall(r"\*\*(.+?)\.?\*\*", paragraph)
        for term in terms:
            for name in (term, *_names(term)):
                entries.setdefault(_key(name), (name, _plain(paragraph)))
    return entries


def _names(heading: str) -> list[str]:
    """The terms in a heading such as "Greedy, pessimistic" or "Direct method (DM)"; "P(better)" is one term."""
    if " (" not in heading:
        return heading.split(", ")
    outside, _, inside = heading.removesuffix(")").partition(" (")
    return [*outside.split(", "), inside, *inside.split(", ")]


def _key(term: str) -> str:
    """A term as it may be typed: in any case, without the marks that a shell would read as its own."""
    return " ".join(re.sub(r"[-_()?]", " ", term).casefold().split())


def _plain(markdown: str) -> str:
    """Text without marks: bold, code, and links, of which the words stay."""
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)
    return text.replace("**", "").replace("`", "")
