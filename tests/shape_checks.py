"""Shape annotations, checked at run time in the first calls that every test makes of a function.

Later calls of the same function in the same test are not checked: they repeat the first, and checking them all would
take two thirds of the time of all tests.
"""

import functools
import inspect
from collections import Counter

import jaxtyping

FIRST_CALLS = 3

calls = Counter()
"""The number of calls of every function since the test began, by its code."""

check_always = jaxtyping.jaxtyped


def install():
    """Check the annotations of the package from its import on."""
    jaxtyping.jaxtyped = check_first_calls
    jaxtyping.install_import_hook("manyarms", "beartype.beartype")


def check_first_calls(thing=None, *, typechecker):
    """The decorator that the import hook puts on every function and class."""
    if thing is None:
        return functools.partial(check_first_calls, typechecker=typechecker)
    if inspect.isclass(thing):
        if "__init__" in vars(thing) and hasattr(thing, "__dataclass_fields__"):
            thing.__init__ = check_first_calls(thing.__init__, typechecker=typechecker)
        return thing
    if not inspect.isfunction(thing):
        return check_always(thing, typechecker=typechecker)
    if "<locals>" in thing.__qualname__:
        # Made anew by every call of the function around it, and a check takes longer to make than most calls.
        return thing
    code = thing.__code__
    # Made when it is first needed: the annotations of a function that no test calls are not looked at.
    checked = functools.cache(lambda: check_always(thing, typechecker=typechecker))

    @functools.wraps(thing)
    def function(*args, **kwargs):
        calls[code] += 1
        return (checked() if calls[code] <= FIRST_CALLS else thing)(*args, **kwargs)

    return function
