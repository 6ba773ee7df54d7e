"""Draw the files of `manyarms sample-data`: the catalog and the log of a made-up shop.

240 items on six shelves, of which 40 % were never shown; good items were shown more often. The reward is the margin in
euros: zero unless the customer buys. Older customers buy books and plants more often, younger ones the rest. The second
week also has what another recommender would have shown: one of two games. `truth.csv` has the true expected margin of
every item, margin_if_bought / (1 + exp(-appeal - slope (age - 45))).

    python studies/sample_data.py [FOLDER]
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

SHELVES = {"tea": (-1.4, 1.0), "mugs": (-1.2, 2.0), "books": (-0.6, 2.5), "plants": (-1.1, 3.0), "soap": (-1.2, 0.8)}
SHELVES["games"] = (-0.7, 3.5)
"""How readily the items of a shelf are bought, and the margin of one in euros."""
OLDER = ("books", "plants")
WEEKS = {"last-week.csv": 5000, "this-week.csv": 3000}
FOLDER = Path(__file__).parents[1] / "src" / "manyarms" / "datasets" / "sample_files"


def draw(seed: int = 1) -> dict[str, list[dict[str, Any]]]:
    """The rows of every file."""
    rng = np.random.default_rng(seed)
    items = [{"item": f"{shelf}-{k}", "shelf": shelf} for shelf in SHELVES for k in range(40)]
    appeal = np.array([round(SHELVES[row["shelf"]][0] + rng.normal(0, 0.5), 3) for row in items])
    if_bought = np.array([round(SHELVES[row["shelf"]][1] * float(np.exp(rng.normal(0, 0.2))), 2) for row in items])
    slope = np.array([0.03 if row["shelf"] in OLDER else -0.03 for row in items])
    shown = np.flatnonzero(rng.random(len(items)) < 0.6)
    share = np.exp(0.8 * appeal[shown] + rng.normal(size=len(shown)))
    files: dict[str, list[dict[str, Any]]] = {"items.csv": items}
    for name, n in WEEKS.items():
        chosen = rng.choice(shown, n, p=share / share.sum())
        ages, cities = rng.integers(18, 75, n), rng.choice(["Oslo", "Riga", "Turin"], n)
        bought = rng.random(n) < 1 / (1 + np.exp(-appeal[chosen] - slope[chosen] * (ages - 45)))
        columns = zip(ages.tolist(), cities.tolist(), chosen.tolist(), bought.tolist(), strict=True)
        files[name] = [
            dict(age=age, city=city, item=items[a]["item"], margin=float(if_bought[a]) if sold else 0)
            for age, city, a, sold in columns
        ]
    for number, row in enumerate(files["this-week.csv"]):
        row["recommended"] = f"games-{number % 2}"
    truth = zip(items, appeal.tolist(), slope.tolist(), if_bought.tolist(), strict=True)
    files["truth.csv"] = [dict(item=row["item"], appeal=a, slope=s, margin_if_bought=m) for row, a, s, m in truth]
    return files


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in draw().items():
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
