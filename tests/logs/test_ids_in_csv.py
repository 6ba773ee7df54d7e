"""Ids and categories in CSV files stay as they are written: none merge, none get lost, and catalogs still match."""

import csv
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import manyarms as ma
from manyarms.errors import ActionError

ROLES = {"context": ["x"], "action": "item", "reward": "r"}


def write(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        writer.writerows(row.values() for row in rows)
    return path


def write_log(path, ids, **more):
    columns = {name: list(values) for name, values in more.items()}
    rows = [
        {"x": i % 7, "item": item, "r": i, **{name: values[i] for name, values in columns.items()}}
        for i, item in enumerate(ids)
    ]
    return write(path, rows)


def write_items(path, ids, **more):
    return write(path, [{"item": item, **{k: v[i] for k, v in more.items()}} for i, item in enumerate(ids)])


def counts(logs):
    """Rows of each id, as a text."""
    names = [str(name) for name in logs.catalog.ids.tolist()]
    return dict(Counter(names[number] for number in logs.actions))


BIG = ["18446744073709551617", "18446744073709551618", "18446744073709551619"]
PAIRS = ["007", "7", "1e5", "100000", "1.0", "1"]


@pytest.mark.parametrize("ids", [BIG, PAIRS, ["NA", "null", "None", "nan", "N/A", "NULL"]], ids=["big", "pairs", "na"])
def test_every_id_of_a_csv_log_keeps_its_own_rows(tmp_path, ids):
    logged = [ids[i % len(ids)] for i in range(60)]
    log, items = write_log(tmp_path / "log.csv", logged), write_items(tmp_path / "items.csv", ids)
    catalog = ma.read_catalog(items, "item")
    assert catalog.ids.tolist() == ids
    assert counts(ma.read_logs(log, **ROLES, catalog=catalog).collect()) == Counter(logged)
    # Without a catalog, too.
    assert counts(ma.read_logs(log, **ROLES).collect()) == Counter(logged)
    assert ma.read_logs(log, **ROLES, missing="drop").collect().rewards.tolist() == list(range(60))


def test_ids_that_begin_as_integers_may_go_on_as_texts(tmp_path):
    # Far enough for the second kind to be in another block than the first.
    logged = [str(i % 5) for i in range(200_000)] + ["05", "tea"]
    log = write_log(tmp_path / "log.csv", logged)
    catalog = ma.read_catalog(write_items(tmp_path / "items.csv", ["0", "1", "2", "3", "4", "05", "tea"]), "item")
    assert counts(ma.read_logs(log, **ROLES, catalog=catalog).collect()) == Counter(logged)


def test_plain_integers_stay_integers_in_catalogs_levels_and_action_numbers(tmp_path):
    log = write_log(tmp_path / "log.csv", [3, 0, 10], zip=[90210, 7, 90210], user=[5, 6, 5])
    items = write_items(tmp_path / "items.csv", range(11), kind=[*range(10), ""])
    catalog = ma.read_catalog(items, "item", category="kind")
    assert catalog.ids.tolist() == list(range(11))
    assert catalog.categories.tolist() == [*range(10), None]
    options = {**ROLES, "context": ["x", "zip"], "categorical": ["zip"], "group": "user"}
    for known in (None, catalog):
        logs = ma.read_logs(log, **options, catalog=known).collect()
        assert logs.actions.tolist() == [3, 0, 10]
        assert logs.n_actions == 11
        assert logs.groups.tolist() == [5, 6, 5]
        assert logs.features.features[1].levels == (7, 90210)


def test_blanks_around_an_integer_do_not_change_it(tmp_path):
    (tmp_path / "log.csv").write_text("x,item,r\n1, 3,0\n2,3 ,1\n")
    assert ma.read_logs(tmp_path / "log.csv", **ROLES, catalog=ma.Catalog([2, 3])).collect().actions.tolist() == [1, 1]


@pytest.mark.parametrize("known", [[5, 7, 12], ["5", "7", "12"]], ids=["integers", "texts"])
@pytest.mark.parametrize("logged", ["csv", "integers", "texts"])
def test_ids_match_as_they_are_written_whatever_their_type(tmp_path, known, logged):
    ids = [12, 5, 7, 12]
    given = {
        "csv": lambda: write_log(tmp_path / "log.csv", ids),
        "integers": lambda: pa.table({"x": [1.0] * 4, "item": ids, "r": [0.0] * 4}),
        "texts": lambda: pa.table({"x": [1.0] * 4, "item": [str(id) for id in ids], "r": [0.0] * 4}),
    }[logged]()
    catalog = ma.Catalog(known)
    read = ma.read_logs(given, **ROLES, catalog=catalog)
    logs = read if isinstance(read, ma.LoggedData) else read.collect()
    assert logs.actions.tolist() == [2, 0, 1, 2]
    assert catalog.numbers(["12", "5"]).tolist() == catalog.numbers([12, 5]).tolist() == [2, 0]


@pytest.mark.parametrize(("log_id", "known"), [("007", "7"), ("1e5", "100000"), ("1.0", "1"), ("Tea", "tea")])
def test_an_id_spelled_otherwise_in_the_catalog_is_named_in_the_error_and_in_the_warning(tmp_path, log_id, known):
    log = write_log(tmp_path / "log.csv", ["42", log_id, "42"])
    items = write_items(tmp_path / "items.csv", ["42", known])
    catalog = ma.read_catalog(items, "item")
    spelled = f"the log has '{log_id}', the catalog has '{known}'"
    with pytest.raises(ActionError) as refusal:
        ma.read_logs(log, **ROLES, catalog=catalog).collect()
    assert spelled in str(refusal.value)
    assert "row 1 " in str(refusal.value)
    with pytest.raises(ActionError, match=f"catalog has '?{known}'?"):
        catalog.numbers([log_id])
    fitted = ma.jobs.fit_files(log, **ROLES, catalog=items, id="item", unknown="drop", learn_prior=False)
    assert fitted.dropped.unknown == 1
    assert any(spelled in warning for warning in fitted.warnings)


def test_na_is_a_country_and_an_empty_cell_is_missing(tmp_path):
    countries = ["NA", "FR", "null", "", "None"] * 20
    log = write_log(tmp_path / "log.csv", ["a", "b"] * 50, country=countries)
    roles = {**ROLES, "context": ["x", "country"]}
    stream = ma.read_logs(log, **roles, missing="drop")
    assert len(stream.collect()) == 80
    assert stream.dropped.missing == 20
    assert stream.features.features[1].levels == ("FR", "NA", "None", "null")
    items = write_items(tmp_path / "items.csv", ["a", "b", "c"], kind=["NA", "", "nan"], tags=["NA|x", "", "null"])
    catalog = ma.read_catalog(items, "item", category="kind", tags="tags")
    assert catalog.categories.tolist() == ["NA", None, "nan"]
    assert [list(row) for row in catalog.tags] == [["NA", "x"], [], ["null"]]


def test_na_in_a_numeric_column_or_a_time_is_still_missing(tmp_path):
    times = ["2024-05-01 09:30:00+02:00", "NA", "2024-05-01 10:30:00+02:00", ""]
    rows = [{"x": x, "item": "a", "r": 1, "at": at} for x, at in zip(["1.5", "2", "NA", "3"], times, strict=True)]
    log = write(tmp_path / "log.csv", rows)
    stream = ma.read_logs(log, **ROLES, time="at", missing="drop")
    assert len(stream.collect()) == 1
    assert stream.dropped.missing == 3


def test_levels_of_a_category_are_told_apart_as_they_are_written(tmp_path):
    codes = ["01234", "1234", "1e3", "1000"] * 10
    log = write_log(tmp_path / "log.csv", ["a", "b"] * 20, zip=codes)
    roles = {**ROLES, "context": ["zip"], "categorical": ["zip"]}
    read = ma.read_logs(log, **roles)
    assert read.features.features[0].levels == ("01234", "1000", "1234", "1e3")
    # A later file that holds integers alone has the same levels.
    later = write_log(tmp_path / "later.csv", ["a", "b"], zip=["1234", "1000"])
    again = ma.read_logs(later, **{**ROLES, "context": ["zip"]}, features=read.features, catalog=read.catalog).collect()
    assert [again.features.names[int(np.argmax(row[1:])) + 1] for row in again.contexts] == ["zip=1234", "zip=1000"]


def test_groups_are_told_apart_as_they_are_written(tmp_path):
    users = ["007", "7", "18446744073709551617", "18446744073709551618", "NA", "u1", "7"]
    log = write_log(tmp_path / "log.csv", ["a"] * 7, user=users)
    groups = ma.read_logs(log, **ROLES, group="user").collect().groups.tolist()
    assert len(set(groups)) == 6
    assert groups[1] == groups[6] == 7


def test_a_number_with_leading_zeros_is_no_action_number(tmp_path):
    log = write_log(tmp_path / "log.csv", ["1", "2.0", "007"])
    with pytest.raises(ActionError, match="'007'") as refusal:
        ma.read_logs(log, **ROLES, n_actions=9).collect()
    assert "row 2 " in str(refusal.value)
    log = write_log(tmp_path / "fine.csv", ["1", "2.0"])
    assert ma.read_logs(log, **ROLES, n_actions=9).collect().actions.tolist() == [1, 2]


def test_a_model_of_integer_ids_from_parquet_reads_csv_logs_and_grows_by_a_catalog_of_texts(tmp_path):
    rows = {"x": [0.0, 1.0, 2.0], "item": [5, 7, 5], "r": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    pq.write_table(pa.table({"item": [5, 7], "kind": [1, 2]}), tmp_path / "items.parquet")
    columns = {"action": "item", "reward": "r"}
    model = tmp_path / "model.arrow"
    ma.jobs.fit_files(
        tmp_path / "log.parquet", **columns, context=["x"], catalog=tmp_path / "items.parquet", id="item",
        category="kind", learn_prior=False, out=model,
    )  # fmt: skip
    log = write_log(tmp_path / "log.csv", ["7", "007"])
    items = write_items(tmp_path / "items.csv", ["5", "7", "007"], kind=["1", "2", "2"])
    grown = ma.jobs.update_files(model, log, **columns, catalog=items, id="item", category="kind")
    assert grown.new_actions == 1
    assert grown.posterior.catalog.ids.tolist() == [5, 7, "007"]
    assert grown.posterior.catalog.categories.tolist() == [1, 2, 2]
    assert grown.posterior.statistics.n_rounds == 5


def test_scores_read_categories_as_they_are_written(tmp_path):
    log = write_log(tmp_path / "log.csv", ["a", "b", "a"], country=["NA", "FR", "NA"])
    model = ma.jobs.fit_files(log, **{**ROLES, "context": ["x", "country"]}, learn_prior=False).posterior
    scored = ma.jobs.score(model, log, tmp_path / "best.parquet", top_k=1)
    assert scored.n_contexts == 3


@pytest.mark.parametrize("kind", ["csv", "integers", "floats"])
def test_codes_without_a_catalog_are_the_ids_of_logged_actions_and_smaller_numbers_count_them(tmp_path, kind):
    def logs(ids):
        if kind == "csv":
            return ma.read_logs(write_log(tmp_path / "log.csv", ids), **ROLES).collect()
        column = pa.array(ids, pa.int64() if kind == "integers" else pa.float64())
        return ma.read_logs(pa.table({"x": [1.0] * len(ids), "item": column, "r": [0.0] * len(ids)}), **ROLES)

    codes = logs([90217, 90210, 90301, 90217])
    assert codes.actions.tolist() == [1, 0, 2, 1] and codes.catalog.ids.tolist() == [90210, 90217, 90301]
    numbered = logs([990, 1500, 3])
    assert numbered.actions.tolist() == [990, 1500, 3] and (numbered.catalog, numbered.n_actions) == (None, 1501)


def test_candidates_that_are_codes_are_actions_too():
    rows = {"x": [1.0, 2.0], "item": [90210, 90217], "r": [0.0, 1.0], "shown": [[90210, 90301], [90217]]}
    logs = ma.read_logs(pa.table(rows), **ROLES, eligible="shown")
    assert logs.n_actions == 3 and logs.eligible.toarray().tolist() == [[1, 0, 1], [0, 1, 0]]
