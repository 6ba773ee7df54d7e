"""Load a model file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from manyarms._base.checks import Array
from manyarms.errors import ModelFileError
from manyarms.model_file.arrow_file import UPGRADE, as_path, file_errors, read
from manyarms.model_file.registry import MODELS, PARTS, kind_of
from manyarms.model_file.save import Saved, check_saved_names

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
    file = as_path(path)
    description, arrays = read(file)
    with file_errors(file):
        names = {entry["kind"] for entry in description["objects"]}
        unknown = names - MODELS.keys() - PARTS.keys()
        if unknown:
            problem = f"{file} holds a {min(unknown)!r:.80}, which this version of manyarms does not know."
            raise ModelFileError(problem, UPGRADE)
        model = rebuild(description, arrays, {name: kind_of(name) for name in names})
        if type(model).saved_as not in MODELS:
            raise ModelFileError(f"{file} holds a part of a model, not a posterior or a policy.")
        return cast("Posterior | Policy", model)


def rebuild(description: Any, arrays: Sequence[Array], kinds: Mapping[str, type[Saved]]) -> Saved:
    """Load a model from the description and the arrays that `save.describe` gave, of the given kinds only."""
    objects = list[Saved]()
    for entry in description["objects"]:
        kind = kinds[entry["kind"]]
        # Before any part is read: one written by a newer manyarms may refer to anything.
        check_saved_names(entry["parts"], kind.part_names(), f"a {entry['kind']!r}")
        parts = {name: _value(value, arrays, objects) for name, value in entry["parts"].items()}
        objects.append(kind.from_saved(parts))
    return objects[-1]


def _value(described: Any, arrays: Sequence[Array], objects: list[Saved]) -> Any:
    if isinstance(described, list):
        return tuple(_value(item, arrays, objects) for item in described)
    if not isinstance(described, dict):
        return described
    ((tag, content),) = described.items()
    return _READERS[tag](content, arrays, objects)


_READERS: dict[str, Callable[[Any, Sequence[Array], list[Saved]], Any]] = {
    "array": lambda number, arrays, objects: arrays[number],
    "bytes": lambda number, arrays, objects: arrays[number].tobytes(),
    "object": lambda number, arrays, objects: objects[number],
    "number": lambda text, arrays, objects: float(text),
}
