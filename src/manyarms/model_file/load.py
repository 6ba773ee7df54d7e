"""Open a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from manyarms.errors import ModelFileError
from manyarms.model_file import container
from manyarms.model_file.kinds import KINDS, MODELS
from manyarms.model_file.saved import rebuild

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
    where = container.as_path(path)
    description, arrays = container.read(where)
    with container.explained(where):
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
