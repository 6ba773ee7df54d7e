"""Builders of priors, each returning a `HierarchicalGaussian`."""

from manyarms.priors.independent import independent, ridge

__all__ = ["independent", "ridge"]
