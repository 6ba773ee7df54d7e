"""Hierarchies that are not linear: θ_a | ψ ~ N(f_a(ψ), Σ_a) for any smooth f_a.

`fit_nonlinear` linearises f_a around the mode of ψ and solves in closed form there: fast, and local. `sample_posterior`
draws from the posterior itself. `chain` builds hierarchies of several latent layers.
"""

from manyarms.nonlinear.fit_nonlinear import NonlinearPosterior, fit_nonlinear
from manyarms.nonlinear.nonlinear_hierarchy import ChainedFunction, Layer, NonlinearHierarchy, chain
from manyarms.nonlinear.posterior_draws import PosteriorDraws
from manyarms.nonlinear.posterior_sampler import sample_posterior

__all__ = [
    "ChainedFunction",
    "Layer",
    "NonlinearHierarchy",
    "NonlinearPosterior",
    "PosteriorDraws",
    "chain",
    "fit_nonlinear",
    "sample_posterior",
]
