"""Kernels in PTX that move one tile through a tensor map, and helpers that run them on any device."""

import numpy as np

THREADS, TILE = 128, 4096

HEAD = f"""
.version 9.0
.target sm_90a
.address_size 64
.const .align 64 .b8 constant[128];
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 in) {{
.reg .b64 %map, %out, %in, %rd<9>; .reg .b32 %t, %tile, %bar, %r<30>; .reg .b16 %h<4>; .reg .pred %p<9>;
.shared .align 1024 .b8 tile[{TILE}]; .shared .align 1024 .b8 other[128]; .shared .align 8 .b64 bar;
mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %out, [out]; ld.param.u64 %in, [in];
mov.u32 %t, %tid.x; mov.u32 %tile, tile; mov.u32 %bar, bar; setp.eq.u32 %p1, %t, 0; mov.u16 %h1, 1;
"""
"""Thread 0, in which ``%p1`` holds, issues; ``%map`` is the generic address of the map."""
INIT = "@%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;\n"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {};\n"
WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra AGAIN;\n"
COUNTED = "mbarrier::complete_tx::bytes"
PATIENT = """mov.u32 %r20, 0;
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; add.u32 %r20, %r20, 1;
setp.lt.u32 %p4, %r20, 100000; @%p2 bra ARRIVED; @%p4 bra AGAIN;
ARRIVED: bar.sync 0;
"""
"""A wait that ends even if a chip counts other bytes than expected."""
FENCE = "fence.proxy.async.shared::cta; bar.sync 0;\n"
DONE = "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0; bar.sync 0;\n"


def each_word(size, line):
    """A line for each word of a tile that a thread handles, at byte ``%r1`` of ``size``."""
    steps = range(0, size, 4 * THREADS)
    return "".join(
        f"mad.lo.u32 %r1, %t, 4, {at}; setp.lt.u32 %p3, %r1, {size}; add.u32 %r2, %tile, %r1;\n"
        f"cvt.u64.u32 %rd1, %r1; add.u64 %rd2, %out, %rd1; add.u64 %rd3, %in, %rd1;\n{line}\n"
        for at in steps
    )


def dump(size):
    return each_word(size, "@%p3 ld.shared.u32 %r3, [%r2]; @%p3 st.global.u32 [%rd2], %r3;")


def filled(size):
    return each_word(size, "@%p3 ld.global.u32 %r3, [%rd3]; @%p3 st.shared.u32 [%r2], %r3;") + FENCE


def braced(numbers):
    return "{" + ", ".join(map(str, numbers)) + "}"


def load(coordinates, mode=".tile", more="", target="shared::cluster", suffix=""):
    opcode = f"cp.async.bulk.tensor.{len(coordinates)}d.{target}.global{mode}.{COUNTED}{suffix}"
    return f"@%p1 {opcode} [%tile], [%map, {braced(coordinates)}], [%bar]{more};\n"


def store(coordinates, mode=".tile", opcode="cp.async.bulk.tensor", operation=""):
    dimensions = f"{len(coordinates)}d.global.shared::cta{operation}{mode}.bulk_group"
    return f"@%p1 {opcode}.{dimensions} [%map, {braced(coordinates)}], [%tile];\n"


def launch(body, tensor_map, out, given=None, device=None, **options):
    device = device or out.device
    given = device.upload(np.zeros(1, np.uint32)) if given is None else given
    device.load(HEAD + body + "\nret; }").kernel("k")(1, THREADS, tensor_map, out, given, **options)


def tile_of(device, tensor_map, body, size, span=0):
    """Run a kernel that waits for ``size`` bytes; the first ``span`` bytes of its tile, first zero."""
    span = span or size
    out = device.upload(np.zeros(span, np.uint8), "out")
    cleared = each_word(span, "@%p3 st.shared.u32 [%r2], 0;") + FENCE if span != size else ""
    wait = PATIENT if span != size else WAIT
    launch(INIT + cleared + EXPECT.format(size) + body + wait + dump(span), tensor_map, out, device=device)
    return out.download()
