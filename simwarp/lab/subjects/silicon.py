"""The subject that records hardware's behaviour where the PTX ISA leaves it open, by small kernels.

The only parameter of each kernel is the pointer ``out``, to two words for each thread.

>>> import simwarp
>>> answer(simwarp.Device(), "match in both branches")[0]
[4294967295, 0]
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from simwarp.lab.recording import Answers, Asking, Subject

HEAD = """.version 8.1
.target sm_90
.address_size 64
.visible .entry ask(.param .u64 out) {
.reg .pred %p, %q; .reg .b32 %t, %a, %b, %r, %s; .reg .f32 %f, %g; .reg .b64 %at, %k, %x;
.shared .align 16 .b8 cells[1024];
mov.u32 %t, %tid.x; ld.param.u64 %at, [out]; mul.wide.u32 %k, %t, 8; add.u64 %at, %at, %k;
and.b32 %a, %t, 1; setp.ne.u32 %p, %a, 0; mov.u32 %r, 0; mov.u32 %s, 0;
"""
TAIL = "\nst.global.u32 [%at], %r; st.global.u32 [%at+4], %s; ret; }\n"
CELL = "mov.u64 %x, cells; mul.wide.u32 %k, %t, 8; add.u64 %x, %x, %k; "


def both(even: str, odd: str) -> str:
    """PTX that executes ``even`` in the even lanes and ``odd`` in the odd lanes."""
    return f"@%p bra ODD;\n{even}\nbra END;\nODD: {odd}\nEND:"


def f32_add(space: str, old: int, b: int) -> str:
    """PTX of an atomic f32 addition of two bit patterns; returns the old value and the sum in memory."""
    cell = {"global": "mov.u64 %x, %at;", "generic": CELL + "cvta.shared.u64 %x, %x;", "shared": CELL}[space]
    suffix = "" if space == "generic" else f".{space}"
    return (
        f"{cell} mov.b32 %f, {old:#x}; mov.b32 %g, {b:#x}; st{suffix}.b32 [%x], %f; "
        f"atom{suffix}.add.f32 %f, [%x], %g; mov.b32 %r, %f; ld{suffix}.u32 %s, [%x];"
    )


CASES = {
    "ballot in both branches": both("vote.sync.ballot.b32 %r, %p, -1;", "vote.sync.ballot.b32 %r, 1, -1;"),
    "shuffle in both branches": both(
        "add.u32 %b, %t, 100; shfl.sync.bfly.b32 %r|%q, %b, 1, 31, -1; selp.u32 %s, 1, 0, %q;",
        "add.u32 %b, %t, 200; shfl.sync.bfly.b32 %r|%q, %b, 1, 31, -1; selp.u32 %s, 1, 0, %q;",
    ),
    "redux in both branches": both("redux.sync.add.u32 %r, 1, -1;", "redux.sync.add.u32 %r, 100, -1;"),
    "match in both branches": both("match.any.sync.b32 %r, 7, -1;", "match.any.sync.b32 %r, 7, -1;"),
    "warp barrier in both branches": both(
        "bar.warp.sync -1; mov.u32 %r, 1;", "bar.warp.sync -1; mov.u32 %r, 2;"
    ),
    "block barrier at two places": (
        "shr.u32 %a, %t, 5; setp.ne.u32 %q, %a, 0; @%q bra TWO; bar.sync 0; mov.u32 %r, 1; bra END;\n"
        "TWO: bar.sync 0; mov.u32 %r, 2; END:"
    ),
    "elect among all": "elect.sync %r|%q, -1; selp.u32 %s, 1, 0, %q;",
    "elect among odd lanes": "@!%p bra END; elect.sync %r|%q, 0xAAAAAAAA; selp.u32 %s, 1, 0, %q; END:",
    "vote.uni where nothing holds": (
        "setp.ne.u32 %q, %t, %t; vote.sync.uni.pred %q, %q, -1; selp.u32 %r, 1, 0, %q;"
    ),
    "isspacep of shared memory": (
        "mov.u64 %x, cells; cvta.shared.u64 %x, %x; isspacep.shared %q, %x; selp.u32 %r, 1, 0, %q;\n"
        "isspacep.global %q, %x; selp.u32 %s, 1, 0, %q;"
    ),
    "the reserved part of shared memory lies apart from a kernel's own": (
        "mov.u32 %a, %reserved_smem_offset_begin; mov.u32 %b, %reserved_smem_offset_end; mov.u64 %x, cells;\n"
        "cvt.u32.u64 %r, %x; setp.ge.u32 %p, %r, %b; add.u32 %r, %r, 1024; setp.le.or.u32 %p, %r, %a, %p;\n"
        "selp.u32 %r, 1, 0, %p; mov.u32 %s, %reserved_smem_offset_cap;"
    ),
    "%reserved_smem_offset_1 lies in it, and its first bytes are zero": (
        "mov.u32 %a, %reserved_smem_offset_begin; mov.u32 %b, %reserved_smem_offset_end;\n"
        "mov.u32 %s, %reserved_smem_offset_1; setp.ge.u32 %p, %s, %a; setp.lt.and.u32 %p, %s, %b, %p;\n"
        "ld.volatile.shared.u32 %r, [%s]; selp.u32 %s, 1, 0, %p;"
    ),
    "the sizes of shared memory": (
        "mov.u32 %r, %total_smem_size; mov.u32 %s, %aggr_smem_size; sub.u32 %s, %s, %r;"
    ),
    **{
        f"atom.add.f32 in {space} memory, {what}": f32_add(space, *words)
        for space in ("global", "shared", "generic")
        for what, words in {
            "subnormals": (1, 2),
            "a NaN": (0x3F800000, 0x7F812345),
            "to a subnormal": (0x00800000, 0x807FFFFF),
        }.items()
    },
    "add.ftz.f32 of what becomes subnormal": (
        "mov.b32 %f, 0x00800001; mov.b32 %g, 0x80800000; add.ftz.f32 %f, %f, %g; mov.b32 %r, %f;"
    ),
}
"""By name, the body of a kernel of 64 threads that leaves its results in ``%r`` and ``%s``."""
THREADS = 64


def text(name: str) -> str:
    """The PTX text of a case's kernel."""
    return HEAD + CASES[name] + TAIL


def answer(device: Any, name: str) -> list[list[int]]:
    """Launch a case's kernel; return the two words of each thread."""
    out = device.upload(np.zeros((THREADS, 2), np.uint32))
    device.load(text(name)).kernel("ask")((1, 1, 1), (THREADS, 1, 1), out)
    return out.download().tolist()


def digest() -> str:
    """The SHA-256 of the PTX of all cases' kernels."""
    return hashlib.sha256("".join(map(text, CASES)).encode()).hexdigest()


def ask(asking: Asking) -> Answers:
    """Launch the kernel of every case on the device, and record the outputs."""
    answers = {name: answer(asking.device, name) for name in asking.each(list(CASES))}
    return Answers({"answers": answers}, ptx={"kernels": digest()})


SUBJECTS = [Subject("silicon", "what the PTX ISA leaves open", ask)]
