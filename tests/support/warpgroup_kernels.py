"""Kernels of one wgmma or a few, whose matrices are laid out in shared memory by the test itself.

A tile is written here as CUTLASS names its layouts: each element's offset is a sum over the digits of its
row and k, and a swizzle xors bits of the address.
"""

import numpy as np

import simwarp
from simwarp.fragments import fragments_of

ORDER = "wgmma.fence.sync.aligned;\n"
COMMIT = "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
BITS = {"b1": 1, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16, "tf32": 32}


def types_of(opcode):
    """The types of D, A and B."""
    words = opcode.split(".")
    d = fragments_of(opcode).operands["d"].type
    at = words.index(d)
    return words[at : at + 3]


def descriptor(start, leading=0, stride=0, span=0, base=0):
    field = {0: 0, 128: 1, 64: 2, 32: 3}[span]
    return start // 16 | leading // 16 << 16 | stride // 16 << 32 | base << 49 | field << 62


def swizzled(address, span):
    """Swizzle<B, 4, 3> of an address in bytes, with B = 0, 1, 2 or 3."""
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[span]
    source = ((1 << bits) - 1) << 7
    return address ^ (address & source) >> 3


class Tile:
    """A matrix (rows, k bytes) in shared memory, K-major; or MN-major, of 16-bit elements.

    ``leading`` and ``stride`` are the descriptor's offsets.
    """

    def __init__(self, start, rows, span=0, leading=None, stride=None, transposed=False, base=0, k=16):
        self.start, self.rows, self.span, self.transposed, self.base, self.k = (
            start,
            rows,
            span,
            transposed,
            base,
            k,
        )
        if transposed and span:
            self.leading = 8 * span * (k // 8) if leading is None else leading
            self.stride = 8 * span if stride is None else stride
        elif transposed:
            self.stride = 128 * (k // 8) if stride is None else stride
            self.leading = 128 if leading is None else leading
        else:
            self.leading = (128 if not span else 16) if leading is None else leading
            self.stride = (8 * span or 256) if stride is None else stride

    @property
    def word(self):
        return descriptor(self.start, self.leading, self.stride, self.span, self.base)

    def at(self, row, byte):
        """The address of a byte of a row's 32; of a transposed tile ``byte`` is 2 k or 2 k + 1."""
        if not self.transposed:
            pitch = self.span or 16
            chunk = byte // 16 * (16 if self.span else self.leading)
            offset = row % 8 * pitch + row // 8 * self.stride + chunk + byte % 16
        else:
            k, half = divmod(byte, 2)
            if self.span:
                many = self.span // 2
                offset = (
                    row % many * 2 + row // many * self.leading + k % 8 * self.span + k // 8 * self.stride
                )
            else:
                offset = row % 8 * 2 + row // 8 * self.stride + k % 8 * 16 + k // 8 * self.leading
            offset += half
        whole = self.start + offset - 128 * self.base
        return swizzled(whole, self.span) + 128 * self.base

    def write(self, image, rows):
        """Write the tile's bytes, uint8 (rows, 32), to an image of shared memory."""
        for row, line in enumerate(rows):
            for byte, value in enumerate(line):
                image[self.at(row, byte)] = value


def octets(elements, kind):
    """Elements as stored, (rows, k), as bytes (rows, 32)."""
    if kind == "b1":
        return np.packbits(elements.astype(np.uint8), axis=-1, bitorder="little")
    return np.ascontiguousarray(elements).view(np.uint8)


def registers(count, prefix="d"):
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


def kernel(opcode, body, size, in_registers=False, threads=128, align=1024, before=""):
    """A kernel that fills ``tiles``, loads D (and A), runs ``body`` and stores D.

    ``%d…`` are the accumulators, ``%a…`` A's registers, ``%yes`` is true and ``%no`` false.
    """
    count = fragments_of(opcode).operands["d"].layout.registers
    loads = "\n".join(f"ld.global.b32 %d{i}, [%at+{4 * i}];" for i in range(count))
    stores = "\n".join(f"st.global.b32 [%at+{4 * i}], %d{i};" for i in range(count))
    left = ""
    if in_registers:
        left = (
            "ld.param.u64 %b, [a]; mad.wide.u32 %b, %i, 16, %b;\nld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%b];"
        )
    return f"""
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 image, .param .u64 d, .param .u64 a) {{
.reg .pred %yes, %no, %done; .reg .b32 %d<{count}>, %a<4>, %c<{count}>, %i, %t, %n, %r<9>;
.reg .b64 %at, %b, %far, %near, %x, %y;
.shared .align {align} .b8 tiles[{size}];{before}
mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, {threads}, %t;
setp.eq.u32 %yes, 0, 0; setp.ne.u32 %no, 0, 0;
mov.u64 %near, tiles; mad.wide.u32 %near, %t, 4, %near;
mov.u32 %n, %ctaid.x; ld.param.u64 %far, [image]; mad.wide.u32 %far, %n, {size}, %far;
mad.wide.u32 %far, %t, 4, %far;
shl.b32 %n, %t, 2;
FILL: setp.ge.u32 %done, %n, {size}; @%done bra FILLED;
ld.global.b32 %r0, [%far]; st.shared.b32 [%near], %r0;
add.u64 %far, %far, {4 * threads}; add.u64 %near, %near, {4 * threads}; add.u32 %n, %n, {4 * threads};
bra FILL;
FILLED: fence.proxy.async; bar.sync 0;
ld.param.u64 %at, [d]; mad.wide.u32 %at, %i, {4 * count}, %at;
{loads}
{left}
{body}
{stores}
ret;
}}
"""


def launch(text, image, d, a=None, device=None, threads=128):
    """Run a kernel on images (blocks, size) and registers (blocks, threads, …); returns those of D."""
    device = device or simwarp.Device()
    held = device.upload(np.ascontiguousarray(d), "d")
    left = device.upload(np.zeros(1, np.uint32) if a is None else np.ascontiguousarray(a), "a")
    device.load(text).kernel("k")(
        (len(image), 1, 1), (threads, 1, 1), device.upload(image, "image"), held, left
    )
    return held.download()


def immediates(opcode, in_registers=False, signs=(1, 1), transposed=(False, False)):
    """The immediate operands of a product, each behind a comma."""
    kind = types_of(opcode)[1]
    if kind in ("b1", "s8", "u8"):
        return ""
    words = [*signs]
    if kind in ("f16", "bf16"):
        words += [int(t) for t in (transposed[1:] if in_registers else transposed)]
    return "".join(f", {word}" for word in words)


def multiply(
    opcode, a, b, c, left=None, right=None, keeps="%yes", signs=(1, 1), device=None, size=None, shared=True
):
    """D of one product for each of some blocks: elements as stored, A (blocks, 64, k), B (blocks, n, k).

    ``left`` and ``right`` are the tiles; without ``shared`` A is in registers.
    """
    fragments, (_, kind, other) = fragments_of(opcode), types_of(opcode)
    n = fragments.shape.n
    left = left or Tile(0, 64)
    right = right or Tile(64 * 32, n)
    size = size or (64 + n) * 32
    image = np.zeros((len(a), size), np.uint8)
    for one, rows, columns in zip(image, a, b, strict=True):
        left.write(one, octets(rows, kind))
        right.write(one, octets(columns, other))
    d, held = (fragments.operands[name].layout for name in "da")
    in_a = left.word if shared else 0
    given = f"mov.b64 %x, {in_a:#x}; mov.b64 %y, {right.word:#x};"
    more = immediates(opcode, not shared, signs, (left.transposed, right.transposed))
    first = "%x" if shared else registers(4, "a")
    body = (
        f"{given}\n{ORDER}\n{opcode} {registers(d.registers)}, {first}, %y, {keeps}{more};\n{COMMIT}\n{WAIT}"
    )
    text = kernel(opcode, body, size, not shared)
    packed = None if shared else held.pack(a)
    return d.unpack(launch(text, image, d.pack(c), packed, device))
