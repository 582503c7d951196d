"""Operands as closures: readers and writers of registers, with every name resolved.

They run for each operand of each executed step, so they are written for few Python calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from simwarp.ptx.rows import DTYPES, storage
from simwarp.ptx.syntax import Immediate


class Symbols(Protocol):
    """The part of a launch that operands use: the addresses of the module's variables."""

    @property
    def symbols(self) -> Mapping[str, int]:
        """Name of a variable → its address in memory."""
        ...


class Registers(Protocol):
    """The part of a chunk that operands use; `simwarp.engine.state` describes the members."""

    registers: list[Any]
    undefined: Any
    part_written: int

    @property
    def partial(self) -> Mapping[int, Any]:
        """Register slot → the lanes where it is defined, for registers undefined in some lane."""
        ...

    @property
    def alone(self) -> bool:
        """Whether a written value may replace the whole register."""
        ...

    @property
    def frame(self) -> Any:
        """Start of the current function's stack frame in the thread's local memory."""
        ...

    @property
    def launch(self) -> Symbols:
        """The launch that the chunk of blocks belongs to."""
        ...

    def special(self, name: str, /) -> Any:
        """The value of a special register, such as "%tid.x", in the lanes of the chunk."""

    def write(self, slot: int, value: Any, /) -> None:
        """Write the register in a slot, in the executing lanes only."""

    def check_defined(self, slot: int, dtype: np.dtype[Any], /) -> Any:
        """Read a register; report a fault if it is undefined in an executing lane."""

    def follow(self, slot: int, dtype: np.dtype[Any], /) -> Any:
        """Read a register; where it is undefined, the current step's result becomes undefined."""

    def has_no_value(self, lanes: Any, /) -> None:
        """Make the current step's result undefined in these lanes."""

    def undefined_now(self) -> Any:
        """Lanes that read an undefined operand in the current step."""

    def split_undefined(self, bits: int, count: int, /) -> None:
        """Split the undefined bits of the current step's result into ``count`` results of ``bits`` bits."""


Read: TypeAlias = Callable[[Registers], Any]
Write: TypeAlias = Callable[[Registers, Any], None]
Compute: TypeAlias = Callable[[Registers], None]


def register_reader(
    slot: int, declared: np.dtype[Any], wanted: np.dtype[Any], negated: bool, follows: bool = False
) -> Read:
    """A closure that reads a register, stored as ``declared``, as a value of type ``wanted``.

    A register may be wider than the operand (``st.u8`` from a ``.b16``): its low bits are read. An undefined
    register is a fault or, with ``follows``, makes the step's result undefined.
    """

    def checked(chunk: Registers) -> Any:
        value = chunk.registers[slot]
        if value is None or slot in chunk.partial:
            value = chunk.check_defined(slot, declared)
        return value

    def followed(chunk: Registers) -> Any:
        value = chunk.registers[slot]
        if value is None or slot in chunk.partial:
            value = chunk.follow(slot, declared)
        return value

    read = followed if follows else checked

    if negated:
        return lambda chunk: np.logical_not(read(chunk))
    if declared == wanted:
        return read
    if declared.itemsize == wanted.itemsize:
        return lambda chunk: read(chunk).view(wanted)
    if wanted.kind == "f":  # the parameter's low bits are the float: no conversion
        return lambda chunk: read(chunk).astype(f"u{wanted.itemsize}").view(wanted)
    return lambda chunk: read(chunk).astype(wanted)


def register_writer(slot: int, declared: np.dtype[Any]) -> Write:
    """A closure that writes a value to a register stored as ``declared``.

    In a wider register the value is extended by zeros or, if signed, by its sign.
    """

    def write(chunk: Registers, value: Any) -> None:
        if value.dtype is not declared and value.dtype != declared:
            if value.dtype.itemsize != declared.itemsize:
                value = value.astype(f"{value.dtype.kind}{declared.itemsize}")
            value = value.view(declared)
        if chunk.alone and chunk.undefined is None and slot not in chunk.partial:
            chunk.registers[slot] = value
        else:
            chunk.write(slot, value)

    return write


def computation(
    function: Callable[..., Any], sources: Sequence[Read], destinations: Sequence[Write | None], results: int
) -> Compute:
    """A closure that computes a step: it reads the sources, calls the function and writes the results."""
    write = destinations[0] if destinations else None
    if results == 1 and write is not None and len(sources) == 1:
        (a,) = sources
        return lambda chunk: write(chunk, function(a(chunk)))
    if results == 1 and write is not None and len(sources) == 2:
        a, b = sources
        return lambda chunk: write(chunk, function(a(chunk), b(chunk)))
    if results == 1 and write is not None and len(sources) == 3:
        a, b, c = sources
        return lambda chunk: write(chunk, function(a(chunk), b(chunk), c(chunk)))

    def compute(chunk: Registers) -> None:
        values = function(*[read(chunk) for read in sources])
        for put, value in zip(destinations, (values,) if results == 1 else values, strict=False):
            if put is not None:
                put(chunk, value)

    return compute


def computation_with_gaps(
    function: Callable[..., Any],
    unspecified: Callable[..., Any],
    sources: Sequence[Read],
    destinations: Sequence[Write | None],
) -> Compute:
    """`computation` for one result, which is undefined in the lanes that ``unspecified`` returns."""
    (write,) = destinations

    def compute(chunk: Registers) -> None:
        values = [read(chunk) for read in sources]
        lanes = unspecified(*values)
        if lanes.any():
            chunk.has_no_value(lanes)
        if write is not None:
            write(chunk, function(*values))

    return compute


def careful_computation(
    function: Callable[..., Any],
    ignores: Callable[..., Sequence[Any]],
    sources: Sequence[Read],
    destinations: Sequence[Write | None],
    results: int,
) -> Compute:
    """`computation`, where ``ignores`` returns per operand the lanes whose result does not depend on it."""

    def compute(chunk: Registers) -> None:
        values: list[Any] = []
        missing: list[Any] = []
        for read in sources:
            values.append(read(chunk))
            missing.append(None if chunk.undefined is None else chunk.undefined_now())
            chunk.undefined = None
        if any(lanes is not None for lanes in missing):
            chunk.undefined = _decisive(missing, ignores(*values))
        result = function(*values)
        for put, value in zip(destinations, (result,) if results == 1 else result, strict=False):
            if put is not None:
                put(chunk, value)

    return compute


def _decisive(missing: Sequence[Any], ignored: Sequence[Any]) -> Any:
    """The lanes whose result depends on an undefined operand; None if there are none."""
    lanes = [m for m in missing if m is not None]
    one = np.sum(lanes, axis=0) == 1
    result = np.logical_or.reduce(
        [m & ~(one & i) for m, i in zip(missing, ignored, strict=False) if m is not None]
    )
    return result if result.any() else None


def constant_of(operand: Immediate, kind: str) -> Any:
    """A literal as a value of PTX type ``kind``: an integer is truncated, a float literal gives its bits."""
    dtype = DTYPES[kind]
    if dtype.kind == "b":
        return np.bool_(operand.value != 0)
    value, size = operand.value, dtype.itemsize
    # a literal of the other float width is rounded, not truncated
    if operand.float_bits not in (0, size * 8):
        given = operand.float_bits // 8
        with np.errstate(all="ignore"):
            rounded = np.dtype(f"f{size}").type(np.dtype(f"u{given}").type(value).view(f"f{given}"))
        value = int(rounded.view(f"u{size}"))
    bits = value & ((1 << size * 8) - 1)
    return np.dtype(f"u{size}").type(bits).view(dtype)


def pack(parts: Sequence[Read], bits: int, kind: str) -> Read:
    """``mov.b64 d, {low, high}``: a closure that reads several registers as one word."""
    word = storage(kind)

    def read(chunk: Registers) -> Any:
        value = word.type(0)
        for i, part in enumerate(parts):
            value = value | (part(chunk).astype(word) << word.type(i * bits))
        return value

    return read


def unpack(parts: Sequence[Write | None], bits: int, chunk: Registers, value: Any) -> None:
    """``mov.b64 {low, high}, a``: split a word into pieces of ``bits`` bits, one per register."""
    if chunk.undefined is not None:
        chunk.split_undefined(bits, len(parts))
    for i, part in enumerate(parts):
        chunk.part_written = i
        if part is not None:
            part(chunk, (value >> value.dtype.type(i * bits)).astype(f"u{bits // 8}"))


def write_each(parts: Sequence[Write | None], chunk: Registers, values: Sequence[Any]) -> None:
    """Write the elements of a vector, each to its own register."""
    for i, (part, value) in enumerate(zip(parts, values, strict=True)):
        chunk.part_written = i
        if part is not None:
            part(chunk, value)
