"""Fatbins written byte by byte."""

import struct

PTX = 1
LZ4, ZSTD = 1 << 13, 1 << 15


def entry(payload: bytes, kind: int = PTX, arch: int = 90, flags: int = 0x11, whole: int = 0) -> bytes:
    size = -(-len(payload) // 8) * 8
    packed = len(payload) if flags & (LZ4 | ZSTD) else 0
    head = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, size, packed, 0, 0, 9, arch, 0, 0, flags, 0, whole)
    return head + payload.ljust(size, b"\0")


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
