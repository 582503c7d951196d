"""Exceptions for invalid input, shared by all tiers.

Every message names the fault, the place and the remedy. Each class also derives from the built-in exception
that a NumPy user would expect, so ``except ValueError`` works.
"""


class SimwarpError(Exception):
    """Base of all exceptions that simwarp defines."""


class ShapeError(SimwarpError, ValueError):
    """Shapes that do not fit one another, or a dimension that is 0 or too large."""


class DtypeError(SimwarpError, TypeError):
    """A dtype or a type that the operation does not accept."""


class NotANumberError(SimwarpError, ValueError):
    """A NaN or an infinity in an operation that needs a sign or a finite number."""


class RangeError(SimwarpError, ValueError):
    """A number that the integers of an operation cannot hold."""


class FormatError(SimwarpError, ValueError):
    """Packed words or arrays of a sparse tensor that do not have the required format."""


class SchemeError(SimwarpError, ValueError):
    """An unknown name of a scheme, layout or option."""


class InputFileError(SimwarpError, ValueError):
    """A file that cannot be read or written, or has invalid content."""


class LaunchError(SimwarpError, ValueError):
    """A launch whose geometry or arguments do not fit the kernel or the device."""


class CaptureError(SimwarpError, RuntimeError):
    """Work of the host inside a capture of launches, or a graph whose capture has not ended."""


class ExportError(SimwarpError, ValueError):
    """A part of a model of another framework that a network of `reference.bnn` cannot express.

    Attributes
    ----------
    path : str
        The part's path in the model.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class CompileError(SimwarpError, RuntimeError):
    """CUDA C++ that does not compile; ``log`` holds the compiler's messages.

    Attributes
    ----------
    log : str
        The compiler's messages.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class MissingExtraError(SimwarpError, ImportError):
    """An optional package that is not installed; the message has the ``pip install`` command."""


class NoGpuError(SimwarpError, RuntimeError):
    """No CUDA device is available."""
