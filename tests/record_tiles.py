"""Products of matrices on a GPU and on the simulator, from registers to registers, word for word.

    python tests/record_tiles.py --out tests/golden          (on a GPU; ``--only m16n8k16`` for some forms)

Every form of ``mma`` and ``wmma.mma`` multiplies tiles by chance (`tiles_by_chance.py`): a first chunk that
``tests/replay/test_tiles.py`` does again without a GPU, and many more. ``tiles.json`` keeps how many tiles
there were, how many differed, and SHA-256 digests of the chip's answers; ``tiles.npz`` keeps the answers
themselves to tiles made by hand (`tiles_by_hand.py`). What differs is printed, and written to
``tiles-differences.txt``.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import multiprocessing
import runpy
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import simwarp
from reference.files import write_whole
from simwarp.fragments import all_opcodes, fragments_of
from simwarp.testing.fragments import FragmentDifference, check_fragment
from simwarp.verify.draw import Draw


def _part(name: str) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name(f"tiles_{name}.py"))))


by_chance, by_hand = _part("by_chance"), _part("by_hand")

SEED = 6
FIRST, CHUNK = 96, 2016
"""Tiles of the first chunk, and of each of the others: multiples of the number of classes."""
CHUNKS = {"floats, 16 x 8": 50, "integers": 6, "others": 5}
"""How many further chunks a form has, by its kind."""
WARPS = 4
"""Warps of a block; each multiplies one tile."""
SHOWN = 5
"""Chunks of a form of whose difference the first element is described."""


def _forms() -> Iterator[str]:
    for opcode in all_opcodes():
        if opcode.startswith("wmma.mma") and opcode.endswith("f64"):
            yield from (opcode.replace(".m8n8k4", f".m8n8k4.{mode}") for mode in ("rn", "rz", "rm", "rp"))
        elif opcode.startswith(("mma.sync", "wmma.mma")):
            yield opcode


OPCODES = tuple(_forms())


def kind_of(opcode: str) -> str:
    """What decides how many tiles a form multiplies: a key of `CHUNKS`.

    Examples
    --------
    >>> kind_of("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")
    'integers'
    """
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


def answers(device: Any, opcode: str, tiles: dict[str, np.ndarray]) -> np.ndarray:
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


def drawn(opcode: str, chunk: int) -> dict[str, np.ndarray]:
    """The tiles of a chunk, from raw Philox words keyed by seed, form and chunk."""
    return by_chance.tiles(opcode, Draw(SEED, opcode, chunk), CHUNK if chunk else FIRST)


def digest(*arrays: np.ndarray) -> str:
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


def check(opcode: str, tiles: dict[str, np.ndarray], chip: np.ndarray, simulator: np.ndarray) -> None:
    """Assert that the simulator's registers are the chip's.

    Raises
    ------
    FragmentDifference
        Names operand D, lane, register, element, and both words; a note has what was multiplied.
    """
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


# ------------------------------------------------------------------------------------------ recording


@cache
def devices() -> tuple[Any, Any]:
    """The chip and the simulator of this process."""
    import gpu

    chip = gpu.CudaDevice()
    return chip, simwarp.Device(cc=chip.compute_capability)


def compare(opcode: str) -> tuple[dict[str, Any], np.ndarray, list[str]]:
    """A form on both devices: what ``tiles.json`` and ``tiles.npz`` keep of it, and what differs."""
    chip, simulator = devices()
    made = by_hand.tiles(opcode)
    raw = answers(chip, opcode, made)
    words, first, wrong, tiles, told = hashlib.sha256(), "", 0, 0, []
    for chunk in range(CHUNKS[kind_of(opcode)] + 1):
        given = drawn(opcode, chunk)
        expected, got = answers(chip, opcode, given), answers(simulator, opcode, given)
        words.update(expected.astype(expected.dtype.newbyteorder("<")).tobytes())
        first = first or words.hexdigest()
        wrong += int((expected != got).any(axis=(1, 2)).sum())
        tiles += len(expected)
        told += _told(f"chunk {chunk}", opcode, given, expected, got)
    told += _told("by hand", opcode, made, raw, answers(simulator, opcode, made))
    row = {"tiles": tiles, "mismatches": wrong, "sha256": words.hexdigest(), "first": first}
    return row | {"question": question(opcode)}, raw, told


def _told(where: str, opcode: str, tiles: dict[str, np.ndarray], chip: Any, simulator: Any) -> list[str]:
    try:
        check(opcode, tiles, chip, simulator)
    except FragmentDifference as found:
        name = ""
        if where != "by hand":
            classes = tuple(by_chance.classes_of(opcode))
            name = f", {classes[found.warp[0] % len(classes)]}"
        return [f"{where}{name}: {found}\n" + "\n".join(found.__notes__)]
    return []


def record(opcodes: tuple[str, ...], processes: int) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """All forms on both devices: rows, answers to tiles made by hand, differences."""
    rows, raw, told = {}, {}, []
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    largest_first = sorted(opcodes, key=lambda o: -CHUNKS[kind_of(o)] * fragments_of(o).shape.k)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn) as pool, Progress(*columns) as progress:
        task = progress.add_task("forms", total=len(opcodes))
        asked = {pool.submit(compare, opcode): opcode for opcode in largest_first}
        for done in as_completed(asked):
            opcode = asked[done]
            rows[opcode], raw[opcode], differences = done.result()
            told += differences[:SHOWN]
            progress.advance(task)
            for line in differences[:1]:
                progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
    return {o: rows[o] for o in opcodes}, {o: raw[o] for o in opcodes}, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="forms that contain this; writes no golden"
    )
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    chip, _ = devices()
    rows, raw, told = record(tuple(o for o in OPCODES if options.only in o), options.processes)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tiles-differences.txt").write_text("\n\n".join(told))
    total, wrong = (sum(row[key] for row in rows.values()) for key in ("tiles", "mismatches"))
    sys.stdout.write(
        f"{len(rows)} forms, {total} tiles, {wrong} differ; by hand and by chance, {len(told)} told\n"
    )
    if options.only:
        return
    golden = {
        "gpu": {"name": chip.name, "uuid": chip.uuid},
        "driver": chip.driver_version,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python tests/record_tiles.py",
        "seed": SEED,
        "tiles": total,
        "mismatches": wrong,
        "forms": rows,
    }
    text = json.dumps(golden).replace('"forms": {', '"forms": {\n').replace("}, ", "},\n") + "\n"
    write_whole(options.out / "tiles.json", lambda file: file.write(text.encode()))
    write_whole(options.out / "tiles.npz", lambda file: np.savez_compressed(file, **raw))


if __name__ == "__main__":
    main()
