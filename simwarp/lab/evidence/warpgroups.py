"""Probes of wgmma: a block is one warpgroup; its matrices are in shared memory without a swizzle.

A product is issued two times: with A from shared memory, its 32 bytes of k in two core matrices that follow
one another; then with A in registers, negated if the form has signs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simwarp.fragments import fragments_of
from simwarp.fragments.descriptors import descriptor
from simwarp.lab.evidence.matrix import register
from simwarp.lab.evidence.operands import Words
from simwarp.lab.evidence.probe import BLOCK, Probe, Writer
from simwarp.lab.evidence.styles import styles_of
from simwarp.ptx.kinds import WARPGROUP_PRODUCT
from simwarp.ptx.rows import Form, Row
from simwarp.verify.draw import Draw

_TARGET = "sm_90a"
_COUNT = 2 * BLOCK
_A_WORDS = 4
_A_BYTES = 64 * 32
_PLAIN = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8"


def product(row: Row, form: Form) -> Probe:
    """Probe a product, with and without A in registers; for a fence or a wait, one of bytes."""
    opcode = form.opcode if row.kind is WARPGROUP_PRODUCT else _PLAIN
    fragments = fragments_of(opcode)
    n, registers = fragments.shape.n, fragments.operands["d"].layout.registers
    writer = Writer(form.opcode, least=32)
    a = [writer.take(f"a{i}", "b32") for i in range(_A_WORDS)]
    b = [writer.take(f"b{i}", "b32") for i in range(-(-n // 16))]
    writer.take("c", "b32")
    writer.declare("b64 tile at_a at_b left right, pred more")
    writer.declarations.append(f".shared .align 128 .b8 tiles[{_A_BYTES + 512 * len(b)}];")
    writer.line("mov.u64 %tile, tiles; mad.wide.u32 %at_a, %thread, 4, %tile;")
    writer.line(*(f"st.shared.b32 [%at_a+{512 * i}], {name};" for i, name in enumerate([*a, *b])))
    writer.line("fence.proxy.async; bar.sync 0;")
    fields = descriptor(0, 128, 256)
    for name, offset in (("left", 0), ("right", _A_BYTES)):
        writer.line(f"add.u64 %{name}, %tile, {offset}; shr.u64 %{name}, %{name}, 4;")
        writer.line(f"or.b64 %{name}, %{name}, {fields:#x};")
    d = [writer.register(f"d{i}", "b32") for i in range(registers)]
    writer.line(*(f"mov.b32 {name}, %c;" for name in d), "setp.eq.u32 %more, 0, 0;")
    signs, transposes = _immediates(fragments.operands["a"].type)
    writer.line("wgmma.fence.sync.aligned;")
    for left, sign, none in (("%left", "1", 2), (f"{{{', '.join(a)}}}", "-1", 1)):
        given = [
            f"{{{', '.join(d)}}}",
            left,
            "%right",
            "%more",
            *(sign, "1")[: 2 * signs],
            *("0",) * none * transposes,
        ]
        writer.line(f"{opcode} {', '.join(given)};")
    writer.line("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")
    writer.give("b32", *(name.removeprefix("%") for name in d))
    return writer.probe(count=_COUNT, target=_TARGET)


def _immediates(kind: str) -> tuple[bool, bool]:
    """Whether a form on a type has immediate signs, and transposes."""
    return kind not in ("b1", "s8", "u8"), kind in ("f16", "bf16")


def operands(probe: Probe, form: Form) -> Words:
    """Operand tuples for whole warpgroups; in each the matrices share one style of elements."""
    draw = Draw(0, f"matrices of {probe.form}", 0)
    fragments = fragments_of(form.opcode)
    d, a = (fragments.operands[name] for name in "da")
    words = fragments.opcode.split(".")
    by_name = {
        "a": a,
        "b": replace(a, name="b", type=words[words.index(d.type) + 2]),
        "c": replace(d, name="c"),
    }
    styles = styles_of(a.type)
    groups = [
        [register(styles[(5 * k) % len(styles)], draw, by_name[column.name[0]]) for column in probe.operands]
        for k in range(probe.count // BLOCK)
    ]
    return np.concatenate([np.stack(columns, axis=1) for columns in groups])
