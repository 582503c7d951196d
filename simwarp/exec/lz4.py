"""Decompression of an LZ4 block.

Source: LZ4 Block Format Description, github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
"""

from __future__ import annotations

from reference.errors import FormatError


def decompress_block(data: bytes, size: int) -> bytes:
    """Decompress a block of a known size; FormatError if it is not whole.

    >>> decompress_block(bytes([0x35]) + b"abc" + bytes([3, 0]), 12)
    b'abcabcabcabc'
    """
    found, at = bytearray(), 0
    try:
        while len(found) < size:
            token, at = data[at], at + 1
            length, at = _length(data, at, token >> 4)
            literals = data[at : at + length]
            found, at = found + literals, at + length
            if len(literals) < length or len(found) >= size:
                break
            offset, at = int.from_bytes(data[at : at + 2], "little"), at + 2
            length, at = _length(data, at, token & 15)
            if not 0 < offset <= len(found):
                break
            for _ in range(length + 4):  # a match may overlap what it makes
                found.append(found[-offset])
    except IndexError:
        found.clear()
    if len(found) != size:
        raise FormatError(
            f"an LZ4 block of {len(data)} bytes is not whole\n"
            f"it should give {size} bytes\nbuild the program again"
        )
    return bytes(found)


def _length(data: bytes, at: int, first: int) -> tuple[int, int]:
    """A length that starts with four bits, and the position behind it."""
    length = first
    if first == 15:
        more = 255
        while more == 255:
            more, at = data[at], at + 1
            length += more
    return length, at
