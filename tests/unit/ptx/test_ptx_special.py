"""Special registers, compared with plain Python; clocks; the barrier of a cooperative grid."""

import itertools

import numpy as np
import pytest

import simwarp
from simwarp.engine.special_registers import COUNTERS, FIXED
from simwarp.ptx.special_registers import TYPES

HEAD = """.version 8.1
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {directives} {{
.reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %at, %out, %rd<9>; .shared .b32 cells[5];
ld.param.u64 %out, [out];
"""
PLACE = """mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y;
mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %ntid.z; mov.u32 %r3, %tid.z; mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
mul.wide.u32 %rd1, %r1, SIZE; add.u64 %at, %rd1, %out;
"""
"""``%at``: SIZE bytes of each thread, in the order of blocks and threads."""


def launch(body, grid, block, words, device=None, directives="", dtype=np.uint64, **options):
    """Run a kernel and return its words, of shape (blocks, threads, words)."""
    device = device or simwarp.Device()
    blocks, threads = int(np.prod(grid)), int(np.prod(block))
    out = device.upload(np.zeros((blocks, threads, words), dtype))
    place = PLACE.replace("SIZE", str(words * np.dtype(dtype).itemsize))
    module = device.load(HEAD.format(directives=directives) + place + body + "\n}")
    module.kernel("k")(grid, block, out, **options)
    return out.download()


def read(name, i):
    """PTX that writes a special register to word i."""
    kind = TYPES[name]
    if kind == "pred":
        return f"mov.pred %p1, {name}; selp.u64 %rd2, 1, 0, %p1; st.global.u64 [%at+{8 * i}], %rd2;\n"
    if kind == "u64":
        return f"mov.u64 %rd2, {name}; st.global.u64 [%at+{8 * i}], %rd2;\n"
    return f"mov.u32 %r2, {name}; cvt.u64.u32 %rd2, %r2; st.global.u64 [%at+{8 * i}], %rd2;\n"


def expected(grid, block, cluster, shared, multiprocessors):
    """For each block and thread, the values of all special registers except counters."""
    clusters = tuple(g // c for g, c in zip(grid, cluster, strict=True))
    own = 32 + shared if shared else 20  # cells, then dynamic shared memory at a multiple of 16
    for linear, (z, y, x) in enumerate(itertools.product(*map(range, grid[::-1]))):
        at, rank_of = (x, y, z), (x % cluster[0], y % cluster[1], z % cluster[2])
        for thread, (w, v, u) in enumerate(itertools.product(*map(range, block[::-1]))):
            bit, tid = 1 << thread % 32, (u, v, w)
            found = {"laneid": thread % 32, "warpid": thread // 32}
            found["nwarpid"] = -(-int(np.prod(block)) // 32)
            for i, axis in enumerate("xyz"):
                found |= {f"tid.{axis}": tid[i], f"ntid.{axis}": block[i]}
                found |= {f"ctaid.{axis}": at[i], f"nctaid.{axis}": grid[i]}
                found |= {f"clusterid.{axis}": at[i] // cluster[i], f"nclusterid.{axis}": clusters[i]}
                found |= {f"cluster_ctaid.{axis}": rank_of[i], f"cluster_nctaid.{axis}": cluster[i]}
            found["cluster_ctarank"] = rank_of[0] + cluster[0] * (rank_of[1] + cluster[1] * rank_of[2])
            found["cluster_nctarank"] = int(np.prod(cluster))
            found |= {"lanemask_eq": bit, "lanemask_lt": bit - 1, "lanemask_le": 2 * bit - 1}
            found |= {"lanemask_ge": 2**32 - bit, "lanemask_gt": 2**32 - 2 * bit}
            found |= {"smid": linear % multiprocessors, "nsmid": multiprocessors, "gridid": 1}
            found |= {"dynamic_smem_size": shared, "is_explicit_cluster": int(cluster != (1, 1, 1))}
            found |= {"total_smem_size": 128, "aggr_smem_size": 1024 + own}
            found |= {f"reserved_smem_offset_{which}": 0xFFF800 for which in ("begin", "0", "1")}
            found |= {"reserved_smem_offset_end": 0xFFF800 + 288, "reserved_smem_offset_cap": 1024}
            found |= {f"envreg{i}": 0 for i in range(32)}
            yield found


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("grid", "block", "cluster", "shared"),
    [
        ((1, 1, 1), (1, 1, 1), (1, 1, 1), 0),
        ((3, 1, 2), (7, 5, 1), (1, 1, 1), 0),
        ((2, 3, 1), (3, 2, 7), (1, 3, 1), 40),
        ((4, 2, 3), (33, 1, 1), (2, 1, 3), 0),
        ((5, 1, 1), (1, 1, 45), (5, 1, 1), 8),
    ],
)
def test_special_registers_have_the_values_of_the_launch(grid, block, cluster, shared):
    names = [n for n in TYPES if n not in COUNTERS]
    body = "".join(read(name, i) for i, name in enumerate(names)) + "ret;"
    directives = (
        "" if cluster == (1, 1, 1) else f".explicitcluster .reqnctapercluster {', '.join(map(str, cluster))}"
    )
    for chunk in (32, 32768):
        device = simwarp.Device(multiprocessors=5, chunk_lanes=chunk)
        got = launch(body, grid, block, len(names), device, directives, shared=shared)
        rows = got.reshape(-1, len(names)).tolist()
        for found, wanted in zip(rows, expected(grid, block, cluster, shared, 5), strict=True):
            assert found == [wanted[name[1:]] for name in names]


def test_gridid_counts_the_launches():
    device = simwarp.Device()
    body = read("%gridid", 0)
    assert [int(launch(body, (1, 1, 1), (1, 1, 1), 1, device)[0, 0, 0]) for _ in range(3)] == [1, 2, 3]


def test_every_special_register_has_a_value():
    assert {name.partition(".")[0] for name in TYPES} == {*(f"%{name}" for name in FIXED), *COUNTERS}


CLOCKS = ["%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"]
COUNTED = "".join(read(name, i) for i, name in enumerate(CLOCKS))


def test_every_performance_counter_is_readable():
    names = list(COUNTERS)
    got = launch("".join(read(n, i) for i, n in enumerate(names)), (1, 1, 1), (1, 1, 1), len(names))
    values = dict(zip(names, got[0, 0].tolist(), strict=True))
    assert all(values[name] == 0 for name in names if name.startswith("%pm"))


def test_clocks_never_run_backwards():
    body = "mov.u32 %r5, 0; mov.u64 %rd5, 0; mov.u32 %r8, %tid.x;\n"
    body += "L: mov.u64 %rd3, %clock64; setp.le.u64 %p2, %rd3, %rd5; @%p2 trap; mov.u64 %rd5, %rd3;\n"
    body += "mov.u32 %r6, %clock; cvt.u32.u64 %r7, %rd3; setp.lt.u32 %p2, %r6, %r7; @%p2 trap;\n"
    body += "add.u32 %r5, %r5, 1; setp.le.u32 %p1, %r5, %r8; @%p1 bra L; st.global.u64 [%at], %rd5;\n"
    got = launch(body, (3, 1, 1), (70, 1, 1), 1)
    assert got.min() > 0


def test_clocks_are_deterministic_and_continue_across_launches():
    runs = []
    for _ in range(2):
        device = simwarp.Device(chunk_lanes=64)
        runs.append([launch(COUNTED, (5, 1, 1), (40, 1, 1), len(CLOCKS), device) for _ in range(2)])
    assert np.array_equal(runs[0], runs[1])
    first, second = runs[0]
    assert first[..., 2].max() < second[..., 2].min()
    assert not second[..., [1, 5]].any()
    assert (second[..., 0] < second[..., 2]).all()


def test_cvt_reads_a_special_register():
    body = "cvt.u64.u32 %rd2, %tid.x; cvt.u64.u32 %rd3, %ctaid.x; mad.lo.u64 %rd2, %rd3, 1000, %rd2;\n"
    got = launch(body + "st.global.u64 [%at], %rd2; ret;", (2, 1, 1), (40, 1, 1), 1)
    assert got[..., 0].tolist() == [[b * 1000 + t for t in range(40)] for b in range(2)]


# --------------------------------------------------------------------------- the barrier of a whole grid

SYNC = """barrier.sync 0;
mov.u32 %r14, %tid.y; add.s32 %r15, %r13, %r14; mov.u32 %r16, %tid.z; neg.s32 %r17, %r16;
setp.ne.s32 %p2, %r15, %r17;
@%p2 bra DONE{n};
add.s64 %rd5, %rd4, 4;
mov.u32 %r20, %nctaid.x; mov.u32 %r21, %nctaid.y; mul.lo.s32 %r22, %r20, %r21; mov.u32 %r23, %nctaid.z;
mul.lo.s32 %r24, %r22, %r23; mov.u32 %r25, %ctaid.y; mov.u32 %r26, %ctaid.x; add.s32 %r27, %r26, %r25;
mov.u32 %r28, %ctaid.z; neg.s32 %r29, %r28; setp.eq.s32 %p3, %r27, %r29; mov.u32 %r5, -2147483647;
sub.s32 %r6, %r5, %r24; selp.b32 %r19, %r6, 1, %p3;
atom.add.release.gpu.u32 %r18, [%rd5], %r19;
POLL{n}: ld.acquire.gpu.u32 %r7, [%rd5]; xor.b32 %r8, %r7, %r18; setp.gt.s32 %p4, %r8, -1; @%p4 bra POLL{n};
DONE{n}: barrier.sync 0;
"""
"""`cooperative_groups::this_grid().sync()` as nvcc writes it."""
GRID = """mov.u32 %r9, %envreg2; cvt.u64.u32 %rd2, %r9; mov.u32 %r10, %envreg1; cvt.u64.u32 %rd3, %r10;
bfi.b64 %rd4, %rd3, %rd2, 32, 32; setp.ne.s64 %p1, %rd4, 0; @!%p1 trap; mov.u32 %r13, %tid.x;
"""


@pytest.mark.parametrize(
    ("grid", "block"), [((7, 1, 1), (33, 1, 1)), ((3, 2, 2), (4, 3, 2)), ((100, 1, 1), (32, 1, 1))]
)
@pytest.mark.parametrize("chunk", [32, 32768])
def test_grid_sync_of_cooperative_groups_synchronises_the_grid(grid, block, chunk):
    """Three times each thread adds the last value of the opposite thread in the grid."""
    n = int(np.prod(grid) * np.prod(block))
    body = GRID + f"sub.u32 %r11, {n - 1}, %r1; mul.wide.u32 %rd6, %r11, 16; add.u64 %rd6, %rd6, %out;\n"
    body += "add.u32 %r12, %r1, 1; st.global.u32 [%at], %r12;\n"
    for i in range(3):
        here, there = (4 * i, 4 * i + 4)
        body += (
            SYNC.format(n=i) + f"ld.volatile.global.u32 %r4, [%rd6+{here}]; mad.lo.u32 %r12, %r12, 3, %r4;\n"
        )
        body += f"st.global.u32 [%at+{there}], %r12;\n"
    device = simwarp.Device(chunk_lanes=chunk, workers=2)
    got = launch(body + "ret;", grid, block, 4, device, dtype=np.uint32, cooperative=True).reshape(n, 4)
    rounds = [np.arange(1, n + 1, dtype=np.uint32)]
    for _ in range(3):
        rounds.append(rounds[-1] * np.uint32(3) + rounds[-1][::-1])
    assert np.array_equal(got, np.stack(rounds, axis=-1))


def test_each_cooperative_launch_has_a_fresh_workspace():
    device = simwarp.Device()
    body = GRID + SYNC.format(n=0) + "mov.u32 %r2, 5; st.global.u32 [%at], %r2; ret;"
    for grid in ((4, 1, 1), (9, 1, 1)):
        assert (launch(body, grid, (64, 1, 1), 1, device, dtype=np.uint32, cooperative=True) == 5).all()


def test_grid_sync_in_an_ordinary_launch_is_a_fault():
    with pytest.raises(simwarp.faults.NotCooperative):
        launch(GRID, (2, 1, 1), (32, 1, 1), 1)
