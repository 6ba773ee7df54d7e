"""`manyarms reproduce`: the figures of the paper, with a verdict on each of its claims."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyarms.cli.flags import figure_names
from manyarms.cli.terminal import INTERRUPTED, cell_bar, fail, one_line_errors
from manyarms.errors import DataFileError, InputError

if TYPE_CHECKING:
    from manyarms.experiments.figure import Figure, Size
    from manyarms.experiments.reproduction import Reproduction


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIGURE...", help="Names of figures; --list shows them.", autocompletion=figure_names),
    ] = None,
    list_figures: Annotated[bool, typer.Option("--list", help="List every figure with its claims, and stop.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Run every figure.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="About one minute per figure on 2 cores (the default).")
    ] = False,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="The full size: at least 50 instances; about two hours for --all on 2 cores."),
    ] = False,
    instances: Annotated[int | None, typer.Option(min=2, help="Number of instances per problem.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for result rows and figures.")] = Path("reproduction"),
    page: Annotated[
        Path | None, typer.Option(help="Where to write the page of results (default: in the --out folder).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with ml-1m, kuairec, jester, obd (default: the folder of downloads).", envvar="MANYARMS_DATA"
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
        typer.Option(help="Discard the rows of this method or problem and compute them again. May be repeated."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="With --all: at the end, delete rows that no figure needs at this size.")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of processes (default: one per core).")] = None,
) -> None:
    """Run the experiments of the paper, with a verdict on each of its claims.

    Every finished cell is saved at once. After a stop or a crash, the same
    command continues where it was. A run with --paper reuses the results of
    --quick.
    """
    with one_line_errors():
        from manyarms.cli.print_figures import print_list  # noqa: PLC0415
        from manyarms.experiments.reproduction import Reproduction, download_data, figures  # noqa: PLC0415

        known = figures(None if data is None else str(data))
        if list_figures:
            print_list(list(known.values()))
            return
        chosen = _choose(names or [], everything, known)
        if prune and not everything:
            raise InputError("needs --all; otherwise the rows of other figures would be lost.", argument="prune")
        path = _page_path(out, page)
        work = Reproduction(out, _size(quick, paper, instances), tuple(method or ()), tuple(redo or ()), workers)
        if download:
            download_data((figure.data for figure in chosen if figure.data is not None), data)
        missing = _run_all(chosen, work)
        shown = [figure for figure in chosen if figure.name not in missing]
        if shown:
            command = _command("--all" if everything else " ".join(f.name for f in chosen), work.size, method or [])
            work.write_page(shown, path, command, everything=everything)
            typer.echo(f"Rows, figures and page: {out}, {path}")
        if missing:
            reasons = "".join(f"\n  {name}: {reason}" for name, reason in missing.items())
            fail(f"not run because data is missing: {', '.join(missing)}.{reasons}")
        if prune:
            typer.echo(f"Rows deleted: {work.prune(chosen):,}")
        sys.stdout.flush()


def _page_path(out: Path, page: Path | None) -> Path:
    """The path of the page. Its folder is made now, so that a run of hours does not fail at the end."""
    if page is None:
        return out / "reproduction.md"
    if page.is_dir():
        raise InputError(f"must name a file; {page} is a folder.", argument="page")
    if page.parent.exists() and not page.parent.is_dir():
        raise InputError(f"must lie in a folder; {page.parent} is a file.", argument="page")
    page.parent.mkdir(parents=True, exist_ok=True)
    return page


def _command(figures: str, size: Size, methods: list[str]) -> str:
    """The command that makes the page again. It names files without their folders, which are private."""
    own = "".join(f" --method {shlex.quote(place.rpartition('/')[2])}" for place in methods)
    return f"manyarms reproduce {figures} {size.flags}{own}"


def _choose(names: list[str], everything: bool, known: dict[str, Figure]) -> list[Figure]:
    from manyarms.experiments.methods import check_names  # noqa: PLC0415

    check_names(names, known, "figure")
    if everything:
        return list(known.values())
    if not names:
        raise InputError("no figure was named.", "Name one, or pass --all. `manyarms reproduce --list` shows them.")
    return [known[name] for name in dict.fromkeys(names)]


def _size(quick: bool, paper: bool, instances: int | None) -> Size:
    from manyarms.experiments.figure import PAPER_SIZE, QUICK  # noqa: PLC0415

    if quick and paper:
        raise InputError("--quick and --paper cannot be used together.", "Pass one of them.")
    size = PAPER_SIZE if paper else QUICK
    if instances is None:
        return size
    return replace(size, instances=instances, slow_instances=min(instances, size.slow_instances), exact=True)


def _run_all(chosen: list[Figure], work: Reproduction) -> dict[str, str]:
    """Run figure after figure. Figures without data are skipped if there are others, and returned with the reason."""
    from manyarms.cli.print_figures import data_error_line, print_figure  # noqa: PLC0415

    missing: dict[str, str] = {}
    for number, figure in enumerate(chosen, start=1):
        try:
            with cell_bar(f"{figure.name} ({number} of {len(chosen)})") as bar:
                work.run(figure, bar.progress, bar.on_interrupt)
            work.draw(figure)
            print_figure(figure, work)
        except DataFileError as reason:
            if len(chosen) == 1:
                fail(data_error_line(reason, figure.data))
            missing[figure.name] = data_error_line(reason, figure.data)
        except KeyboardInterrupt:
            typer.echo("Stopped. Finished cells are kept; run the same command again to continue.", err=True)
            raise typer.Exit(INTERRUPTED) from None
    return missing
