"""The cost of each stage of a fit on a cluster, measured here one stage at a time: the numbers behind docs/scale.md.

python benchmarks/make_logs.py big --rounds 20000000 --dim 16 --actions 100000
python benchmarks/cluster_stages.py big --actions 100000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from out_of_core import CATEGORIES, stream_of

import manyarms as ma
from manyarms.engines.engine import Finding, PieceWork
from manyarms.likelihoods.collect_statistics import CollectStatistics
from manyarms.linalg.threads import stay_on_one_core
from manyarms.logs.row_reader import DroppedRows
from manyarms.model_file.arrow_file import from_bytes, to_bytes
from manyarms.model_file.load import rebuild
from manyarms.model_file.save import describe
from manyarms.posterior.sharded_posterior import latent_evidence


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of some work, and its CPU seconds."""
    start = time.process_time()
    return work(), time.process_time() - start


def main() -> None:
    """Measure pieces of two sizes, their way between machines, the merge, and a shard's message about ψ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--actions", type=int, default=100_000)
    args = parser.parse_args()
    stay_on_one_core()
    stream = stream_of(args.folder, args.actions)
    task = CollectStatistics(ma.Gaussian(1.0), args.actions, stream.dim)
    work = PieceWork(task, stream.reader)
    kinds = {kind.saved_as: kind for kind in (Finding, DroppedRows, *task.kinds)}
    for pieces in (40, 5):
        some = stream.source.pieces(pieces)[:3]
        findings, look = timed(lambda: [work(piece) for piece in some])  # noqa: B023  called at once
        rows = sum(finding.found.statistics.n_rounds for finding in findings)
        payloads, pack = timed(lambda: [to_bytes(*describe(finding)) for finding in findings])  # noqa: B023
        back, unpack = timed(lambda: [rebuild(*from_bytes(payload), kinds) for payload in payloads])  # noqa: B023
        size = sum(map(len, payloads)) / 1e6
        together, merge = timed(lambda: work.merged(back))  # noqa: B023
        print(f"pieces of {rows / len(some):,.0f} rounds: {1e6 * look / rows:.3f} µs per round to read and sum,")
        print(
            f"  {size / len(some):,.0f} MB each, {1e3 * pack / size:.2f} ms per MB to pack, {1e3 * unpack / size:.2f}"
        )
        print(
            f"  to unpack, {1e3 * merge / size:.2f} to merge; merged {len(to_bytes(*describe(together))) / 1e6:,.0f} MB"
        )
    prior = ma.priors.from_categories(np.arange(args.actions) % CATEGORIES, dim=stream.dim)
    message, latent = timed(lambda: latent_evidence(prior, 1.0, together.found))
    print(f"per-action stage: {1e6 * latent / args.actions:.1f} µs per action; the driver gets")
    print(f"  {(message.gram.nbytes + message.score.nbytes) / 1e3:,.0f} kB per shard")


if __name__ == "__main__":
    main()
