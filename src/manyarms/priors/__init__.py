"""Builders of priors, each returning a `HierarchicalGaussian`; `a + b` is the prior of a sum of two.

What is known of the actions picks the builder: a category (`from_categories`), several tags (`from_tags`), a place in a
tree (`from_taxonomy`), a vector (`from_embeddings` for clusters, `linear_in_embeddings`), a few directions that matter
(`low_rank`), all covariances (`from_joint`), or nothing (`independent`, `ridge`). The first argument is a `Catalog` or
the plain array; `effect_std` and `action_std` are scales to start from; `shared_std` adds an effect that all actions
share; actions without the metadata share an effect of their own and are counted in `prior.effects`. `from_catalog`
picks one of them by name, and `new_actions` says what its prior makes of actions that are added later.
"""

from manyarms.priors.categories import from_categories, from_tags
from manyarms.priors.embeddings import from_embeddings, linear_in_embeddings
from manyarms.priors.from_catalog import from_catalog, new_actions
from manyarms.priors.from_matrices import from_joint, low_rank
from manyarms.priors.independent import independent, ridge
from manyarms.priors.taxonomy import from_taxonomy

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
