"""Decompression of an LZ4 block.

Source: LZ4 Block Format Description, github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
"""

from __future__ import annotations

from reference.errors import FormatError


def decompress_block(data: bytes, size: int) -> bytes:
    """Decompress an LZ4 block to ``size`` bytes; FormatError if the block is cut off.

    >>> decompress_block(bytes([0x35]) + b"abc" + bytes([3, 0]), 12)
    b'abcabcabcabc'
    """
    output, at = bytearray(), 0
    try:
        while len(output) < size:
            token, at = data[at], at + 1
            length, at = _length(data, at, token >> 4)
            literals = data[at : at + length]
            output, at = output + literals, at + length
            if len(literals) < length or len(output) >= size:
                break
            offset, at = int.from_bytes(data[at : at + 2], "little"), at + 2
            length, at = _length(data, at, token & 15)
            if not 0 < offset <= len(output):
                break
            for _ in range(length + 4):  # a match may overlap its own output
                output.append(output[-offset])
    except IndexError:
        output.clear()
    if len(output) != size:
        raise FormatError(
            f"an LZ4 block of {len(data)} bytes is not whole\n"
            f"it should give {size} bytes\nbuild the program again"
        )
    return bytes(output)


def _length(data: bytes, at: int, first: int) -> tuple[int, int]:
    """A length whose first four bits are ``first``, and the position after it."""
    length = first
    if first == 15:
        more = 255
        while more == 255:
            more, at = data[at], at + 1
            length += more
    return length, at
