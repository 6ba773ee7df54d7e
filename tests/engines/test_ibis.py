"""Logs in a database give the answers of the same rows in memory, and only sums leave the server."""

import importlib
import os

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from pages import DOCS
from pages import run as run_page
from postgres_server import PASSWORD, running_server, server_programs
from small_shop import done, run

import manyarms as ma
from manyarms.errors import ActionError, EngineError, InputError, NonFiniteError, PropensityError
from manyarms.jobs import sample_rounds
from manyarms.logs.warehouse_table import WarehouseTable


def needed(module):
    """A module of the extra `ibis`. Without it these tests are skipped, unless MANYARMS_ALL_TESTS is set."""
    return importlib.import_module(module) if os.environ.get("MANYARMS_ALL_TESTS") else pytest.importorskip(module)


duckdb, ibis, psycopg = needed("duckdb"), needed("ibis"), needed("psycopg")

# Of Ibis, which calls DuckDB by its former names.
pytestmark = [pytest.mark.filterwarnings("ignore:fetch_:DeprecationWarning"), pytest.mark.xdist_group("databases")]

CONTEXT = ["age", "spend", "city", "member", "taste"]
N, K = 3000, 40
CATALOG = ma.Catalog([f"i{a}" for a in range(K + 10)], categories=[a % 6 for a in range(K + 10)])


def log_table():
    """Rounds with numbers, texts, flags and lists; rewards far from zero; weights, some of them zero."""
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "age": rng.integers(18, 80, size=N),
            "spend": rng.gamma(2.0, 3.0, size=N),
            "city": rng.choice(["Oslo", "Riga", "O'Hara", "Bern"], p=[0.4, 0.3, 0.2, 0.1], size=N),
            "member": rng.random(N) < 0.3,
            "taste": list(rng.normal(size=(N, 2))),
            "item": [f"i{a}" for a in np.minimum(rng.geometric(0.1, size=N), K) - 1],
            "reward": 1000 + rng.normal(size=N),
            "p": np.full(N, 1 / K),
            "w": rng.integers(0, 3, size=N),
        }
    )


@pytest.fixture(scope="module")
def duckdb_address(tmp_path_factory):
    file = tmp_path_factory.mktemp("duckdb") / "shop.db"
    with duckdb.connect(str(file)) as database:
        database.register("arrow", log_table())
        database.execute("CREATE TABLE logs AS SELECT * FROM arrow")
    return f"duckdb://{file}?table=logs"


@pytest.fixture(scope="module")
def postgres_address():
    if server_programs() is None:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail("there is no PostgreSQL server, and MANYARMS_ALL_TESTS is set")
        pytest.skip("there is no PostgreSQL server")
    with running_server() as address:
        kinds = "bigint, float8, text, boolean, float8[], text, float8, float8, int"
        table = log_table()
        with psycopg.connect(address) as connection, connection.cursor() as cursor:
            columns = ", ".join(f"{n} {k}" for n, k in zip(table.column_names, kinds.split(", "), strict=True))
            cursor.execute(f"CREATE TABLE logs ({columns})")
            with cursor.copy(f"COPY logs ({', '.join(table.column_names)}) FROM STDIN") as copy:
                for row in table.to_pylist():
                    copy.write_row(list(row.values()))
        yield f"{address}?table=logs"


@pytest.fixture(params=["duckdb", "postgres"])
def address(request):
    return request.getfixturevalue(f"{request.param}_address")


def read(logs, **options):
    return ma.read_logs(logs, CONTEXT, "item", "reward", "p", CATALOG, weight="w", **options)


def fitted(logs, likelihood=None):
    return ma.fit(logs, ma.priors.from_catalog(CATALOG, dim=logs.dim), likelihood or ma.Gaussian(1.0))


@pytest.mark.parametrize("expand", [None, "splines", pytest.param("products", marks=pytest.mark.slow)])
def test_sums_in_a_database_give_the_posterior_of_the_rows(address, expand):
    here, there = read(log_table()), read(address)
    assert_allclose(there.features(log_table()), here.contexts, rtol=1e-12, atol=1e-12)
    # One map for both: an expansion is fitted to the first rows, and a database has no first rows.
    features = read(log_table(), expand=expand).features
    local, remote = (fitted(read(logs, features=features)) for logs in (log_table(), address))
    assert_allclose(remote.weights.action_mean(), local.weights.action_mean(), rtol=1e-10, atol=1e-10)
    assert_allclose(remote.weights.action_cov([0, K - 1]), local.weights.action_cov([0, K - 1]), rtol=1e-8, atol=1e-10)
    assert remote.log_evidence == pytest.approx(local.log_evidence, rel=1e-10)
    assert remote.statistics.n_rounds == local.statistics.n_rounds
    assert remote.statistics.total_weight == pytest.approx(local.statistics.total_weight)
    assert remote.statistics.counted


def test_rounds_without_weights_and_numbers_have_the_same_sums(address):
    """PostgreSQL has exact decimal numbers, too, and no sum may become one."""
    local, remote = (
        ma.fit(
            ma.read_logs(logs, ["city", "member"], "item", "reward", catalog=CATALOG),
            ma.priors.from_catalog(CATALOG, dim=9),
        )
        for logs in (log_table(), address)
    )
    assert_allclose(remote.weights.action_mean(), local.weights.action_mean(), rtol=1e-10, atol=1e-10)


def test_a_prior_learned_in_a_database_is_the_prior_learned_from_the_rows(duckdb_address):
    features = read(log_table()).features
    local, remote = (
        ma.learn_prior(logs, ma.priors.from_catalog(CATALOG, dim=logs.dim)).posterior
        for logs in (read(log_table(), features=features), read(duckdb_address, features=features))
    )
    assert remote.log_evidence == pytest.approx(local.log_evidence, rel=1e-7)
    assert remote.likelihood.noise_std == pytest.approx(local.likelihood.noise_std, rel=1e-3)


def test_only_sums_of_seen_actions_leave_the_server(address, monkeypatch):
    answers = list[pa.Table]()
    ask = WarehouseTable.ask

    def counted(self, query):
        answers.append(ask(self, query))
        return answers[-1]

    monkeypatch.setattr(WarehouseTable, "ask", counted)
    monkeypatch.setattr(WarehouseTable, "batches", lambda self, columns, size: pytest.fail("rows were read"))
    logs = read(address)
    del answers[:]
    fitted(logs)
    seen, e = len(set(log_table()["item"].to_pylist())), logs.dim + 1
    sums = seen * (e * (e + 1) // 2 + 1)
    # Beside the sums: the id and count of each action, and a few numbers about the whole table.
    assert sum(answer.nbytes for answer in answers) <= 8 * sums + seen * 32 + 500


def test_clicks_are_read_in_batches_and_fitted_alike(duckdb_address):
    rows = log_table()
    clicks = rows.set_column(6, "reward", pa.array((rows["reward"].to_numpy() > 1000.5).astype(float)))
    features = read(clicks).features
    table = ibis.connect(duckdb_address.split("?")[0] + "?read_only=True").table("logs")
    there = read(table.mutate(reward=(table.reward > 1000.5).ifelse(1.0, 0.0)), features=features)
    local, remote = (fitted(logs, ma.Bernoulli()) for logs in (read(clicks, features=features), there))
    assert_allclose(remote.weights.action_mean(), local.weights.action_mean(), rtol=1e-5, atol=1e-6)


def test_unknown_actions_are_refused_or_dropped_as_for_files(duckdb_address):
    few = ma.Catalog([f"i{a}" for a in range(5)])
    with pytest.raises(ActionError, match=r"rows have an action in column item that is not in the catalog"):
        fit_few(duckdb_address, few, unknown="refuse")
    local, remote = (fit_few(logs, few, unknown="drop") for logs in (log_table(), duckdb_address))
    assert_allclose(remote.weights.action_mean(), local.weights.action_mean(), rtol=1e-10)


def fit_few(logs, catalog, unknown):
    stream = ma.read_logs(logs, ["age"], "item", "reward", catalog=catalog, unknown=unknown)
    return ma.fit(stream, ma.priors.independent(5, dim=2), ma.Gaussian(1.0))


def test_a_command_reads_a_table_by_its_address(duckdb_address, tmp_path):
    flags = ["--action", "item", "--reward", "reward", "--propensity", "p", "--weight", "w"]
    context = [part for name in CONTEXT for part in ("--context", name)]
    done("fit", "--logs", duckdb_address, *context, *flags, "--no-learn-prior", "--out", tmp_path / "model.arrow")
    model = ma.load(tmp_path / "model.arrow")
    assert model.statistics.n_rounds == int((log_table()["w"].to_numpy() > 0).sum())
    again = ma.read_logs(
        duckdb_address, CONTEXT, "item", "reward", "p", model.catalog, features=model.features, weight="w"
    )
    with pytest.raises(InputError, match="has seen this database table"):
        model.update(again)
    done(
        "evaluate", "--model", tmp_path / "model.arrow", "--logs", duckdb_address, *flags, "--sample", "500",
        "--policies", "greedy",
    )  # fmt: skip


def test_a_guardrail_follows_the_rounds_that_a_database_draws(duckdb_address):
    stream = read(duckdb_address, keep="spend")
    drawn = sample_rounds(stream, 300, rng=np.random.default_rng(0))
    assert drawn.total == N and len(drawn.logs) == 300
    assert_allclose(stream.features(drawn.logs.table), drawn.logs.contexts)
    # Another draw has other rounds.
    again = sample_rounds(stream, 300, rng=np.random.default_rng(0))
    assert not np.array_equal(drawn.logs.contexts, again.logs.contexts)


def test_a_wrong_login_names_no_password_and_a_wrong_table_or_column_names_the_right_ones(postgres_address):
    with pytest.raises(EngineError, match="password authentication failed") as failure:
        read(postgres_address.replace(PASSWORD, "wrong-secret"))
    assert "wrong-secret" not in str(failure.value)
    with pytest.raises(EngineError, match="did not answer"):
        read("postgres://tester:wrong-secret@127.0.0.1:1/postgres?table=logs")
    with pytest.raises(InputError, match=r"^logs names the table 'lgos', which does not exist; the tables are: logs"):
        read(postgres_address.replace("table=logs", "table=lgos"))
    with pytest.raises(InputError, match="Did you mean reward"):
        ma.read_logs(postgres_address, CONTEXT, "item", "rewards", catalog=CATALOG)


def drop_connections(address):
    """End all other connections to the server, as a restart does."""
    with psycopg.connect(address.partition("?")[0]) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def test_a_dropped_connection_leaves_nothing_half_written(postgres_address, monkeypatch, tmp_path):
    batches = read(postgres_address).batches(100)
    next(batches)
    drop_connections(postgres_address)
    with pytest.raises(EngineError, match="did not answer"):
        list(batches)
    ask = WarehouseTable.ask

    def dropped(self, query):
        if "s0" in query.columns:
            drop_connections(postgres_address)
        return ask(self, query)

    monkeypatch.setattr(WarehouseTable, "ask", dropped)
    result = run(
        "fit", "--logs", postgres_address, "--context", "age", "--action", "item", "--reward", "reward",
        "--no-learn-prior", "--out", tmp_path / "model.arrow",
    )  # fmt: skip
    assert result.exit_code not in (0, 1) and "did not answer" in result.output
    assert PASSWORD not in result.output and not list(tmp_path.iterdir())


def test_a_check_up_of_a_table_prints_commands_without_its_password(postgres_address):
    check_up = ma.doctor(postgres_address, action="item", reward="reward")
    assert check_up.n_rounds == N and len(check_up.commands) > 0
    assert "table=logs" in check_up.commands[0] and PASSWORD not in check_up.commands[0]


def test_a_missing_database_is_not_made(tmp_path):
    with pytest.raises(InputError, match=r"^logs names the database .* which does not exist"):
        read(f"duckdb://{tmp_path}/none.db?table=logs")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(InputError, match=r"^logs must name a table"):
        read(f"duckdb://{tmp_path}/none.db")


def test_an_output_may_not_replace_the_database(duckdb_address):
    file = duckdb_address.removeprefix("duckdb://").partition("?")[0]
    with pytest.raises(InputError, match="out"):
        ma.jobs.fit_files(duckdb_address, ["age"], "item", "reward", out=file)


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [("reward", "NULL", NonFiniteError), ("age", "NULL", NonFiniteError), ("p", "1.5", PropensityError)],
)
def test_bad_values_are_refused_with_their_column(tmp_path, column, value, error):
    with duckdb.connect(str(tmp_path / "bad.db")) as database:
        database.register("arrow", log_table())
        database.execute("CREATE TABLE logs AS SELECT * FROM arrow")
        database.execute(f"UPDATE logs SET {column} = {value} WHERE rowid = 7")
    with pytest.raises(error, match=column):
        fitted(read(f"duckdb://{tmp_path}/bad.db?table=logs"))


def test_the_page_on_warehouses_runs_and_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(DOCS / "how-to" / "warehouse.md")


def fitted_on(engine, logs):
    return ma.fit(logs, ma.priors.from_catalog(CATALOG, dim=logs.dim), ma.Gaussian(1.0), engine=engine)


def test_the_engine_of_a_database_needs_one_and_gives_what_the_rows_give(duckdb_address):
    with pytest.raises(InputError, match=r'engine is "ibis", and the logs are not in a database.*leave engine="local"'):
        fitted_on("ibis", read(log_table()))
    there = read(duckdb_address)
    named, unnamed = (fitted_on(engine, there) for engine in ("ibis", None))
    assert_allclose(named.weights.action_mean(), unnamed.weights.action_mean(), rtol=1e-12)


def test_strangers_in_a_database_count_as_other_where_the_catalog_lists_it(duckdb_address):
    few = ma.Catalog([*(f"i{a}" for a in range(5)), "(other)"])
    local, remote = (
        ma.fit(
            ma.read_logs(logs, ["age"], "item", "reward", catalog=few, unknown="other"),
            ma.priors.independent(6, dim=2), ma.Gaussian(1.0),
        )
        for logs in (log_table(), duckdb_address)
    )  # fmt: skip
    assert remote.statistics.n_rounds == local.statistics.n_rounds == N
    assert_allclose(remote.weights.action_mean(), local.weights.action_mean(), rtol=1e-10)


def test_products_of_features_in_a_database_are_those_of_the_rows(duckdb_address):
    features = ma.read_logs(
        log_table(), ["age", "spend"], "item", "reward", catalog=CATALOG, expand="products"
    ).features
    local, remote = (
        ma.fit(
            ma.read_logs(logs, ["age", "spend"], "item", "reward", catalog=CATALOG, features=features),
            ma.priors.from_catalog(CATALOG, dim=features.dim), ma.Gaussian(1.0),
        )
        for logs in (log_table(), duckdb_address)
    )  # fmt: skip
    assert features.names[-1].count(" x ") == 1
    assert_allclose(remote.weights.action_mean(), local.weights.action_mean(), rtol=1e-10, atol=1e-10)


def changed(tmp_path, statement):
    """The address of the table after a statement."""
    with duckdb.connect(str(tmp_path / "changed.db")) as database:
        database.register("arrow", log_table())
        database.execute("CREATE TABLE logs AS SELECT * FROM arrow")
        database.execute(statement)
    return f"duckdb://{tmp_path}/changed.db?table=logs"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM logs", "there are no rows to learn features from"),
        ("UPDATE logs SET spend = 'inf'::DOUBLE WHERE rowid = 7", "column spend has a number that is not finite"),
        ("UPDATE logs SET taste = [1.0] WHERE rowid = 7", "column taste must hold as many numbers.*between 1 and 2"),
        ("UPDATE logs SET reward = 'inf'::DOUBLE WHERE rowid = 7", "column reward has a value that is not finite"),
        ("UPDATE logs SET reward = 1e300 * (rowid % 2)", "the sums of features and rewards overflow"),
    ],
)
def test_a_table_that_cannot_be_summed_is_refused_with_its_column(tmp_path, statement, words):
    with pytest.raises(InputError, match=words):
        fitted(read(changed(tmp_path, statement)))


def test_rows_that_lack_a_value_are_left_out_where_they_are(tmp_path):
    address = changed(tmp_path, "UPDATE logs SET age = NULL WHERE rowid < 70")
    stream = ma.read_logs(address, ["age"], "item", "reward", catalog=CATALOG, missing="drop")
    posterior = ma.fit(stream, ma.priors.from_catalog(CATALOG, dim=2))
    assert posterior.statistics.n_rounds == N - 70 and stream.dropped.missing == 70
