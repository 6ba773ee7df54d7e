"""What Spark is asked for: the number of shards, and whose session runs them. No session is started here."""

from types import SimpleNamespace

import pytest

pyspark = pytest.importorskip("pyspark")

from manyarms.engines.spark import Spark  # noqa: E402


@pytest.mark.parametrize(("gigabytes", "shards"), [(0.001, 2), (0.5, 2), (2.0, 8), (2.1, 9)])
def test_a_shard_holds_at_most_a_quarter_of_a_gigabyte(monkeypatch, own_errors, gigabytes, shards):
    monkeypatch.setattr(Spark, "_cores", 2)
    n_actions = int(gigabytes * 2**30) // (8 * 4**2)
    assert Spark()._count_shards(SimpleNamespace(n_actions=n_actions, dim=3)) == shards


class Sessions:
    """In the place of SparkSession: a session of the user, and a builder that notes its settings."""

    def __init__(self):
        self.settings = []
        self.builder = self

    def getActiveSession(self):
        return "the user's session"

    def config(self, map):
        self.settings.append(map)
        return self

    def getOrCreate(self):
        return "a new session"


def test_a_running_session_is_taken_as_it_is_unless_a_cluster_is_named(monkeypatch):
    sessions = Sessions()
    monkeypatch.setattr("pyspark.sql.SparkSession", sessions)
    assert Spark().session == "the user's session"
    assert sessions.settings == []
    assert Spark("yarn").session == "a new session"
    assert sessions.settings == [{"spark.master": "yarn"}]
