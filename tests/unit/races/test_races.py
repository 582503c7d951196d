"""Data races: each way to order two accesses, and the same kernel without the ordering."""

from pathlib import Path

import numpy as np
import pytest

import simwarp
from gpu.compile import compile
from simwarp.engine.chunk import Chunk
from simwarp.engine.events import OrderedAccess
from simwarp.engine.launch import Launch
from simwarp.engine.schedule.host_functions import Heap
from simwarp.faults import Note, Race
from simwarp.memory import Memory
from simwarp.program.link import link
from simwarp.ptx.parse import parse
from simwarp.races import Races
from simwarp.races.static_filter import RaceFilter
from simwarp.races.vector_clocks import VectorClock
from simwarp.races.warp_order import WarpOrder
from support import small_kernels as small

ROOT = Path(__file__).parents[3]
WORDS = 4096

HEAD = """
typedef unsigned int u32;
__device__ u32 flag, turns, lock, cell, cells[4096];
#define LOAD(name, what) __device__ inline u32 name(u32* p) \\
    { u32 v; asm volatile(what " %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
#define STORE(name, what) __device__ inline void name(u32* p, u32 v) \\
    { asm volatile(what " [%0], %1;" :: "l"(p), "r"(v) : "memory"); }
LOAD(load_acquire, "ld.acquire.gpu.u32")
LOAD(load_relaxed, "ld.relaxed.gpu.u32")
STORE(store_release, "st.release.gpu.u32")
STORE(store_relaxed, "st.relaxed.gpu.u32")
#define NOTHING asm volatile("" ::: "memory")
#define BARRIER(n, count) asm volatile("bar.sync %0, %1;" :: "r"(n), "r"(count) : "memory")
#define ARRIVE(n, count) asm volatile("bar.arrive %0, %1;" :: "r"(n), "r"(count) : "memory")
#define FENCE(scope) asm volatile("fence.acq_rel." scope ";" ::: "memory")
extern "C" __global__ void k(u32* out, u32* in)
{
    const u32 t = threadIdx.x, b = blockIdx.x, n = blockDim.x, i = b * n + t;
    extern __shared__ u32 s[];
"""


def faults_of(body, block=64, grid=1, launches=1, shared=8192, cooperative=False, head=HEAD, **options):
    """The races in a kernel body, once per pair of lines."""
    ptx = compile(head + body + "\n}\n", "races.cu")
    device = simwarp.Device(checks={"races": "report"}, **options)
    out = device.upload(np.zeros(WORDS, np.uint32), "out")
    data = device.upload(np.arange(WORDS, dtype=np.uint32), "in")
    kernel = device.load(ptx).kernel("k")
    for _ in range(launches):
        kernel((grid, 1, 1), (block, 1, 1), out, data, shared=shared, cooperative=cooperative)
    return [fault for fault in device.faults if isinstance(fault, Race)]


def kinds_of(body, **options):
    return sorted({(fault.earlier, fault.later) for fault in faults_of(body, **options)})


def line_of(part, body, head=HEAD):
    assert (head + body).count(part) == 1
    return 1 + (head + body)[: (head + body).index(part)].count("\n")


# ------------------------------------------------------------------- each order, and what happens without

FLAG = "if (b == 0) { if (t == 0) { %s; %s; %s; } } else if (t == 0) { while (%s == 0); %s; out[0] = %s; }"
"""Block 0 writes a word, raises a flag; the other block waits for the flag, then reads the word."""


def flag(write="cell = 7", before="__threadfence()", rise="atomicExch(&flag, 1)", look="atomicAdd(&flag, 0)"):
    return lambda after, fence=before: FLAG % (write, fence, rise, look, after, "cell")


LOCK = """
    if (t == 0) {
        while (%s);
        %s;
        cell = cell + 1;
        %s;
        %s;
    }
"""
LAST_BLOCK = """
    __shared__ bool last;
    s[t] = in[i];
    if (t == 0) cells[b] = in[i];
    if (t == 0) { %s; last = atomicAdd(&turns, 1) == gridDim.x - 1; %s; }
    __syncthreads();
    if (last && t < gridDim.x) out[t] = cells[t];
"""
GRID = """
    cells[i] = in[i];
    __syncthreads();
    if (t == 0) {
        %s;
        atomicAdd(&turns, 1);
        while (*(volatile u32*)&turns < gridDim.x);
        %s;
    }
    %s;
    out[i] = cells[(i + n) %% (n * gridDim.x)];
"""
PIPE = """
    if (t < 32) {
        for (u32 turn = 0; turn < 3; ++turn) {
            BARRIER(1, 64);
            s[t] = turn * 100 + t;
            ARRIVE(2, 64);
        }
    } else {
        u32 sum = 0;
        for (u32 turn = 0; turn < 3; ++turn) {
            %s;
            %s;
            sum += s[63 - t];
        }
        out[t] = sum;
    }
"""

ORDERS = {
    "barrier": ("s[t] = in[t]; __syncthreads(); out[t] = s[63 - t];", "__syncthreads()", [("write", "read")]),
    "barrier before the next write": (
        "u32 sum = 0; for (u32 k = 0; k < 3; ++k) { s[t] = in[t + k]; __syncthreads(); sum += s[63 - t]; "
        "__threadfence_block(); BARRIER(0, 64); } out[t] = sum;",
        "BARRIER(0, 64)",
        [("read", "write")],
    ),
    "barrier with a count": (
        "s[t] = in[t]; BARRIER(1 + t / 64, 64); out[t] = s[t ^ 63];",
        "BARRIER(1 + t / 64, 64)",
        [("write", "read")],
    ),
    "warp barrier": ("s[t] = in[t]; __syncwarp(); out[t] = s[t ^ 31];", "__syncwarp()", [("write", "read")]),
    "barrier of a few lanes": (
        "if (t % 32 < 4) { s[t] = in[t]; __syncwarp(0xf); out[t] = s[t ^ 3]; }",
        "__syncwarp(0xf)",
        [("write", "read")],
    ),
    "lanes by way of others": (
        "if (t < 8) { if (t == 0) s[0] = in[0]; if (t < 4) __syncwarp(0x0f); if (t >= 3) __syncwarp(0xf8); "
        "if (t == 7) out[0] = s[0]; }",
        "__syncwarp(0xf8)",
        [("write", "read")],
    ),
    "fence before a flag": (flag()("__threadfence()"), "__threadfence(); atomicExch", [("write", "read")]),
    "fence after a flag": (flag()('FENCE("gpu")'), 'FENCE("gpu")', [("write", "read")]),
    "volatile flag": (
        flag(rise="*(volatile u32*)&flag = 1", look="*(volatile u32*)&flag")('FENCE("sys")'),
        "__threadfence()",
        [("write", "read")],
    ),
    "release": (
        flag(before="NOTHING", rise="store_release(&flag, 1)", look="load_acquire(&flag)")("NOTHING"),
        "store_release",
        [("write", "read")],
    ),
    "acquire": (
        flag(before="NOTHING", rise="store_release(&flag, 1)", look="load_acquire(&flag)")("NOTHING"),
        "load_acquire",
        [("write", "read")],
    ),
    "lock taken": (
        LOCK % ("atomicCAS(&lock, 0, 1) != 0", "__threadfence()", 'FENCE("gpu")', "atomicExch(&lock, 0)"),
        "__threadfence()",
        [("write", "read")],
    ),
    "lock given back": (
        LOCK % ("atomicCAS(&lock, 0, 1) != 0", "__threadfence()", 'FENCE("gpu")', "atomicExch(&lock, 0)"),
        'FENCE("gpu")',
        [("write", "read")],
    ),
    "the last block": (
        LAST_BLOCK % ("__threadfence()", 'FENCE("gpu")'),
        "__threadfence()",
        [("write", "read")],
    ),
    "the last block looks": (
        LAST_BLOCK % ("__threadfence()", 'FENCE("gpu")'),
        'FENCE("gpu")',
        [("write", "read")],
    ),
    "grid barrier, before": (
        GRID % ("__threadfence()", 'FENCE("gpu")', "__syncthreads()"),
        "__threadfence()",
        [("write", "read")],
    ),
    "grid barrier, behind": (
        GRID % ("__threadfence()", 'FENCE("gpu")', "__syncthreads()"),
        'FENCE("gpu")',
        [("write", "read")],
    ),
    "consumer waits": (PIPE % ("ARRIVE(1, 64)", "BARRIER(2, 64)"), None, []),
}
REPLACED = {
    "store_release": "store_relaxed",
    "load_acquire": "load_relaxed",
    "__threadfence(); atomicExch": "NOTHING; atomicExch",
}
LAUNCHES = {
    "barrier with a count": {"block": 128},
    "fence before a flag": {"grid": 2},
    "fence after a flag": {"grid": 2},
    "volatile flag": {"grid": 2},
    "release": {"grid": 2},
    "acquire": {"grid": 2},
    "the last block": {"grid": 5},
    "the last block looks": {"grid": 5},
    "grid barrier, before": {"grid": 4, "cooperative": True},
    "grid barrier, behind": {"grid": 4, "cooperative": True},
    "lock taken": {"grid": 3},
    "lock given back": {"grid": 3},
}


@pytest.mark.parametrize("name", ORDERS)
def test_ordered_accesses_are_not_a_race(name):
    assert kinds_of(ORDERS[name][0], **LAUNCHES.get(name, {})) == []


@pytest.mark.parametrize("name", [name for name, case in ORDERS.items() if case[1]])
def test_unordered_accesses_are_a_race(name):
    body, part, expected = ORDERS[name]
    assert part in body
    broken = body.replace(part, REPLACED.get(part, "NOTHING"))
    assert set(expected) <= set(kinds_of(broken, **LAUNCHES.get(name, {})))


def test_a_cta_fence_does_not_order_other_blocks():
    good = flag(before='FENCE("gpu")')('FENCE("gpu")')
    assert kinds_of(good, grid=2) == []
    for broken in (flag(before='FENCE("cta")')('FENCE("gpu")'), flag(before='FENCE("gpu")')('FENCE("cta")')):
        assert kinds_of(broken, grid=2) == [("write", "read")]
    within = 'if (t == 0) { cell = 7; FENCE("cta"); atomicExch(&flag, 1); } '
    within += 'if (t == 32) { while (atomicAdd(&flag, 0) == 0); FENCE("cta"); out[0] = cell; }'
    assert kinds_of(within) == []
    assert kinds_of(within.replace('cell = 7; FENCE("cta")', "cell = 7; NOTHING")) == [("write", "read")]


def test_a_fence_before_a_barrier_does_not_order_other_warps():
    """Writes of other warps are ordered only after the barrier, so the fence must follow it."""
    body = """if (b == 0) {
        if (t == 40) cell = 7;
        __threadfence(); __syncthreads(); %s;
        if (t == 0) atomicExch(&flag, 1);
    } else if (t == 0) { while (atomicAdd(&flag, 0) == 0); __threadfence(); out[0] = cell; }"""
    assert kinds_of(body % "__threadfence()", grid=2) == []
    only_one = body.replace(
        "__threadfence(); __syncthreads()", "if (t == 0) __threadfence(); __syncthreads()"
    )
    assert kinds_of(only_one % "NOTHING", grid=2) == [("write", "read")]


def test_block_scoped_atomics_of_two_blocks_race():
    body = "atomicAdd%s(&cell, 1);"
    assert kinds_of(body % "", grid=2) == kinds_of(body % "_block", grid=1) == []
    (fault,) = faults_of(body % "_block", grid=2)
    assert (fault.earlier, fault.later) == ("atomic", "atomic")
    assert "scope" in fault.advice


WAITS = "else if (t == 0) { %s; out[0] = %s; }"


def test_an_observed_strong_write_orders_its_reader():
    """A thread that read the flag strongly may read it weakly; other threads may not."""
    raises = "if (b == 0) { if (t == 0) { cell = 1; store_relaxed(&flag, 5); } } "
    sees = "while (load_relaxed(&flag) == 0)"
    assert kinds_of(raises + WAITS % (sees, "flag"), grid=2) == []
    assert kinds_of(raises + WAITS % ("NOTHING", "flag"), grid=2) != []
    assert kinds_of(raises + WAITS % (sees, "cell"), grid=2) == [("write", "read")]


def test_a_relaxed_write_after_a_release_continues_the_release_pattern():
    raises = "if (b == 0) { if (t == 0) { cell = 1; store_release(&flag, 1); store_relaxed(&flag, 2); } } "
    sees = "while (load_acquire(&flag) != 2)"
    assert kinds_of(raises + WAITS % (sees, "cell"), grid=2) == []
    assert kinds_of((raises + WAITS % (sees, "cell")).replace("release", "relaxed"), grid=2) != []


def test_an_acquire_load_covers_earlier_relaxed_reads_of_its_location():
    raises = "if (b == 0) { if (t == 0) { cell = 1; store_release(&flag, 1); } } "
    sees = "while (load_relaxed(&flag) == 0); load_acquire(&%s)"
    assert kinds_of(raises + WAITS % (sees % "flag", "cell"), grid=2) == []
    assert kinds_of(raises + WAITS % (sees % "turns", "cell"), grid=2) == [("write", "read")]


CLUSTER = """.extern .shared .align 16 .b32 far[];"""
CLUSTER_BODY = """mov.u32 %r3, far; shl.b32 %r5, %r1, 2; add.u32 %r3, %r3, %r5; st.shared.u32 [%r3], %i;
ARRIVE WAIT mov.u32 %r9, %cluster_ctarank; xor.b32 %r9, %r9, 1; mapa.shared::cluster.u32 %r4, %r3, %r9;
ld.shared::cluster.u32 %r2, [%r4]; LAST
"""


def cluster_races(**parts):
    body = CLUSTER_BODY
    both = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    for name, text in {"ARRIVE": both, "WAIT": "", "LAST": both, **parts}.items():
        body = body.replace(name, text)
    device = simwarp.Device(checks={"races": "report", "freed": "off"})
    small.run(
        body + small.STORE,
        block=64,
        grid=4,
        before=CLUSTER,
        directives=".reqnctapercluster 2, 1, 1",
        device=device,
        shared=1024,
    )
    return [(fault.earlier, fault.later) for fault in device.faults]


def test_a_cluster_barrier_orders_accesses():
    assert cluster_races() == []
    assert cluster_races(ARRIVE="bar.sync 0;") == [("write", "read")]
    assert cluster_races(LAST="st.shared.u32 [%r3], 1;") == [("read", "write")]


def test_a_write_after_a_cluster_arrive_is_not_ordered_by_the_wait():
    parts = {
        "ARRIVE": "barrier.cluster.arrive; setp.lt.u32 %p1, %r1, 32; @%p1 st.shared.u32 [%r3], 5;",
        "WAIT": "barrier.cluster.wait;",
    }
    assert cluster_races(**parts) == [("write", "read")]


def test_a_producer_write_after_bar_arrive_races_with_the_consumer():
    good = "if (t < 32) { s[t] = 1; ARRIVE(1, 64); %s } else { BARRIER(1, 64); out[t] = s[63 - t]; }"
    assert kinds_of(good % "s[t + 64] = 2;") == []
    assert kinds_of(good % "s[t] = 2;") in ([("write", "read")], [("read", "write")])


def test_a_vector_clock_does_not_cover_writes_after_an_arrival():
    """The consumer's wait orders only the writes before the producer's arrive."""
    launch, chunk = launch_of("st.shared.u32 [cell], %r0; ld.shared.u32 %r0, [cell];", block=64)
    races, store, load = launch.races, *launch.program.steps[:2]
    producer, consumer = np.zeros((2, 2, 32), bool)
    producer[0], consumer[1] = True, True
    at, one = np.array([0], np.uint64), np.array([1], np.uint32)
    write = OrderedAccess(chunk, store, "write", chunk.shared, np.array([0]), at, 4, one)
    races.access(write)
    races.block_arrive(chunk, producer)
    races.access(write._replace(addresses=at + np.uint64(4)))
    races.block_barrier(chunk, consumer, whole=False, arrived=producer)
    chunk.step = load
    read = OrderedAccess(chunk, load, "read", chunk.shared, np.array([32]), at, 4)
    races.access(read)
    with pytest.raises(Race):
        races.access(read._replace(addresses=at + np.uint64(4)))


# --------------------------------------------------------------------------------- which bytes, which values


def test_accesses_to_neighbouring_bytes_do_not_race():
    body = "unsigned char* c = (unsigned char*)s; c[t] = t; __syncthreads(); c[t] = c[t] + 1; out[t] = c[t];"
    assert kinds_of(body, block=96) == []
    assert kinds_of(body.replace("= c[t] + 1", "= c[t ^ 1] + 1"), block=96) != []


def test_accesses_of_different_widths_race_where_they_overlap():
    good = """uint4* wide = (uint4*)s; unsigned short* half = (unsigned short*)s;
    wide[t] = make_uint4(t, t, t, t); __syncwarp(); half[8 * t + 3] = 1; ((unsigned char*)s)[16 * t + 8] = 2;
    out[t] = s[4 * t];"""
    assert kinds_of(good, block=32) == []
    assert kinds_of(good.replace("s[4 * t];", "s[(4 * t + 6) % 128];"), block=32) == [("write", "read")]
    assert kinds_of(good.replace("s[4 * t];", "s[(4 * t + 4) % 128];"), block=32) == []
    (fault,) = faults_of(
        good.replace("__syncwarp()", "NOTHING").replace("8 * t + 3", "(8 * t + 11) % 256"), block=32
    )
    assert (fault.earlier, fault.later, fault.width) == ("write", "write", 2)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("atomicAdd(s, 1);", []),
        ("atomicAdd(s, 1); out[t] = s[0];", [("atomic", "read")]),
        ("if (t < 32) atomicAdd(s, 1); else s[0] = t;", [("atomic", "write"), ("write", "write")]),
        ("if (t < 32) s[0] = 9; else atomicAdd(s, 1);", [("write", "atomic")]),
        ("out[t] = s[t & 1]; atomicAdd(s, 1);", [("read", "atomic")]),
        ("out[0] += in[t];", [("read", "write"), ("write", "write")]),
        ("out[0] = 1;", []),
        ("if (t < 32) out[0] = 1; else out[0] = 1;", []),
        ("out[0] = t;", [("write", "write")]),
        ("out[t / 2] = t;", [("write", "write")]),
        ("out[t / 2] = t / 2;", []),
        ("if (t < 32) out[t] = 1; else out[t - 32] = 2;", [("write", "write")]),
        ("*(volatile u32*)out = t;", []),
        ("if (t == 0) *(volatile u32*)out = t; else in[t] = *(volatile u32*)out;", []),
        ("if (t == 0) *(volatile u32*)out = 5; else in[t] = *out;", [("read", "write")]),
    ],
)
def test_two_accesses_race_if_they_overlap_and_one_writes(body, expected):
    zero = "if (t < 2) s[t] = 0; __syncthreads(); "
    assert kinds_of(zero + body) == expected


@pytest.mark.at_most(4)
@pytest.mark.parametrize("writer", [0, 31, 32, 63])
@pytest.mark.parametrize("wait", ["if (t == %d) %s", "if (t != %d) return; %s"])
def test_a_write_races_with_every_earlier_reader(writer, wait):
    """The last reading lane does not hide the others."""
    body = "if (t == 0) s[0] = 1; __syncthreads(); u32 x = s[0]; out[t] = x; BETWEEN "
    body += wait % (writer, "s[0] = x + 1;")
    assert kinds_of(body.replace("BETWEEN", "__syncthreads();")) == []
    assert kinds_of(body.replace("BETWEEN", "")) == [("read", "write")]
    (fault,) = faults_of(body.replace("BETWEEN", "__syncwarp();"))
    assert fault.place.warp == writer // 32
    assert fault.other.warp != fault.place.warp


@pytest.mark.parametrize("schedule", ["lowest pc", "random", "stack"])
@pytest.mark.parametrize(
    ("clear", "store", "writers", "launch"),
    [
        ("s[0] = 0;", "if (t == %d) s[0] = 1;", (0, 13, 31), {"block": 32}),
        ("s[0] = 0;", "if (t == %d) s[0] = 1;", (0, 32, 95), {"block": 96}),
        ("out[0] = 0;", "if (t == %d) out[0] = in[7];", (0, 40, 95), {"block": 96}),
        ("if (t == 0) out[0] = 0;", "if (t == 0 && b == %d) out[0] = in[7];", (0, 1, 3), {"grid": 4}),
    ],
)
def test_a_store_races_with_equal_writes_of_other_lanes(clear, store, writers, launch, schedule):
    """Equal writes do not race with each other, but with the store of other bits."""
    for writer in writers:
        faults = faults_of(f"{clear} NOTHING; {store % writer}", schedule=schedule, **launch)
        assert {(fault.earlier, fault.later) for fault in faults} == {("write", "write")}
    if "grid" not in launch:
        assert faults_of(f"{clear} __syncthreads(); {store % 0}", schedule=schedule, **launch) == []


def test_writes_of_equal_bits_are_not_a_race():
    assert kinds_of("out[0] = 7; NOTHING; out[0] = 7;", grid=3) == []
    assert kinds_of("if (t < 40) s[0] = 7; NOTHING; if (t > 20) s[0] = 7;", grid=3) == []


def test_an_ordered_reader_does_not_hide_an_unordered_one():
    """Warp 0 reads and synchronises with the writer, warp 1 only reads."""
    body = """if (t == 64) s[0] = 1; __syncthreads();
    if (t < 32) { out[t] = s[0]; BARRIER(1, 64); }
    else if (t < 64) { %s out[t] = s[0]; %s }
    else { BARRIER(1, 64); %s s[0] = 2; }"""
    for first in ("", "for (u32 k = 0; k < 40; ++k) out[t] = k;"):
        good = body % (first, "BARRIER(2, 64);", "BARRIER(2, 64);")
        assert kinds_of(good, block=96) == []
        assert kinds_of(body % (first, "", ""), block=96) == [("read", "write")]


# ------------------------------------------------------------------------- launches, chunks and parts of them


def test_launches_are_ordered():
    assert kinds_of("out[i] = in[i]; in[i] = b;", grid=2, launches=3) == []
    assert kinds_of("if (i == 5) out[7] = 1; if (i == 9) in[3] = out[7];", launches=1) != []


@pytest.mark.parametrize("chunk_lanes", [64, 128, 32768])
def test_blocks_of_any_chunk_race(chunk_lanes):
    (fault,) = faults_of("out[t] = b;", grid=4, chunk_lanes=chunk_lanes)
    assert (fault.earlier, fault.later, fault.space, fault.allocation) == ("write", "write", "global", "out")
    assert fault.place.block != fault.other.block
    assert (fault.other.thread, fault.other.lane) == (fault.place.thread, fault.place.lane)
    assert kinds_of("out[i] = b;", grid=4, chunk_lanes=chunk_lanes) == []


def test_races_are_found_in_a_compact_copy(monkeypatch):
    """One of sixteen warps continues a loop in a compact copy."""
    parts, part = [], Chunk.part
    monkeypatch.setattr(Chunk, "part", lambda chunk, rows: parts.append(rows.tolist()) or part(chunk, rows))
    body = """__shared__ u32 x[32]; if (t < 32) x[t] = 0; __syncwarp();
    if (b != 3) return;
    for (u32 k = 0; k < 100; ++k) { if (t < 32) { x[t] = x[(t + 1) %% 32] + k; %s } }
    out[t] = x[t %% 32];"""
    bad = faults_of(body % "", block=32, grid=16)
    assert ("write", "read") in {(fault.earlier, fault.later) for fault in bad}
    assert {fault.place.block for fault in bad} == {fault.other.block for fault in bad} == {(3, 0, 0)}
    assert [3] in parts
    good = (body % "__syncwarp();").replace(
        "x[t] = x[(t + 1) % 32] + k;", "u32 y = x[(t + 1) % 32] + k; __syncwarp(); x[t] = y;"
    )
    assert kinds_of(good, block=32, grid=16) == []


@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
def test_a_race_is_found_under_every_schedule(schedule):
    options = {"block": 64, "grid": 2, "schedule": schedule}
    assert kinds_of("s[t] = in[i]; __syncthreads(); out[i] = s[63 - t];", **options) == []
    assert kinds_of("s[t] = in[i]; out[i] = s[63 - t];", **options) != []


# ------------------------------------------------------------------------------------------- what is told


def test_a_race_names_both_places():
    body = "s[t + 4] = in[t];\nout[t] = s[67 - t];"
    (fault,) = faults_of(body)
    assert (fault.earlier, fault.later, fault.space) == ("write", "read", "shared")
    assert fault.place.source_file.endswith("races.cu")
    assert fault.place.source_line == line_of("out[t]", body)
    assert fault.other.source_line == line_of("s[t + 4]", body)
    assert (fault.place.warp, fault.other.warp) in ((0, 1), (1, 0))
    assert fault.place.thread[0] == 63 - fault.other.thread[0]
    assert (fault.width, fault.offset, fault.address) == (4, 4 * (fault.other.thread[0] + 4), fault.offset)
    assert fault.allocation == "shared memory of kernel k"
    assert fault.count == 64
    assert fault.what.startswith(f"read of s[{fault.offset // 4}], which another warp of the block wrote")
    assert fault.values == f"byte {fault.offset} of s in shared memory"
    assert fault.notes == (Note("written here by", fault.other),)
    assert fault.advice.startswith("put __syncthreads() between")


def test_a_shared_race_names_the_offset_within_its_block():
    faults = faults_of("if (b == 3) s[8] = t;", grid=5)
    assert [fault.offset for fault in faults] == [32]
    assert faults[0].advice.startswith("let one lane write")


def test_the_races_check_can_be_switched_off():
    with pytest.raises(Race):
        small.run("st.global.u32 [%out], %i; ret;")
    device = simwarp.Device(checks={"races": "off"})
    assert small.run("st.global.u32 [%out], %i; ret;", device=device)[0] == 31


def test_a_misaligned_access_is_not_reported_as_a_race():
    """A misaligned store overlaps the neighbour's bytes, but the alignment is the fault."""
    body = "add.u64 %at, %at, 2; st.global.u32 [%at], %i; ret;"
    assert small.fault_of(simwarp.faults.Misaligned, body).check == "alignment"
    body = "add.u64 %rd1, %out, 1000000; st.global.u32 [%rd1], %i; ret;"
    assert small.fault_of(simwarp.faults.OutOfBounds, body).check == "bounds"


# -------------------------------------------------------------------------- loads that need not be watched


def watched_of(text, kernel, arguments, symbols=()):
    """The watched loads of a kernel, by instruction text, and the number of all loads."""
    device = simwarp.Device()
    module = device.load(text)
    program = module.kernel(kernel).program
    parameters = {
        p.name: np.asarray(a).tobytes() for p, a in zip(program.parameters, arguments(device), strict=True)
    }
    launch = Launch(
        program,
        (1, 1, 1),
        (32, 1, 1),
        parameters,
        device.memory,
        device.constants,
        device.heap,
        symbols=module.symbols,
    )
    found = RaceFilter(program, module.symbols)
    return [program.steps[number].instruction.text for number in sorted(found.watched(launch))], len(
        found.loads
    )


def arrays(*sizes, numbers=0):
    def make(device):
        made = [device.allocate((size,), np.uint32) for size in sizes]
        device.kept = made
        return [np.uint64(array.pointer) for array in made] + [np.uint32(1)] * numbers

    return make


def test_benchmark_kernels_have_no_watched_loads():
    gemm = compile((ROOT / "examples/kernels/gemm.cu").read_text(), "gemm.cu").text
    watched, loads = watched_of(gemm, "gemm", arrays(256, 256, 256, numbers=3))
    assert (watched, loads) == ([], 32)
    defines = {"SCHEME": "bmm32", "WORD_32": "", "ROWS": 32, "FIRST_MSB": "", "OUTPUT_INT32": ""}
    bmm = compile((ROOT / "gpu/bmm/bmm.cu").read_text(), "bmm/bmm.cu", defines).text
    watched, _ = watched_of(bmm, "bmm32", arrays(256, 256, 256, numbers=3))
    assert "ld.global" in bmm
    assert watched == []


COPY = """.version 9.0 .target sm_90 .address_size 64
.global .u32 table[4];
.visible .entry k(.param .u64 to, .param .u64 from, .param .align 8 .b8 pair[16]) {
.reg .b64 %a, %b, %c, %rd<9>; .reg .b32 %r<9>; .shared .b32 cell;
ld.param.u64 %a, [to]; ld.param.u64 %b, [from]; ld.param.u64 %c, [pair+8]; mov.u32 %r1, %tid.x;
mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %a, %rd1; add.u64 %rd3, %b, %rd1; mov.u64 %rd5, table;
"""


@pytest.mark.parametrize(
    "body",
    [
        "ld.global.u32 %r2, [%rd3]; st.global.u32 [%rd2], %r2;",
        "!ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd2], %r2;",
        "!ld.u32 %r2, [%rd2]; st.u32 [%rd2], %r2;",
        "ld.u32 %r2, [%rd3]; st.u32 [%rd2], %r2;",
        "!ld.global.u32 %r2, [%c]; st.global.u32 [%rd3], %r2;",
        "ld.global.u32 %r2, [%c]; st.global.u32 [%rd2], %r2;",
        "!ld.global.u64 %rd4, [%rd2]; st.global.u32 [%rd4], 1;",
        "ld.global.u64 %rd4, [%rd3]; !ld.global.u32 %r2, [%rd4]; st.global.u32 [%rd2], 1;",
        "!ld.global.u32 %r2, [%rd3]; red.global.add.u32 [%rd3], 1;",
        "!ld.global.nc.u32 %r2, [%rd3]; red.global.add.u32 [%rd3], 1;",
        "ld.global.nc.u32 %r2, [%rd2]; red.global.add.u32 [%rd3], 1;",
        "ldu.global.u32 %r2, [%rd3]; !ldu.global.u32 %r2, [%rd2]; st.global.u32 [%rd2], 1;",
        "ld.global.u32 %r2, [%rd5]; red.global.add.u32 [%rd3], 1;",
        "!ld.global.u32 %r2, [%rd5]; st.global.u32 [table], 1;",
        "ld.global.u32 %r2, [%rd3]; st.shared.u32 [cell], 1;",
        "!ld.global.u32 %r2, [%rd3]; mov.b64 %rd4, {%r2, %r2}; st.global.u32 [%rd4], 1;",
        "!ld.volatile.global.u32 %r2, [%rd3]; fence.acq_rel.gpu;",
        "!ld.shared.u32 %r2, [cell]; st.shared.u32 [cell], 1;",
        "ld.shared.u32 %r2, [cell]; bar.sync 0; st.shared.u32 [cell], 1;",
        "!ld.shared.u32 %r2, [cell]; bar.sync 0, 64; st.shared.u32 [cell], 1;",
        "!ld.shared.u32 %r2, [cell]; bar.sync 0; bar.arrive 0, 64; st.shared.u32 [cell], 1;",
        "ld.shared.u32 %r2, [cell]; bar.sync 0; bar.arrive 1, 64; st.shared.u32 [cell], 1;",
        "!ld.shared.u32 %r2, [cell]; bar.sync %r1; st.shared.u32 [cell], 1;",
        "ld.shared.u32 %r2, [cell]; bar.sync 0; st.u32 [%rd2], 1;",
        "ld.shared.u32 %r2, [cell]; bar.sync 0; !ld.global.u64 %rd4, [%rd3]; st.u32 [%rd4], 1;"
        "!ld.shared.u32 %r3, [cell];",
        "AGAIN: !ld.shared.u32 %r2, [cell]; bar.sync 0; st.shared.u32 [cell], 1; bra AGAIN;",
        "AGAIN: ld.shared.u32 %r2, [cell]; bar.sync 0; st.shared.u32 [cell], 1; bar.sync 1; bra AGAIN;",
    ],
)
def test_loads_that_may_race_are_watched(body):
    """Loads marked ``!``; `pair` holds a number and a pointer into the array of `from`."""

    def arguments(device):
        device.kept = [device.allocate((256,), np.uint32) for _ in range(2)]
        to, source = (array.pointer for array in device.kept)
        return [np.uint64(to), np.uint64(source), np.array([12, source + 64], np.uint64)]

    lines = (body + " ret;").replace(";", ";\n").replace(": ", ":\n")
    expected = [line.strip()[1:] for line in lines.splitlines() if line.strip().startswith("!")]
    assert watched_of(COPY + lines.replace("!", "") + "}", "k", arguments)[0] == expected


def test_barriers_at_two_instructions_do_not_excuse_loads_from_watching():
    """Warps that reach the barrier at different instructions race after it."""
    body = """s[t] = in[t]; u32 x;
    if (t < 32) { BARRIER0; x = s[t ^ 1]; BARRIER0; s[t] = 5; BARRIER0; }
    else { BARRIER0; NOTHING; BARRIER0; x = s[t - 32]; BARRIER0; }
    out[t] = x;""".replace("BARRIER0", 'asm volatile("bar.sync 0;" ::: "memory")')
    assert set(kinds_of(body)) & {("read", "write"), ("write", "read")}


# ---------------------------------------------------------------------------------- the parts by themselves


def launch_of(body, block=64):
    """A launch of a few steps with 64 bytes of shared memory, and its chunk, before execution."""
    text = f".version 9.0 .target sm_90 .entry k() {{ .shared .b32 cell[16]; .reg .b32 %r<9>; {body} ret; }}"
    module = parse(text)
    memory = Memory()
    launch = Launch(
        link(module, module.entries["k"]),
        (1, 1, 1),
        (block, 1, 1),
        {},
        memory,
        Memory("const"),
        Heap(memory, 0),
        shared_size=64,
        find_races=Races,
    )
    chunk = Chunk(launch, np.arange(1))
    assert isinstance(launch.races, Races)
    launch.races.enter(chunk)
    return launch, chunk


@pytest.mark.parametrize("seed", range(8))
def test_warp_synchronisation_equals_a_table_of_clocks(seed):
    """Compared with a table of all pairs of lanes, updated by loops."""
    random = np.random.default_rng(seed)
    order, warps = WarpOrder(3), 3
    known = np.zeros((warps, 32, 32), np.int64)
    live = np.full(warps, 0xFFFFFFFF, np.uint32)
    lanes = np.arange(32)
    for time in range(1, 40):
        rows = np.flatnonzero(random.random(warps) < 0.7)
        groups = np.zeros((rows.size, 32), np.uint32)
        for at, row in enumerate(rows):
            part = random.integers(0, [1, 2, 4, 9][random.integers(4)], 32)
            if seed % 2:
                part = lanes // (8 << random.integers(3))
            for which in set(part.tolist()):
                members = lanes[part == which]
                if which and random.random() < 0.3:
                    continue
                groups[at, members] = sum(1 << int(lane) for lane in members)
                together = known[row, members].max(axis=0)
                together[members] = time
                known[row, members] = together
        order.meet(rows, groups, live[rows], time)
        later, earlier = (grid.reshape(-1) for grid in np.meshgrid(lanes, lanes, indexing="ij"))
        for row in range(warps):
            times = random.integers(0, time + 1, later.size)
            got = order.ordered(np.full(later.size, row), later, earlier, times)
            expected = times < known[row, later, earlier]
            different = later != earlier
            assert (got == expected)[different].all()


def test_long_chains_of_joined_vector_clocks_are_right():
    node, expected = VectorClock(5), np.zeros(5, np.int64)
    random = np.random.default_rng(1)
    nodes = [(node, expected)]
    for time in range(1, 300):
        (one, a), (other, b) = (nodes[i] for i in random.integers(max(0, len(nodes) - 9), len(nodes), 2))
        first = int(random.integers(4))
        end = first + int(random.integers(1, 3))
        times = np.maximum(a, b)
        times[first:end] = np.maximum(times[first:end], time)
        nodes.append((VectorClock(5, (one.joined(other),), ((first, end, time),)), times))
    for node, times in nodes[::-7]:
        assert node.times.tolist() == times.tolist()


def test_many_simultaneous_flag_releases_are_ordered():
    """More flags than are handled one by one; each warp raises its flags after its fence."""
    body = """cells[i] = in[i]; __threadfence(); atomicExch(out + i, 1);
    while (atomicAdd(out + (i + 32) % (n * gridDim.x), 0) == 0); FENCE("gpu");
    in[i] = cells[(i + 32) % (n * gridDim.x)];"""
    many = {"block": 1024, "grid": 4, "cooperative": True}
    assert kinds_of(body, **many) == []
    assert kinds_of(body.replace("__threadfence()", "NOTHING"), **many) == [("write", "read")]


# --------------------------------------------------------------------------- against every access ever made


class History:
    """All accesses of each byte, and a vector clock per thread, without shortcuts."""

    def __init__(self, threads):
        self.known = np.zeros((threads, threads), np.int64)
        self.accesses, self.time = {}, 1

    def meet(self, threads):
        together = self.known[threads].max(axis=0)
        together[threads] = self.time
        self.known[threads] = together

    def access(self, thread, offset, width, kind):
        """Kinds of the earlier accesses that race with this one."""
        races = set()
        for byte in range(offset, offset + width):
            for time, other, earlier in self.accesses.setdefault(byte, []):
                conflict = "read" not in (kind, earlier) or (kind != earlier and "read" in (kind, earlier))
                strong = kind == earlier == "atomic"
                if other != thread and conflict and not strong and time >= self.known[thread, other]:
                    races.add(earlier)
            self.accesses[byte].append((self.time, thread, kind))
        self.time += 1
        return races


def first_race(seed):
    """The first race of random accesses, as (found, expected) kinds of the earlier access."""
    random, history = np.random.default_rng(seed), History(96)
    body = "ld.shared.u32 %r0, [cell]; st.shared.u32 [cell], %r0; red.shared.add.u32 [cell], %r0;"
    launch, chunk = launch_of(body, block=96)
    races, (load, store, red) = launch.races, launch.program.steps[:3]
    for number in range(400):
        if random.random() < 0.6:
            meet(random, races, chunk, history)
            continue
        thread, width = int(random.integers(96)) // 5 * 5, int(2 ** random.integers(4))
        kind = ("read", "write", "atomic")[random.integers(3)]
        chunk.step = {"read": load, "write": store, "atomic": red}[kind]
        offset = int(random.integers(3)) * 8 + int(random.integers(8 // width)) * width
        expected = history.access(thread, offset, width, kind)
        lane, at = np.array([thread]), np.array([offset], np.uint64)
        try:
            data = np.array([number], f"u{width}") if kind == "write" else None
            races.access(OrderedAccess(chunk, chunk.step, kind, chunk.shared, lane, at, width, data))
        except Race as race:
            return race.earlier, expected
        if expected:
            return None, expected
    return None, set()


def test_random_accesses_and_synchronisations_report_only_real_races():
    """Earlier writes are always found; one of many reads or updates may rarely be missed."""
    missed, runs = 0, 60
    for seed in range(runs):
        found, expected = first_race(seed)
        assert expected, "without a race a run shows nothing"
        assert found in expected or (found is None and "write" not in expected)
        missed += found is None
    assert missed * 20 <= runs


def meet(random, races, chunk, history):
    """Synchronise lanes of a warp, two warps, or the whole block."""
    mask, lanes = np.zeros(chunk.mask.shape, bool), np.arange(32)
    what = random.integers(8)
    if what == 0:
        mask[:] = True
        races.block_barrier(chunk, mask, whole=True)
        history.meet(np.arange(96))
    elif what == 1:
        warps = np.sort(random.choice(3, 2, replace=False))
        mask[warps] = True
        races.block_barrier(chunk, mask, whole=False)
        history.meet((warps[:, None] * 32 + lanes).reshape(-1))
    else:
        warp, part = int(random.integers(3)), random.integers(0, random.integers(1, 4), 32) == 0
        mask[warp] = part
        word = sum(1 << int(lane) for lane in lanes[part])
        if part.any():
            races.warp_barrier(chunk, mask, np.uint32(word))
            history.meet(32 * warp + lanes[part])
