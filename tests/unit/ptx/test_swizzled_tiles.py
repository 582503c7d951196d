"""A descriptor of wgmma must have the swizzle of the tensor map that filled its tile."""

import numpy as np
import pytest

import gpu
import simwarp
from simwarp.faults import WrongDescriptor

FIELD = {0: 0, 128: 1, 64: 2, 32: 3}
ROWS, WIDTH = 64, 128
OPCODE = "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc"
TEXT = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {{
.reg .b64 %map, %out, %at, %a, %b; .reg .b32 %t, %bar, %d<4>, %word; .reg .pred %first, %done, %none;
.shared .align 1024 .b8 begin[{begin}]; .shared .align 128 .b8 tile[{bytes}]; .shared .align 8 .b64 bar;
mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %out, [out];
mov.u32 %t, %tid.x; mov.u32 %bar, bar; setp.eq.u32 %first, %t, 0;
@%first mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
@%first mbarrier.arrive.expect_tx.shared.b64 _, [bar], {bytes};
{loads}
AGAIN: mbarrier.try_wait.parity.shared.b64 %done, [bar], 0; @!%done bra AGAIN;
{between}
mov.u64 %a, tile; shr.u64 %a, %a, 4; add.u64 %a, %a, {moved}; or.b64 %a, %a, {fields:#x};
add.u64 %b, %a, {b};
mov.u32 %d0, 0; mov.u32 %d1, 0; mov.u32 %d2, 0; mov.u32 %d3, 0; setp.ne.u32 %none, 0, 0;
wgmma.fence.sync.aligned;
{opcode} {{%d0, %d1, %d2, %d3}}, %a, %b, %none;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mul.wide.u32 %at, %t, 16; add.u64 %at, %at, %out; st.global.v4.u32 [%at], {{%d0, %d1, %d2, %d3}};
ret; }}
"""
REWRITTEN = """mul.wide.u32 %at, %t, 4; mov.u64 %a, tile; add.u64 %at, %at, %a;
mov.u32 %word, 0;
LOOP: st.shared.u32 [%at], %t; add.u64 %at, %at, 512; add.u32 %word, %word, 512;
setp.lt.u32 %done, %word, 9216; @%done bra LOOP;
fence.proxy.async; bar.sync 0;
"""


def multiplied(map_span, descriptor_span, schedule="lowest pc", between="", begin=1024, moved=0, device=None):
    """The product of 64 rows and their first 8, by a tile that a tensor map filled.

    The tile begins ``begin`` bytes behind a multiple of 1024, the matrices ``moved`` bytes behind it.
    """
    width = map_span or WIDTH
    rows = np.random.default_rng(map_span).integers(0, 256, (ROWS, WIDTH), np.uint8)
    device = device or simwarp.Device(schedule=schedule, instruction_budget=200_000)
    group = 8 * width
    load = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    places = [*((8 * i, group * i) for i in range(8)), (0, 8 * group)]
    loads = "\n".join(f"@%first {load} [tile+{at}], [%map, {{0, {row}}}], [bar];" for row, at in places)
    fields = (group // 16) << 32 | FIELD[descriptor_span] << 62
    text = TEXT.format(
        bytes=9 * group,
        loads=loads,
        fields=fields,
        b=8 * group // 16,
        opcode=OPCODE,
        between=between,
        begin=begin,
        moved=moved // 16,
    )
    given = device.upload(rows)
    tensor = device.tensor_map(given, (8, width), swizzle=map_span)
    out = device.upload(np.zeros((128, 4), np.uint32))
    device.load(text).kernel("k")(1, 128, tensor, out)
    return out.download(), rows


def expected(rows):
    """Accumulator 2h + i of thread t is row 16w + g + 8h, column 2q + i."""
    bits = np.unpackbits(rows[:, :32], axis=1).astype(np.int64)
    product = bits @ bits[:8].T
    t, register = np.arange(128)[:, None], np.arange(4)[None, :]
    return product[16 * (t // 32) + t % 32 // 4 + 8 * (register // 2), 2 * (t % 4) + register % 2]


@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
@pytest.mark.parametrize("span", [32, 64, 128])
def test_equal_swizzles_multiply_the_tile(span, schedule):
    found, rows = multiplied(span, span, schedule)
    assert found.tolist() == expected(rows).tolist()


PLACES = [(128, 1152), (128, 1920), (64, 1152), (32, 1152), (32, 1408)]


@pytest.mark.parametrize(("span", "begin"), PLACES)
def test_a_tile_may_begin_in_any_row_of_the_pattern(span, begin):
    """Copy and product permute the bits of the address. CUTLASS aligns its tiles to 128 bytes."""
    found, rows = multiplied(span, span, begin=begin)
    assert found.tolist() == expected(rows).tolist()


@pytest.mark.gpu
@pytest.mark.parametrize(("span", "begin"), PLACES)
def test_a_chip_reads_a_tile_in_any_row_of_the_pattern(span, begin):
    found, rows = multiplied(span, span, begin=begin, device=gpu.CudaDevice())
    assert found.tolist() == expected(rows).tolist()


@pytest.mark.parametrize("begin", [1024, 1408])
def test_a_matrix_that_begins_in_another_row_than_its_tile_is_named(begin):
    with pytest.raises(WrongDescriptor) as caught:
        multiplied(128, 128, begin=begin, moved=128)
    row = begin // 128 % 8
    assert f"descriptor row {row + 1}, tile row {row} of 8" in caught.value.values
    assert "cp.async.bulk.tensor" in caught.value.values


@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
@pytest.mark.parametrize(("map_span", "descriptor_span"), [(128, 64), (64, 128), (32, 64), (128, 32)])
def test_another_swizzle_than_the_maps_is_named(map_span, descriptor_span, schedule):
    with pytest.raises(WrongDescriptor) as caught:
        multiplied(map_span, descriptor_span, schedule)
    assert f"descriptor {descriptor_span} bytes, tensor map {map_span} bytes" in caught.value.values
    assert "cp.async.bulk.tensor" in caught.value.values
    assert "wgmma" in caught.value.place.text


def test_a_tile_that_threads_rewrote_may_have_any_swizzle():
    multiplied(128, 64, between=REWRITTEN)
