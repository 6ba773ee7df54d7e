"""`manyarms reproduce`: the figures of the paper, with a verdict on each of its claims."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from manyarms._base.files import check_output, refuse_inputs
from manyarms.cli.terminal import fail, one_line_errors, say
from manyarms.errors import InputError


def _figure_names(incomplete: str) -> list[tuple[str, str]]:
    """Shell completion of the names of figures for `manyarms reproduce`, with their titles."""
    from manyarms.experiments.reproduction import figures  # noqa: PLC0415  slow to import

    return [(name, figure.title) for name, figure in figures().items() if name.startswith(incomplete)]


def reproduce_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIGURE...", help="Figures to run; --list shows them.", autocompletion=_figure_names),
    ] = None,
    list_figures: Annotated[bool, typer.Option("--list", help="List every figure with its claims, and exit.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Run every figure.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run at a small size (default): about 15 minutes for --all on 2 cores.")
    ] = False,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="Run at full size: 50 random instances of most problems, and 20 instances of the largest problems. "
            "--all takes about five hours on 2 cores.",
        ),
    ] = False,
    instances: Annotated[int | None, typer.Option(min=2, help="Number of random instances of each problem.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for saved results and figures.")] = Path("reproduction"),
    page: Annotated[
        Path | None, typer.Option(help="Where to write the results page (default: in the --out folder).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the data sets ml-1m, kuairec, jester and obd (default: the download folder).",
            envvar="MANYARMS_DATA",
        ),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download missing data from the original sources.")
    ] = False,
    method: Annotated[
        list[str] | None, typer.Option(help="Add your own method, given as file.py:Class. May be repeated.")
    ] = None,
    redo: Annotated[
        list[str] | None,
        typer.Option(
            help="Discard the saved results of this method or problem and compute them again. May be repeated."
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="With --all: at the end, delete saved results that no figure needs at this size."),
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes (default: one per core).")] = None,
    rows_only: Annotated[
        bool, typer.Option("--rows-only", help="Compute nothing: draw figures and write the page from saved results.")
    ] = False,
) -> None:
    """Run the experiments of the paper behind this library, and check its claims.

    The paper is Aouali et al., AISTATS 2025. Each result is saved as soon as it
    is finished. After an interruption or a crash, the same command continues
    where it left off. A run with --paper reuses the results of --quick.
    """
    with one_line_errors():
        from manyarms.cli.reproduce_figures import choose_figures, choose_size, print_figures, reproduce_all  # noqa: PLC0415
        from manyarms.experiments.reproduction import Reproduction, download_data, figures  # noqa: PLC0415

        known = figures(None if data is None else str(data))
        if list_figures:
            print_figures(known.values())
            return
        chosen = choose_figures(names or [], everything, known)
        if prune and not everything:
            raise InputError("needs --all; otherwise the rows of other figures would be lost.", argument="prune")
        path = _page_path(out, page, method or [])
        size, specs = choose_size(quick, paper, instances), method or []
        work = Reproduction(out, size, specs, redo or [], workers)
        if download:
            download_data(chosen, data)
        missing = reproduce_all(chosen, work, compute=not rows_only)
        shown = [figure for figure in chosen if figure.name not in missing]
        if shown:
            named = "--all" if everything else " ".join(figure.name for figure in chosen)
            # The page names files without their folders, which are private.
            own = "".join(f" --method {shlex.quote(spec.rpartition('/')[2])}" for spec in specs)
            command = f"manyarms reproduce {named} {size.flags}{own}" + " --rows-only" * rows_only
            work.write_page(shown, path, command, everything=everything)
            say(f"Rows, figures and page: {out}, {path}")
        if missing:
            reasons = "".join(f"\n  {name}: {reason}" for name, reason in missing.items())
            fail(f"not run because data is missing: {', '.join(missing)}.{reasons}")
        if prune:
            say(f"Rows deleted: {work.prune(chosen):,}")
        sys.stdout.flush()


def _page_path(out: Path, page: Path | None, methods: list[str]) -> Path:
    """The path of the page. Its folder is made now, so that a run of hours does not fail at the end."""
    if page is None:
        return out / "reproduction.md"
    if page.parent.exists() and not page.parent.is_dir():
        raise InputError(f"must lie in a folder; {page.parent} is a file.", argument="page")
    page.parent.mkdir(parents=True, exist_ok=True)
    check_output(page, "page")
    refuse_inputs(page, [Path(spec.rpartition(":")[0]) for spec in methods], "page")
    return page
