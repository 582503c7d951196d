"""Requests of the runtime in the program's process, and the replies of the server.

One table of requests serves both sides: the runtime's C source is compiled with the header that `c_header`
writes. Both run on one machine, so numbers are in its byte order.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from reference.errors import SimwarpError
from simwarp.ptx.spaces import WINDOW as SPACE_SIZE
from simwarp.ptx.spaces import WINDOWS

WINDOW, WINDOW_SIZE = 0x2000_0000_0000, 0x1000_0000_0000
"""Addresses of the simulated device: a range in which the program's process keeps nothing of its own."""
PAGE = 4096
"""Allocations start at multiples of this, so that each can be mapped into the program's process."""
FD_VARIABLE = "SIMWARP_EXEC_FD"
"""The environment variable with the number of the runtime's end of the socket."""
MOST_ARGUMENTS, MOST_VALUES = 6, 5

Data: TypeAlias = bytes | bytearray
_REQUEST = struct.Struct(f"=IIQ{MOST_ARGUMENTS}Q")
_REPLY = struct.Struct(f"=iIQ{MOST_VALUES}Q")


class Request(IntEnum):
    """The requests of the runtime, with their arguments, data → values, data of the reply."""

    HELLO = 1
    """→ facts of the chip, see `simwarp.exec.chip_facts`."""
    LOAD = 2
    """data: fatbins, or the text of PTX → its number."""
    FUNCTION = 3
    """module, data: name → number of the function; sizes, then offsets of its parameters, 4 bytes each."""
    VARIABLE = 4
    """module, data: name → generic address, size."""
    LAUNCH = 5
    """data: ``struct launch``, then the arguments' bytes without gaps."""
    ATTRIBUTES = 6
    """function → registers, bytes shared, local, most threads per block, bytes constant in its module."""
    DYNAMIC_SHARED = 7
    """function, bytes of dynamic shared memory that launches may ask for."""
    OCCUPANCY = 8
    """function, threads per block, dynamic shared bytes, blocks per cluster → blocks per multiprocessor."""
    MALLOC = 9
    """size, address or 0 → address."""
    SHARE = 10
    """size, kind, address or 0; a file descriptor of the pages → address."""
    SHARE_VARIABLE = 11
    """module, data: name; a file descriptor of the pages → address."""
    FREE = 12
    """address."""
    WRITE = 13
    """address, pitch, width, height; data: the rows."""
    READ = 14
    """address, pitch, width, height → data: the rows."""
    COPY = 15
    """destination, its pitch, source, its pitch, width, height."""
    FILL = 16
    """address, pitch, width, height, value, bytes of the value."""
    FIND = 17
    """address → start, size and kind of its allocation, 0 if there is none."""
    MEMORY = 18
    """→ bytes free, bytes in all."""
    MISSING = 19
    """data: the name of a function that this runtime lacks."""
    FAILED = 20
    """data: the names of a function and of the error that it returned, with a blank between."""
    HOST_ACCESS = 21
    """address, 1 for a write: the host is about to crash on it."""
    TENSOR_MAP = 22
    """data: ``struct tiled`` → the 128 bytes of a tensor map."""
    LIMIT = 23
    """a limit of ``enum cudaLimit``, its value."""
    TEXTURE = 24
    """data: ``struct described`` → the handle of a texture."""
    SURFACE = 25
    """data: ``struct described`` → the handle of a surface."""
    FORGET = 26
    """the handle of a texture or surface."""
    LINK = 40
    """most registers or 0, data: fatbins or texts, each behind its size in 8 bytes → one text and a zero."""


class Kind(IntEnum):
    """The kind of an allocation: device, managed, pinned or registered host memory."""

    DEVICE = 1
    MANAGED = 2
    PINNED = 3
    REGISTERED = 4


@dataclass
class Message:
    """A request that the runtime in the program sent: a CUDA call with its arguments and data."""

    request: Request
    arguments: Sequence[int]
    data: Data = b""
    descriptor: int | None = None


@dataclass
class Reply:
    """A reply to a request: an error code of CUDA, numbers, bytes, and text that a kernel printed."""

    error: int = 0
    values: Sequence[int] = ()
    data: Data = b""
    text: str = field(default="")


class ProtocolError(SimwarpError):
    """Bytes on the socket that are not a request."""


def c_header() -> str:
    """The C header with the requests, kinds and constants of this module."""
    lines = [
        "/* Written by simwarp/exec/protocol.py. */",
        f"#define DEVICE_WINDOW {WINDOW:#x}ull",
        f"#define DEVICE_WINDOW_SIZE {WINDOW_SIZE:#x}ull",
        f"#define CONSTANT_WINDOW {WINDOWS['const']:#x}ull",
        f"#define CONSTANT_WINDOW_SIZE {SPACE_SIZE:#x}ull",
        f"#define DEVICE_PAGE {PAGE}",
        f'#define FD_VARIABLE "{FD_VARIABLE}"',
        f"enum {{ MOST_ARGUMENTS = {MOST_ARGUMENTS}, MOST_VALUES = {MOST_VALUES} }};",
        "enum request {",
        *(f"    ASK_{one.name} = {one.value}," for one in Request),
        "};",
        "enum kind {",
        *(f"    KIND_{one.name} = {one.value}," for one in Kind),
        "};",
    ]
    return "\n".join(lines) + "\n"


def receive(end: socket.socket) -> Message | None:
    """The next request; None if the program has closed its end; ProtocolError for invalid bytes."""
    head, descriptors, _, _ = socket.recv_fds(end, _REQUEST.size, 1)
    descriptor = descriptors[0] if descriptors else None
    rest = _exactly(end, _REQUEST.size - len(head)) if head else None
    if rest is None:
        return None
    number, _, size, *arguments = _REQUEST.unpack(head + rest)
    if number not in Request._value2member_map_:
        if descriptor is not None:
            os.close(descriptor)
        raise ProtocolError(
            f"request {number} of the program's runtime is not known\n"
            f"requests are 1 to {max(Request)}\nremove the folder exec of the cache and run it again"
        )
    data = _exactly(end, size)
    return None if data is None else Message(Request(number), arguments, data, descriptor)


def send(end: socket.socket, reply: Reply) -> None:
    """Send a reply to the runtime, over its socket."""
    text = reply.text.encode()
    values = (*reply.values, *[0] * (MOST_VALUES - len(reply.values)))
    end.sendall(_REPLY.pack(reply.error, len(text), len(reply.data), *values) + text)
    if reply.data:
        end.sendall(reply.data)


def pack_request(request: int, arguments: Sequence[int] = (), data: bytes = b"") -> bytes:
    """Encode a request as the runtime sends it, for tests and tools."""
    return _REQUEST.pack(request, 0, len(data), *arguments, *[0] * (MOST_ARGUMENTS - len(arguments))) + data


def unpack_reply(end: socket.socket) -> Reply | None:
    """Decode a reply as the runtime reads it, for tests and tools."""
    head = _exactly(end, _REPLY.size)
    if head is None:
        return None
    error, text_size, size, *values = _REPLY.unpack(head)
    text, data = _exactly(end, text_size), _exactly(end, size)
    return None if text is None or data is None else Reply(error, values, data, text.decode())


def _exactly(end: socket.socket, size: int) -> bytearray | None:
    """Read exactly ``size`` bytes from a socket; None if the other end is closed first."""
    found = bytearray(size)
    view, have = memoryview(found), 0
    while have < size:
        got = end.recv_into(view[have:])
        if not got:
            return None
        have += got
    return found
