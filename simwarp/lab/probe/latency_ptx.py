"""Bodies of the kernels of `simwarp.lab.probe.latency`: accesses and products between two reads of the clock.

A body runs its turns in a loop: the first with a cold instruction cache, the second on memory that no turn
has read before, the third on the same memory. Memory holds zeros, which the compiler does not know: an
operand plus a loaded value is there when the load is, and not before. The clock's highest bit serves
likewise. A jump that no value takes keeps the second read of the clock behind the last result.
"""

from __future__ import annotations

from simwarp.fragments import Fragments
from simwarp.lab.probe.ptx import declare, vector

TURNS, LINKS = 3, 8
"""Turns of a kernel, and accesses of a turn."""
FENCES = {"global": "membar.gl;", "shared": "membar.cta;"}
ACCESSES = {
    ("load", "global"): ("wmma.load.a.sync.aligned.row.m8n8k128.global.b1",),
    ("load", "shared"): (
        "wmma.load.a.sync.aligned.row.m8n8k128.shared.b1",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16",
    ),
    ("store", "global"): ("wmma.store.d.sync.aligned.row.m8n8k128.global.s32",),
    ("store", "shared"): ("wmma.store.d.sync.aligned.row.m8n8k128.shared.s32",),
}
_SIDE = 8


def products(capability: tuple[int, int]) -> list[str]:
    """The products of bits that a chip's tensor cores have: xor before Hopper, and from Hopper on."""
    operation = "xor" if capability < (9, 0) else "and"
    wmma = f"wmma.mma.{operation}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32"
    mma = f"mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.{operation}.popc"
    return [wmma] if capability < (8, 0) else [wmma, mma]


def tile_bytes(opcode: str, stride: int) -> int:
    """The distance of two tiles: 8 rows, of bits in a load, of integers in a store."""
    return _SIDE * stride * 4 if "store" in opcode else _SIDE * stride // 8


def access(opcode: str, memory: str, stride: int) -> str:
    """Loads, each at an address plus what the load before gave; or stores, each with a fence behind it."""
    tile, store = tile_bytes(opcode, stride), "store" in opcode
    word = "u64" if memory == "global" else "u32"
    lines: list[str] = []
    for link in range(LINKS):
        place = f"[%from+{link * tile}]" if memory == "global" else "[%from]"
        if store:
            lines.append(f"{opcode} {place}, {{%held0, %held1}}, %stride; {FENCES[memory]}")
            continue
        lines.append(f"{opcode} {{%held0}}, {place}{'' if 'ldmatrix' in opcode else ', %stride'};")
        value = "%held0"
        if memory == "global":
            lines.append("cvt.u64.u32 %wide, %held0;")
            value = "%wide"
        lines.append(f"add.{word} %from, %from, {value};")
    late = "%late" if memory == "global" else "%held1"
    head = f"""
.reg .b32 %stride, %held<2>; .reg .{word} %from; .reg .b64 %wide;
mov.u32 %stride, {stride}; mov.u32 %held0, %lane; mov.u32 %held1, %lane;
{_shared_tile(tile, opcode, stride) if memory == "shared" else ""}"""
    first = "min.u32 %region, %turn, 1; " + (
        f"mad.wide.u32 %from, %region, {LINKS * tile}, %tiles;"
        if memory == "global"
        else "mov.u32 %from, %first;"
    )
    narrow = "" if memory == "global" else "cvt.u32.u64 %held1, %late;"
    begin = f"{narrow} add.{word} %from, %from, {late};"
    return _timed(head, first, begin, lines, f"setp.eq.{word} %never, %from, 1;")


def fences(fence: str) -> str:
    """As many fences as `access` has, with nothing before them."""
    return _timed("", "", "", [fence] * LINKS, "setp.eq.u64 %never, %late, 1;")


def product(fragments: Fragments, count: int, *, shared: bool) -> str:
    """Products of the same operands, into one accumulator or into one each."""
    a, b, c = (fragments.operands[name] for name in "abc")
    accumulators = 1 if shared else count
    registers = c.layout.registers
    of = [[f"%d{i}_{j}" for j in range(registers)] for i in range(accumulators)]
    every = [name for names in of for name in names]
    ready = [
        f"mov.b32 %{operand.name}{i}, %word;" for operand in (a, b) for i in range(operand.layout.registers)
    ]
    ready += [f"add.u32 {name}, %word, {number};" for number, name in enumerate(every)]
    head = f"""{declare(a)} {declare(b)} .reg .b32 {", ".join(every)}, %word, %more, %sum;
ld.global.u32 %word, [%tiles];
{" ".join(ready)}"""
    lines = [
        f"{fragments.opcode} {{{', '.join(d)}}}, {vector(a)}, {vector(b)}, {{{', '.join(d)}}};"
        for d in (of[i % accumulators] for i in range(count))
    ]
    begin = "cvt.u32.u64 %more, %late; add.u32 %b0, %b0, %more;"
    last = of[(count - 1) % accumulators][0]
    sums = " ".join(["mov.u32 %sum, 0;", *(f"add.u32 %sum, %sum, {name};" for name in every)])
    used = f"{sums} mad.wide.u32 %at, %lane, 8, %clocks; st.global.u32 [%at+{8 * TURNS}], %sum;"
    return f"{_timed(head, '', begin, lines, f'setp.eq.u32 %never, {last}, -1;')}\n{used}"


def _timed(head: str, first: str, begin: str, lines: list[str], end: str) -> str:
    """Turns of ``lines`` between two reads of the clock; ``end`` sets ``%never`` from the last result."""
    body = "\n".join(lines)
    return f"""{head}
.reg .b32 %turn, %region; .reg .b64 %began, %ended, %late; .reg .pred %again, %never, %leader;
mov.u32 %turn, 0; setp.eq.u32 %leader, %lane, 0;
again:
{first}
mov.u64 %began, %clock64;
shr.u64 %late, %began, 63;
{begin}
{body}
{end}
@%never exit;
mov.u64 %ended, %clock64;
sub.u64 %ended, %ended, %began;
mad.wide.u32 %at, %turn, 8, %clocks;
@%leader st.global.u64 [%at], %ended;
add.u32 %turn, %turn, 1; setp.lt.u32 %again, %turn, {TURNS};
@%again bra again;"""


def _shared_tile(size: int, opcode: str, stride: int) -> str:
    """A tile of zeros in shared memory, and its address in ``%first``; a lane's own row for ldmatrix."""
    row = f"and.b32 %cell, %lane, {_SIDE - 1}; mad.lo.u32 %first, %cell, {stride // 8}, %first;"
    return f""".shared .align 32 .b8 tile[{size}]; .reg .b32 %first, %cell, %last; .reg .pred %fill;
mov.u32 %first, tile; add.u32 %last, %first, {size}; mad.lo.u32 %cell, %lane, 4, %first;
zero:
st.shared.u32 [%cell], 0; add.u32 %cell, %cell, {4 * 32};
setp.lt.u32 %fill, %cell, %last; @%fill bra zero;
bar.sync 0;
{row if "ldmatrix" in opcode else ""}"""
