"""The fatbin of a CUDA program: PTX and machine code for some architectures.

NVIDIA does not document the format. A fatbin is a header and entries, each with a header of its own: kind,
size, architecture, and whether its payload is compressed, with LZ4 (a block without frame) or Zstandard.
Several fatbins may lie behind one another in a section.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from reference.errors import FormatError, MissingExtraError
from simwarp.exec.link import link_texts
from simwarp.exec.lz4 import decompress_block

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
PTX, SASS = 1, 2
_LZ4, _ZSTD = 1 << 13, 1 << 15
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)
BUILD_WITH = "nvcc -cudart shared -gencode arch=compute_{cc},code=compute_{cc}"
"""The flags of a program that can be run."""


@dataclass(frozen=True)
class Entry:
    """An entry of a fatbin: PTX or SASS for one architecture."""

    kind: int  # `PTX`, `SASS`, or a kind that this module does not read
    arch: int  # compute capability: 90 for compute_90
    payload: bytes  # the bytes in the file, compressed or not
    flags: int = 0  # bits, among them the compression's
    size: int = 0  # bytes of the payload after decompression

    @property
    def text(self) -> str:
        """The PTX text; FormatError if it is truncated, MissingExtraError without a decompressor."""
        data = self.payload
        if self.flags & _ZSTD:
            data = _zstandard(data, self.size)
        elif self.flags & _LZ4:
            data = decompress_block(data, self.size)
        return data.rstrip(b"\0\n").decode("utf-8", "replace") + "\n"


def read_fatbins(data: bytes) -> list[list[Entry]]:
    """The entries of each of the consecutive fatbins in ``data``; FormatError for other bytes."""
    fatbins: list[list[Entry]] = []
    at = 0
    while at + _HEADER.size <= len(data):
        magic, version, head, size = _HEADER.unpack_from(data, at)
        if magic == 0:  # zeros between fatbins are padding
            at += 8
            continue
        if magic != _MAGIC or head < _HEADER.size or at + head + size > len(data):
            raise FormatError(
                f"byte {at} of the embedded device code is not a fatbin\n"
                f"magic {magic:#x}, version {version}, {head} + {size} bytes of {len(data) - at}\n"
                f"build the program with nvcc 13.0: {BUILD_WITH.format(cc=90)}"
            )
        fatbins.append(_entries(data[at + head : at + head + size]))
        at += head + size
    return fatbins


def _entries(data: bytes) -> list[Entry]:
    found: list[Entry] = []
    at = 0
    while at + _ENTRY.size <= len(data):
        kind, _, head, size, packed, _, _, _, arch, _, _, flags, _, whole = _ENTRY.unpack_from(data, at)
        if head < _ENTRY.size or at + head + size > len(data):
            raise FormatError(
                f"entry {len(found)} of a fatbin does not fit\n"
                f"its header has {head} bytes, its payload {size}; {len(data) - at} are left\n"
                f"build the program with nvcc 13.0: {BUILD_WITH.format(cc=90)}"
            )
        payload = data[at + head : at + head + (packed or size)]
        found.append(Entry(kind, arch, payload, flags, whole))
        at += head + size
    return found


def image_text(image: bytes, cc: tuple[int, int]) -> str:
    """The PTX of a loaded or linked image: fatbins, or text; FormatError without PTX for the chip."""
    if image.startswith(b"\x7fELF"):
        raise FormatError(
            "the program loads machine code (a cubin)\nthe simulator needs PTX\n"
            "give the driver PTX, or a fatbin that contains it"
        )
    text = image.rstrip(b"\0")
    if text.isascii() and b".version" in text:
        return text.decode() + "\n"
    return ptx_of(read_fatbins(image), cc)


def ptx_of(fatbins: Sequence[Sequence[Entry]], cc: tuple[int, int]) -> str:
    """The PTX text of one module: of a single fatbin, or linked from several (``-rdc=true``).

    FormatError if none has PTX for the chip.
    """
    texts = list[str]()
    for entries in fatbins:
        with suppress(FormatError):  # some fatbins are CUDA's own, and hold only machine code
            texts.append(choose_ptx(entries, cc))
    return link_texts(texts) if texts else choose_ptx([one for entries in fatbins for one in entries], cc)


def choose_ptx(entries: Sequence[Entry], cc: tuple[int, int]) -> str:
    """The PTX of the newest architecture that a chip runs; the FormatError has the flags to build with."""
    have = 10 * cc[0] + cc[1]
    candidates = sorted((one for one in entries if one.kind == PTX), key=lambda one: -one.arch)
    for one in candidates:
        if one.arch <= have:
            target = _TARGET.search(text := one.text)
            if target is None or target[2] != "a" or int(target[1]) == have:
                return text
    code = sorted({f"sm_{one.arch}" for one in entries if one.kind == SASS})
    if candidates:
        newer = ", ".join(f"compute_{one.arch}" for one in candidates)
        reason = f"its PTX is for {newer}, the device is sm_{have}"
    elif code:
        reason = f"it has machine code ({', '.join(code)}) and no PTX, which the simulator needs"
    else:
        reason = "it has no PTX, which the simulator needs"
    raise FormatError(
        f"the program has no code for the device\n{reason}\nbuild it with {BUILD_WITH.format(cc=have)}"
    )


def _zstandard(data: bytes, size: int) -> bytes:
    try:
        from zstandard import ZstdDecompressor, ZstdError
    except ImportError:
        raise MissingExtraError(
            "the program's PTX is compressed with Zstandard, and zstandard is not installed\n"
            "pip install 'simwarp[nvcc]', or build the program with nvcc --no-compress"
        ) from None
    try:
        return ZstdDecompressor().decompress(data, max_output_size=size)
    except ZstdError as error:
        raise FormatError(
            f"a fatbin's PTX cannot be decompressed: {error}\nbuild the program again"
        ) from None
