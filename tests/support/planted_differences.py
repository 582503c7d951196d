"""Kernels, and edits of their PTX: the second device runs one instruction that the simulator does not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from simwarp.device.device import Device
from simwarp.run import Both, Compared, Out, Source
from simwarp.run.both.compare import hold
from simwarp.run.both.devices import Second
from simwarp.run.kernel import run_on
from simwarp.run.source import from_ptx, from_text
from simwarp.run.work import Work

THREADS = 64
FLOATS = {
    "y": Out("float32", THREADS),
    "x": np.linspace(-3, 5, THREADS, dtype=np.float32),
}
INTEGERS = {
    "y": Out("int32", THREADS),
    "x": np.arange(THREADS, dtype=np.int32) * 37 % 101,
}


@dataclass(frozen=True)
class Planted:
    """The body of a kernel, and an edit of its PTX: what comes first in both, and parts there."""

    body: str
    old: str  # a pattern in the PTX
    new: str
    element: str
    text: str  # in the instruction
    what: str = "register"
    args: Mapping[str, Any] = field(default_factory=lambda: INTEGERS)
    before: str = ""  # the kernel
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the place, or of the part

    @property
    def code(self) -> str:
        """The CUDA C++; ``y`` and ``x`` are arrays, ``i`` is the thread."""
        kind = "float" if self.args["x"].dtype == np.float32 else "int"
        head = f'extern "C" __global__ void k({kind}* y, const {kind}* x)'
        return f"{self.before}\n{head} {{\n  int i = threadIdx.x;\n  {self.body}\n}}\n"


TIMES_11 = r"(mul\.lo\.s32[^;]*), 11;"
PLANTED: dict[str, Planted] = {
    "a rounding": Planted(
        "y[i] = __fadd_rn(x[i], 0.1f);", r"add\.rn\.f32", "add.rz.f32", "y[0]", "add.rn.f32", args=FLOATS
    ),
    "a swapped lane": Planted(
        "y[i] = __shfl_xor_sync(~0u, x[i], 1);",
        *(r"(shfl\.sync\.bfly\.b32\s+\S+, \S+), \S+,", r"\1, 2,", "y[0]", "shfl.sync.bfly.b32"),
    ),
    "a wrong stride": Planted(
        "y[i] = x[(i * 3) & 63];", r"(mul\.lo\.s32[^;]*), 12;", r"\1, 20;", "y[1]", "mul.lo.s32"
    ),
    "a dropped predicate": Planted(
        'y[i] = 0; asm volatile("{.reg .pred p; setp.gt.f32 p, %1, 0f00000000; @p st.global.f32 [%0], %1;}"'
        ' :: "l"(y + i), "f"(x[i]) : "memory");',
        *(r"@p st\.global", "st.global", "y[0]", "@p st.global.f32", "guard"),
        args=FLOATS,
    ),
    "a wrong shift": Planted(
        "y[i] = (unsigned)x[i] >> 3;", r"(shr\.u32[^;]*), 3;", r"\1, 4;", "y[1]", "shr.u32"
    ),
    "a changed constant": Planted(
        "y[i] = x[i] ^ 85;", r"(xor\.b32[^;]*), 85;", r"\1, 84;", "y[0]", "xor.b32"
    ),
    "a min for a max": Planted(
        "float m = x[i];\n#pragma unroll 1\n"
        "for (int j = 0; j < 5; j++) m = fmaxf(m, x[(i * j) & 63]); y[i] = m;",
        *(r"max\.f32", "min.f32", "y[1]", "max.f32"),
        args=FLOATS,
    ),
    "a dropped saturation": Planted(
        "y[i] = __saturatef(x[i]);",
        *(r"cvt\.sat\.f32\.f32", "cvt.f32.f32", "y[0]", "cvt.sat.f32.f32"),
        args=FLOATS,
    ),
    "an address off by one": Planted(
        "__shared__ int t[80]; t[i] = x[i]; t[i == 63 ? 64 : 70] = 5; __syncthreads(); y[i] = t[63 - i];",
        *(r"(st\.shared\.u32\s+\[[^\]]*)\]", r"\1+4]", "y[0]", "st.shared.u32", "address"),
    ),
    "an and for an or": Planted("y[i] = x[i] | 12;", r"or\.b32", "and.b32", "y[0]", "or.b32"),
    "a later iteration": Planted(
        "int s = 0;\n#pragma unroll 1\n"
        "for (int j = 0; j < 9; j++) { s += x[(i + j) & 63]; if (j == 6) s ^= 256; } y[i] = s;",
        *(r"(setp\.eq\.s32[^;]*), -3;", r"\1, -2;", "y[61]", "setp.eq.s32"),
        fields={"iteration": 6},
    ),
    "another warp": Planted(
        "__shared__ int t[64]; int v = x[i]; if (i >= 32) v *= 11;"
        " t[i] = v; __syncthreads(); y[i] = t[63 - i];",
        *(TIMES_11, r"\1, 13;", "y[0]", "mul.lo.s32"),
        fields={"warp": 1, "lane": 31},
    ),
    "another lane": Planted(
        "int v = x[i]; if ((i & 31) == 5) v *= 11; y[i] = __shfl_sync(~0u, v, 5);",
        *(TIMES_11, r"\1, 13;", "y[0]", "mul.lo.s32"),
        fields={"warp": 0},
    ),
    "a branch": Planted(
        "int v = x[i]; if (v > 50) { y[i] = v; } else { y[i] = 1; __threadfence(); }",
        *(r"@(%p\d+) bra", r"@!\1 bra", "y[0]", "bra", "taken"),
    ),
    "a device function": Planted(
        "y[i] = f(x[i]);",
        *(r"(mad\.lo\.s32[^;]*), 11,", r"\1, 13,", "y[1]", "mad.lo.s32"),
        before="__device__ __noinline__ int f(int v) { return v * 11 + (v > 7); }",
    ),
}

AGREE = {
    "branches and floats": (
        "float v = x[i]; for (int j = 0; j < i % 5; j++) v = v > 1 ? v * 0.5f : v + 0.7f; y[i] = v;"
    ),
    "shared memory": "__shared__ float t[64]; t[i] = x[i]; __syncthreads(); y[i] = t[63 - i];",
    "a warp's sum": "float v = x[i]; for (int s = 16; s; s /= 2) v += __shfl_xor_sync(~0u, v, s); y[i] = v;",
    "local memory": "float a[9]; for (int j = 0; j < 9; j++) a[(i * j) % 9] = x[j] + (j ? a[0] : 0);"
    " a[i % 9] = 1; y[i] = a[(i + 3) % 9 ? i % 9 : 0];",
    "addresses as numbers": "y[i] = (float)(((unsigned long long)(x + i) >> 2) & 1) * 0 + x[i];",
    "atomics": "if (i < 4) y[i] = 0; __syncthreads(); atomicAdd((int*)y + i % 4, i); if (i > 3) y[i] = 1;",
}
RACES = {
    "one element": "y[i / 2] = i; y[i] = i;",
    "no barrier": "__shared__ int t[64]; t[i] = x[i]; y[i] = t[63 - i];",
    "a lost update": "y[0] += x[i];",
    "no warp barrier": "__shared__ int t[64]; t[i] = x[i]; __syncthreads(); t[i] += t[i ^ 1]; y[i] = t[i];",
    "a barrier too late": "y[i] = x[i]; y[i] = y[63 - i] + 1; __syncthreads();",
}
COUNTS = """\
__device__ int n = 3;
__constant__ int c[2];
__global__ void k(int* y) {
    y[threadIdx.x] = n + c[1];
    __syncthreads();
    if (threadIdx.x == 0) n = 9;
}
"""
"""A kernel that changes a variable of its module."""
ENDLESS = Planted(
    "unsigned s = x[i];\n#pragma unroll 1\n"
    "for (unsigned j = 0; j < 7; j++) s = s * 1664525u + 1013904223u; y[i] = s;",
    *(r"(setp\.\w+\.[us]32[^;]*), 7;", r"\1, 2000000000;", "", ""),
)


@cache
def source_of(code: str) -> Source:
    """The compiled source of a kernel."""
    return from_text(code, "k.cu")


def edited(source: Source, old: str, new: str) -> Source:
    """The source with the first match of a pattern replaced in its PTX."""
    ptx, count = re.subn(old, new, source.ptx, count=1)
    assert count == 1, f"no {old} in\n{source.ptx}"
    other = from_ptx(ptx)
    return replace(source, ptx=ptx, module=other.module, entries=other.entries)


def held(planted: Planted, chip: Second, **options: Any) -> Compared:
    """Hold the simulator against a chip that runs the edited PTX."""
    source = source_of(planted.code)
    work = Work(source, source.kernel(), (1, 1, 1), (THREADS, 1, 1), planted.args)
    other = edited(source, planted.old, planted.new)
    both = Both(**{"bisect": True, **options})
    return hold(work, run_on(Device(), work), both, chip, Device, other_source=other)


def check(planted: Planted, compared: Compared) -> None:
    """Assert that a comparison names element and instruction, within the launches that it may take."""
    text, part = str(compared), compared.parting
    assert compared.differences[0].element == planted.element, text
    assert part is not None
    assert part.what == planted.what, text
    assert planted.text in part.place.text, text
    for name, value in planted.fields.items():
        assert getattr(part if hasattr(part, name) else part.place, name) == value, text
    assert 1 <= part.launches <= 15
