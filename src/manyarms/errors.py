"""Every exception that manyarms raises on purpose.

```
ManyarmsError
├── InputError (also a ValueError)     an argument is wrong; the message names it, the first bad row and a way out
│   ├── ShapeError                     sizes that disagree
│   ├── RangeError                     a number outside its range
│   ├── DataTypeError                  not numbers, or not integers where ids are meant
│   ├── NonFiniteError                 NaN or infinity
│   ├── ActionError                    an action outside 0 ... n_actions - 1
│   ├── PropensityError                a probability outside its range, or rows that do not sum to 1
│   ├── CovarianceError                not symmetric, or not positive semi-definite
│   ├── EligibilityError               a row with nothing to choose from, or ids that are not actions
│   └── DataFileError                  a data file is missing, damaged or not what its owner published
│       └── ModelFileError             a model file is missing, damaged, too new, or could not be written
├── NumericalError                     finite input, yet the arithmetic overflowed; says where
├── EngineError                        a cluster is not there, or gave up
├── MissingLibraryError (an ImportError) a library that only some need is not installed
├── TooLargeError                      an array was asked for that is larger than this library will form
└── UndefinedLiftError                 a relative change against a baseline that may be zero
```
"""


class ManyarmsError(Exception):
    """Base of every deliberate exception of this package."""


class InputError(ManyarmsError, ValueError):
    """An argument is wrong."""


class ShapeError(InputError):
    """Sizes disagree."""


class RangeError(InputError):
    """A number lies outside its range."""


class DataTypeError(InputError):
    """Values are not of a usable type."""


class NonFiniteError(InputError):
    """A value is NaN or infinite."""


class ActionError(InputError):
    """An action lies outside 0 ... n_actions - 1."""


class PropensityError(InputError):
    """A probability lies outside its range, or a distribution does not sum to one."""


class CovarianceError(InputError):
    """A covariance is not symmetric or not positive semi-definite."""


class EligibilityError(InputError):
    """An eligible set is empty, or names what is not an action."""


class DataFileError(InputError):
    """A data file is missing, damaged or not what its owner published.

    Attributes:
        problem: What is wrong.
        way_out: What to do about it, in terms of Python calls; empty when `problem` says it.
    """

    def __init__(self, problem: str, way_out: str = ""):
        super().__init__(f"{problem} {way_out}".rstrip())
        self.problem, self.way_out = problem, way_out


class ModelFileError(DataFileError):
    """A model file is missing, damaged, too new, or could not be written."""


class NumericalError(ManyarmsError, ArithmeticError):
    """Finite input led to an overflow or to a factorisation that failed."""


class EngineError(ManyarmsError):
    """A cluster is not there, is not installed, or gave up."""


class MissingLibraryError(ManyarmsError, ImportError):
    """A library that this call needs, and others do not, is not installed."""


class TooLargeError(ManyarmsError):
    """The array asked for is larger than this library will form."""


class UndefinedLiftError(ManyarmsError):
    """A relative change was asked for against a baseline whose interval contains zero."""


def said(error: object) -> str:
    """The words of somebody else's error, without their full stop, to go on from in a sentence of our own."""
    return str(error).rstrip().removesuffix(".")
