"""How much memory a kernel may have: what ptxas refuses beyond, and what each chip gives a launch.

Sources: ptxas 13.0, asked for each limit; CUDA C++ Programming Guide 13.0, table "Technical Specifications
per Compute Capability", for shared and local memory.
"""

from __future__ import annotations

from bisect import bisect_right

from simwarp.faults import PtxSyntaxError

_SHARED = {50: 48, 70: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 120: 99}
"""KiB of shared memory that a launch may ask for, from each compute capability (times ten) on."""
STATIC_SHARED = 48 << 10
"""Bytes of a kernel's own ``.shared`` variables, on every chip."""
CONSTANTS = 64 << 10
"""Bytes of a module's ``.const`` variables."""

LOCAL = 512 << 10
"""Bytes of local memory that a thread can have on every chip, recursion aside."""


def most_shared(cc: tuple[int, int]) -> int:
    """Bytes of static and dynamic shared memory that a block can have on a chip.

    Examples
    --------
    >>> [most_shared(cc) >> 10 for cc in ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))]
    [64, 163, 99, 227, 227, 99]
    """
    capabilities = list(_SHARED)
    at = bisect_right(capabilities, 10 * cc[0] + cc[1]) - 1
    return _SHARED[capabilities[max(at, 0)]] << 10


def most_parameters(version: str, target: int) -> int:
    """Bytes of a kernel's parameters, by the version of the PTX ISA and the architecture.

    Examples
    --------
    >>> most_parameters("8.0", 90), most_parameters("8.1", 90), most_parameters("9.0", 61)
    (4352, 32764, 4352)
    """
    major, _, minor = version.partition(".")
    return 32764 if (int(major), int(minor)) >= (8, 1) and target >= 70 else 4352


def check_size(line: int, what: str, size: int, most: int, advice: str) -> None:
    """Refuse more memory than there may be.

    Raises
    ------
    PtxSyntaxError
        Names the line, the size and the limit.

    Examples
    --------
    >>> check_size(4, "kernel k", 49153, STATIC_SHARED, "use less")
    Traceback (most recent call last):
    ...
    simwarp.faults.PtxSyntaxError: line 4: kernel k has 49153 bytes, 49152 at most
    use less
    """
    if size > most:
        where = f"line {line}: " if line else ""
        raise PtxSyntaxError(f"{where}{what} has {size} bytes, {most} at most\n{advice}")
