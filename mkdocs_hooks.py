"""A MkDocs hook that turns formulas into MathML when the site is built, so that no page needs a script."""

import re
from typing import Any

from latex2mathml.converter import convert

_FENCE = re.compile(r"^```math\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every fenced `math` block by MathML."""
    return _FENCE.sub(
        lambda fence: f'<div class="formula">{convert(fence[1].strip(), display="block")}</div>', markdown
    )
