"""cuDNN 9 through ctypes: handles, descriptors of its graph API, and its statuses.

The graph API rather than the older calls (cudnnConvolutionForward): padding may differ on opposite sides,
sizes and strides have 64 bits, and an engine says beforehand what memory it needs and how it rounds. Bias
and activation are a kernel of ours (pointwise.cu): an engine that fuses them with a convolution of float32
without TF32 does not exist, and cuDNN's older calls read and write all numbers twice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from gpu.cuda_machine.cublas import RoutineError

HANDLE, DATA_TYPE, INT64, FLOAT, POINTER, MODE, HEURISTIC, NOTE, DESCRIPTOR = 0, 1, 3, 4, 6, 7, 8, 11, 15
"""Types of attributes, as cudnn_graph.h numbers them."""
_C_TYPES: dict[int, Any] = {
    HANDLE: ctypes.c_void_p,
    DATA_TYPE: ctypes.c_int,
    INT64: ctypes.c_int64,
    FLOAT: ctypes.c_float,
    POINTER: ctypes.c_void_p,
    MODE: ctypes.c_int,
    HEURISTIC: ctypes.c_int,
    NOTE: ctypes.c_int,
    DESCRIPTOR: ctypes.c_void_p,
}
_SIGNATURES = {
    "cudnnCreate": "p",
    "cudnnDestroy": "p",
    "cudnnSetStream": "pp",
    "cudnnBackendCreateDescriptor": "ip",
    "cudnnBackendDestroyDescriptor": "p",
    "cudnnBackendSetAttribute": "piilp",
    "cudnnBackendGetAttribute": "piilpp",
    "cudnnBackendFinalize": "p",
    "cudnnBackendExecute": "ppp",
}
"""The arguments of functions: i for enumerations, l for counts, p for pointers."""
_LETTERS: dict[str, Any] = {
    "i": ctypes.c_int,
    "l": ctypes.c_int64,
    "p": ctypes.c_void_p,
}


class Cudnn:
    """The functions of cuDNN that are used; ``version`` is e.g. 91900."""

    def __init__(self, library: Any) -> None:
        self._functions: dict[str, Any] = {}
        for name, letters in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = [_LETTERS[letter] for letter in letters], ctypes.c_int
            self._functions[name] = function
        self._text = library.cudnnGetErrorString
        self._text.argtypes, self._text.restype = [ctypes.c_int], ctypes.c_char_p
        version = library.cudnnGetVersion
        version.argtypes, version.restype = [], ctypes.c_size_t
        self.version = int(version())

    def create(self, device: int) -> int:
        """Create a cuDNN handle in the current context."""
        handle = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(handle), device=device)
        return handle.value or 0

    def destroy(self, handle: int, device: int) -> None:
        """Destroy a cuDNN handle."""
        self.call("cudnnDestroy", handle, device=device)

    def call(self, name: str, *args: Any, device: int = -1) -> None:
        """Call a cuDNN function by name; raise `RoutineError` if it returns an error."""
        if status := self._functions[name](*args):
            text = self._text(status)
            reason = text.decode() if isinstance(text, bytes) else str(status)
            raise RoutineError(
                f"{name} of device {device} failed",
                f"cuDNN returned {reason}",
                "no later work is queued; if memory is short, pass a smaller memory_budget",
                routine=name,
                status=reason,
                device=device,
            )


class Descriptors:
    """Descriptors of cuDNN's graph API, destroyed together."""

    def __init__(self, cudnn: Cudnn) -> None:
        self._cudnn = cudnn
        self._made: list[int] = []

    def make(self, kind: int, attributes: Mapping[int, tuple[int, Sequence[Any]]]) -> int:
        """Create a descriptor; ``attributes`` maps the number of each attribute to its type and values."""
        made = self.blank(kind)
        for number, (type_, values) in attributes.items():
            packed = packed_values(type_, values)
            self._cudnn.call("cudnnBackendSetAttribute", made, number, type_, len(values), packed)
        self._cudnn.call("cudnnBackendFinalize", made)
        return made

    def blank(self, kind: int) -> int:
        """Create a cuDNN descriptor without attributes."""
        made = ctypes.c_void_p()
        self._cudnn.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(made))
        self._made.append(made.value or 0)
        return self._made[-1]

    def values(self, descriptor: int, number: int, type_: int, most: int) -> list[Any]:
        """Read at most ``most`` values of a cuDNN descriptor's attribute."""
        count, array = ctypes.c_int64(), (_C_TYPES[type_] * most)()
        self._cudnn.call(
            "cudnnBackendGetAttribute", descriptor, number, type_, most, ctypes.byref(count), array
        )
        return list(array[: min(count.value, most)])

    def descriptors(self, descriptor: int, number: int, kind: int, most: int) -> list[int]:
        """At most ``most`` descriptors that are values of an attribute."""
        blanks = [self.blank(kind) for _ in range(most)]
        count, array = ctypes.c_int64(), packed_values(DESCRIPTOR, blanks)
        self._cudnn.call(
            "cudnnBackendGetAttribute", descriptor, number, DESCRIPTOR, most, ctypes.byref(count), array
        )
        return blanks[: min(count.value, most)]

    def close(self) -> None:
        """Destroy all descriptors, the last one first."""
        while self._made:
            self._cudnn.call("cudnnBackendDestroyDescriptor", self._made.pop())


def packed_values(type_: int, values: Sequence[Any]) -> Any:
    """Values of an attribute as a C array.

    >>> list(packed_values(INT64, [1, 2**40]))
    [1, 1099511627776]
    """
    return (_C_TYPES[type_] * len(values))(*values)
