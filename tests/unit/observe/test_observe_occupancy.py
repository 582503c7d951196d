"""Occupancy equals CUDA's calculator; live registers are counted per instruction."""

import pytest

from reference.errors import SchemeError
from simwarp.chips.chips import CHIPS
from simwarp.faults import LaunchError
from simwarp.observe.occupancy import occupancy, registers_of
from simwarp.program.link import link
from simwarp.ptx.parse import parse
from support.offenders import every_case

CALCULATED = [
    ("H200", 990, 27, 0, 2, "warps, registers"),
    ("H200", 99, 45, 108534, 2, "shared memory"),
    ("H200", 463, 110, 3280, 1, "registers"),
    ("H200", 638, 18, 19673, 3, "warps"),
    ("H200", 29, 13, 0, 32, "blocks"),
    ("H200", 259, 152, 206765, 1, "registers, shared memory"),
    ("H200", 320, 2, 190976, 1, "shared memory"),
    ("H200", 503, 58, 0, 2, "registers"),
    ("H200", 41, 7, 0, 32, "warps, blocks"),
    ("H200", 677, 20, 99203, 2, "warps, shared memory"),
    ("A100", 654, 54, 41556, 1, "registers"),
    ("A100", 212, 134, 155052, 1, "registers, shared memory"),
    ("A100", 212, 18, 5681, 9, "warps"),
    ("A100", 266, 9, 17244, 7, "warps"),
    ("A100", 97, 239, 0, 2, "registers"),
    ("A100", 379, 124, 9231, 1, "registers"),
    ("A100", 13, 33, 14886, 10, "shared memory"),
    ("A100", 694, 40, 0, 2, "warps, registers"),
    ("A100", 1002, 63, 0, 1, "registers"),
    ("A100", 896, 28, 68930, 2, "warps, registers, shared memory"),
    ("A100", 42, 26, 0, 32, "warps, blocks, registers"),
    ("A100", 58, 7, 0, 32, "warps, blocks"),
    ("A100", 16, 20, 0, 32, "blocks"),
    ("A100", 832, 10, 74077, 2, "warps, shared memory"),
    ("L40S", 10, 156, 5343, 12, "registers"),
    ("L40S", 317, 87, 86330, 1, "shared memory"),
    ("L40S", 961, 19, 0, 1, "warps"),
    ("L40S", 423, 106, 89243, 1, "registers, shared memory"),
    ("L40S", 21, 76, 3005, 24, "blocks, registers"),
    ("L40S", 1005, 48, 0, 1, "warps, registers"),
    ("L40S", 428, 61, 51597, 1, "shared memory"),
    ("L40S", 592, 35, 42361, 2, "warps, registers, shared memory"),
    ("L40S", 485, 25, 48669, 2, "shared memory"),
    ("L40S", 795, 12, 89766, 1, "warps, shared memory"),
    ("L40S", 58, 37, 0, 24, "warps, blocks, registers"),
    ("L40S", 58, 6, 0, 24, "warps, blocks"),
]
"""Chip, threads, registers, shared memory; blocks and limits as cuda_occupancy.h of CUDA 13.0 has them."""


@every_case(("name", "threads", "registers", "shared", "blocks", "limits"), CALCULATED)
def test_occupancy_equals_the_calculator(name, threads, registers, shared, blocks, limits):
    found = occupancy(name, threads, registers, shared)
    warps = blocks * -(-threads // 32)
    assert (found.blocks, ", ".join(found.limits), found.warps) == (blocks, limits, warps)
    assert found.fraction == warps / CHIPS[found.chip].warps


def test_each_limit_allows_its_own_number_of_blocks():
    found = occupancy("H200", threads=128, registers=64, shared=20_000)
    assert found.blocks_by == {"warps": 16, "blocks": 32, "registers": 8, "shared memory": 11}
    assert found.to_json()["limits"] == ["registers"]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "message"),
    [
        (0, 32, 0, "0 threads per block .*\nthe chip allows 1 to 1024\nuse more"),
        (1025, 32, 0, "1025 threads per block"),
        (32, 256, 0, "256 registers per thread"),
        (1009, 108, 1805, "registers per block .*\nthe chip allows 0 to 65536\nuse fewer"),
        (32, 32, 227 * 1024 + 1, "bytes of shared memory per block"),
    ],
)
def test_a_block_beyond_the_limits_is_refused(threads, registers, shared, message):
    with pytest.raises(LaunchError, match=message):
        occupancy("H200", threads, registers, shared)


def test_the_largest_blocks_fit_once():
    assert occupancy("H200", 1024, 64, 227 * 1024).blocks == 1
    assert occupancy("A100", 1024, 64, 163 * 1024).blocks == 1
    assert occupancy("H200", 32, 255, 0).blocks == 8


def test_an_unknown_chip_is_refused():
    with pytest.raises(SchemeError, match="unknown chip 'K20'"):
        occupancy("K20", 32, 32)


# ---- registers ---------------------------------------------------------------------------------------

DECLARED = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>;"


def registers(body, before=""):
    head = f".version 8.0 .target sm_90 .address_size 64 {before} .entry k(.param .u64 x)"
    module = parse(f"{head} {{ {DECLARED} {body} }}")
    return registers_of(link(module, module.entries["k"]))


TID = "mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; "


@pytest.mark.parametrize(
    ("body", "live"),
    [
        ("ret;", 0),
        (TID + "add.u32 %r2, %r0, %r1; st.global.u32 [%d0], %r2; ret;", 2),
        (TID + "mul.wide.u32 %d0, %r0, %r1; st.global.u32 [%d0], %r0; ret;", 3),
        ("mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 1; @%p0 st.global.u32 [%d0], 1; ret;", 1),
        (TID + "mov.b64 %d0, {%r0, %r1}; st.global.u64 [%d0], %d0; ret;", 2),
        (
            "mov.u32 %r0, %tid.x; ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [%r0]; "
            "st.shared.v4.f32 [%r0], {%f3, %f2, %f1, %f0}; ret;",
            5,
        ),
        ("mov.u16 %h0, %tid.x; mov.u32 %r0, %tid.x; st.shared.u16 [%r0], %h0; ret;", 2),
    ],
)
def test_only_registers_live_together_are_counted(body, live):
    assert registers(body) == live


def test_parameters_and_literals_take_no_registers():
    body = "ld.param.u64 %d0, [x]; cvta.to.global.u64 %d1, %d0; mov.u32 %r0, 7; mov.u32 %r1, %r0; "
    assert registers(body + "st.global.u32 [%d1], %r1; ret;") == 0
    assert registers(body + "add.u64 %d2, %d1, 8; st.global.u32 [%d2], %r1; ret;") == 2
    counted = "mov.u32 %r0, 7; L: add.u32 %r0, %r0, -1; setp.ne.u32 %p0, %r0, 0; @%p0 bra L; ret;"
    assert registers(counted) == 1


def test_registers_read_in_the_next_iteration_are_counted():
    body = TID + "L: add.u32 %r2, %r0, %r1; add.u32 %r0, %r2, 1; setp.ne.u32 %p0, %r0, 9; @%p0 bra L; ret;"
    assert registers(body) == 2


def test_the_device_function_with_the_most_registers_counts():
    before = """.func f() { .reg .b32 %r<9>; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z;
    L: add.u32 %r0, %r1, %r2; setp.ne.u32 %p0, %r0, %r1; @%p0 bra L; st.global.u32 [%r0], %r0; ret; }"""
    before = before.replace(".reg .b32 %r<9>;", ".reg .b32 %r<9>; .reg .pred %p0;").replace("[%r0]", "[0]")
    assert registers("mov.u32 %r0, %tid.x; call f; add.u32 %r1, %r0, 1; ret;", before) == 3
