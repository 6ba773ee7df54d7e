"""The Open Bandit reader, on small files in the owners' format, and on the real ones where they are."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_set_files import KUAIREC_FILES, NAMES, REAL, kuairec_at, needs_real_data, pack, unpack
from numpy.testing import assert_allclose, assert_array_equal

from manyarms.datasets import (
    load_kuairec,
    load_open_bandit,
    merge_levels,
    read_columns,
)
from manyarms.errors import (
    ActionError,
    DataFileError,
    DataTypeError,
    InputError,
    NonFiniteError,
    PropensityError,
    RangeError,
    ShapeError,
)

LOG_NAMES = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,"
LOG_NAMES += "user_feature_3,user-item_affinity_0,user-item_affinity_1,user-item_affinity_2\n"

ROUNDS = [
    ("2019-11-24 00:00:20.004101+00:00", 2, 3, 0, 0.25, "b", "x", "p", "q"),
    ("2019-11-24 00:00:10+00:00", 0, 1, 1, 0.5, "a", "x", "p", "r"),
    ("2019-11-24 00:00:30.5+00:00", 1, 2, 0, 1.0, "b", "y", "p", ""),
    ("2019-11-24 00:00:20.004101+00:00", 1, 1, 0, 1e-6, "b", "x", "p", "q"),
]
ITEMS = (
    ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3\n0,2,0.5,k,l,m\n1,0,-0.5,k,l,n\n2,1,0,i,j,m\n"
)


def log_text(*rounds):
    lines = (",".join(map(str, (k, *fields, 0.0, 0.0, 1.0))) for k, fields in enumerate(rounds))
    return LOG_NAMES + "".join(f"{line}\n" for line in lines)


def open_bandit_at(root, layout="folder", log=None, items=ITEMS, key="random/all"):
    campaign = key.partition("/")[2]
    log = log_text(*ROUNDS) if log is None else log
    contents = {f"{key}/{campaign}.csv": log, f"{key}/item_context.csv": items}
    kind, _, folder = layout.partition(" in ")
    placed = {f"{folder}/{name}" if folder else name: text for name, text in contents.items() if text is not None}
    return unpack(root / "x", placed) if kind == "folder" else pack(root / "open_bandit_dataset.zip", placed)


def flat_at(root, policy="random", campaign="all", **changes):
    """The same rounds as Parquet, with times as text."""
    names = LOG_NAMES.strip().split(",")[1:10]
    columns = dict(zip(names, map(list, zip(*ROUNDS, strict=True)), strict=True)) | changes
    large = {name: pa.array(c, pa.large_string()) if isinstance(c[0], str) else c for name, c in columns.items()}
    pq.write_table(pa.table(large), root / f"{policy}_{campaign}.parquet")
    items = dict(item_id=[2, 0, 1], item_feature_0=[0.5, -0.5, 0.0])
    items |= {f"item_feature_{k}": list(texts) for k, texts in ((1, "kki"), (2, "llj"), (3, "mnm"))}
    pq.write_table(pa.table(items), root / f"{policy}_{campaign}_item_context.parquet")
    return root


OPEN_BANDIT_LAYOUTS = [f"{kind}{folder}" for kind in ("folder", "zip")
                       for folder in ("", " in open_bandit_dataset", " in obd")]  # fmt: skip


@pytest.mark.parametrize("layout", [*OPEN_BANDIT_LAYOUTS, "parquet"])
def test_open_bandit_is_read_in_every_layout_in_order_of_time(tmp_path, layout):
    path = flat_at(tmp_path) if layout == "parquet" else open_bandit_at(tmp_path, layout)
    log = load_open_bandit(path)
    assert log.items.tolist() == [0, 1, 2]
    assert log.item_features["item_feature_0"].tolist() == [-0.5, 0.0, 0.5]
    assert log.item_features["item_feature_1"].tolist() == ["k", "i", "k"]
    assert log.item_features["item_feature_3"].tolist() == ["n", "m", "m"]
    # Rounds at the same time stay in the order of the file.
    assert log.actions.tolist() == [0, 2, 1, 1]
    assert log.positions.tolist() == [0, 2, 0, 1]
    assert log.clicks.tolist() == [1, 0, 0, 0]
    assert log.propensities.tolist() == [0.5, 0.25, 1e-6, 1.0]
    assert log.user_features.tolist() == [[*"axpr"], [*"bxpq"], [*"bxpq"], ["b", "y", "p", ""]]
    assert log.timestamps[1] == np.datetime64("2019-11-24T00:00:20.004101")
    assert len(log) == 4
    with pytest.raises(ValueError, match="read-only"):
        log.clicks[0] = 1


def test_texts_that_first_occur_in_a_later_block_are_levels_too(tmp_path, monkeypatch):
    rounds = [(*ROUNDS[1][:5], f"{k % 7}", f"{k // 20}", "p", f"{99 - k}") for k in range(100)]
    monkeypatch.setattr(read_columns, "BLOCK", 1000)
    log = load_open_bandit(open_bandit_at(tmp_path, log=log_text(*rounds)))
    assert log.user_features.tolist() == [list(fields[5:]) for fields in rounds]
    assert log.user_levels[1] == ("0", "1", "2", "3", "4")
    assert log.user_levels[3] == tuple(sorted(map(str, range(100))))


def test_campaigns_and_policies_have_files_of_their_own(tmp_path):
    for key, item in (("random/all", 0), ("bts/all", 1), ("bts/men", 2)):
        open_bandit_at(tmp_path, log=log_text((ROUNDS[0][0], item, *ROUNDS[0][2:])), key=key)
    for policy, campaign, item in (("random", "all", 0), ("bts", "all", 1), ("bts", "men", 2)):
        assert load_open_bandit(tmp_path / "x", policy=policy, campaign=campaign).actions.tolist() == [item]
    with pytest.raises(DataFileError, match=r"random/women/item_context\.csv is not in .*ZOZO.*413 MB"):
        load_open_bandit(tmp_path / "x", campaign="women")
    for wrong in (dict(campaign="kids"), dict(policy="uniform")):
        with pytest.raises(InputError, match="one of"):
            load_open_bandit(tmp_path / "x", **wrong)


def test_contexts_are_one_hot(tmp_path):
    log = load_open_bandit(open_bandit_at(tmp_path))
    data = log.logged_data()
    assert_array_equal(data.contexts, np.eye(3)[log.positions])
    assert data.n_actions == 3
    assert_array_equal(data.rewards, log.clicks)
    assert_array_equal(data.propensities, log.propensities)
    assert_array_equal(data.actions, log.actions)
    both = log.logged_data("position+user")
    #                           position  a  b   x  y   p  ""  q  r
    assert_array_equal(both.contexts, [[1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1],
                                       [0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0],
                                       [1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0],
                                       [0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0]])  # fmt: skip
    with pytest.raises(InputError, match="features must be"):
        log.logged_data("user")


def test_two_logs_share_columns_when_levels_are_merged(tmp_path):
    one = load_open_bandit(open_bandit_at(tmp_path))
    texts = (*"czpq",)
    other = load_open_bandit(open_bandit_at(tmp_path / "other", log=log_text((*ROUNDS[0][:5], *texts), ROUNDS[1])))
    levels = merge_levels(one, other)
    assert levels == (("a", "b", "c"), ("x", "y", "z"), ("p",), ("", "q", "r"))
    columns = [(k, text) for k in range(4) for text in levels[k]]
    for log in (one, other):
        contexts = log.logged_data("position+user", levels=levels).contexts
        assert_array_equal(contexts[:, 3:], [[row[k] == text for k, text in columns] for row in log.user_features])
    with pytest.raises(InputError, match=r"user_feature_0 must have 'c' too.*merge_levels"):
        other.logged_data("position+user", levels=one.user_levels)
    with pytest.raises(ShapeError, match="4 lists"):
        one.logged_data("position+user", levels=levels[:2])


def changed(place, value):
    return log_text(ROUNDS[0], tuple(value if k == place else old for k, old in enumerate(ROUNDS[1])))


BAD_LOGS = {
    "a click of 2": (changed(3, 2), RangeError, "click of .*must be 0 or 1; line 3 has 2"),
    "a click that is a word": (changed(3, "yes"), DataTypeError, "click of .*line 3 has 'yes'"),
    "a propensity of 0": (changed(4, 0.0), PropensityError, r"\(0, 1\]; line 3 has 0"),
    "a propensity above 1": (changed(4, 1.5), PropensityError, r"line 3 has 1\.5"),
    "a propensity that is NaN": (changed(4, "nan"), NonFiniteError, "line 3"),
    "no propensity": (changed(4, ""), NonFiniteError, "line 3 has no value"),
    "an unknown item": (changed(1, 7), ActionError, "item_id of .* must be in item_context; line 3 has 7"),
    "a position 0": (changed(2, 0), RangeError, "must be 1 to 3; line 3 has 0"),
    "a position 4": (changed(2, 4), RangeError, "line 3 has 4"),
    "a time that is none": (changed(0, "yesterday"), DataTypeError, "time; line 3 has 'yesterday'"),
    "a column missing": (LOG_NAMES.replace("click,", "clicks,"), ShapeError, "columns click too; it has , timestamp"),
    "no rows": (LOG_NAMES, ShapeError, "has no rows"),
}


@pytest.mark.parametrize("name", BAD_LOGS)
def test_a_wrong_log_is_refused_by_file_and_line(tmp_path, name):
    text, error, message = BAD_LOGS[name]
    with pytest.raises(error, match=message) as caught:
        load_open_bandit(open_bandit_at(tmp_path, "zip in obd", log=text))
    assert "random/all/all.csv" in str(caught.value)
    assert "ZOZO" in str(caught.value)


def test_wrong_item_contexts_are_refused(tmp_path):
    for items, error, message in (
        (ITEMS + "3,2,0,a,b,c\n", InputError, r"item_context\.csv must have each item once; line 5 has 2"),
        (ITEMS.replace("item_feature_2", "feature"), ShapeError, "item_feature_2 too"),
        (ITEMS.replace("-0.5", "low"), DataTypeError, "item_feature_0 .*line 3 has 'low'"),
        (None, DataFileError, "item_context"),
    ):
        for path in (tmp_path / "x").rglob("*.csv"):
            path.unlink()
        with pytest.raises(error, match=message):
            load_open_bandit(open_bandit_at(tmp_path, items=items))


def test_a_wrong_flat_log_is_refused_by_row(tmp_path):
    for changes, error, message in (
        (dict(click=[0, 1, 2, 0]), RangeError, rf"click of {tmp_path}/random_all\.parquet must be 0 or 1; row 2 has 2"),
        (dict(click=[0.0, 1.0, 1.0, 0.0]), DataTypeError, "click of .* must be integer; it is double"),
        (dict(timestamp=["2019-11-24 00:00:20+00:00", "x", "y", "z"]), DataTypeError, "timestamp of .* must be time"),
        (dict(propensity_score=[0.5, None, 1.0, 1.0]), NonFiniteError, "row 1 has no value"),
        (dict(user_feature_1=["a", "b", None, "c"]), InputError, "row 2 has no value"),
    ):
        with pytest.raises(error, match=message):
            load_open_bandit(flat_at(tmp_path, **changes))


@needs_real_data
@pytest.mark.parametrize("campaign, n_items", [("all", 80), ("men", 34), ("women", 46)])
def test_real_logs_have_the_published_counts(campaign, n_items):
    logs = {policy: load_open_bandit(REAL / "obd", campaign=campaign, policy=policy) for policy in ("random", "bts")}
    for log in logs.values():
        assert (len(log), len(log.items)) == (10_000, n_items)
        assert (np.diff(log.timestamps) >= np.timedelta64(0, "us")).all()
        assert_allclose(log.logged_data("position+user").contexts.sum(axis=1), 5.0)
    assert_allclose(logs["random"].propensities, 1 / n_items, rtol=1e-12)
    if campaign == "all":
        assert_allclose([logs["random"].clicks.mean(), logs["bts"].clicks.mean()], [0.0038, 0.0042], rtol=1e-12)
    # The texts of item features differ between the two logs, but group items in the same way.
    random, bts = (logs[policy].item_features for policy in ("random", "bts"))
    assert_array_equal(random["item_feature_0"], bts["item_feature_0"])
    for name in ("item_feature_1", "item_feature_2", "item_feature_3"):
        assert not set(random[name]) & set(bts[name])
        assert len(set(random[name])) == len(set(bts[name])) == len(set(zip(random[name], bts[name], strict=True)))
    shared = merge_levels(*logs.values())
    sizes = {log.logged_data("position+user", levels=shared).dim for log in logs.values()}
    assert len(sizes) == 1


def test_the_owners_csv_gives_what_the_flat_file_gives(tmp_path):
    flat, owners = load_open_bandit(flat_at(tmp_path)), load_open_bandit(open_bandit_at(tmp_path / "csv"))
    for name in ("actions", "positions", "clicks", "propensities", "user_rows", "timestamps"):
        assert_array_equal(getattr(flat, name), getattr(owners, name))
    assert flat.user_levels == owners.user_levels


def test_a_file_that_cannot_be_taken_apart_is_a_typed_error(tmp_path):
    long = "\n".join(f"{i},{i},1,1,t,d,0.0,1.0" for i in range(20_000))
    for damage in (f'{NAMES}{long}\n"1,2,3\n{long}', f"{NAMES}{long}\n1,x".replace("\n", "\r")):
        folder = kuairec_at(tmp_path / str(len(damage)), "folder", {**KUAIREC_FILES, "small_matrix.csv": damage})
        with pytest.raises(InputError, match=r"small_matrix\.csv"):
            load_kuairec(folder)
