"""A small world with a known decision, shared by the tests of this folder."""

import pytest
from decision_world import world

import manyarms as ma


@pytest.fixture(scope="package")
def known():
    """A decision with every part, its policies, its held-out rounds and its posterior."""
    train, test, catalog = world()
    posterior = ma.fit(train, ma.priors.from_categories(catalog, dim=3))
    policies = {
        "greedy": ma.Greedy(posterior),
        "pessimistic": ma.Pessimistic(posterior),
        "uniform": ma.Uniform(60),
    }
    decision = ma.decide(policies, test, posterior, estimators=[ma.SNIPS(), ma.DR(posterior)])
    return decision, policies, test, posterior
