"""The functions that the device runtime provides to kernels: printf, assert, malloc and free.

Source: CUDA C++ Programming Guide, "Formatted output", "Assertion", "Dynamic global memory allocation
and operations"; the PTX names and signatures are those that nvcc emits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simwarp.engine.events import OrderedAccess
from simwarp.engine.schedule.calls import give, passed
from simwarp.engine.undefined.values import check_given, use
from simwarp.faults import (
    AssertionFailed,
    DoubleFree,
    KernelFault,
    MemoryFault,
    OutOfBounds,
    UninitialisedRead,
    UseAfterFree,
)
from simwarp.lanes import WARP_SIZE
from simwarp.program.program import HOST_FUNCTIONS, Step
from simwarp.program.steps import Argument
from simwarp.ptx.spaces import NAMES, WINDOW, WINDOWS

if TYPE_CHECKING:
    from simwarp.engine.state import Chunk
    from simwarp.memory import Allocation, Memory

Words = npt.NDArray[np.uint64]


_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])")
_BITS = {"hh": 8, "h": 16}
_WIDEST, _DIGITS = 2**16 - 1, 20
"""Limits of a format: the largest width or precision, and the digits of a number that are parsed."""


def call(chunk: Chunk, step: Step, name: str) -> None:
    """Run a function of the CUDA runtime, such as ``vprintf``, for the executing lanes."""
    function, call = HOST_FUNCTIONS[name], step.call
    if call is None:
        raise TypeError(f"{step.instruction.text} calls nothing")
    arguments: list[Words] = []
    for argument, size in zip(call.arguments, function.arguments, strict=True):
        arguments.append(passed(chunk, argument, size))
        _check_passed(chunk, argument, size)
    result = _RUN[name](chunk, arguments)
    if result is not None and call.returns:
        give(chunk, call.returns[0], result, function.returns[0])


def _check_passed(chunk: Chunk, argument: Argument, size: int) -> None:
    """Report lanes that pass an undefined value; a register has just been read."""
    if argument.read is not None:
        missing = chunk.undefined_now()
        if missing is not None and (missing & chunk.mask).any():
            use(chunk, missing & chunk.mask, chunk.undefined_from)
        return
    places = (chunk.local_start + chunk.frame + np.uint64(argument.offset)).astype(np.uint64)
    at = np.broadcast_to(places, chunk.mask.shape)[chunk.mask]
    unwritten = chunk.local.unwritten_bits(at, size).any(axis=1)
    if unwritten.any():
        first = int(unwritten.argmax())
        check_given(chunk, _lanes(chunk)[first], chunk.local, int(at[first]), size)


def _lanes(chunk: Chunk) -> list[tuple[int, ...]]:
    """The (warp, lane) indices of the executing lanes."""
    return [(warp, lane) for warp, lane in np.argwhere(chunk.mask).tolist()]


def _number(lane: tuple[int, ...]) -> int:
    """The lane's number in the chunk, from (warp, lane)."""
    return lane[0] * WARP_SIZE + lane[1]


def _byte_reader(chunk: Chunk, lane: tuple[int, ...]) -> Callable[[int, int], bytes]:
    """A function that reads ``size`` bytes at a generic address of one lane."""

    def read(address: int, size: int) -> bytes:
        memory, at = _memory_at(chunk, lane, address)
        allocation = memory.find(at)
        if allocation is None or at + size > allocation.base + allocation.size:
            freed = memory.was_freed(at)
            fault = (UseAfterFree if freed else OutOfBounds)(
                f"printf reads {size} bytes {'that were freed' if freed else 'outside every allocation'}",
                f"address {address:#x}",
                "pass printf pointers to memory that the kernel can read",
            )
            raise chunk.placed(fault, _number(lane))
        return allocation.bytes[at - allocation.base :][:size].tobytes()

    return read


def _memory_at(chunk: Chunk, lane: tuple[int, ...], address: int) -> tuple[Memory, int]:
    """The memory that a lane's generic address lies in, and the address in that memory."""
    space = NAMES.get(address // WINDOW)
    if space == "local":
        return chunk.local, address - WINDOWS["local"] + int(chunk.local_start[lane])
    if space == "const":
        return chunk.launch.constants, address - WINDOWS["const"]
    return chunk.launch.memory, address


def _argument_reader(
    chunk: Chunk, lane: tuple[int, ...], read: Callable[[int, int], bytes], text: str
) -> Callable[[int, int], bytes]:
    """A function that reads the next argument of a format and reports an uninitialised one."""
    wanted = _arguments(text)
    taken = 0

    def argument(address: int, size: int) -> bytes:
        nonlocal taken
        taken += 1
        data = read(address, size)
        memory, at = _memory_at(chunk, lane, address)
        if memory is chunk.local and ("local", at % chunk.local_stride) in chunk.carried:
            check_given(chunk, lane, memory, at, size)  # a store wrote an undefined value there
        elif memory.unwritten_bits(np.array([at], np.uint64), size).any():
            fault = UninitialisedRead(
                f"printf takes argument {taken}, which nothing wrote",
                f"{_short(text)} takes {wanted}",
                "pass printf an argument for each conversion, a * included, each with a value",
                address=address,
                width=size,
            )
            chunk.found(fault, _number(lane))
        return data

    return argument


def _arguments(text: str) -> int:
    """The number of arguments that a printf format string takes."""
    conversions = [match for match in _CONVERSION.finditer(text) if match[5] != "%"]
    return len(conversions) + sum((match[2] == "*") + (match[3] == "*") for match in conversions)


def _short(text: str) -> str:
    """A format for a message: quoted, and cut after 80 characters."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _text(read: Callable[[int, int], bytes], address: int) -> str:
    """The zero-terminated string at an address, read byte by byte with ``read``."""
    if address == 0:
        return "(null)"
    characters = bytearray()
    while (byte := read(address + len(characters), 1)) != b"\0":
        characters += byte
    return characters.decode("utf-8", "replace")


def format_text(
    text: str,
    read: Callable[[int, int], bytes],
    at: int,
    argument: Callable[[int, int], bytes] | None = None,
) -> str:
    """Format like C's printf; arguments are at ``at`` and behind, aligned to their size of 4 or 8 bytes."""
    shown = _short(text)

    def take(size: int) -> bytes:
        nonlocal at
        at = -(-at // size) * size
        at += size
        return (argument or read)(at - size, size)

    def number(text: str | None) -> int | None:
        """Parse a width or precision; for ``*``, take it from the arguments."""
        if text is None:
            return None
        taken = int.from_bytes(take(4), "little", signed=True) if text == "*" else None
        value = int(text[:_DIGITS] or "0") if taken is None else taken
        if abs(value) > _WIDEST:
            raise KernelFault(
                f"printf with a width or a precision above {_WIDEST}",
                f"{shown} has {text[:40] if taken is None else taken}",
                "print fewer characters at once",
            )
        return value

    def convert(match: re.Match[str]) -> str:
        flags, _, _, length, kind = match.groups()
        if kind == "%":
            return "%"
        width, precision = number(match[2]) or 0, number(match[3])
        if width < 0:
            flags, width = flags + "-", -width
        if precision is not None and precision < 0:
            precision = None
        sign, body, zeros = "", "", False
        if kind in "diouxX":
            size = 8 if length in ("l", "ll", "j", "z", "t") else 4
            value = int.from_bytes(take(size), "little", signed=kind in "di")
            sign, body = _integer(_cut(value, _BITS.get(length), kind), kind, flags, precision)
            zeros = precision is None
        elif kind in "fFeEgGaA":
            value = float(np.frombuffer(take(8), np.float64)[0])
            sign, body = _real(value, kind, flags, precision)
            zeros = math.isfinite(value)
        elif kind == "c":
            body = chr(take(4)[0])
        elif kind == "s":
            body = _text(read, int.from_bytes(take(8), "little"))[:precision]
        else:
            address = int.from_bytes(take(8), "little")
            body = hex(address) if address else "(nil)"
        if "-" in flags:
            return (sign + body).ljust(width)
        return sign + body.zfill(width - len(sign)) if zeros and "0" in flags else (sign + body).rjust(width)

    return _CONVERSION.sub(convert, text)


def _cut(value: int, bits: int | None, kind: str) -> int:
    """An integer truncated to the ``bits`` that ``hh`` or ``h`` keeps, sign-extended for %d and %i."""
    if bits is None:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind in "di" and value >> (bits - 1) else value


def _plus(negative: bool, flags: str) -> str:
    """The sign that a number is printed with, by the flags ``+`` and space."""
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _integer(value: int, kind: str, flags: str, precision: int | None) -> tuple[str, str]:
    """The sign or prefix of an integer conversion, and its digits."""
    digits = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(kind, "d"))
    digits = "" if precision == 0 and value == 0 else digits.zfill(precision or 0)
    if kind in "di":
        return _plus(value < 0, flags), digits
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    return ("0" + kind if "#" in flags and kind in "xX" and value else ""), digits


def _real(value: float, kind: str, flags: str, precision: int | None) -> tuple[str, str]:
    """The sign (and ``0x``) of a float as printf converts it, and its digits."""
    sign = _plus(math.copysign(1, value) < 0, flags)
    value = abs(value)
    if kind in "aA" and math.isfinite(value):
        digits = _hexadecimal(value, precision, "#" in flags)
        return (sign + "0x", digits) if kind == "a" else (sign + "0X", digits.upper())
    if not math.isfinite(value):
        name = "nan" if math.isnan(value) else "inf"
        return sign, name.upper() if kind.isupper() else name
    spec = "%" + ("#" if "#" in flags else "") + f".{6 if precision is None else precision}{kind}"
    return sign, spec % value


def _hexadecimal(value: float, precision: int | None, point: bool) -> str:
    """The digits of ``%a`` behind ``0x``, such as ``1.8p+0``."""
    whole, _, exponent = value.hex()[2:].partition("p")
    lead, _, fraction = whole.partition(".")
    fraction = fraction.ljust(13, "0")
    if precision is None:
        fraction = fraction.rstrip("0")
    elif precision < 13:
        unit = 1 << 4 * (13 - precision)
        kept, rest = divmod(int(lead + fraction, 16), unit)
        kept += 2 * rest > unit or (2 * rest == unit and kept & 1)
        lead, fraction = str(kept >> 4 * precision), format(kept, f"0{precision + 1}x")[1:]
    else:
        fraction = fraction.ljust(precision, "0")
    return lead + ("." if fraction or point else "") + fraction + "p" + exponent


def _vprintf(chunk: Chunk, arguments: list[Words]) -> Words:
    """Print each lane's format and return its number of conversions."""
    formats, places = arguments
    result = np.zeros(chunk.mask.shape, np.uint64)
    for lane in _lanes(chunk):
        read = _byte_reader(chunk, lane)
        text = _text(read, int(formats[lane]))
        argument = _argument_reader(chunk, lane, read, text)
        try:
            line = format_text(text, read, int(places[lane]), argument)
        except KernelFault as fault:
            if fault.place.line is None:
                fault = chunk.placed(fault, _number(lane))
            raise fault from None
        chunk.launch.print(line)
        result[lane] = sum(match[5] != "%" for match in _CONVERSION.finditer(text))
    return result


def _assertfail(chunk: Chunk, arguments: list[Words]) -> None:
    """Raise `AssertionFailed` for the first executing lane."""
    lane = _lanes(chunk)[0]
    read = _byte_reader(chunk, lane)
    message, file, line, function, _ = (int(words[lane]) for words in arguments)
    fault = AssertionFailed(
        f"assertion `{_text(read, message)}` failed",
        f"{_text(read, file)}:{line}, {_text(read, function)}",
        "the kernel's own check does not hold: correct the kernel or its inputs",
    )
    raise chunk.placed(fault, _number(lane))


def _malloc(chunk: Chunk, arguments: list[Words]) -> Words:
    """Allocate memory on the device heap for each lane, in lane order."""
    result = np.zeros(chunk.mask.shape, np.uint64)
    with chunk.launch.atomics:
        for lane in _lanes(chunk):
            result[lane] = chunk.launch.heap.allocate(int(arguments[0][lane]))
    return result


def _free(chunk: Chunk, arguments: list[Words]) -> None:
    """Free each lane's allocation on the device heap; a null pointer is ignored."""
    for lane in _lanes(chunk):
        address = int(arguments[0][lane])
        if address:
            _end(chunk, _number(lane), address)
            try:
                with chunk.launch.atomics:
                    chunk.launch.heap.free(address)
            except MemoryFault as fault:
                chunk.found(fault, _number(lane))


def _end(chunk: Chunk, lane: int, address: int) -> None:
    """Report to the checks that a lane frees a heap block, as a write of all its bytes."""
    memory: Memory = chunk.launch.memory
    block = chunk.launch.heap.block(address)
    if block is None:
        return
    width = math.gcd(block.size, 16)
    at = np.arange(block.size // width, dtype=np.uint64) * np.uint64(width) + np.uint64(address)
    lanes = np.full(at.size, lane)
    if chunk.launch.races is not None:
        chunk.launch.races.access(OrderedAccess(chunk, chunk.step, "write", memory, lanes, at, width))
    if chunk.copies is not None and chunk.copies.in_flight:
        chunk.copies.check(chunk, memory, lanes, at, width, "free")


class Heap:
    """The heap of device-side ``malloc``, which lives as long as its device.

    Parameters
    ----------
    memory : Memory
        Global memory.
    limit : int
        Size in bytes; a request beyond it returns a null pointer, as on a GPU.
    """

    def __init__(self, memory: Memory, limit: int) -> None:
        self.memory, self.limit, self.used = memory, limit, 0

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes; returns their address, or 0 if the heap is full."""
        if not 0 < size <= self.limit - self.used:
            return 0
        self.used += size
        return self.memory.allocate(size, f"malloc({size})").base

    def block(self, address: int) -> Allocation | None:
        """The allocation made by `allocate` that begins at an address."""
        allocation = self.memory.find(address)
        return (
            allocation
            if allocation and allocation.base == address and allocation.name.startswith("malloc(")
            else None
        )

    def free(self, address: int) -> None:
        """Free an allocation made by `allocate`, given its first address."""
        allocation = self.block(address)
        if allocation is None:
            raise DoubleFree(
                "free of memory that malloc did not allocate, or that was freed before",
                f"address {address:#x}",
                "free each pointer from malloc once, in a kernel",
                address=address,
                space="global",
            )
        self.used -= allocation.size
        self.memory.free(allocation)


_RUN: dict[str, Callable[[Chunk, list[Words]], Words | None]] = {
    "vprintf": _vprintf,
    "__assertfail": _assertfail,
    "malloc": _malloc,
    "free": _free,
}
"""Host function name → implementation, from arguments to results, (warps, 32) each."""
