"""The table of all forms of the matrix instructions.

A line is a group of forms that the same chips have: its name, the first chip and the spelling. ``{.x|.y}`` is
optional, ``<.x|.y>`` is a choice; a choice in the name makes one group for each. The rows of
`simwarp.ptx.instructions.matrix` are made from these lines. Maps (`simwarp.fragments.maps`), sums
(`simwarp.products.rules`) and lowering (`simwarp.chips`) are looked up by shape and types.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

TYPE_BITS = {
    "b1": 1,
    **dict.fromkeys(("s4", "u4"), 4),
    **dict.fromkeys(("s8", "u8", "e4m3", "e5m2"), 8),
    **dict.fromkeys(("b16", "f16", "bf16"), 16),
    **dict.fromkeys(("s32", "f32", "tf32"), 32),
    "f64": 64,
}
"""From type to the bits of an element."""
SHAPE = r"m\d+n\d+(k\d+)?"
"""The regular expression of a shape."""
SECTIONS = {
    "mma": "9.7.14.5",
    "wmma.load": "9.7.14.4.3",
    "wmma.store": "9.7.14.4.4",
    "wmma.mma": "9.7.14.4.5",
    "ldmatrix": "9.7.14.5.15",
    "stmatrix": "9.7.14.5.16",
    "movmatrix": "9.7.14.5.17",
    "wgmma": "9.7.15.5",
}
"""From instruction to the section of the PTX ISA that describes it."""
SPACES = {
    **dict.fromkeys(("wmma.load", "wmma.store"), ("global", "shared", "shared::cta")),
    **dict.fromkeys(("ldmatrix", "stmatrix"), ("shared", "shared::cta")),
}
"""From instruction to the state spaces that it may name; its map does not depend on them."""
ROUNDINGS = ("rn", "rz", "rm", "rp")

_FLOAT = range(8, 257, 8)
_INTEGER = (8, 16, 24, *range(32, 257, 16))
"""The n of wgmma. ptxas 13.0 accepts 240 and 256 for s8 and u8, too, where the PTX ISA ends at 224."""
_PAIRS = [f".{a}.{b}" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
# The abbreviations in the table of `simwarp.fragments.maps`.
_WORDS = {
    "SHAPES": "<.m16n16k16|.m8n32k16|.m32n8k16>",
    "LAYOUTS": "<.row|.col><.row|.col>",
    "LAYOUT": "<.row|.col>",
    "WIDE": "<.m8n8k32|.m8n8k128>",
    "SPACE": "{.global|.shared|.shared::cta}",
    "SHARED": "{.shared|.shared::cta}",
    "SAT": "{.satfinite}",
    "HALVES": "<.f16.f16.f16.f16|.f32.f16.f16.f32>",
    "VOLTA": "<.f16.f16.f16.f16|.f32.f16.f16.f16|.f32.f16.f16.f32>",
    "F8": f"<{'|'.join(f'.{c}{pair}.{c}' for c in ('f16', 'f32') for pair in _PAIRS)}>",
    "BYTES": "<.s32.s8.s8.s32|.s32.s8.u8.s32|.s32.u8.s8.s32|.s32.u8.u8.s32>",
    "NIBBLES": "<.s32.s4.s4.s32|.s32.s4.u4.s32|.s32.u4.s4.s32|.s32.u4.u4.s32>",
    **{
        f"M64K{k}": f"<{'|'.join(f'.m64n{n}k{k}' for n in sizes)}>"
        for k, sizes in ((8, _FLOAT), (16, _FLOAT), (32, _FLOAT), (256, _INTEGER))
    },
    "M64I32": f"<{'|'.join(f'.m64n{n}k32' for n in _INTEGER)}>",
}
_TABLE = """
mma.m8n8k4.f16      | 70 | mma.sync.aligned.m8n8k4 LAYOUTS VOLTA
mma.m16n8k8.f16     | 75 | mma.sync.aligned.m16n8k8.row.col HALVES
mma.m16n8k16.f16    | 80 | mma.sync.aligned.m16n8k16.row.col HALVES
mma.bf16            | 80 | mma.sync.aligned <.m16n8k8|.m16n8k16>.row.col.f32.bf16.bf16.f32
mma.tf32            | 80 | mma.sync.aligned <.m16n8k4|.m16n8k8>.row.col.f32.tf32.tf32.f32
mma.f8              | 89 | mma.sync.aligned <.m16n8k16|.m16n8k32>.row.col F8
mma.m8n8k4.f64      | 80 | mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
mma.f64             | 90 | mma.sync.aligned <.m16n8k4|.m16n8k8|.m16n8k16>.row.col.f64.f64.f64.f64
mma.m8n8k16.s8      | 75 | mma.sync.aligned.m8n8k16.row.col SAT BYTES
mma.s8              | 80 | mma.sync.aligned <.m16n8k16|.m16n8k32>.row.col SAT BYTES
mma.m8n8k32.s4      | 75 | mma.sync.aligned.m8n8k32.row.col SAT NIBBLES
mma.s4              | 80 | mma.sync.aligned <.m16n8k32|.m16n8k64>.row.col SAT NIBBLES
mma.m8n8k128.b1.xor | 75 | mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc
mma.m8n8k128.b1.and | 80 | mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc
mma.b1              | 80 | mma.sync.aligned <.m16n8k128|.m16n8k256>.row.col.s32.b1.b1.s32 <.xor|.and>.popc

wmma.mma.f16          | 70 | wmma.mma.sync.aligned LAYOUTS SHAPES <.f16.f16|.f16.f32|.f32.f16|.f32.f32>
wmma.mma.s8           | 72 | wmma.mma.sync.aligned LAYOUTS SHAPES <.s32.s8.s8.s32|.s32.u8.u8.s32> SAT
wmma.mma.bf16         | 80 | wmma.mma.sync.aligned LAYOUTS SHAPES .f32.bf16.bf16.f32
wmma.mma.tf32         | 80 | wmma.mma.sync.aligned LAYOUTS .m16n16k8.f32.tf32.tf32.f32
wmma.mma.f64          | 80 | wmma.mma.sync.aligned LAYOUTS .m8n8k4 {.rn|.rz|.rm|.rp}.f64.f64.f64.f64
wmma.mma.f64.rounding | 80 | wmma.mma.sync.aligned LAYOUTS .m8n8k4.f64.f64.f64.f64 <.rn|.rz|.rm|.rp>
wmma.mma.s4           | 75 | wmma.mma.sync.aligned.row.col.m8n8k32 <.s32.s4.s4.s32|.s32.u4.u4.s32> SAT
wmma.mma.b1.xor       | 75 | wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32
wmma.mma.b1.and       | 80 | wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32

wmma.load.<a|b>.f16  | 70 | wmma.load.<a|b>.sync.aligned LAYOUT SHAPES SPACE .f16
wmma.load.<a|b>.s8   | 72 | wmma.load.<a|b>.sync.aligned LAYOUT SHAPES SPACE <.s8|.u8>
wmma.load.<a|b>.bf16 | 80 | wmma.load.<a|b>.sync.aligned LAYOUT SHAPES SPACE .bf16
wmma.load.<a|b>.tf32 | 80 | wmma.load.<a|b>.sync.aligned LAYOUT .m16n16k8 SPACE .tf32
wmma.load.<a|b>.f64  | 80 | wmma.load.<a|b>.sync.aligned LAYOUT .m8n8k4 SPACE .f64
wmma.load.a.s4       | 75 | wmma.load.a.sync.aligned.row.m8n8k32 SPACE <.s4|.u4>
wmma.load.b.s4       | 75 | wmma.load.b.sync.aligned.col.m8n8k32 SPACE <.s4|.u4>
wmma.load.a.b1       | 75 | wmma.load.a.sync.aligned.row.m8n8k128 SPACE .b1
wmma.load.b.b1       | 75 | wmma.load.b.sync.aligned.col.m8n8k128 SPACE .b1

wmma.<load.c|store.d>.f16          | 70 | wmma.<load.c|store.d>.sync.aligned LAYOUT SHAPES SPACE .f16
wmma.<load.c|store.d>.f32          | 70 | wmma.<load.c|store.d>.sync.aligned LAYOUT SHAPES SPACE .f32
wmma.<load.c|store.d>.m16n16k8.f32 | 80 | wmma.<load.c|store.d>.sync.aligned LAYOUT .m16n16k8 SPACE .f32
wmma.<load.c|store.d>.s32          | 72 | wmma.<load.c|store.d>.sync.aligned LAYOUT SHAPES SPACE .s32
wmma.<load.c|store.d>.m8n8.s32     | 75 | wmma.<load.c|store.d>.sync.aligned LAYOUT WIDE SPACE .s32
wmma.<load.c|store.d>.f64          | 80 | wmma.<load.c|store.d>.sync.aligned LAYOUT .m8n8k4 SPACE .f64

ldmatrix        | 75 | ldmatrix.sync.aligned.m8n8 <.x1|.x2|.x4>{.trans} SHARED .b16
ldmatrix.number | 75 | ldmatrix.sync.aligned <.x1|.x2|.x4>{.trans}.m8n8 SHARED .b16
stmatrix        | 90 | stmatrix.sync.aligned.m8n8 <.x1|.x2|.x4>{.trans} SHARED .b16
stmatrix.number | 90 | stmatrix.sync.aligned <.x1|.x2|.x4>{.trans}.m8n8 SHARED .b16
movmatrix       | 75 | movmatrix.sync.aligned.m8n8.trans.b16

wgmma.f16          | 90a | wgmma.mma_async.sync.aligned M64K16 <.f16|.f32>.f16.f16
wgmma.bf16         | 90a | wgmma.mma_async.sync.aligned M64K16.f32.bf16.bf16
wgmma.tf32         | 90a | wgmma.mma_async.sync.aligned M64K8.f32.tf32.tf32
wgmma.f8           | 90a | wgmma.mma_async.sync.aligned M64K32 <.f16|.f32><.e4m3|.e5m2><.e4m3|.e5m2>
wgmma.s8           | 90a | wgmma.mma_async.sync.aligned M64I32 SAT .s32 <.s8|.u8><.s8|.u8>
wgmma.s8.satfinite | 90a | wgmma.mma_async.sync.aligned M64I32.s32 <.s8|.u8><.s8|.u8><.satfinite>
wgmma.b1           | 90a | wgmma.mma_async.sync.aligned M64K256.s32.b1.b1.and.popc
"""


class Group(NamedTuple):
    """A line of the table: forms that the same chips have."""

    name: str
    target: str
    spelling: str

    @property
    def minimum_sm(self) -> int:
        """The number in the target's name, such as 90 for "sm_90a"."""
        return int(self.target[3:].rstrip("a"))

    @property
    def instruction(self) -> str:
        """The name of the group's instruction, a key of `SECTIONS`."""
        return next(name for name in SECTIONS if f"{self.spelling}.".startswith(f"{name}."))

    def opcodes(self) -> list[str]:
        """All opcodes of the group, without state space and optional rounding."""
        parts = re.split(r"<(.*?)>|\{(.*?)\}", self.spelling)
        choices = [[part] if part else [""] for part in parts[::3]]
        for i, (required, optional) in enumerate(zip(parts[1::3], parts[2::3], strict=True)):
            words = required.split("|") if required else [""]
            if optional in (".satfinite", ".trans"):
                words = ["", optional]
            choices.insert(2 * i + 1, words)
        return ["".join(chosen) for chosen in itertools.product(*choices)]


def _read(table: str) -> Iterator[Group]:
    for line in filter(None, table.splitlines()):
        choice = re.match(r"[^ ]*(<(.*?)>)", line)
        for chosen in choice[2].split("|") if choice else [""]:
            written = line.replace(choice[1], chosen) if choice else line
            name, sm, spelling = (part.strip() for part in written.split(" | "))
            whole = re.sub(r"[A-Z][A-Z0-9]+", lambda word: _WORDS[word[0]], spelling).replace(" ", "")
            yield Group(name, f"sm_{sm}", whole)


GROUPS = tuple(_read(_TABLE))


@cache
def by_words() -> dict[object, tuple[str, Group]]:
    """The words of a form (`words_of`) → its first spelling and its group."""
    found: dict[object, tuple[str, Group]] = {}
    for group in GROUPS:
        for opcode in group.opcodes():
            found.setdefault(words_of(opcode), (opcode, group))
    return found


def words_of(opcode: str) -> tuple[object, ...]:
    """The words of an opcode, without state space and rounding: types and layouts in order, others sorted."""
    words = opcode.split(".")
    types = tuple(w for w in words if w in TYPE_BITS)
    layouts = tuple(w for w in words if w in ("row", "col"))
    others = sorted(w for w in words[1:] if w not in (*types, *layouts))
    optional = next((s for name, s in SPACES.items() if opcode.startswith(name)), ())
    if types == ("f64",) * 4:
        optional = ROUNDINGS
    chosen = next((w for w in others if w in optional), None)
    if chosen is not None:
        others.remove(chosen)
    return words[0], types, layouts, tuple(others)
