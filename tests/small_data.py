"""Made-up data sets in the formats of their owners, small, for figures that need real ones."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_all(folder: Path, rng: np.random.Generator) -> Path:
    """MovieLens, KuaiRec, Jester and Open Bandit, each in a folder of its own."""
    for name, write in {"ml-1m": movielens, "kuairec": kuairec, "jester": jester, "obd": open_bandit}.items():
        (folder / name).mkdir(parents=True)
        write(folder / name, rng)
    return folder


def movielens(folder: Path, rng: np.random.Generator) -> None:
    genres, n_movies = ("Comedy", "Drama", "War"), 1050
    lines = [f"{m}::Film {m} (1999)::{genres[m % 3]}|{genres[m % 2]}" for m in range(1, n_movies + 1)]
    (folder / "movies.dat").write_text("\n".join(lines), encoding="latin-1")
    rated = [(user, movie) for user in range(1, 61) for movie in np.flatnonzero(rng.random(n_movies) < 0.3) + 1]
    # Every movie has two ratings at least, so that both halves are likely to know it.
    rated += [(user, movie) for user in range(61, 65) for movie in range(1, n_movies + 1)]
    text = "\n".join(f"{user}::{movie}::{rng.integers(1, 6)}::978300760" for user, movie in rated)
    (folder / "ratings.dat").write_text(text, encoding="latin-1")


def kuairec(folder: Path, rng: np.random.Generator) -> None:
    header = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio"

    def rows(users, share):
        return [
            f"{user},{video},100,200,2020-07-05 00:08:23.438,20200705,1593878903.438,{rng.gamma(1.0):.6f}"
            for user in users
            for video in range(40)
            if rng.random() < share
        ]

    for name, users, share in (("small_matrix.csv", range(0, 60, 2), 0.98), ("big_matrix.csv", range(60), 0.4)):
        (folder / name).write_text("\n".join([header, *rows(users, share)]))
    tags = [f'{video},"[{video % 4}, {10 + video % 3}]"' for video in range(40)]
    (folder / "item_categories.csv").write_text("\n".join(["video_id,feat", *tags]))


def jester(folder: Path, rng: np.random.Generator) -> None:
    users, jokes = np.repeat(np.arange(160), 100), np.tile(np.arange(100), 160)
    ratings = np.clip(rng.normal(0, 4, len(users)) + np.sin(users) * np.cos(jokes) * 4, -10, 10)
    pq.write_table(pa.table({"user": users, "joke": jokes, "rating": ratings}), folder / "jester_data_1.parquet")


def open_bandit(folder: Path, rng: np.random.Generator) -> None:
    n_items, n = 6, 400
    items = ["item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3"]
    items += [f"{i},{0.1 * i},{'ab'[i % 2]},{'cd'[i % 2]},{'ef'[i // 3]}" for i in range(n_items)]
    header = ",timestamp,item_id,position,click,propensity_score," + ",".join(f"user_feature_{k}" for k in range(4))
    for policy in ("random", "bts"):
        place = folder / policy / "all"
        place.mkdir(parents=True)
        (place / "item_context.csv").write_text("\n".join(items))
        shown, clicked = rng.integers(n_items, size=n), rng.random(n) < 0.2
        lines = [
            f"{i},2019-11-24 00:00:{i % 60:02d}.000000+00:00,{item},{i % 3 + 1},{click:d},{1 / n_items},a,b,c,d"
            for i, (item, click) in enumerate(zip(shown, clicked, strict=True))
        ]
        (place / "all.csv").write_text("\n".join([header, *lines]))


def open_bandit_parquet(folder: Path, rng: np.random.Generator) -> None:
    """The same as flat Parquet files, with enough clicks to learn from."""
    n_items, n = 12, 600
    items = {"item_id": np.arange(n_items), "item_feature_0": rng.normal(size=n_items)}
    items |= {f"item_feature_{k}": [f"f{k}{i % (k + 2)}" for i in range(n_items)] for k in (1, 2, 3)}
    for policy in ("random", "bts"):
        shown = rng.integers(n_items, size=n)
        seconds = np.sort(rng.integers(0, 7 * 86400, size=n))
        log = {
            "timestamp": [f"2019-11-{24 + s // 86400} {s // 3600 % 24:02d}:00:00.000000+00:00" for s in seconds],
            "item_id": shown,
            "position": rng.integers(1, 4, size=n),
            "click": (rng.random(n) < 0.1 + 0.1 * (shown % 3)).astype(np.int64),
            "propensity_score": np.full(n, 1 / n_items),
            **{f"user_feature_{k}": rng.choice(["a", "b", "c"], n) for k in range(4)},
        }
        pq.write_table(pa.table(log), folder / f"{policy}_all.parquet")
        pq.write_table(pa.table(items), folder / f"{policy}_all_item_context.parquet")
