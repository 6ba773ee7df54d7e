"""Shape annotations of the package are checked at run time while the tests run; fixtures that many tests share."""

import jaxtyping
import shape_checks

shape_checks.install()

import hypothesis  # noqa: E402
import pyarrow.csv  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import pytest  # noqa: E402

# A failing recipe is short enough to read as it is, so no time goes into shrinking it.
hypothesis.settings.register_profile(
    "manyarms", deadline=None, derandomize=True, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
)
hypothesis.settings.load_profile("manyarms")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """One process runs all tests of a file, so that no fixture of a file is made twice."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(autouse=True)
def shapes():
    """The first calls of every function in every test have their shapes checked."""
    shape_checks.calls.clear()


@pytest.fixture
def nothing_held(monkeypatch):
    """Streams are read again for every pass, however small they are."""
    monkeypatch.setattr("manyarms.posterior.training_files.MAX_HELD", 0)


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Ten days of logs in two folders, a catalog, a fitted model and a policy."""
    from small_shop import catalog_table, done, fit_command, log_table  # after the import hook

    folder = tmp_path_factory.mktemp("shop")
    for day in range(4):
        place = folder / ("new" if day == 3 else "old") / f"day={day}"
        place.mkdir(parents=True)
        pq.write_table(log_table(200, day), place / "part.parquet", row_group_size=60)
    pq.write_table(catalog_table(), folder / "items.parquet")
    pyarrow.csv.write_csv(catalog_table(), folder / "items.csv")
    done(*fit_command(folder), "--out", folder / "model.arrow")
    done("learn", "--model", folder / "model.arrow", "--policy", "softmax:0.3", "--out", folder / "policy.arrow")
    return folder


@pytest.fixture
def own_errors():
    """Without the run-time check of annotations, which would refuse some calls before our own errors can."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
