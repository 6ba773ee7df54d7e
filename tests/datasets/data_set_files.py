"""Small files of data sets, packed and unpacked, and the folder of the real ones."""

import os
import zipfile
from pathlib import Path

import pytest

REAL = Path(os.environ["MANYARMS_DATA"]) if os.environ.get("MANYARMS_DATA") else None
"""Real data files, where there are any. They are never part of this project."""

needs_real_data = pytest.mark.skipif(REAL is None, reason="MANYARMS_DATA is not set")


def pack(path, contents, compression=zipfile.ZIP_DEFLATED):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as packed:
        for name, text in contents.items():
            packed.writestr(name, text)
    return path


def unpack(folder, contents):
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


NAMES = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio\n"


def watched(*rows):
    """The owners' lines; times are missing in some of theirs too."""
    return NAMES + "".join(
        f"{user},{video},100,100,{'2020-07-05 00:08:23.438' if k % 2 else ''},20200705.0,1593878903.438,{ratio}\n"
        for k, (user, video, ratio) in enumerate(rows)
    )


SMALL_ROWS = [(14, 9, 0.5), (14, 3, 20.0), (7, 9, 0.0), (14, 9, 1.5), (14, 9, 4.0)]
BIG_ROWS = [(7, 3, 0.25), (2, 30, 5.0), (2, 3, 1.0), (7, 3, 0.75)]
KUAIREC_FILES = {
    "small_matrix.csv": watched(*SMALL_ROWS),
    "big_matrix.csv": watched(*BIG_ROWS),
    "item_categories.csv": 'video_id,feat\n3,"[27, 9]"\n9,[8]\n4,"[1,2,3]"\n30,[]\n',
}


def kuairec_at(root, layout, contents=KUAIREC_FILES):
    kind, _, folder = layout.partition(" in ")
    placed = {f"{folder}/{name}" if folder else name: text for name, text in contents.items()}
    return unpack(root / "data files", placed) if kind == "folder" else pack(root / "KuaiRec.zip", placed)
