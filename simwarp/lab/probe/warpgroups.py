"""Probes of wgmma: the maps of the accumulator and of A in registers.

B, and for the first probe A, lie in shared memory, in the canonical layout without swizzle (PTX ISA 9.0,
section 9.7.15.5.1): core matrices of 8 rows of 16 bytes, with the two of each 32 bytes of k adjacent. An
element's place in memory is known, so the maps are determined completely:

- D: A holds 1 in column 0, or a bit of the row's number; B holds 1 in row 0, or a bit of the column's number.
- A: its elements hold a bit of their own holders' numbers (`simwarp.lab.probe.passes`), and B selects a k
  for each column of D.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.chips.chips import chip_name
from simwarp.fragments import TYPE_BITS, Fragments
from simwarp.fragments.packed import join
from simwarp.lab.probe.finding import Finding, compare, digest
from simwarp.lab.probe.passes import NOWHERE, ONE, Numbers, fill, holders, passes, spelled
from simwarp.lab.probe.ptx import NotExecutedError, declare, load, module, move, register_type, run, vector

_LANES, _ROWS, _K_BYTES = 128, 64, 32
_CORE_ROWS, _CORE_BYTES = 8, 16
_ALONG_K, _ALONG_ROWS = _CORE_ROWS * _CORE_BYTES, _CORE_ROWS * _K_BYTES
"""Bytes from one core matrix to the next, along k and along rows."""


def probe_warpgroup(device: Any, fragments: Fragments) -> Finding:
    """Find the maps of the register operands of wgmma."""
    if f"{chip_name(device.compute_capability)}a" != fragments.target:
        raise NotExecutedError(f"wgmma needs {fragments.target}")
    d = _find_d(device, fragments)
    a = _find_a(device, fragments, d)
    operands = fragments.operands
    return Finding(fragments.opcode, (compare(operands["d"], d), compare(operands["a"], a)), digest(d, a))


def _find_d(device: Any, fragments: Fragments) -> Numbers:
    """The number of the element in each slot of D."""
    _, n, k = fragments.shape
    rows, columns = passes(_ROWS), passes(n)
    a = np.zeros((len(rows) + len(columns), _ROWS, k), np.bool_)
    b = np.zeros((len(a), n, k), np.bool_)
    a[: len(rows), :, 0], b[: len(rows), :, 0] = rows, True
    a[len(rows) :, :, 0], b[len(rows) :, :, 0] = True, columns
    held = _launch(device, fragments, tiles(a, fragments.operands["a"].type), b)
    row, column = (_numbers(part, fragments) for part in (held[: len(rows)], held[len(rows) :]))
    layout = fragments.operands["d"].layout
    found = np.where((row < 0) | (column < 0), np.minimum(row, column), row * n + column)
    return found.astype(np.int32).reshape(layout.lanes, layout.registers, layout.slots)


def _find_a(device: Any, fragments: Fragments, found_d: Numbers) -> Numbers:
    """The number of the element of A in each register slot, given the element numbers of D's slots."""
    _, n, k = fragments.shape
    layout = fragments.operands["a"].layout
    sent = passes(holders(layout))
    together = min(n, k)
    rounds = -(-k // together)
    b = np.zeros((rounds, n, k), np.bool_)
    column = np.arange(k)
    b[*divmod(column, together), column] = True
    registers = fill(layout, fragments.operands["a"].type, np.repeat(sent, rounds, axis=0))
    held = _launch(device, fragments, registers, np.tile(b, (len(sent), 1, 1)))
    came = _numbers(held.reshape(len(sent), rounds, -1), fragments)
    found = np.full(holders(layout), NOWHERE, np.int32)
    place = np.broadcast_to(found_d.ravel(), came.shape)
    picked = place % n + together * np.arange(rounds)[:, None]
    known = (came >= 0) & (place >= 0) & (place % n < together) & (picked < k)
    found[came[known]] = (place // n * k + picked)[known]
    return found.reshape(layout.lanes, layout.registers, layout.slots)


def tiles(elements: npt.NDArray[np.bool_], element_type: str) -> npt.NDArray[np.uint8]:
    """Matrices of ones and zeros in wgmma's shared-memory layout: (…, rows, k) to bytes (…, rows · 32)."""
    bits = TYPE_BITS[element_type]
    word = np.dtype(f"u{max(bits // 8, 1)}").type
    octets = join(elements.astype(word) * word(ONE[element_type]), bits, 8)
    *outer, rows, width = octets.shape
    cores = octets.reshape(*outer, rows // _CORE_ROWS, _CORE_ROWS, width // _CORE_BYTES, _CORE_BYTES)
    return np.ascontiguousarray(np.swapaxes(cores, -3, -2)).reshape(*outer, rows * width)


def _launch(
    device: Any, fragments: Fragments, a: npt.NDArray[Any], b: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Launch wgmma with A as bytes of shared memory or in registers; return D's elements."""
    text = _text(fragments, in_registers=a.ndim == 3)
    kernel = load(device, module(fragments.opcode, device.compute_capability, "left right sums", text))
    tables = a, tiles(b, _type_of_b(fragments))
    return run(device, kernel, (len(b),), fragments.operands["d"].layout, tables)


def _type_of_b(fragments: Fragments) -> str:
    """The type of B, which follows that of A in the opcode."""
    words = fragments.opcode.split(".")
    return words[words.index(fragments.operands["d"].type) + 2]


def _numbers(held: npt.NDArray[Any], fragments: Fragments) -> Numbers:
    return spelled(held, ONE[fragments.operands["d"].type], 0)


def _text(fragments: Fragments, in_registers: bool) -> str:
    """PTX with one warpgroup for each pass: load tiles to shared memory, multiply, store D."""
    a, d, n = fragments.operands["a"], fragments.operands["d"], fragments.shape.n
    left, right = (0 if in_registers else _ROWS * _K_BYTES), n * _K_BYTES
    lines = [
        declare(d),
        declare(a),
        ".reg .pred %done, %accumulate; .reg .b32 %i, %near; .reg .b64 %far, %tiles, %a, %b;",
        f".shared .align 128 .b8 tiles[{left + right}];",
        "mov.u64 %tiles, tiles;",
    ]
    lines += [
        move("ld", a, "%left") if in_registers else _copy("left", left, 0),
        _copy("right", right, left),
        "fence.proxy.async; bar.sync 0;",
        _descriptor("%a", 0),
        _descriptor("%b", left),
        "setp.ne.u32 %accumulate, 0, 0;",
        *(
            f"mov.{register_type(d)} %d{i}, {'0f00000000' if register_type(d) == 'f32' else 0};"
            for i in range(d.layout.registers)
        ),
        "wgmma.fence.sync.aligned;",
        f"{fragments.opcode} {vector(d)}, {vector(a) if in_registers else '%a'}, %b, "
        f"{', '.join(('%accumulate', *_immediates(a.type, in_registers)))};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        move("st", d, "%sums"),
    ]
    return "\n".join(lines)


def _immediates(element_type: str, in_registers: bool) -> tuple[str, ...]:
    """The immediate operands of wgmma for unchanged signs and no transpose."""
    signs = () if element_type in ("b1", "s8", "u8") else ("1", "1")
    transposes = (1 if in_registers else 2) * (element_type in ("f16", "bf16"))
    return (*signs, *("0",) * transposes)


def _copy(name: str, size: int, offset: int) -> str:
    """PTX that copies the pass's tile from global to shared memory, 4 bytes per lane at a time."""
    return f"""shl.b32 %i, %lane, 2;
copy_{name}:
setp.ge.u32 %done, %i, {size}; @%done bra copied_{name};
mad.wide.u32 %far, %pass, {size}, %{name}; cvt.u64.u32 %at, %i; add.u64 %far, %far, %at;
ld.global.b32 %near, [%far]; add.u64 %at, %at, %tiles; st.shared.b32 [%at+{offset}], %near;
add.u32 %i, %i, {_LANES * 4}; bra copy_{name};
copied_{name}:"""


def _descriptor(register: str, offset: int) -> str:
    """PTX that makes the matrix descriptor, without swizzle, of the tile at ``offset`` bytes."""
    constant = (_ALONG_K >> 4) << 16 | (_ALONG_ROWS >> 4) << 32
    return (
        f"add.u64 {register}, %tiles, {offset}; and.b64 {register}, {register}, 0x3ffff; "
        f"shr.u64 {register}, {register}, 4; or.b64 {register}, {register}, {constant:#x};"
    )
