"""Are decisions right where the model is wrong? Policies on real data sets, whose true gains are known.

    python studies/decisions.py --sets Corel16k001 jester digits --logs 3
    python studies/decisions.py --sets digits --likelihood bernoulli --rounds 1000 5000
    python studies/decisions.py --sets kuairec movielens open-bandit
    python studies/decisions.py --refresh docs/decisions.md

MANYARMS_DATA is a folder with multilabel/, jester/, kuairec/, ml-1m/ and obd/. Every item of a set has a known reward
for every action that a policy may choose, so the value of a policy is a mean over items. No reward is
linear in the contexts: every model here is wrong. A log is written by one of four logging policies. Its first half A
teaches the prior and the candidates, its second half B evaluates them: by the bare posterior given A, by `Checked`, and
by estimators with importance weights. A method ships a candidate when it gives the gain over the logging policy a
high enough probability to be positive: 97.5 %, but 90 % for `Checked` with known propensities, as `ma.decide` does.

The Open Bandit Dataset has no such truth: see decision_open_bandit.py.

There is one Parquet file per log in the folder `--out`. A log whose file is there is not run again. The learned models
are kept in its folder models/. To measure another version of an estimator, delete the Parquet files but not the models.
The tables are printed as Markdown, as docs/decisions.md shows them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import decision_open_bandit as open_bandit
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from decision_methods import answer, gains_over_log, noise_of, without_propensities
from decision_tables import draw, hindsight, refresh, summarise, table, table_of_clicks, targets, thresholds
from decision_worlds import LOGGING, World, given_policies, load_world, logging_policy, write_log

import manyarms as ma
from manyarms._base.arrow import parquet_bytes
from manyarms._base.files import replace_files
from manyarms._base.rng import split

DEVELOPMENT = ("science", "rcv1subset1_top944")
"""The sets on which the constants of `Checked` were chosen."""
REPORT = ("Corel16k001", "jester", "digits")
"""The sets on which nothing was chosen."""
OPEN_BANDIT = "open-bandit"
"""The set without a truth for every action: see decision_open_bandit.py."""
ROUNDS = (1000, 5000, 20_000)

Row = dict[str, Any]


def learned_policies(posterior: ma.RewardPosterior, world: World) -> dict[str, ma.Policy]:
    """Policies that follow the model."""
    expected = np.ma.masked_invalid(world.allowed(posterior.expected_reward(world.contexts)))
    temperature = max(float((expected.max(axis=1) - expected.mean(axis=1)).mean()), 1e-9) / 4
    return {
        "greedy": ma.Greedy(posterior),
        "softmax": ma.Softmax(posterior, temperature),
        "epsilon-greedy": ma.EpsilonGreedy(ma.Greedy(posterior), 0.1),
    }


def kept(file: Path, learn: Callable[[], ma.RewardPosterior]) -> ma.RewardPosterior:
    """A learned model from its file, which is written first if it is not there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        learn().save(file)
    return cast(ma.RewardPosterior, ma.load(file))


def run_log(
    world: World, kind: str, n: int, likelihood: str, propensities: bool, rng: np.random.Generator, file: Path
) -> list[Row]:
    """One log: a row per candidate and method. The model learned from its first half is kept in a file."""
    log_rng, candidate_rng = split(rng, "log", "candidates")
    logging = logging_policy(world, kind)
    logs, items = write_log(world, logging, n, log_rng)
    half_a, half_b, items_b = logs.take(np.arange(n // 2)), logs.take(np.arange(n // 2, n)), items[n // 2 :]
    if not propensities:
        half_b = without_propensities(half_b)
    prior = ma.priors.from_categories(world.categories, dim=world.contexts.shape[1])
    posterior = kept(file, lambda: ma.learn_prior(half_a, prior, noise_of(likelihood, half_a)).posterior)
    eligible = world.eligible(items_b)
    current, rows, gains = world.value(logging), list[Row](), gains_over_log(posterior, half_b, eligible)
    given = given_policies(world, candidate_rng)
    candidates = {
        **learned_policies(posterior, world),
        **{k: ma.TablePolicy(v[items_b]) for k, v in given.items()},
    }
    everyone = world.eligible(np.arange(len(world.contexts)))
    for name, policy in candidates.items():
        shares = given[name] if name in given else policy.probabilities(world.contexts, eligible=everyone)
        truth = world.value(shares)
        facts = {"candidate": name, "true_value": truth, "true_gain": truth - current}
        for method, gain in gains.items():
            rows.append({**facts, "method": method, **answer(gain, policy)})
            value = rows[-1]["gain"] + float(half_b.rewards.mean())
            if method == "posterior":  # its own value does not contain the mean logged reward
                value = posterior.value(policy, half_b.contexts, eligible=eligible).value
            rows[-1]["value"] = value
    return rows


def run(
    sets: Sequence[str],
    out: Path,
    *,
    data: Path | None = None,
    rounds: Sequence[int] | None = None,
    logging: Sequence[str] = LOGGING,
    n_logs: int = 3,
    likelihoods: Sequence[str] = ("gaussian",),
    propensities: bool = True,
    seed: int = 0,
) -> list[Row]:
    """Run the logs that are not in the folder yet, and return the rows of all that were asked for."""
    known = "known" if propensities else "estimated"
    rows = list[Row]()
    for name in sets:
        if name == OPEN_BANDIT:
            rows += run_open_bandit(out, data, rounds or open_bandit.ROUNDS, n_logs, likelihoods, propensities, seed)
            continue
        world = load_world(name, data)
        for n, likelihood, kind, number in product(rounds or ROUNDS, likelihoods, logging, range(n_logs)):
            facts = {
                "set": name, "likelihood": likelihood, "propensities": known, "logging": kind, "rounds": n,
                "log": number, "seed": seed,
            }  # fmt: skip
            rows += finished(out, facts, lambda *at: run_log(world, kind, n, likelihood, propensities, *at))  # noqa: B023
    return rows


def run_open_bandit(
    out: Path,
    data: Path | None,
    rounds: Sequence[int],
    n_logs: int,
    likelihoods: Sequence[str],
    propensities: bool,
    seed: int,
) -> list[Row]:
    """The rows of the Open Bandit Dataset, for the campaigns that are in the folder obd/ of `data`."""
    if data is None:
        raise SystemExit(f"{OPEN_BANDIT} needs MANYARMS_DATA, a folder with obd/.")
    known, rows = "known" if propensities else "estimated", list[Row]()
    for likelihood, cell in product(likelihoods, open_bandit.cells(rounds, n_logs)):
        if open_bandit.has_campaign(data / "obd", cell["campaign"]):
            facts = {"set": OPEN_BANDIT, "likelihood": likelihood, "propensities": known, **cell, "seed": seed}
            which = (cell["campaign"], cell["logging"], cell["rounds"], likelihood, propensities)
            rows += finished(out, facts, lambda rng, _: open_bandit.run_log(data / "obd", *which, rng))  # noqa: B023
    return rows


def finished(out: Path, facts: Row, run_one: Callable[[np.random.Generator, Path], list[Row]]) -> list[Row]:
    """The rows of one log, from its file, which is written first if it is not there."""
    key = "-".join(str(fact) for fact in facts.values())
    file = out / f"{key}.parquet"
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        new = run_one(np.random.default_rng(zlib.crc32(key.encode())), out / "models" / f"{key}.zip")
        replace_files({file: parquet_bytes(pa.Table.from_pylist([{**facts, **row} for row in new]))})
        print(key, file=sys.stderr)
    return pq.read_table(file).to_pylist()


def arguments() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(REPORT))
    parser.add_argument(
        "--rounds", type=int, nargs="+", help="log sizes (default: 1000 5000 20000; open-bandit: 5000 10000)"
    )
    parser.add_argument("--logs", type=int, default=3, help="logs per set, size, likelihood and logging policy")
    parser.add_argument("--likelihood", nargs="+", choices=["gaussian", "bernoulli"], default=["gaussian"])
    parser.add_argument("--without-propensities", action="store_true", help="estimate the logging policy from the log")
    parser.add_argument("--by", choices=["rounds", "set", "logging", "candidate"], default="rounds")
    parser.add_argument(
        "--table",
        nargs="+",
        choices=["methods", "targets", "hindsight", "thresholds"],
        default=["methods", "targets"],
    )
    parser.add_argument("--figure", type=Path, help="also draw coverage and power by rounds as an SVG file")
    parser.add_argument(
        "--refresh", type=Path, metavar="PAGE", help="run the commands of a page again and replace its tables"
    )
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "manyarms-decisions")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def markdown(args: argparse.Namespace) -> Iterator[str]:
    """The tables that were asked for, as lines of Markdown; the figure is drawn on the way."""
    data = os.environ.get("MANYARMS_DATA")
    rows = run(
        args.sets,
        args.out,
        data=Path(data) if data else None,
        rounds=args.rounds,
        n_logs=args.logs,
        likelihoods=args.likelihood,
        propensities=not args.without_propensities,
        seed=args.seed,
    )
    clicks = [row for row in rows if row["set"] == OPEN_BANDIT]
    rest = [row for row in rows if row["set"] != OPEN_BANDIT]
    tables = list[Iterator[str]]()
    for likelihood in args.likelihood:
        chosen, chosen_clicks = ([row for row in part if row["likelihood"] == likelihood] for part in (rest, clicks))
        summary = summarise(chosen, args.by) if chosen else []
        if chosen:
            makers = {
                "methods": (table, summary), "targets": (targets, summary), "hindsight": (hindsight, chosen),
                "thresholds": (thresholds, chosen),
            }  # fmt: skip
            tables += [makers[kind][0](makers[kind][1], args.by) for kind in args.table]
            if args.figure:
                draw(summarise(chosen), args.figure)
        if chosen_clicks:
            tables.append(table_of_clicks(open_bandit.summarise_clicks(chosen_clicks)))
    for number, lines in enumerate(tables):
        yield from ([""] if number else [])
        yield from lines


def main() -> None:
    args = arguments().parse_args()
    if args.refresh is None:
        print("\n".join(markdown(args)))
    else:
        refresh(args.refresh, lambda words: markdown(arguments().parse_args([*words, "--out", str(args.out)])))


if __name__ == "__main__":
    main()
