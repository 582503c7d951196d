"""A probe: a small kernel that executes one form of an instruction on many operand tuples.

Its text depends on the form alone, so the same text runs on any device, simulated or not. Thread
i of the grid loads operand tuple i, executes the instruction, and stores result tuple i. Each operand
and each result takes 8 bytes; each thread also has 32 bytes of memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reference.devices.tensor_map import Im2col
from simwarp.lab.evidence.operands import Column, width

BLOCK = 128
"""Threads of a probe's block; the number of operand tuples is a multiple of it."""
ROOM = 32
"""Bytes of global memory that each thread of a probe may use."""


def head(target: str = "sm_90") -> str:
    """The directives that begin a module for a target."""
    return f".version 9.0\n.target {target}\n.address_size 64\n"


class Tensor(NamedTuple):
    """The tensor map that a probe's kernel takes as its last parameter, ``map``.

    Attributes
    ----------
    memory : bool
        Whether it describes the threads' memory; else the operands.
    data_type, shape, box, im2col, options
        Those of `Device.tensor_map`; the box is () for im2col maps.
    """

    memory: bool
    data_type: str
    shape: tuple[int, ...]
    box: tuple[int, ...]
    im2col: Im2col | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def of(self, device: Any, operands: Any, memory: Any) -> bytes:
        """The 128 bytes of the tensor map, of the device array ``memory`` or ``operands``."""
        array = memory if self.memory else operands
        facts = {"shape": self.shape, "data_type": self.data_type, "im2col": self.im2col}
        return device.tensor_map(array, self.box or None, **facts, **dict(self.options))


@dataclass(frozen=True)
class Picture:
    """The texture or surface that a probe's kernel takes as its last parameter, ``picture``.

    Attributes
    ----------
    geometry : str
        As in PTX, or "linear".
    shape : tuple of int
        Of its texels.
    dtype : str
    channels : int
    filter_mode : str
        Of a texture; "" for a surface.
    """

    geometry: str
    shape: tuple[int, ...]
    dtype: str
    channels: int
    filter_mode: str

    def of(self, device: Any) -> Any:
        """A texture or surface handle on a device, with texels drawn from a seed of this description."""
        shape = self.shape if self.channels == 1 else (*self.shape, self.channels)
        seed = np.frombuffer(hashlib.sha256(repr(self).encode()).digest(), np.uint32)
        host = np.random.default_rng(seed).integers(0, 100, shape).astype(self.dtype)
        if self.geometry == "linear":
            return device.texture(device.upload(host), channels=self.channels)
        layered, cubemap = self.geometry.startswith("a"), "cube" in self.geometry
        image = device.upload_image(host, channels=self.channels, layered=layered, cubemap=cubemap)
        return (
            device.texture(image, filter_mode=self.filter_mode) if self.filter_mode else device.surface(image)
        )


@dataclass(frozen=True)
class Probe:
    """The kernel that executes one form of an instruction, and its operands and results.

    Attributes
    ----------
    form : str
        The opcode.
    entry : str
        The PTX text of the kernel NAME, whose parameters are the addresses of operands, results and memory.
    operands, results : tuple of Column
    preamble : str
        Declarations that stand before the kernels of its module.
    packed : int
        If not 0: operands lie next to each other in the threads' memory, each of this many bytes.
    at_once : int
        If not 0: operands are passed by value, this many tuples in each launch.
    baked : bool
        Whether the operands are constants in the text itself.
    count : int
        The number of operand tuples.
    faults : bool
        Whether the kernel ends with a fault, which on hardware ends the process's context.
    tensor : Tensor, optional
        The tensor map of its last parameter.
    picture : Picture, optional
        The texture or surface of its last parameter.
    target : str
        The target of its module.
    """

    form: str
    entry: str
    operands: tuple[Column, ...]
    results: tuple[Column, ...]
    preamble: str = ""
    packed: int = 0
    at_once: int = 0
    baked: bool = False
    count: int = 1024
    faults: bool = False
    tensor: Tensor | None = None
    picture: Picture | None = None
    target: str = "sm_90"

    def named(self, name: str) -> str:
        """The kernel's PTX text with NAME replaced."""
        return self.entry.replace("NAME", name)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the kernel's PTX text."""
        given = "".join(repr(part) for part in (self.tensor, self.picture) if part is not None)
        return hashlib.sha256((head(self.target) + self.preamble + self.entry + given).encode()).digest()


def module(probes: Sequence[Probe]) -> str:
    """A PTX module with one kernel, ``k0``, ``k1`` …, for each probe; all have one target."""
    preambles = dict.fromkeys(probe.preamble for probe in probes)
    return head(probes[0].target) + "".join(
        [*preambles, *(probe.named(f"k{i}") for i, probe in enumerate(probes))]
    )


class Writer:
    """Collects the registers and instructions of a probe's kernel; a register has at least ``least`` bits."""

    def __init__(self, form: str, least: int = 16) -> None:
        self.form, self.least = form, least
        self.registers: dict[str, str] = {}
        self.lines: list[str] = []
        self.operands: list[Column] = []
        self.results: list[Column] = []
        self.declarations: list[str] = []

    def line(self, *lines: str) -> None:
        """Append PTX to the kernel; after each "; " a new line begins."""
        for line in lines:
            self.lines += line.replace("; ", ";\n").splitlines()

    def declare(self, registers: str) -> None:
        """Declare registers such as "b32 d at, pred odd": each type with its names."""
        for kind, *names in map(str.split, registers.split(", ") if registers else ()):
            for name in names:
                self.register(name, kind)

    def register(self, name: str, kind: str) -> str:
        """Declare a register at least as wide as the type; return its name in PTX, ``%name``."""
        self.registers[f"%{name}"] = "pred" if kind == "pred" else f"b{max(self.least, width(kind))}"
        return f"%{name}"

    def take(self, name: str, kind: str, *, amount: bool = False) -> str:
        """Load the next operand of the tuple into the register ``%name``, and return that."""
        at = f"[%in+{8 * len(self.operands)}]"
        self.operands.append(Column(name, kind, amount))
        target = self.register(name, kind)
        if kind == "pred":
            self.register("word", "b32")
            self.line(f"ld.global.b32 %word, {at};", f"setp.ne.b32 {target}, %word, 0;")
        else:
            self.line(f"ld.global.{self.registers[target]} {target}, {at};")
        return target

    def give(self, kind: str, *names: str) -> None:
        """Store registers of one type as the next results of the tuple."""
        for name in names:
            source = self.register(name, kind)
            at = f"[%out+{8 * len(self.results)}]"
            self.results.append(Column(name, kind))
            if kind == "pred":
                self.register("word", "b32")
                self.line(f"selp.b32 %word, 1, 0, {source};", f"st.global.b32 {at}, %word;")
            else:
                self.line(f"st.global.{self.registers[source]} {at}, {source};")

    def probe(
        self, *results: str, packed: int = 0, at_once: int = 0, directives: str = "", **facts: Any
    ) -> Probe:
        """The finished probe: 32-bit ``results`` are stored last; ``facts`` are other fields of `Probe`."""
        self.give("b32", *results)
        operands = 0 if packed or at_once else len(self.operands)
        last = ",\n\t.param .align 64 .b8 map[128]" if facts.get("tensor") else ""
        last += ",\n\t.param .u64 picture" if facts.get("picture") else ""
        first = "\t.param .align 16 .b8 in[1024]" if at_once else "\t.param .u64 in"
        registers = {"%i": "b32", "%thread": "b32", "%in": "b64", "%out": "b64", "%memory": "b64"}
        body = [
            *(f".reg .{kind} {name};" for name, kind in (registers | self.registers).items()),
            *self.declarations,
            "mov.u32 %i, %ctaid.x;",
            "mov.u32 %thread, %tid.x;",
            f"mad.lo.u32 %i, %i, {BLOCK}, %thread;",
            *([] if at_once else ["ld.param.u64 %in, [in];"]),
            "ld.param.u64 %out, [out];",
            "ld.param.u64 %memory, [memory];",
            *([f"mad.wide.u32 %in, %i, {8 * operands}, %in;"] if operands else []),
            f"mad.wide.u32 %out, %i, {8 * len(self.results)}, %out;",
            f"mad.wide.u32 %memory, %i, {ROOM}, %memory;",
            *self.lines,
            "ret;",
        ]
        text = "".join(f"\t{line}\n" for line in body)
        parameters = f"{first},\n\t.param .u64 out,\n\t.param .u64 memory{last}"
        entry = f".visible .entry NAME(\n{parameters}\n)\n{directives}{{\n{text}}}\n"
        columns = tuple(self.operands), tuple(self.results)
        return Probe(self.form, entry, *columns, packed=packed, at_once=at_once, **facts)
