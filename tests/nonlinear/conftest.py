"""Fixtures of the tests of hierarchies that are not linear."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    """Shapes are checked in the shorter tests; here the checks would take twenty times as long as the draws."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
