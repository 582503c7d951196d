"""The errors of a caller's input, shared by all tiers.

Every message names the fault, the place and the remedy. Each also derives from the
built-in exception that a NumPy user would expect, so ``except ValueError`` keeps working.
"""


class SimwarpError(Exception):
    """The base of every error that simwarp raises on purpose."""


class ShapeError(SimwarpError, ValueError):
    """Shapes that do not fit one another, or a dimension that is 0 or too large."""


class DtypeError(SimwarpError, TypeError):
    """An element type that the operation does not take."""


class NotANumberError(SimwarpError, ValueError):
    """A NaN where a sign is needed: a NaN is neither >= 0 nor < 0."""


class FormatError(SimwarpError, ValueError):
    """Packed words, or arrays of a sparse tensor, in another format than the operation takes, or in none."""


class SchemeError(SimwarpError, ValueError):
    """A scheme, layout or option of a name that does not exist."""


class InputFileError(SimwarpError, ValueError):
    """A file that is missing or does not hold an array."""


class CompileError(SimwarpError, RuntimeError):
    """CUDA C++ that does not compile; carries the compiler's log.

    Attributes
    ----------
    log : str
        The compiler's messages.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class MissingExtraError(SimwarpError, ImportError):
    """An optional dependency that is not installed; names the ``pip install`` line."""


class NoGpuError(SimwarpError, RuntimeError):
    """No CUDA device can be used here."""
