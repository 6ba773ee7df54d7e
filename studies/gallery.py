"""Draw the charts of the demo's report as SVG, for the docs.

python studies/gallery.py docs/report
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import manyarms as ma
from manyarms.cli.demo_files import shop_files
from manyarms.cli.demo_results import evaluate_shop
from manyarms.datasets.shop import Shop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    output = parser.parse_args().folder
    log = Shop(n_rounds=40_000).draw(np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in shop_files(log).items():
            (Path(folder) / name).write_bytes(content)
        result = evaluate_shop(Path(folder), log.environment)
    for path in ma.write_report(result.decision, output, format="svg"):
        print(path)


if __name__ == "__main__":
    main()
