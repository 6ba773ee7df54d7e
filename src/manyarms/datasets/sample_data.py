"""The sample data that come with the package: a catalog and a log to practise on."""

from __future__ import annotations

from pathlib import Path

from manyarms._base.checks import as_path
from manyarms._base.files import PathLike, check_output_folder, replace_files
from manyarms.errors import InputError, OutputFileError

SAMPLE_FILES = Path(__file__).parent / "sample_files"
"""The folder of the files; studies/sample_data.py draws them."""


def write_sample_data(out: PathLike = ".") -> tuple[Path, ...]:
    """Write the files of a small made-up shop: two weeks of its log, the catalog, and the truth behind them.

    - `items.csv`: 240 items on six shelves. 40 % of them were never shown.
    - `last-week.csv` and `this-week.csv`: 5,000 and 3,000 rounds with the age and city of the customer, the item shown,
      and the margin in euros, zero unless it was bought. The second one also has the column `recommended`, what
      another recommender would have shown.
    - `truth.csv`: the expected margin of each item is margin_if_bought / (1 + exp(-appeal - slope (age - 45))).

    Args:
        out: The folder to write to. It is created if needed.

    Returns:
        The paths of the files.

    Raises:
        InputError: If the folder has a file of one of these names with other content. It is kept.
    """
    folder = as_path("out", out)
    check_output_folder(folder, "there are several files", "remove it")
    contents = {folder / path.name: path.read_bytes() for path in sorted(SAMPLE_FILES.glob("*.csv"))}
    changed = [path for path, content in contents.items() if path.exists() and path.read_bytes() != content]
    if changed:
        raise InputError(f"has a file {changed[0].name} of your own.", "Name another folder.", argument="out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputFileError(f"{folder} could not be created: {problem.strerror}.") from problem
    replace_files(contents)
    return tuple(contents)
