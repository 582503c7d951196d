"""Exceptions for invalid input and failing machines, shared by all tiers.

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
    """Packed words, or arrays of a sparse tensor, that violate their format."""


class SchemeError(SimwarpError, ValueError):
    """An unknown name of a scheme, layout or option."""


class InputFileError(SimwarpError, ValueError):
    """A file that cannot be read or written, or has invalid content."""


class LaunchError(SimwarpError, ValueError):
    """A launch whose geometry or arguments do not fit the kernel or the device."""


class HostMemoryError(LaunchError, MemoryError):
    """A launch whose arrays, blocks or checks need more memory than the host has left."""


class CaptureError(SimwarpError, RuntimeError):
    """A host operation that a capture of launches does not allow, or the use of an unfinished graph."""


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


class MachineError(SimwarpError):
    """An error of a machine: in a program that runs on it, or on one of its devices.

    Parameters
    ----------
    what : str
        What is wrong, and where.
    values : str
        The values that show it.
    advice : str
        What to do about it.
    **fields
        Values of the attributes of its class.
    """

    def __init__(self, what: str, values: str = "", advice: str = "", **fields: object) -> None:
        super().__init__("\n".join(line for line in (what, values, advice) if line))
        for name, value in fields.items():
            setattr(self, name, value)


class TileBoundsError(MachineError, ValueError):
    """A tile that extends beyond its memory, or whose columns overlap."""


class FreedMemoryError(MachineError, ValueError):
    """A second free of memory, or work on memory that is freed."""


class MemoryInUseError(MachineError, RuntimeError):
    """Memory was freed, or an array unpinned, before the host waited for the work that uses it.

    Attributes
    ----------
    operation : str
        An operation that the host has not waited for.
    """

    operation: str = ""


class UnpinnedError(MachineError, ValueError):
    """A copy from or to a host matrix outside all pinned arrays, or an unpin without its pin."""


class DeviceMemoryError(MachineError, MemoryError):
    """An allocation that a device has no room for.

    Attributes
    ----------
    device : int
    asked, budget : int
        Bytes that were asked for, and bytes that are free.
    """

    device: int = -1
    asked: int = 0
    budget: int = 0


class DeviceLostError(MachineError, RuntimeError):
    """A device that has failed: nothing runs on it any more.

    Attributes
    ----------
    device : int
    seconds : float
        When it failed.
    """

    device: int = -1
    seconds: float = 0.0


class CopyError(MachineError, RuntimeError):
    """A copy that failed.

    Attributes
    ----------
    device, stream : int
    kind : str
        "in", "out" or "peer".
    seconds : float
        When it failed.
    """

    device: int = -1
    stream: int = -1
    kind: str = ""
    seconds: float = 0.0


class WorkerDeadlockError(MachineError, RuntimeError):
    """Workers or streams that wait for events that can no longer happen.

    Attributes
    ----------
    waiting : tuple of str
        Who waits for what.
    """

    waiting: tuple[str, ...] = ()
