"""Traffic by who accesses memory: lanes, remote stores, bulk and tensor copies, products of warpgroups."""

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.fragments.descriptors import Descriptors, descriptor
from simwarp.observe.banks import count_banks
from simwarp.observe.trace import Trace
from support import small_kernels as small
from support import tensor_tiles as tiles
from support import warpgroup_kernels as warpgroups
from support.warpgroup_kernels import COMMIT, ORDER, WAIT, Tile

SCHEDULES = ["lowest pc", "stack", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


def counted(report):
    """The counters of each unit except lanes that are not 0, as plain data."""
    units = {unit: spaces for unit, spaces in report.to_json()["traffic"]["units"].items() if unit != "lanes"}
    return {
        unit: {space: {name: n for name, n in one.items() if n} for space, one in spaces.items()}
        for unit, spaces in units.items()
    }


# ---- products ---------------------------------------------------------------------------------------

F16 = "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16"


@every_schedule
@pytest.mark.parametrize("span", [0, 32, 128])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "registers"])
def test_products_read_their_tiles_from_shared_memory(shared, span, schedule):
    """Warpgroup 1 issues two products, warpgroup 0 one; a product reads 32 bytes of each row of A and B."""
    pitch = span or 32
    size = 80 * pitch
    left, right = Tile(0, 64, span), Tile(64 * pitch, 16, span)
    first = "%x" if shared else warpgroups.registers(4, "a")
    more = warpgroups.immediates(F16, not shared)
    product = f"{F16} {warpgroups.registers(8)}, {first}, %y, %yes{more};\n"
    body = f"mov.b64 %x, {left.word:#x}; mov.b64 %y, {right.word:#x}; setp.lt.u32 %done, %t, 128;\n{ORDER}"
    body += f"{product}@%done bra READY;\n{product}READY: {COMMIT}{WAIT}"
    device = simwarp.Device(observe=("traffic", "banks"), schedule=schedule)
    text = warpgroups.kernel(F16, body, size, not shared, threads=256)
    d, a = np.zeros((3, 256, 8), np.uint32), np.zeros((3, 256, 4), np.uint32)
    warpgroups.launch(text, np.zeros((3, size), np.uint8), d, a, device, threads=256)
    expected = 3 * 3 * 32 * (16 + 64 * shared)
    assert counted(device.report) == {"products": {"shared": {"loaded": expected}}}
    traffic = device.report.traffic
    assert traffic.loaded["shared"] == expected
    assert traffic.stored["shared"] == traffic.units["lanes"].stored["shared"] == 3 * size
    assert list(device.report.bank_conflicts.opcodes) == ["st.shared.b32"]


@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_no_descriptor_names_a_core_matrix_with_conflicts(span, k_major):
    """Whatever start and offsets: its eight chunks are in different banks, so nobody counts conflicts."""
    random = np.random.default_rng(span)
    for _ in range(100):
        start, leading, stride = (16 * random.integers(0, 300, 3)).tolist()
        base = int(random.integers(0, 8)) if span else 0
        word = np.array([descriptor(start, leading, stride, span, base)], np.uint64)
        at = Descriptors.of(word).chunks(64, 2 if k_major else 16, k_major)
        cores = (at.swapaxes(1, 2) if k_major else at).reshape(-1)  # eight chunks after another are a core
        found = count_banks(np.arange(cores.size), cores, 16, "store")
        assert (found.wavefronts, found.conflicts) == (cores.size * 16 // 128, 0)


@pytest.mark.parametrize(("swizzle", "conflicts"), [(0, 4 * 7), (128, 0)])
def test_lanes_conflict_on_a_tile_without_the_swizzle(swizzle, conflicts):
    """A tensor copy brings 32 rows of 128 bytes; ldmatrix reads the first 16 bytes of each."""
    device = simwarp.Device(observe="banks")
    given, out = (device.upload(np.arange(1024, dtype=np.uint32).reshape(32, 32)) for _ in range(2))
    body = tiles.INIT + tiles.EXPECT.format(4096) + tiles.load((0, 0)) + tiles.WAIT
    body += f"""setp.ge.u32 %p3, %t, 32; @%p3 bra END;
mad.lo.u32 %r1, %t, 128, %tile; and.b32 %r2, %t, 7; shl.b32 %r2, %r2, 4; and.b32 %r2, %r2, {swizzle and 112};
add.u32 %r1, %r1, %r2; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r1];
mul.wide.u32 %rd1, %t, 4; add.u64 %rd1, %rd1, %out; st.global.u32 [%rd1], %r4;
END:"""
    tiles.launch(body, device.tensor_map(given, (32, 32), swizzle=swizzle), out)
    assert out.download().reshape(-1)[:8].tolist() == [0, 1, 2, 3, 32, 33, 34, 35]
    banks = device.report.bank_conflicts
    assert banks.opcodes["ldmatrix.sync.aligned.m8n8.x4.shared.b16"].conflicts == conflicts
    assert not any("bulk" in opcode for opcode in banks.opcodes)


# ---- copies -----------------------------------------------------------------------------------------


@every_schedule
def test_tensor_copies_count_apart_from_loads_and_stores(schedule):
    """The box leaves the array: 5 of its 8 rows exist; the fill is written, not read."""
    device = simwarp.Device(observe="traffic", schedule=schedule)
    given, out = (device.upload(np.ones((5, 8), np.float32)) for _ in range(2))
    body = (
        tiles.INIT
        + tiles.EXPECT.format(256)
        + tiles.load((0, 0))
        + tiles.WAIT
        + tiles.store((0, 0))
        + tiles.DONE
    )
    body += tiles.store((0, 0), ".tile", "cp.reduce.async.bulk.tensor", ".add") + tiles.DONE
    tiles.launch(body, device.tensor_map(given, (8, 8)), out)
    found = {"loaded": 160, "stored": 160, "atomics": 40, "atomic_bytes": 160}
    assert counted(device.report) == {
        "tensor copies": {"global": found, "shared": {"loaded": 320, "stored": 256}}
    }
    assert device.report.traffic.loaded["global"] == 160
    assert "tensor copies  shared" in device.report.to_text()


BULK = """.shared .align 16 .b8 tile[512]; .shared .align 8 .b64 bar; .reg .pred %one;
setp.eq.u32 %one, %r1, 0; @%one mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
@%one mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 512;
mov.u64 %rd1, bar; mov.u64 %rd3, tile;
@%one cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%rd3], [%in], 512, [%rd1];
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra AGAIN;
@%one cp.async.bulk.global.shared::cta.bulk_group [%out], [%rd3], 64;
@%one cp.async.bulk.commit_group; @%one cp.async.bulk.wait_group 0;
@%one cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%rd3], 32;
@%one cp.async.bulk.commit_group; @%one cp.async.bulk.wait_group 0; ret;"""


@every_schedule
def test_bulk_copies_and_reductions_count_apart(schedule):
    device = simwarp.Device(observe=("traffic", "banks"), schedule=schedule)
    small.run(BULK, 32, 1, np.arange(128, dtype=np.uint32), device)
    assert counted(device.report) == {
        "bulk copies": {
            "global": {"loaded": 512, "stored": 64, "atomics": 8, "atomic_bytes": 32},
            "shared": {"loaded": 96, "stored": 512},
        }
    }
    assert not any("bulk" in opcode for opcode in device.report.bank_conflicts.opcodes)


def test_a_copy_from_a_stage_reads_it():
    """The timeline ends a stage with the copies that bring it out of shared memory."""
    device = simwarp.Device(observe="pipeline")
    small.run(BULK, 32, 1, np.arange(128, dtype=np.uint32), device)
    (turn,) = device.report.pipeline.turns
    assert turn.issued < turn.filled <= turn.read_from < turn.read_to


MULTICAST = """
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void __cluster_dims__(2) all(const int* in, int* out) {
    __shared__ alignas(16) int tile[32];
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&bar, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, 128);
    }
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, in, 128, &bar, (unsigned short)3);
    while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}
    out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
}"""


def test_a_multicast_reads_once_and_writes_to_each_block():
    device = simwarp.Device(observe="traffic")
    text = compile(MULTICAST, "all.cu", options=["--gpu-architecture=compute_90a"]).text
    given, out = device.upload(np.arange(32, dtype=np.int32)), device.allocate((64,), np.int32)
    device.load(text).kernel("all")(2, 32, given, out)
    assert counted(device.report) == {"bulk copies": {"global": {"loaded": 128}, "shared": {"stored": 256}}}


def test_remote_stores_are_stores_of_shared_memory():
    body = """.shared .align 8 .b64 bar; .shared .align 16 .b32 there[32];
setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd5, [bar], 128;
mov.u32 %r3, bar; mov.u32 %r4, there; mad.lo.u32 %r4, %r1, 4, %r4; mov.u32 %r2, 7;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r2, [%r3];
AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra AGAIN;
"""
    device = simwarp.Device(observe="traffic")
    small.run(body + small.STORE, device=device, cluster=1)
    assert counted(device.report) == {"remote stores": {"shared": {"stored": 128}}}


def test_a_trace_has_the_addresses_of_lanes_alone():
    """A row has one address for each lane; a copy has many."""
    trace = Trace()
    small.run(BULK, 32, 1, np.arange(128, dtype=np.uint32), simwarp.Device(observers=[trace]))
    records = [r for r in trace.warp(0, 0) if "async.bulk" in r.instruction.opcode]
    assert len(records) == 7
    assert not any(record.accesses for record in records)
