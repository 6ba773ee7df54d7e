"""Every shape annotation of the package is checked at run time while the tests run."""

import jaxtyping

jaxtyping.install_import_hook("manyarms", "beartype.beartype")

import hypothesis  # noqa: E402
import pytest  # noqa: E402

# A failing recipe is short enough to read as it is, so no time goes into shrinking it.
hypothesis.settings.register_profile(
    "manyarms", deadline=None, derandomize=True, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
)
hypothesis.settings.load_profile("manyarms")


@pytest.fixture
def nothing_held(monkeypatch):
    """Streams are read again for every pass, however small they are."""
    monkeypatch.setattr("manyarms.posterior.seen_files.MAX_HELD", 0)


@pytest.fixture
def own_errors():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
