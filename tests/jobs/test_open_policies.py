"""Policies are opened from texts, files and functions, and one that cannot be is refused with a way out."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.core.bound_policy import on_rounds
from manyarms.errors import DataTypeError, InputError
from manyarms.jobs.open_policies import open_in_memory, open_on_stream, open_policy_file, policies_to_open
from manyarms.jobs.parse_names import check_policy_name

N, K = 12, 3
ROWS = pa.table(
    {
        "user": [f"u{i}" for i in range(N)],
        "city": ["Oslo", "Riga"] * (N // 2),
        "a": np.arange(N) % K,
        "r": np.arange(N) * 1.0,
        "x": np.linspace(-1, 1, N),
    }
)


@pytest.fixture
def logs():
    return ma.read_logs(ROWS, "x", "a", "r", n_actions=K)


@pytest.fixture
def picks(tmp_path):
    def write(name="picks.csv", **columns):
        pa.csv.write_csv(pa.table(columns), tmp_path / name)
        return f"table:{tmp_path / name}"

    return write


def test_a_mapping_names_its_policies_and_texts_name_themselves():
    assert policies_to_open({"new": "greedy", "old": ma.Uniform(2)}).keys() == {"new", "old"}
    assert policies_to_open(["greedy", "mine = softmax:0.1"]) == {"greedy": "greedy", "mine": "softmax:0.1"}
    for text in ("", "new=", " =greedy"):
        with pytest.raises(InputError, match=r"names no policy\. Write NAME=POLICY, as in new=column:recommended"):
            policies_to_open([text])


def test_a_policy_in_memory_may_be_named_or_be_a_file(logs, tmp_path):
    posterior = ma.fit(logs, ma.priors.independent(K, dim=2))
    ma.Softmax(posterior, temperature=0.3).save(tmp_path / "policy.arrow")
    opened = open_in_memory({"file": str(tmp_path / "policy.arrow"), "named": "softmax:0.3"}, logs, posterior)
    expected = ma.Softmax(posterior, temperature=0.3).probabilities(logs.contexts)
    for policy in opened.values():
        assert_allclose(policy.probabilities(logs.contexts), expected, rtol=1e-12)
    assert_allclose(open_in_memory({"u": "uniform"}, logs)["u"].probabilities(logs.contexts), 1 / K)


def test_what_is_not_a_policy_is_refused(logs, tmp_path, own_errors):
    with pytest.raises(DataTypeError, match="policies must be policies, names or functions; got a int"):
        open_in_memory({"new": 7}, logs)
    with pytest.raises(InputError, match=r"is a table, and tables can be read in two ways.*table:.*or shares:"):
        open_policy_file(str(tmp_path / "picks.csv.gz"))
    with pytest.raises(
        InputError, match=r"'column:' names nothing after its colon\. Write it as in column:recommended"
    ):
        open_in_memory({"new": "column:"}, logs)


def test_the_key_of_a_table_is_the_only_column_that_it_shares_with_the_logs(logs, picks):
    best = (np.arange(N) + 1) % K
    by_user = picks(user=ROWS["user"].to_pylist(), action=best)
    by_row = picks("rows.csv", row=np.arange(N), action=best)
    for source in (by_user, by_row):
        policy = open_in_memory({"new": source}, logs)["new"]
        assert on_rounds(policy, logs).actions(logs.contexts).tolist() == best.tolist()


def test_a_table_whose_key_is_not_known_asks_for_it(logs, picks):
    several = picks(user=["u1"], city=["Oslo"], action=[1])
    with pytest.raises(InputError, match=r"shares the columns user, city with the logs.*picks\.csv:user\+city"):
        open_in_memory({"new": several}, logs)
    assert isinstance(open_in_memory({"new": f"{several}:user+city"}, logs)["new"], ma.Policy)
    with pytest.raises(InputError, match=r"shares no column with the logs but the actions; it has client.*csv:user"):
        open_in_memory({"new": picks("other.csv", client=["u1"], action=[1])}, logs)


def test_files_and_functions_on_a_stream(logs, tmp_path):
    pa.csv.write_csv(ROWS, tmp_path / "log.csv")
    stream = ma.read_logs(tmp_path / "log.csv", "x", "a", "r", n_actions=K)
    ma.TablePolicy(np.array([0.2, 0.3, 0.5])).save(tmp_path / "policy.arrow")
    _, opened = open_on_stream({"file": str(tmp_path / "policy.arrow")}, stream, ())
    assert_allclose(opened["file"].probabilities(np.zeros((1, 2))), [[0.2, 0.3, 0.5]])
    with pytest.raises(InputError, match=r"gets only the columns of a file that it names.*columns=\[\.\.\.\]"):
        open_on_stream({"mine": lambda frame: frame["a"]}, stream, ())
    with pytest.raises(InputError, match=r"position_weights must be numbers, as in 1,0.5,0.25; got \['one'\]"):
        open_on_stream({"new": "column:a"}, stream, ["one"])


def test_a_policy_that_needs_a_number_is_refused_without_one():
    for name in ("softmax", "epsilon-greedy"):
        with pytest.raises(InputError, match=f"'{name}' needs a number.*as in {name}:0.1"):
            check_policy_name(name)
        check_policy_name(name, without_number=[name])
        check_policy_name(f"{name}:0.5")
