"""The ELF file of a program: its machine, its shared libraries, its sections and symbols.

Source: System V Application Binary Interface, chapters 4 and 5 (ELF-64 only).
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reference.errors import InputFileError

_MACHINES = {62: "x86_64", 183: "aarch64"}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE, _DYNAMIC, _SHARED_SYMBOLS = 2, 6, 11
_NEEDED, _RPATH = 1, 15
_UNDEFINED = 0


@dataclass(frozen=True)
class Section:
    """A section of an ELF file: its type, its range in the file, and the section that it refers to."""

    name: str
    type: int
    offset: int
    size: int
    link: int


@dataclass
class Elf:
    """The sections and symbols of an ELF file."""

    data: bytes
    machine: str  # the machine's name as `platform.machine` returns it
    sections: list[Section] = field(default_factory=list[Section])
    needed: list[str] = field(default_factory=list[str])  # shared libraries
    rpath: str = ""  # ``DT_RPATH``, which precedes ``LD_LIBRARY_PATH``

    def section(self, name: str) -> bytes:
        """The bytes of a section; empty if the file lacks it."""
        return next((self._bytes(one) for one in self.sections if one.name == name), b"")

    def defines(self, symbol: str) -> bool:
        """True if the file defines a symbol; see `defined`."""
        return symbol in self.defined()

    def _bytes(self, section: Section) -> bytes:
        return self.data[section.offset : section.offset + section.size]

    def defined(self) -> Iterator[str]:
        """The symbols that the file defines and that were not stripped."""
        for one in self.sections:
            if one.type in (_SYMBOL_TABLE, _SHARED_SYMBOLS):
                names, table = self._bytes(self.sections[one.link]), self._bytes(one)
                whole = len(table) // _SYMBOL.size * _SYMBOL.size
                for name, _, _, index, _, _ in _SYMBOL.iter_unpack(table[:whole]):
                    if index != _UNDEFINED:
                        yield names[name : names.find(b"\0", name)].decode(errors="replace")


def read_elf(path: Path) -> Elf:
    """Read an ELF file; InputFileError if it is not a 64-bit one of this machine, or cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputFileError(
            f"{path} cannot be read: {error.strerror or error}\ngive a program, or its source (.cu)"
        ) from None
    if data[:5] != b"\x7fELF\x02":
        raise InputFileError(
            f"{path} is not a 64-bit ELF file\nit starts with {data[:4]!r}\n"
            "give a program, or its source (.cu)"
        )
    try:
        return _parsed(data, path)
    except (struct.error, IndexError):
        raise InputFileError(
            f"{path} is not a whole ELF file\nits tables end early\nbuild it again"
        ) from None


def _parsed(data: bytes, path: Path) -> Elf:
    _, _, machine, *_, sections_at, _, _, _, _, _, count, names_in = _HEADER.unpack_from(data)
    name = _MACHINES.get(machine, f"machine {machine}")
    if name != platform.machine():
        raise InputFileError(
            f"{path} is for {name}\nthis machine is {platform.machine()}\nbuild the program on this machine"
        )
    heads = [_SECTION.unpack_from(data, sections_at + i * _SECTION.size) for i in range(count)]
    names = data[heads[names_in][4] : heads[names_in][4] + heads[names_in][5]] if heads else b""
    elf = Elf(data, name)
    for at, kind, _, _, offset, size, link, *_ in heads:
        elf.sections.append(Section(_text(names, at), kind, offset, size, link))
    for one in elf.sections:
        if one.type == _DYNAMIC:
            _read_dynamic(elf, one)
    return elf


def _read_dynamic(elf: Elf, section: Section) -> None:
    strings = elf.section(elf.sections[section.link].name)
    for tag, value in struct.iter_unpack("<QQ", elf.data[section.offset : section.offset + section.size]):
        if tag == _NEEDED:
            elf.needed.append(_text(strings, value))
        elif tag == _RPATH:
            elf.rpath = _text(strings, value)


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode(errors="replace") if at < len(table) else ""
