"""Cases of a parametrised test of which the fast tests run only some; `make test-all` runs all."""

import pytest


def fast_first(cases, n=1):
    """The first n cases as they are, and the others marked slow: they repeat a claim with other values."""
    cases = list(cases)
    return [*cases[:n], *(pytest.param(case, marks=pytest.mark.slow) for case in cases[n:])]
