"""Bayesian off-policy evaluation and learning when there are many actions.

The flow goes one way: logs and a prior give a posterior, a posterior gives policies and evaluates them.

    >>> import numpy as np
    >>> import manyarms as ma
    >>> rng = np.random.default_rng(0)
    >>> contexts, actions, rewards = rng.normal(size=(50, 2)), rng.integers(8, size=50), rng.normal(size=50)
    >>> logs = ma.LoggedData(contexts, actions, rewards, n_actions=10)
    >>> categories = np.repeat(np.eye(2), 5, axis=0)
    >>> prior = ma.HierarchicalGaussian(
    ...     latent_mean=np.zeros(4), latent_cov=1.0, mixing=ma.MixedEffects(categories, dim=2), action_cov=0.1
    ... )
    >>> posterior = ma.fit(logs, prior, ma.Gaussian(noise_std=1.0))
    >>> gain = posterior.difference(ma.Greedy(posterior), ma.Logged(logs), contexts)
    >>> gain.probability_positive > 0.5
    True
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

from manyarms._version import __version__ as __version__


def _public_names() -> dict[str, tuple[str, str]]:
    """Every public name with its module and its name there, as `__init__.pyi` lists them."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: (node.module or "", alias.name) for node in imports for alias in node.names}


# A name is imported when it is first used, so that `import manyarms` and `manyarms --help` load no numerical library.
_NAMES = _public_names()
_INTEGRATIONS = "manyarms.integrations"
_PACKAGES = ("datasets", "engines", "experiments", "jobs", "theory")  # used by name, as in `ma.jobs.fit_files`

# `from manyarms import *` must not replace scikit-learn by our bridge to it.
__all__ = [name for name, (module, _) in _NAMES.items() if module != _INTEGRATIONS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module, attribute = _NAMES[name]
        # Classes and functions come from modules of a subpackage; what comes from a package is a module itself.
        is_module = module.count(".") < 2
        value = importlib.import_module(f"{module}.{attribute}") if is_module else _attribute(module, attribute)
        globals()[name] = value
        return value
    # "a.b" would be looked up inside "a", and is not an attribute of this package.
    if name.isidentifier():
        try:
            # Importing a subpackage makes it an attribute of the package.
            return importlib.import_module(f"manyarms.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"manyarms.{name}":
                raise
    raise AttributeError(f"module 'manyarms' has no attribute {name!r}{_suggestion(name)}")


def _suggestion(name: str) -> str:
    """The nearest public name, as a question; nothing where none is near, or where Python itself asks for a name."""
    if name.startswith("_"):
        return ""
    from difflib import get_close_matches  # noqa: PLC0415  only for a mistake

    near = get_close_matches(name, [*_NAMES, *_PACKAGES], 1)
    return f". Did you mean {near[0]!r}?" if near else ""


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    own = [name for name in globals() if name.startswith("__")]
    return sorted({*own, *_NAMES, *_PACKAGES})
