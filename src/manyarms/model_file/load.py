"""Open a model file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from manyarms._base.checks import Array
from manyarms.errors import ModelFileError
from manyarms.model_file import arrow_file
from manyarms.model_file.kinds import KINDS, MODELS
from manyarms.model_file.save import Saved, check_names

if TYPE_CHECKING:
    from manyarms.core.policy import Policy
    from manyarms.posterior.posterior import Posterior


def load(path: Any) -> Posterior | Policy:
    """The posterior or the policy that `save` wrote to a file.

    Every checksum is verified, and no array is copied. Arrays are read-only views of the file, which stays open as long
    as any of them is in use. Replace the file with `save` or a rename if you like, but do not write into it.

    Args:
        path: The model file.

    Raises:
        ModelFileError: If the file does not exist, is not a model file, is damaged, or comes from a newer manyarms.
    """
    where = arrow_file.as_path(path)
    description, arrays = arrow_file.read(where)
    with arrow_file.explained(where):
        unknown = {entry["kind"] for entry in description["objects"]} - KINDS.keys()
        if unknown:
            raise ModelFileError(
                f"{where} holds a {min(unknown)!r:.80}, which this version of manyarms does not know.",
                "Upgrade manyarms.",
            )
        model = rebuild(description, arrays, KINDS)
        if type(model).saved_as not in MODELS:
            raise ModelFileError(f"{where} holds a part of a model, not a posterior or a policy.")
        return cast("Posterior | Policy", model)


def rebuild(model: Any, arrays: Sequence[Array], kinds: Mapping[str, type[Saved]]) -> Saved:
    """The model that was described.

    Args:
        model: The description.
        arrays: What it refers to.
        kinds: All that may be made, by name.

    Raises:
        UnknownPart: When an object has a part that its kind has not, or not yet.
    """
    made = list[Saved]()
    for entry in model["objects"]:
        kind = kinds[entry["kind"]]
        # Before any is read: what a newer manyarms put there may refer to anything.
        check_names(entry["parts"], kind.part_names(), f"a {entry['kind']!r}")
        parts = {name: _value(value, arrays, made) for name, value in entry["parts"].items()}
        made.append(kind.from_saved(parts))
    return made[-1]


def _value(plain: Any, arrays: Sequence[Array], made: list[Saved]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(one, arrays, made) for one in plain)
    if not isinstance(plain, dict):
        return plain
    ((tag, what),) = plain.items()
    return _READ[tag](what, arrays, made)


_READ: dict[str, Callable[[Any, Sequence[Array], list[Saved]], Any]] = {
    "array": lambda number, arrays, made: arrays[number],
    "bytes": lambda number, arrays, made: arrays[number].tobytes(),
    "object": lambda number, arrays, made: made[number],
    "number": lambda text, arrays, made: float(text),
}
