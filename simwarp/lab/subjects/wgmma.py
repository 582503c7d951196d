"""Compares products of warpgroups on a device with the simulator's, bit for bit.

A *tile* is all of one instruction's product, 64 x n. Each form multiplies random tiles
(`wgmma_by_chance`), in chunks that take the form's variants in turn. The simulator's answers come from
`simwarp.products`; for two tiles of each variant also from `simwarp.Device`, which runs the same PTX. Tests
replay some of the latter without a GPU.

>>> len(OPCODES), CHUNKS * sum(EACH["floats"] * 19 for form in OPCODES if "e4m3.e4m3" in form) // 2
(546, 51072)
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np

from simwarp.device.device import Device
from simwarp.fragments import all_opcodes
from simwarp.lab.crew import Lost, perform
from simwarp.lab.evidence.styles import styles_of
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.lab.subjects import wgmma_by_chance as by_chance
from simwarp.lab.subjects.wgmma_by_chance import Array, Form, Tiles
from simwarp.ptx.instructions.fragment_products import multiply_tiles
from simwarp.verify.draw import Draw

SEED = 17
CHUNKS = 12
"""Chunks of tiles of each form; a multiple of every number of variants."""
EACH = {"floats": 7, "whole": 58}
"""Tiles of each style in a chunk."""
SHOWN = 5
"""The largest number of differences that are described for one form."""
OPCODES = tuple(opcode for opcode in all_opcodes() if opcode.startswith("wgmma"))


def drawn(form: Form, chunk: int) -> Tiles:
    """The random operand tiles of a form's chunk number ``chunk``, always the same."""
    each = EACH["whole" if form.types["c"] == "s32" else "floats"]
    variant = form.variants[chunk % len(form.variants)]
    return by_chance.drawn(form, variant, Draw(SEED, form.opcode, chunk), each)


def replayed(form: Form, chunk: int, blocks: int) -> Array:
    """Two tiles of a chunk for tests to replay; the choice differs from form to form."""
    return (5 * form.n + 11 * chunk + np.array([0, blocks // 2])) % blocks


def expected(form: Form, number: int, tiles: Tiles, cc: tuple[int, int]) -> Array:
    """The products of tiles by `simwarp.products`, (blocks, 64, n) words."""
    matrices = dict(tiles.words)
    for name, sign in zip("ab", form.variants[number].signs, strict=True):
        if sign < 0:
            word = matrices[name].dtype
            matrices[name] = matrices[name] ^ word.type(1 << 8 * word.itemsize - 1)
    c = np.where(tiles.keeps[:, None, None], matrices["c"], matrices["c"].dtype.type(0))
    return multiply_tiles(form.opcode, cc, matrices["a"], matrices["b"].swapaxes(-1, -2), c)


def compare(chip: Any, opcode: str, small: bool) -> tuple[dict[str, Any], list[str]]:
    """Compare a form on both devices: facts to record, and differences."""
    form, simulator = Form(opcode), Device(cc=chip.compute_capability)
    whole, first = hashlib.sha256(), hashlib.sha256()
    counts = Counter[str](tiles=0, executed=0, mismatches=0)
    differences: list[str] = []
    for chunk in range(len(form.variants) if small else CHUNKS):
        number, tiles = chunk % len(form.variants), drawn(form, chunk)
        if small:
            tiles = tiles.some(np.arange(0, len(tiles.keeps), 12))
        sums = _answers(chip, form, chunk, tiles)
        whole.update(sums.astype("<u4").tobytes())
        found = form.layouts["d"].unpack(sums)
        right = expected(form, number, tiles, chip.compute_capability)
        wrong = (found != right).any(axis=(1, 2))
        counts.update(tiles=len(found), mismatches=int(wrong.sum()))
        differences += [
            _difference(form, chunk, int(tile), tiles, found, right)
            for tile in np.flatnonzero(wrong)[: SHOWN - len(differences)]
        ]
        if chunk < len(form.variants):
            which = replayed(form, chunk, len(found))
            executed = by_chance.answers(simulator, form, number, tiles.some(which))
            first.update(sums[which].astype("<u4").tobytes())
            counts["executed"] += len(which)
            if not np.array_equal(executed, sums[which]):
                counts["mismatches"] += 1
                differences.append(f"{_where(form, chunk)}: the PTX differs on the simulator, tiles {which}")
    return counts | {"sha256": whole.hexdigest(), "first": first.hexdigest()}, differences


def _answers(chip: Any, form: Form, chunk: int, tiles: Tiles) -> Array:
    """A chip's results for a chunk; an error has a note that names the chunk."""
    try:
        return by_chance.answers(chip, form, chunk % len(form.variants), tiles)
    except Exception as error:
        error.add_note(_where(form, chunk))
        raise


def _where(form: Form, chunk: int) -> str:
    return f"{form.opcode} ({form.variants[chunk % len(form.variants)]}), chunk {chunk}"


def _difference(form: Form, chunk: int, tile: int, tiles: Tiles, found: Array, right: Array) -> str:
    """Describe the first wrong element of a tile, with all of its operands."""
    bad = np.argwhere(found[tile] != right[tile])
    row, column = bad[0].tolist()
    words = {name: word[tile] for name, word in tiles.words.items()}
    styles = len(styles_of("b32" if form.types["a"] == "b1" else form.types["a"]))
    left, right_word = (int(word) for word in tiles.descriptors[tile])
    return "\n".join(
        [
            f"{_where(form, chunk)}: tile {tile}, style {tile % styles}, {len(bad)} elements differ",
            f"descriptors {left:#018x} and {right_word:#018x}, scale-d {bool(tiles.keeps[tile])}",
            f"row {row}, column {column}: chip {found[tile, row, column]:#x}, "
            f"simulator {right[tile, row, column]:#x}",
            f"a {_spelled(words['a'][row])}\nb {_spelled(words['b'][column])}",
            f"c {words['c'][row, column]:#x}",
        ]
    )


def _spelled(words: Array) -> str:
    return " ".join(f"{int(word):#x}" for word in words)


def question(opcode: str) -> str:
    """The SHA-256 of a form's kernels and of the tiles that tests replay."""
    form, found = Form(opcode), hashlib.sha256(by_chance.module(Form(opcode)).encode())
    for chunk in range(len(form.variants)):
        tiles = drawn(form, chunk)
        some = tiles.some(replayed(form, chunk, len(tiles.keeps)))
        for part in (*some.words.values(), some.descriptors, some.places, some.keeps):
            found.update(part.astype(part.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def again(device: Any, opcode: str) -> str:
    """The digest of a device's results for the tiles that tests replay."""
    form, found = Form(opcode), hashlib.sha256()
    for chunk in range(len(form.variants)):
        tiles = drawn(form, chunk)
        some = tiles.some(replayed(form, chunk, len(tiles.keeps)))
        found.update(by_chance.answers(device, form, chunk, some).astype("<u4").tobytes())
    return found.hexdigest()


def _asked(chip: Any, opcode: str, small: bool) -> tuple[str, dict[str, Any], list[str]]:
    return question(opcode), *compare(chip, opcode, small)


def ask(asking: Asking) -> Answers:
    """Compare every form on the device and the simulator, in parallel processes."""
    opcodes = OPCODES[:: asking.number(1, 40)]
    asked = perform(asking.make, _asked, [(opcode, asking.small) for opcode in opcodes], asking.processes)
    rows, questions, differences = dict[str, Any](), dict[str, str](), list[str]()
    for opcode, answer in zip(asking.each(opcodes), asked, strict=True):
        if isinstance(answer, Lost):
            differences.append(f"{opcode}: no answer\n{answer.reason}")
            continue
        questions[opcode], rows[opcode], found = answer
        differences += found
    totals = {name: sum(row[name] for row in rows.values()) for name in ("tiles", "executed", "mismatches")}
    facts = {"seed": SEED, **totals, "lost": len(opcodes) - len(rows), "types": dict(_by_type(rows))}
    return Answers(facts | {"forms": rows}, ptx=questions, differences=differences)


def _by_type(rows: dict[str, Any]) -> Counter[str]:
    """The number of tiles by types of D, A and B."""
    tiles = Counter[str]()
    for opcode, row in rows.items():
        form, clamped = Form(opcode), ".satfinite" * ("satfinite" in opcode)
        tiles[".".join(form.types[name] for name in "cab") + clamped] += row["tiles"]
    return tiles


SUBJECTS = [Subject("wgmma", "a million random products of warpgroups, by digest", ask)]
