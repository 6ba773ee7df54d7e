"""Builders of priors, each returning a `HierarchicalGaussian`; `a + b` is the prior of the sum of two.

Choose the builder by what is known about the actions: a category (`from_categories`), several tags (`from_tags`), a
place in a tree (`from_taxonomy`), a vector (`from_embeddings` for clusters, `linear_in_embeddings`), a few directions
that matter (`low_rank`), all covariances (`from_joint`), or nothing (`independent`, `ridge`). The first argument is a
`Catalog` or a plain array. `effect_std` and `action_std` are the scales that learning starts from. `shared_std` adds an
effect that all actions share. Actions without the metadata share one effect and are counted in `prior.effects`.
`from_catalog` picks a builder by name, and `new_actions` extends its prior to actions that are added later.
"""

from manyarms.priors.categories import from_categories, from_tags, from_taxonomy
from manyarms.priors.embeddings import from_embeddings, linear_in_embeddings
from manyarms.priors.from_catalog import from_catalog, new_actions
from manyarms.priors.from_matrices import from_joint, independent, low_rank
from manyarms.priors.ridge_prior import ridge

__all__ = [
    "from_catalog",
    "from_categories",
    "from_embeddings",
    "from_joint",
    "from_tags",
    "from_taxonomy",
    "independent",
    "linear_in_embeddings",
    "low_rank",
    "new_actions",
    "ridge",
]
