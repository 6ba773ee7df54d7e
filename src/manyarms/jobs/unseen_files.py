"""What a model has not seen yet of some files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path

from manyarms.core.fingerprint import Fingerprint
from manyarms.errors import InputError
from manyarms.logs.file_source import FileSource
from manyarms.posterior import RewardPosterior


@dataclass(frozen=True)
class Unseen:
    """Files of which a model has seen equally much.

    Attributes:
        source: The files.
        after: It has their rounds up to this time; None for none of them.
    """

    source: FileSource
    after: datetime | None


def unseen(posterior: RewardPosterior, source: FileSource) -> Iterator[Unseen]:
    """The files of a source by how much of them is new to a posterior; one that is not new at all is refused.

    A file is known by its content, wherever it lies. Of one whose young rounds were left out by a maturity, those
    rounds are new; it is known by its path too, as it may be written anew when their rewards come in.
    """
    known = {key: one for one in posterior.learned_from for key in (one.origin, one.path) if key is not None}

    def until(file: Path, one: Fingerprint) -> str | None:
        key = one.origin if one.origin in known else one.path
        if key not in known:
            return None
        moment = known[key].until
        if moment is None:
            raise InputError(
                f"the model has seen {file} already: its rounds would count twice. Name new "
                "files only, or count them again with --allow-repeats."
            )
        return moment

    bounds = {file: until(file, one) for file, one in zip(source.files, source.fingerprints, strict=True)}
    ordered = sorted(bounds, key=lambda file: bounds[file] or "")
    for moment, files in groupby(ordered, key=bounds.__getitem__):
        yield Unseen(source.only(list(files)), None if moment is None else datetime.fromisoformat(moment))
