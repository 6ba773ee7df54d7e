"""Rows made from other data are refused; rows without a record are checked by their truth."""

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from small_experiments import Coin, CoinWorld, outcome

from manyarms.errors import DataFileError, ResultFileError, StaleRowsError
from manyarms.experiments import (
    METHODS,
    Cell,
    Grid,
    Origin,
    Problem,
    Store,
    run,
)
from manyarms.experiments.cell import draw_log, draw_world
from manyarms.experiments.problem import digest_of
from manyarms.experiments.real_data_problems import shortfall
from manyarms.experiments.reproduction import figures
from manyarms.experiments.result_store import MADE_OF, Provenance, check_provenance


@dataclass(frozen=True)
class Weighed(Problem):
    """A problem made of data: a file with the value of each of two actions."""

    path: str
    label: str = "weighed"

    def draw(self, rng):
        return CoinWorld(self._values())

    def origin(self):
        return Origin(digest_of(self._values()), shortfall(actions=(len(self._values()), 3)))

    def _values(self):
        if not Path(self.path).exists():
            raise DataFileError("no data.")
        return np.array(Path(self.path).read_text().split(), dtype=float)


@pytest.fixture
def weighed(tmp_path):
    path = tmp_path / "values.txt"

    def write(text):
        path.write_text(text)
        draw_world.cache_clear()
        draw_log.cache_clear()
        return Grid(Weighed(str(path)), "ope", ("sDM",), (20,), 2)

    return write


@pytest.mark.slow
def test_rows_of_other_data_are_refused_and_can_be_made_anew(weighed, tmp_path):
    store = Store(tmp_path / "out")
    before = run([weighed("1 2")], store, workers=1)
    assert run([weighed("1 2")], store, workers=1) == before
    for grid in (weighed("1.5 2"), replace(weighed("1.5 2"), instances=3)):
        with pytest.raises(StaleRowsError, match=r"out holds rows of 'weighed'.*other data.*drop=\['weighed'\]"):
            run([grid], store, workers=1)
    assert store.read() == before, "nothing was computed"
    store.compact(drop=["weighed"])
    after = run([weighed("1.5 2")], store, workers=1)
    assert {result.truth for result in after.values()} == {1.5}


@pytest.mark.slow
def test_rows_without_a_digest_are_taken_on_only_if_their_truth_is_that_of_the_data(weighed, tmp_path):
    store = Store(tmp_path / "out")
    run([weighed("1 2")], store, workers=1)
    path = tmp_path / "out" / MADE_OF
    kept = path.read_bytes()
    path.unlink()
    with pytest.raises(StaleRowsError, match=r"truth of instance 0 is 1 there and 1\.5 here"):
        run([weighed("1.5 2")], store, workers=1)
    assert not path.exists()
    counts = []
    run([weighed("1 2")], store, workers=1, progress=lambda done, total: counts.append(total))
    assert path.read_bytes() == kept and counts == [0], "taken on, and nothing computed"


def coin_rows(method="sDM", label="weighed"):
    """Finished rows of two instances whose truth is 1."""
    return {Cell(label, "ope", method, 20, i): outcome(1.1, 1.0) for i in range(2)}


def test_kept_rows_are_compared_with_the_data_at_hand_before_anything_is_computed(weighed, tmp_path):
    store = Store(tmp_path / "out")
    store.write(coin_rows())
    path = tmp_path / "out" / MADE_OF
    with pytest.raises(StaleRowsError, match=r"other data than that at hand: the truth of instance 0 is 1 there and 1"):
        run([weighed("1.5 2")], store, workers=1)
    assert not path.exists()
    assert run([weighed("1 2")], store, workers=1) == store.read()
    assert Provenance.read(tmp_path / "out").problems["weighed"].digest == digest_of(np.array([1.0, 2.0]))
    # From now on the digest decides, though the truth of the first action is the same.
    with pytest.raises(StaleRowsError, match=r"other data than that at hand\. Use .*drop=\['weighed'\]") as refusal:
        run([weighed("1 2.5")], store, workers=1)
    assert "--redo weighed" in refusal.value.flag_remedy


def test_kept_rows_of_another_version_of_a_method_are_refused(tmp_path):
    store, grid = Store(tmp_path), Grid(Coin(), "ope", ("DM (Freq)",), (20,), 2)
    store.write(coin_rows("DM (Freq)", "coin"))
    assert METHODS["DM (Freq)"].revision > 1
    with pytest.raises(StaleRowsError, match=r"rows of DM \(Freq\) by another version of this method"):
        run([grid], store, workers=1)
    Provenance(revisions={"DM (Freq)": METHODS["DM (Freq)"].revision}).write(tmp_path)
    assert run([grid], store, workers=1) == store.read()


def test_kept_rows_of_a_file_that_has_changed_are_refused(tmp_path):
    store, file = Store(tmp_path / "out"), tmp_path / "mine.py"
    store.write(coin_rows("mine"))
    file.write_text("before")
    Provenance(methods={"mine": sha256(b"before").hexdigest()[:32]}).write(tmp_path / "out")
    given = tmp_path / "out", {}, {"mine": file}, store.read(), [], {}
    check_provenance(*given)
    file.write_text("after")
    with pytest.raises(StaleRowsError, match=r"mine\.py has changed since its rows were made.*drop=\['mine'\]"):
        check_provenance(*given)


def test_a_pruned_record_is_about_the_rows_that_are_left():
    record = Provenance({"a": Origin("1"), "b": Origin("2")}, {"m": "x", "k": "y"}, {"k": 2, "l": 3})
    left = record.only([Cell("a", "ope", "m", 20, 0), Cell("a", "ope", "l", 20, 0)])
    assert left == Provenance({"a": Origin("1")}, {"m": "x"}, {"l": 3})


def test_finished_rows_can_be_read_where_the_data_is_not(weighed, tmp_path):
    store, grid = Store(tmp_path / "out"), weighed("1 2")
    before = run([grid], store, workers=1)
    (tmp_path / "values.txt").unlink()
    assert run([grid], store, workers=1) == before
    with pytest.raises(DataFileError, match="no data"):
        run([replace(grid, instances=3)], store, workers=1)
    assert Provenance.read(tmp_path / "out").problems["weighed"].caveat == "not the full data: 2 actions instead of 3"


def test_a_damaged_record_is_refused_with_the_way_out(tmp_path):
    (tmp_path / MADE_OF).write_text("{")
    with pytest.raises(ResultFileError, match="Delete it"):
        Provenance.read(tmp_path)


def test_digests_tell_values_types_shapes_and_texts_apart():
    parts = [np.zeros(4), np.zeros((2, 2)), np.zeros(4, dtype=np.int64), np.ones(4), ["a", "b"], ["ab"]]
    assert len({digest_of(part) for part in parts}) == len(parts)
    assert digest_of(np.arange(6).reshape(2, 3).T) == digest_of(np.ascontiguousarray(np.arange(6).reshape(2, 3).T))
    assert digest_of(np.array(["a", "b"], dtype=object)) == digest_of(["a", "b"])


def test_data_that_is_cut_short_has_another_digest_and_a_caveat(made_up, tmp_path):
    for name in ("movielens", "jester", "kuairec", "open-bandit"):
        (origin,) = {panel.problem.origin() for panel in figures(str(made_up))[name].panels}
        assert origin.digest == figures(str(made_up) + "/.")[name].panels[0].problem.origin().digest
        assert ("not the full data" in origin.caveat) == (name in ("movielens", "jester"))
    (tmp_path / "ml-1m").mkdir()
    for name in ("ratings.dat", "movies.dat"):
        text = (made_up / "ml-1m" / name).read_text(encoding="latin-1")
        (tmp_path / "ml-1m" / name).write_text(text if name[0] == "m" else "\n".join(text.split("\n")[:-1]))
    cut, whole = (figures(str(folder))["movielens"].panels[0].problem.origin() for folder in (tmp_path, made_up))
    assert cut.digest != whole.digest and cut.caveat != whole.caveat


@pytest.mark.slow
def test_rows_of_an_earlier_revision_of_a_method_are_refused(tmp_path):
    grid, store = Grid(Coin(), "ope", ("DM (Freq)", "sDM"), (20,), 2), Store(tmp_path)
    run([grid], store, workers=1)
    record = Provenance.read(tmp_path)
    assert record.revisions == {"DM (Freq)": METHODS["DM (Freq)"].revision}, "the first revision needs no record"
    replace(record, revisions={}).write(tmp_path)
    with pytest.raises(StaleRowsError, match=r"rows of DM \(Freq\) by another version"):
        run([grid], store, workers=1)
    run([replace(grid, methods=("sDM",))], store, workers=1)
    store.compact(drop=["DM (Freq)"])
    run([grid], store, workers=1)
    assert Provenance.read(tmp_path) == record
