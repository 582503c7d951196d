"""Kernels of a few PTX lines: their frame, and helpers that run them on the simulator."""

import numpy as np
import pytest

import simwarp

HEAD = """.version 8.0
.target sm_90a
.address_size 64
{before}
.visible .entry k(.param .u64 out, .param .u64 in) {directives} {{
.reg .pred %p<9>; .reg .b16 %rs<9>; .reg .f32 %f<9>;
.reg .b32 %i, %lane, %r<30>; .reg .b64 %at, %out, %in, %rd<9>;
mov.u32 %lane, %laneid; mov.u32 %i, %ctaid.x; mov.u32 %r0, %ntid.x; mov.u32 %r1, %tid.x;
mad.lo.u32 %i, %i, %r0, %r1; ld.param.u64 %out, [out]; ld.param.u64 %in, [in];
mul.wide.u32 %at, %i, 4; add.u64 %at, %at, %out;
"""
"""``%i`` is the thread, ``%at`` its word of ``out``; ``before`` declares what the kernel uses."""
STORE = "st.global.u32 [%at], %r2; ret;"
NOTHING = 0xFFFFFFFF


def text(body, before="", directives=""):
    return HEAD.format(before=before, directives=directives) + body + "\n}"


def run(body, block=32, grid=1, given=(0,), device=None, before="", directives="", **launch):
    """Run a kernel and return ``out``, one word per thread, initially all ones."""
    device = device or simwarp.Device(instruction_budget=500_000)
    block = block if isinstance(block, tuple) else (block, 1, 1)
    grid = grid if isinstance(grid, tuple) else (grid, 1, 1)
    out = device.upload(np.full(int(np.prod(block) * np.prod(grid)), NOTHING, np.uint32), "out")
    data = device.upload(np.array(given, np.uint32), "in")
    device.load(text(body, before, directives)).kernel("k")(grid, block, out, data, **launch)
    return out.download().tolist()


def fault_of(kind, body, **options):
    with pytest.raises(kind) as caught:
        run(body, **options)
    return caught.value


def line_of(part, body, before="", directives=""):
    whole = text(body, before, directives)
    assert whole.count(part) == 1
    return 1 + whole[: whole.index(part)].count("\n")
