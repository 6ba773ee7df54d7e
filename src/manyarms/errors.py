"""Every exception that manyarms raises on purpose.

```
ManyarmsError
├── InputError (also a ValueError)     an argument is wrong; the message names it, the first bad row and a remedy
│   ├── ShapeError                     sizes that disagree
│   ├── RangeError                     a number outside its range
│   ├── DataTypeError                  not numbers, or not integers where ids are meant
│   ├── NonFiniteError                 NaN or infinity
│   ├── ActionError                    an action outside 0 ... n_actions - 1
│   ├── PropensityError                a probability outside its range, or rows that do not sum to 1
│   ├── CovarianceError                not symmetric, or not positive semi-definite
│   ├── InfeasibleError                limits that no policy can meet; the message names those in conflict
│   ├── EligibilityError               a row without eligible actions, or ids that are not actions
│   ├── ResultFileError                a file of results of experiments is damaged, or of another version
│   └── DataFileError                  a data file is missing, damaged or not what its owner published
│       └── ModelFileError             a model file is missing, damaged, too new, or could not be written
├── OutputFileError (an OSError)       a file could not be written
├── NumericalError                     finite input led to an overflow; the message says where
├── EngineError                        a cluster cannot be reached, or failed
├── DeviceError                        a GPU is not there, or has too little memory
├── MissingLibraryError (an ImportError) a library that only some calls need is not installed
├── TooLargeError                      the requested array is larger than this library will form
├── UndefinedLiftError                 a relative change against a baseline that may be zero
├── BusyError                          another run of experiments is writing to the same folder
├── StaleRowsError                     rows of results were made from other data or code
└── CellError                          a method of an experiment failed
    └── WorkerError                    a worker process of an experiment died
```
"""

from __future__ import annotations

from typing import Any


class ManyarmsError(Exception):
    """Base class of every exception that manyarms raises on purpose.

    The message is one or two sentences: the argument and its problem, then the remedy.

    Args:
        problem: The problem, as a sentence. Where `argument` is given it is the rest of that sentence, as in "must have
            3 columns; got 4."
        remedy: The remedy in Python, as a sentence of its own.
        argument: The argument that is wrong. The command line prints the flag that sets it instead.
        flag_remedy: The remedy on the command line, where that reads differently from `remedy`.
    """

    def __init__(self, problem: str, remedy: str = "", *, argument: str = "", flag_remedy: str = ""):
        # A value that a message quotes may be written in several lines.
        problem, remedy = (" ".join(text.split("\n")) if "\n" in text else text for text in (problem, remedy))
        super().__init__(" ".join(part for part in (argument, problem, remedy) if part))
        self.argument, self.problem, self.remedy, self.flag_remedy = argument, problem, remedy, flag_remedy

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes; the default would pass the whole message as the problem.
        fields = {"argument": self.argument, "flag_remedy": self.flag_remedy}
        return _rebuild_error, (type(self), self.problem, self.remedy, fields)


def _rebuild_error(kind: type[ManyarmsError], problem: str, remedy: str, fields: dict[str, str]) -> ManyarmsError:
    return kind(problem, remedy, **fields)


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
    """An eligible set is empty, or holds ids that are not actions."""


class InfeasibleError(InputError):
    """No policy can meet all of the given limits."""


class DataFileError(InputError):
    """A data file is missing, damaged or not what its owner published."""


class ModelFileError(DataFileError):
    """A model file is missing, damaged, too new, or could not be written."""


class OutputFileError(ManyarmsError, OSError):
    """A file could not be written, because of a full disk or because something else than a file is there."""


class NumericalError(ManyarmsError, ArithmeticError):
    """Finite input led to an overflow or to a factorisation that failed."""


class EngineError(ManyarmsError):
    """A cluster or a database cannot be reached, is not installed, or failed."""


class DeviceError(ManyarmsError):
    """A GPU is not there, or has too little memory."""


class MissingLibraryError(ManyarmsError, ImportError):
    """A library that this call needs is not installed."""


class TooLargeError(ManyarmsError):
    """The requested array is larger than this library will form."""


class UndefinedLiftError(ManyarmsError):
    """A relative change was asked for against a baseline whose interval contains zero."""


class CellError(ManyarmsError):
    """A method failed in a cell of an experiment."""


class WorkerError(CellError):
    """A worker process of an experiment died."""


class BusyError(ManyarmsError):
    """Another run of experiments is writing to the same folder of results."""


class ResultFileError(InputError):
    """A file of results of experiments is damaged, or of another version."""


class StaleRowsError(ManyarmsError):
    """Rows in a folder of results were made from other data or code than those at hand."""


def without_full_stop(error: object) -> str:
    """Message of another library's error without its full stop, so that it can end a sentence of ours."""
    return str(error).rstrip().removesuffix(".")
