"""Products of matrices on a device and on the simulator, from registers to registers, word for word.

Every form of ``mma`` and ``wmma.mma`` multiplies random tiles (`tiles_by_chance`): a first chunk that tests
multiply again without a GPU, and many more. The recording has the number of tiles and of those that differed,
SHA-256 digests of the answers, and the answers themselves to tiles made by hand (`tiles_by_hand`).

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
"""Tiles of the first chunk, and of each of the others: multiples of the number of classes."""
CHUNKS = {"floats, 16 x 8": 50, "integers": 6, "others": 5}
"""How many further chunks a form has, by its kind."""
WARPS = 4
"""Warps of a block; each multiplies one tile."""
SHOWN = 5
"""Chunks of a form of whose difference the first element is described."""

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
    """A key of `CHUNKS`."""
    d = fragments_of(opcode).operands["d"]
    if d.type == "s32":
        return "integers"
    return "floats, 16 x 8" if (d.layout.rows, d.layout.columns) == (16, 8) else "others"


@cache
def kernel(opcode: str) -> str:
    """PTX in which every warp multiplies one tile: ``ask(a, b, c, d)``, each [tile][lane][register]."""
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
    """The registers of D, (tiles, 32, registers), that a device answers."""
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
    """The tiles of a chunk, from raw Philox words keyed by seed, form and chunk."""
    return by_chance.tiles(opcode, Draw(SEED, opcode, chunk), CHUNK if chunk else FIRST)


def digest(*arrays: Array) -> str:
    """The SHA-256 of words."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def question(opcode: str) -> str:
    """The SHA-256 of a form's kernel, its first chunk and its tiles made by hand."""
    first, made = drawn(opcode, 0), by_hand.tiles(opcode)
    words = [tiles[name] for tiles in (first, made) for name in "abc"]
    return digest(np.frombuffer(kernel(opcode).encode(), np.uint8), *words)


def check(opcode: str, tiles: Tiles, chip: Array, simulator: Array) -> None:
    """Raise FragmentDifference unless the registers are the chip's; a note has what was multiplied."""
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
    """Every form on both devices, by many processes."""
    opcodes = OPCODES[:: asking.number(1, 40)]
    compared = list(asking.map(compare, [(opcode, asking.small) for opcode in opcodes]))
    rows = {opcode: row for opcode, (row, _, _) in zip(opcodes, compared, strict=True)}
    facts = {
        "seed": SEED,
        **{name: sum(row[name] for row in rows.values()) for name in ("tiles", "mismatches")},
        "forms": rows,
    }
    raw = {opcode: answer for opcode, (_, answer, _) in zip(opcodes, compared, strict=True)}
    differences = [
        f"{opcode}\n{text}" for opcode, (*_, found) in zip(opcodes, compared, strict=True) for text in found
    ]
    return Answers(facts, raw, {opcode: question(opcode) for opcode in opcodes}, differences)


def compare(chip: Any, opcode: str, small: bool) -> tuple[dict[str, Any], Array, list[str]]:
    """A form on both devices: its row, its answers to the tiles made by hand, and the differences."""
    simulator, made = Device(cc=chip.compute_capability), by_hand.tiles(opcode)
    raw = answers(chip, opcode, made)
    words, first, wrong, tiles = hashlib.sha256(), "", 0, 0
    differences: list[str] = []
    for chunk in range(1 if small else CHUNKS[kind_of(opcode)] + 1):
        given = drawn(opcode, chunk)
        expected, got = answers(chip, opcode, given), answers(simulator, opcode, given)
        words.update(expected.astype(expected.dtype.newbyteorder("<")).tobytes())
        first = first or words.hexdigest()
        wrong += int((expected != got).any(axis=(1, 2)).sum())
        tiles += len(expected)
        differences += _difference(f"chunk {chunk}", opcode, given, expected, got)
    differences += _difference("by hand", opcode, made, raw, answers(simulator, opcode, made))
    row = {"tiles": tiles, "mismatches": wrong, "sha256": words.hexdigest(), "first": first}
    return row, raw, differences[:SHOWN]


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


SUBJECTS = [Subject("tiles", "matrix products of 5 million tiles, by digest, and of those made by hand", ask)]
