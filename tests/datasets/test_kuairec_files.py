"""The KuaiRec reader, on small files in the owners' format, and on the real ones where they are."""

import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_set_files import (
    BIG_ROWS,
    KUAIREC_FILES,
    NAMES,
    REAL,
    SMALL_ROWS,
    kuairec_at,
    needs_real_data,
    pack,
    unpack,
    watched,
)
from numpy.testing import assert_allclose, assert_array_equal

from manyarms.datasets import (
    load_kuairec,
    read_columns,
)
from manyarms.errors import (
    DataFileError,
    DataTypeError,
    InputError,
    NonFiniteError,
    RangeError,
    ShapeError,
)

KUAIREC_LAYOUTS = [f"{kind}{folder}" for kind in ("folder", "zip")
                   for folder in ("", " in KuaiRec 2.0/data", " in KuaiRec/data", " in data")]  # fmt: skip


@pytest.mark.parametrize("layout", KUAIREC_LAYOUTS)
def test_kuairec_is_read_in_every_layout_with_the_mean_of_repeated_cells(tmp_path, layout):
    data = load_kuairec(kuairec_at(tmp_path, layout))
    assert data.users.tolist() == [2, 7, 14]
    assert data.videos.tolist() == [3, 9, 30]
    assert not data.partial
    assert data.categories == [(27, 9), (8,), ()]
    for cells, rows in ((data.small, SMALL_ROWS), (data.big, BIG_ROWS)):
        of_pair = {}
        for user, video, ratio in rows:
            of_pair.setdefault((user, video), []).append(ratio)
        pairs = zip(data.users[cells.user_rows].tolist(), data.videos[cells.video_rows].tolist(), strict=True)
        found = dict(zip(pairs, cells.watch_ratio.tolist(), strict=True))
        assert found == {pair: sum(ratios) / len(ratios) for pair, ratios in of_pair.items()}
        assert len(cells) == len(of_pair)
    with pytest.raises(ValueError, match="read-only"):
        data.small.watch_ratio[0] = 1


def test_scores_are_clipped_ratios_over_the_users_largest(tmp_path):
    data = load_kuairec(kuairec_at(tmp_path, "folder"))
    small = data.matrix(data.small)
    # User 14: 20 counts as 10, and the mean of 0.5, 1.5 and 4 is 2. User 7 watched nothing of video 9.
    assert_allclose(small.toarray(), [[0, 0, 0], [0, 0, 0], [1, 0.2, 0]], rtol=1e-15)
    assert small.nnz == 3  # the zero of user 7 is known to be one
    assert_allclose(data.matrix(data.big).toarray(), [[0.2, 0, 1], [1, 0, 0], [0, 0, 0]], rtol=1e-15)
    assert_allclose(data.matrix(data.small, clip=4.0).toarray()[2], [1, 0.5, 0], rtol=1e-15)
    with pytest.raises(RangeError, match="clip"):
        data.matrix(data.small, clip=0.0)


def test_blocks_of_a_file_come_together(tmp_path, monkeypatch):
    rows = [(k % 40, k % 77, k / 8) for k in range(5000)]
    path = kuairec_at(tmp_path, "zip", KUAIREC_FILES | {"big_matrix.csv": watched(*rows)})
    whole = load_kuairec(path)
    monkeypatch.setattr(read_columns, "BLOCK", 1000)
    in_blocks = load_kuairec(path)
    assert_array_equal(in_blocks.big.watch_ratio, whole.big.watch_ratio)
    total = sum(ratio for *_, ratio in rows)
    assert_allclose(whole.big.watch_ratio.sum() / len(whole.big) * len(rows), total, rtol=0.05)
    assert len(whole.big) == len({row[:2] for row in rows})


def test_kuairec_without_its_big_matrix_has_none(tmp_path):
    contents = {name: text for name, text in KUAIREC_FILES.items() if name != "big_matrix.csv"}
    data = load_kuairec(kuairec_at(tmp_path, "zip in data", contents))
    assert data.big is None
    assert not data.partial
    assert data.videos.tolist() == [3, 9]


BAD_WATCHED = {
    "a column missing": (
        NAMES.replace("watch_ratio", "ratio"),
        ShapeError,
        "watch_ratio too; it has user_id, .*, ratio",
    ),
    "a file without lines": ("", ShapeError, "must have columns user_id, video_id, watch_ratio"),
    "no rows": (NAMES, ShapeError, "has no rows"),
    "a word": (watched(*SMALL_ROWS, (7, 3, "much")), DataTypeError, "watch_ratio of .* number; line 7 has 'much'"),
    "an id that is a word": (watched((7, 9, 1), ("x", 3, 1)), DataTypeError, "user_id of .* integer; line 3 has 'x'"),
    "no ratio": (watched((7, 9, 1), (7, 3, "")), NonFiniteError, "line 3 has no value"),
    "NaN": (watched((7, 9, 1), (7, 3, 1), (7, 4, "nan")), NonFiniteError, "line 4 has no value"),
    "infinity": (watched((7, 9, "inf")), NonFiniteError, "must be finite; line 2 has inf"),
    "a negative ratio": (watched((7, 9, 1), (7, 3, -0.5)), RangeError, r"not be negative; line 3 has -0\.5"),
    "a short line": (watched(*SMALL_ROWS) + "7,3\n", ShapeError, "must have 8 columns; line 7 has 2"),
    "an empty line": (
        watched(*SMALL_ROWS) + "\n" + "7,3,1,1,,1,1,1\n",
        InputError,
        "user_id of .* line 7 has no value",
    ),
}


@pytest.mark.parametrize("name", BAD_WATCHED)
@pytest.mark.parametrize("file", ["small_matrix.csv", "big_matrix.csv"])
def test_a_wrong_matrix_is_refused_by_file_and_line(tmp_path, name, file):
    text, error, message = BAD_WATCHED[name]
    path = kuairec_at(tmp_path, "zip in data", KUAIREC_FILES | {file: text})
    with pytest.raises(error, match=message) as caught:
        load_kuairec(path)
    assert file in str(caught.value)
    assert "Zenodo" in str(caught.value)
    assert isinstance(caught.value, InputError)


BAD_CATEGORIES = {
    "code": ('video_id,feat\n3,"[8]"\n9,"__import__(\'os\').getcwd()"\n', DataTypeError, "line 3 has __import__"),
    "words": ('video_id,feat\n3,"[a, b]"\n', DataTypeError, r"such as \[27, 9\]; line 2"),
    "a list not closed": ('video_id,feat\n3,"[1, 2"\n', DataTypeError, "line 2"),
    "an empty list item": ('video_id,feat\n3,"[1,,2]"\n', DataTypeError, "line 2"),
    "a video twice": ("video_id,feat\n3,[1]\n9,[2]\n3,[2]\n", InputError, "each video once; line 4 has 3"),
    "no column": ("video_id,tags\n3,[1]\n", ShapeError, "feat too; it has video_id, tags"),
}


@pytest.mark.parametrize("name", BAD_CATEGORIES)
def test_wrong_categories_are_refused_by_line(tmp_path, name):
    text, error, message = BAD_CATEGORIES[name]
    with pytest.raises(error, match=message):
        load_kuairec(kuairec_at(tmp_path, "folder", KUAIREC_FILES | {"item_categories.csv": text}))


def test_a_missing_or_damaged_kuairec_file_is_named(tmp_path):
    contents = {name: text for name, text in KUAIREC_FILES.items() if name != "item_categories.csv"}
    with pytest.raises(DataFileError, match=r"KuaiRec\.zip does not hold item_categories\.csv\. .*Zenodo.*432 MB"):
        load_kuairec(kuairec_at(tmp_path, "zip", contents))
    with pytest.raises(DataFileError, match=r"small_matrix\.csv is not in .*KuaiRec 2\.0/data/.*KuaiRec\.zip"):
        load_kuairec(unpack(tmp_path / "empty", {"note.txt": ""}))
    large = {"big_matrix.csv": watched(*((k, 3, 0.5) for k in range(2000)))}
    path = pack(tmp_path / "spoilt" / "KuaiRec.zip", KUAIREC_FILES | large, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"1999,3,", b"1998,3,"))
    with pytest.raises(DataFileError, match=r"big_matrix\.csv cannot be read from .*CRC"):
        load_kuairec(path)


def write_part(folder, watched_columns, category_columns):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(watched_columns), folder / "small_matrix_subsample_watch_ratio.parquet")
    pq.write_table(pa.table(category_columns), folder / "kuairec_caption_category.parquet")
    return folder


PART = dict(
    user_id=pa.array([5, 5, 1], pa.int16()), video_id=pa.array([9, 4, 9], pa.int16()), watch_ratio=[1.0, 0.5, 2.0]
)
PATHS = dict(
    video_id=[4, 9, 11],
    first_level_category_id=[8, -124, 1],
    second_level_category_id=[673, -124, 2],
    third_level_category_id=[-124, -124, 3],
)


def test_the_part_of_the_small_matrix_is_read_where_the_whole_is_not_there(tmp_path):
    data = load_kuairec(write_part(tmp_path, PART, PATHS))
    assert data.partial
    assert data.big is None
    assert data.users.tolist() == [1, 5]
    assert data.videos.tolist() == [4, 9]
    assert_array_equal(data.matrix(data.small).toarray(), [[0, 1], [0.5, 1]])
    assert data.categories == [(8, 673), ()]
    unpack(tmp_path, KUAIREC_FILES)
    assert not load_kuairec(tmp_path).partial


def test_a_wrong_part_is_refused_by_file_and_row(tmp_path):
    bad = {
        "row 1 has -0.5": (PART | dict(watch_ratio=[1.0, -0.5, 2.0]), RangeError),
        "row 2 has no value": (PART | dict(watch_ratio=[1.0, 0.5, None]), NonFiniteError),
        "row 0 has nan": (PART | dict(watch_ratio=[np.nan, 0.5, 1.0]), NonFiniteError),
        "column user_id of .* must be integer; it is string": (PART | dict(user_id=list("abc")), DataTypeError),
        "must have columns watch_ratio too; it has user_id, video_id": (
            {name: PART[name] for name in ("user_id", "video_id")},
            ShapeError,
        ),
    }
    for message, (columns, error) in bad.items():
        with pytest.raises(error, match=message):
            load_kuairec(write_part(tmp_path, columns, PATHS))
    (tmp_path / "small_matrix_subsample_watch_ratio.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataFileError, match=r"subsample.*cannot be read as Parquet"):
        load_kuairec(tmp_path)


@needs_real_data
def test_the_real_part_of_kuairec_has_the_published_counts():
    data = load_kuairec(REAL / "kuairec")
    assert data.partial
    assert (len(data.users), len(data.videos), len(data.small)) == (1411, 2519, 117_113)
    assert_array_equal(np.bincount(data.small.user_rows), 83)
    scores = data.matrix(data.small)
    assert_allclose(scores.max(axis=1).toarray(), 1.0)
    assert scores.min() == 0.0
    raw = pq.read_table(REAL / "kuairec" / "small_matrix_subsample_watch_ratio.parquet").to_pylist()
    table = {(row["user_id"], row["video_id"]): row["watch_ratio"] for row in raw}
    for k in range(0, len(data.small), 997):
        pair = data.users[data.small.user_rows[k]], data.videos[data.small.video_rows[k]]
        assert data.small.watch_ratio[k] == table[pair]
    assert {len(path) for path in data.categories} <= {0, 1, 2, 3}
    assert sum(len(path) > 0 for path in data.categories) > 2400
