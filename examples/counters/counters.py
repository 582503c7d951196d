"""Kernels with memory accesses of known counts: host code for any device, and the cases.

    simwarp record counters       (on a GPU with Nsight Compute)

counts them on a GPU; ``tests/replay/test_counters.py`` counts them on the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.compile import Ptx, compile
from simwarp.verify import Draw

FILES = ("shared", "global", "transpose")
THREADS, BLOCKS = 64, 3
SIDE = 64
BYTES, SHARED_BYTES = 1 << 17, 1 << 14
NOWHERE = 0xFFFFFFFF
LANES = np.arange(THREADS * BLOCKS, dtype=np.uint32) % 32


def ptx(file: str, arch: tuple[int, int]) -> Ptx:
    """Compile ``<file>.cu`` of this folder."""
    source = Path(__file__).with_name(f"{file}.cu").read_text()
    return compile(source, f"counters/{file}.cu", arch=arch)


@cache
def module(device: Any, file: str) -> Any:
    """Load ``<file>.cu`` on a device."""
    return device.load(ptx(file, device.compute_capability).text)


def move(device: Any, file: str, name: str, *how: Any) -> npt.NDArray[Any]:
    """Launch a kernel of shared.cu or global.cu on random bytes.

    ``how`` is the stride and the offset, or each thread's place.
    """
    given = device.upload(Draw(0, "counters", 0).words(BYTES // 8).view(np.uint8), "in")
    out = device.upload(np.zeros(BYTES, np.uint8), "out")
    arguments = [device.upload(x, "places") if isinstance(x, np.ndarray) else np.uint32(x) for x in how]
    module(device, file).kernel(name)((BLOCKS, 1, 1), (THREADS, 1, 1), given, out, *arguments)
    return out.download()


def transpose(device: Any, name: str) -> npt.NDArray[Any]:
    """Transpose a matrix through the tiles of transpose.cu."""
    matrix = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    out = device.upload(np.zeros_like(matrix), "out")
    launch = module(device, "transpose").kernel(name)
    launch((SIDE // 32, SIDE // 32, 1), (32, 8, 1), device.upload(matrix, "in"), out, np.uint32(SIDE))
    return out.download()


def random_places(k: int, end: int, absent: int = 0) -> npt.NDArray[np.uint32]:
    """A random index below ``end`` for each thread; about ``absent`` of 16 threads have none."""
    words = Draw(0, "places", k).words(2 * LANES.size)
    places = (words[: LANES.size] % np.uint64(end)).astype(np.uint32)
    return np.where(words[LANES.size :] % np.uint64(16) < absent, np.uint32(NOWHERE), places)


STRIDES = {1: (1, 4, 128), 2: (1, 2, 64), 4: (1, 2, 3, 4, 8, 32), 8: (1, 2, 16), 16: (1, 2, 8)}
"""By the size of an element, the strides of `take` and `put` in shared memory."""
WINDOWS = ((1, 0), (1, 1), (2, 0), (8, 0), (32, 0))
"""Strides and offsets of `take` and `put` in global memory."""
PLACES = {
    "one for all": LANES * 0,
    "one for each pair": LANES // 2,
    "one for each quad": LANES // 4,
    "lane and lane + 16 alike": LANES % 16,
    "even lanes only": np.where(LANES % 2 == 0, LANES, np.uint32(NOWHERE)),
    "one half only": np.where(LANES < 16, LANES, np.uint32(NOWHERE)),
    "random": random_places(0, 1024),
    "random, some lanes": random_places(1, 1024, absent=6),
    "random among 24": random_places(2, 24),
    "random among 24, some lanes": random_places(3, 24, absent=10),
}
"""For `gather`, `scatter` and atomic operations: each thread's place."""
FEW_PLACES = ("one for all", "one half only", "random", "random, some lanes")
"""Those for elements that take one phase, and for global memory."""

ATOMIC = {
    "shared": ("add", "fetch_or", "count", "fetch_count", "count_in_twos"),
    "global": ("add", "fetch_and"),
}
"""The kernels of atomic operations."""


def _cases() -> dict[str, Callable[[Any], npt.NDArray[Any]]]:
    cases: dict[str, Callable[[Any], npt.NDArray[Any]]] = {}
    for name in ("plain", "padded", "swizzled"):
        cases[f"transpose/{name}"] = partial(transpose, name=name)
    for size, strides in STRIDES.items():
        for way in ("take", "put"):
            for stride in strides:
                cases[f"shared/{way}_{size}/stride {stride}"] = _move("shared", f"{way}_{size}", stride, 0)
        for way in ("gather", "scatter"):
            for what in PLACES if size > 4 else FEW_PLACES:
                cases[f"shared/{way}_{size}/{what}"] = _move("shared", f"{way}_{size}", PLACES[what])
    for size in (1, 4, 16):
        for way in ("take", "put"):
            for stride, offset in WINDOWS:
                name = f"global/{way}_{size}/stride {stride}" + (", offset 1" if offset else "")
                cases[name] = _move("global", f"{way}_{size}", stride, offset)
        for way in ("gather", "scatter"):
            for what in FEW_PLACES:
                cases[f"global/{way}_{size}/{what}"] = _move("global", f"{way}_{size}", PLACES[what])
    for file, names in ATOMIC.items():
        for name in names:
            for what, places in PLACES.items():
                cases[f"{file}/{name}/{what}"] = _move(file, name, places)
    return cases


def _move(file: str, name: str, *how: Any) -> Callable[[Any], npt.NDArray[Any]]:
    return lambda device: move(device, file, name, *how)


CASES = _cases()
"""By name, what launches one kernel on a device and returns what it puts out."""
