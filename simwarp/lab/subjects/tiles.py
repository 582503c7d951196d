"""Comparison of matrix products in registers between a device and the simulator, word for word.

Every form of ``mma`` and ``wmma.mma`` multiplies random tiles (`tiles_by_chance`): a first chunk, which tests
replay without a GPU, and many more. The recording has the numbers of tiles and of differences, the SHA-256
digests of the results, and the results themselves for handmade tiles (`tiles_by_hand`).

>>> kind_of("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")
'integers'
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from simwarp.device.device import Device
from simwarp.fragments import all_opcodes, fragments_of
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.lab.subjects import tiles_by_chance as by_chance
from simwarp.lab.subjects import tiles_by_hand as by_hand
from simwarp.testing.fragments import FragmentDifference, check_fragment
from simwarp.verify.draw import Draw

SEED = 6
FIRST, CHUNK = 96, 2016
"""The number of tiles in the first chunk and in each other chunk: multiples of the number of classes."""
CHUNKS = {"floats, 16 x 8": 50, "integers": 6, "others": 5}
"""By kind of form, the number of chunks after the first."""
WARPS = 4
"""The number of warps in a block; each multiplies one tile."""
SHOWN = 5
"""The largest number of differences that are described for one form."""

Array = npt.NDArray[Any]
Tiles = dict[str, Array]


def _forms() -> Iterator[str]:
    for opcode in all_opcodes():
        if opcode.startswith("wmma.mma") and opcode.endswith("f64"):
            yield from (opcode.replace(".m8n8k4", f".m8n8k4.{mode}") for mode in ("rn", "rz", "rm", "rp"))
        elif opcode.startswith(("mma.sync", "wmma.mma")):
            yield opcode


OPCODES = tuple(_forms())


def kind_of(opcode: str) -> str:
    """The kind of an opcode: a key of `CHUNKS`."""
    d = fragments_of(opcode).operands["d"]
    if d.type == "s32":
        return "integers"
    return "floats, 16 x 8" if (d.layout.rows, d.layout.columns) == (16, 8) else "others"


@cache
def kernel(opcode: str) -> str:
    """PTX of the kernel ``ask(a, b, c, d)`` on arrays [tile][lane][register]: a warp multiplies a tile."""
    layouts = {name: operand.layout for name, operand in fragments_of(opcode).operands.items()}
    vectors = {n: "{" + ", ".join(f"%{n}{i}" for i in range(x.registers)) + "}" for n, x in layouts.items()}
    lines = [
        ".version 8.7\n.target sm_90\n.address_size 64",
        f".visible .entry ask({', '.join(f'.param .u64 {name}' for name in 'abcd')}) {{",
        ".reg .b32 %thread, %block; .reg .b64 %at;",
        "mov.u32 %block, %ctaid.x; mov.u32 %thread, %tid.x;",
        f"mad.lo.u32 %thread, %block, {32 * WARPS}, %thread;",
    ]
    for name in "abcd":
        bits, count = layouts[name].register_bits, layouts[name].registers
        lines += [
            f".reg .b{bits} %{name}<{count}>; .reg .b64 %{name}_at;",
            f"ld.param.u64 %{name}_at, [{name}]; cvta.to.global.u64 %{name}_at, %{name}_at;",
            f"mul.wide.u32 %at, %thread, {count * bits // 8}; add.u64 %{name}_at, %{name}_at, %at;",
        ]
        cells = [(f"%{name}{i}", f"[%{name}_at+{i * bits // 8}]") for i in range(count)]
        if name == "d":
            lines.append(f"{opcode} {', '.join(vectors[n] for n in 'dabc')};")
            lines += [f"st.global.b{bits} {address}, {register};" for register, address in cells]
        else:
            lines += [f"ld.global.b{bits} {register}, {address};" for register, address in cells]
    return "\n".join([*lines, "ret; }", ""])


def answers(device: Any, opcode: str, tiles: Tiles) -> Array:
    """Multiply tiles on a device; return the registers of D, (tiles, 32, registers)."""
    operands = fragments_of(opcode).operands
    count, layout = len(tiles["c"]), operands["d"].layout
    at = np.arange(-(-count // WARPS) * WARPS) % count
    given = [device.upload(operands[name].layout.pack(tiles[name][at])) for name in "abc"]
    given.append(device.upload(np.zeros((at.size, 32, layout.registers), f"u{layout.register_bits // 8}")))
    device.load(kernel(opcode)).kernel("ask")((at.size // WARPS, 1, 1), (32 * WARPS, 1, 1), *given)
    registers = given[-1].download()[:count]
    for array in given:
        array.free()
    return registers


def drawn(opcode: str, chunk: int) -> Tiles:
    """The random tiles of a chunk, drawn from Philox words keyed by seed, opcode and chunk."""
    return by_chance.tiles(opcode, Draw(SEED, opcode, chunk), CHUNK if chunk else FIRST)


def digest(*arrays: Array) -> str:
    """The SHA-256 of arrays of words, in hexadecimal."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def question(opcode: str) -> str:
    """The SHA-256 of a form's kernel, its first chunk of tiles and its handmade tiles."""
    first, made = drawn(opcode, 0), by_hand.tiles(opcode)
    words = [tiles[name] for tiles in (first, made) for name in "abc"]
    return digest(np.frombuffer(kernel(opcode).encode(), np.uint8), *words)


def check(opcode: str, tiles: Tiles, chip: Array, simulator: Array) -> None:
    """Raise FragmentDifference, with the factors in a note, if the simulator's registers differ."""
    try:
        check_fragment(opcode, "d", simulator, fragments_of(opcode).operands["d"].layout.unpack(chip))
    except FragmentDifference as found:
        (tile,), place = found.warp, (found.matrix,) if tiles["a"].ndim == 4 else ()
        a, b, c = (tiles[name][(tile, *place)] for name in "abc")
        found.add_note(
            f"a {_spelled(a[found.row])}\nb {_spelled(b[:, found.column])}\n"
            f"c {_spelled(c[found.row, found.column])}"
        )
        raise


def _spelled(words: Any) -> str:
    return " ".join(f"{int(word):#x}" for word in np.ravel(words))


def ask(asking: Asking) -> Answers:
    """Compare every form on the device and the simulator, in parallel processes."""
    opcodes = OPCODES[:: asking.number(1, 40)]
    asked = asking.map(compare, [(opcode, asking.small) for opcode in opcodes])
    compared = dict(zip(opcodes, asked, strict=True))
    rows = {opcode: row for opcode, (row, _, _) in compared.items()}
    totals = {name: sum(row[name] for row in rows.values()) for name in ("tiles", "mismatches")}
    raw = {opcode: answer for opcode, (_, answer, _) in compared.items()}
    differences = [f"{opcode}\n{text}" for opcode, (*_, found) in compared.items() for text in found]
    questions = {opcode: question(opcode) for opcode in opcodes}
    return Answers({"seed": SEED, **totals, "forms": rows}, raw, questions, differences)


def compare(chip: Any, opcode: str, small: bool) -> tuple[dict[str, Any], Array, list[str]]:
    """Compare a form on both devices: facts to record, the results of handmade tiles, and differences."""
    simulator, made = Device(cc=chip.compute_capability), by_hand.tiles(opcode)
    raw = answers(chip, opcode, made)
    chunks, wrong = list[Array](), 0
    differences: list[str] = []
    for chunk in range(1 if small else CHUNKS[kind_of(opcode)] + 1):
        given = drawn(opcode, chunk)
        expected, got = answers(chip, opcode, given), answers(simulator, opcode, given)
        chunks.append(expected)
        wrong += int((expected != got).any(axis=(1, 2)).sum())
        differences += _difference(f"chunk {chunk}", opcode, given, expected, got)
    differences += _difference("by hand", opcode, made, raw, answers(simulator, opcode, made))
    row = {"tiles": sum(map(len, chunks)), "mismatches": wrong}
    return row | {"sha256": digest(*chunks), "first": digest(chunks[0])}, raw, differences[:SHOWN]


def _difference(where: str, opcode: str, tiles: Tiles, chip: Array, simulator: Array) -> list[str]:
    try:
        check(opcode, tiles, chip, simulator)
    except FragmentDifference as found:
        name = ""
        if where != "by hand":
            classes = tuple(by_chance.classes_of(opcode))
            name = f", {classes[found.warp[0] % len(classes)]}"
        return [f"{where}{name}: {found}\n" + "\n".join(found.__notes__)]
    return []


SUBJECTS = [
    Subject("tiles", "matrix products of 5 million random tiles, by digest, and of handmade tiles", ask)
]
