"""The timeline of a pipeline: when stages in shared memory are filled, read and free."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import simwarp
from support import small_kernels as small

RING = """.shared .align 16 .b8 ring[1024];
.shared .align 8 .b64 full[2];
"""
GIVEN = np.arange(512, dtype=np.uint32)
STAGES = 2


def ring(rounds):
    """A kernel whose thread 0 fills two stages of 512 bytes in turn; all 128 threads read each."""
    lines = [
        "setp.eq.u32 %p1, %r1, 0; mov.u64 %rd1, full; mov.u64 %rd2, ring; mul.wide.u32 %rd3, %r1, 4;",
        "add.u64 %rd3, %rd3, %rd2; mov.u32 %r2, 0;",
        "@%p1 mbarrier.init.shared.b64 [%rd1], 1; @%p1 mbarrier.init.shared.b64 [%rd1+8], 1; bar.sync 0;",
        *(fill(turn) for turn in range(STAGES)),
    ]
    for turn in range(rounds):
        stage, parity = turn % STAGES, turn // STAGES % 2
        lines.append(
            f"WAIT{turn}: mbarrier.try_wait.parity.shared.b64 %p2, [%rd1+{8 * stage}], {parity}; "
            f"@!%p2 bra WAIT{turn};\nld.shared.u32 %r3, [%rd3+{512 * stage}];"
            "add.u32 %r2, %r2, %r3; bar.sync 0;"
        )
        if turn + STAGES < rounds:
            lines.append(fill(turn + STAGES))
    return "\n".join([*lines, small.STORE])


def fill(turn):
    stage = turn % STAGES
    return (
        f"@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd5, [%rd1+{8 * stage}], 512;\n"
        "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
        f"[%rd2+{512 * stage}], [%in+{512 * (turn % 4)}], 512, [%rd1+{8 * stage}];"
    )


def observed(rounds, schedule="lowest pc", grid=1):
    device = simwarp.Device(observe="pipeline", schedule=schedule, instruction_budget=200_000)
    small.run(ring(rounds), 128, grid, GIVEN, device, before=RING)
    return device.report.pipeline


@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
def test_each_copy_is_a_turn_of_its_stage(schedule):
    pipeline = observed(5, schedule)
    assert [(turn.stage, turn.bytes) for turn in pipeline.turns] == [
        (f"mbarrier {1024 + 8 * (turn % STAGES)}", 512) for turn in range(5)
    ]
    for turn in pipeline.turns:
        assert turn.issued < turn.filled <= turn.read_from <= turn.read_to


def test_a_stage_is_read_before_it_is_filled_again():
    turns = observed(6).turns
    for earlier, later in zip(turns, turns[STAGES:], strict=False):
        assert earlier.read_to < later.issued


def test_only_one_block_is_recorded():
    assert len(observed(3, grid=4).turns) == 3


def test_the_rows_of_the_text_are_the_stages():
    title, _, *rows = observed(6).to_text().splitlines()
    assert "stages in shared memory" in title
    assert [row.split()[:2] for row in rows] == [["mbarrier", "1024"], ["mbarrier", "1032"]]
    assert all(set(row.split()[2]) == set("~=#.") for row in rows)


def test_the_picture_is_one_svg_element():
    root = ElementTree.fromstring(observed(3).to_svg())
    assert root.tag.endswith("svg")
    assert "mbarrier 1024" in "".join(root.itertext())


def test_a_kernel_without_copies_has_no_stages():
    device = simwarp.Device(observe="pipeline")
    small.run("mov.u32 %r2, 1;" + small.STORE, device=device)
    assert device.report.pipeline.to_json() == {"block": 0, "turns": [], "rows": {}}
    assert "none" in device.report.to_text()
    ElementTree.fromstring(device.report.pipeline.to_svg())


def test_groups_of_copies_are_named_by_their_first_byte():
    """Each of 32 threads copies 16 bytes in each of two groups."""
    body = """mov.u64 %rd2, ring; mul.wide.u32 %rd1, %r1, 16;
add.u64 %rd3, %rd2, %rd1; add.u64 %rd4, %in, %rd1;
cp.async.cg.shared.global [%rd3], [%rd4], 16; cp.async.commit_group;
cp.async.cg.shared.global [%rd3+512], [%rd4+512], 16; cp.async.commit_group;
cp.async.wait_group 1; bar.sync 0; ld.shared.u32 %r2, [%rd2];
cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r3, [%rd2+512]; add.u32 %r2, %r2, %r3;
"""
    device = simwarp.Device(observe="pipeline")
    small.run(body + small.STORE, given=GIVEN, device=device, before=RING)
    turns = device.report.pipeline.turns
    assert [(turn.stage, turn.bytes) for turn in turns] == [("bytes from 0", 512), ("bytes from 512", 512)]
    assert turns[0].read_to < turns[1].filled


def test_bulk_copies_count_as_traffic_of_global_memory():
    device = simwarp.Device(observe=("traffic", "sectors"))
    small.run(ring(4), 128, given=GIVEN, device=device, before=RING)
    assert device.report.traffic.loaded["global"] == 4 * 512
    assert device.report.traffic.stored["global"] == 128 * 4
