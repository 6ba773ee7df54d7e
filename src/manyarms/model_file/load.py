"""Load a model file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from manyarms._base.checks import Array
from manyarms.errors import ModelFileError
from manyarms.model_file.arrow_file import UPGRADE, WrongPart, as_model_path, file_errors, read
from manyarms.model_file.part_checks import bytes_array, check_saved_names, once
from manyarms.model_file.registry import MODELS, PARTS, kind_of
from manyarms.model_file.save import Saved

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
    file = as_model_path(path)
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
    reader = _PartReader(arrays)
    for entry in description["objects"]:
        kind = kinds[entry["kind"]]
        # Before any part is read: one written by a newer manyarms may refer to anything.
        check_saved_names(entry["parts"], kind.part_names(), f"a {entry['kind']!r}")
        reader.begin_object()
        parts = {name: reader.value(value) for name, value in entry["parts"].items()}
        kind.check_saved(parts)
        made = kind.from_saved(parts)
        if not made.consistent():
            raise WrongPart(f"the parts of a {entry['kind']!r} do not fit together")
        reader.objects.append(made)
    return reader.objects[-1]


class _PartReader:
    """The parts of objects that are loaded one after the other; each may refer to arrays and to earlier objects.

    A reference takes a few bytes, and what is made of it may take as many as the array has. So the bytes referred to,
    all references together, are limited to a multiple of those that the file stores.
    """

    def __init__(self, arrays: Sequence[Array]):
        self.objects = list[Saved]()
        self._arrays = arrays
        self._sizes = [once(array).nbytes for array in arrays]
        self._own = list[int]()
        self._left = (1 << 20) + MOST_REFERENCES * sum(self._sizes)

    def begin_object(self) -> None:
        self._own.append(0)

    def value(self, described: Any) -> Any:
        if isinstance(described, list):
            return tuple(map(self.value, described))
        if not isinstance(described, dict):
            return described
        ((tag, content),) = described.items()
        if tag == "number" and content in ("inf", "-inf", "nan"):
            return float(content)
        if type(content) is not int or content < 0:
            raise WrongPart("a part is said to be nowhere")
        if tag == "object":
            self._spend(self._own[:-1][content])
            return self.objects[content]
        self._spend(self._sizes[content])
        self._own[-1] += self._sizes[content]
        array = self._arrays[content]
        if tag == "array":
            return array
        if tag == "bytes" and bytes_array(array):
            return array.tobytes()
        raise WrongPart("a part is of no known form")

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise WrongPart("its parts refer to the same arrays again and again")


MOST_REFERENCES = 64
"""How often the objects of a file may refer to its arrays, on average over their bytes."""
