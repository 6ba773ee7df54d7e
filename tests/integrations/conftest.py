"""Fixtures that the tests of several integrations share."""

import pytest


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """MLflow on a folder; a database would need more libraries."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow as module

    module.set_tracking_uri((tmp_path / "runs").as_uri())
    module.set_experiment("shop")
    return module
