"""Asynchronous copies to shared memory: their moments, groups and sizes, and the check of those in flight."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.faults import CopyInFlight, Misaligned, OutOfBounds, PtxSyntaxError, Race
from support import small_kernels as small

STORE, run, fault_of = small.STORE, small.run, small.fault_of

SCHEDULES = ["lowest pc", "stack", "random"]
CELLS = ".shared .align 16 .b8 cells[2048];"
SETUP = """mul.wide.u32 %rd1, %r1, 16; add.u64 %rd2, %in, %rd1; mov.u64 %rd3, cells; add.u64 %rd3, %rd3, %rd1;
xor.b32 %r3, %r1, 33; mul.wide.u32 %rd4, %r3, 16; mov.u64 %rd5, cells; add.u64 %rd4, %rd4, %rd5;
"""
"""``%rd2`` is the thread's 16 bytes in global memory, ``%rd3`` in shared; ``%rd4`` those of another warp."""
COPY = "cp.async.cg.shared.global [%rd3], [%rd2], 16;\n"
COMMIT, WAIT = "cp.async.commit_group;\n", "cp.async.wait_group 0;\n"
LOAD = "ld.shared.u32 %r2, [%rd3];\n"
LOAD_OTHER = "ld.shared.u32 %r2, [%rd4];\n"
GIVEN = np.arange(512, dtype=np.uint32) * 7 + 1

every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def copied(body, schedule="lowest pc", threads=128, **options):
    device = simwarp.Device(schedule=schedule, **options)
    return run(SETUP + body + STORE, threads, given=GIVEN, device=device, before=CELLS)


def copy_fault(kind, body, schedule="lowest pc", threads=128):
    device = simwarp.Device(schedule=schedule)
    return fault_of(kind, SETUP + body + STORE, block=threads, given=GIVEN, device=device, before=CELLS)


@every_schedule
@pytest.mark.parametrize("wait", [COMMIT + WAIT, "cp.async.wait_all;", "cp.async.wait_all;" + COMMIT])
def test_a_copy_has_happened_after_its_wait(schedule, wait):
    assert copied(COPY + wait + LOAD, schedule) == GIVEN[::4].tolist()


@every_schedule
def test_other_warps_see_a_copy_after_a_wait_and_a_barrier(schedule):
    expected = GIVEN[::4][np.arange(128) ^ 33].tolist()
    assert copied(COPY + COMMIT + WAIT + "bar.sync 0;" + LOAD_OTHER, schedule) == expected


@every_schedule
@pytest.mark.parametrize("barrier", ["", "bar.sync 0;\n"])
def test_a_wait_without_a_barrier_behind_it_is_a_race(schedule, barrier):
    fault = copy_fault(Race, COPY + COMMIT + barrier + WAIT + LOAD_OTHER, schedule)
    assert fault.earlier == "write"
    assert "cp.async.cg" in fault.other.text


@every_schedule
@pytest.mark.parametrize("before", ["", COMMIT, COMMIT + "cp.async.wait_group 1;\n", WAIT])
def test_a_read_before_the_wait_names_both_instructions(schedule, before):
    fault = copy_fault(CopyInFlight, COPY + before + LOAD, schedule)
    assert "ld.shared" in fault.place.text
    assert "cp.async.cg" in fault.copy.text
    assert (fault.space, fault.width) == ("shared", 4)


@every_schedule
def test_a_matrix_load_before_the_wait_names_both_instructions(schedule):
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%rd3];\n"
    fault = copy_fault(CopyInFlight, COPY + COMMIT + load, schedule)
    assert "ldmatrix" in fault.place.text
    assert "cp.async.cg" in fault.copy.text


@every_schedule
def test_shared_memory_written_during_a_copy_is_a_fault(schedule):
    fault = copy_fault(
        CopyInFlight, COPY + "st.shared.u32 [%rd3+12], %r3;\n" + COMMIT + WAIT + LOAD, schedule
    )
    assert (fault.offset % 16, fault.width) == (12, 4)


@every_schedule
def test_two_copies_in_flight_to_one_place_are_a_fault(schedule):
    copy_fault(CopyInFlight, COPY + COMMIT + COPY + COMMIT + WAIT + LOAD, schedule)


@every_schedule
def test_global_memory_written_during_a_copy_is_a_fault(schedule):
    fault = copy_fault(CopyInFlight, COPY + "st.global.u32 [%rd2], %r3;\n" + COMMIT + WAIT + LOAD, schedule)
    assert fault.space == "global"


@every_schedule
def test_global_memory_may_be_written_after_the_wait(schedule):
    body = COPY + COMMIT + WAIT + "st.global.u32 [%rd2], %r3;\n" + LOAD
    assert copied(body, schedule) == GIVEN[::4].tolist()


@every_schedule
def test_a_read_by_another_warp_before_the_copy_needs_a_barrier(schedule):
    fill = "st.shared.u32 [%rd3], %r3;\nbar.sync 0;\n" + LOAD_OTHER
    rest = COPY + COMMIT + WAIT
    assert copied(fill + "bar.sync 0;\n" + rest, schedule) == list(range(128))
    device = simwarp.Device(schedule=schedule)
    with pytest.raises((Race, CopyInFlight)):
        run(SETUP + fill + rest + STORE, 128, given=GIVEN, device=device, before=CELLS)


@every_schedule
def test_exit_with_copies_in_flight_is_a_fault(schedule):
    fault = copy_fault(CopyInFlight, "mov.u32 %r2, 1;" + COPY + COMMIT, schedule)
    assert "ret" in fault.place.text
    assert fault.count == 128


def test_an_empty_group_may_be_left_at_exit():
    assert copied(COPY + COMMIT + WAIT + COMMIT + LOAD) == GIVEN[::4].tolist()


def test_wait_group_counts_the_groups_of_its_own_thread():
    """Every other thread commits an empty group more: with one group pending, its copy has ended."""
    odd = "and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 1;\n"
    body = odd + COPY + COMMIT + "@%p1 cp.async.commit_group;\ncp.async.wait_group 1;\nmov.u32 %r2, 0;\n"
    rest = WAIT + "@!%p1 mov.u32 %r2, 5;\n"
    assert copied(body + "@%p1 " + LOAD + rest)[:4] == [5, 29, 5, 85]
    copy_fault(CopyInFlight, body + "@!%p1 " + LOAD + rest)


@every_schedule
def test_a_pipeline_of_three_stages_sums_its_tiles(schedule):
    """Stage s of a ring of three is copied two steps ahead; each thread sums the words of 4 tiles."""
    lines = ["mov.u32 %r2, 0;"]
    for tile in range(6):
        if tile < 4:
            lines += [f"add.u64 %rd6, %rd3, {tile % 3 * 512}; add.u64 %rd7, %rd2, {512 * tile};"]
            lines += ["cp.async.ca.shared.global [%rd6], [%rd7], 16;"]
        lines += [COMMIT]
        if tile >= 2:
            lines += [
                "cp.async.wait_group 2; bar.sync 0;",
                f"ld.shared.u32 %r4, [%rd3+{(tile - 2) % 3 * 512}];",
            ]
            lines += ["add.u32 %r2, %r2, %r4; bar.sync 0;"]
    given = GIVEN.reshape(4, 32, 4)[:, :, 0]
    assert copied("\n".join(lines) + "\n", schedule, threads=32) == given.sum(axis=0).tolist()


@every_schedule
@pytest.mark.parametrize("count", [0, 1, 3, 4, 11, 16])
def test_bytes_that_a_copy_does_not_read_become_zero(schedule, count):
    body = f"mov.u32 %r4, {count};\ncp.async.cg.shared.global [%rd3], [%rd2], 16, %r4;\ncp.async.wait_all;\n"
    words = GIVEN.reshape(128, 4).view(np.uint8).copy().reshape(128, 16)
    words[:, count:] = 0
    for offset in range(0, 16, 4):
        expected = words[:, offset : offset + 4].copy().view(np.uint32)[:, 0].tolist()
        assert copied(body + f"ld.shared.u32 %r2, [%rd3+{offset}];\n", schedule) == expected


def test_a_predicate_lets_a_copy_read_nothing():
    """The address of the lanes that ignore their source may lie anywhere."""
    body = """setp.gt.u32 %p1, %r1, 99; @%p1 mov.u64 %rd2, 64;
cp.async.cg.shared.global [%rd3], [%rd2], 16, %p1; cp.async.wait_all;
"""
    assert copied(body + LOAD) == GIVEN[::4][:100].tolist() + [0] * 28


def test_more_bytes_to_read_than_to_copy_are_a_fault():
    body = "mov.u32 %r4, 9;\ncp.async.ca.shared.global [%rd3], [%rd2], 8, %r4;\ncp.async.wait_all;\n"
    assert "9 bytes" in str(copy_fault(CopyInFlight, body + LOAD))


def test_a_copy_outside_its_array_is_out_of_bounds():
    past = "add.u64 %rd2, %rd2, 2048;\n" + COPY + "cp.async.wait_all;\n" + LOAD
    assert copy_fault(OutOfBounds, past).space == "global"
    assert copy_fault(OutOfBounds, "add.u64 %rd3, %rd3, 16;\n" + COPY + WAIT + LOAD).space == "shared"


@pytest.mark.parametrize("moved", ["%rd2", "%rd3"])
def test_both_addresses_of_a_copy_are_multiples_of_its_size(moved):
    body = f"add.u64 {moved}, {moved}, 4;\ncp.async.ca.shared.global [%rd3], [%rd2], 8;\ncp.async.wait_all;\n"
    copy_fault(Misaligned, body + LOAD, threads=64)


def test_undefined_memory_stays_undefined_when_it_is_copied():
    device = simwarp.Device()
    given = device.allocate(512, np.uint32)
    out = device.upload(np.zeros(128, np.uint32))
    body = SETUP + COPY + "cp.async.wait_all;\n"
    kernel = device.load(small.text(body + LOAD + STORE, CELLS)).kernel("k")
    with pytest.raises(simwarp.faults.UninitialisedRead):
        kernel(1, 128, out, given)
    device.load(small.text(body + LOAD + "ret;", CELLS)).kernel("k")(1, 128, out, given)


@pytest.mark.parametrize(
    ("operands", "expected"),
    [("ca.shared.global [%rd3], [%rd2], 5", "4, 8, 16"), ("cg.shared.global [%rd3], [%rd2], 8", "16")],
)
def test_sizes_that_ptx_lacks_are_refused(operands, expected):
    with pytest.raises(PtxSyntaxError, match=f"expected {expected}"):
        copied(f"cp.async.{operands};\n")


@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_in_several_chunks_copy_their_own_tiles(workers):
    device = simwarp.Device(chunk_lanes=64, workers=workers)
    body = SETUP + COPY + COMMIT + WAIT + "bar.sync 0;" + LOAD_OTHER
    expected = GIVEN[::4][:64][np.arange(64) ^ 33].tolist() * 5
    assert run(body + STORE, 64, 5, given=GIVEN, device=device, before=CELLS) == expected


def test_a_loop_with_few_warps_left_copies_on_in_a_part():
    """Warp w copies w times: the last warps run in a compact copy of their state."""
    body = """shr.u32 %r4, %r1, 5; mov.u32 %r2, 0;
AGAIN: setp.eq.u32 %p1, %r4, 0; @%p1 bra END;
cp.async.cg.shared.global [%rd3], [%rd2], 16; cp.async.commit_group; cp.async.wait_group 0;
ld.shared.u32 %r5, [%rd3]; add.u32 %r2, %r2, %r5; sub.u32 %r4, %r4, 1; bra AGAIN;
END: """
    given = np.arange(1024 * 4, dtype=np.uint32)
    before = ".shared .align 16 .b8 cells[16384];"
    expected = [4 * t * (t // 32) for t in range(1024)]
    assert run(SETUP + body + STORE, 1024, given=given, before=before) == expected


PIPELINE = """
#include <cuda_pipeline.h>
extern "C" __global__ void shifted(const int* x, int* y)
{
    __shared__ int tile[64];
    __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
#ifdef FIXED
    __syncthreads();
#endif
    y[threadIdx.x] = tile[(threadIdx.x + 1) % 64];
}
"""
GROUP = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void shifted(const int* x, int* y)
{
    __shared__ alignas(16) int tile[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, x, sizeof tile);
#ifdef FIXED
    cg::wait(block);
#endif
    y[threadIdx.x] = tile[(threadIdx.x + 1) % 64];
}
"""


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize(("source", "kind"), [(PIPELINE, Race), (GROUP, CopyInFlight)])
def test_copies_of_cuda_c_are_found_without_their_wait_and_right_with_it(source, kind):
    for schedule in SCHEDULES:
        device = simwarp.Device(schedule=schedule, cc=(8, 0))
        x, y = device.upload(np.arange(64, dtype=np.int32)), device.allocate(64, np.int32)
        wrong, right = (compile(source, "shifted.cu", fixed, (8, 0)).text for fixed in ({}, {"FIXED": ""}))
        device.load(right).kernel("shifted")(1, 64, x, y)
        assert (y.download() == np.roll(np.arange(64), -1)).all()
        with pytest.raises(kind) as caught:
            device.load(wrong).kernel("shifted")(1, 64, x, y)
        assert caught.value.place.source_file == "shifted.cu"
