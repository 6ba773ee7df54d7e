"""Policies that were made elsewhere choose what their column, table or function says, wherever they are evaluated."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import (
    ActionError,
    DataTypeError,
    InputError,
    NonFiniteError,
    PropensityError,
    RangeError,
    ShapeError,
    TooLargeError,
)

IDS = ["tea", "mug", "pot", "jam", "007"]
CATALOG = ma.Catalog(IDS, categories=["a", "a", "b", "b", "b"])
N = 60


def frame(n=N, seed=0):
    rng = np.random.default_rng(seed)
    picks = rng.integers(5, size=(n, 3))
    return pd.DataFrame(
        {
            "age": rng.normal(size=n),
            "user": [f"u{k}" for k in rng.integers(7, size=n)],
            "city": rng.choice(["Oslo", "Riga"], n),
            "item": rng.choice(IDS, n),
            "reward": rng.normal(size=n),
            "new": [IDS[k] for k in picks[:, 0]],
            "top": ["|".join(IDS[k] for k in row) for row in picks],
        }
    )


FRAMES = {"pandas": lambda df: df, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}


def one_hot(ids):
    return np.array([[float(name == each) for each in IDS] for name in ids])


@pytest.mark.parametrize("library", FRAMES)
def test_a_column_is_followed_in_frames_of_every_library(library):
    df = frame()
    policy = ma.ColumnPolicy("new", CATALOG)
    assert_allclose(policy.probabilities(FRAMES[library](df)), one_hot(df["new"]))
    assert policy.top_k(FRAMES[library](df), 1)[:, 0].tolist() == [IDS.index(name) for name in df["new"]]


def test_a_list_of_picks_counts_by_position_and_shorter_lists_share_the_weights():
    table = pa.table({"top": ["tea|mug|jam", "pot", "mug | mug|tea"]})
    policy = ma.ColumnPolicy("top", CATALOG, position_weights=[3, 1])
    expected = [[0.75, 0.25, 0, 0, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    assert_allclose(policy.probabilities(table), expected)
    lists = pa.table({"top": [["tea", "mug", "jam"], ["pot"], ["mug", "mug"]]})
    assert_allclose(policy.probabilities(lists), expected)


def test_a_table_of_picks_or_probabilities_is_looked_up_by_its_keys():
    df = frame()
    users = sorted(set(df["user"]))
    picks = {user: IDS[k % 5] for k, user in enumerate(users)}
    single = ma.LookupPolicy(pd.DataFrame({"user": users, "item": picks.values()}), "user", CATALOG, action="item")
    assert_allclose(single.probabilities(df), one_hot(df["user"].map(picks)))
    rng = np.random.default_rng(1)
    shares = {(user, city): rng.dirichlet(np.ones(5)) for user in users for city in ("Oslo", "Riga")}
    rows = [(u, c, name, p) for (u, c), row in shares.items() for name, p in zip(IDS, row, strict=True)]
    long = pl.DataFrame(rows, schema=["user", "city", "action", "probability"], orient="row")
    policy = ma.LookupPolicy(long, ["user", "city"], CATALOG, probability="probability")
    expected = np.array([shares[key] for key in zip(df["user"], df["city"], strict=True)])
    assert_allclose(policy.probabilities(df), expected)
    eligible = [[0, 2]] * N
    kept = expected[:, [0, 2]] / expected[:, [0, 2]].sum(axis=1, keepdims=True)
    assert_allclose(policy.probabilities(df, eligible=eligible)[:, [0, 2]], kept)


def test_ranks_and_row_numbers_are_read_as_score_writes_them():
    rows = [{"row": i, "rank": rank, "action": IDS[(i + rank) % 5]} for i in range(4) for rank in (2, 1)]
    policy = ma.LookupPolicy(pd.DataFrame(rows), None, CATALOG, rank="rank", position_weights=[0.8, 0.2])
    expected = 0.8 * one_hot(IDS[(i + 1) % 5] for i in range(4)) + 0.2 * one_hot(IDS[(i + 2) % 5] for i in range(4))
    assert_allclose(policy.probabilities(pa.table({"age": [1.0] * 4})), expected)


def test_a_table_without_keys_is_looked_up_by_a_column_of_row_numbers():
    picks = pd.DataFrame({"row": [0, 1, 2], "action": ["tea", "pot", "jam"]})
    policy = ma.LookupPolicy(picks, None, CATALOG)
    assert policy.actions(pa.table({"age": [1.0, 2.0, 3.0]})).tolist() == [0, 2, 3]
    # A part of a log, in another order, says which rows these are.
    assert policy.actions(pa.table({"row": [2, 0, 2]})).tolist() == [3, 0, 3]


def test_a_list_of_picks_per_key_shares_the_weights_of_its_positions():
    picks = pd.DataFrame({"city": ["Riga", "Oslo"], "top": ["tea|mug|jam", "pot"]})
    policy = ma.LookupPolicy(picks, "city", CATALOG, action="top", position_weights=[2, 1, 1])
    table = pa.table({"city": ["Oslo", "Riga"]})
    assert_allclose(policy.probabilities(table), [[0, 0, 1, 0, 0], [0.5, 0.25, 0, 0.25, 0]])


def test_the_key_other_holds_for_keys_that_are_not_listed():
    picks = pd.DataFrame({"user": ["ann", "(other)"], "action": ["mug", "tea"]})
    policy = ma.LookupPolicy(picks, "user", CATALOG)
    assert policy.actions(pd.DataFrame({"user": ["bob", "ann"]})).tolist() == [0, 1]


def test_a_function_gets_the_frame_of_its_own_library():
    df = frame()
    logs = ma.read_logs(df, ["age"], "item", "reward", catalog=CATALOG)
    kinds = []

    def recommend(rows):
        kinds.append(type(rows))
        return rows["new"].str.upper().str.lower()

    shares = ma.CallablePolicy(lambda rows: np.full((len(rows), 5), 0.2), logs, probabilities=True)
    results = ma.evaluate({"mine": recommend, "even": shares}, logs, estimators=[ma.Replay()])
    assert kinds == [pd.DataFrame]
    first = results.policies[0].choices
    assert_allclose(first.shares, one_hot(df["new"]).mean(axis=0)[first.actions])
    assert_allclose(results.policies[1].choices.shares, 0.2)


def test_a_function_that_returns_an_ineligible_id_is_refused():
    policy = ma.CallablePolicy(lambda rows: rows["new"], CATALOG)
    df = frame(2).assign(new=["tea", "mug"])
    assert_allclose(policy.probabilities(df, eligible=np.eye(5, dtype=bool)[:2]), np.eye(5)[:2])
    with pytest.raises(InputError, match="row 1"):
        policy.probabilities(df, eligible=np.eye(5, dtype=bool)[[0, 0]])


def test_a_function_gets_the_numbers_of_a_file_as_numbers(tmp_path):
    df = frame(30).assign(code=[f"{k % 5:03d}" for k in range(30)])
    df.to_csv(tmp_path / "log.csv", index=False)
    posterior = ma.fit(ma.read_logs(df, ["age"], "item", "reward", catalog=CATALOG), ma.priors.independent(5, dim=2))
    stream = ma.read_logs(
        tmp_path / "log.csv", ["age"], "item", "reward", catalog=CATALOG, features=posterior.features, keep=["code"]
    )
    policy = ma.CallablePolicy(lambda rows: [IDS[code] for code in rows["code"].to_pylist()], CATALOG, columns=["code"])
    expected = posterior.expected_reward(df)[np.arange(30), np.arange(30) % 5].mean()
    assert_allclose(posterior.value(policy, stream).value, expected, rtol=1e-12)


def test_the_mass_of_a_given_policy_is_the_mean_of_its_choices():
    df = frame()
    weights = np.arange(N) % 3
    counted = np.average(one_hot(df["new"]), axis=0, weights=weights)
    policy = ma.ColumnPolicy("new", CATALOG)
    means = np.arange(5.0)[:, None]
    mass, values = policy.profile(df, means, weights=weights.astype(float))
    assert_allclose(np.bincount(mass.actions, weights=mass.probability, minlength=5), counted)
    assert_allclose(mass.vectors[:, 0], mass.probability)
    assert_allclose(values, [IDS.index(name) for name in df["new"]])


def test_shares_are_one_distribution_for_all_rows():
    policy = ma.TablePolicy.from_shares(
        pd.DataFrame({"item": ["jam", "tea"], "share": [0.25, 0.75]}), CATALOG, action="item"
    )
    assert_allclose(policy.probabilities(frame(3)), [[0.75, 0, 0, 0.25, 0]] * 3)


def test_the_picks_are_in_the_logs_column_of_actions_or_the_only_one_left(tmp_path):
    df = frame()
    df.to_csv(tmp_path / "log.csv", index=False)
    logs = ma.read_logs(df, ["age"], "item", "reward", catalog=CATALOG)
    stream = ma.read_logs(tmp_path / "log.csv", ["age"], "item", "reward", catalog=CATALOG)
    picks = pd.DataFrame({"city": ["Oslo", "Riga"], "note": ["x", "y"], "item": ["mug", "jam"]})
    picks.to_csv(tmp_path / "picks.csv", index=False)
    shares = pd.DataFrame({"note": ["x"], "item": ["pot"], "share": [1.0]})
    for actions in (logs, stream, logs.take(np.arange(3)), stream.collect()):
        for table in (picks, tmp_path / "picks.csv"):
            assert_allclose(
                ma.LookupPolicy(table, "city", actions).probabilities(df),
                one_hot(df["city"].map({"Oslo": "mug", "Riga": "jam"})),
            )
        assert ma.TablePolicy.from_shares(shares, actions).actions(df).tolist() == [2] * N
    # The catalog does not know how the logs call them. An index of pandas without a name is no column of the table.
    alone = picks[["city", "item"]].iloc[[1, 0]]
    assert ma.LookupPolicy(alone, "city", CATALOG).actions(pa.table({"city": ["Riga"]})).tolist() == [3]
    assert ma.TablePolicy.from_shares(shares[["item", "share"]], CATALOG).actions(frame(1)).tolist() == [2]
    results = ma.evaluate({"mine": f"table:{tmp_path / 'picks.csv'}:city"}, logs, estimators=[ma.Replay()])
    first = results.policies[0].choices
    assert_allclose(first.shares, one_hot(df["city"].map({"Oslo": "mug", "Riga": "jam"})).mean(axis=0)[first.actions])


def test_every_policy_accepts_a_frame():
    df, few = frame(4), np.full((4, 5), 0.2)
    logs = ma.read_logs(df, ["age"], "item", "reward", catalog=CATALOG)
    for policy in (ma.TablePolicy(few), ma.TablePolicy(few[0]), ma.Uniform(5), ma.Logged(logs)):
        assert policy.probabilities(df).shape == (4, 5)


@pytest.fixture
def given():
    users = [f"u{k}" for k in range(7)]
    picks = pd.DataFrame({"user": users, "action": [IDS[k % 5] for k in range(7)]})
    return {
        "column": ma.ColumnPolicy("new", CATALOG),
        "list": ma.ColumnPolicy("top", CATALOG, position_weights=[2, 1, 1]),
        "lookup": ma.LookupPolicy(picks, "user", CATALOG),
        "by number": ma.LookupPolicy(pd.DataFrame({"city": ["Oslo", "Riga"], "action": [4, 1]}), "city", 5),
    }


def test_given_policies_are_saved_and_loaded(given, tmp_path):
    df = frame()
    for name, policy in given.items():
        policy.save(tmp_path / "policy.arrow")
        loaded = ma.load(tmp_path / "policy.arrow")
        assert_allclose(loaded.probabilities(df), policy.probabilities(df), err_msg=name)
        assert repr(loaded) == repr(policy)
    with pytest.raises(DataTypeError, match="Write its picks to a table"):
        ma.CallablePolicy(lambda rows: rows["new"], CATALOG).save(tmp_path / "policy.arrow")


def test_a_saved_policy_holds_the_share_of_each_position():
    saved = [ma.ColumnPolicy("top", CATALOG, position_weights=weights).saved() for weights in ([3, 1], [6, 2])]
    assert [parts["position_weights"].tolist() for parts in saved] == [[0.75, 0.25]] * 2


def test_values_by_frame_by_logs_and_by_stream_agree_with_enumeration(given, tmp_path):
    df = frame(200)
    pq.write_table(pa.Table.from_pandas(df), tmp_path / "logs.parquet")
    logs = ma.read_logs(df, ["age"], "item", "reward", catalog=CATALOG)
    posterior = ma.fit(logs, ma.priors.from_categories(CATALOG, dim=logs.dim))
    expected = posterior.expected_reward(df)
    stream = ma.read_logs(
        tmp_path / "logs.parquet", ["age"], "item", "reward", catalog=CATALOG, features=logs.features,
        keep=["new", "top", "user", "city"],
    )  # fmt: skip
    for name, policy in given.items():
        value = (policy.probabilities(df) * expected).sum(axis=1).mean()
        for source in (df, stream):
            assert_allclose(posterior.value(policy, source).value, value, rtol=1e-12, err_msg=name)
        assert_allclose(ma.DM(posterior).estimate(policy, logs).value, value, rtol=1e-12)
        part = logs.take(np.arange(3, 150, 4))
        half = (policy.probabilities(df.iloc[3:150:4]) * expected[3:150:4]).sum(axis=1).mean()
        assert_allclose(ma.DM(posterior).estimate(policy, part).value, half, rtol=1e-12)


FOLLOW = ma.ColumnPolicy("new", CATALOG)
BAD = {
    "gap": (lambda: FOLLOW.actions(pa.table({"new": ["tea", None]})), NonFiniteError, "row 1"),
    "unknown": (lambda: FOLLOW.actions(pa.table({"new": ["tea", "cup"]})), ActionError, "row 1"),
    "spelling": (lambda: FOLLOW.actions(pa.table({"new": ["7"]})), ActionError, "'007'"),
    "lists": (lambda: FOLLOW.actions(pa.table({"new": [["tea"]]})), InputError, "position_weights"),
    "unknown in a list": (
        lambda: ma.ColumnPolicy("t", CATALOG, position_weights=[1, 1]).actions(pa.table({"t": ["tea|mug", "pot|cup"]})),
        ActionError, "row 1"),
    "no weights": (
        lambda: ma.ColumnPolicy("t", CATALOG, position_weights=[]), RangeError, "must begin with the weight"),
    "no weight for the first position": (
        lambda: ma.ColumnPolicy("t", CATALOG, position_weights=[0, 1]), RangeError, "must begin with the weight"),
    "a gap in a list": (
        lambda: ma.ColumnPolicy("t", CATALOG, position_weights=[1]).actions(pa.table({"t": ["tea|mug", "pot| |tea"]})),
        NonFiniteError, "gap in the list of row 1. Leave the gap out"),
    "no column of picks": (
        lambda: ma.LookupPolicy(pd.DataFrame({"u": ["a"], "one": ["tea"], "two": ["mug"]}), "u", CATALOG),
        InputError, "no column 'action', and several columns may hold the picks: one, two. Rename .* action="),
    "nothing but keys": (
        lambda: ma.LookupPolicy(pd.DataFrame({"u": ["a"]}), "u", CATALOG), InputError, "no column is left for picks"),
    "no such column": (
        lambda: ma.LookupPolicy(pd.DataFrame({"u": ["a"], "item": ["tea"]}), "u", CATALOG, action="itm"),
        InputError, "Did you mean item"),
    "no rows": (
        lambda: ma.LookupPolicy(pd.DataFrame({"u": [], "item": []}), "u", CATALOG), InputError, "no rows. Write one"),
    "arrays": (lambda: FOLLOW.actions(np.ones((3, 1))), InputError, "must be a table"),
    "no column": (lambda: ma.ColumnPolicy("old", CATALOG).actions(frame(2)), InputError, "no column 'old'"),
    "missing key": (
        lambda: ma.LookupPolicy(pd.DataFrame({"user": ["a"], "action": ["tea"]}), "user", CATALOG).actions(frame(2)),
        InputError, r"row 0 has user 'u\d'"),
    "key twice": (
        lambda: ma.LookupPolicy(pd.DataFrame({"user": ["a", "b", "a"], "action": ["tea"] * 3}), "user", CATALOG),
        InputError, "row 2 of the table of the policy has the same user as row 0"),
    "sum": (
        lambda: ma.LookupPolicy(
            pd.DataFrame({"u": ["a", "b", "b"], "action": ["tea", "tea", "mug"], "p": [1, 0.5, 0.4]}), "u", CATALOG,
            probability="p"),
        PropensityError, "u 'b', first in row 1 of the table of the policy, sum to 0.9"),
    "ranks": (
        lambda: ma.LookupPolicy(
            pd.DataFrame({"u": ["a", "a"], "action": ["tea", "mug"], "r": [1, 2]}), "u", CATALOG, rank="r"),
        InputError, "position_weights"),
    "two ways": (
        lambda: ma.LookupPolicy(
            pd.DataFrame({"u": ["a"], "action": ["tea"], "p": [1.0], "r": [1]}), "u", CATALOG, probability="p",
            rank="r"),
        InputError, "probability and rank exclude one another. Name one of them"),
    "negative": (
        lambda: ma.LookupPolicy(
            pd.DataFrame({"u": ["a", "a"], "action": ["tea", "mug"], "p": [1.5, -0.5]}), "u", CATALOG,
            probability="p"),
        PropensityError, "row 1 of the table of the policy has the probability -0.5. Clip and renormalise"),
    "same rank": (
        lambda: ma.LookupPolicy(
            pd.DataFrame({"u": ["a", "b", "a"], "action": ["tea", "mug", "pot"], "r": [1, 1, 1]}), "u", CATALOG,
            rank="r", position_weights=[1, 1]),
        InputError, "row 2 of the table of the policy has the rank of another pick for u 'a'. Give each pick"),
    "too many keys": (
        lambda: ma.LookupPolicy(
            pd.DataFrame({name: np.arange(2000) for name in "abcdef"} | {"action": ["tea"] * 2000}), list("abcdef"),
            CATALOG),
        TooLargeError, "too many combinations. Join them into one column"),
    "table of a function": (
        lambda: ma.LookupPolicy(lambda rows: rows, "u", CATALOG), DataTypeError, "table must be a table or a file"),
    "an empty list": (
        lambda: ma.ColumnPolicy("t", CATALOG, position_weights=[1]).actions(pa.table({"t": [["tea"], [], ["mug"]]})),
        NonFiniteError, "column t has an empty list in row 1. Fill it in"),
    "item twice in shares": (
        lambda: ma.TablePolicy.from_shares(
            pd.DataFrame({"action": ["tea", "mug", "tea"], "share": [0.5, 0.2, 0.3]}), CATALOG),
        InputError, "row 2 of the table of the policy names the same action as row 0. Add their shares up"),
    "no actions": (lambda: ma.TablePolicy(np.ones((3, 0))), ShapeError, "probabilities must have at least one action"),
    "a result that is no column": (
        lambda: ma.CallablePolicy(lambda rows: [["tea"], ["mug", "pot"]], CATALOG).actions(frame(2)),
        DataTypeError, "the result of the function must be one id per row; <lambda> returned a list. Return a list"),
    "shares": (
        lambda: ma.TablePolicy.from_shares(pd.DataFrame({"action": ["tea"], "share": [0.9]}), CATALOG),
        PropensityError, "sum to 0.9"),
    "function without an id": (
        lambda: ma.CallablePolicy(lambda rows: ["tea", None], CATALOG).actions(frame(2)),
        NonFiniteError, "returned no id for row 1. Return an id for every row"),
    "length": (lambda: ma.CallablePolicy(lambda rows: ["tea"], CATALOG).actions(frame(2)), InputError, "returned 1"),
    "no table kept": (
        lambda: ma.IPS().estimate(
            ma.ColumnPolicy("new", 5), ma.LoggedData(np.ones((4, 1)), [0, 1, 2, 4], np.ones(4), np.full(4, 0.2))),
        InputError, "keep="),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_with_the_row_and_a_remedy(case):
    call, kind, text = BAD[case]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("weights", [None, [2, 1]], ids=["picks", "lists"])
@pytest.mark.parametrize(("given", "rest"), [("TEA", "the catalog has 'tea'"), ("cup", "Add it to the catalog")])
def test_an_unknown_item_in_a_table_of_picks_is_said_to_be_in_that_table(tmp_path, weights, given, rest):
    picks = pd.DataFrame({"user": ["a", "b"], "action": ["mug", given]})
    picks.to_csv(tmp_path / "picks.csv", index=False)
    file = tmp_path / "picks.csv"
    for table, name in ((file, f" (line 3 of {file})"), (picks, " of the table of the policy")):
        with pytest.raises(ActionError) as refusal:
            ma.LookupPolicy(table, "user", CATALOG, position_weights=weights)
        message = str(refusal.value)
        assert message.startswith(f"row 1{name} has {given!r} in column action")
        assert rest in message
        assert "the log" not in message


@pytest.mark.parametrize("column", ["user", "action", "probability"])
def test_a_gap_in_a_table_of_picks_names_its_row_and_a_remedy_that_can_be_followed(tmp_path, column):
    # The rows of the table are not those of the log, so missing="drop" would not help.
    picks = pd.DataFrame({"user": ["a", "b"], "action": ["mug", "tea"], "probability": [1.0, 1.0]})
    picks.loc[1, column] = None
    picks.to_csv(tmp_path / "picks.csv", index=False)
    for table in (tmp_path / "picks.csv", picks):
        with pytest.raises(NonFiniteError, match=rf"row 1 .* has no value in column {column}") as refusal:
            ma.LookupPolicy(table, "user", CATALOG, probability="probability")
        assert refusal.value.remedy == "Fill it in, or delete the row."
