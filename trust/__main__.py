"""The command `python -m trust`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from trust.campaign import ROOT, Journal, code_of, is_finished, run_check
from trust.check import Check, Outcome
from trust.page import page
from trust.results import Result, read_results, replaced, write_results
from trust.scorecard import CHECKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trust", description="Run the trust campaign.")
    parser.add_argument("--list", action="store_true", help="list the checks and run none")
    parser.add_argument("--only", nargs="+", metavar="CHECK", choices=[check.name for check in CHECKS])
    parser.add_argument("--share", type=float, default=1.0, help="the share of the cases to run (1)")
    parser.add_argument("--finished", action="store_true", help="summarise the cases that have finished and run none")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--journal", type=Path, default=ROOT / "trust-journal", help="the folder of finished cases")
    parser.add_argument("--page", type=Path, help="keep the results, and write the page of all of them to this file")
    args = parser.parse_args()
    chosen = [check for check in CHECKS if not args.only or check.name in args.only]
    if args.list:
        for check in chosen:
            print(f"{check.name:28} {check.cases:7,} cases   {check.claim} ({check.threshold})")
        return 0
    holds = True
    for check in chosen:
        if args.finished:
            outcome, journal, n_cases = _summarise_finished(check, args.journal)
        else:
            n_cases = check.shortened(args.share)
            outcome, journal = run_check(check, n_cases, args.journal, args.processes, _progress)
        if outcome is None:
            continue
        holds &= outcome.holds
        print(f"{'holds' if outcome.holds else 'FAILS':6} {check.name:28} {outcome.measured}  ({check.threshold})")
        for note in outcome.notes:
            print(f"         {note}")
        if args.page:
            # After every check, so that an interrupted campaign leaves the page of what it finished.
            _publish(check.name, Result.of_cases(outcome, n_cases, journal, _commit()), args.page)
    return 0 if holds else 1


def _publish(name: str, result: Result, path: Path) -> None:
    """Keep a result, and write the page of all results that there are."""
    results = replaced(read_results(), {name: result})
    write_results({check.name: results[check.name] for check in CHECKS if check.name in results})
    path.write_text(page(CHECKS, results))


def _summarise_finished(check: Check, folder: Path) -> tuple[Outcome | None, Journal, int]:
    """The outcome of the cases that have finished, if they are enough; the journal, and their number."""
    journal = Journal(folder, check.name, code_of(check))
    rows = [journal.rows[case] for case in range(check.cases) if is_finished(check, journal, case)]
    return check.summarise(rows) if len(rows) >= check.shortest else None, journal, len(rows)


def _commit() -> str:
    """The commit that was measured, and whether files differ from it."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(
        [*git, "diff", "--quiet", "HEAD", "--", "src", "trust", ":!trust/results.json"], check=False
    ).returncode
    return commit.stdout.strip() + (", with changes" if changed else "") if commit.returncode == 0 else ""


def _progress(text: str) -> None:
    print(text, file=sys.stderr, end="\r" if sys.stderr.isatty() else "\n")


if __name__ == "__main__":
    raise SystemExit(main())
