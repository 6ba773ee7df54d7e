"""From a prior and statistics to the posterior, in closed form."""

from manyarms.inference.condition import condition

__all__ = ["condition"]
