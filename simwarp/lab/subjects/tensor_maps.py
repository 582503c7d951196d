"""Compares random copies through tensor maps on a device with the simulator's, bit for bit.

`tensor_maps_by_chance` draws them. The simulator's answers come from `simwarp.tensormaps`; for some of each
kernel also from `simwarp.Device`, which runs the same PTX. Tests replay a few without a GPU.

>>> from simwarp import Device
>>> kernel = by_chance.KERNELS[0]
>>> (found,) = by_chance.answers(Device(), kernel, [by_chance.drawn(kernel, 0)])
>>> bool((found == expected(kernel, by_chance.drawn(kernel, 0))).all())
True
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from reference.devices.tensor_map import DATA_TYPES
from simwarp.device.device import Device
from simwarp.fragments.swizzles import swizzled
from simwarp.lab.crew import Lost, perform
from simwarp.lab.recording import Answers, Asking, Subject
from simwarp.lab.subjects import tensor_maps_by_chance as by_chance
from simwarp.lab.subjects.tensor_maps_by_chance import KERNELS, TOGETHER, Array, Copy, Kernel
from simwarp.ptx.instructions.tensor_maps import tensor_reduction
from simwarp.ptx.rows import DTYPES, Form
from simwarp.tensormaps import units_of

EXECUTED, REPLAYED = 32, 6
"""Copies of each kernel that `simwarp.Device` executes, and those of them that tests replay."""
SHOWN, REPEATED = 3, 8
"""The largest numbers of differences that are described for one launch, and of launches without an answer
that are repeated copy by copy."""
SORTS = ("types", "swizzles", "places")
_NAN = 0x7FF7
"""The halves of what is outside a tensor that is filled with NaN, as an H200 has them."""


def expected(kernel: Kernel, copy: Copy) -> Array:
    """The bytes after a copy, by the simulator's maps of boxes."""
    tensor, reduces = copy.tensor, kernel.operation not in ("load", "store")
    width = tensor.itemsize if reduces else 0
    units = units_of(tensor, copy.coordinates, copy.offsets, width, kernel.operation != "load")
    bytes_of = np.arange(units.width)
    start = np.uint64(copy.start)
    tile = swizzled(start + units.offsets, tensor.swizzle).astype(np.int64)[:, None] + bytes_of
    there = units.addresses[units.inside].astype(np.int64)[:, None] + bytes_of
    if kernel.operation == "load":
        after = copy.shared.copy()
        half = np.array([_NAN if tensor.fill == "nan" else 0], "<u2").view(np.uint8)
        after[tile] = np.resize(half, units.width)
        after[tile[units.inside]] = copy.memory[there]
        return after
    after, new = copy.memory.copy(), copy.shared[tile[units.inside]]
    after[there] = _combined(kernel.operation, tensor.data_type, after[there], new) if reduces else new
    return after


def _combined(operation: str, data_type: str, old: Array, new: Array) -> Array:
    """The bytes of elements after a reduction, (elements, bytes)."""
    kind = DATA_TYPES[data_type][1]
    form = Form(operation, (operation,), kind)
    words = (np.ascontiguousarray(part).view(DTYPES[kind]).ravel() for part in (old, new))
    with np.errstate(all="ignore"):
        result = np.ascontiguousarray(tensor_reduction(form, *words, kind))
    return result.view(np.uint8).reshape(old.shape)


def digest(answer: Array | str) -> bytes:
    """The SHA-256 of the memory's bytes after a copy, or of the error's text."""
    return hashlib.sha256(answer.encode() if isinstance(answer, str) else answer.tobytes()).digest()


def digest_of(digests: Sequence[bytes]) -> str:
    """The SHA-256 of several digests, in hexadecimal."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _sort(copy: Copy) -> str:
    """Whether a copy is inside its tensor, across its edge, or outside."""
    inside = units_of(copy.tensor, copy.coordinates, copy.offsets).inside
    return "inside" if inside.all() else "across an edge" if inside.any() else "outside"


def compare(
    chip: Any, kernel: Kernel, numbers: Sequence[int]
) -> tuple[list[bytes], dict[str, Counter[str]], list[str]]:
    """Compare a kernel's copies on a chip with the simulator's: digests of the bytes, counts, differences."""
    copies = [by_chance.drawn(kernel, number) for number in numbers]
    results = by_chance.answers(chip, kernel, copies)
    run = by_chance.answers(Device(), kernel, [copies[i] for i, n in enumerate(numbers) if n < EXECUTED])
    sorts = {name: Counter[str]() for name in ("counts", *SORTS)}
    sorts["counts"].update(copies=len(results), executed=len(run), mismatches=0)
    differences = list[str]()
    for i, (copy, answer) in enumerate(zip(copies, results, strict=True)):
        _count(sorts, copy)
        text = _difference(answer, expected(kernel, copy), "")
        text = text or (_difference(answer, run[i], " runs the PTX and") if i < len(run) else "")
        if text:
            sorts["counts"]["mismatches"] += 1
            differences.append(f"{kernel.name}, copy {numbers[i]}: {text}\n{_described(copy)}")
    return [digest(answer) for answer in results], sorts, differences[:SHOWN]


def _count(sorts: dict[str, Counter[str]], copy: Copy) -> None:
    """Count a copy under its data type, its swizzle and its position in the tensor."""
    sorts["types"][copy.tensor.data_type] += 1
    sorts["swizzles"][str(copy.tensor.swizzle)] += 1
    sorts["places"][_sort(copy)] += 1


def _difference(chip: Array | str, right: Array | str, how: str) -> str:
    """The first difference of a chip's bytes from the simulator's, in words; "" without one."""
    if isinstance(chip, str):
        return chip
    if isinstance(right, str):
        return f"the simulator{how} says: {right}"
    bad: npt.NDArray[np.int64] = np.flatnonzero(chip != right)
    if not bad.size:
        return ""
    at = int(bad[0])
    some = [part[at : at + 8].tobytes().hex(" ") for part in (chip, right)]
    return f"{bad.size} bytes differ, first {at}: chip {some[0]}, the simulator{how} has {some[1]}"


def _described(copy: Copy) -> str:
    """A copy's tensor map, coordinates and tile address as text, for a report of a difference."""
    offsets = f", offsets {copy.offsets}" if copy.offsets else ""
    return f"{copy.tensor}\nat {copy.coordinates}{offsets}, tile at {copy.start}, {_sort(copy)}"


def question(kernel: Kernel) -> str:
    """The SHA-256 of a kernel and of the copies that tests replay."""
    found = hashlib.sha256(by_chance.module(kernel).encode())
    for number in range(REPLAYED):
        copy = by_chance.drawn(kernel, number)
        found.update(f"{copy.tensor} {copy.coordinates} {copy.offsets} {copy.start}".encode())
        found.update(copy.memory.tobytes() + copy.shared.tobytes())
    return found.hexdigest()


def again(device: Any, kernel: Kernel) -> str:
    """The digest of a device's results for the copies that tests replay."""
    copies = [by_chance.drawn(kernel, number) for number in range(REPLAYED)]
    return digest_of([digest(answer) for answer in by_chance.answers(device, kernel, copies)])


Part: TypeAlias = tuple[Kernel, Sequence[int]]


def ask(asking: Asking) -> Answers:
    """Compare every kernel's copies on the device and the simulator, in parallel processes.

    Of the launches without an answer, some are repeated copy by copy, so that the bad one is named.
    """
    kernels = KERNELS[:: asking.number(1, 9)]
    many = {kernel: asking.number(kernel.copies, 8) for kernel in kernels}
    parts: list[Part] = [
        (kernel, range(first, min(first + TOGETHER, count)))
        for kernel, count in many.items()
        for first in range(0, count, TOGETHER)
    ]
    found = dict[tuple[str, int], bytes]()
    sorts = {name: Counter[str]() for name in ("counts", *SORTS)}
    differences = list[str]()

    def perform_all(parts: Sequence[Part]) -> list[tuple[Part, str]]:
        """Compare copies; returns the parts that were lost, and why."""
        lost = list[tuple[Part, str]]()
        answers = perform(asking.make, compare, parts, asking.processes)
        for part, answer in zip(asking.each(parts), answers, strict=True):
            kernel, numbers = part
            if isinstance(answer, Lost):
                lost.append((part, answer.reason))
                continue
            found.update(zip([(kernel.name, n) for n in numbers], answer[0], strict=True))
            for name, counter in answer[1].items():
                sorts[name].update(counter)
            differences.extend(answer[2])
        return lost

    lost = perform_all(parts)
    alone: list[Part] = [(kernel, [n]) for (kernel, numbers), _ in lost[:REPEATED] for n in numbers]
    lost = (perform_all(alone) if alone else []) + lost[REPEATED:]
    texts = [f"{kernel.name}, copy {numbers[0]}: no answer\n{why}" for (kernel, numbers), why in lost]
    rows = {kernel.name: _recorded(found, kernel, count) for kernel, count in many.items()}
    facts = {"seed": by_chance.SEED, **sorts["counts"], "lost": sum(many.values()) - len(found)}
    facts |= {name: dict(sorted(sorts[name].items())) for name in SORTS}
    questions = {kernel.name: question(kernel) for kernel in kernels}
    return Answers(facts | {"kernels": rows}, ptx=questions, differences=texts + differences)


def _recorded(found: dict[tuple[str, int], bytes], kernel: Kernel, count: int) -> dict[str, Any]:
    """The recording of a kernel: the number of copies, a digest of all, and a digest of the replayed ones."""
    digests = [found.get((kernel.name, number), b"") for number in range(count)]
    return {
        "copies": sum(map(bool, digests)),
        "sha256": digest_of(digests),
        "first": digest_of(digests[:REPLAYED]),
    }


SUBJECTS = [Subject("tensor-maps", "21,504 random copies through tensor maps, by digest", ask)]
