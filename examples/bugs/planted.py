"""Shared by the planted bugs: inputs, expected results, and launches.

Each ``<name>.cu`` of this folder and of ``sm_90`` holds a kernel with one bug and, where ``FIXED`` is
defined, its correction. The comment ``// BUG`` marks the guilty line, ``// BUG: …`` other lines that it
takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu.compile import Ptx, compile

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Unwritten:
    """An array whose elements only the kernel writes."""

    shape: tuple[int, ...]
    dtype: Any = np.uint32


@dataclass(frozen=True)
class Map:
    """A tensor map of an array that the kernel does not get otherwise.

    Attributes
    ----------
    array : array
    box : tuple of int
        The box of a copy, outermost dimension first.
    swizzle : int
        Bytes of its swizzle; 0 for none.
    """

    array: npt.NDArray[Any]
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True)
class Bug:
    """A kernel with a bug, and the launch that shows it.

    Attributes
    ----------
    name : str
        The kernel's, and its file's without ``.cu``.
    title : str
        What the bug is.
    fault : str
        The class in `simwarp.faults` that names it.
    blocks, threads : int
        The launch: blocks in the grid, threads per block.
    arguments : dict
        The kernel's arguments in order: arrays, `Unwritten` arrays, NumPy scalars, tensor maps.
    right : dict of str to array
        What the corrected kernel leaves in some of the arrays, to the last bit.
    folder : str
        The file's folder in this one; "" for this one.
    arch : str
        The architecture that it is written for.
    before : str
        Another kernel of the file, launched first with the same arguments: the launch depends on that one;
        "" for none.
    others : dict of str to set of str
        Schedule → more classes in `simwarp.faults` by which it may name the bug: it lets things happen in
        another order.
    """

    name: str
    title: str
    fault: str
    blocks: int
    threads: int
    arguments: dict[str, Any]
    right: dict[str, npt.NDArray[Any]]
    folder: str = ""
    arch: str = "sm_90"
    before: str = ""
    others: Mapping[str, set[str]] = field(default_factory=dict[str, set[str]])

    @property
    def path(self) -> Path:
        """The bug's file."""
        return FOLDER / self.folder / f"{self.name}.cu"

    @property
    def file(self) -> str:
        """The name of the bug's file in messages."""
        return (Path("bugs") / self.folder / self.path.name).as_posix()

    @property
    def source(self) -> str:
        """The text of the bug's file."""
        return self.path.read_text()

    @property
    def headers(self) -> dict[str, str]:
        """The texts of the folder's headers that the file includes."""
        names = re.findall(r'^#include "(.*)"', self.source, re.MULTILINE)
        return {name: (self.path.parent / name).read_text() for name in names}

    @property
    def line(self) -> int:
        """The line of the bug."""
        return self._lines("// BUG$")[0]

    @property
    def other_line(self) -> int:
        """The second line of the bug, which may be the same."""
        return (self.other_lines or [self.line])[0]

    @property
    def other_lines(self) -> list[int]:
        """The lines that the bug takes besides its own."""
        return self._lines("// BUG: ")

    def _lines(self, marker: str) -> list[int]:
        lines = self.source.splitlines()
        return [number for number, line in enumerate(lines, 1) if re.search(marker, line)]

    def ptx(self, arch: tuple[int, int] = (9, 0), fixed: bool = False) -> Ptx:
        """The PTX of the kernel with the bug, or corrected."""
        defines, options = (
            {"FIXED": ""} if fixed else {},
            [f"--gpu-architecture={self.arch.replace('sm', 'compute')}"] if self.arch[-1] == "a" else [],
        )
        return compile(self.source, self.file, defines, arch, headers=self.headers, options=options)

    def run(self, device: Any, fixed: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Launch the kernel, and return its output arrays."""
        arrays = {
            name: _on_device(device, name, value.array if isinstance(value, Map) else value)
            for name, value in self.arguments.items()
        }
        given = arrays | {
            name: device.tensor_map(arrays[name], value.box, swizzle=value.swizzle)
            for name, value in self.arguments.items()
            if isinstance(value, Map)
        }
        module = device.load(self.ptx(device.compute_capability, fixed))
        size = (self.blocks, 1, 1), (self.threads, 1, 1)
        if self.before:
            module.kernel(self.before)(*size, *given.values())
        module.kernel(self.name)(*size, *given.values(), **({"dependent": True} if self.before else {}))
        return {name: given[name].download() for name in self.right}

    def is_right(self, outputs: dict[str, npt.NDArray[Any]]) -> bool:
        """Whether every output array has the expected bits."""
        return all(outputs[name].tobytes() == right.tobytes() for name, right in self.right.items())


def _on_device(device: Any, name: str, value: Any) -> Any:
    if isinstance(value, Unwritten):
        return device.allocate(value.shape, value.dtype, name)
    return device.upload(value, name) if isinstance(value, np.ndarray) else value
