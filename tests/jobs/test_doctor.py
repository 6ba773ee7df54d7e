"""The check-up finds what was planted in a log, names it with a remedy, and is quiet about a log that is fine."""

import json
import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from small_shop import run

import manyarms as ma
from manyarms.decision.report_sections import SECTIONS
from manyarms.errors import InputError

ITEMS = pd.DataFrame({"sku": [f"i{k}" for k in range(12)], "shelf": ["a", "b", "c"] * 4})


def log(n=600, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "user": [f"u{k}" for k in rng.integers(50, size=n)],
            "age": rng.integers(18, 80, size=n).astype(float),
            "city": rng.choice(["Oslo", "Riga"], n),
            "item": rng.choice(ITEMS["sku"], n),
            "clicked": rng.integers(2, size=n),
            "propensity": np.full(n, 1 / 12),
            "at": pd.Timestamp("2024-05-01") + pd.to_timedelta(np.sort(rng.uniform(0, 20, n)), unit="D"),
        }
    )


def findings(frame, catalog=ITEMS, **roles):
    return {(finding.level, finding.subject): finding for finding in ma.doctor(frame, catalog, **roles).findings}


def test_the_layout_of_the_open_bandit_pipeline_is_recognised(tmp_path):
    rng = np.random.default_rng(0)
    columns = {
        "": np.arange(300),
        "timestamp": [f"2019-11-24 00:{k // 60:02d}:{k % 60:02d}+00:00" for k in range(300)],
        "item_id": np.arange(300) % 34,
        "click": (rng.random(300) < 0.1).astype(int),
        "propensity_score": np.full(300, 1 / 34),
        "user_feature_0": rng.choice(["cef3", "81ce"], 300),
    }
    pa.csv.write_csv(pa.table(columns), tmp_path / "men.csv")
    roles = ma.doctor(tmp_path / "men.csv").roles
    assert (roles.action, roles.reward, roles.propensity, roles.time) == (
        "item_id", "click", "propensity_score", "timestamp"
    )  # fmt: skip
    assert roles.context == ("user_feature_0",) and roles.group == ""


def test_a_sound_log_has_its_roles_and_nothing_to_mend():
    result = ma.doctor(log(), ITEMS)
    roles = result.roles
    assert (roles.action, roles.reward, roles.propensity, roles.group, roles.time) == (
        "item", "clicked", "propensity", "user", "at")  # fmt: skip
    assert roles.context == ("age", "city") and (roles.id, roles.category) == ("sku", "shelf")
    assert result.worst == "note" and result.n_rounds == 600 and result.n_actions == 12


def changed(**columns):
    return lambda: log().assign(**columns)


N, RNG = 600, np.random.default_rng(1)
PLANTED = {
    "an unknown id": (changed(item=lambda f: f["item"].where(f.index != 7, "cup")), "warning", "item", "'cup'"),
    "a near match": (changed(item=lambda f: f["item"].str.upper()), "problem", "item", "the catalog has 'i"),
    "gaps": (changed(age=lambda f: f["age"].where(f.index % 3 > 0)), "warning", "age", "200 of 600 rows"),
    "a constant": (changed(shop="Riga"), "note", "shop", "'Riga' in every row"),
    "the reward again": (changed(value=lambda f: 2.0 * f["clicked"] + 1), "problem", "value", "correlation of 1.000"),
    "known afterwards": (
        changed(basket=lambda f: f["age"].where(f["clicked"] == 1)), "problem", "basket", "only where the reward"),
    "a future by name": (changed(days_after=RNG.normal(size=N)), "warning", "days_after", "only after the choice"),
    "a later time": (
        changed(closed=lambda f: f["at"] + pd.Timedelta(days=2)), "warning", "closed", "later than at"),
    "an impossible propensity": (
        changed(propensity=lambda f: f["propensity"].where(f.index != 5, 0.0)), "problem", "propensity", "0 in row 5"),
    "large propensities": (changed(propensity=0.5), "problem", "propensity", "it would be at least"),
    "small propensities": (changed(propensity=0.01), "problem", "propensity", "too small"),
    "ratings": (changed(clicked=RNG.integers(1, 6, size=N)), "warning", "clicked", "ratings"),
    "repeats": (lambda: pd.concat([log(), log().head(60)]), "warning", "rows", "60 rows"),
    "a gap in time": (
        changed(at=lambda f: f["at"].where(f.index < 300, f["at"] + pd.Timedelta(days=30))), "warning", "at", "logged"),
    "numbers as texts": (
        changed(price=lambda f: np.where(f.index % 9, np.char.mod("%.2f", np.arange(N) % 40 + 0.5), "1,250.00")),
        "warning", "price", "'1,250.00'"),
    "many values": (changed(town=np.char.add("t", (np.arange(N) % 90).astype(str))), "note", "town", "90 values"),
    "an empty category": (lambda: log().query("item not in ['i0', 'i3', 'i6', 'i9']"), "warning", "shelf", "1 of 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_is_noticed_with_a_remedy(case):
    make, level, subject, text = PLANTED[case]
    noticed = findings(make())
    assert (level, subject) in noticed, [(*key, finding.problem) for key, finding in noticed.items()]
    assert text in noticed[level, subject].problem and noticed[level, subject].remedy


def test_the_command_fills_in_the_names_and_its_exit_code_is_the_worst_finding(tmp_path):
    frame = log().assign(recommended=lambda f: f["item"].to_numpy()[::-1])
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "logs.parquet")
    pq.write_table(pa.Table.from_pandas(ITEMS), tmp_path / "items.parquet")
    result = run("doctor", tmp_path / "logs.parquet", tmp_path / "items.parquet", "--json")
    assert result.exit_code == 0, result.output
    words = shlex.split(json.loads(result.stdout)["commands"][0])
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    assert words[:2] == ["manyarms", "decide"]
    assert flags["--context"] == "age,city" and flags["--id"] == "sku" and flags["--likelihood"] == "bernoulli"
    assert flags["--policies"] == "recommended=column:recommended"
    frame["propensity"] = 0.9
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "logs.parquet")
    assert run("doctor", tmp_path / "logs.parquet", tmp_path / "items.parquet").exit_code == 4
    assert run("doctor", tmp_path / "nowhere.csv").exit_code == 2


def test_numbers_read_as_texts_are_left_out_of_the_command(tmp_path):
    log().assign(price=[f"1,{i % 40 + 200}.50" for i in range(N)]).to_csv(tmp_path / "logs.csv", index=False)
    roles = ma.doctor(str(tmp_path / "logs.csv"), ITEMS).roles
    assert "price" not in roles.context and "read as texts" in roles.left_out["price"]


def test_a_column_of_many_values_is_left_out_of_the_command(tmp_path):
    # With 100 features of its own it made decisions ten times slower, and a column of users says nothing of items.
    frame = log().assign(buyer=np.char.add("k", (np.arange(N) % 130).astype(str)))
    frame.to_csv(tmp_path / "logs.csv", index=False)
    result = ma.doctor(tmp_path / "logs.csv", ITEMS)
    assert result.roles.context == ("age", "city") and "--context age,city " in result.commands[0]
    assert findings(frame)["note", "buyer"].remedy.endswith("The commands below leave the column out.")


def test_constants_have_a_remedy_that_can_be_followed():
    assert ("note", "propensity") not in findings(log().assign(propensity=1 / 12))
    assert findings(log().assign(clicked=0))["problem", "clicked"].remedy.startswith("Add rounds with other values")


def test_rewards_that_are_texts_are_a_problem():
    frame = log().assign(clicked=lambda f: f["clicked"].map({0: "0", 1: "yes"}))
    assert "such as 'yes'" in findings(frame, reward="clicked")["problem", "clicked"].problem


def test_names_with_blanks_are_quoted_in_remedies_too():
    frame = log().rename(columns={"item": "item no"}).assign(**{"new item": lambda f: f["item no"].to_numpy()[::-1]})
    remedy = findings(frame, action="item no")["note", "new item"].remedy
    assert "--policies 'new item=column:new item'." in remedy and "--action 'new item'." in remedy


def test_the_items_that_were_shown_are_told_from_the_picks_of_a_new_model():
    frame = log().rename(columns={"item": "shown_cup"})
    result = ma.doctor(frame.assign(recommended_by_new_model=frame["shown_cup"].to_numpy()[::-1]), ITEMS)
    assert result.roles.action == "shown_cup" and result.roles.picks == ("recommended_by_new_model",)
    note = next(finding for finding in result.findings if finding.subject == "recommended_by_new_model")
    assert "--action recommended_by_new_model" in note.remedy


def test_codes_with_leading_zeros_are_items_and_row_numbers_are_no_contexts(tmp_path):
    """A shop's file: names in another language, ids such as 00103, gaps among the picks, and numbered rows."""
    rng, n = np.random.default_rng(0), 300
    ids = [f"{k:05d}" for k in range(100, 112)]
    pd.DataFrame({"SKU": ids, "Gruppe": ["a", "b", "c"] * 4}).to_csv(tmp_path / "artikel.csv", index=False)
    log = pd.DataFrame({"Besuch Nr": np.arange(1, n + 1), "Alter": rng.integers(18, 80, size=n)})
    log["gezeigt"], log["gekauft?"] = rng.choice(ids[:9], n), rng.integers(2, size=n)
    log["Empfehlung (neu)"] = np.where(np.arange(n) == 7, None, rng.choice(ids, n))
    log["Alter, Jahre"] = log["Alter"]
    log.to_csv(tmp_path / "besuche.csv", index=False)
    files = (str(tmp_path / "besuche.csv"), str(tmp_path / "artikel.csv"))
    unnamed = next(finding for finding in ma.doctor(*files).findings if finding.subject == "reward")
    assert unnamed.remedy == "Name it: --reward COLUMN. Columns of 0 and 1: gekauft?."
    result = ma.doctor(*files, reward="gekauft?")
    roles = result.roles
    assert (roles.action, roles.context, roles.picks) == ("gezeigt", ("Alter",), ("Empfehlung (neu)",))
    assert roles.left_out["Besuch Nr"] == "it numbers the rows"
    assert "comma" in roles.left_out["Alter, Jahre"]
    assert {column["column"]: column["type"] for column in result.columns}["Empfehlung (neu)"] == "string"
    words = shlex.split(result.commands[0])
    assert words[words.index("--policies") + 1] == "Empfehlung (neu)=column:Empfehlung (neu)"
    assert words[words.index("--missing") + 1] == "drop" and "--missing" not in shlex.split(result.commands[1])
    assert run(*words[1:-1], str(tmp_path / "report.html")).exit_code in (0, 3, 4)


def test_na_is_a_label_in_texts_and_a_gap_in_numbers_as_for_fits(tmp_path):
    rows = [f"{['NA', 'DE', ''][n % 3]},{['NA', '1'][n % 2]},i{n % 5},{n % 4}" for n in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(["country,age,item,margin", *rows]))
    (tmp_path / "items.csv").write_text("item,kind\n" + "\n".join(f"i{k},{['NA', 'b'][k % 2]}" for k in range(6)))
    check_up = ma.doctor(tmp_path / "log.csv", tmp_path / "items.csv")
    missing = {column["column"]: column["missing"] for column in check_up.columns}
    assert (missing["country"], missing["age"]) == (20, 30)
    logs = ma.read_logs(tmp_path / "log.csv", ["country", "age"], "item", "margin", missing="drop")
    assert logs.collect().dropped.missing == sum(n % 3 == 2 or n % 2 == 0 for n in range(60))


def test_batches_of_any_size_give_the_same_findings(tmp_path):
    table = pa.Table.from_pandas(pd.concat([log(), log().head(60)]), preserve_index=False)
    whole = ma.doctor(table, ITEMS)
    pieces = ma.doctor(lambda: table.to_batches(max_chunksize=37), ITEMS)
    assert pieces.findings == whole.findings and pieces.columns == whole.columns


def test_terms_are_explained_and_near_misses_suggested():
    assert ma.explain("effective sample size").startswith("Effective sample size. The number of equally weighted")
    assert ma.explain("Lift") == ma.explain("gain")
    assert "Gains chart (Value and gain of each policy)" in ma.explain().splitlines()
    for section in SECTIONS:
        assert not section.charts or "chart" in ma.explain(section.heading).partition(" (")[0]
    assert ma.explain("by category") == ma.explain("support chart") and ma.explain("Pareto k") and ma.explain("drift")
    with pytest.raises(InputError, match='Did you mean "Propensity"'):
        ma.explain("propensit")
    # A term with brackets is found without them, and suggested with the quotes that a shell needs.
    assert ma.explain("P beats current") == ma.explain("P(beats current)") != ma.explain("gain")
    assert 'Did you mean "P(beats current)"? (Keep the quotes.)' in run("explain", "beats current").stderr
    assert "(Keep the quotes.)" not in run("explain", "propensit").stderr
    # Every heading that is listed can be asked for as it stands.
    for heading in ma.explain().splitlines():
        assert ma.explain(heading).startswith(f"{heading}.")
    assert ma.explain("log evidence") == ma.explain("evidence") and "confounder" in ma.explain("hidden cause")
    assert run("explain", "gains", "chart").stdout.startswith(
        "Gains chart (Value and gain of each policy). One row per policy"
    )


def test_an_empty_log_has_no_check_up():
    with pytest.raises(InputError, match=r"logs has no rows\. Pass logs with at least one round"):
        ma.doctor(log().head(0))


def test_a_check_up_is_shown_with_the_number_of_problems_and_warnings():
    sound, bad = ma.doctor(log(), ITEMS), ma.doctor(log().assign(propensity=2.0), ITEMS)
    for check_up in (sound, bad):
        counts = [sum(one.level == level for one in check_up.findings) for level in ("problem", "warning")]
        words = [
            f"{count} {name}{'' if count == 1 else 's'}"
            for count, name in zip(counts, ("problem", "warning"), strict=True)
        ]
        assert repr(check_up) == f"CheckUp(600 rounds: {', '.join(words)})"
    assert repr(bad) != repr(sound)


def test_a_log_without_contexts_or_a_catalog_without_categories_is_warned_about():
    found = findings(log()[["item", "clicked", "propensity"]], ITEMS[["sku"]])
    assert "no column looks like a context" in found["warning", "context"].problem
    assert "device or age" in found["warning", "context"].remedy
    assert "no column of categories" in found["warning", "category"].problem
    assert ("warning", "category") not in findings(log())


def test_a_catalog_that_lists_an_item_twice_is_a_problem():
    twice = pd.concat([ITEMS, ITEMS.iloc[[4, 4]]])
    finding = findings(log(), twice, id="sku")["problem", "sku"]
    assert finding.problem == "the catalog's column sku is not unique: 'i4' occurs 3 times."
    assert "Keep one row per item" in finding.remedy


def test_a_category_of_few_rounds_is_noted():
    rare = log()
    rows = rare["item"].isin(ITEMS["sku"][ITEMS["shelf"] == "c"])
    few = pd.concat([rare[~rows], rare[rows].head(4)])
    finding = findings(few)["note", "shelf"]
    assert finding.problem == "1 of 3 categories (shelf) have fewer than 10 rounds."
    assert ("note", "shelf") not in findings(rare)


def test_picks_that_the_catalog_lacks_are_a_problem():
    picked = log().assign(recommended=["i1", "i2", "zz"] * 200)
    found = findings(picked)
    assert "1 of its items are not in the catalog, such as 'zz'" in found["problem", "recommended"].problem
    assert "note" in {level for level, subject in found if subject == "recommended"}
